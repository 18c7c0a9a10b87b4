"""Do intervals cover, are they narrow, and does the standard deviation rank errors?

The nine sets and 25 splits. Models: the default `TwinRegressor` and `TwinNeuralRegressor` with
`effort="fast"`. On the 80 %:

- *cross*: `cross_conformal` with ten folds and its default, learned width;
- *constant*: *cross* with intervals of one width;
- *split*: split conformal prediction of one width: the model is fitted to three quarters of the
  rows, and the rest calibrate it.

Coverage and mean width of each are of the test rows, at 80, 90 and 95 %. The model's raw standard
deviation (fitted to all of the 80 %) and the calibrated one of *cross* are held against absolute
errors: rank correlation, and the area between the sparsification curve and that of an oracle (RMSE
of what is left when the least certain rows are taken away, as a share of RMSE of all; less is
better), beside a random forest of 300 trees with the spread of its trees.

Neural models of all splits and folds are fitted at once (`fit_many`), best on a GPU. Finished rows
are not run again.

    python benchmarks/uncertainty.py --models tree --jobs 16     # about three core-hours
    python benchmarks/uncertainty.py --models neural             # minutes of one GPU
    python benchmarks/uncertainty.py --only-table
"""

import argparse
import csv
import os
import time
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold

from twinned import TwinRegressor
from twinned.datasets import KEYS, PAPER_SEEDS, load, paper_split
from twinned.intervals.conformal import Calibrated, calibrate_across

RESULTS = Path(__file__).parent / "results"
LEVELS = (0.8, 0.9, 0.95)
HEADER = ["dataset", "seed", "model", "what", "value"]


def rows_of(key, seed):
    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    train, validation, test = paper_split(len(y), seed)
    learn = np.concatenate([train, validation])
    return X[learn], y[learn], X[test], y[test]


def plan(n, seed):
    """The rows of every fit: ten folds, all of them, and three quarters."""
    folds = list(KFold(10, shuffle=True, random_state=seed).split(np.arange(n)))
    order = np.random.RandomState(seed).permutation(n)
    return folds, np.arange(n), order[: 3 * n // 4], order[3 * n // 4 :]


class Remembering:
    """A fitted model that says the same of the same rows without working it out again."""

    def __init__(self, model):
        self.model_, self.anchors_y_, self._said = model, model.anchors_y_, {}

    def predict(self, X, return_std=False):
        rows = X.tobytes()
        if rows not in self._said:
            self._said[rows] = self.model_.predict(X, return_std=True)
        return self._said[rows] if return_std else self._said[rows][0]


def judged(models, X, y, X_test, y_test, seed):
    """All figures of one split from the models of its folds, of all rows and of three quarters."""
    folds, _, _, kept = plan(len(y), seed)
    *of_folds, whole, part = map(Remembering, models)
    cross = calibrate_across(of_folds, whole, X, y, folds)
    ways = {
        "cross": cross,
        "constant": cross.with_width("constant"),
        "split": Calibrated(part, X[kept], y[kept], "constant"),
    }
    found = {}
    for level in LEVELS:
        for name, way in ways.items():
            low, high = way.predict_interval(X_test, level).T
            found[f"{name} coverage {level:g}"] = np.mean((low <= y_test) & (y_test <= high))
            found[f"{name} width {level:g}"] = np.mean(high - low)
    for name, model in (("raw", whole), ("calibrated", cross)):
        mean, std = model.predict(X_test, return_std=True)
        found |= ranked(name, np.abs(y_test - mean), std)
    return found


def ranked(name, errors, std):
    return {
        f"{name} spearman": spearmanr(std, errors)[0],
        f"{name} sparsification": sparsification(errors, std),
    }


def sparsification(errors, std):
    """The area between the curve that this deviation makes and the best possible one."""

    def curve(order):
        square = errors[order] ** 2
        left = square[::-1].cumsum()[::-1] / np.arange(len(square), 0, -1)
        return np.sqrt(left[: int(0.95 * len(left))] / square.mean())

    return float(np.mean(curve(np.argsort(-std)) - curve(np.argsort(-errors))))


def tree_run(key, seed):
    X, y, X_test, y_test = rows_of(key, seed)
    folds, every, most, _ = plan(len(y), seed)
    rows = [*(learned for learned, _ in folds), every, most]
    models = [TwinRegressor(random_state=0, n_jobs=1).fit(X[own], y[own]) for own in rows]
    found = judged(models, X, y, X_test, y_test, seed)
    forest = RandomForestRegressor(300, random_state=0).fit(X, y)
    told = np.array([tree.predict(X_test) for tree in forest.estimators_])
    found |= ranked("forest", np.abs(y_test - told.mean(axis=0)), told.std(axis=0))
    return key, seed, "tree", found


def neural_runs(key):
    from twinned.neural import TwinNeuralRegressor, fit_many

    problems, per_split = [], 0
    for seed in PAPER_SEEDS:
        X, y, _, _ = rows_of(key, seed)
        folds, every, most, _ = plan(len(y), seed)
        rows = [*(learned for learned, _ in folds), every, most]
        per_split = len(rows)
        problems += [(X[own], y[own]) for own in rows]
    models = fit_many(TwinNeuralRegressor(effort="fast", random_state=0), problems)
    for place, seed in enumerate(PAPER_SEEDS):
        own = models[place * per_split : (place + 1) * per_split]
        yield key, seed, "neural", judged(own, *rows_of(key, seed), seed)


def write(path, runs, total):
    start = time.perf_counter()
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        for number, (key, seed, model, found) in enumerate(runs, 1):
            writer.writerows([key, seed, model, what, f"{v:.6g}"] for what, v in found.items())
            file.flush()
            print(f"{model} {key} {seed}: {number}/{total}, {time.perf_counter() - start:.0f} s")


def summary(path):
    runs = pd.read_csv(path)
    lines = [
        "# Intervals and standard deviations",
        "",
        "Made by `python benchmarks/uncertainty.py`; means over splits. *Cross*: "
        "`cross_conformal`. *Constant*: the same models, one width. *Split*: split conformal "
        "prediction of one width, a quarter of the rows set aside.",
    ]
    for model, own in runs.groupby("model"):
        table = own.pivot_table(index="dataset", columns="what", values="value").reindex(
            [key for key in KEYS if key in set(own["dataset"])]
        )
        n_splits = own.groupby("dataset")["seed"].nunique()
        lines += ["", f"## {model}, {n_splits.min()} splits", ""]
        heads = [f"coverage {level:.0%}" for level in LEVELS]
        heads += [f"width / constant, {level:.0%}" for level in LEVELS]
        heads += [f"width / split, {level:.0%}" for level in LEVELS]
        lines += ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
        cells = pd.DataFrame(
            {
                **{f"c{v:g}": table[f"cross coverage {v:g}"] for v in LEVELS},
                **{
                    f"{other}{v:g}": table[f"cross width {v:g}"] / table[f"{other} width {v:g}"]
                    for other in ("constant", "split")
                    for v in LEVELS
                },
            }
        )
        for key, row in cells.iterrows():
            lines.append(f"| {key} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
        means = " | ".join(f"**{value:.3f}**" for value in cells.mean())
        lines += [f"| mean | {means} |", ""]
        names = ["raw", "calibrated", *(["forest"] if "forest spearman" in table else [])]
        kinds = ("spearman", "sparsification")
        lines.append(
            "| | " + " | ".join(f"{name}, {kind}" for kind in kinds for name in names) + " |"
        )
        lines.append("|---" * (len(names) * 2 + 1) + "|")
        columns = [f"{name} {kind}" for kind in kinds for name in names]
        for key, row in table[columns].iterrows():
            lines.append(f"| {key} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
        means = " | ".join(f"**{value:.3f}**" for value in table[columns].mean())
        lines.append(f"| mean | {means} |")
        if len(names) == 3:
            forest = table["forest sparsification"]
            better = {n: int((table[f"{n} sparsification"] < forest).sum()) for n in names[:2]}
            lines += [
                "",
                f"The area is smaller than the forest's on {better['raw']} of {len(table)} sets "
                f"with the raw standard deviation, on {better['calibrated']} with the calibrated "
                "one.",
            ]
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=["tree", "neural"])
    parser.add_argument("--datasets", nargs="*", default=list(KEYS))
    parser.add_argument("--splits", type=int, default=len(PAPER_SEEDS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only-table", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "uncertainty.csv")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    path = arguments.output
    if not path.exists():
        path.write_text(",".join(HEADER) + "\n")
    rows = csv.DictReader(path.open())
    done = {(row["dataset"], int(row["seed"]), row["model"]) for row in rows}
    if not arguments.only_table and "tree" in arguments.models:
        todo = [
            (key, seed)
            for seed in PAPER_SEEDS[: arguments.splits]
            for key in arguments.datasets
            if (key, seed, "tree") not in done
        ]
        runs = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(
            delayed(tree_run)(*run) for run in todo
        )
        write(path, runs, len(todo))
    if not arguments.only_table and "neural" in arguments.models:
        for key in arguments.datasets:
            if (key, 0, "neural") not in done:
                write(path, neural_runs(key), len(PAPER_SEEDS))
    text = summary(path)
    path.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
