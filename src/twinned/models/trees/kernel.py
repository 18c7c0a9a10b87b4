"""Sums of tree predictions over anchors, compiled: no pair is built.

For one query, a split of a tree over pairs is a condition on the anchors alone. The anchors that
meet it are known as a bit mask (see `anchor_masks`), so all anchors of a query descend a tree
together, as sets: level by level, with all sets of a level at once (`_descend_as_sets`), which
large trees and the sums of single anchors need; or, where only the sum over all anchors of small
trees is wanted and a leaf needs but the number of its anchors, node by node in preorder
(`_sum_of_tree`), which is twice as fast (`benchmarks/results/tree_counts.md`).

Imported only where it is used, as loading numba takes a second.
"""

# mypy: ignore-errors
# Types of compiled functions are those that numba infers from the arguments of each call.

from __future__ import annotations

from typing import NamedTuple

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
from twinned.models.trees.packing import END, LEFT, RIGHT, SPLIT, SPLIT_FLAG_BITS, PackedTrees

# At most, each anchor is a set of its own in both orders of the pair; splitting a set needs two
# more.
_MAX_SETS = 2 * MAX_ANCHORS + 2
# Anchors of sets up to this size descend the rest of the tree one by one.
_SMALL_SET = 4
# Rows of `Workspace.masks` after those of the sets.
_SELECTED = 2 * _MAX_SETS
# Lists of sets in `Workspace.pending`.
_LEAVES, _SMALL, _UNSPLIT, _SPLIT = 0, _MAX_SETS, 2 * _MAX_SETS, 3 * _MAX_SETS
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
        parts = (part if len(part) == 1 else part[rows] for part in self[1:])
        return QueryBatch(self.terms[rows], *parts)


class LeafSums(NamedTuple):
    """Sums of leaf values, and how the orders of a pair enter them.

    `sums` (query, slot, position or 1, output). For each evaluated order, `signs` (order,) is the
    factor of its leaf values and `slots` (order,) the slot that they are added to.
    """

    sums: NDArray[np.floating]
    signs: NDArray[np.float64]
    slots: NDArray[np.int64]


class Workspace(NamedTuple):
    """Memory for intermediate results of the kernel.

    For a batch of queries: `split_masks` (query, 2, distinct split), the mask of each distinct
    split as `_encoded_mask` returns it.

    For one query and tree: a *set* of anchors has a node, a size, an order and the mask that it is
    split by. Half of these arrays and of `masks` is for the current level of the tree, the other
    half for the next; the last mask is that of the query's anchors. `pending` holds four lists of
    sets, by what is to be done with them. `leaf_sets` (set, 3) are sets that have reached a leaf:
    leaf, size, order, with their `leaf_masks` where each anchor has its own sum. `single_nodes`
    (anchor, 2) are single anchors: a node, and twice the anchor plus the order; `single_leaves` are
    the same with their leaves.

    `_sum_of_tree` uses `split_masks`, and `masks` and `set_size` with one row for each inner node.
    """

    split_masks: NDArray[np.int32]
    masks: NDArray[np.uint64]
    set_node: NDArray[np.int64]
    set_size: NDArray[np.int64]
    set_order: NDArray[np.int64]
    set_mask: NDArray[np.int64]
    pending: NDArray[np.int64]
    leaf_sets: NDArray[np.int64]
    leaf_masks: NDArray[np.uint64]
    single_nodes: NDArray[np.int64]
    single_leaves: NDArray[np.int64]


def _allocate_workspace(batch_size: int, n_distinct_splits: int, per_anchor: bool) -> Workspace:
    """Allocate memory for batches of queries; `per_anchor` where each anchor has its own sum."""

    def integers(*shape: int) -> NDArray[np.int64]:
        return np.empty(shape, dtype=np.int64)

    return Workspace(
        split_masks=np.empty((batch_size, 2, n_distinct_splits), dtype=np.int32),
        masks=np.empty((2 * _MAX_SETS + 1, MASK_WORDS), dtype=np.uint64),
        set_node=integers(2 * _MAX_SETS),
        set_size=integers(2 * _MAX_SETS),
        set_order=integers(2 * _MAX_SETS),
        set_mask=integers(2 * _MAX_SETS),
        pending=integers(4 * _MAX_SETS),
        leaf_sets=integers(_MAX_SETS, 3),
        leaf_masks=np.empty((_MAX_SETS if per_anchor else 0, MASK_WORDS), dtype=np.uint64),
        single_nodes=integers(_MAX_SETS, 2),
        single_leaves=integers(_MAX_SETS, 2),
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
    if len(trees.inner_nodes) and not per_anchor and out.sums.dtype == np.float64:
        work = _allocate_workspace(1, n_distinct, per_anchor)
        _add_counted_sums(trees, anchors, queries, out, compare_type, work)
        return
    batch_size = _BATCH_SIZE_DISTINCT if n_distinct else _BATCH_SIZE
    if trees.nodes.nbytes + trees.leaf_values.nbytes < _PROCESSOR_CACHE_BYTES:
        batch_size = 1
    work = _allocate_workspace(batch_size, n_distinct, per_anchor)
    _add_set_sums(trees, anchors, queries, out, batch_size, has_special, compare_type, work)


@inlined
def _rounded(value, compare_type):
    """Round `value` to the type of `compare_type`."""
    return np.float64(type(compare_type)(value))


# --- the anchors that meet a condition ----------------------------------------------------------


@compiled
def _encoded_mask(anchors, first_column, term, split, threshold, compare_type):
    """Return the mask of a split, for one query and one order of the pair.

    Twice its row in the table of masks, plus one where its anchors go right instead of left. That
    of a split that does not depend on the anchor has all anchors, the last row. `first_column` is
    the first column of the order, and `term` the term of the query.
    """
    all_left = 2 * (len(anchors.masks) - 1)
    column, missing_right = first_column + (split >> SPLIT_FLAG_BITS), split & 1
    record = field.COLUMN_FIELDS * column
    kind = read(anchors.columns, record + field.KIND)
    if term != term:
        return all_left + missing_right
    if kind == field.QUERY_ONLY:
        return all_left + (_rounded(term, compare_type) > threshold)
    if kind == field.CATEGORY:
        rank = _category_rank(anchors, record, term, threshold)
    else:
        rank = _level_rank(anchors, column, term, threshold, compare_type)
    # the first levels go left if the column increases with the anchor's value, else right
    decreasing = np.int64(kind == field.DECREASING)
    with_missing = (1 - missing_right) ^ decreasing
    row = read(anchors.columns, record + field.FIRST_MASK) + rank
    row += with_missing * read(anchors.columns, record + field.MISSING_OFFSET)
    return 2 * row + decreasing


@inlined
def _category_rank(anchors, record, category, threshold):
    """Return the index of a mask among those of a categorical feature.

    Anchors of the same category go left of a threshold from 0 on, all anchors from 1 on.
    """
    if threshold >= 1:
        return 1
    if threshold >= 0:
        start = read(anchors.columns, record + field.FIRST_LEVEL)
        for i in range(read(anchors.columns, record + field.N_LEVELS)):
            if read(anchors.levels, start + i) == category:
                return 2 + i
    return 0


@inlined
def _precedes(levels, index, term, sign, threshold, compare_type):
    """Return whether a level is one of the first: those at most, or above, the threshold."""
    value = _rounded(term + sign * read(levels, index), compare_type)
    return (value <= threshold) != (sign < 0)


@inlined
def _level_rank(anchors, column, term, threshold, compare_type):
    """Return how many levels precede the threshold: approximately by the grid, then exactly."""
    levels = anchors.levels
    record, scale = field.COLUMN_FIELDS * column, field.SCALE_FIELDS * column
    sign = read(anchors.scales, scale + field.SIGN)
    start = read(anchors.columns, record + field.FIRST_LEVEL)
    cell = sign * (threshold - term) - read(anchors.scales, scale + field.GRID_START)
    cell *= read(anchors.scales, scale + field.GRID_SCALE)
    # an infinite threshold may give NaN here, which is neither above 0 nor below the last cell
    cell = cell if cell > 0.0 else 0.0
    cell = cell if cell < field.GRID_SIZE - 1.0 else field.GRID_SIZE - 1.0
    first_cell = field.GRID_SIZE * read(anchors.columns, record + field.ROW_COLUMN)
    low = np.int64(read(anchors.grid, first_cell + np.int64(cell)))
    index = start + low
    # four independent comparisons, which the processor executes at once, suffice in most cases
    before = _precedes(levels, index - 1, term, sign, threshold, compare_type)
    first = _precedes(levels, index, term, sign, threshold, compare_type)
    second = _precedes(levels, index + 1, term, sign, threshold, compare_type)
    third = _precedes(levels, index + 2, term, sign, threshold, compare_type)
    if before and not third:
        return low + first + second
    low, high = 0, read(anchors.columns, record + field.N_LEVELS)
    while low < high:
        middle = (low + high) >> 1
        if _precedes(levels, start + middle, term, sign, threshold, compare_type):
            low = middle + 1
        else:
            high = middle
    return low


# --- sets of anchors, level by level --------------------------------------------------------------


@compiled
def _descend_as_sets(
    trees, root, anchors, terms, split_masks, n_orders, n_selected, compare_type, work
):
    """Take the anchors of one query down one tree, as sets, to leaves or until sets are small.

    Returns how many single anchors remain and how many sets have reached a leaf.

    All sets descend one level before the next level begins, and those that need the same operation
    are processed in one loop: so the processor can load the memory of many at once, and has few
    branches to predict. See `Workspace`, where the results are.
    """
    for order in range(n_orders):
        copy_mask(work.masks, _SELECTED, work.masks, order)
        _store_set(work, order, root, n_selected, order)
    current, n_sets, n_single, n_ended = 0, n_orders, 0, 0
    while n_sets:
        first_next = _MAX_SETS - current
        n_leaves, n_small, n_unsplit, n_split = _classify_sets(
            trees, anchors, terms.shape[1], current, n_sets, work
        )
        _find_masks(trees, anchors, terms, split_masks, n_split, compare_type, work)
        n_ended = _store_leaves(n_leaves, n_ended, work)
        n_single = _store_single_anchors(n_small, n_single, work)
        end = _pass_unsplit_sets(trees, terms, n_unsplit, first_next, compare_type, work)
        end = _split_sets(trees, anchors, n_split, end, work)
        current, n_sets = first_next, end - first_next
    return n_single, n_ended


@inlined
def _store_set(work, i, node, size, order):
    """Store set `i`, apart from its mask."""
    store(work.set_node, i, node)
    store(work.set_size, i, size)
    store(work.set_order, i, order)


@inlined
def _classify_sets(trees, anchors, n_columns, current, n_sets, work):
    """List the sets of a level by what is to be done with them; return the lengths of the lists."""
    n_leaves, n_small, n_unsplit, n_split = 0, 0, 0, 0
    for i in range(current, current + n_sets):
        split = np.int64(read(trees.nodes, 4 * read(work.set_node, i)))
        column = read(work.set_order, i) * n_columns + max(split >> SPLIT_FLAG_BITS, 0)
        leaf = split < 0
        small = (read(work.set_size, i) <= _SMALL_SET) & (not leaf)
        kind = read(anchors.columns, field.COLUMN_FIELDS * column + field.KIND)
        unsplit = (kind == field.QUERY_ONLY) & (not leaf) & (not small)
        store(work.pending, _LEAVES + n_leaves, i)
        n_leaves += leaf
        store(work.pending, _SMALL + n_small, i)
        n_small += small
        store(work.pending, _UNSPLIT + n_unsplit, i)
        n_unsplit += unsplit
        store(work.pending, _SPLIT + n_split, i)
        n_split += not (leaf | small | unsplit)
    return n_leaves, n_small, n_unsplit, n_split


@inlined
def _find_masks(trees, anchors, terms, split_masks, n_split, compare_type, work):
    """Find the masks that sets are split by, and load them into the processor's cache."""
    n_columns, n_distinct = terms.shape[1], split_masks.shape[1]
    for j in range(_SPLIT, _SPLIT + n_split):
        i = read(work.pending, j)
        node, order = read(work.set_node, i), read(work.set_order, i)
        if n_distinct:
            mask = np.int64(read(split_masks, order * n_distinct + read(trees.split_id, node)))
        else:
            split = np.int64(read(trees.nodes, 4 * node))
            term = read(terms, order * n_columns + (split >> SPLIT_FLAG_BITS))
            threshold = read(trees.thresholds, 2 * node + 1)
            mask = _encoded_mask(anchors, order * n_columns, term, split, threshold, compare_type)
        store(work.set_mask, i, mask)
        prefetch(anchors.masks, MASK_WORDS * (mask >> 1))
        prefetch(anchors.masks, MASK_WORDS * (mask >> 1) + MASK_WORDS // 2)


@inlined
def _store_leaves(n_leaves, n_ended, work):
    """Store sets that have reached a leaf; return how many there are now."""
    for j in range(_LEAVES, _LEAVES + n_leaves):
        i = read(work.pending, j)
        store(work.leaf_sets, 3 * n_ended, read(work.set_node, i))
        store(work.leaf_sets, 3 * n_ended + 1, read(work.set_size, i))
        store(work.leaf_sets, 3 * n_ended + 2, read(work.set_order, i))
        if len(work.leaf_masks):
            copy_mask(work.masks, i, work.leaf_masks, n_ended)
        n_ended += 1
    return n_ended


@inlined
def _store_single_anchors(n_small, n_single, work):
    """Store the anchors of small sets one by one; return how many there are now."""
    for j in range(_SMALL, _SMALL + n_small):
        i = read(work.pending, j)
        node, order = read(work.set_node, i), read(work.set_order, i)
        words = nonzero_words(work.masks, i)
        while words:
            w = lowest_bit(words)
            words &= words - np.uint64(1)
            word = read(work.masks, MASK_WORDS * i + w)
            while word:
                anchor = 64 * w + lowest_bit(word)
                store(work.single_nodes, 2 * n_single, node)
                store(work.single_nodes, 2 * n_single + 1, 2 * anchor + order)
                word &= word - np.uint64(1)
                n_single += 1
    return n_single


@inlined
def _pass_unsplit_sets(trees, terms, n_unsplit, end, compare_type, work):
    """Move sets that stay whole to the next level, from `end` on; return its new end."""
    for j in range(_UNSPLIT, _UNSPLIT + n_unsplit):
        i = read(work.pending, j)
        node, order = read(work.set_node, i), read(work.set_order, i)
        split = np.int64(read(trees.nodes, 4 * node))
        term = read(terms, order * terms.shape[1] + (split >> SPLIT_FLAG_BITS))
        threshold = read(trees.thresholds, 2 * node + 1)
        right = (_rounded(term, compare_type) > threshold) | ((term != term) & (split & 1 == 1))
        child = np.int64(read(trees.nodes, 4 * node + 1)) + right
        copy_mask(work.masks, i, work.masks, end)
        _store_set(work, end, child, read(work.set_size, i), order)
        prefetch(trees.nodes, 4 * child)
        end += 1
    return end


@inlined
def _split_sets(trees, anchors, n_split, end, work):
    """Split sets in two, which are on the next level from `end` on; return its new end."""
    for j in range(_SPLIT, _SPLIT + n_split):
        i = read(work.pending, j)
        order, size, mask = read(work.set_order, i), read(work.set_size, i), read(work.set_mask, i)
        child, inverted = np.int64(read(trees.nodes, 4 * read(work.set_node, i) + 1)), mask & 1
        prefetch(trees.nodes, 4 * child)
        inside = split_mask(work.masks, i, anchors.masks, mask >> 1, end, end + 1)
        _store_set(work, end, child + inverted, inside, order)
        # an empty set is overwritten by the other one
        if inside == 0:
            copy_mask(work.masks, end + 1, work.masks, end)
        end += inside > 0
        _store_set(work, end, child + 1 - inverted, size - inside, order)
        end += inside < size
    return end


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
            value = _rounded(read(terms, column) + sign * other, compare_type)
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
def _add_leaves(trees, q, output, queries, out, n_single, n_ended, work):
    """Add the values of the leaves that sets and single anchors of query `q` have reached."""
    positions, sums = queries.positions, out.sums
    n_slots, n_positions, n_outputs = sums.shape[1:]
    per_anchor = positions.shape[1] > 0
    first_position = q * positions.shape[1] if len(positions) > 1 else 0
    n_values = trees.leaf_values.shape[1]
    for k in range(max(n_values, 1)):
        for i in range(n_ended):
            leaf, order = read(work.leaf_sets, 3 * i), read(work.leaf_sets, 3 * i + 2)
            value = read(out.signs, order) * _leaf_value(trees, leaf, k)
            start = (q * n_slots + read(out.slots, order)) * n_positions * n_outputs + output + k
            if not per_anchor:
                _add(sums, start, value * read(work.leaf_sets, 3 * i + 1))
                continue
            words = nonzero_words(work.leaf_masks, i)
            while words:
                w = lowest_bit(words)
                words &= words - np.uint64(1)
                word = read(work.leaf_masks, MASK_WORDS * i + w)
                while word:
                    position = read(positions, first_position + 64 * w + lowest_bit(word))
                    _add(sums, start + position * n_outputs, value)
                    word &= word - np.uint64(1)
        for i in range(n_single):
            leaf = read(work.single_leaves, 2 * i)
            anchor_order = read(work.single_leaves, 2 * i + 1)
            order = anchor_order & 1
            position = 0
            if per_anchor:
                position = np.int64(read(positions, first_position + (anchor_order >> 1)))
            position += (q * n_slots + read(out.slots, order)) * n_positions
            value = read(out.signs, order) * _leaf_value(trees, leaf, k)
            _add(sums, position * n_outputs + output + k, value)


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
                work.split_masks[row, order, s] = _encoded_mask(
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
                row = q if n_selections > 1 else 0
                n_selected = queries.n_selected[row]
                if n_selected == 0:
                    continue
                copy_mask(queries.selected, row, work.masks, _SELECTED)
                terms = queries.terms[q]
                n_single, n_ended = _descend_as_sets(
                    trees, trees.roots[tree], anchors, terms, work.split_masks[q - start],
                    n_orders, n_selected, compare_type, work,
                )  # fmt: skip
                _descend_one_by_one(
                    trees, anchors, terms, n_single, has_special, compare_type, work
                )
                _add_leaves(trees, q, trees.outputs[tree], queries, out, n_single, n_ended, work)


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
