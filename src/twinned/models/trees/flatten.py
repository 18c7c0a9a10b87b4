"""Conversion of one tree into flat arrays, compiled; imported only when trees are packed."""

# mypy: ignore-errors
# Types are those that numba infers from the arguments of each call.

from __future__ import annotations

from twinned.models.trees.compilation import entry_point
from twinned.models.trees.kernel_types import SPLIT_FLAG_BITS


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
