"""Replicates: queries that equal known rows, and the weights of these anchors.

Rows with equal features are held out together, so out-of-fold predictions are those of new rows.
Where the table has many replicates, the correlation of their out-of-fold errors shows how much the
known values of a row are worth: near 1 if replicates have equal values that no model predicts, near
0 if their values differ as much as those of different rows do from their predictions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from twinned.rows.folds import distinct_rows
from twinned.rows.neighbors import Indices
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
    sums, squares = (np.bincount(codes, weights=values) for values in (errors, errors**2))
    # of the pairs of replicates, so that each row counts once
    products = (sums**2 - squares)[replicated] / (counts[replicated] - 1)
    total = float(squares[replicated].sum())
    return float(np.clip(products.sum() / total, 0.0, 1.0)) if total > 0 else 0.0


class ReplicateWeights:
    """Equal weights of all anchors, and more for anchors that equal the query.

    The m anchors that equal a query have together the additional weight m ρ / (1 + (m − 1) ρ), that
    of their mean in the best linear prediction, where ρ is the `correlation` of replicates.

    Parameters
    ----------
    correlation : float
        Correlation of replicates.
    matrix : ndarray of shape (n_anchors, n_features)
        The anchors, with categories as codes.

    Examples
    --------
    >>> weights = ReplicateWeights(0.5, np.array([[1.0], [1.0], [2.0]]))
    >>> weights.weigh(np.array([[2.0], [7.0]]), np.array([[0, 1, 2], [0, 1, 2]])).round(3)
    array([[0.167, 0.167, 0.667],
           [0.333, 0.333, 0.333]])
    """

    def __init__(self, correlation: float, matrix: Floats) -> None:
        self.correlation = correlation
        self._n_anchors = len(matrix)
        self._anchors: dict[bytes, list[int]] = {}
        for anchor, key in enumerate(_row_keys(matrix)):
            self._anchors.setdefault(key, []).append(anchor)

    def match(self, matrix: Floats) -> tuple[Indices, Indices]:
        """(match,): indices of queries and of the anchors that equal them."""
        found = [
            (query, anchor)
            for query, key in enumerate(_row_keys(matrix))
            for anchor in self._anchors.get(key, ())
        ]
        queries, anchors = np.array(found, dtype=np.intp).reshape(-1, 2).T
        return queries, anchors

    def weigh(self, matrix: Floats, indices: Indices) -> Floats:
        """(query, anchor) weights of the anchors `indices` of each query."""
        queries, anchors = self.match(matrix)
        counts, share = self._shares(queries, len(matrix))
        is_equal = np.zeros((len(matrix), self._n_anchors), dtype=bool)
        is_equal[queries, anchors] = True
        more = (
            np.take_along_axis(is_equal, indices, axis=1) * (share / np.maximum(counts, 1))[:, None]
        )
        weights: Floats = (1 - share)[:, None] / self._n_anchors + more
        return weights

    def combine_with_mean(self, mean: Floats, matrix: Floats, y: Floats) -> Floats:
        """(query,): the weighted mean, from the mean of the estimates of all anchors.

        The estimates of anchors that equal the query are their values y (anchor,).
        """
        queries, anchors = self.match(matrix)
        counts, share = self._shares(queries, len(matrix))
        sums = np.bincount(queries, weights=y[anchors], minlength=len(matrix))
        return mean + share * (sums / np.maximum(counts, 1) - mean)

    def _shares(self, queries: Indices, n_queries: int) -> tuple[NDArray[np.intp], Floats]:
        """(query,): the number of equal anchors, and their additional weight."""
        counts = np.bincount(queries, minlength=n_queries)
        return counts, counts * self.correlation / (
            1 + np.maximum(counts - 1, 0) * self.correlation
        )


def _row_keys(matrix: Floats) -> list[bytes]:
    """The bytes of each row; equal rows have equal bytes, missing values included."""
    rows = np.where(np.isnan(matrix), np.nan, matrix + 0.0)  # one NaN, and no negative zero
    return [row.tobytes() for row in rows]
