"""Training rows of `AutoTwinRegressor`: equal rows merged, and folds that all members share."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import check_cv

from twinned._neighbors import Indices
from twinned._table import Floats
from twinned._validation import check_integer
from twinned.estimators.auto_members import TrainingRows
from twinned.pairing.splits import row_folds

DEFAULT_FOLDS = 5
MIN_ROWS = 4  # so that at least two rows remain in each fold


class SharedRows(NamedTuple):
    """Merged training rows with their folds, and how they belong to the table."""

    training: TrainingRows
    merged_into: Indices  # (row of positive weight,): the row of `training` that each became
    groups: Indices | None  # (row of `training`,): codes of groups that no fold splits


def share_rows(
    matrix: Floats, y: Floats, weight: Floats | None, groups: Indices | None, cv: Any, seed: int
) -> SharedRows:
    """Merge equal rows into one with the sum of their weights, and draw folds.

    All arguments but `cv` belong to the rows of positive weight. A repeated row is so the same as a
    weight. Rows with equal features are in the same fold, unless there are groups.
    """
    keys = [matrix, y] if groups is None else [matrix, y, groups]
    _, first, merged_into = np.unique(
        np.column_stack(keys), axis=0, return_index=True, return_inverse=True
    )
    merged_into = merged_into.ravel()
    if len(first) < MIN_ROWS:
        raise ValueError(
            f"X and y have {len(first)} different rows (n_samples = {len(y)}); at least {MIN_ROWS} "
            "are needed."
        )
    counted = np.ones(len(y)) if weight is None else weight
    total: Floats = np.bincount(merged_into, weights=counted) * 1.0
    total = total / total.mean()
    own_groups = _equal_features(matrix[first]) if groups is None else groups[first]
    fold = _fold_of_row(cv, matrix, y, groups, merged_into, own_groups, seed)
    training = TrainingRows(
        matrix=matrix[first],
        y=y[first],
        weight=None if np.allclose(total, 1.0, rtol=1e-12) else total,
        fold=fold,
    )
    return SharedRows(training, merged_into, own_groups)


def _fold_of_row(
    cv: Any,
    matrix: Floats,
    y: Floats,
    groups: Indices | None,
    merged_into: Indices,
    own_groups: Indices | None,
    seed: int,
) -> Indices:
    """(merged row,): the fold that holds out each row, numbered from 0."""
    n_merged = int(merged_into.max()) + 1
    fold = np.full(n_merged, -1, dtype=np.intp)
    if cv is None or isinstance(cv, Integral):
        n_folds = min(DEFAULT_FOLDS, n_merged) if cv is None else check_integer("cv", cv, 2)
        for number, (_, held_out) in enumerate(row_folds(n_merged, n_folds, seed, own_groups)):
            fold[held_out] = number
        return fold
    parts = [rows for _, rows in check_cv(cv).split(matrix, y, groups)]
    if len(parts) < 2 or not np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y))):
        raise ValueError(
            f"cv={cv!r} must hold out each of the {len(y)} rows of positive weight once, in at "
            "least two folds."
        )
    for number, rows in enumerate(parts):
        fold[merged_into[rows]] = number
    return np.unique(fold, return_inverse=True)[1]


def _equal_features(matrix: Floats) -> Indices | None:
    """(row,): codes of rows with equal features; None where few or too many rows share them."""
    _, codes = np.unique(matrix, axis=0, return_inverse=True)
    counts = np.bincount(codes.ravel())
    too_few = len(counts) < 4 * DEFAULT_FOLDS
    if len(counts) == len(matrix) or too_few or counts.max() > len(matrix) / (2 * DEFAULT_FOLDS):
        return None
    return codes.ravel()
