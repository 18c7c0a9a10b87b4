"""Trees packed for the kernel: one record a node, children side by side, splits made alike.

Every comparison becomes `value ≤ threshold` in the type of the value. `x < t` is `x ≤` the number
just under t; a float32 value lies at or under a float64 threshold where it lies at or under the
largest float32 that does not exceed it. Both are exact, so no tie moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.trees.reader import Tree, Trees

# Learners that bin their input ask few distinct questions in many trees. Where there are at most
# this many of them for each inner node, they are answered once for a query, before its trees. Of a
# large tree, one query's sets of anchors come by so many nodes only.
_RULES_PER_NODE, _REACHED = 0.6, 64
_MOST_RULED = 1_000_000  # ... which is not looked for among more inner nodes, as that takes memory
COLUMN_BITS = 3
# Bounds the packed trees that exist at once beside the model, at 16 bytes a node.
GROUP_NODES = 3_000_000


class Packed(NamedTuple):
    """A group of trees as flat arrays.

    `nodes` (n_nodes, 4) holds a node's *split* and its left *child*, after which the right child
    comes. The split is the pair column, followed by `COLUMN_BITS` bits, from the lowest: whether
    missing values go right, and whether the left and the right child are leaves. The other half of
    that memory is the second column of `threshold` (n_nodes, 2), so that one look fetches all of a
    node. A leaf's split is −1; it has its value in the place of a threshold, or, where it has
    several, its child is their row in `leaf_value` (n_leaves, n_values), else (0, 0). A tree
    starts at `roots[tree]` and adds to the outputs from `outputs[tree]` on. `rule` (n_nodes,) says
    which of the distinct questions `rule_split`, `rule_threshold` (n_rules,) a node asks; all three
    are empty where the questions are too many for this to pay.
    """

    nodes: NDArray[np.int32]
    threshold: NDArray[np.float64]
    leaf_value: NDArray[np.float64]
    roots: NDArray[np.int64]
    outputs: NDArray[np.int64]
    rule: NDArray[np.int32]
    rule_split: NDArray[np.int32]
    rule_threshold: NDArray[np.float64]

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self) - self.threshold.nbytes


def groups(trees: Trees) -> Iterator[list[Tree]]:
    """The trees in their order, as many at a time as make up `GROUP_NODES` nodes."""
    group: list[Tree] = []
    n_nodes = 0
    for tree in trees.trees:
        if group and n_nodes + tree.n_nodes > GROUP_NODES:
            yield group
            group, n_nodes = [], 0
        group.append(tree)
        n_nodes += tree.n_nodes
    yield group


def pack(group: list[Tree], value_type: np.dtype[Any], strict: bool) -> Packed:
    """Pack some trees whose splits compare values of `value_type`, by `<` where `strict`."""
    from twinned.models.trees.unroll import unroll

    sizes = np.array([tree.n_nodes for tree in group])
    starts = np.concatenate([[0], np.cumsum(sizes)])
    # a binary tree of n nodes has (n + 1) / 2 leaves
    leaf_starts = np.concatenate([[0], np.cumsum((sizes + 1) // 2)])
    nodes = np.zeros((starts[-1], 4), dtype=np.int32)
    threshold = nodes.view(np.float64)
    n_values = group[0].value.shape[1]
    leaf_value = np.empty((leaf_starts[-1], n_values) if n_values > 1 else (0, 0))
    waiting = np.empty((sizes.max() + 1, 2), dtype=np.int64)
    for tree, start, first_leaf in zip(group, starts, leaf_starts, strict=False):
        unroll(
            np.ascontiguousarray(tree.feature, dtype=np.int64),
            at_most(tree.threshold, value_type, strict).astype(np.float64),
            np.ascontiguousarray(tree.left, dtype=np.int64),
            np.ascontiguousarray(tree.right, dtype=np.int64),
            np.ascontiguousarray(tree.missing_left, dtype=bool),
            np.ascontiguousarray(tree.value * tree.scale),
            start,
            first_leaf,
            nodes,
            threshold,
            leaf_value,
            waiting,
        )
    return Packed(
        nodes,
        threshold,
        leaf_value,
        starts[:-1],
        np.array([tree.output for tree in group]),
        *_distinct_rules(nodes[:, 0], threshold[:, 1], int(np.minimum(sizes // 2, _REACHED).sum())),
    )


def at_most(threshold: NDArray[Any], value_type: np.dtype[Any], strict: bool) -> NDArray[Any]:
    """The t for which `value ≤ t` asks the same as `value ≤ threshold` (`<` where `strict`).

    >>> at_most(np.array([0.1]), np.dtype(np.float32), strict=False) <= 0.1
    array([ True])
    """
    with np.errstate(over="ignore"):  # what is infinite then is brought back below
        near = threshold.astype(value_type)
    too_high = near >= threshold if strict else near > threshold
    return np.where(too_high, np.nextafter(near, value_type.type(-np.inf)), near)


def _distinct_rules(
    splits: NDArray[np.int32], thresholds: NDArray[np.float64], n_reached: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.float64]]:
    """Which rule each of these nodes asks, and the rules, sorted by column, then by threshold.

    Nothing, where `n_reached` nodes, which a query comes by, are quicker asked one by one.
    """
    inner = np.flatnonzero(splits >= 0)
    # what the children are is not part of the question
    split, threshold = splits[inner] & ~6, thresholds[inner]
    most = _RULES_PER_NODE * n_reached
    nothing = np.zeros(0, dtype=np.int32)
    if len(inner) > _MOST_RULED or len(np.unique(threshold)) > most:
        return nothing, nothing, np.zeros(0)
    order = np.lexsort([split & 1, threshold, split >> COLUMN_BITS])
    split, threshold = split[order], threshold[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (split[1:] != split[:-1]) | (threshold[1:] != threshold[:-1])
    if new.sum() > most:
        return nothing, nothing, np.zeros(0)
    rule = np.full(len(splits), -1, dtype=np.int32)
    rule[inner[order]] = np.cumsum(new) - 1
    return rule, split[new], threshold[new]
