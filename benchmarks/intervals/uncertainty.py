"""Coverage and width of prediction intervals, and how well standard deviations rank errors.

The nine sets and 25 splits (16 of the tree twin are committed). Models: the default `TwinRegressor`
and `TwinNeuralRegressor` with `effort="fast"`. On the 80 %:

- *cross*: `cross_conformal` with ten folds and its default, learned width;
- *constant*: *cross* with intervals of one width;
- *split*: split conformal prediction of one width: the model is fitted to three quarters of the
  rows, and the rest calibrate it.

Coverage and mean width of each are of the test rows, at 80, 90 and 95 %. The model's raw standard
deviation (fitted to all of the 80 %) and the calibrated one of *cross* are compared with absolute
errors: rank correlation, and the area between the sparsification curve and that of an oracle (RMSE
of the remaining rows when the least certain are removed, as a share of RMSE of all; less is
better), beside a random forest of 300 trees with the spread of its trees.

Neural models of all splits and folds are fitted at once (`fit_many`), best on a GPU. Results:
`benchmarks/results/uncertainty.csv` and `.md`; `uncertainty_others` is of tables outside the paper.

    python -m benchmarks.intervals.uncertainty --models tree --jobs 16     # about six core-hours
    python -m benchmarks.intervals.uncertainty --models neural             # minutes of one GPU
    python -m benchmarks.intervals.uncertainty --only-table
    python -m benchmarks.intervals.uncertainty --output benchmarks/results/uncertainty_others.csv \\
        --datasets borehole "robot arm" Franke cantilever circuit --splits 10
"""

import numpy as np
import pandas as pd
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import KFold

from benchmarks import frame
from benchmarks.accuracy.tables import split_table
from twinned import TwinRegressor
from twinned.datasets import KEYS, PAPER_SEEDS
from twinned.estimators.conformal import conformal, cross_errors, with_calibration

LEVELS = (0.8, 0.9, 0.95)
COLUMNS = ["dataset", "seed", "model", "what", "value:.6g"]


def make_folds(n, seed):
    """Return ten folds of n rows, and three quarters and the last quarter of them."""
    folds = list(KFold(10, shuffle=True, random_state=seed).split(np.arange(n)))
    order = np.random.RandomState(seed).permutation(n)
    return folds, order[: 3 * n // 4], order[3 * n // 4 :]


def training_sets(X, y, seed):
    """Return (X, y) of every fit: those of the folds, of all rows, and of three quarters."""
    folds, most, _ = make_folds(len(y), seed)
    rows = [*(train for train, _ in folds), np.arange(len(y)), most]
    return [(X[own], y[own]) for own in rows]


def evaluate(models, X, y, X_test, y_test, seed):
    """Return all figures of one split from the models of its training sets."""
    folds, _, rest = make_folds(len(y), seed)
    *of_folds, whole, part = models
    errors = cross_errors(of_folds, whole, X, y, folds)
    cross = with_calibration(whole, errors.calibrate("learned", random_state=0))
    calibrated = {
        "cross": cross,
        "constant": with_calibration(whole, errors.calibrate("constant", random_state=0)),
        "split": conformal(part, X[rest], y[rest], width="constant"),
    }
    found = {}
    for level in LEVELS:
        for name, model in calibrated.items():
            low, high = model.predict_interval(X_test, level).T
            found[f"{name} coverage {level:g}"] = np.mean((low <= y_test) & (y_test <= high))
            found[f"{name} width {level:g}"] = np.mean(high - low)
    for name, model in (("raw", whole), ("calibrated", cross)):
        mean, std = model.predict(X_test, return_std=True)
        found |= rank_errors(name, np.abs(y_test - mean), std)
    return found


def rank_errors(name, errors, std):
    return {
        f"{name} spearman": spearmanr(std, errors)[0],
        f"{name} sparsification": sparsification(errors, std),
    }


def sparsification(errors, std):
    """Return the area between the sparsification curve of `std` and that of the errors."""

    def curve(order):
        square = errors[order] ** 2
        remaining = square[::-1].cumsum()[::-1] / np.arange(len(square), 0, -1)
        return np.sqrt(remaining[: int(0.95 * len(remaining))] / square.mean())

    return float(np.mean(curve(np.argsort(-std)) - curve(np.argsort(-errors))))


def run_trees(dataset, seed, model):
    (X, y), (X_test, y_test) = split_table(dataset, seed)
    twin = TwinRegressor(random_state=0, n_jobs=1)
    *of_folds, whole, part = training_sets(X, y, seed)
    models = [
        clone(twin).set_params(cv=0).fit(*own) for own in of_folds
    ]  # as `cross_conformal` does
    models += [clone(twin).fit(*own) for own in (whole, part)]
    found = evaluate(models, X, y, X_test, y_test, seed)
    forest = RandomForestRegressor(300, random_state=0).fit(X, y)
    trees = np.array([tree.predict(X_test) for tree in forest.estimators_])
    found |= rank_errors("forest", np.abs(y_test - trees.mean(axis=0)), trees.std(axis=0))
    return as_rows(found)


def as_rows(found):
    return [{"what": name, "value": value} for name, value in found.items()]


def run_models(trials, jobs):
    """Execute the trials of trees in processes, and those of networks as one program."""
    yield from frame.in_parallel(run_trees, jobs)([t for t in trials if t[2] == "tree"])
    yield from run_networks([t for t in trials if t[2] == "neural"])


def run_networks(trials):
    """Execute the trials of the neural model, those of one data set at once."""
    from twinned.neural import TwinNeuralRegressor, fit_many

    for dataset in dict.fromkeys(dataset for dataset, *_ in trials):
        own = [trial for trial in trials if trial[0] == dataset]
        splits = {trial: split_table(dataset, trial[1]) for trial in own}
        sets = [training_sets(*train, trial[1]) for trial, (train, _) in splits.items()]
        estimator = TwinNeuralRegressor(effort="fast", random_state=0)
        models = iter(fit_many(estimator, [problem for of_split in sets for problem in of_split]))
        for trial, of_split in zip(own, sets, strict=True):
            train, test = splits[trial]
            fitted = [next(models) for _ in of_split]
            yield trial, as_rows(evaluate(fitted, *train, *test, trial[1])), 0.0


def summary(runs):
    lines = [
        "# Intervals and standard deviations",
        "",
        "Made by `python -m benchmarks.intervals.uncertainty`; means over splits. *Cross*: "
        "`cross_conformal`. *Constant*: the same models, one width. *Split*: split conformal "
        "prediction of one width, a quarter of the rows set aside.",
    ]
    for model, own in runs.groupby("model"):
        table = own.pivot_table(index="dataset", columns="what", values="value")
        n_splits = own.groupby("dataset")["seed"].nunique().min()
        cells = {}
        for level in LEVELS:
            name = f"cross coverage {level:g}"
            cells[f"coverage {level:.0%}"] = table[name]
            errors = own[own["what"] == name].groupby("dataset")["value"].sem()
            cells[f"standard error, {level:.0%}"] = errors
        for other in ("constant", "split"):
            for level in LEVELS:
                ratio = table[f"cross width {level:g}"] / table[f"{other} width {level:g}"]
                cells[f"width / {other}, {level:.0%}"] = ratio
        lines += ["", f"## {model}, {n_splits} splits", "", *means_table(pd.DataFrame(cells)), ""]
        names = ["raw", "calibrated", *(["forest"] if "forest spearman" in table else [])]
        columns = {
            f"{name} {kind}": f"{name}, {kind}"
            for kind in ("spearman", "sparsification")
            for name in names
        }
        lines += means_table(table[list(columns)].rename(columns=columns))
        if len(names) == 3:
            forest = table["forest sparsification"]
            better = {n: int((table[f"{n} sparsification"] < forest).sum()) for n in names[:2]}
            lines += [
                "",
                f"The area is smaller than the forest's on {better['raw']} of {len(table)} sets "
                f"with the raw standard deviation, on {better['calibrated']} with the calibrated "
                "one.",
            ]
    return lines


def means_table(values):
    """Return a Markdown table of a DataFrame with the means of its columns below."""
    rows = [[key, *(f"{value:.3f}" for value in row)] for key, row in values.iterrows()]
    rows.append(["mean", *(f"**{value:.3f}**" for value in values.mean())])
    return frame.markdown_table(["", *values.columns], rows)


BENCHMARK = frame.Benchmark(
    "uncertainty",
    __doc__,
    COLUMNS,
    execute=run_models,
    summary=summary,
    trial=("dataset", "seed", "model"),
    axes={"model": ["tree", "neural"], "seed": len(PAPER_SEEDS), "dataset": list(KEYS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
