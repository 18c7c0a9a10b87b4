"""Training rows of `AutoTwinRegressor`: equal rows merged, and folds that all members share."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import check_cv

from twinned.estimators.blending.censored import CensoredRows, censored_folds
from twinned.estimators.blending.members import TrainingRows
from twinned.estimators.training_set import TargetArguments
from twinned.exceptions import UnusedFeatureWarning
from twinned.models.censoring import TargetBounds, validate_bounds
from twinned.rows.folds import Folds, distinct_rows, encode_groups, equal_features, row_folds
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, TableSchema
from twinned.rows.validation import (
    check_integer,
    check_sample_weight,
    validate_target,
    validate_training_table,
)

# Models of 5 folds have a fifth fewer rows than the final ones. Of a small table they are clearly
# worse, by a factor that differs between members: then weights and intervals are biased.
_FEW_ROWS = {"fast": 500, "balanced": 500, "thorough": 1000}
_FOLDS_OF_FEW_ROWS, _FOLDS = 10, 5
MIN_ROWS = 4  # so that at least two rows remain in each fold


class SharedRows(NamedTuple):
    """Merged training rows with their folds, and how they belong to the table."""

    training: TrainingRows
    merged_into: Indices  # (row of positive weight,): the row of `training` that each became
    groups: Indices | None  # (row of `training`,): codes of groups that no fold splits

    @property
    def folds(self) -> Folds:
        """Training rows and held-out rows of each fold, as rows of positive weight."""
        fold = self.training.fold[self.merged_into]
        numbers = range(self.training.n_folds)
        return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in numbers]


def share_rows(
    matrix: Floats,
    y: Floats,
    weight: Floats | None = None,
    groups: Indices | None = None,
    cv: int | Indices | None = None,
    seed: int = 0,
    effort: str = "balanced",
) -> SharedRows:
    """Merge equal rows into one with the sum of their weights, and draw folds.

    A repeated row is so the same as a weight. `cv` is a number of random folds, or the fold of each
    row (see `given_folds`); None depends on the number of rows and the `effort`. Rows with equal
    features are in the same random fold, unless there are groups; given folds are not changed, and
    equal rows of different folds not merged.
    """
    given = cv if isinstance(cv, np.ndarray) else None
    keys = [key for key in (matrix, y, groups, given) if key is not None]
    first, merged_into = distinct_rows(np.column_stack(keys))
    if len(first) < MIN_ROWS:
        raise ValueError(
            f"X and y have {len(first)} different rows (n_samples = {len(y)}); at least {MIN_ROWS} "
            "are needed."
        )
    counted = np.ones(len(y)) if weight is None else weight
    total: Floats = np.bincount(merged_into, weights=counted).astype(np.float64)
    total = total / total.mean()
    own_groups = equal_features(matrix[first]) if groups is None else groups[first]
    if given is None:
        n_folds = default_folds(len(first), effort) if cv is None else check_integer("cv", cv, 2)
        fold = np.empty(len(first), dtype=np.intp)
        for number, (_, held_out) in enumerate(row_folds(len(first), n_folds, seed, own_groups)):
            fold[held_out] = number
    else:
        fold = np.unique(given[first], return_inverse=True)[1]
        if fold.max() == 0:
            raise ValueError("cv has only one fold with rows of positive weight; use two or more.")
    training = TrainingRows(
        matrix=matrix[first],
        y=y[first],
        weight=None if np.allclose(total, 1.0, rtol=1e-12) else total,
        fold=fold,
    )
    return SharedRows(training, merged_into, own_groups)


class BlendRows(NamedTuple):
    """The validated training rows of a blend."""

    matrix: Floats  # (row, feature): known rows of positive weight
    y: Floats  # (row,)
    weight: Floats | None  # (row,), of mean 1
    schema: TableSchema
    table_rows: Indices  # (row,) indices in the table given
    shared: SharedRows


def validate_rows(
    estimator: Any, X: Any, target: TargetArguments, sample_weight: Any, groups: Any, seed: int
) -> BlendRows:
    """Validate the arguments of the fit of a blend, and draw the folds."""
    matrix, schema = validate_training_table(
        estimator,
        X,
        estimator.categorical_features,
        allow_nan=True,
        pair_dtype=estimator._pair_dtype,
    )
    weight = check_sample_weight(sample_weight, len(matrix))
    if target.lower is None and target.upper is None:
        y = validate_target(estimator, target.y, len(matrix), multi_output=False)
        bounds = TargetBounds(y, y)
    else:
        bounds = validate_bounds(estimator, *target[:3], len(matrix), weight)
    used = np.ones(len(matrix), dtype=bool) if weight is None else weight > 0
    rows = np.flatnonzero(used & ~bounds.censored)
    unit = 1.0 if weight is None else weight[rows].mean()
    weight = None if weight is None else weight / unit
    own_weight = None if weight is None else weight[rows]
    codes = None if groups is None else encode_groups(groups, len(matrix))
    cv = given_folds(estimator.cv, matrix, bounds.limits(), groups)
    shared = share_rows(
        matrix[rows],
        bounds.lower[rows],
        own_weight,
        None if codes is None else codes[rows],
        cv[rows] if isinstance(cv, np.ndarray) else cv,
        seed,
        estimator.effort,
    )
    censored = np.flatnonzero(used & bounds.censored)
    if len(censored):
        training = shared.training
        given = cv if isinstance(cv, np.ndarray) else codes
        fold_groups = None
        if given is not None:
            fold_groups = given[censored], given[rows], training.fold[shared.merged_into]
        # the weights of known rows were divided by their mean after merging
        own = np.ones(len(censored)) if weight is None else weight[censored]
        own = own * (len(training.y) / len(rows))
        hidden = CensoredRows(
            matrix[censored],
            bounds.take(censored),
            None if training.weight is None and np.allclose(own, 1.0) else own,
            censored_folds(len(censored), training.n_folds, seed, fold_groups),
        )
        shared = shared._replace(training=replace(training, censored=hidden))
    return BlendRows(matrix[rows], bounds.lower[rows], own_weight, schema, rows, shared)


def default_folds(n_rows: int, effort: str) -> int:
    """Number of folds of a table: more of a small one."""
    return min(_FOLDS_OF_FEW_ROWS if n_rows < _FEW_ROWS[effort] else _FOLDS, n_rows)


def warn_of_unknown_features(rows: TrainingRows, names: list[Any], stacklevel: int) -> None:
    """Warn of features with fewer than two known values outside some fold."""
    known = ~np.isnan(rows.matrix)
    counts = [known[rows.fold != fold].sum(axis=0) for fold in range(rows.n_folds)]
    unknown = np.flatnonzero(np.min(counts, axis=0) < 2)
    if len(unknown):
        warnings.warn(
            "Features with fewer than two known values in the training rows of a fold are not "
            f"used there by twins, and imputed by others: {[names[j] for j in unknown]}.",
            UnusedFeatureWarning,
            stacklevel=stacklevel + 1,
        )


def given_folds(cv: Any, matrix: Floats, y: Floats, groups: Any) -> int | Indices | None:
    """The fold of each row (n,) by a splitter or an iterable of splits; an integer as it is."""
    if cv is None or isinstance(cv, Integral):
        return None if cv is None else int(cv)
    parts = [rows for _, rows in check_cv(cv).split(matrix, y, groups)]
    if len(parts) < 2 or not np.array_equal(np.sort(np.concatenate(parts)), np.arange(len(y))):
        raise ValueError(
            f"cv={cv!r} must hold out each of the {len(y)} rows once, in at least two folds."
        )
    fold = np.empty(len(y), dtype=np.intp)
    for number, rows in enumerate(parts):
        fold[rows] = number
    return fold
