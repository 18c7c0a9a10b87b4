"""Checks for features that reveal the target, alone or two together, and for row counters."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata
from sklearn.isotonic import IsotonicRegression

from twinned.diagnostics.data_checks.findings import CheckedTable, Finding, list_names
from twinned.rows.folds import distinct_rows, row_folds
from twinned.rows.schema import Floats

# Of the paper's data sets, the largest R² of one feature is 0.988 (YH, the Froude number).
_LEAK_R2 = 0.995
_LEAST_RANK = 0.9  # absolute rank correlation of a feature whose R² is computed
_PERFECT_RANK = 0.9995  # of a monotone function, also where outliers lower the R²
_PAIR_R2 = 0.9995  # of two features; the largest of the paper's data sets is 0.960 (YH)
_MAX_PAIRED = 200  # features
_LEAST_KNOWN = 20
_DENSE = 1.2  # range of a counter, in numbers of rows


def check_leaks(sample: CheckedTable) -> list[Finding]:
    """Find numeric features of which a monotone function nearly equals the target."""
    if sample.matrix.shape[1] < 2:
        return []
    found = {}
    for feature, name in enumerate(sample.names):
        if not sample.is_categorical(feature):
            r2 = monotone_r2(sample.matrix[:, feature], sample.y)
            if r2 > _LEAK_R2:
                found[name] = r2
    if not found:
        return []
    names = sorted(found, key=lambda name: -found[name])
    listed = list_names(names)
    one = len(names) == 1
    share = f"R² {found[names[0]]:.4f}" if one else f"R² above {_LEAK_R2}"
    return [
        Finding(
            "TW201",
            f"{listed} alone {'predicts' if one else 'predict'} the target almost perfectly "
            f"({share} out of fold, by a monotone function).",
            f"If {'it is' if one else 'they are'} computed from the target, or known only after "
            f"it, exclude {'it' if one else 'them'} ({_drop_options(names)}); else ignore this.",
            {"r2": found},
        )
    ]


def check_pairs(sample: CheckedTable) -> list[Finding]:
    """Find two numeric features whose product, ratio, sum or difference nearly is the target.

    A single feature that reveals the target is a finding of its own, and not one of a pair.
    """
    numeric = [
        feature
        for feature in range(len(sample.names))
        if not sample.is_categorical(feature)
        and not np.isnan(sample.matrix[:, feature]).any()
        and monotone_r2(sample.matrix[:, feature], sample.y) <= _LEAK_R2
    ][:_MAX_PAIRED]
    if len(numeric) < 2 or sample.n_rows < _LEAST_KNOWN:
        return []
    X, y = sample.matrix[:, numeric], sample.y
    found = [(*pair_r2(X, y, sign), operation) for operation, sign in {"+": 1, "−": -1}.items()]
    positive = np.flatnonzero((X > 0).all(axis=0))
    if len(positive) >= 2 and (y > 0).all():
        for operation, sign in {"×": 1, "/": -1}.items():
            r2, i, j = pair_r2(np.log(X[:, positive]), np.log(y), sign)
            found.append((r2, positive[i], positive[j], operation))
    r2, i, j, operation = max(found)
    if r2 <= _PAIR_R2:
        return []
    names = [sample.names[numeric[i]], sample.names[numeric[j]]]
    return [
        Finding(
            "TW203",
            f"{names[0]!r} {operation} {names[1]!r} predicts the target almost perfectly, up to a "
            f"constant factor or term (R² {r2:.5f}).",
            "If one of them is computed from the target, as a price per area is, exclude it "
            f"({_drop_options(names[:1])} or {_drop_options(names[1:])}); else ignore this.",
            {"features": names, "operation": operation, "r2": r2},
        )
    ]


def pair_r2(X: Floats, y: Floats, sign: int) -> tuple[float, int, int]:
    """Return the largest R² of y as a linear function of a ± b, and the features a and b.

    A difference increases with y.

    >>> a, b, c = np.random.RandomState(0).normal(size=(3, 50))
    >>> r2, *pair = pair_r2(np.column_stack([a, b, c]), 2 * (c - a) + 1, -1)
    >>> round(r2, 6), pair
    (1.0, [2, 0])
    """
    X, y = X - X.mean(axis=0), y - y.mean()
    products, with_y = X.T @ X, X.T @ y
    squares = np.diag(products)
    numerator = (with_y[:, None] + sign * with_y) ** 2
    spread = squares[:, None] + squares + 2 * sign * products
    least = 1e-12 * (squares[:, None] + squares)  # of a sum that is constant
    r2 = np.divide(numerator, spread * (y @ y), out=np.zeros_like(spread), where=spread > least)
    r2[np.tril_indices(len(r2))] = 0.0
    i, j = map(int, np.unravel_index(np.argmax(r2), r2.shape))
    largest = float(r2[i, j])
    return (largest, j, i) if sign < 0 and with_y[i] < with_y[j] else (largest, i, j)


def monotone_r2(x: Floats, y: Floats) -> float:
    """Return the out-of-fold R² of a monotone function of one feature, −inf where it is low.

    >>> x = np.linspace(1, 2, 50)
    >>> monotone_r2(x, np.exp(5 * x)) > 0.99, monotone_r2(np.sin(99 * x), x)
    (True, -inf)
    """
    known = ~np.isnan(x)
    x, y = x[known], y[known]
    if len(x) < max(_LEAST_KNOWN, 0.5 * len(known)) or np.ptp(x) == 0 or np.ptp(y) == 0:
        return -np.inf
    correlation = np.corrcoef(rankdata(x), rankdata(y))[0, 1]
    if abs(correlation) < _LEAST_RANK:
        return -np.inf
    if abs(correlation) > _PERFECT_RANK:
        return float(correlation**2)
    squares = np.zeros(2)  # of a line, which extrapolates, and of any monotone function
    for train, held_out in row_folds(len(x), 5, 0):
        slope, intercept = np.polyfit(x[train], y[train], 1)
        monotone = IsotonicRegression(increasing=bool(correlation > 0), out_of_bounds="clip")
        monotone.fit(x[train], y[train])
        for i, own in enumerate((slope * x[held_out] + intercept, monotone.predict(x[held_out]))):
            squares[i] += float(np.sum((own - y[held_out]) ** 2))
    return float(1 - squares.min() / np.sum((y - y.mean()) ** 2))


def check_counters(table: CheckedTable) -> list[Finding]:
    """Find features that number the rows; copies of a row count once, and dates do not."""
    table = table.take(np.sort(distinct_rows(np.column_stack([table.matrix, table.y]))[0]))
    names = [
        name
        for feature, name in enumerate(table.names)
        if not table.is_categorical(feature)
        and not _is_part_of_date(name, table.names)
        and is_counter(table.matrix[:, feature])
    ]
    if not names:
        return []
    one = len(names) == 1
    return [
        Finding(
            "TW202",
            f"{list_names(names)} {'has' if one else 'have'} a different whole number in each of "
            f"the {table.n_rows:,} rows, as a row counter or an identifier has.",
            f"Exclude {'it' if one else 'them'} ({_drop_options(names)}): new rows have numbers "
            "beyond all known ones. Keep a column that is a measurement, such as a time.",
            {"columns": names},
        )
    ]


def _drop_options(names: list[str]) -> str:
    """Return options of the command line that exclude the first three columns."""
    return " ".join(f"--drop {name!r}" for name in names[:3])


def _is_part_of_date(name: str, names: list[str]) -> bool:
    """Return whether a feature has the days of a date, which `--date` makes with other parts."""
    date, is_days, _ = name.rpartition(" (days)")
    return bool(is_days) and f"{date} (month)" in names


def is_counter(column: Floats) -> bool:
    """Return whether a column has different whole numbers, consecutive or in increasing order.

    >>> is_counter(np.arange(30.0)[::-1]), is_counter(np.arange(30.0) ** 2 / 7)
    (True, False)
    """
    n = len(column)
    if n < _LEAST_KNOWN or np.isnan(column).any() or np.any(column != np.round(column)):
        return False
    if len(np.unique(column)) < n:
        return False
    steps = np.diff(column)
    return bool(np.ptp(column) <= _DENSE * n or (steps > 0).all() or (steps < 0).all())
