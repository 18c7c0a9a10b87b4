"""Applicability domain: how far the known rows determine y at other rows.

The expected error of a row is the standard deviation of a Gaussian process with the learned length
scales and noise, given the nearest known rows, times the size of the errors of the same process at
known rows near it, each predicted from the others. The first grows with the distance from known
rows, in relevant features more than in others; the second is large where y varies more than
elsewhere. Both are compared with those of each known row without itself, or without its group, so
that rows of new groups are compared with what new groups are expected to be. Number of neighbors
and limits were chosen on training rows of the paper's first split of each data set.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from twinned.exceptions import ShiftWarning
from twinned.rows.neighbors import KERNELS, LearnedMetric, NeighborIndex
from twinned.rows.schema import Floats, Indices, Queries

INSIDE, EDGE, OUTSIDE = LABELS = ("inside", "edge", "outside")
_EDGE, _OUTSIDE = LABELS.index(EDGE), LABELS.index(OUTSIDE)
_INSIDE_SHARE, _OUTSIDE_SHARE = 0.7, 0.025  # of the known rows, each without its group
_FAR = 1.0  # ranges of a feature, by which a value beyond its range is outside
_N_NEIGHBORS = 30
_PRIOR_ROWS = 10  # with errors of mean size, added to the neighbors
_MAX_REFERENCE = 1000  # known rows that are predicted from the others
_MIN_REFERENCE, _MAX_CANDIDATES = 50, 5_000_000  # of groups so large that fewer rows are predicted
_JITTER = 1e-8
_ROWS_PER_BLOCK = 1000
Mask = NDArray[np.bool_]
_N_STD = 3.0  # by which a number of rows exceeds the expected one


@dataclass(frozen=True, eq=False)
class ClassStatistics:
    """What was measured of held-out rows of each class, in the order of `LABELS`; NaN without."""

    rows: Floats  # (class,): their number
    error: Floats  # (class,): root mean square error
    coverage: Floats  # (class,): share of the rows within their prediction interval
    confidence: float  # of these intervals

    @classmethod
    def of_rows(cls, classes: Indices, errors: Floats, covered: Mask, confidence: float) -> Self:
        """From (row,) classes, errors, and whether the intervals contain y.

        >>> covered = np.array([True, False, True])
        >>> errors = np.array([3.0, 4.0, 1.0])
        >>> ClassStatistics.of_rows(np.array([0, 0, 2]), errors, covered, 0.9).coverage
        array([0.5, nan, 1. ])
        """
        rows = np.bincount(classes, minlength=len(LABELS)).astype(np.float64)
        squares, counts = (
            np.bincount(classes, weights=values, minlength=len(LABELS))
            for values in (errors**2, covered)
        )
        with np.errstate(invalid="ignore"):
            return cls(rows, np.sqrt(squares / rows), counts / rows, confidence)

    def table(self) -> pd.DataFrame:
        """One row for each class, with the columns `rows`, `error` and `coverage`."""
        columns = {"rows": self.rows, "error": self.error, "coverage": self.coverage}
        return pd.DataFrame(columns, index=list(LABELS))


class Rating(NamedTuple):
    """Applicability of rows, by score and by values that no known row has."""

    scores: Floats  # (row,)
    classes: Indices  # (row,): indices of `LABELS`
    is_new: Mask  # (row,): whether a row has a new category
    beyond: Mask  # (row, feature): whether a value is beyond those of the known rows
    missing: Mask  # (row, feature): whether a value is missing where all known rows have one


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
    y : ndarray of shape (n,) or (n, n_outputs)
        Target values of the known rows.
    categorical : sequence of int, default=()
        Indices of the categorical features.
    groups : ndarray of shape (n,), default=None
        Groups of the known rows; None stands for groups of one row.

    Examples
    --------
    >>> known = np.linspace(0, 1, 40)[:, None]
    >>> one = np.ones(1)
    >>> metric = LearnedMetric(one, one, one / 4, 1e-4, one)
    >>> domain = ApplicabilityDomain(known, known, metric, np.sin(9 * known[:, 0]))
    >>> rows = np.array([[0.51], [3.0]])
    >>> [LABELS[i] for i in domain.classify(rows, domain.score(rows)).classes]
    ['inside', 'outside']
    """

    def __init__(
        self,
        matrix: Floats,
        features: Floats,
        metric: LearnedMetric,
        y: Floats,
        categorical: Sequence[int] = (),
        groups: Indices | None = None,
    ) -> None:
        n_known = len(features)
        codes = np.arange(n_known) if groups is None else np.unique(groups, return_inverse=True)[1]
        self.known_values: KnownValues = KnownValues(matrix, categorical, codes)
        self._categorical = list(categorical)
        self._metric = metric
        self._features = metric.in_length_scales(features)
        self._index = NeighborIndex(self._features)
        reference = np.arange(n_known)
        affordable = max(_MIN_REFERENCE, _MAX_CANDIDATES // int(np.bincount(codes).max()))
        if n_known > (n_reference := min(_MAX_REFERENCE, affordable)):
            reference = np.random.RandomState(0).permutation(n_known)[:n_reference]
        self.known_rows = reference
        rows = self._features[reference]
        neighbors = _nearest_of_others(self._index, rows, codes, codes[reference])
        weights, deviation = self._regress(rows, neighbors)
        values = y.reshape(n_known, -1)
        errors = values[reference] - np.einsum("ik,iko->io", weights, values[neighbors])
        self._relative_squares = _relative_squares(errors / deviation[:, None])
        self._reference_index, own = NeighborIndex(rows), codes[reference]
        others = _nearest_of_others(self._reference_index, rows, own, own)
        expected_errors = deviation * self._error_size(others)
        self._unit = float(np.median(expected_errors))
        self.known_scores: Floats = expected_errors / self._unit
        limits = np.quantile(self.known_scores, [_INSIDE_SHARE, 1 - _OUTSIDE_SHARE])
        # beyond rounding: the rows of a regular design all have the same expected error
        self._limits = limits * (1 + 1e-6)

    def score(self, features: Floats) -> Floats:
        """(row,): expected error of encoded rows, in units of the median known row's."""
        rows = self._metric.in_length_scales(features)
        _, deviation = self._regress(rows, _nearest(self._index, rows))
        return deviation * self._error_size(_nearest(self._reference_index, rows)) / self._unit

    def rate(self, queries: Queries) -> Rating:
        """Scores and classes of queries, which are encoded in blocks, as indicators take memory."""
        score = np.empty(len(queries))
        for rows in gen_batches(len(score), _ROWS_PER_BLOCK):
            score[rows] = self.score(queries.take(rows).features)
        return self.classify(queries.matrix, score)

    def classify(self, matrix: Floats, scores: Floats) -> Rating:
        """The classes of rows with categories as codes, by their scores.

        A row with a feature beyond the range of the known rows is at the edge or outside; one with
        a new category, far beyond the range, or without a value that all known rows have, is
        outside.
        """
        known = self.known_values
        beyond, missing = known.beyond(matrix), known.newly_missing(matrix)
        is_new = np.any(beyond[:, self._categorical], axis=1)
        classes = self._classify(scores, beyond, known.beyond(matrix, _FAR) | missing)
        return Rating(scores, classes, is_new, beyond, missing)

    def classify_known(self) -> Indices:
        """(known row,): indices of `LABELS` for `known_rows`, each without its group."""
        known, rows = self.known_values, self.known_rows
        missing = known.newly_missing(known.matrix[rows], n_missing=1)
        far = known.beyond_others(rows, _FAR)
        return self._classify(self.known_scores, known.beyond_others(rows), far | missing)

    @cached_property
    def expected_share(self) -> float:
        """The share of rows exchangeable with the known ones that are outside."""
        n_outside = int(np.sum(self.classify_known() == _OUTSIDE))
        return (n_outside + 1) / (len(self.known_rows) + 1)

    def _classify(self, scores: Floats, beyond: Mask, outside: Mask) -> Indices:
        """(row,): classes by scores, raised by values beyond or outside of the known ones."""
        least = np.where(np.any(beyond, axis=1), _EDGE, 0)
        least[np.any(outside, axis=1)] = _OUTSIDE
        return np.maximum(np.searchsorted(self._limits, scores), least)

    def _error_size(self, neighbors: Indices) -> Floats:
        """(row,): size of the errors of near reference rows (row, neighbor), in deviations."""
        total = _PRIOR_ROWS + self._relative_squares[neighbors].sum(axis=1)
        return np.sqrt(total / (_PRIOR_ROWS + neighbors.shape[1]))

    def _regress(self, rows: Floats, neighbors: Indices) -> tuple[Floats, Floats]:
        """(row, neighbor) weights of the values of neighbors, and (row,) standard deviation of y.

        The mean of the process is unknown, so that the weights sum to 1.
        """
        kernel, noise = KERNELS["matern"], self._metric.noise
        # relative to the row, so that the squares of distances have enough digits
        offsets = self._features[neighbors] - rows[:, None]
        squares = np.sum(offsets**2, axis=2)
        between = squares[:, :, None] + squares[:, None] - 2 * offsets @ offsets.transpose(0, 2, 1)
        correlation = kernel(np.maximum(between, 0.0))[0]
        correlation += (noise + _JITTER) * np.eye(neighbors.shape[1])
        to_row = kernel(squares)[0]
        right = np.stack([to_row, np.ones_like(to_row)], axis=2)
        weights, of_mean = np.moveaxis(np.linalg.solve(correlation, right), 2, 0)
        explained = np.sum(to_row * weights, axis=1)
        of_mean = of_mean / of_mean.sum(axis=1, keepdims=True)
        weights = weights + (1.0 - weights.sum(axis=1, keepdims=True)) * of_mean
        return weights, np.sqrt(np.maximum(1.0 - explained, _JITTER) + noise)


def applicability_columns(
    domain: ApplicabilityDomain, queries: Queries, measured: ClassStatistics | None
) -> dict[str, object]:
    """Columns of the table of `applicability`.

    `measured` are the error and the coverage of the classes, where they have been measured.
    """
    score, classes, is_new, _, _ = domain.rate(queries)
    columns: dict[str, object] = {"score": score, "label": np.array(LABELS, dtype=object)[classes]}
    if measured is not None:
        columns["error"] = np.where(is_new, np.nan, measured.error[classes])
        columns["coverage"] = np.where(is_new, np.nan, measured.coverage[classes])
    return columns


def warn_of_shift(
    domain: ApplicabilityDomain,
    queries: Queries,
    feature_labels: Callable[[], list[str]],
    stacklevel: int,
) -> None:
    """Warn where more rows are outside than exchangeable rows would, or have a new category."""
    _, classes, is_new, beyond, missing = domain.rate(queries)
    n_rows, n_outside, n_new = len(classes), np.sum(classes == _OUTSIDE), np.sum(is_new)
    share = domain.expected_share
    most = n_rows * share + _N_STD * np.sqrt(n_rows * share * (1 - share))
    if not n_new and not missing.any() and n_outside <= most:
        return
    beyond, names = beyond | missing, feature_labels()
    where = f" (in {_name_features(beyond, names)})" if beyond.any() else ""
    new = f"; {n_new} of them have a category that no training row has" if n_new else ""
    if missing.any():
        n_missing, features = np.any(missing, axis=1).sum(), _name_features(missing, names)
        new += f"; {n_missing} of them miss {features}, which every training row has: they are "
        new += "predicted by values of similar training rows, which widens their intervals"
    warnings.warn(
        f"{n_outside} of {n_rows} rows lie outside of the training rows{where}{new}. There, "
        "prediction intervals may cover less than their confidence; applicability(X) classifies "
        "the rows.",
        ShiftWarning,
        stacklevel=stacklevel + 1,
    )


def _name_features(mask, names):
    """Names of the three features of the most rows in a mask (row, feature)."""
    most = np.argsort(-mask.sum(axis=0), kind="stable")[:3]
    return ", ".join(repr(names[j]) for j in most if mask[:, j].any())


def _relative_squares(errors: Floats) -> Floats:
    """(row,): squares of errors (row, output) in units of their means; ones where all are 0."""
    squares = errors**2
    mean = squares.mean(axis=0)
    return np.divide(squares, mean, out=np.ones_like(squares), where=mean > 0).mean(axis=1)


def _nearest(index: NeighborIndex, rows: Floats) -> Indices:
    """(row, k): the nearest rows of the index."""
    return index.kneighbors(rows, min(_N_NEIGHBORS, len(index)))[0]


def _nearest_of_others(
    index: NeighborIndex, rows: Floats, groups: Indices, own: Indices
) -> Indices:
    """(row, k): the nearest rows of the index, whose groups are not the row's own (row,)."""
    largest = int(np.bincount(groups).max())
    k = min(_N_NEIGHBORS, len(index) - largest)
    neighbors, _ = index.kneighbors(rows, k + largest)
    others_first = np.argsort(groups[neighbors] == own[:, None], axis=1, kind="stable")
    return np.take_along_axis(neighbors, others_first[:, :k], axis=1)


class KnownValues:
    """Ranges of the numeric features of known rows, and categories of the others.

    Parameters
    ----------
    matrix : ndarray of shape (n, n_features)
        Known rows, with categories as codes.
    categorical : sequence of int
        Indices of the categorical features.
    groups : ndarray of shape (n,), default=None
        Codes from 0 of groups of rows; None stands for groups of one row.

    Examples
    --------
    >>> known = KnownValues(np.array([[0.0, 1.0], [2.0, 3.0]]), categorical=[1])
    >>> known.beyond(np.array([[1.0, 2.0], [3.0, np.nan]]))
    array([[False,  True],
           [ True, False]])
    >>> known.newly_missing(np.array([[1.0, 2.0], [3.0, np.nan]]))
    array([[False, False],
           [False,  True]])
    """

    def __init__(
        self, matrix: Floats, categorical: Sequence[int] = (), groups: Indices | None = None
    ) -> None:
        self.matrix: Floats = matrix
        self._categorical: list[int] = list(categorical)
        self._groups = np.arange(len(matrix)) if groups is None else groups
        of_groups = pd.DataFrame(matrix).groupby(self._groups)
        # (feature,): groups with missing values
        self._n_missing = of_groups.count().lt(of_groups.size(), axis=0).sum().to_numpy()
        least = of_groups.min().fillna(np.inf).to_numpy()
        most = of_groups.max().fillna(-np.inf).to_numpy()
        # (feature,): the group with the lowest value, and that with the highest
        self._lowest, self._highest = least.argmin(axis=0), most.argmax(axis=0)
        # (end, feature): the lowest value and that of all other groups, and the highest two
        self._low, self._high = np.sort(least, axis=0)[:2], np.sort(most, axis=0)[::-1][:2]

    def beyond(self, rows: Floats, margin: float = 0.0) -> Mask:
        """(row, feature): whether a value is beyond those of the known rows.

        A number is, if it is beyond their range by more than `margin` times the range, or negative
        where none of them is; a category is, if it is new. Missing values are not, nor values of a
        feature without known ones.
        """
        is_beyond = _beyond(rows, self._low[0], self._high[0], margin)
        for j in self._categorical:
            is_beyond[:, j] = ~np.isin(rows[:, j], self.matrix[:, j]) & ~np.isnan(rows[:, j])
        return is_beyond

    def beyond_others(self, indices: Indices, margin: float = 0.0) -> Mask:
        """(row, feature): the same for known rows, each beside those of all other groups."""
        rows, own = self.matrix[indices], self._groups[indices, None]
        low = np.where(own == self._lowest, self._low[-1], self._low[0])
        high = np.where(own == self._highest, self._high[-1], self._high[0])
        is_beyond = _beyond(rows, low, high, margin)
        for j in self._categorical:
            in_groups = np.unique(np.column_stack([self.matrix[:, j], self._groups]), axis=0)
            codes, counts = np.unique(in_groups[:, 0], return_counts=True)
            is_beyond[:, j] = np.isin(rows[:, j], codes[counts == 1])
        return is_beyond

    def newly_missing(self, rows: Floats, n_missing: int = 0) -> Mask:
        """(row, feature): whether a value is missing where known rows of other groups have one.

        `n_missing` is the number of groups of the row: 1 for known rows.
        """
        return np.isnan(rows) & (self._n_missing == n_missing)


def _beyond(rows: Floats, low: Floats, high: Floats, margin: float) -> Mask:
    """(row, feature): whether a value is beyond a range; a feature without a range has none."""
    with np.errstate(invalid="ignore"):
        width = margin * (high - low) if margin else 0.0
        is_beyond = (rows < low - width) | (rows > high + width) | ((rows < 0) & (low >= 0))
        return is_beyond & (low <= high)
