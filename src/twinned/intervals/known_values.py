"""Ranges and categories of the features of known rows, and values beyond them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

_N_STD = 3.0  # by which a number of rows exceeds the expected one


class KnownValues:
    """Ranges of the numeric features of known rows, and categories of the others.

    Parameters
    ----------
    matrix : ndarray of shape (n, n_features)
        Known rows, with categories as codes.
    categorical : sequence of int
        Indices of the categorical features.

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

    def __init__(self, matrix: Floats, categorical: Sequence[int] = ()) -> None:
        self._matrix = matrix
        self._categorical = list(categorical)
        missing = np.isnan(matrix)
        self._n_missing = missing.sum(axis=0)
        n_ends = min(2, len(matrix))
        # (end, feature): the lowest and the second lowest known value, and the highest two
        self._low = np.sort(np.where(missing, np.inf, matrix), axis=0)[:n_ends]
        self._high = np.sort(np.where(missing, -np.inf, matrix), axis=0)[::-1][:n_ends]

    def beyond(self, rows: Floats, margin: float = 0.0) -> NDArray[np.bool_]:
        """(row, feature): whether a value is beyond those of the known rows.

        A number is, if it is beyond their range by more than `margin` times the range; a category
        is, if it is new. Missing values are not, nor values of a feature without known ones.
        """
        found = _beyond(rows, self._low[0], self._high[0], margin)
        for j in self._categorical:
            found[:, j] = ~np.isin(rows[:, j], self._matrix[:, j]) & ~np.isnan(rows[:, j])
        return found

    def beyond_others(self, indices: Indices, margin: float = 0.0) -> NDArray[np.bool_]:
        """(row, feature): the same for known rows, each beside all others."""
        rows = self._matrix[indices]
        low = np.where(rows == self._low[0], self._low[-1], self._low[0])
        high = np.where(rows == self._high[0], self._high[-1], self._high[0])
        found = _beyond(rows, low, high, margin)
        for j in self._categorical:
            codes, counts = np.unique(self._matrix[:, j], return_counts=True)
            found[:, j] = np.isin(rows[:, j], codes[counts == 1])
        return found

    def newly_missing(self, rows: Floats) -> NDArray[np.bool_]:
        """(row, feature): whether a value is missing where all known rows have one."""
        found: NDArray[np.bool_] = np.isnan(rows) & (self._n_missing == 0)
        return found

    def lacks_all(self, rows: Floats) -> NDArray[np.bool_]:
        """(row,): whether a row lacks all features that every known row has, if there are any."""
        always = self._n_missing == 0
        if not always.any():
            return np.zeros(len(rows), dtype=bool)
        found: NDArray[np.bool_] = np.all(np.isnan(rows[:, always]), axis=1)
        return found

    def newly_missing_beside_others(self, indices: Indices) -> NDArray[np.bool_]:
        """(row, feature): the same for known rows, each beside all others."""
        found: NDArray[np.bool_] = np.isnan(self._matrix[indices]) & (self._n_missing == 1)
        return found


def _beyond(rows: Floats, low: Floats, high: Floats, margin: float) -> NDArray[np.bool_]:
    """(row, feature): whether a value is beyond a range; a feature without a range has none."""
    with np.errstate(invalid="ignore"):
        width = margin * (high - low) if margin else 0.0
        found: NDArray[np.bool_] = ((rows < low - width) | (rows > high + width)) & (low <= high)
    return found


def is_unlikely(n_found: int, n_rows: int, share: float) -> bool:
    """Whether so many rows are too many where this share is expected.

    >>> is_unlikely(3, 100, 0.04), is_unlikely(15, 100, 0.04)
    (False, True)
    """
    expected = n_rows * share
    return bool(n_found > expected + _N_STD * np.sqrt(expected * (1 - share)))
