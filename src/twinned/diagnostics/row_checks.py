"""Checks of rows that are equal or in the order of time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import islice

import numpy as np
from scipy.stats import chi2

from twinned.diagnostics.errors import format_percent
from twinned.diagnostics.findings import CheckedTable, Finding
from twinned.rows.folds import distinct_rows
from twinned.rows.formatting import format_interval, format_significant
from twinned.rows.schema import Floats

_LEAST_SHARE, _LEAST_COPIES = 0.01, 3  # of duplicate rows
_CHANCE = 3.0  # times as many equal pairs as independent features would have
_LEAST_DEGREES = 5  # of freedom of a noise floor
_COMMON_SHARE = 0.3  # of replicates whose noise is that of all rows
_LEAST_STEPS = 5  # of a sorted column
_TIME_NAME = re.compile(r"(.*[\W_])?(year|date|time|timestamp|month|week|days?)([\W_].*)?", re.I)


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


def is_sorted(values: Floats) -> bool:
    """Whether the values that are not NaN only increase or only decrease, in at least 5 steps."""
    steps = np.diff(values[~np.isnan(values)])
    increases = steps[steps != 0] > 0
    return len(increases) >= _LEAST_STEPS and bool(increases.all() or not increases.any())
