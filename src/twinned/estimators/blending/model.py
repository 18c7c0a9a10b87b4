"""Difference model of a blend: the weighted mean of the differences of its members.

A member f that is no twin has the differences f(a) − f(b). Towards an anchor b, f(b) is the
out-of-fold prediction of b, by a model that was not fitted to it.

Features of members are made from one encoded table, of the kind that a member can take. `"encoded"`
are those of the table with codes of categories and missing values as NaN. `"complete"` has no
missing values: numeric ones are replaced by the median and marked by indicator columns, and missing
categories are a category of their own. `"dense"` has one indicator for each category instead of
codes, too, and all columns are standardized; `"unscaled"` is the same without the latter.
`"counts"` is `"dense"` with counts first, of the fragments of molecules, which stay as they are; of
the other columns it has the inverse hyperbolic sine, as distances of descriptors with long tails
are else those of a few molecules. A member may have some columns of the table only.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from twinned.estimators.base import BaseTwin
from twinned.exceptions import TableWarning
from twinned.models.protocol import AnchoredModel, DifferenceModel
from twinned.pairing.differences import difference
from twinned.rows.schema import Floats, Indices, Rows, TableSchema, known_medians

_PAIRS_PER_BLOCK = 100_000
_QUERIES_PER_BLOCK = 10_000


@dataclass(frozen=True, eq=False)
class FeaturePreparation:
    """Imputation, indicators and scaling, fitted to the training rows of a member."""

    kind: str
    n_features: int
    categorical: list[int]  # columns of codes in the encoded table
    n_categories: list[int]  # of each of them; a missing value has this code, a new one the next
    empty: list[int]  # numeric features without any known value, or that are not used
    medians: Floats  # (feature,): of the numeric features
    marked: list[int]  # numeric features with an indicator of missing values
    center: Floats  # (column,) of the dense features
    spread: Floats
    columns: list[int] | None = None  # of the table that the member has; None is all
    n_counts: int = 0  # leading columns that are counts

    @classmethod
    def fit(
        cls,
        kind: str,
        schema: TableSchema,
        rows: Floats,
        used: Indices | None = None,
        n_counts: int = 0,
    ) -> Self:
        """Fit to encoded training rows (n, n_features); only `used` features count, if given.

        The first `n_counts` of the kind `"counts"` are counts.
        """
        missing = np.isnan(rows)
        has_values: NDArray[np.bool_] = np.asarray(~missing.all(axis=0))
        if used is not None:
            has_values &= np.isin(np.arange(rows.shape[1]), used)
        is_dense = kind not in ("encoded", "complete")
        prepared = cls(
            kind="dense" if is_dense else kind,
            n_features=rows.shape[1],
            categorical=schema.categorical,
            n_categories=[schema.n_indicators[j] for j in schema.categorical],
            empty=[j for j in schema.numeric if not has_values[j]],
            medians=known_medians(rows),
            marked=[j for j in schema.numeric if missing[:, j].any() and has_values[j]],
            center=np.zeros(int(is_dense)),
            spread=np.ones(int(is_dense)),
        )
        if not is_dense:
            return prepared
        dense = prepared.transform(rows)
        center, spread = dense.mean(axis=0), dense.std(axis=0)
        constant = spread <= 1e-12 * np.abs(center)
        if kind == "unscaled":
            center, constant = np.zeros_like(center), np.ones_like(constant)
        center[:n_counts], constant[:n_counts] = 0.0, True
        spread = np.where(constant, 1.0, spread)
        return replace(prepared, center=center, spread=spread, n_counts=n_counts)

    @property
    def n_columns(self) -> int:
        """The number of columns after `transform`."""
        marked = len(self.marked) if self.kind == "complete" else 0
        return len(self.center) if self.kind == "dense" else self.n_features + marked

    def transform(self, matrix: Floats) -> Floats:
        """(n, n_table_features) encoded rows → (n, column) features of the member."""
        if self.columns is not None:
            matrix = matrix[:, self.columns]
        missing, filled = np.isnan(matrix), matrix
        if self.empty:  # zeros in the features that had no known value or are not used
            filled = matrix.copy()
            filled[:, self.empty] = 0.0
        if self.kind == "encoded":
            return filled
        fill = self.medians.copy()
        fill[self.categorical] = self.n_categories
        filled = np.where(missing, fill, filled)
        categories = list(zip(self.categorical, self.n_categories, strict=True))
        for j, n in categories:
            filled[~missing[:, j] & (filled[:, j] >= n), j] = n + 1
        complete = np.column_stack([filled, missing[:, self.marked].astype(float)])
        if self.kind == "complete":
            return complete
        indicators = [(complete[:, [j]] == np.arange(n + 1)).astype(float) for j, n in categories]
        dense = np.column_stack([np.delete(complete, self.categorical, axis=1), *indicators])
        dense = (dense - self.center) / self.spread
        if self.n_counts:
            dense[:, self.n_counts :] = np.arcsinh(dense[:, self.n_counts :])
        return dense


@dataclass(frozen=True, eq=False)
class FittedMember:
    """A fitted estimator and the preparation of its features."""

    label: str
    estimator: BaseEstimator
    preparation: FeaturePreparation

    @property
    def is_twin(self) -> bool:
        return isinstance(self.estimator, BaseTwin)

    @property
    def difference_model(self) -> DifferenceModel | None:
        """The model of antisymmetric differences of a twin that uses all anchors equally."""
        if not self.is_twin or self.estimator.is_blend or not self.estimator.symmetric:
            return None
        fitted = self.estimator.fitted_
        return fitted.model if fitted.uses_all_anchors_equally else None

    def predict(self, matrix: Floats) -> Floats:
        """(row,): predictions of encoded rows."""
        predicted = self.estimator.predict(self.preparation.transform(matrix))
        return np.asarray(predicted, dtype=np.float64).reshape(len(matrix))

    def differences(self, first: Floats, second: Floats) -> Floats:
        """(row,): F(first, second) of encoded rows (row, feature)."""
        if self.difference_model is None:
            return difference(self.predict(first), self.predict(second))
        sides = (self.preparation.transform(matrix) for matrix in (first, second))
        return self.estimator.predict_difference(*sides)


@dataclass(frozen=True, eq=False)
class BlendModel:
    """Members with their blend weights, as a difference model.

    `out_of_fold` (anchor, member) are out-of-fold predictions of the anchors. `spread_weights`
    (member,) are those of the spread of the members, the standard deviation of the model.
    """

    members: list[FittedMember]
    weights: Floats  # (member,), sum to one
    spread_weights: Floats
    out_of_fold: Floats
    schema: TableSchema
    symmetric = True

    def with_anchors(self, rows: Rows, n_before: int) -> Self:
        """The model with predictions of further anchors, to which no member was fitted."""
        before, predicted = self.out_of_fold[:n_before], self.out_of_fold[:0]
        if len(rows):
            predicted = self.predict_members(self.schema.to_matrix(rows))
        return replace(self, out_of_fold=np.concatenate([before, predicted]))

    @property
    def used(self) -> Indices:
        """Indices of the members that have weight."""
        return np.flatnonzero(self.weights)

    @property
    def member_weights(self) -> Floats:
        """(used member,)."""
        return self.weights[self.used]

    @property
    def bytes_per_pair(self) -> int:
        """Memory that one pair needs while its difference is predicted."""
        models = [member.difference_model for member in self.members]
        largest = max((model.bytes_per_pair for model in models if model is not None), default=0)
        return int(largest + 8 * (4 * self.schema.n_features + len(self.members)))

    @property
    def pairs_per_block(self) -> int:
        """The number of pairs that are predicted at once."""
        models = [member.difference_model for member in self.members]
        sizes = [model.pairs_per_block for model in models if model is not None]
        return min([_PAIRS_PER_BLOCK, *sizes])

    def differences(self, first: Rows, second: Rows) -> Floats:
        """(used member, ..., 1): F(first, second), for sides whose leading axes broadcast."""
        sides = np.broadcast_arrays(self.schema.to_matrix(first), self.schema.to_matrix(second))
        a, b = (side.reshape(-1, side.shape[-1]) for side in sides)
        with warnings.catch_warnings(action="ignore", category=TableWarning):
            member_differences = [self.members[i].differences(a, b) for i in self.used]
        return np.stack(member_differences).reshape(-1, *sides[0].shape[:-1], 1)

    def at_anchors(self, anchors: Rows, anchors_y: Floats, n_pairs: int) -> AnchoredModel:
        """The model bound to its anchors."""
        return AnchoredBlend(self)

    def predict_members(self, matrix: Floats, members: Indices | None = None) -> Floats:
        """(query, member): predictions of encoded queries by all or these members."""
        chosen = range(len(self.members)) if members is None else members
        with warnings.catch_warnings(action="ignore", category=TableWarning):
            return np.column_stack([self.members[i].predict(matrix) for i in chosen])


@dataclass(frozen=True, eq=False)
class AnchoredBlend(AnchoredModel):
    """A blend bound to its anchors: an `AnchoredModel`."""

    blend: BlendModel
    queries_per_block = _QUERIES_PER_BLOCK

    @property
    def bytes_per_query(self) -> int:
        return 8 * (4 * self.blend.schema.n_features + 2 * len(self.blend.members))

    def moments(
        self, queries: Rows, weights: Floats | None, *, variance: bool, n_jobs: int | None
    ) -> tuple[Floats, Floats | None]:
        """The prediction, and the spread of the members around it as variance."""
        blend, matrix = self.blend, self.blend.schema.to_matrix(queries)
        members = np.arange(len(blend.members)) if variance else blend.used
        predicted = blend.predict_members(matrix, members)
        mean: Floats = predicted @ blend.weights[members]
        if not variance:
            return mean[:, None], None
        return mean[:, None], spread_around(mean, predicted, blend.spread_weights)[:, None] ** 2

    def differences(self, queries: Rows, indices: Indices | None, *, n_jobs: int | None) -> Floats:
        """(used member, query, anchor, 1): differences of predictions to out-of-fold ones."""
        blend = self.blend
        predicted = blend.predict_members(blend.schema.to_matrix(queries), blend.used)
        out_of_fold = blend.out_of_fold[:, blend.used]  # (query or 1, anchor, member)
        out_of_fold = out_of_fold[None] if indices is None else out_of_fold[indices]
        return difference(predicted[:, None], out_of_fold).transpose(2, 0, 1)[..., None]


def spread_around(mean: Floats, predictions: Floats, weights: Floats) -> Floats:
    """(row,): weighted standard deviation of (row, member) predictions around the blend.

    >>> spread_around(np.zeros(2), np.array([[1.0, -1.0], [0.0, 2.0]]), np.array([0.5, 0.5]))
    array([1.        , 1.41421356])
    """
    if predictions.shape[1] == 1:
        return np.zeros(len(mean))  # without rounding errors, of which none may be a scale
    spread: Floats = np.sqrt((predictions - mean[:, None]) ** 2 @ weights)
    return spread
