"""Difference model of a blend: the weighted mean of the differences of its members.

A member that predicts by the mean of antisymmetric differences to all anchors is a twin with the
same anchors as the blend. Any other member f has the differences f(a) − f(b); towards an anchor b,
f(b) is the out-of-fold prediction of b, by a model that was not fitted to it. So the estimates of
the anchors differ as much as the member errs, and their mean is its prediction plus the mean of its
out-of-fold errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from twinned.estimators.blending.members import FittedMember
from twinned.estimators.blending.weights import spread_around
from twinned.exceptions import ignore_table_warnings
from twinned.fitted.twin import Anchors, FittedTwin
from twinned.models.protocol import AnchoredModel
from twinned.pairing.anchors import ReplicateWeights
from twinned.pairing.differences import difference
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, Rows, TableSchema

_PAIRS_PER_BLOCK = 100_000
_QUERIES_PER_BLOCK = 10_000


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
    anchors: Anchors
    replicates: ReplicateWeights | None = None  # where known values of equal rows count

    @property
    def schema(self) -> TableSchema:
        return self.anchors.schema

    def has_correlation(self, correlation: float) -> bool:
        """Whether this is the correlation of replicates by which known values count."""
        return correlation == (0.0 if self.replicates is None else self.replicates.correlation)

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
        largest = max((twin.model.bytes_per_pair for twin in self._twins.values()), default=0)
        return int(largest + 8 * (4 * self.schema.n_features + len(self.members)))

    @property
    def pairs_per_block(self) -> int:
        """The number of pairs that are predicted at once."""
        sizes = [twin.model.pairs_per_block for twin in self._twins.values()]
        return min([_PAIRS_PER_BLOCK, *sizes])

    @cached_property
    def _twins(self) -> dict[int, FittedTwin]:
        """The members that predict by differences, by number, with the anchors of the blend."""
        twins = {}
        for i, member in enumerate(self.members):
            if member.has_equal_anchors:
                fitted = member.estimator.fitted_
                with ignore_table_warnings():
                    queries = member.encode(self.anchors.X, fitted.anchors.schema)
                anchors = Anchors(
                    queries.schema,
                    queries.matrix,
                    self.anchors.y,
                    self.anchors.weights,
                    scale=queries.scale,
                )
                twins[i] = replace(fitted, anchors=anchors)
        return twins

    @cached_property
    def offsets(self) -> Floats:
        """(member,): mean out-of-fold errors y − f of members that have no differences."""
        errors = self.anchors.y[:, None] - self.out_of_fold
        means: Floats = np.average(errors, axis=0, weights=self.anchors.weights)
        means[list(self._twins)] = 0.0
        return means

    def differences(self, first: Rows, second: Rows) -> Floats:
        """(used member, ..., 1): F(first, second), for sides whose leading axes broadcast."""
        sides = [self.schema.to_matrix(rows) for rows in (first, second)]
        with ignore_table_warnings():
            parts = [self.members[i].differences(*sides) for i in self.used]
        return np.stack(parts)[..., None]

    def at_anchors(self, anchors: Rows, anchors_y: Floats, n_pairs: int) -> AnchoredModel:
        """The model bound to its anchors."""
        return AnchoredBlend(self)

    def predict_members(self, matrix: Floats, members: Indices | None = None) -> Floats:
        """(query, member): means of the estimates of all anchors, for encoded queries."""
        chosen = np.arange(len(self.members)) if members is None else members
        with ignore_table_warnings():
            predicted = np.column_stack([self._predict(i, matrix) for i in chosen])
        predicted += self.offsets[chosen]
        if self.replicates is None:
            return predicted
        # the difference to an anchor that equals the query is none
        queries, anchors = self.replicates.match(matrix)
        expected = self.offsets[chosen] + self.out_of_fold[anchors][:, chosen]
        wrong = difference(predicted[queries], expected)
        wrong[:, [i in self._twins for i in chosen]] = 0.0
        np.subtract.at(predicted, queries, wrong / len(self.anchors))
        return predicted

    def _predict(self, member: int, matrix: Floats) -> Floats:
        """(query,): the prediction of a member, by the anchors of the blend where it is a twin."""
        if member not in self._twins:
            return self.members[member].predict(matrix)
        return self._twins[member].predict(self.members[member].encode(matrix))[0][:, 0]

    def differences_to_anchors(self, matrix: Floats, indices: Indices | None) -> Floats:
        """(used member, query, anchor): differences to all anchors, or to those of each query."""
        parts = []
        equal = None if self.replicates is None else self.replicates.match(matrix)
        with ignore_table_warnings():
            for i in self.used:
                if i in self._twins:
                    estimates = self._twins[i].predict_anchors(self.members[i].encode(matrix))[1]
                    differences = difference(estimates[..., 0], self.anchors.y)
                else:
                    predicted = self.members[i].predict(matrix)
                    differences = difference(predicted[:, None], self.out_of_fold[:, i])
                    if equal is not None:
                        differences[equal] = 0.0
                parts.append(differences)
        result = np.stack(parts)
        if indices is None:
            return result
        return np.take_along_axis(result, indices[None], axis=2)


class AnchoredBlend:
    """A blend bound to its anchors: an `AnchoredModel`."""

    queries_per_block = _QUERIES_PER_BLOCK

    def __init__(self, blend: BlendModel) -> None:
        self.blend = blend

    @property
    def bytes_per_query(self) -> int:
        return 8 * (4 * self.blend.schema.n_features + 2 * len(self.blend.members))

    def supports(self, queries: Rows) -> bool:
        return True

    def can_reduce(self, *, weighted: bool, variance: bool) -> bool:
        return True

    def moments(
        self, queries: Rows, weights: Floats | None, *, variance: bool, n_jobs: int | None
    ) -> tuple[Floats, Floats | None]:
        """The prediction, and the spread of the members around it as variance."""
        blend, matrix = self.blend, self.blend.schema.to_matrix(queries)
        members = np.arange(len(blend.members)) if variance else blend.used
        predicted = blend.predict_members(matrix, members)
        mean: Floats = predicted @ blend.weights[members]
        if blend.replicates is not None:
            mean = blend.replicates.combine_with_mean(mean, matrix, blend.anchors.y)
        if not variance:
            return mean[:, None], None
        return mean[:, None], spread_around(mean, predicted, blend.spread_weights)[:, None] ** 2

    def differences(self, queries: Rows, indices: Indices | None, *, n_jobs: int | None) -> Floats:
        matrix = self.blend.schema.to_matrix(queries)
        return self.blend.differences_to_anchors(matrix, indices)[..., None]
