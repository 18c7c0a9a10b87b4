"""Folds of rows, groups of rows, and rows with equal features."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold, KFold, check_cv

from twinned.rows.schema import Floats, Indices

MIN_TRAINING_ROWS = 10  # of a fold of groups

Folds = list[tuple[Indices, Indices]]  # (training rows, held-out rows)


def held_out_rows(n_rows: int, fraction: float, rng: np.random.RandomState) -> NDArray[np.bool_]:
    """(n_rows,) mask of a random fraction of the rows, at least one and never all."""
    count = min(max(1, round(fraction * n_rows)), n_rows - 1)
    held_out = np.zeros(n_rows, dtype=bool)
    held_out[rng.permutation(n_rows)[:count]] = True
    return held_out


def row_folds(
    n: int,
    n_folds: int,
    random_state: int | np.random.RandomState | None,
    groups: Indices | None = None,
    min_rows: int = MIN_TRAINING_ROWS,
) -> Folds:
    """Random folds of rows, as (training, held-out) indices; `groups` (n,) are not split.

    Groups that leave fewer than `min_rows` training rows are refused.

    >>> [held_out.tolist() for _, held_out in row_folds(4, 5, 0, np.array([0, 0, 1, 1]))]
    [[2, 3], [0, 1]]
    """
    rows = np.arange(n)
    if groups is None:
        return list(KFold(n_folds, shuffle=True, random_state=random_state).split(rows))
    n_splits = min(n_folds, len(np.unique(groups)))
    splitter = GroupKFold(n_splits, shuffle=True, random_state=random_state)
    folds = list(splitter.split(rows, groups=groups))
    smallest = min(len(training) for training, _ in folds)
    if smallest < min(min_rows, n // 2):
        raise ValueError(
            f"The largest group has {np.bincount(groups).max()} of the {n} rows; a fold without it "
            f"has {smallest} training rows, and at least {min_rows} are needed."
        )
    return folds


def encode_groups(groups: ArrayLike, n: int) -> Indices:
    """(n,) integer codes of at least two groups, for any labels."""
    labels = np.asarray(groups, dtype=object)
    if labels.shape != (n,):
        raise ValueError(f"groups must have one label for each of the {n} rows.")
    missing = pd.isna(labels)
    if missing.any():
        raise ValueError(f"Row {int(missing.argmax())} has no group.")
    distinct, codes = np.unique(labels.astype(str), return_inverse=True)
    if len(distinct) < 2:
        raise ValueError(f"All rows are in one group, {distinct[0]}; at least two are needed.")
    return codes


def distinct_rows(matrix: Floats) -> tuple[Indices, Indices]:
    """Index of the first of equal rows, and (row,) the number of its distinct row.

    Missing values are equal to each other.

    >>> distinct_rows(np.array([[1.0, np.nan], [0.0, 1.0], [1.0, np.nan]]))
    (array([1, 0]), array([1, 0, 1]))
    """
    missing = np.isnan(matrix)
    if missing.any():
        matrix = np.column_stack([np.where(missing, 0.0, matrix), missing])
    _, first, inverse = np.unique(matrix, axis=0, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def equal_features(matrix: Floats, n_folds: int = 5) -> Indices | None:
    """(row,): codes of rows with equal features; None where no folds can separate them.

    Rows that share their features with more than half a fold have codes of their own.
    """
    _, codes = distinct_rows(matrix)
    counts = np.bincount(codes)
    alone = counts[codes] > len(matrix) / (2 * n_folds)
    codes = np.where(alone, len(counts) + np.arange(len(matrix)), codes)
    codes = np.unique(codes, return_inverse=True)[1]
    n_codes = int(codes.max()) + 1
    return None if n_codes == len(matrix) or n_codes < 2 * n_folds else codes


def given_folds(
    cv: object, X: Floats, y: Floats, groups: ArrayLike | None = None
) -> Indices | None:
    """The fold of each row (n,) by a splitter or an iterable of splits; None for an integer."""
    if isinstance(cv, Integral):
        return None
    parts = [held_out for _, held_out in check_cv(cv).split(X, y, groups)]
    if len(parts) < 2 or not np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(X))):
        raise ValueError(f"cv={cv!r} must hold out each row once, in at least two folds.")
    return _fold_numbers(parts)


def draw_folds(n: int, n_folds: int, seed: Any, groups: Indices | None) -> Indices:
    """The fold of each row (n,), of those of `row_folds`."""
    return _fold_numbers([held_out for _, held_out in row_folds(n, n_folds, seed, groups)])


def _fold_numbers(parts: list[Indices]) -> Indices:
    """(row,): the number of the part that has each row."""
    numbers = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return numbers[np.argsort(np.concatenate(parts))]
