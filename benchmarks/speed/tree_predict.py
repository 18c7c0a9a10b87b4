"""Prediction from all anchors without building pairs, beside the library predicting built pairs.

1,000 anchors, 500 queries, 10 features, both orders of each pair, one thread. The library gets its
pairs in blocks of 20 queries. Each model is fitted once, saved, and loaded in a process of its own.
Writes `benchmarks/results/tree_predict.md`.

    OMP_NUM_THREADS=1 python -m benchmarks.speed.tree_predict
"""

import os
import tempfile
import time
import warnings
from pathlib import Path

import joblib
import numpy as np

from benchmarks import frame

N_ANCHORS, N_QUERIES, N_FEATURES, BLOCK = 1_000, 500, 10, 20
# rows of the table: pairs per point (their mirror images come on top), and the intended speedup
ROWS = {
    "HistGradientBoosting, 600 × 31 leaves": (32, 20),
    "LightGBM, 600 × 31 leaves": (32, 20),
    "HistGradientBoosting, 600 × 127 leaves": (32, 10),
    "LightGBM, 600 × 127 leaves": (32, 10),
    "RandomForest, 100 grown, leaves of 3": (32, 5),
    "RandomForest, 100 grown, leaves of 1": (32, 5),
    "ExtraTrees, 100 grown, leaves of 1": (16, 5),
}


def make_model(name):
    from sklearn.ensemble import (
        ExtraTreesRegressor,
        HistGradientBoostingRegressor,
        RandomForestRegressor,
    )

    leaves = int(name.split("×")[1].split()[0]) if "×" in name else 0
    min_samples_leaf = 3 if "of 3" in name else 1
    if name.startswith("Hist"):
        return HistGradientBoostingRegressor(
            max_iter=600, max_leaf_nodes=leaves, learning_rate=0.05, early_stopping=False
        )
    if name.startswith("LightGBM"):
        from lightgbm import LGBMRegressor

        return LGBMRegressor(
            n_estimators=600, num_leaves=leaves, learning_rate=0.05, n_jobs=1, verbose=-1
        )
    kind = RandomForestRegressor if name.startswith("Random") else ExtraTreesRegressor
    return kind(100, min_samples_leaf=min_samples_leaf, max_features=1 / 3, random_state=0)


def make_data():
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(N_ANCHORS + N_QUERIES, N_FEATURES))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3]
    y += 5 * X[:, 4] + rng.normal(size=len(X))
    return X[:N_ANCHORS], y[:N_ANCHORS], X[N_ANCHORS:]


def resident_megabytes(field):
    """Return the memory of this process on Linux: `VmRSS` now, or `VmHWM` at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def predict_built_pairs(twin, queries):
    """Return the twin's predictions from pairs of a block of queries with all anchors."""
    anchors, means = np.asarray(twin.anchors_X_), []
    for start in range(0, len(queries), BLOCK):
        block = queries[start : start + BLOCK]
        differences = twin.predict_difference(
            np.repeat(block, len(anchors), axis=0), np.tile(anchors, (len(block), 1))
        )
        means.append(differences.reshape(len(block), -1).mean(axis=1))
    return np.concatenate(means) + twin.anchors_y_.mean()


def count_nodes(estimator):
    import treelite

    if hasattr(estimator, "booster_"):
        model = treelite.frontend.from_lightgbm(estimator.booster_)
    else:
        model = treelite.sklearn.import_model(estimator)
    trees = map(model.get_tree_accessor, range(model.num_tree))
    return sum(int(tree.get_field("num_nodes")[0]) for tree in trees)


def processor_seconds(function, *arguments, **options):
    start = time.process_time()
    result = function(*arguments, **options)
    return time.process_time() - start, result


def measure(path, rounds):
    """Return the numbers of one row of the table, for a saved twin."""
    from sklearn.base import clone

    warnings.simplefilter("ignore")
    X, y, queries = make_data()
    twin = joblib.load(path)

    def compile_kernel():
        small = clone(twin).set_params(pairs=2).fit(X, y)
        small.predict(queries[: 2 * BLOCK], return_std=True)
        small.predict(queries[: 2 * BLOCK])

    compile_seconds, _ = processor_seconds(compile_kernel)
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before = resident_megabytes("VmRSS")
    first, found = processor_seconds(twin.predict, queries)
    memory = resident_megabytes("VmHWM") - before
    ours, with_std, theirs = [], [], []
    for _ in range(rounds):
        ours.append(processor_seconds(twin.predict, queries)[0])
        seconds, expected = processor_seconds(predict_built_pairs, twin, queries)
        theirs.append(seconds)
        ours.append(processor_seconds(twin.predict, queries)[0])
        with_std.append(processor_seconds(twin.predict, queries, return_std=True)[0])
    return {
        "compile": compile_seconds,
        "memory": memory,
        "first": first,
        "ours": np.median(ours),
        "std": np.median(with_std),
        "theirs": np.median(theirs),
        "apart": np.abs(found - expected).max() / np.ptp(y),
        "nodes": count_nodes(twin.estimator_),
    }


def fit_and_measure(name, pairs, rounds):
    from twinned import TwinRegressor

    X, y, _ = make_data()
    twin = TwinRegressor(make_model(name), pairs=pairs, n_jobs=2, random_state=0).fit(X, y)
    twin.set_params(n_jobs=None)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "twin.joblib")
        joblib.dump(twin, path)
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return frame.run_in_subprocess(measure, path, rounds, env=environment)


def main():
    arguments = frame.parse_arguments(__doc__, rounds=1, only="")
    warnings.simplefilter("ignore")
    rows, compile_seconds = [], []
    for name, (pairs, intended) in ROWS.items():
        if arguments.only not in name:
            continue
        try:
            found = fit_and_measure(name, pairs, arguments.rounds)
        except ImportError as error:
            rows.append(f"{name} | did not run: {error}" + " | " * 9)
            continue
        compile_seconds.append(found["compile"])
        ours, theirs, first = found["ours"], found["theirs"], found["first"]
        rows.append(
            f"{name} | {found['nodes']:,.0f} | {theirs:.1f} | {first:.2f} | {ours:.2f} | "
            f"{found['std']:.2f} | {theirs / ours:.1f}× | {theirs / first:.1f}× | {intended}× | "
            f"{found['apart']:.0e} | {found['memory']:.0f}"
        )
        print(rows[-1], flush=True)
    header = (
        "model | nodes | built pairs, s | first, s | then, s | spread, s | faster | "
        "faster, first | wanted | apart | memory, MB"
    )
    lines = [
        "# Predicting from all anchors without building pairs",
        "",
        f"{N_ANCHORS:,} anchors, {N_QUERIES} queries, {N_FEATURES} features, both orders of each "
        "pair, one thread; medians of turns taken by both in one process, in seconds of its "
        "processor time, as the machine is shared. "
        f"*Built pairs*: the library predicts blocks of {BLOCK} queries with all anchors. *First*: "
        "reading and packing the trees included; compiling, which is done once on a machine, is "
        "not. *Spread*: with `return_std=True`. *Apart*: the largest difference of the two, by the "
        "range of y. *Memory*: the peak of the first prediction beyond the memory of the process "
        "with the model loaded.",
        "",
        "`OMP_NUM_THREADS=1 python -m benchmarks.speed.tree_predict`",
        "",
        *frame.markdown_table(header, rows),
        "",
        f"Loading numba and compiling, or loading from the cache: {min(compile_seconds):.0f} to "
        f"{max(compile_seconds):.0f} s (the fit of a small twin included).",
    ]
    if arguments.only:
        print("\n".join(lines))
    else:
        frame.write_markdown(frame.RESULTS / "tree_predict.md", lines)


if __name__ == "__main__":
    main()
