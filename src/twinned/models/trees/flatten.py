"""Conversion of trees into flat arrays, compiled; imported only when trees are packed."""

# mypy: ignore-errors
# Types are those that numba infers from the arguments of each call.

from __future__ import annotations

from twinned.models.trees.compilation import entry_point
from twinned.models.trees.kernel_types import END, LEAF, LEFT, SPLIT, SPLIT_FLAG_BITS


@entry_point
def flatten_tree(
    feature, threshold, left, right, missing_left, value, start, first_leaf, nodes, thresholds,
    leaf_values, stack,
):  # fmt: skip
    """Write one tree to the arrays of `PackedTrees`, from node `start` and `first_leaf` on.

    Depth first, the two children of a node side by side: nodes that are visited together are near
    each other in memory. `stack` (node, 2) is memory for nodes that are still to be written.
    """
    stack[0, 0], stack[0, 1] = 0, start
    n_stack, end, leaf = 1, start + 1, first_leaf
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


@entry_point
def list_inner_nodes(nodes, thresholds, split_id, root, inner_nodes, inner_values, stack):
    """Write the inner nodes of one tree in preorder, with its part of the arrays of `PackedTrees`.

    Returns whether it has as many as there are rows. `stack` (node, 2) is memory for nodes that are
    still to be written: a node, and twice its parent among the inner nodes, plus one for a right
    child.
    """
    if nodes[root, 0] < 0:
        inner_nodes[0] = 0, LEAF, LEAF, 1
        inner_values[0] = thresholds[root, 1]
        return len(inner_nodes) == 1
    stack[0, 0], stack[0, 1] = root, -1
    n_stack, i = 1, 0
    while n_stack and i < len(inner_nodes):
        n_stack -= 1
        node, parent_side = stack[n_stack]
        if parent_side >= 0:
            inner_nodes[parent_side >> 1, LEFT + (parent_side & 1)] = i
        inner_nodes[i, SPLIT] = split_id[node]
        for side in (1, 0):
            child = nodes[node, 1] + side
            inner_nodes[i, LEFT + side] = LEAF
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
            if child != LEAF:
                end = max(end, inner_nodes[child, END])
        inner_nodes[k, END] = end
    return True
