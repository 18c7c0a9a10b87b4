"""Descent of sets of anchors through one tree, level by level, compiled.

Sets of few anchors go on anchor by anchor. See `Workspace`, where the results are.
"""

# mypy: ignore-errors
# Types of compiled functions are those that numba infers from the arguments of each call.

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.trees import anchor_masks as field
from twinned.models.trees.anchor_masks import MASK_WORDS, MAX_ANCHORS
from twinned.models.trees.compilation import (
    compiled,
    copy_mask,
    inlined,
    lowest_bit,
    nonzero_words,
    prefetch,
    read,
    split_mask,
    store,
)
from twinned.models.trees.conditions import encoded_mask, rounded
from twinned.models.trees.packing import SPLIT_FLAG_BITS

# At most, each anchor is a set of its own in both orders of the pair; splitting a set needs two
# more.
MAX_SETS = 2 * MAX_ANCHORS + 2
# Anchors of sets up to this size descend the rest of the tree one by one.
SMALL_SET = 4
# Rows of `Workspace.masks` after those of the sets.
SELECTED = 2 * MAX_SETS
# Lists of sets in `Workspace.pending`.
_LEAVES, _SMALL, _UNSPLIT, _SPLIT = 0, MAX_SETS, 2 * MAX_SETS, 3 * MAX_SETS


class Workspace(NamedTuple):
    """Memory for intermediate results of the kernel.

    For a batch of queries: `split_masks` (query, 2, distinct split), the mask of each distinct
    split as `encoded_mask` returns it.

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


def allocate_workspace(batch_size: int, n_distinct_splits: int, per_anchor: bool) -> Workspace:
    """Allocate memory for batches of queries; `per_anchor` where each anchor has its own sum."""

    def integers(*shape: int) -> NDArray[np.int64]:
        return np.empty(shape, dtype=np.int64)

    return Workspace(
        split_masks=np.empty((batch_size, 2, n_distinct_splits), dtype=np.int32),
        masks=np.empty((2 * MAX_SETS + 1, MASK_WORDS), dtype=np.uint64),
        set_node=integers(2 * MAX_SETS),
        set_size=integers(2 * MAX_SETS),
        set_order=integers(2 * MAX_SETS),
        set_mask=integers(2 * MAX_SETS),
        pending=integers(4 * MAX_SETS),
        leaf_sets=integers(MAX_SETS, 3),
        leaf_masks=np.empty((MAX_SETS if per_anchor else 0, MASK_WORDS), dtype=np.uint64),
        single_nodes=integers(MAX_SETS, 2),
        single_leaves=integers(MAX_SETS, 2),
    )


@compiled
def descend_as_sets(
    trees, root, anchors, terms, split_masks, n_orders, n_selected, compare_type, work
):
    """Take the anchors of one query down one tree, as sets, to leaves or until sets are small.

    Returns how many single anchors remain and how many sets have reached a leaf.

    All sets descend one level before the next level begins, and those that need the same operation
    are processed in one loop: so the processor can load the memory of many at once, and has few
    branches to predict. See `Workspace`, where the results are.
    """
    for order in range(n_orders):
        copy_mask(work.masks, SELECTED, work.masks, order)
        _store_set(work, order, root, n_selected, order)
    current, n_sets, n_single, n_ended = 0, n_orders, 0, 0
    while n_sets:
        first_next = MAX_SETS - current
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
        small = (read(work.set_size, i) <= SMALL_SET) & (not leaf)
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
            mask = encoded_mask(anchors, order * n_columns, term, split, threshold, compare_type)
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
        right = (rounded(term, compare_type) > threshold) | ((term != term) & (split & 1 == 1))
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
def descend_one_by_one(trees, anchors, terms, n_single, has_special, compare_type, work):
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
def add_leaves(trees, q, output, queries, out, n_single, n_ended, work):
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
