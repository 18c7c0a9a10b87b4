"""Row-aware validation: points are split before they are paired.

A pair and its mirror image, or two pairs that share a point, say nearly the same. A search that
cross-validates over pairs meets in its test folds what it has learned, and is led to trees that
memorise. Here a fold leaves out points: it learns from pairs of the points that stay, and is tested
on pairs of a point that is left out with one that stays, which is what a prediction is made of.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold, check_cv

from twinned._table import Floats

Indices = NDArray[np.intp]
FEWEST_LEARNED = 10  # rows of a fold of groups


def pair_folds(
    cv: Any, first: Indices, second: Indices, values: Floats
) -> list[tuple[Indices, Indices]]:
    """Folds of pairs that are folds of points.

    Parameters
    ----------
    cv : int, splitter or None
        As everywhere in scikit-learn; it splits the points.
    first, second : arrays of shape (n_pairs,)
        Which points each pair is made of.
    values : array of shape (n_points, …)
        The points' known values.

    Returns
    -------
    list of (train, test)
        Rows of the pairs, ready to be the `cv` of a search.

    Examples
    --------
    >>> first, second = np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)
    >>> train, test = pair_folds(2, first, second, np.zeros(4))[0]
    >>> [(int(first[row]), int(second[row])) for row in train]
    [(2, 2), (2, 3), (3, 2), (3, 3)]
    >>> len(test)  # points 0 and 1 with points 2 and 3, in both orders
    8
    """
    n_points = len(values)
    folds = []
    for stays, leaves in check_cv(cv).split(np.zeros((n_points, 1)), values):
        stay, leave = np.zeros((2, n_points), dtype=bool)
        stay[stays], leave[leaves] = True, True
        train = np.flatnonzero(stay[first] & stay[second])
        test = np.flatnonzero((leave[first] & stay[second]) | (stay[first] & leave[second]))
        if not len(train) or not len(test):
            raise ValueError(
                f"cv={cv!r} leaves a fold of {n_points} points with {len(train)} pairs to learn "
                f"from and {len(test)} to test; use more pairs or fewer folds."
            )
        folds.append((train, test))
    return folds


def held_out_rows(n_points: int, share: float, rng: Any) -> NDArray[np.bool_]:
    """(n_points,) True for a random share of the points, at least one and never all."""
    count = min(max(1, round(share * n_points)), n_points - 1)
    held_out = np.zeros(n_points, dtype=bool)
    held_out[rng.permutation(n_points)[:count]] = True
    return held_out


def row_folds(n: int, n_folds: int, random_state: Any, groups: Any = None) -> list[tuple[Any, Any]]:
    """Rows (learned, left out) of each fold, in random order; `groups` (n,) are kept together.

    >>> [left_out.tolist() for _, left_out in row_folds(4, 5, 0, np.array([0, 0, 1, 1]))]
    [[2, 3], [0, 1]]
    """
    rows = np.arange(n)
    if groups is None:
        return list(KFold(n_folds, shuffle=True, random_state=random_state).split(rows))
    fewer = min(n_folds, len(np.unique(groups)))
    splitter = GroupKFold(fewer, shuffle=True, random_state=random_state)
    folds = list(splitter.split(rows, groups=groups))
    least = min(len(learned) for learned, _ in folds)
    if least < min(FEWEST_LEARNED, n // 2):
        raise ValueError(
            f"The largest group has {np.bincount(groups).max()} of the {n} rows; without it, "
            f"{least} are left to learn from, and a check needs {FEWEST_LEARNED}."
        )
    return folds


def encode_groups(groups: Any, n: int) -> Any:
    """(n,) 0, 1, … for any names of groups, of which there must be two at least."""
    names = np.asarray(groups, dtype=object)
    if names.shape != (n,):
        raise ValueError(f"groups must name one group for each of the {n} rows.")
    nameless = pd.isna(names)
    if nameless.any():
        raise ValueError(f"Row {int(nameless.argmax())} has no group.")
    known, numbers = np.unique(names.astype(str), return_inverse=True)
    if len(known) < 2:
        raise ValueError(f"All rows are of one group, {known[0]}: leaving it out leaves nothing.")
    return numbers
