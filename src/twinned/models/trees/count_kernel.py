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
from twinned.models.trees.kernel import ALL_RIGHT, encoded_mask
from twinned.models.trees.kernel_types import MASK_WORDS
from twinned.models.trees.llvm_intrinsics import (
    copy_mask,
    load,
    split_half_mask,
    split_mask,
    store,
)


@compiled
def _find_masks(trees, anchors, terms, q, n_orders, compare_type, masks):
    """Write the masks of all distinct splits for query `q` to `masks` (order, split).

    Those of the query before it are there, and the same where it has the same terms: an anchor's
    own value, for example, has no term of the query.
    """
    n_columns, all_anchors = terms.shape[2], len(anchors.masks) - 1
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
                if mask < 0:
                    mask = 2 * all_anchors + (mask == ALL_RIGHT)
                masks[order, s] = mask


@compiled
def _sum_of_tree(inner_nodes, inner_values, start, end, masks, first_mask, anchors, halves, work):
    """Return the sum of the leaf values of all anchors, whose mask and number are those of node 0.

    `inner_nodes[start:end]` is the tree and `masks[first_mask:]` the masks of its splits.
    """
    counts = work.set_size
    total, node = 0.0, 0
    while node < end - start:
        size, record = load(counts, node), 4 * (start + node)
        if size == 0:
            node = np.int64(load(inner_nodes, record + 3))
            continue
        mask = np.int64(load(masks, first_mask + np.int64(load(inner_nodes, record))))
        # the anchors of the mask go to the left child, or to the right one
        side = mask & 1
        child = np.int64(load(inner_nodes, record + 1 + side))
        other_child = np.int64(load(inner_nodes, record + 2 - side))
        if halves:
            inside = split_half_mask(work.masks, node, anchors.masks, mask >> 1, child, other_child)
        else:
            inside = split_mask(work.masks, node, anchors.masks, mask >> 1, child, other_child)
        store(counts, child, inside)
        store(counts, other_child, size - inside)
        value = 2 * (start + node)
        total += load(inner_values, value + side) * inside
        total += load(inner_values, value + 1 - side) * (size - inside)
        node += 1
    return total


@entry_point
def add_counted_sums(trees, anchors, queries, out, compare_type, work):
    """Add the leaf values of all trees, for all queries with all anchors, to `out.sums`.

    The arguments are `PackedTrees`, `AnchorMasks`, `QueryBatch`, `LeafSums`, any number of the type
    in which values are compared, and a `Workspace` for one query.
    """
    n_orders, n_anchors = len(out.signs), len(anchors.values)
    halves = 2 * n_anchors <= 64 * MASK_WORDS
    masks, n_distinct = work.split_masks[0], work.split_masks.shape[2]
    copy_mask(queries.selected, 0, work.masks, 0)
    work.set_size[0] = n_anchors
    for q in range(len(queries.terms)):
        _find_masks(trees, anchors, queries.terms, q, n_orders, compare_type, masks)
        for order in range(n_orders):
            for tree in range(len(trees.roots)):
                total = _sum_of_tree(
                    trees.inner_nodes, trees.inner_values, trees.inner_starts[tree],
                    trees.inner_starts[tree + 1], masks, order * n_distinct, anchors, halves, work,
                )  # fmt: skip
                slot, output = out.slots[order], trees.outputs[tree]
                out.sums[q, slot, 0, output] += out.signs[order] * total
