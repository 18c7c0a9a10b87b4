"""Applicability domain: how far the known rows determine y at other rows.

The uncertainty of a row is the standard deviation of a Gaussian process with the learned length
scales and noise, given the nearest known rows: it grows with the distance from them, in relevant
features more than in others, and where there is much noise it hardly grows. It is compared with the
uncertainty of each known row given the others. Number of neighbors and limits were chosen on
training rows of the paper's first split of each data set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned._neighbors import Indices, LearnedMetric, NeighborIndex
from twinned._table import Floats
from twinned.intervals.shift import outside_range
from twinned.models.gaussian_process import KERNELS

INSIDE, EDGE, OUTSIDE = LABELS = ("inside", "edge", "outside")
_INSIDE_SHARE, _OUTSIDE_SHARE = 0.9, 0.025  # of the known rows, each without itself
_N_NEIGHBORS = 30
_MAX_REFERENCE = 1000  # known rows whose own uncertainty is computed
_JITTER = 1e-8
_ROWS_PER_BLOCK = 1000


class ClassStatistics(NamedTuple):
    """Errors and coverage of held-out rows in each class, in the order of `LABELS`."""

    rows: Floats  # (class,) number of rows
    error: Floats  # (class,) root mean square error; NaN without rows
    coverage: Floats  # (class,) share of rows within their interval; NaN without rows

    @classmethod
    def of(cls, labels: Indices, errors: Floats, covered: NDArray[np.bool_]) -> ClassStatistics:
        """Statistics of rows with these classes, (row,) each.

        >>> covered = np.array([True, False, True])
        >>> ClassStatistics.of(np.array([0, 0, 2]), np.array([3.0, 4.0, 1.0]), covered).coverage
        array([0.5, nan, 1. ])
        """
        rows = np.bincount(labels, minlength=len(LABELS)).astype(float)
        with np.errstate(invalid="ignore"):
            squares = np.bincount(labels, weights=errors**2, minlength=len(LABELS)) / rows
            coverage = np.bincount(labels, weights=covered, minlength=len(LABELS)) / rows
        return cls(rows, np.sqrt(squares), coverage)


class ApplicabilityDomain:
    """Known rows, by which other rows are inside, at the edge or outside.

    Parameters
    ----------
    matrix : ndarray of shape (n, n_features)
        Known rows, with categories as codes.
    features : ndarray of shape (n, n_encoded)
        The same rows encoded.
    metric : LearnedMetric
        Length scales and noise of the encoded features.

    Examples
    --------
    >>> known = np.linspace(0, 1, 40)[:, None]
    >>> one = np.ones(1)
    >>> domain = ApplicabilityDomain(known, known, LearnedMetric(one, one, one / 4, 1e-4, one))
    >>> rows = np.array([[0.51], [3.0]])
    >>> [LABELS[i] for i in domain.classify(rows, domain.score(rows))]
    ['inside', 'outside']
    """

    def __init__(self, matrix: Floats, features: Floats, metric: LearnedMetric) -> None:
        self._matrix, self._metric = matrix, metric
        self._features = metric.in_length_scales(features)
        self._index = NeighborIndex(self._features)
        n_known = len(features)
        reference = np.arange(n_known)
        if n_known > _MAX_REFERENCE:
            reference = np.random.RandomState(0).permutation(n_known)[:_MAX_REFERENCE]
        own = self._uncertainty(self._features[reference], reference)
        self._unit = float(np.median(own))
        self.known_rows = reference
        self.known_scores = own / self._unit
        limits = np.quantile(self.known_scores, [_INSIDE_SHARE, 1 - _OUTSIDE_SHARE])
        # beyond rounding: the rows of a regular design all have the same uncertainty
        self._limits = limits * (1 + 1e-6)

    def score(self, features: Floats) -> Floats:
        """(row,): uncertainty of encoded rows, in units of the median known row without itself."""
        return self._uncertainty(self._metric.in_length_scales(features)) / self._unit

    def classify(self, matrix: Floats, scores: Floats) -> Indices:
        """(row,): indices of `LABELS` for rows with categories as codes, and their scores.

        A row with a feature beyond the range of the known rows is at the edge or outside.
        """
        classes = np.searchsorted(self._limits, scores)
        beyond = outside_range(matrix, self._matrix).any(axis=1)
        return np.where(beyond, np.maximum(classes, LABELS.index(EDGE)), classes)

    def classify_known(self) -> Indices:
        """(known row,): indices of `LABELS` for `known_rows`, each without itself."""
        return np.searchsorted(self._limits, self.known_scores)

    def _uncertainty(self, rows: Floats, itself: Indices | None = None) -> Floats:
        """(row,): standard deviation of y at scaled rows, in units of the process.

        `itself` are the indices of the rows among the known ones, which do not count then.
        """
        k = min(_N_NEIGHBORS, len(self._features) - (itself is not None))
        found = np.empty(len(rows))
        for start in range(0, len(rows), _ROWS_PER_BLOCK):
            block = slice(start, start + _ROWS_PER_BLOCK)
            neighbors, _ = self._index.kneighbors(rows[block], k + (itself is not None))
            if itself is not None:
                neighbors = _without(neighbors, itself[block])
            found[block] = self._deviation(rows[block], neighbors)
        return found

    def _deviation(self, rows: Floats, neighbors: Indices) -> Floats:
        """(row,): standard deviation of y at scaled rows, given these neighbors."""
        kernel, noise = KERNELS["matern"], self._metric.noise
        # relative to the row, so that the squares of distances have enough digits
        offsets = self._features[neighbors] - rows[:, None]
        squares = np.sum(offsets**2, axis=2)
        between = squares[:, :, None] + squares[:, None] - 2 * offsets @ offsets.transpose(0, 2, 1)
        correlation = kernel(np.maximum(between, 0.0))[0]
        correlation += (noise + _JITTER) * np.eye(neighbors.shape[1])
        to_row = kernel(squares)[0]
        explained = np.sum(to_row * np.linalg.solve(correlation, to_row[..., None])[..., 0], axis=1)
        return np.sqrt(np.maximum(1.0 - explained, _JITTER) + noise)


def _without(neighbors: Indices, itself: Indices) -> Indices:
    """(row, k) of (row, k + 1) neighbors without the row itself, or without the last."""
    keep = neighbors != itself[:, None]
    keep[keep.all(axis=1), -1] = False
    return neighbors[keep].reshape(len(neighbors), -1)
