"""A pair forest at its anchors: predicted differences of queries, without building pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs

from twinned._neighbors import Indices
from twinned._table import Floats, Rows
from twinned.models.trees.anchor_masks import (
    MOST_ANCHORS,
    Layout,
    anchor_sets,
    chunk_size,
    members_of,
    places_of,
    query_parts,
    sources,
    work_space,
)
from twinned.models.trees.packed import Packed, groups, pack
from twinned.models.trees.reader import FLOAT32, FLOAT64, Trees, count_trees, read_trees
from twinned.pairing.pairs import PairFeatures, antisymmetric

# Below so many pairs times trees, pairs are built: that takes a second or less, as long as loading
# the kernel does, and it need not be compiled, which takes some seconds the first time.
LEAST_WORK = 5_000_000
# Packing a node takes as long as predicting so many pairs with a tree.
_NODE_WORK = 2
# Queries that go down a tree before the next tree's turn: many, to use it while it is in the
# processor's cache; few where rules are kept for each; one by one where all trees are in the cache.
_AT_ONCE, _AT_ONCE_BY_RULES = 256, 16
_CACHE_BYTES = 1_000_000
_FEWEST_QUERIES = 16  # of a thread's turn
# Values beyond would be infinite in float32, about which a library complains in its own words.
_LARGEST_FLOAT32 = 1e38


class AnchoredTrees:
    """Trees over pairs, and the anchors.

    Parameters
    ----------
    trees : Trees
        As read from the estimator.
    features : PairFeatures
        What the estimator sees of a pair; no callable.
    anchors : Rows
        The known points.
    unit : float
        What the trees' differences are multiplied by.
    keep_bytes : int
        Packed trees up to this size are kept for the next call.
    """

    def __init__(
        self, trees: Trees, features: PairFeatures, anchors: Rows, unit: float, keep_bytes: int
    ) -> None:
        self._trees = trees
        self._layout = Layout(*features.layout(anchors.numeric.shape[1]))
        # the others are codes of names
        self._n_ordered = anchors.numeric.shape[1] + anchors.one_hot.shape[1]
        self._anchors = sources(anchors)
        self._unit = unit
        # once rounded to float32, by us or by the library, a value stays in it
        rounds = FLOAT32 in (trees.value_type, features.dtype)
        self._value_type = FLOAT32 if rounds else FLOAT64
        self._keep_bytes = keep_bytes
        self._kept: list[Packed] | None = None
        self._kept_chunks: list[Any] | None = None  # of all anchors, for their own estimates

    @property
    def exact_sums(self) -> bool:
        """Whether sums over anchors may be formed tree by tree: the library adds in float64."""
        return self._trees.sum_type == FLOAT64

    @property
    def query_bytes(self) -> int:
        """What a query costs beside its estimates: its values, its parts of pairs, its anchors."""
        return 8 * (2 * self._anchors.shape[1] + 2 * len(self._layout.role)) + 8 * MOST_ANCHORS

    def pays(self, n_pairs: int) -> bool:
        """Whether packing the trees takes less than building the pairs would."""
        return n_pairs * len(self._trees.trees) >= _NODE_WORK * self._trees.n_nodes

    @property
    def ready(self) -> bool:
        """Whether the trees are packed already: then even one query is quicker without pairs."""
        return self._kept is not None

    def make_ready(self) -> None:
        """Pack the trees now, where they may be kept."""
        for _ in self._packed():
            pass

    def holds(self, matrix: Floats) -> bool:
        """Whether all values are numbers in the type in which the library compares them."""
        if self._trees.value_type != FLOAT32:
            return True
        return not (np.abs(matrix) > _LARGEST_FLOAT32).any()

    def mean(self, queries: Rows, *, symmetric: bool, n_jobs: int | None) -> Floats:
        """(n_queries, n_outputs) the mean over all anchors of predicted differences."""
        total = self._run(queries, None, each=False, symmetric=symmetric, n_jobs=n_jobs)
        mean = total[:, 0, 0] / len(self._anchors)
        return (0.5 * mean if symmetric else mean + self._trees.offset) * self._unit

    def differences(
        self, queries: Rows, indices: Indices | None, *, symmetric: bool, n_jobs: int | None
    ) -> Floats:
        """(n_queries, n_used, n_outputs) the predicted difference of each query to its anchors.

        `indices` (n_queries, n_used) are a query's anchors, None where it has all.
        """
        if symmetric and not self.exact_sums:
            return antisymmetric(*self.orders(queries, indices, n_jobs=n_jobs))
        out = self._run(queries, indices, each=True, symmetric=symmetric, n_jobs=n_jobs)
        found = 0.5 * out[:, 0] if symmetric else out[:, 0] + self._offset
        return found.astype(np.float64) * self._unit

    def orders(
        self, queries: Rows, indices: Indices | None, *, n_jobs: int | None
    ) -> tuple[Floats, Floats]:
        """F(query, anchor) and F(anchor, query), each as of `differences`."""
        out = self._run(queries, indices, each=True, symmetric=True, n_jobs=n_jobs, apart=True)
        both = (out + self._offset).astype(np.float64) * self._unit
        return both[:, 0], both[:, 1]

    @property
    def _offset(self) -> Any:
        """What is still to be added to a sum of leaves: float32 sums begin with it."""
        return self._trees.offset if self.exact_sums else self._trees.sum_type.type(0)

    def _run(
        self,
        queries: Rows,
        indices: Indices | None,
        *,
        each: bool,
        symmetric: bool,
        n_jobs: Any,
        apart: bool = False,
    ) -> Any:
        """(n_queries, n_slots, n_used or 1, n_outputs) sums of leaves.

        Where leaves are added in float64, there is one slot, and what the trees say of a pair the
        other way round counts negative; or two, where both are wanted `apart`. Float32 rounds each
        of the two on its own, from the offset on.
        """
        from twinned.models.trees.kernel import over_anchors

        of_queries = sources(queries)
        parts = query_parts(of_queries, self._layout)
        n_slots = 2 if symmetric and (apart or not self.exact_sums) else 1
        used = len(self._anchors) if indices is None else indices.shape[1]
        shape = (len(parts), n_slots, used if each else 1, len(self._trees.offset))
        out = np.zeros(shape, dtype=self._trees.sum_type)
        if not self.exact_sums:
            out += self._trees.offset.astype(out.dtype)
        signs = np.array([1.0, -1.0 if n_slots == 1 else 1.0])[: 1 + symmetric]
        slots = np.array([0, n_slots - 1])[: 1 + symmetric]
        special = bool(
            self._n_ordered < self._anchors.shape[1]
            or np.isnan(of_queries).any()
            or np.isnan(self._anchors).any()
        )

        def one_range(rows: slice, forest: Packed, chunk: Any) -> None:
            sets, members, places = chunk
            at_once = _AT_ONCE_BY_RULES if len(forest.rule) else _AT_ONCE
            if forest.nodes.nbytes + forest.leaf_value.nbytes < _CACHE_BYTES:
                at_once = 1
            over_anchors(
                forest,
                sets,
                parts[rows],
                members if len(members) == 1 else members[rows],
                places if len(places) == 1 else places[rows],
                special,
                self._value_type.type(0),
                signs,
                slots,
                at_once,
                work_space(at_once, len(forest.rule_split), each=each),
                out[rows],
            )

        n_threads = effective_n_jobs(n_jobs)
        with Parallel(n_jobs=n_threads, require="sharedmem") as parallel:
            for forest in self._packed():
                for chunk in self._chunks(indices, each=each):
                    parallel(
                        delayed(one_range)(rows, forest, chunk)
                        for rows in _ranges(len(parts), n_threads)
                    )
        return out

    def _chunks(self, indices: Indices | None, *, each: bool) -> Iterator[Any]:
        """The anchors, as many at a time as a mask holds, and who has which of them."""
        if indices is None and each:
            if self._kept_chunks is None:
                self._kept_chunks = list(self._make_chunks(None, each=True))
            yield from self._kept_chunks
        else:
            yield from self._make_chunks(indices, each=each)

    def _make_chunks(self, indices: Indices | None, *, each: bool) -> Iterator[Any]:
        size = chunk_size(self._anchors.shape[1])
        for start in range(0, len(self._anchors), size):
            values = self._anchors[start : start + size]
            nowhere = np.zeros((1, 0), dtype=np.int32)
            yield (
                anchor_sets(values, self._layout, self._n_ordered),
                members_of(indices, start, len(values)),
                places_of(indices, start, len(values)) if each else nowhere,
            )

    def _packed(self) -> Iterator[Packed]:
        """The trees, packed: kept from the last time, or one group after the other."""
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[Packed] = []
        n_bytes = 0
        for group in groups(self._trees):
            forest = pack(group, self._value_type, self._trees.strict)
            n_bytes += forest.nbytes
            if n_bytes <= self._keep_bytes:
                kept.append(forest)
            else:
                kept.clear()
            yield forest
        if n_bytes <= self._keep_bytes:
            self._kept = kept


def read_at_anchors(
    estimator: Any, features: PairFeatures, anchors: Rows, unit: float, keep_bytes: int
) -> AnchoredTrees | None:
    """The estimator at its anchors, or None where its pairs have to be built."""
    if callable(features.kind):
        return None
    trees = read_trees(estimator)
    if trees is None or trees.n_features > features.width:
        return None
    found = AnchoredTrees(trees, features, anchors, unit, keep_bytes)
    return found if found.holds(sources(anchors)) else None


def pays(estimator: Any, n_pairs: int) -> bool:
    """Whether there is enough to do for the kernel; found without reading the trees."""
    return n_pairs * count_trees(estimator) >= LEAST_WORK


def _ranges(n_queries: int, n_threads: int) -> Iterator[slice]:
    """Some for each thread, so that none waits long for the last."""
    step = max(_FEWEST_QUERIES, -(-n_queries // (4 * n_threads))) if n_threads > 1 else n_queries
    return (slice(start, start + step) for start in range(0, n_queries, step))
