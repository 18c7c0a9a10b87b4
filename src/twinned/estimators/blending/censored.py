"""Censored rows of `AutoTwinRegressor`: their folds and imputed values, and fits that use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import has_fit_parameter

from twinned.estimators.twin import TwinRegressor
from twinned.models.censoring import TargetBounds
from twinned.models.imputation import Imputation, impute_target
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, TableSchema


@dataclass(frozen=True, eq=False)
class CensoredRows:
    """Encoded rows whose value is not known."""

    matrix: Floats  # (row, feature)
    bounds: TargetBounds
    weight: Floats | None  # (row,), where the mean of the known rows is 1
    fold: Indices  # (row,): the fold that holds out each row

    def take(self, rows: Any) -> CensoredRows:
        weight = None if self.weight is None else self.weight[rows]
        return CensoredRows(self.matrix[rows], self.bounds.take(rows), weight, self.fold[rows])

    def comparable(self, predicted: Floats) -> Floats:
        """(row,): predictions with the limit for those within bounds.

        Their errors with respect to the limits are so the distances to the bounds.
        """
        return self.bounds.limits() + self.bounds.errors(predicted)


@dataclass(frozen=True, eq=False)
class AllRows:
    """Known rows and, after them, censored rows."""

    matrix: Floats  # (row, feature)
    bounds: TargetBounds
    weight: Floats | None
    fold: Indices

    @classmethod
    def join(
        cls, matrix: Floats, y: Floats, weight: Floats | None, fold: Indices, censored: CensoredRows
    ) -> AllRows:
        bounds = TargetBounds(
            np.append(y, censored.bounds.lower), np.append(y, censored.bounds.upper)
        )
        joined_weight = None
        if weight is not None or censored.weight is not None:
            both = [(weight, len(y)), (censored.weight, len(censored.fold))]
            joined_weight = np.concatenate([np.ones(n) if w is None else w for w, n in both])
        return cls(
            np.concatenate([matrix, censored.matrix]),
            bounds,
            joined_weight,
            np.append(fold, censored.fold),
        )


def supports_bounds(estimator: Any) -> bool:
    """Whether an estimator is a network, which is trained with the bounds themselves."""
    return hasattr(estimator, "_fit_with_folds") and has_fit_parameter(estimator, "y_lower")


def fit_to_all_rows(
    estimator: Any, features: Floats, rows: AllRows, imputed: Floats | None
) -> None:
    """Fit a member: networks to bounds, others to (row,) imputed values.

    The anchors of a twin are known rows.
    """
    if supports_bounds(estimator):
        y = np.where(rows.bounds.censored, np.nan, rows.bounds.lower)
        lower, upper = rows.bounds
        estimator._fit_with_folds(features, y, rows.weight, rows.fold, y_lower=lower, y_upper=upper)
        return
    assert imputed is not None, "only networks are fitted to bounds"
    if isinstance(estimator, TwinRegressor):
        estimator._fit_imputed(features, imputed, rows.weight, rows.bounds.censored)
    elif rows.weight is not None and has_fit_parameter(estimator, "sample_weight"):
        estimator.fit(features, imputed, sample_weight=rows.weight)
    else:
        estimator.fit(features, imputed)


def impute_folds(schema: TableSchema, rows_of_fold: dict[int, AllRows]) -> dict[int, Floats]:
    """(row,) known and imputed values of the training rows of each fold, all rows first.

    The values of a fold do not depend on its known rows; only the scale of the process and the
    start of its search are those of all rows.
    """
    values: dict[int, Floats] = {}
    similar: Imputation | None = None
    for fold, rows in rows_of_fold.items():
        features = schema.to_rows(rows.matrix).features
        imputed = impute_target(features, rows.bounds, rows.weight, similar)
        values[fold], similar = imputed.y, similar or imputed
    return values


def censored_folds(
    n_rows: int,
    n_folds: int,
    seed: int,
    groups: tuple[Indices, Indices, Indices] | None = None,
) -> Indices:
    """(row,): random folds of censored rows; those of a group with known rows are in its fold.

    `groups` are those of the censored rows (row,), and those of known rows with their folds.

    >>> groups = np.array([8, 7, 9, 9]), np.array([7, 8]), np.array([1, 0])
    >>> censored_folds(4, 2, 0, groups)[[0, 1]]
    array([0, 1])
    """
    fold = np.random.RandomState(seed).permutation(n_rows) % n_folds
    if groups is None:
        return fold
    own, *known = (part.tolist() for part in groups)
    of_group = dict(zip(*known, strict=True))
    for row, code in enumerate(own):
        fold[row] = of_group.setdefault(code, int(fold[row]))
    return fold
