"""Sums of tree predictions over anchors, compiled: no pair is built.

For one query, a split of a tree over pairs is a condition on the anchors alone. The anchors that
meet it are known as a bit mask (see `anchor_masks`), so all anchors of a query descend a tree
together, as sets (`_descend_as_sets`); sets of few anchors go on anchor by anchor. Where only the
sum over all anchors of small trees is wanted, a leaf needs but the number of its anchors, and the
nodes are visited in preorder (`_sum_of_tree`), which is faster.

Imported only where it is used, as loading numba takes a second.
"""

# mypy: ignore-errors
# Types of compiled functions are those that numba infers from the arguments of each call.

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from twinned.models.trees import anchor_masks as field
from twinned.models.trees.anchor_masks import MASK_WORDS, MAX_ANCHORS, AnchorMasks
from twinned.models.trees.compilation import (
    compiled,
    copy_mask,
    entry_point,
    inlined,
    lowest_bit,
    nonzero_words,
    prefetch,
    read,
    split_half_mask,
    split_mask,
    store,
)
from twinned.models.trees.conditions import encoded_mask, rounded
from twinned.models.trees.packing import END, LEFT, RIGHT, SPLIT, SPLIT_FLAG_BITS, PackedTrees

# Queries that descend a tree before the next tree begins: many, to use the tree while it is in the
# processor's cache; few where the masks of all distinct splits are stored for each; one where all
# trees fit into the cache.
_BATCH_SIZE, _BATCH_SIZE_DISTINCT = 256, 16
_PROCESSOR_CACHE_BYTES = 1_000_000
# Anchors of sets up to this size descend the rest of the tree one by one.
_SMALL_SET = 4
# Sets that are not empty and have no anchor in common, and one more that is being split.
_MAX_SETS = MAX_ANCHORS + 2


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

    def take(self, rows: slice) -> Self:
        """Return a part of the queries; an array of one row is that of all of them."""
        return type(self)(*(array if len(array) == 1 else array[rows] for array in self))


class LeafSums(NamedTuple):
    """Sums of leaf values, and how the orders of a pair enter them.

    `sums` (query, slot, position or 1, output). For each evaluated order, `signs` (order,) is the
    factor of its leaf values and `slots` (order,) the slot that they are added to.
    """

    sums: NDArray[np.float64]
    signs: NDArray[np.float64]
    slots: NDArray[np.int64]


class Workspace(NamedTuple):
    """Memory for intermediate results of the kernel.

    For a batch of queries: `split_masks` (query, 2, distinct split), the mask of each distinct
    split as `encoded_mask` returns it.

    For one query and tree: a stack of sets of anchors that are still to descend, with their masks,
    `set_node` and `set_size`. `single_nodes` (anchor, 2) are single anchors: a node, and twice the
    anchor plus the order of the pair; `single_leaves` are the same with their leaves.

    `_sum_of_tree` uses `split_masks`, and `masks` and `set_size` with one row for each inner node.
    """

    split_masks: NDArray[np.int32]
    masks: NDArray[np.uint64]
    set_node: NDArray[np.int64]
    set_size: NDArray[np.int64]
    single_nodes: NDArray[np.int64]
    single_leaves: NDArray[np.int64]


def _allocate_workspace(batch_size: int, n_distinct_splits: int) -> Workspace:
    """Allocate memory for batches of queries."""
    return Workspace(
        split_masks=np.empty((batch_size, 2, n_distinct_splits), dtype=np.int32),
        masks=np.empty((_MAX_SETS, MASK_WORDS), dtype=np.uint64),
        set_node=np.empty(_MAX_SETS, dtype=np.int64),
        set_size=np.empty(_MAX_SETS, dtype=np.int64),
        single_nodes=np.empty((2 * MAX_ANCHORS, 2), dtype=np.int64),
        single_leaves=np.empty((2 * MAX_ANCHORS, 2), dtype=np.int64),
    )


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
    if len(trees.inner_nodes) and not per_anchor:
        work = _allocate_workspace(1, n_distinct)
        _add_counted_sums(trees, anchors, queries, out, compare_type, work)
        return
    batch_size = _BATCH_SIZE_DISTINCT if n_distinct else _BATCH_SIZE
    if trees.nodes.nbytes + trees.leaf_values.nbytes < _PROCESSOR_CACHE_BYTES:
        batch_size = 1
    work = _allocate_workspace(batch_size, n_distinct)
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


# --- sets of anchors, then single ones ------------------------------------------------------------


@compiled
def _descend_as_sets(
    trees, tree, anchors, queries, q, split_masks, order, n_single, out, compare_type, work
):
    """Take the anchors of one query down one tree, depth first, to leaves or until sets are small.

    Adds the values of the leaves to `out.sums`, and single anchors to `Workspace.single_nodes`,
    which has `n_single` of them; returns how many it has then.
    """
    nodes, n_distinct = trees.nodes, split_masks.shape[1]
    first_column = order * queries.terms.shape[2]
    first_term = (2 * q + order) * queries.terms.shape[2]
    everything = len(anchors.masks) - 1
    selection = q if len(queries.selected) > 1 else 0
    copy_mask(queries.selected, selection, work.masks, 0)
    store(work.set_node, 0, trees.roots[tree])
    store(work.set_size, 0, queries.n_selected[selection])
    n_sets = 1
    while n_sets:
        i = n_sets - 1
        node, size = read(work.set_node, i), read(work.set_size, i)
        split = np.int64(read(nodes, 4 * node))
        if split < 0:
            n_sets -= 1
            _add_leaf(trees, tree, node, size, queries, q, order, out, i, work)
            continue
        if size <= _SMALL_SET:
            n_sets -= 1
            n_single = _store_single_anchors(node, order, i, n_single, work)
            continue
        if n_distinct:
            mask = np.int64(read(split_masks, order * n_distinct + read(trees.split_id, node)))
        else:
            term = read(queries.terms, first_term + (split >> SPLIT_FLAG_BITS))
            threshold = read(trees.thresholds, 2 * node + 1)
            mask = encoded_mask(anchors, first_column, term, split, threshold, compare_type)
        # the anchors of the mask go to the left child, or to the right one
        side, row = mask & 1, mask >> 1
        child = np.int64(read(nodes, 4 * node + 1))
        prefetch(nodes, 4 * child)
        store(work.set_node, i, child + side)
        if row == everything:
            continue
        inside = split_mask(work.masks, i, anchors.masks, row, i, i + 1)
        if inside == 0:
            copy_mask(work.masks, i + 1, work.masks, i)
            store(work.set_node, i, child + 1 - side)
        elif inside < size:
            store(work.set_size, i, inside)
            store(work.set_node, i + 1, child + 1 - side)
            store(work.set_size, i + 1, size - inside)
            n_sets += 1
    return n_single


@inlined
def _store_single_anchors(node, order, i, n_single, work):
    """Store the anchors of set `i` one by one; return how many there are now."""
    words = nonzero_words(work.masks, i)
    while words:
        w = lowest_bit(words)
        words &= words - np.uint64(1)
        word = read(work.masks, MASK_WORDS * i + w)
        while word:
            anchor = 64 * w + lowest_bit(word)
            store(work.single_nodes, 2 * n_single, node)
            store(work.single_nodes, 2 * n_single + 1, 2 * anchor + order)
            n_single += 1
            word &= word - np.uint64(1)
    return n_single


@inlined
def _descend_one_by_one(trees, anchors, terms, n_single, has_special, compare_type, work):
    """Take single anchors to their leaves, all of them one level at a time.

    From `Workspace.single_nodes`, which are inner nodes, to `Workspace.single_leaves`.
    """
    nodes, columns = trees.nodes, anchors.columns
    singles, leaves = work.single_nodes, work.single_leaves
    n_columns, n_values = terms.shape[1], anchors.values.shape[1]
    n_leaves = 0
    while n_single:
        n_inner = 0
        for k in range(n_single):
            node, anchor_order = read(singles, 2 * k), read(singles, 2 * k + 1)
            split, child = np.int64(read(nodes, 4 * node)), np.int64(read(nodes, 4 * node + 1))
            threshold = read(trees.thresholds, 2 * node + 1)
            column = (anchor_order & 1) * n_columns + (split >> SPLIT_FLAG_BITS)
            record = field.COLUMN_FIELDS * column
            value_column = read(columns, record + field.VALUE_COLUMN)
            other = read(anchors.values, (anchor_order >> 1) * n_values + value_column)
            sign = read(anchors.scales, field.SCALE_FIELDS * column + field.SIGN)
            value = rounded(read(terms, column) + sign * other, compare_type)
            right = value > threshold
            if has_special:
                if read(columns, record + field.KIND) == field.CATEGORY and value == value:
                    right = (0.0 if value == 0 else 1.0) > threshold
                right |= (value != value) & (split & 1 == 1)
            following = child + right
            leaf = (split >> (1 + np.int64(right))) & 1
            store(leaves, 2 * n_leaves, following)
            store(leaves, 2 * n_leaves + 1, anchor_order)
            n_leaves += leaf
            store(singles, 2 * n_inner, following)
            store(singles, 2 * n_inner + 1, anchor_order)
            n_inner += 1 - leaf
            prefetch(nodes, 4 * following)
        n_single = n_inner


@inlined
def _add_leaf(trees, tree, leaf, size, queries, q, order, out, i, work):
    """Add the values of a leaf that set `i` has reached, with `size` anchors."""
    positions, sums = queries.positions, out.sums
    n_slots, n_positions, n_outputs = sums.shape[1:]
    start = (q * n_slots + read(out.slots, order)) * n_positions * n_outputs
    start += read(trees.outputs, tree)
    sign = read(out.signs, order)
    for k in range(max(trees.leaf_values.shape[1], 1)):
        value = sign * _leaf_value(trees, leaf, k)
        if positions.shape[1] == 0:
            _add(sums, start + k, value * size)
            continue
        first_position = q * positions.shape[1] if len(positions) > 1 else 0
        words = nonzero_words(work.masks, i)
        while words:
            w = lowest_bit(words)
            words &= words - np.uint64(1)
            word = read(work.masks, MASK_WORDS * i + w)
            while word:
                position = read(positions, first_position + 64 * w + lowest_bit(word))
                _add(sums, start + k + position * n_outputs, value)
                word &= word - np.uint64(1)


@inlined
def _add_single_leaves(trees, tree, q, queries, out, n_single, work):
    """Add the values of the leaves that single anchors of query `q` have reached."""
    positions, sums = queries.positions, out.sums
    n_slots, n_positions, n_outputs = sums.shape[1:]
    first_position = q * positions.shape[1] if len(positions) > 1 else 0
    first_output = read(trees.outputs, tree)
    for i in range(n_single):
        leaf = read(work.single_leaves, 2 * i)
        anchor_order = read(work.single_leaves, 2 * i + 1)
        order = anchor_order & 1
        position = 0
        if positions.shape[1]:
            position = np.int64(read(positions, first_position + (anchor_order >> 1)))
        position += (q * n_slots + read(out.slots, order)) * n_positions
        for k in range(max(trees.leaf_values.shape[1], 1)):
            value = read(out.signs, order) * _leaf_value(trees, leaf, k)
            _add(sums, position * n_outputs + first_output + k, value)


@inlined
def _leaf_value(trees, leaf, k):
    """Return value `k` of a leaf."""
    if trees.leaf_values.shape[1]:
        return trees.leaf_values[read(trees.nodes, 4 * leaf + 1), k]
    return read(trees.thresholds, 2 * leaf + 1)


@inlined
def _add(array, index, value):
    """Add to `array.ravel()[index]`."""
    store(array, index, read(array, index) + value)


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
            if queries.n_selected[q if n_selections > 1 else 0] > _SMALL_SET:
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
                    n_single = _descend_as_sets(
                        trees, tree, anchors, queries, q, work.split_masks[q - start], order,
                        n_single, out, compare_type, work,
                    )  # fmt: skip
                terms = queries.terms[q]
                _descend_one_by_one(
                    trees, anchors, terms, n_single, has_special, compare_type, work
                )
                _add_single_leaves(trees, tree, q, queries, out, n_single, work)


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
