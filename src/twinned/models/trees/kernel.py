"""Sums of tree predictions over anchors, compiled: no pair is built.

For one query, a split of a tree over pairs is a condition on the anchors alone. The anchors that
meet it are known as a bit mask (see `anchor_masks`), so all anchors of a query descend a tree
together, as sets (`set_descent`). Where only the sum over all anchors of small trees is wanted, a
leaf needs but the number of its anchors, and the nodes are visited in preorder (`_sum_of_tree`),
which is faster.

Imported only where it is used, as loading numba takes a second.
"""

# mypy: ignore-errors
# Types of compiled functions are those that numba infers from the arguments of each call.

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.trees.anchor_masks import MAX_ANCHORS, AnchorMasks
from twinned.models.trees.compilation import (
    compiled,
    copy_mask,
    entry_point,
    read,
    split_half_mask,
    split_mask,
    store,
)
from twinned.models.trees.conditions import encoded_mask
from twinned.models.trees.packing import END, LEFT, RIGHT, SPLIT, PackedTrees
from twinned.models.trees.set_descent import (
    SMALL_SET,
    add_single_leaves,
    allocate_workspace,
    descend_as_sets,
    descend_one_by_one,
)

# Queries that descend a tree before the next tree begins: many, to use the tree while it is in the
# processor's cache; few where the masks of all distinct splits are stored for each; one where all
# trees fit into the cache.
_BATCH_SIZE, _BATCH_SIZE_DISTINCT = 256, 16
_PROCESSOR_CACHE_BYTES = 1_000_000


class QueryBatch(NamedTuple):
    """Queries and their anchors within one chunk.

    `terms` (query, 2, pair column) are what the queries contribute to the pair columns, in both
    orders. `selected` (query, MASK_WORDS) masks the anchors of each query, and `n_selected`
    (query,) counts them. `positions` (query, anchor) is the index of an anchor among those of its
    query; (1, 0) where the sums over all anchors are computed. The last three have one row where
    it is the same for all queries.
    """

    terms: NDArray[np.float64]
    selected: NDArray[np.uint64]
    n_selected: NDArray[np.int64]
    positions: NDArray[np.int32]

    def take(self, rows: slice) -> QueryBatch:
        """Return a part of the queries."""
        return QueryBatch(
            self.terms[rows],
            selected=self.selected if len(self.selected) == 1 else self.selected[rows],
            n_selected=self.n_selected if len(self.n_selected) == 1 else self.n_selected[rows],
            positions=self.positions if len(self.positions) == 1 else self.positions[rows],
        )


class LeafSums(NamedTuple):
    """Sums of leaf values, and how the orders of a pair enter them.

    `sums` (query, slot, position or 1, output). For each evaluated order, `signs` (order,) is the
    factor of its leaf values and `slots` (order,) the slot that they are added to.
    """

    sums: NDArray[np.floating]
    signs: NDArray[np.float64]
    slots: NDArray[np.int64]


def add_tree_sums(
    trees: PackedTrees,
    anchors: AnchorMasks,
    queries: QueryBatch,
    out: LeafSums,
    has_special: bool,
    compare_type: np.floating,
) -> None:
    """Add the leaf values of all trees, for all queries with their anchors, to `out.sums`.

    `has_special` tells whether there are missing values or categorical features; `compare_type` is
    any number of the type in which values are compared.
    """
    n_distinct, per_anchor = len(trees.distinct_split), queries.positions.shape[1] > 0
    if len(trees.inner_nodes) and not per_anchor and out.sums.dtype == np.float64:
        work = allocate_workspace(1, n_distinct)
        _add_counted_sums(trees, anchors, queries, out, compare_type, work)
        return
    batch_size = _BATCH_SIZE_DISTINCT if n_distinct else _BATCH_SIZE
    if trees.nodes.nbytes + trees.leaf_values.nbytes < _PROCESSOR_CACHE_BYTES:
        batch_size = 1
    work = allocate_workspace(batch_size, n_distinct)
    _add_set_sums(trees, anchors, queries, out, batch_size, has_special, compare_type, work)


# --- numbers of anchors, in preorder --------------------------------------------------------------


@compiled
def _sum_of_tree(inner_nodes, inner_values, start, end, masks, first_mask, anchors, halves, work):
    """Return the sum of the leaf values of all anchors.

    `inner_nodes[start:end]` is the tree, and `masks[first_mask:]` are the masks of the splits. The
    first rows of `work.masks` and `work.set_size` are the mask and the number of all anchors.
    """
    counts = work.set_size
    total, node = 0.0, 0
    while node < end - start:
        size, record = read(counts, node), 4 * (start + node)
        if size == 0:
            node = np.int64(read(inner_nodes, record + END))
            continue
        mask = np.int64(read(masks, first_mask + np.int64(read(inner_nodes, record + SPLIT))))
        # the anchors of the mask go to the left child, or to the right one
        side = mask & 1
        child = np.int64(read(inner_nodes, record + LEFT + side))
        other_child = np.int64(read(inner_nodes, record + RIGHT - side))
        if halves:
            inside = split_half_mask(work.masks, node, anchors.masks, mask >> 1, child, other_child)
        else:
            inside = split_mask(work.masks, node, anchors.masks, mask >> 1, child, other_child)
        store(counts, child, inside)
        store(counts, other_child, size - inside)
        # the value of a child that is no leaf is 0, which is faster than a test
        value = 2 * (start + node)
        total += read(inner_values, value + side) * inside
        total += read(inner_values, value + 1 - side) * (size - inside)
        node += 1
    return total


# --- all trees and queries ------------------------------------------------------------------------


@compiled
def _update_masks(trees, anchors, terms, q, n_orders, row, is_previous, compare_type, work):
    """Write the masks of all distinct splits for query `q` to a row of `work.split_masks`.

    Where the row is that of the query before (`is_previous`), columns with an equal term retain
    theirs. An anchor's own value, for example, has the same term for all queries; NaN is not equal
    to itself.
    """
    n_columns = terms.shape[2]
    for order in range(n_orders):
        for column in range(len(trees.column_starts) - 1):
            term = terms[q, order, column]
            if is_previous and term == terms[q - 1, order, column]:
                continue
            for s in range(trees.column_starts[column], trees.column_starts[column + 1]):
                split, threshold = np.int64(trees.distinct_split[s]), trees.distinct_threshold[s]
                work.split_masks[row, order, s] = encoded_mask(
                    anchors, order * n_columns, term, split, threshold, compare_type
                )


@entry_point
def _add_set_sums(trees, anchors, queries, out, batch_size, has_special, compare_type, work):
    """Add the sums of any trees, in batches of queries that descend a tree before the next."""
    n_queries, n_orders, n_selections = len(queries.terms), len(out.signs), len(queries.selected)
    for start in range(0, n_queries, batch_size):
        stop = min(start + batch_size, n_queries)
        for q in range(start, stop):
            # few anchors descend one by one from the root on
            if queries.n_selected[q if n_selections > 1 else 0] > SMALL_SET:
                is_previous = batch_size == 1 and q > 0 and n_selections == 1
                _update_masks(
                    trees, anchors, queries.terms, q, n_orders, q - start, is_previous,
                    compare_type, work,
                )  # fmt: skip
        for tree in range(len(trees.roots)):
            for q in range(start, stop):
                if queries.n_selected[q if n_selections > 1 else 0] == 0:
                    continue
                n_single = 0
                for order in range(n_orders):
                    n_single = descend_as_sets(
                        trees, tree, anchors, queries, q, work.split_masks[q - start], order,
                        n_single, out, compare_type, work,
                    )  # fmt: skip
                terms = queries.terms[q]
                descend_one_by_one(trees, anchors, terms, n_single, has_special, compare_type, work)
                add_single_leaves(trees, tree, q, queries, out, n_single, work)


@entry_point
def _add_counted_sums(trees, anchors, queries, out, compare_type, work):
    """Add the sums over all anchors; `queries` selects all, and leaves have one value each."""
    n_orders, n_anchors = len(out.signs), len(anchors.values)
    halves = n_anchors <= MAX_ANCHORS // 2
    masks, n_distinct = work.split_masks, work.split_masks.shape[2]
    copy_mask(queries.selected, 0, work.masks, 0)
    work.set_size[0] = n_anchors
    for q in range(len(queries.terms)):
        _update_masks(trees, anchors, queries.terms, q, n_orders, 0, q > 0, compare_type, work)
        for order in range(n_orders):
            for tree in range(len(trees.roots)):
                total = _sum_of_tree(
                    trees.inner_nodes, trees.inner_values, trees.inner_starts[tree],
                    trees.inner_starts[tree + 1], masks, order * n_distinct, anchors, halves, work,
                )  # fmt: skip
                slot, output = out.slots[order], trees.outputs[tree]
                out.sums[q, slot, 0, output] += out.signs[order] * total
