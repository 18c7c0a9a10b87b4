"""Difference model of a blend: the weighted mean of the differences of its members."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twinned.estimators.blending.features import to_matrix
from twinned.estimators.blending.members import FittedMember
from twinned.rows.schema import Floats, Rows, TableSchema

_PAIRS_PER_BLOCK = 100_000


@dataclass(frozen=True, eq=False)
class BlendModel:
    """Members with their blend weights, as a difference model.

    A member f that is no twin has the differences F(a, b) = f(a) − f(b).
    """

    members: list[FittedMember]
    member_weights: Floats  # (member,), sum to one
    schema: TableSchema

    @property
    def bytes_per_pair(self) -> int:
        """Memory that one pair needs while its difference is predicted."""
        twins = [member.estimator for member in self.members if member.is_twin]
        largest = max((twin._difference_model().bytes_per_pair for twin in twins), default=0)
        return int(largest + 8 * (4 * self.schema.n_features + len(self.members)))

    @property
    def pairs_per_block(self) -> int:
        """The number of pairs that are predicted at once."""
        twins = [member.estimator for member in self.members if member.is_twin]
        sizes = [twin._difference_model().pairs_per_block for twin in twins]
        return min([_PAIRS_PER_BLOCK, *sizes])

    def differences(self, first: Rows, second: Rows) -> Floats:
        """(member, ..., 1): F(first, second), for sides whose leading axes broadcast."""
        sides = [self._matrix(rows) for rows in (first, second)]
        return np.stack([member.differences(*sides) for member in self.members])[..., None]

    def at_anchors(self, anchors: Rows, anchors_y: Floats, n_pairs: int) -> None:
        """No fast path."""

    def _matrix(self, rows: Rows) -> Floats:
        return to_matrix(self.schema, rows)
