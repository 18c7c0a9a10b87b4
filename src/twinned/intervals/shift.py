"""Rows outside of the training rows, for which prediction intervals do not hold.

Prediction intervals assume that new rows and calibration rows are exchangeable. Then a new row is
outside about as often as a known row is outside of all others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from twinned._neighbors import distance_matrix
from twinned._table import Floats

_BLOCK = 4_000_000  # distances at once
_N_STD = 3.0  # by which the number of rows outside exceeds the expected one


def outside_range(rows: Floats, known: Floats) -> NDArray[np.bool_]:
    """(row, feature): whether a value is beyond those of the known rows.

    Missing values are not, and neither is any value of a feature without known values.

    >>> outside_range(np.array([[1.0, np.nan], [3.0, 2.5]]), np.array([[0.0, 1.0], [2.0, 2.0]]))
    array([[False, False],
           [ True,  True]])
    """
    missing = np.isnan(known)
    low = np.where(missing, np.inf, known).min(axis=0)
    high = np.where(missing, -np.inf, known).max(axis=0)
    return ((rows < low) | (rows > high)) & ~missing.all(axis=0)


def far_from_known(
    rows: Floats, known: Floats, transform: Callable[[Floats], Floats] | None = None
) -> NDArray[np.bool_]:
    """(row,): whether the nearest known row is farther than that of every known row.

    Distances are Euclidean after `transform`; None standardizes the features by the known rows.

    >>> far_from_known(np.array([[1.5], [3.5]]), np.array([[0.0], [1.0], [2.0]]))
    array([False,  True])
    """
    if len(known) < 2 or known.shape[1] == 0:
        return np.zeros(len(rows), dtype=bool)
    transform = standardization(known) if transform is None else transform
    rows, known = transform(rows), transform(known)
    far: NDArray[np.bool_] = _nearest(rows, known) > _nearest(known, known, itself=True).max()
    return far


def rows_outside(
    rows: Floats,
    known: Floats,
    columns: Sequence[int],
    transform: Callable[[Floats], Floats] | None = None,
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(row,) whether a row is outside: in a feature, or far from all known rows in `columns`.

    Also (row, feature) whether it is beyond the range of the known rows.
    """
    beyond = outside_range(rows, known)
    far = far_from_known(rows[:, columns], known[:, columns], transform)
    return far | beyond.any(axis=1), beyond


def expected_share(known: Floats) -> float:
    """The share of exchangeable rows that are outside: that of known rows outside of the others.

    These are the rows that alone have the lowest or highest value of a feature, and one that is
    farthest from the others. It is at most (2p + 1) / (n + 1) for n rows with p features.

    >>> expected_share(np.array([[1.0], [2.0], [3.0], [3.0]]))  # two of five
    0.4
    """
    alone = np.zeros(len(known), dtype=bool)
    for sign in (1.0, -1.0):
        highest = sign * known == np.where(np.isnan(known), -np.inf, sign * known).max(axis=0)
        alone |= highest[:, highest.sum(axis=0) == 1].any(axis=1)
    return float((alone.sum() + 1) / (len(known) + 1))


def is_unlikely(n_outside: int, n_rows: int, share: float) -> bool:
    """Whether so many rows outside are too many where this share is expected.

    >>> is_unlikely(3, 100, 0.04), is_unlikely(15, 100, 0.04)
    (False, True)
    """
    expected = n_rows * share
    return bool(n_outside > expected + _N_STD * np.sqrt(expected * (1 - share)))


def standardization(known: Floats) -> Callable[[Floats], Floats]:
    """Features minus their mean, by their standard deviation; constant features are dropped."""
    missing = np.isnan(known)
    count = np.maximum(1, (~missing).sum(axis=0))
    mean = np.where(missing, 0.0, known).sum(axis=0) / count
    std = np.sqrt((np.where(missing, 0.0, known - mean) ** 2).sum(axis=0) / count)
    return lambda rows: (rows - mean)[:, std > 0] / std[std > 0]


def _nearest(rows: Floats, known: Floats, *, itself: bool = False) -> Floats:
    """(row,): distance to the nearest known row; 0 where there is none with the same features.

    With `itself`, the rows are the known ones, and the nearest other one counts.
    """
    nearest = np.empty(len(rows))
    step = max(1, _BLOCK // len(known))
    for start in range(0, len(rows), step):
        block = slice(start, min(start + step, len(rows)))
        distances = distance_matrix(rows[block], known)
        if itself:
            index = np.arange(block.stop - start)
            distances[index, start + index] = np.nan
        distances = np.where(np.isnan(distances), np.inf, distances)
        nearest[block] = distances.min(axis=1)
    return np.where(np.isfinite(nearest), nearest, 0.0)
