"""Checks of the values of the target and of the number of rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import skew

from twinned.diagnostics.data_checks.findings import CheckedTable, Finding
from twinned.diagnostics.data_checks.quick_model import quick_predictions
from twinned.diagnostics.ratio import rmse_ratio
from twinned.diagnostics.result import format_percent
from twinned.rows.formatting import format_significant
from twinned.rows.neighbors import Indices

_LEAST_ROUNDING = 0.1  # error by rounding, as a share of the standard deviation
_BOUND_SHARE, _BOUND_ROWS = 0.02, 5  # rows at the lowest or highest value
_BOUND_EXCESS = 3.0  # times as many as at the most frequent other value
_LEAST_SKEWNESS, _LEAST_SPAN = 1.0, 10.0  # the largest value divided by the smallest
_LEAST_GAIN = 0.05  # by the logarithm, of the error
_DOMINANT = 0.5  # share of one row in the squared error
_LEAST_ROWS, _ROWS_PER_FEATURE, _LEAST_GROUPS = 50, 3, 10


def check_rounding(table: CheckedTable) -> list[Finding]:
    """Find a target with so few digits that rounding is part of the error."""
    step = rounding_step(table)
    if step is None:
        return []
    error, n_values = step / np.sqrt(12), len(np.unique(table.y))
    if error < _LEAST_ROUNDING * table.y.std():
        return []
    return [
        Finding(
            "TW301",
            f"The target has only {n_values} different values, in steps of "
            f"{format_significant(step)}; rounding alone gives an RMSE of "
            f"{format_significant(float(error), 2)}.",
            "Use values before rounding if they exist. If the values are classes, compare with a "
            "classifier.",
            {"step": step, "values": n_values, "rmse": float(error)},
        )
    ]


def rounding_step(table: CheckedTable) -> float | None:
    """Return the smallest distance of two values if all are multiples of it from the lowest."""
    values = np.unique(table.y)
    if len(values) < 2:
        return None
    step = float(np.diff(values).min())
    multiples = (values - values[0]) / step
    return step if np.allclose(multiples, np.round(multiples), atol=1e-6) else None


def check_bounds(table: CheckedTable) -> list[Finding]:
    """Find a target with many rows at its lowest or highest value."""
    values, counts = np.unique(table.y, return_counts=True)
    found = []
    for end, word, sign in ((0, "lowest", "<"), (-1, "highest", ">")):
        count = int(counts[end])
        others = np.delete(counts, [0, -1]) if len(counts) > 2 else np.zeros(1)
        least = max(_BOUND_ROWS, _BOUND_SHARE * table.n_rows)
        if len(values) < 10 or count < least or count < _BOUND_EXCESS * others.mean():
            continue
        if count <= others.max():
            continue
        value = format_significant(float(values[end]), 4)
        found.append(
            Finding(
                "TW302",
                f"{count:,} rows ({format_percent(count / table.n_rows)}) have the {word} value, "
                f"{value}, as if the target were cut there.",
                f"If these are limits of detection, the true values are {sign} {value}: such rows "
                "are censored, not exact. If the target cannot exceed it, cut predictions there.",
                {"value": float(values[end]), "rows": count, "end": word},
            )
        )
    return found


def check_skewness(table: CheckedTable) -> list[Finding]:
    """Find a positive, skewed target whose logarithm a quick model predicts better.

    Both errors are in units of the target, by cross-validation on the same folds.
    """
    y = table.y
    if y.min() <= 0 or y.max() < _LEAST_SPAN * y.min() or skew(y) < _LEAST_SKEWNESS:
        return []
    plain = quick_predictions(table)
    with np.errstate(over="ignore"):
        logarithm = np.exp(quick_predictions(replace(table, y=np.log(y))))
    if not np.isfinite(logarithm).all():
        return []
    ratio = rmse_ratio(logarithm, plain, y)
    if ratio.high >= 1 or ratio.value > 1 - _LEAST_GAIN:
        return []
    if rmse_ratio(logarithm, np.full(len(y), y.mean()), y).high >= 1:
        return []  # a model without use may gain by any change of its target
    span = format_significant(float(y.max() / y.min()))
    return [
        Finding(
            "TW304",
            f"The largest value is {span} times the smallest. A quick model of the logarithm has "
            f"an error (RMSE, in units of the target) of {ratio.value:.2f} ({ratio.low:.2f} to "
            f"{ratio.high:.2f}) times that of the same model of the target itself.",
            "Run it again with --log-target (log_target=True in Python) and compare the errors. "
            "Predictions and intervals are then positive.",
            {"ratio": ratio.value, "interval": [ratio.low, ratio.high], "skewness": float(skew(y))},
        )
    ]


def check_dominant_row(table: CheckedTable) -> list[Finding]:
    """Find a row with most of the squared error of a quick model."""
    predicted = quick_predictions(table)
    squares = (table.y - predicted) ** 2
    row = int(np.argmax(squares))
    total = float(squares.sum())
    # the error of a target that the model predicts exactly is rounding
    if total <= 1e-12 * float(np.sum((table.y - table.y.mean()) ** 2)):
        return []
    share = float(squares[row]) / total
    if share <= _DOMINANT:
        return []
    value, expected = float(table.y[row]), float(predicted[row])
    return [
        Finding(
            "TW305",
            f"One row, with the target value {format_significant(value, 4)}, has "
            f"{format_percent(share)} of the squared error of a quick model, which predicts "
            f"{format_significant(expected, 2)} there from the other rows.",
            "Check its target and features, and correct or exclude the row if a value is wrong. If "
            "it is right, prefer the mean absolute error to the RMSE.",
            {"value": value, "predicted": expected, "share": share},
        )
    ]


def check_size(table: CheckedTable, groups: Indices | None) -> list[Finding]:
    """Find tables with few rows, few rows per feature or few groups."""
    n, p = table.n_rows, table.matrix.shape[1]
    reasons = []
    if n < _LEAST_ROWS:
        reasons.append(f"there are {n} rows")
    elif n < _ROWS_PER_FEATURE * p:
        reasons.append(f"there are {n:,} rows for {p:,} features")
    n_groups = None if groups is None else len(np.unique(groups))
    if n_groups is not None and n_groups < _LEAST_GROUPS:
        reasons.append(f"there are {n_groups} groups")
    if not reasons:
        return []
    return [
        Finding(
            "TW303",
            f"{' and '.join(reasons).capitalize()}: errors and the choice between models are "
            "uncertain.",
            "Read the error bars, prefer simple models, and get more labels or fewer features.",
            {"rows": n, "features": p, "groups": n_groups},
        )
    ]
