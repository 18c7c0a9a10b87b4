"""A tree as a row of nodes, compiled; loaded only when trees are packed."""

# mypy: ignore-errors
# Types are what numba infers from the arguments of each call.

from __future__ import annotations

from twinned.models.trees.llvm_intrinsics import compiled
from twinned.models.trees.packed import COLUMN_BITS


@compiled
def unroll(
    feature, threshold, left, right, missing_left, value, start, first_leaf, nodes, packed,
    leaf_value, waiting,
):  # fmt: skip
    """Write one tree to `nodes`, `packed` and `leaf_value` from `start` and `first_leaf` on.

    See `Packed`, whose thresholds `packed` are. The two children of a node lie side by side, then
    all under the left one, then all under the right one: what is visited together lies together.
    `waiting` (n_nodes, 2) is memory to work in.
    """
    waiting[0, 0], waiting[0, 1] = 0, start
    n_waiting, end, leaf = 1, start + 1, first_leaf
    while n_waiting:
        n_waiting -= 1
        node, place = waiting[n_waiting, 0], waiting[n_waiting, 1]
        if left[node] < 0:
            nodes[place, 0] = -1
            nodes[place, 1] = leaf
            if leaf_value.shape[1]:
                for k in range(leaf_value.shape[1]):
                    leaf_value[leaf, k] = value[node, k]
            else:
                packed[place, 1] = value[node, 0]
            leaf += 1
            continue
        ends = 2 * (left[left[node]] < 0) + 4 * (left[right[node]] < 0)
        nodes[place, 0] = (feature[node] << COLUMN_BITS) + ends + (not missing_left[node])
        nodes[place, 1] = end
        packed[place, 1] = threshold[node]
        waiting[n_waiting, 0], waiting[n_waiting, 1] = right[node], end + 1
        waiting[n_waiting + 1, 0], waiting[n_waiting + 1, 1] = left[node], end
        n_waiting += 2
        end += 2
