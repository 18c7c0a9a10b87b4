"""A tree ensemble over pairs, bound to anchors: predicted differences without building pairs."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from joblib import Parallel, delayed
from sklearn.utils import gen_batches

from twinned.models.resources import count_threads
from twinned.models.trees.anchor_masks import (
    MAX_ANCHORS,
    AnchorMasks,
    PairLayout,
    build_anchor_masks,
    chunk_size,
    query_terms,
    row_matrix,
    select_anchors,
)
from twinned.models.trees.reader import FLOAT32, FLOAT64, TreeEnsemble
from twinned.pairing.differences import PairFeatures, estimate
from twinned.rows.schema import Floats, Indices, Rows

if TYPE_CHECKING:  # which load numba
    from twinned.models.trees.packing import PackedTrees

# For fewer pairs times trees, pairs are built: that takes a second or less, as long as loading the
# kernel does, and compiling it takes several seconds the first time.
MIN_WORK = 5_000_000
# Packing a node takes as long as predicting this many pairs with a tree.
_PAIRS_PER_NODE = 2
_MIN_QUERIES_PER_TASK = 16
_BLOCK_BYTES = 64_000_000
_Part = TypeVar("_Part", "PackedTrees", AnchorMasks)


@dataclass(eq=False)
class AnchoredTrees:
    """A tree ensemble over pairs, bound to anchors; an `AnchoredModel`.

    Parameters
    ----------
    trees : TreeEnsemble
        The trees, as read from the estimator.
    features : PairFeatures
        The features of a pair that the estimator was fitted on; not a callable.
    anchors : Rows
        The anchors.
    anchors_y : array of shape (anchor,) or (anchor, output)
        Their known values.
    unit : float
        Factor of the differences that the trees predict.
    symmetric : bool
        Whether both orders of each pair are evaluated.
    cache_bytes : int
        Memory for packed trees and masks of anchors, which are stored for the next call.
    """

    mean_only = True
    trees: TreeEnsemble
    features: PairFeatures
    anchors: Rows
    anchors_y: Floats
    unit: float
    symmetric: bool
    cache_bytes: int

    def __post_init__(self) -> None:
        trees, features, anchors = self.trees, self.features, self.anchors
        self._layout = PairLayout(*features.layout(anchors))
        n_columns = len(self._layout.role)
        # the kernel does not check the columns that splits refer to
        if not trees.n_features <= n_columns == features.width:
            used = f"{trees.n_features} of {features.width} pair features"
            raise ValueError(f"Trees use {used}, but pairs have {n_columns}; fit the twin again.")
        # the other row columns are codes of categories
        self._n_ordered = anchors.numeric.shape[1] + anchors.one_hot.shape[1]
        self._anchors = row_matrix(anchors)
        # pair features or the library round to float32
        rounds = FLOAT32 in (trees.value_type, features.dtype)
        self._value_type = FLOAT32 if rounds else FLOAT64
        self.packed: list[PackedTrees] | None = None
        self.masks: list[AnchorMasks] | None = None

    @property
    def bytes_per_query(self) -> int:
        """Memory of one query apart from its differences: its row, terms, anchors and positions."""
        return 8 * (2 * self._anchors.shape[1] + 2 * len(self._layout.role)) + 8 * MAX_ANCHORS

    @property
    def cached_bytes(self) -> int:
        """Memory of the packed trees and masks that are stored for the next call."""
        return sum(part.nbytes for parts in (self.packed, self.masks) for part in parts or ())

    def pack_now(self) -> None:
        """Pack the trees and store them, if they fit into the cache."""
        for _ in self._packed_groups():
            pass

    def worthwhile(self, n_pairs: int) -> bool:
        """Whether packing the trees, unless it is done, takes less time than building the pairs."""
        work = n_pairs * len(self.trees.trees)
        return self.packed is not None or work >= _PAIRS_PER_NODE * self.trees.n_nodes

    @property
    def queries_per_block(self) -> int:
        return max(1, _BLOCK_BYTES // self.bytes_per_query)

    def moments(
        self, queries: Rows, weights: Floats | None, *, variance: bool, n_jobs: int | None
    ) -> tuple[Floats, None]:
        """Mean (query, output) of the estimates of all anchors, without variance."""
        sums = self._sum_leaves(queries, None, per_anchor=False, n_jobs=n_jobs)
        mean = sums[:, 0, 0] / len(self._anchors)
        mean = 0.5 * mean if self.symmetric else mean + self.trees.offset
        mean_y = self.anchors_y.reshape(len(self.anchors_y), -1).mean(axis=0)
        return estimate(mean * self.unit, mean_y), None

    def differences(self, queries: Rows, indices: Indices | None, *, n_jobs: int | None) -> Floats:
        """(member, query, anchor, output): the predicted difference of each query to its anchors.

        The members are F(query, anchor) and, where `symmetric`, −F(anchor, query). `indices`
        (query, anchor) are the anchors of each query; None stands for all anchors.
        """
        sums = self._sum_leaves(queries, indices, per_anchor=True, n_jobs=n_jobs)
        differences = np.moveaxis(sums, 1, 0)
        differences += self._member_offsets[:, None, None]
        differences *= self.unit
        return differences

    @property
    def _member_offsets(self) -> Floats:
        """(member, output): the offset of the trees, negative for −F(anchor, query)."""
        offset = self.trees.offset
        return np.array([offset, -offset]) if self.symmetric else offset[None]

    def _sum_leaves(
        self, queries: Rows, indices: Indices | None, *, per_anchor: bool, n_jobs: int | None
    ) -> Floats:
        """(query, slot, anchor or 1, output): sums of leaf values.

        With `per_anchor`, each member has a slot and each anchor of a query its own sum; else all
        are added up.
        """
        from twinned.models.trees.kernel import LeafSums, QueryBatch, add_tree_sums

        values = row_matrix(queries)
        terms = query_terms(values, self._layout)
        n_orders, n_outputs = self._member_offsets.shape
        n_used = len(self._anchors) if indices is None else indices.shape[1]
        shape = (len(terms), n_orders if per_anchor else 1, n_used if per_anchor else 1, n_outputs)
        sums = np.zeros(shape)
        signs = np.array([1.0, -1.0])[:n_orders]
        slots = np.arange(n_orders) * per_anchor
        has_missing = any(np.isnan(part).any() for part in (values, self._anchors))
        has_special = has_missing or self._n_ordered < self._anchors.shape[1]

        def add_rows(rows, trees, anchors, batch):
            add_tree_sums(
                trees,
                anchors,
                queries=batch.take(rows),
                out=LeafSums(sums[rows], signs, slots),
                has_special=has_special,
                compare_type=self._value_type.type(0),
            )

        n_threads, step = count_threads(n_jobs), max(len(terms), 1)
        if n_threads > 1:  # several blocks for each thread, so that all finish at about one time
            step = max(_MIN_QUERIES_PER_TASK, -(-len(terms) // (4 * n_threads)))
        blocks = list(gen_batches(len(terms), step))
        with Parallel(n_jobs=n_threads, require="sharedmem") as parallel:
            for trees in self._packed_groups():
                start = 0
                for anchors in self._anchor_masks():
                    n = len(anchors.values)
                    selected = select_anchors(indices, start, n, per_anchor=per_anchor)
                    start, batch = start + n, QueryBatch(terms, *selected)
                    parallel(delayed(add_rows)(rows, trees, anchors, batch) for rows in blocks)
        return sums

    def _packed_groups(self) -> Iterator[PackedTrees]:
        """Yield the packed trees: stored ones, or one group after the other."""
        from twinned.models.trees.packing import group_trees, pack_trees

        if self.packed is not None:
            yield from self.packed
            return
        groups = group_trees(self.trees)
        packed = (pack_trees(group, self._value_type) for group in groups)
        self.packed = yield from _parts_to_store(packed, self.cache_bytes)

    def _anchor_masks(self) -> Iterator[AnchorMasks]:
        """Yield the masks of all anchors, chunk by chunk: stored ones, or built now.

        They are stored in what packed trees leave of the cache, as those take longer to make.
        """
        if self.masks is not None:
            yield from self.masks
            return
        masks = (
            build_anchor_masks(self._anchors[rows], self._layout, self._n_ordered)
            for rows in gen_batches(len(self._anchors), chunk_size(self._anchors.shape[1]))
        )
        max_bytes = self.cache_bytes - self.cached_bytes if self.packed is not None else 0
        self.masks = yield from _parts_to_store(masks, max_bytes)


def _parts_to_store(
    parts: Iterable[_Part], max_bytes: int
) -> Generator[_Part, None, list[_Part] | None]:
    """Yield the parts; return them if they have at most `max_bytes`."""
    stored: list[_Part] = []
    n_bytes = 0
    for packed_or_masks in parts:
        n_bytes += packed_or_masks.nbytes
        if n_bytes <= max_bytes:
            stored.append(packed_or_masks)
        else:
            stored.clear()
        yield packed_or_masks
    return stored if n_bytes <= max_bytes else None
