"""Rows that are predicted and known: their values are used beside the members of a blend.

Rows with equal features are held out together, so out-of-fold predictions are those of new rows.
Where the table has many replicates, the correlation of their out-of-fold errors shows how much the
known values of a row are worth: near 1 if replicates have equal values that no member predicts,
near 0 if their values differ as much as those of different rows do from their predictions.
"""

from __future__ import annotations

import numpy as np

from twinned.rows.folds import distinct_rows
from twinned.rows.schema import Floats

_LEAST_REPLICATED = 20  # distinct rows that occur more than once


def replicate_correlation(matrix: Floats, errors: Floats, weights: Floats | None = None) -> float:
    """Correlation of the out-of-fold errors (row,) of rows of a matrix that are equal, or 0.

    The mean product of the errors of two replicates, divided by their mean square. It is 0 where
    fewer than 20 rows are replicated, if it would be negative, and with weights, which may stand
    for repeated rows.

    >>> rows = np.repeat(np.arange(25.0), 2)[:, None]
    >>> replicate_correlation(rows, np.tile([1.0, 0.5], 25))
    0.8
    >>> replicate_correlation(rows[:30], np.ones(30))
    0.0
    """
    codes = distinct_rows(matrix)[1]
    counts = np.bincount(codes)
    replicated = counts > 1
    if weights is not None or replicated.sum() < _LEAST_REPLICATED:
        return 0.0
    sums, squares = (np.bincount(codes, weights=own) for own in (errors, errors**2))
    # of the pairs of replicates, so that each row counts once
    products = (sums**2 - squares)[replicated] / (counts[replicated] - 1)
    total = float(squares[replicated].sum())
    return float(np.clip(products.sum() / total, 0.0, 1.0)) if total > 0 else 0.0


def include_known_values(
    predicted: Floats, queries: Floats, known: Floats, y: Floats, correlation: float
) -> Floats:
    """(query,) predictions, those of queries equal to known rows moved towards their mean value.

    The mean of m values has the weight m ρ / (1 + (m − 1) ρ) of the best linear prediction, where ρ
    is the `correlation` of replicates.

    >>> known, y = np.array([[1.0], [1.0], [2.0]]), np.array([3.0, 5.0, 9.0])
    >>> include_known_values(np.zeros(3), np.array([[1.0], [2.0], [7.0]]), known, y, 0.5)
    array([2.66666667, 4.5       , 0.        ])
    """
    if correlation == 0 or not len(queries):
        return predicted
    codes = distinct_rows(np.concatenate([known, queries]))[1]
    of_known, of_queries = codes[: len(known)], codes[len(known) :]
    counts, sums = (
        np.bincount(of_known, weights=own, minlength=codes.max() + 1)[of_queries]
        for own in (None, y)
    )
    found = np.flatnonzero(counts)
    m, mean = counts[found], sums[found] / counts[found]
    result = predicted.copy()
    result[found] += m * correlation / (1 + (m - 1) * correlation) * (mean - predicted[found])
    return result
