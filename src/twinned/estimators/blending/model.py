"""Difference model of a blend: the weighted mean of the differences of its members.

A member f that is no twin has the differences f(a) − f(b). Towards an anchor b, f(b) is the
out-of-fold prediction of b, by a model that was not fitted to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from twinned.estimators.blending.members import FittedMember
from twinned.estimators.blending.weights import spread_around
from twinned.exceptions import ignore_table_warnings
from twinned.models.protocol import AnchoredModel
from twinned.pairing.differences import difference
from twinned.rows.schema import Floats, Indices, Rows, TableSchema

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
    schema: TableSchema
    symmetric = True

    def with_anchors(self, rows: Rows, n_before: int) -> BlendModel:
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
        sides = [self.schema.to_matrix(rows) for rows in (first, second)]
        with ignore_table_warnings():
            member_differences = [self.members[i].differences(*sides) for i in self.used]
        return np.stack(member_differences)[..., None]

    def at_anchors(self, anchors: Rows, anchors_y: Floats, n_pairs: int) -> AnchoredModel:
        """The model bound to its anchors."""
        return AnchoredBlend(self)

    def predict_members(self, matrix: Floats, members: Indices | None = None) -> Floats:
        """(query, member): predictions of encoded queries by all or these members."""
        chosen = range(len(self.members)) if members is None else members
        with ignore_table_warnings():
            return np.column_stack([self.members[i].predict(matrix) for i in chosen])


class AnchoredBlend(AnchoredModel):
    """A blend bound to its anchors: an `AnchoredModel`."""

    queries_per_block = _QUERIES_PER_BLOCK

    def __init__(self, blend: BlendModel) -> None:
        self.blend = blend

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
