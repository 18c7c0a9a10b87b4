"""Predicting from all anchors without building pairs, beside the library predicting built pairs.

1,000 anchors, 500 queries, 10 features, both orders of each pair, one thread. The library gets its
pairs in blocks of 20 queries. Each model is fitted once, saved, and opened in a process of its own.
Writes `benchmarks/results/tree_predict.md`.

    OMP_NUM_THREADS=1 python benchmarks/tree_predict.py
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import joblib
import numpy as np

RESULTS = Path(__file__).parent / "results"
N_ANCHORS, N_QUERIES, N_FEATURES, BLOCK = 1_000, 500, 10, 20
# rows of the table: the learner, its pairs a point (their mirror images come on top), the target
ROWS = {
    "HistGradientBoosting, 600 × 31 leaves": (32, 20),
    "LightGBM, 600 × 31 leaves": (32, 20),
    "HistGradientBoosting, 600 × 127 leaves": (32, 10),
    "LightGBM, 600 × 127 leaves": (32, 10),
    "RandomForest, 100 grown, leaves of 3": (32, 5),
    "RandomForest, 100 grown, leaves of 1": (32, 5),
    "ExtraTrees, 100 grown, leaves of 1": (16, 5),
}


def learner(name: str):
    from sklearn.ensemble import (
        ExtraTreesRegressor,
        HistGradientBoostingRegressor,
        RandomForestRegressor,
    )

    leaves = int(name.split("×")[1].split()[0]) if "×" in name else 0
    fewest = 3 if "of 3" in name else 1
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
    return kind(100, min_samples_leaf=fewest, max_features=1 / 3, random_state=0)


def data():
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(N_ANCHORS + N_QUERIES, N_FEATURES))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3]
    y += 5 * X[:, 4] + rng.normal(size=len(X))
    return X[:N_ANCHORS], y[:N_ANCHORS], X[N_ANCHORS:]


def megabytes(what: str) -> float:
    """What Linux says of this process: `VmRSS`, the memory it has, or `VmHWM`, the most it had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def by_building_pairs(twin, queries):
    """As the library would do it: pairs of some queries, all their anchors, both orders."""
    means = []
    for start in range(0, len(queries), BLOCK):
        block = twin._schema.to_rows(queries[start : start + BLOCK])
        both = twin._differences(block.as_queries(), twin._points.as_anchors())
        means.append(both.mean(axis=1)[:, 0])
    return np.concatenate(means) + twin.anchors_y_.mean()


def child(path: str, rounds: int) -> None:
    """Time one saved twin; prints numbers for its row."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    from twinned import TwinRegressor

    warnings.simplefilter("ignore")
    X, y, queries = data()
    twin = joblib.load(path)
    # compile, or fetch what was compiled, with a twin that is like it in type and nothing else
    start = time.process_time()
    small = TwinRegressor(HistGradientBoostingRegressor(max_iter=100), pairs=2).fit(X, y)
    small._pair_dtype = twin._pair_dtype
    small._features.dtype = twin._features.dtype
    small.predict(queries[: 2 * BLOCK], return_std=True)
    small.predict(queries[: 2 * BLOCK])
    assert small._read is not None
    ready = time.process_time() - start
    Path("/proc/self/clear_refs").write_text("5")  # forget the most so far
    before = megabytes("VmRSS")
    start = time.process_time()
    found = twin.predict(queries)
    first = time.process_time() - start
    assert twin._read is not None
    assert twin._read[1] is not None
    memory = megabytes("VmHWM") - before
    ours, spreads, theirs = [], [], []
    for _ in range(rounds):
        start = time.process_time()
        twin.predict(queries)
        ours.append(time.process_time() - start)
        start = time.process_time()
        expected = by_building_pairs(twin, queries)
        theirs.append(time.process_time() - start)
        start = time.process_time()
        twin.predict(queries)
        ours.append(time.process_time() - start)
        start = time.process_time()
        twin.predict(queries, return_std=True)
        spreads.append(time.process_time() - start)
    apart = np.abs(found - expected).max() / np.ptp(y)
    print(
        ready, memory, first, np.median(ours), np.median(spreads), np.median(theirs), apart,
        twin._read[1]._trees.n_nodes,
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", help="rows whose name holds this text")
    parser.add_argument("--child")
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.rounds)
        return
    from twinned import TwinRegressor

    warnings.simplefilter("ignore")
    X, y, _ = data()
    lines = [
        "# Predicting from all anchors without building pairs",
        "",
        f"{N_ANCHORS:,} anchors, {N_QUERIES} queries, {N_FEATURES} features, both orders of each "
        "pair, one thread; medians of turns taken by both in one process, in seconds of its "
        "processor time, as the machine is shared. "
        f"*Built pairs*: the library predicts blocks of {BLOCK} queries with all anchors. *First*: "
        "reading and packing the trees included; compiling, which is done once on a machine, is "
        "not. *Spread*: with `return_std=True`. *Apart*: the largest difference of the two, by the "
        "range of y. *Memory*: how far the process went beyond what it had with the model loaded, "
        "while predicting for the first time.",
        "",
        "`OMP_NUM_THREADS=1 python benchmarks/tree_predict.py`",
        "",
        "| learner | nodes | built pairs, s | first, s | then, s | spread, s | faster | "
        "faster, first | wanted | apart | memory, MB |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    ready = []
    for name, (pairs, wanted) in ROWS.items():
        if arguments.only and arguments.only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                base = learner(name)
            except ImportError as error:
                lines.append(f"| {name} | did not run: {error} |" + " |" * 9)
                continue
            twin = TwinRegressor(base, pairs=pairs, n_jobs=2, random_state=0).fit(X, y)
            twin.set_params(n_jobs=None)
            path = str(Path(folder) / "twin.joblib")
            joblib.dump(twin, path)
            del twin
            command = [sys.executable, __file__, "--child", path]
            run = subprocess.run(
                [*command, "--rounds", str(arguments.rounds)],
                capture_output=True,
                text=True,
                env=environment,
            )
        if run.returncode:
            print(run.stderr, file=sys.stderr)
            raise SystemExit(1)
        numbers = [float(value) for value in run.stdout.split()[-8:]]
        compiled, memory, first, ours, spread, theirs, apart, n_nodes = numbers
        ready.append(compiled)
        lines.append(
            f"| {name} | {n_nodes:,.0f} | {theirs:.1f} | {first:.2f} | {ours:.2f} | {spread:.2f} | "
            f"{theirs / ours:.1f}× | {theirs / first:.1f}× | {wanted}× | {apart:.0e} | "
            f"{memory:.0f} |"
        )
        print(lines[-1], flush=True)
    lines += [
        "",
        f"Loading numba and compiling, or fetching what was compiled before: {min(ready):.0f} to "
        f"{max(ready):.0f} s (the fit of a small twin included).",
        "",
    ]
    if not arguments.only:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "tree_predict.md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
