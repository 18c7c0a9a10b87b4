"""Conversion of trees into the flat arrays of the kernel.

Every comparison becomes `value ≤ threshold` in the type of the value. `x < t` is `x ≤` the largest
number below t; a float32 value is at most a float64 threshold where it is at most the largest
float32 that does not exceed it. Both are exact, so ties go the same way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinned.models.trees.ensemble import Tree, TreeEnsemble
from twinned.models.trees.kernel_types import MAX_INNER_NODES, SPLIT_FLAG_BITS, PackedTrees

# Boosting on binned features has few distinct splits in many trees. Where there are at most this
# many per inner node, they are evaluated once per query, before its trees. In a large tree, the
# sets of anchors of one query reach about 64 nodes only.
_SPLITS_PER_NODE, _REACHED_NODES = 0.6, 64
# Distinct splits are not searched among more inner nodes than this, as that needs memory.
_MAX_COMPARED_NODES = 1_000_000
# Bounds the packed trees that exist at once besides the model, at 16 bytes per node, or 37 where
# distinct splits are listed.
GROUP_NODES = 3_000_000


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


def pack_trees(group: list[Tree], value_type: np.dtype[Any], strict: bool) -> PackedTrees:
    """Pack trees that compare values of `value_type`, by `<` where `strict`."""
    from twinned.models.trees.flatten import flatten_tree

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
        flatten_tree(
            np.ascontiguousarray(tree.feature, dtype=np.int64),
            inclusive_threshold(tree.threshold, value_type, strict).astype(np.float64),
            np.ascontiguousarray(tree.left, dtype=np.int64),
            np.ascontiguousarray(tree.right, dtype=np.int64),
            np.ascontiguousarray(tree.missing_left, dtype=bool),
            np.ascontiguousarray(tree.value * tree.scale),
            start,
            first_leaf,
            nodes,
            thresholds,
            leaf_values,
            stack,
        )
    n_reached = int(np.minimum(sizes // 2, _REACHED_NODES).sum())
    splits = _distinct_splits(nodes[:, 0], thresholds[:, 1], n_reached)
    return PackedTrees(
        nodes,
        thresholds,
        leaf_values,
        starts[:-1],
        np.array([tree.output for tree in group]),
        *splits,
        *_inner_nodes(nodes, thresholds, starts, splits[0], n_values),
    )


def inclusive_threshold(
    threshold: NDArray[Any], value_type: np.dtype[Any], strict: bool
) -> NDArray[Any]:
    """Return t such that `value ≤ t` is the same as `value ≤ threshold` (`<` where `strict`).

    >>> inclusive_threshold(np.array([0.1]), np.dtype(np.float32), strict=False) <= 0.1
    array([ True])
    """
    with np.errstate(over="ignore"):  # infinite values are corrected below
        near = threshold.astype(value_type)
    too_high = near >= threshold if strict else near > threshold
    return np.where(too_high, np.nextafter(near, value_type.type(-np.inf)), near)


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

    All are empty where `count_kernel` is not used: for large trees, leaves with several values and
    nodes that no path reaches, where no tree has a split, and where splits are evaluated one by
    one.
    """
    from twinned.models.trees.flatten import list_inner_nodes

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
        if not list_inner_nodes(
            nodes, thresholds, split_id, starts[tree], inner_nodes[rows], inner_values[rows], stack
        ):
            return none
    return inner_nodes, inner_values, inner_starts
