"""Known values of features: their ranges, and whether known rows miss any."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinned.rows.schema import Floats, Indices

Mask = NDArray[np.bool_]
_N_STD = 3.0  # by which a number of rows exceeds the expected one


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
        self._matrix, self._categorical = matrix, list(categorical)
        self._groups = np.arange(len(matrix)) if groups is None else groups
        missing = np.isnan(matrix)
        # (feature,): groups with missing values
        self._n_missing = _of_groups(np.logical_or, missing, self._groups).sum(axis=0)
        least = _of_groups(np.minimum, np.where(missing, np.inf, matrix), self._groups)
        most = _of_groups(np.maximum, np.where(missing, -np.inf, matrix), self._groups)
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
            is_beyond[:, j] = ~np.isin(rows[:, j], self._matrix[:, j]) & ~np.isnan(rows[:, j])
        return is_beyond

    def beyond_others(self, indices: Indices, margin: float = 0.0) -> Mask:
        """(row, feature): the same for known rows, each beside those of all other groups."""
        rows, own = self._matrix[indices], self._groups[indices, None]
        low = np.where(own == self._lowest, self._low[-1], self._low[0])
        high = np.where(own == self._highest, self._high[-1], self._high[0])
        is_beyond = _beyond(rows, low, high, margin)
        for j in self._categorical:
            in_groups = np.unique(np.column_stack([self._matrix[:, j], self._groups]), axis=0)
            codes, counts = np.unique(in_groups[:, 0], return_counts=True)
            is_beyond[:, j] = np.isin(rows[:, j], codes[counts == 1])
        return is_beyond

    def newly_missing(self, rows: Floats) -> Mask:
        """(row, feature): whether a value is missing where all known rows have one."""
        return np.isnan(rows) & (self._n_missing == 0)

    def newly_missing_beside_others(self, indices: Indices) -> Mask:
        """(row, feature): the same for known rows, each beside those of all other groups."""
        return np.isnan(self._matrix[indices]) & (self._n_missing == 1)


def _of_groups(function: np.ufunc, values: np.ndarray, groups: Indices) -> np.ndarray:
    """(group, feature): values (row, feature) combined over the rows of each group."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    return np.asarray(function.reduceat(values[order], starts, axis=0))


def _beyond(rows: Floats, low: Floats, high: Floats, margin: float) -> Mask:
    """(row, feature): whether a value is beyond a range; a feature without a range has none."""
    with np.errstate(invalid="ignore"):
        width = margin * (high - low) if margin else 0.0
        is_beyond = (rows < low - width) | (rows > high + width) | ((rows < 0) & (low >= 0))
        return is_beyond & (low <= high)


def is_unlikely(n_observed: int, n_rows: int, share: float) -> bool:
    """Whether so many rows are too many where this share is expected.

    >>> is_unlikely(3, 100, 0.04), is_unlikely(15, 100, 0.04)
    (False, True)
    """
    expected = n_rows * share
    return bool(n_observed > expected + _N_STD * np.sqrt(expected * (1 - share)))
