"""Decision trees and their ensembles, as read from any library."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


class UnreadableTreesError(Exception):
    """A library stores its trees in a way that this version of the readers does not know."""


class Tree(NamedTuple):
    """One decision tree, in the arrays of its library (views where possible).

    All arrays are (node,), except `value` (node, n_values). `left` is negative at leaves. A missing
    value goes left where `missing_left`. The values of a leaf are multiplied by `scale` and added
    to the outputs from `output` on.
    """

    feature: NDArray[Any]
    threshold: NDArray[Any]
    left: NDArray[Any]
    right: NDArray[Any]
    missing_left: NDArray[np.bool_]
    value: NDArray[Any]
    scale: float
    output: int

    @property
    def n_nodes(self) -> int:
        return len(self.left)


class TreeEnsemble(NamedTuple):
    """A sum of trees.

    A sample goes left where its value, rounded to `value_type`, is at most the threshold, or less
    than it where `strict`. The prediction is `offset` (output,) plus the leaf values, added in the
    order of the trees and rounded to `sum_type` after each.
    """

    trees: list[Tree]
    offset: NDArray[np.float64]
    value_type: np.dtype[Any]
    strict: bool
    sum_type: np.dtype[Any]

    @property
    def n_nodes(self) -> int:
        return sum(tree.n_nodes for tree in self.trees)

    @property
    def n_features(self) -> int:
        """One more than the largest feature index of a split."""
        return 1 + max(int(tree.feature.max()) for tree in self.trees)

    @property
    def is_valid(self) -> bool:
        """Whether all numbers are finite, all leaves have as many values, and the trees are trees.

        The compiled kernel relies on this: it follows child indices without checking them.
        """
        if not self.trees or not np.isfinite(self.offset).all():
            return False
        n_values = self.trees[0].value.shape[1]
        return all(
            tree.value.shape[1] == n_values
            and tree.output + n_values <= len(self.offset)
            and _is_tree(tree)
            for tree in self.trees
        )


def _is_tree(tree: Tree) -> bool:
    """Whether all splits and leaves are finite and each node but the root has one parent."""
    leaf = tree.left < 0
    if np.isnan(tree.threshold[~leaf]).any() or (tree.feature[~leaf] < 0).any():
        return False
    children = np.concatenate([tree.left[~leaf], tree.right[~leaf]])
    if not np.isfinite(tree.value[leaf]).all() or (children >= tree.n_nodes).any():
        return False
    if (children < 1).any():
        return False
    return not (np.bincount(children, minlength=tree.n_nodes)[1:] != 1).any()


def stack_outputs(parts: list[TreeEnsemble | None]) -> TreeEnsemble | None:
    """Join ensembles of one output each into one of several; None where that is not possible."""
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    first = known[0]
    for part in known:
        if len(part.offset) != 1 or part[2:] != first[2:]:
            return None
    trees = [tree._replace(output=k) for k, part in enumerate(known) for tree in part.trees]
    return TreeEnsemble(trees, np.concatenate([part.offset for part in known]), *first[2:])
