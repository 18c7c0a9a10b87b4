"""Conversion of trees into the flat arrays of the kernel.

Imported only where it is used, as loading numba takes a second.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.trees.compilation import entry_point
from twinned.models.trees.reader import Tree, TreeEnsemble, inclusive_threshold

# In the split of a node, the lowest bits are flags; the pair column is above them.
SPLIT_FLAG_BITS = 3
# Trees with at most this many inner nodes are evaluated in preorder for the mean over all anchors.
# The kernel writes the masks and sizes of leaves after those of the inner nodes, and does not read
# them.
MAX_INNER_NODES = 255
_LEAF = MAX_INNER_NODES
# Fields of a record of `PackedTrees.inner_nodes`.
SPLIT, LEFT, RIGHT, END = range(4)
# Boosting on binned features has few distinct splits in many trees. Where there are at most this
# many per inner node, they are evaluated once per query, before its trees. In a large tree, the
# sets of anchors of one query reach about 64 nodes only.
_SPLITS_PER_NODE, _REACHED_NODES = 0.6, 64
# Distinct splits are not searched among more inner nodes than this, as that needs memory.
_MAX_COMPARED_NODES = 1_000_000
# Bounds the packed trees that exist at once besides the model, at 16 bytes per node, or 37 where
# distinct splits are listed.
GROUP_NODES = 3_000_000


class PackedTrees(NamedTuple):
    """A group of trees as flat arrays.

    `nodes` (node, 4) holds the *split* of a node and its left *child*; the right child is the node
    after that. The split is the pair column, followed by `SPLIT_FLAG_BITS` flags, from the lowest
    bit: missing values go right, the left child is a leaf, the right child is a leaf. The other
    half of the same memory is the second column of `thresholds` (node, 2), so that a node is one
    memory access. The split of a leaf is −1. Its value is stored instead of a threshold; where a
    leaf has several values, its child is their row in `leaf_values` (leaf, value), else (0, 0).
    Tree t starts at `roots[t]` and adds to the outputs from `outputs[t]` on.

    `split_id` (node,) is the index of a node's split among the distinct ones, `distinct_split` and
    `distinct_threshold`, which are sorted by pair column; those of column c start at
    `column_starts[c]`. All four are empty where there are too many to evaluate them beforehand.

    `inner_nodes` (inner node, 4) lists the inner nodes of each tree in preorder, those of tree t
    from `inner_starts[t]` on: `SPLIT`, the index of its split; `LEFT` and `RIGHT`, its children;
    `END`, the node after its last descendant. Nodes are counted from the root, and `_LEAF` stands
    for a leaf, whose value is in `inner_values` (inner node, 2); the value of other children is 0.
    A tree without a split has one such node, with its value on both sides. All three are empty
    where trees are not evaluated in preorder.
    """

    nodes: NDArray[np.int32]
    thresholds: NDArray[np.float64]
    leaf_values: NDArray[np.float64]
    roots: NDArray[np.int64]
    outputs: NDArray[np.int64]
    split_id: NDArray[np.int32]
    distinct_split: NDArray[np.int32]
    distinct_threshold: NDArray[np.float64]
    column_starts: NDArray[np.int64]
    inner_nodes: NDArray[np.int32]
    inner_values: NDArray[np.float64]
    inner_starts: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Memory in bytes; the thresholds share that of the nodes."""
        return sum(array.nbytes for array in self) - self.thresholds.nbytes


def group_trees(ensemble: TreeEnsemble) -> Iterator[list[Tree]]:
    """Yield the trees in order, in groups of one or more with at most `GROUP_NODES` nodes."""
    group: list[Tree] = []
    n_nodes = 0
    for tree in ensemble.trees:
        if group and n_nodes + tree.n_nodes > GROUP_NODES:
            yield group
            group, n_nodes = [], 0
        group.append(tree)
        n_nodes += tree.n_nodes
    yield group


def pack_trees(group: list[Tree], value_type: np.dtype[np.floating]) -> PackedTrees:
    """Pack trees that compare values of `value_type`."""
    sizes = np.array([tree.n_nodes for tree in group])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    # a binary tree of n nodes has (n + 1) / 2 leaves
    leaf_starts = np.concatenate([[0], np.cumsum((sizes + 1) // 2)])
    nodes = np.zeros((starts[-1], 4), dtype=np.int32)
    thresholds = nodes.view(np.float64)
    n_values = group[0].value.shape[1]
    leaf_values = np.empty((leaf_starts[-1], n_values) if n_values > 1 else (0, 0))
    stack = np.empty((sizes.max() + 1, 2), dtype=np.int64)
    for tree, start, first_leaf in zip(group, starts, leaf_starts, strict=False):
        links = (tree.feature, tree.left, tree.right, tree.missing_left)
        _flatten_tree(
            *(np.ascontiguousarray(array, dtype=np.int64) for array in links),
            inclusive_threshold(tree.threshold, value_type).astype(np.float64),
            np.ascontiguousarray(tree.value * tree.scale),
            (start, first_leaf),
            (nodes, thresholds, leaf_values),
            stack,
        )
    n_reached = int(np.minimum(sizes // 2, _REACHED_NODES).sum())
    split_id, distinct_split, distinct_threshold, column_starts = _distinct_splits(
        nodes[:, 0], thresholds[:, 1], n_reached
    )
    inner_nodes, inner_values, inner_starts = _inner_nodes(
        nodes, thresholds, starts, split_id, n_values
    )
    return PackedTrees(
        nodes=nodes,
        thresholds=thresholds,
        leaf_values=leaf_values,
        roots=starts[:-1],
        outputs=np.array([tree.output for tree in group]),
        split_id=split_id,
        distinct_split=distinct_split,
        distinct_threshold=distinct_threshold,
        column_starts=column_starts,
        inner_nodes=inner_nodes,
        inner_values=inner_values,
        inner_starts=inner_starts,
    )


# Types are those that numba infers from the arguments of each call.
@entry_point
def _flatten_tree(feature, left, right, missing_left, threshold, value, starts, packed, stack):
    """Write one tree to the arrays of `PackedTrees`, from a node and a leaf on.

    Depth first, the two children of a node side by side: nodes that are visited together are near
    each other in memory. `stack` (node, 2) is memory for nodes that are still to be written.
    """
    nodes, thresholds, leaf_values = packed
    start, leaf = starts
    stack[0, 0], stack[0, 1] = 0, start
    n_stack, end = 1, start + 1
    while n_stack:
        n_stack -= 1
        node, target = stack[n_stack, 0], stack[n_stack, 1]
        if left[node] < 0:
            nodes[target, 0] = -1
            nodes[target, 1] = leaf
            if leaf_values.shape[1]:
                for k in range(leaf_values.shape[1]):
                    leaf_values[leaf, k] = value[node, k]
            else:
                thresholds[target, 1] = value[node, 0]
            leaf += 1
            continue
        leaf_flags = 2 * (left[left[node]] < 0) + 4 * (left[right[node]] < 0)
        flags = leaf_flags + (not missing_left[node])
        nodes[target, 0] = (feature[node] << SPLIT_FLAG_BITS) + flags
        nodes[target, 1] = end
        thresholds[target, 1] = threshold[node]
        stack[n_stack, 0], stack[n_stack, 1] = right[node], end + 1
        stack[n_stack + 1, 0], stack[n_stack + 1, 1] = left[node], end
        n_stack += 2
        end += 2


def _distinct_splits(
    splits: NDArray[np.int32], thresholds: NDArray[np.float64], n_reached: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
    """Return the index of each node's split; the distinct splits and thresholds; column starts.

    All are empty where it is faster to evaluate the `n_reached` nodes of a query one by one.
    """
    inner = np.flatnonzero(splits >= 0)
    # the flags that mark leaves are not part of the comparison
    split, threshold = splits[inner] & ~6, thresholds[inner]
    most = _SPLITS_PER_NODE * n_reached
    empty = np.zeros(0, dtype=np.int32)
    none = empty, empty, np.zeros(0), np.zeros(0, dtype=np.int64)
    if len(inner) > _MAX_COMPARED_NODES or len(np.unique(threshold)) > most:
        return none
    order = np.lexsort([split & 1, threshold, split >> SPLIT_FLAG_BITS])
    split, threshold = split[order], threshold[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (split[1:] != split[:-1]) | (threshold[1:] != threshold[:-1])
    if new.sum() > most:
        return none
    split_id = np.full(len(splits), -1, dtype=np.int32)
    split_id[inner[order]] = np.cumsum(new) - 1
    per_column = np.bincount(split[new] >> SPLIT_FLAG_BITS)
    return split_id, split[new], threshold[new], np.concatenate([[0], np.cumsum(per_column)])


def _inner_nodes(
    nodes: NDArray[np.int32],
    thresholds: NDArray[np.float64],
    starts: NDArray[np.int64],
    split_id: NDArray[np.int32],
    n_values: int,
) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.int64]]:
    """Return the inner nodes of small trees, their values and starts, as in `PackedTrees`.

    All are empty where trees are not evaluated in preorder: large trees, leaves with several
    values, nodes that no path reaches, trees without a split, and splits that are evaluated one by
    one.
    """
    none = np.zeros((0, 4), dtype=np.int32), np.zeros((0, 2)), np.zeros(0, dtype=np.int64)
    n_inner = np.maximum(np.diff(starts) // 2, 1)
    if not (split_id >= 0).any() or n_values > 1 or n_inner.max() > MAX_INNER_NODES:
        return none
    inner_starts = np.concatenate([[0], np.cumsum(n_inner)])
    inner_nodes = np.empty((inner_starts[-1], 4), dtype=np.int32)
    inner_values = np.zeros((inner_starts[-1], 2))
    stack = np.empty((n_inner.max() + 1, 2), dtype=np.int64)
    for tree in range(len(n_inner)):
        rows = slice(inner_starts[tree], inner_starts[tree + 1])
        is_complete = _list_inner_nodes(
            nodes, thresholds, split_id, starts[tree], inner_nodes[rows], inner_values[rows], stack
        )
        if not is_complete:
            return none
    return inner_nodes, inner_values, inner_starts


@entry_point
def _list_inner_nodes(nodes, thresholds, split_id, root, inner_nodes, inner_values, stack):
    """Write the inner nodes of one tree in preorder, with its part of the arrays of `PackedTrees`.

    Returns whether it has as many as there are rows. `stack` (node, 2) is memory for nodes that are
    still to be written: a node, and twice its parent among the inner nodes, plus one for a right
    child.
    """
    if nodes[root, 0] < 0:
        inner_nodes[0, SPLIT], inner_nodes[0, END] = 0, 1  # by element, as numba 0.61 needs it
        inner_nodes[0, LEFT:END] = _LEAF
        inner_values[0] = thresholds[root, 1]
        return len(inner_nodes) == 1
    stack[0, 0], stack[0, 1] = root, -1
    n_stack, i = 1, 0
    while n_stack and i < len(inner_nodes):
        n_stack -= 1
        node, parent_side = stack[n_stack, 0], stack[n_stack, 1]
        if parent_side >= 0:
            inner_nodes[parent_side >> 1, LEFT + (parent_side & 1)] = i
        inner_nodes[i, SPLIT] = split_id[node]
        for side in (1, 0):
            child = nodes[node, 1] + side
            inner_nodes[i, LEFT + side] = _LEAF
            if nodes[child, 0] < 0:
                inner_values[i, side] = thresholds[child, 1]
            else:
                stack[n_stack, 0], stack[n_stack, 1] = child, 2 * i + side
                n_stack += 1
        i += 1
    if n_stack or i < len(inner_nodes):
        return False
    for k in range(i - 1, -1, -1):
        end = k + 1
        for child in inner_nodes[k, LEFT:END]:
            if child != _LEAF:
                end = max(end, inner_nodes[child, END])
        inner_nodes[k, END] = end
    return True
