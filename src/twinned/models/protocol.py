"""The contract of difference models: `DifferenceModel` and `AnchoredModel`.

A fitted twin consists of a difference model and a set of anchors. Everything that it predicts is
computed from these two by `twinned.fitted`, so a new kind of twin is one class with
`differences`; `at_anchors` is an optional fast path.
"""

from typing import Protocol, Self

from twinned.rows.schema import Floats, Indices, Rows


class AnchoredModel(Protocol):
    """A difference model bound to fixed anchors: it predicts without building pairs."""

    mean_only: bool = False  # whether `moments` has only the mean, and only with equal weights

    @property
    def bytes_per_query(self) -> int:
        """Memory that one query needs, apart from the returned differences."""

    @property
    def queries_per_block(self) -> int:
        """The number of queries that `moments` reduces fastest at once."""

    def moments(
        self, queries: Rows, weights: Floats | None, *, variance: bool, n_jobs: int | None
    ) -> tuple[Floats, Floats | None]:
        """Weighted mean and variance of the estimates of all anchors by all members.

        Both are (query, output), reduced without storing the single estimates. `weights` is
        (anchor,), or None for equal weights. The variance is None unless it is requested.
        """

    def differences(self, queries: Rows, indices: Indices | None, *, n_jobs: int | None) -> Floats:
        """(member, query, anchor, output): predicted y(query) − y(anchor).

        `indices` (query, anchor) are the anchors of each query; None stands for all anchors.
        """


class DifferenceModel(Protocol):
    """A fitted model F(a, b) of the difference y(a) − y(b).

    A model has one or more *members*. A model that is evaluated in both orders has the members
    F(a, b) and −F(b, a), whose mean is exactly antisymmetric.
    """

    @property
    def member_weights(self) -> Floats:
        """(member,): weights that sum to one."""

    @property
    def bytes_per_pair(self) -> int:
        """Memory that one pair needs while its difference is predicted."""

    @property
    def pairs_per_block(self) -> int:
        """The number of pairs that are predicted fastest at once."""

    @property
    def symmetric(self) -> bool:
        """Whether F(a, b) = −F(b, a) exactly."""

    def differences(self, first: Rows, second: Rows) -> Floats:
        """(member, ..., output): F(first, second), for sides whose leading axes broadcast."""

    def with_anchors(self, rows: Rows, n_before: int) -> Self:
        """The model for the first `n_before` anchors, after which these rows are added."""

    def at_anchors(self, anchors: Rows, anchors_y: Floats, n_pairs: int) -> AnchoredModel | None:
        """A fast path for these anchors, or None where it does not exist or does not pay.

        `n_pairs` is the number of pairs that are about to be predicted.
        """
