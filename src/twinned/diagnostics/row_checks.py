"""Checks of rows that are equal or in the order of time, and of folds by time or groups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import chi2

from twinned.diagnostics.errors import Ratio, format_percent, rmse, rmse_ratio
from twinned.diagnostics.findings import CheckedTable, CheckResult, Finding, quick_predictions
from twinned.rows.folds import (
    Folds,
    ForwardFolds,
    count_earlier,
    distinct_rows,
    encode_groups,
    row_folds,
)
from twinned.rows.formatting import format_interval, format_significant
from twinned.rows.schema import Floats

_LEAST_SHARE, _LEAST_COPIES = 0.01, 3  # of duplicate rows
_CHANCE = 3.0  # times as many equal pairs as independent features would have
_LEAST_DEGREES = 5  # of freedom of a noise floor
_COMMON_SHARE = 0.3  # of replicates whose noise is that of all rows
_LEAST_STEPS = 5  # of a sorted column
_TIME_NAME = re.compile(r"(.*[\W_])?(year|date|time|timestamp|month|week|days?)([\W_].*)?", re.I)
# Of the comparison with random folds: draws of them, rows, blocks of rows in time whose errors may
# be alike, and the ratio of errors from which random folds are too optimistic.
_N_FOLDS, _N_DRAWS, _MAX_COMPARED, _TIME_BLOCKS, _OPTIMISTIC = 5, 5, 2000, 40, 1.05


# --- duplicates and replicates --------------------------------------------------------------------


def check_duplicates(table: CheckedTable) -> Iterator[Finding]:
    """Find rows that are equal in all features and the target, more than occur by chance."""
    counts = np.bincount(distinct_rows(np.column_stack([table.matrix, table.y]))[1])
    n_copies = table.n_rows - len(counts)
    has_few_copies = n_copies < max(_LEAST_COPIES, _LEAST_SHARE * table.n_rows)
    if has_few_copies or np.sum(counts * (counts - 1) / 2) < _CHANCE * _pairs_by_chance(table):
        return
    share = n_copies / table.n_rows
    yield Finding(
        "TW101",
        f"{n_copies:,} of {table.n_rows:,} rows ({format_percent(share)}) repeat another row, the "
        "target included.",
        "Remove copies, unless they are separate measurements. Errors reported here do not profit "
        "from them, as equal rows are merged; with random folds of other tools they would.",
        {"rows": n_copies, "share": share},
    )


def _pairs_by_chance(table: CheckedTable) -> float:
    """Return the expected number of equal pairs of rows if all columns were independent."""
    n, columns = table.n_rows, (*table.matrix.T, table.y)
    counts = [np.unique(column, return_counts=True)[1] for column in columns]
    return float(n * (n - 1) / 2 * np.prod([np.sum((count / n) ** 2) for count in counts]))


def check_replicates(table: CheckedTable) -> Iterator[Finding]:
    """Find rows with equal features and different values, and the noise that they imply."""
    codes = distinct_rows(table.matrix)[1]
    counts = np.bincount(codes)
    degrees = table.n_rows - len(counts)
    means = np.bincount(codes, weights=table.y) / counts
    within = float(np.sum((table.y - means[codes]) ** 2))
    if degrees < _LEAST_DEGREES or within <= 1e-24 * float(np.sum(table.y**2)):
        return
    noise = float(np.sqrt(within / degrees))
    low, high = (float(np.sqrt(within / chi2.ppf(q, degrees))) for q in (0.95, 0.05))
    if noise < 0.02 * table.y.std():
        return
    n_rows = int(counts[counts > 1].sum())
    shown, interval = format_significant(noise, 2), format_interval(noise, low, high)
    is_common = n_rows >= _COMMON_SHARE * table.n_rows
    scope = "no model of these features can" if is_common else "on these rows no model can"
    yield Finding(
        "TW103",
        f"{n_rows:,} rows have the features of another, with a standard deviation of the target "
        f"of {interval}: {scope} have an RMSE much below {shown}.",
        "To go lower, measure more precisely, average replicates, or add a feature.",
        {"noise": noise, "interval": [low, high], "rows": n_rows},
    )


# --- time ----------------------------------------------------------------------------------------


def check_time_order(columns: Mapping[str, Floats]) -> Iterator[Finding]:
    """Find columns, (row,) by name, that are times and in whose order the rows are; at most one.

    Days of a date, such as 'sold (days)', have the name of the column, 'sold'.
    """
    times = (name for name in columns if _TIME_NAME.fullmatch(name) and is_sorted(columns[name]))
    for name in islice((time.removesuffix(" (days)") for time in times), 1):
        yield Finding(
            "TW105",
            f"The rows are in the order of {name!r}, but are held out at random, so that training "
            "rows are before and after each of them.",
            f"To predict later rows, use --time-column {name!r} (groups and cv=ForwardFolds() in "
            "Python); else errors may be too low.",
            {"column": name},
        )


def is_sorted(values: Floats, share: float = 1.0) -> bool:
    """Return whether all or a share of the steps between different values have the same sign."""
    steps = np.diff(values[~np.isnan(values)])
    increases = steps[steps != 0] > 0
    return len(increases) >= _LEAST_STEPS and max(increases.mean(), 1 - increases.mean()) >= share


# --- folds by groups or times --------------------------------------------------------------------


def compare_folds(X: ArrayLike, y: Floats, groups: object, cv: object = None) -> CheckResult:
    """Compare the error of a quick model with groups or later rows held out, and with random rows.

    `groups` (n,) are times where `cv` is `ForwardFolds`. Random folds hold out the same rows, and
    have as many training rows. The model is the quick one with the lower error by random folds.
    """
    table, labels = CheckedTable.encode(X, y), np.asarray(groups)
    if table.n_rows > _MAX_COMPARED:
        rows = np.sort(np.random.RandomState(0).permutation(table.n_rows)[:_MAX_COMPARED])
        table, labels = table.take(rows), labels[rows]
    if isinstance(cv, ForwardFolds):
        kind = "later rows"
        units = count_earlier(labels) * _TIME_BLOCKS // table.n_rows
        folds = list(cv.split(labels, groups=labels))
    else:
        kind = "whole groups"
        units = encode_groups(labels, table.n_rows)
        folds = row_folds(table.n_rows, _N_FOLDS, 0, units, min_rows=2)
    rows = np.sort(np.concatenate([held_out for _, held_out in folds]))
    y, units = table.y[rows], units[rows]
    random_folds = [random_folds_like(folds, table.n_rows, seed) for seed in range(_N_DRAWS)]
    by_model = {
        trees: [quick_predictions(table, trees=trees, folds=drawn)[rows] for drawn in random_folds]
        for trees in (False, True)
    }
    errors = {
        trees: float(np.median([rmse(predicted, y) for predicted in by_model[trees]]))
        for trees in by_model
    }
    trees = min(errors, key=lambda trees: errors[trees])
    predicted = quick_predictions(table, trees=trees, folds=folds)[rows]
    # errors also depend on the training rows: the interval covers those of all draws
    ratios = [rmse_ratio(predicted, of_draw, y, units) for of_draw in by_model[trees]]
    ratio = Ratio(
        value=float(np.median([of_draw.value for of_draw in ratios])),
        low=min(of_draw.low for of_draw in ratios),
        high=max(of_draw.high for of_draw in ratios),
    )
    is_higher = ratio.low > 1 and ratio.value >= _OPTIMISTIC
    rmses = {kind: rmse(predicted, y), "random rows": errors[trees]}
    summary = (
        f"{'Yes' if is_higher else 'Not clearly'}. The error of a quick model is "
        f"{format_significant(rmses[kind])} with {kind} held out, {ratio} times the "
        f"{format_significant(errors[trees])} with random rows held out and as many training rows."
    )
    numbers = {
        "rmse": rmses,
        "ratio": ratio.value,
        "interval": ratio.interval,
        "too_optimistic": is_higher,
    }
    return CheckResult("folds", "Are random folds too optimistic?", summary, numbers, shown=rmses)


def random_folds_like(folds: Folds, n: int, seed: int) -> Folds:
    """Random folds of n rows that hold out the same rows and have as many training rows."""
    rng = np.random.RandomState(seed)
    rows = rng.permutation(np.concatenate([held_out for _, held_out in folds]))
    ends = np.cumsum([len(held_out) for _, held_out in folds])
    drawn = []
    for (training, _), held_out in zip(folds, np.split(rows, ends[:-1]), strict=True):
        others = rng.permutation(np.setdiff1d(np.arange(n), held_out))
        drawn.append((others[: len(training)], held_out))
    return drawn


def find_optimistic_folds(check: CheckResult) -> Iterator[Finding]:
    """Find that random folds are too optimistic, by the check of folds."""
    if check.numbers.get("too_optimistic"):
        kind, _ = check.numbers["rmse"]
        advice = f"Use the errors and intervals reported here, which are those of {kind}."
        yield Finding("TW106", check.summary.removeprefix("Yes. "), advice, check.numbers)
