"""Sums of the predictions of small trees over all anchors, compiled: anchors are only counted.

As in `kernel`, all anchors of a query descend a tree together, as sets. Where only the sum over
the anchors is wanted, a leaf needs the number of its anchors. The inner nodes of a tree are
processed in preorder, which takes few instructions for each and no lists of sets.

Imported only where it is used, as loading numba takes a second.
"""

# mypy: ignore-errors
# Types are those that numba infers from the arguments of each call.

from __future__ import annotations

import numpy as np

from twinned.models.trees.compilation import compiled, entry_point
from twinned.models.trees.kernel import encoded_mask, mask_or_all
from twinned.models.trees.kernel_types import END, LEFT, MAX_ANCHORS, RIGHT, SPLIT
from twinned.models.trees.llvm_intrinsics import (
    copy_mask,
    load,
    split_half_mask,
    split_mask,
    store,
)


@compiled
def _update_masks(trees, anchors, terms, q, n_orders, compare_type, masks):
    """Write the masks of all distinct splits for query `q` to `masks` (order, split).

    It holds those of the query before; columns with an equal term retain theirs. An anchor's own
    value, for example, has the same term for all queries; NaN is not equal to itself.
    """
    n_columns = terms.shape[2]
    for order in range(n_orders):
        for column in range(len(trees.column_starts) - 1):
            term = terms[q, order, column]
            if q > 0 and term == terms[q - 1, order, column]:
                continue
            for s in range(trees.column_starts[column], trees.column_starts[column + 1]):
                split, threshold = np.int64(trees.distinct_split[s]), trees.distinct_threshold[s]
                mask = encoded_mask(
                    anchors, order * n_columns, term, split, threshold, compare_type
                )
                masks[order, s] = mask_or_all(mask, anchors)


@compiled
def _sum_of_tree(inner_nodes, inner_values, start, end, masks, first_mask, anchors, halves, work):
    """Return the sum of the leaf values of all anchors.

    `inner_nodes[start:end]` is the tree, and `masks[first_mask:]` are the masks of the splits. The
    first rows of `work.masks` and `work.set_size` are the mask and the number of all anchors.
    """
    counts = work.set_size
    total, node = 0.0, 0
    while node < end - start:
        size, record = load(counts, node), 4 * (start + node)
        if size == 0:
            node = np.int64(load(inner_nodes, record + END))
            continue
        mask = np.int64(load(masks, first_mask + np.int64(load(inner_nodes, record + SPLIT))))
        # the anchors of the mask go to the left child, or to the right one
        side = mask & 1
        child = np.int64(load(inner_nodes, record + LEFT + side))
        other_child = np.int64(load(inner_nodes, record + RIGHT - side))
        if halves:
            inside = split_half_mask(work.masks, node, anchors.masks, mask >> 1, child, other_child)
        else:
            inside = split_mask(work.masks, node, anchors.masks, mask >> 1, child, other_child)
        store(counts, child, inside)
        store(counts, other_child, size - inside)
        # the value of a child that is no leaf is 0, which is faster than a test
        value = 2 * (start + node)
        total += load(inner_values, value + side) * inside
        total += load(inner_values, value + 1 - side) * (size - inside)
        node += 1
    return total


@entry_point
def add_counted_sums(trees, anchors, queries, out, compare_type, work):
    """Add the leaf values of all trees, for all queries with all anchors, to `out.sums`.

    The arguments are `PackedTrees`, `AnchorMasks`, a `QueryBatch` that selects all anchors,
    `LeafSums` of one position, any number of the type in which values are compared, and a
    `Workspace` for one query.
    """
    n_orders, n_anchors = len(out.signs), len(anchors.values)
    halves = n_anchors <= MAX_ANCHORS // 2
    masks, n_distinct = work.split_masks[0], work.split_masks.shape[2]
    copy_mask(queries.selected, 0, work.masks, 0)
    work.set_size[0] = n_anchors
    for q in range(len(queries.terms)):
        _update_masks(trees, anchors, queries.terms, q, n_orders, compare_type, masks)
        for order in range(n_orders):
            for tree in range(len(trees.roots)):
                total = _sum_of_tree(
                    trees.inner_nodes, trees.inner_values, trees.inner_starts[tree],
                    trees.inner_starts[tree + 1], masks, order * n_distinct, anchors, halves, work,
                )  # fmt: skip
                slot, output = out.slots[order], trees.outputs[tree]
                out.sums[q, slot, 0, output] += out.signs[order] * total
