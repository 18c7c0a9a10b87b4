"""Coverage of prediction intervals for rows that are not exchangeable with the training rows.

The default twin with `cross_conformal`, on at most 250 random rows of a data set. The rows to
predict are a random fifth, the fifth with the largest y, or the fifth with the largest values of
the feature that has the strongest rank correlation with y; the others are for training. Reports the
coverage of 90 % intervals, the share of rows that `outside_training_rows` marks, and the coverage
of the others. Appends to `benchmarks/results/shifted_rows.csv`.

    python -m benchmarks.intervals.shifted_rows
"""

import warnings

import numpy as np
from scipy.stats import spearmanr

from benchmarks import frame
from twinned import TwinRegressor, cross_conformal
from twinned.datasets import load
from twinned.exceptions import ShiftWarning

MAX_ROWS, SHARE, CONFIDENCE = 250, 0.2, 0.9
COLUMNS = [
    "dataset", "held_out", "seed", "coverage:.3f", "outside:.3f", "coverage_inside:.3f",
    "seconds:.3g",
]  # fmt: skip


def held_out_rows(kind, X, y, rng):
    """The last fifth of the rows in some order."""
    if kind == "random":
        order = rng.permutation(len(y))
    elif kind == "largest y":
        order = np.argsort(y)
    else:
        ranks = [abs(spearmanr(X.iloc[:, j], y).statistic) for j in range(X.shape[1])]
        order = np.argsort(X.iloc[:, int(np.nanargmax(ranks))].to_numpy(), kind="stable")
    return np.split(order, [len(y) - int(SHARE * len(y))])


def measure(dataset, held_out, seed):
    rng = np.random.RandomState(seed)
    X, y = load(dataset)
    chosen = rng.permutation(len(y))[:MAX_ROWS]
    X, y = X.iloc[chosen].reset_index(drop=True), y.to_numpy()[chosen]
    train, test = held_out_rows(held_out, X, y, rng)
    twin = TwinRegressor(random_state=seed)
    fitted = cross_conformal(twin, X.iloc[train], y[train], cv=5, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        low, high = fitted.predict_interval(X.iloc[test], CONFIDENCE).T
    covered = (low <= y[test]) & (y[test] <= high)
    outside = fitted.outside_training_rows(X.iloc[test])
    return {
        "coverage": covered.mean(),
        "outside": outside.mean(),
        "coverage_inside": covered[~outside].mean() if (~outside).any() else np.nan,
    }


BENCHMARK = frame.Benchmark(
    "shifted_rows",
    __doc__,
    COLUMNS,
    run=measure,
    trial=("dataset", "held_out", "seed"),
    axes={
        "seed": 1,
        "dataset": ["YH", "EE", "CS", "BH"],
        "held_out": ["random", "largest y", "largest feature"],
    },
)

if __name__ == "__main__":
    BENCHMARK.main()
