"""Tree ensembles as the operator TreeEnsemble (ai.onnx.ml 5).

Trees that compare float32 values are stored in float32, with thresholds rounded down, so that each
comparison is the same; other trees are stored in float64. The values of each tree are centered, and
their centers are added in float64: in float32 a large mean of y would cost digits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import numpy_helper

from twinned.export.onnx.graph import DOUBLE, FLOAT, INT64, ML_DOMAIN, Graph, Tensor
from twinned.models.trees.reader import FLOAT32, FLOAT64, Tree, TreeEnsemble, inclusive_threshold

_SUM, _IDENTITY = 1, 0  # codes of ONNX: how trees are added, and what is done with the sum
_LESS_OR_EQUAL = 0
_MAX_EXACT = 2**24  # integers below are exact in float32


class _Arrays(NamedTuple):
    """Splits and leaves of all trees; a split refers to either by its index."""

    roots: list[int]
    feature: NDArray[Any]  # (split,), as all up to `missing_left`
    threshold: NDArray[Any]
    children: NDArray[Any]  # (2, split): left, which is true, and right
    is_leaf: NDArray[Any]  # (2, split)
    missing_left: NDArray[Any]
    value: NDArray[Any]  # (leaf, n_values)
    output: NDArray[Any]  # (leaf,): the first output of its values
    tree: NDArray[Any]  # (leaf,): the number of its tree


def add_trees(graph: Graph, ensemble: TreeEnsemble, X: Tensor) -> Tensor:
    """Add the prediction of an ensemble: (row, feature) → (row, output)."""
    offset = ensemble.offset.astype(np.float64)
    grown, dtype = [], FLOAT32 if ensemble.value_type == FLOAT32 else FLOAT64
    for tree in ensemble.trees:
        values = tree.value * tree.scale
        leaves = values[tree.left < 0]
        outputs = slice(tree.output, tree.output + values.shape[1])
        center = 0.5 * (leaves.min(axis=0) + leaves.max(axis=0))
        offset[outputs] += center
        threshold = inclusive_threshold(np.asarray(tree.threshold), dtype, ensemble.strict)
        if tree.n_nodes > 1:  # else it is a constant
            grown.append(tree._replace(value=values - center, threshold=threshold))
    if not grown:
        zeros = graph.reduce("ReduceSum", graph.add("Mul", X, 0.0), -1, keepdims=True)
        return graph.add("Add", zeros, offset)
    arrays = _join(grown)
    add = _add_operator if arrays.value.shape[1] == 1 else _add_leaves_of_several_outputs
    return graph.add("Add", add(graph, arrays, len(offset), dtype, X), offset)


def _add_leaves_of_several_outputs(
    graph: Graph, arrays: _Arrays, n_outputs: int, dtype: np.dtype[Any], X: Tensor
) -> Tensor:
    """Sums of leaves with several values, of which a leaf of the operator has one: its index.

    Each tree has an output of the operator, and the values are looked up by the indices.
    """
    n_leaves = len(arrays.value)
    numbers = arrays._replace(value=np.arange(n_leaves)[:, None], output=arrays.tree)
    exact = dtype if n_leaves <= _MAX_EXACT else FLOAT64
    indices = graph.cast(_add_operator(graph, numbers, len(arrays.roots), exact, X), INT64)
    table = graph.root.cast(graph.constant(arrays.value.astype(dtype)), DOUBLE)
    return graph.reduce("ReduceSum", graph.add("Gather", table, indices, axis=0), 1)


def _add_operator(
    graph: Graph, arrays: _Arrays, n_outputs: int, dtype: np.dtype[Any], X: Tensor
) -> Tensor:
    """Sums of leaves with one value, (row, output)."""
    missing = {}
    if arrays.missing_left.any():
        missing["nodes_missing_value_tracks_true"] = arrays.missing_left.astype(int).tolist()
    sums = graph.add(
        "TreeEnsemble",
        graph.cast(X, FLOAT) if dtype == FLOAT32 else X,
        domain=ML_DOMAIN,
        n_targets=n_outputs,
        aggregate_function=_SUM,
        post_transform=_IDENTITY,
        tree_roots=arrays.roots,
        nodes_featureids=arrays.feature.tolist(),
        nodes_modes=numpy_helper.from_array(
            np.full(len(arrays.feature), _LESS_OR_EQUAL, dtype=np.uint8)
        ),
        nodes_splits=numpy_helper.from_array(arrays.threshold.astype(dtype)),
        nodes_truenodeids=arrays.children[0].tolist(),
        nodes_trueleafs=arrays.is_leaf[0].astype(int).tolist(),
        nodes_falsenodeids=arrays.children[1].tolist(),
        nodes_falseleafs=arrays.is_leaf[1].astype(int).tolist(),
        leaf_targetids=arrays.output.tolist(),
        leaf_weights=numpy_helper.from_array(arrays.value[:, 0].astype(dtype)),
        **missing,
    )
    return graph.cast(sums, DOUBLE) if dtype == FLOAT32 else sums


def _join(trees: list[Tree]) -> _Arrays:
    """Number the splits and the leaves of all trees, of which each has a split.

    onnxruntime takes a root for a leaf where its children, a leaf and a split, have the same number
    (issue 24679); the leaves of such a tree are numbered from the second one on.
    """
    parts: list[tuple[NDArray[Any], ...]] = []
    roots, n_splits, n_leaves = [], 0, 0
    for i, tree in enumerate(trees):
        is_leaf = np.asarray(tree.left) < 0
        inner = np.flatnonzero(~is_leaf)
        children = np.stack([np.asarray(tree.left)[inner], np.asarray(tree.right)[inner]])
        own_leaf, own_split = np.cumsum(is_leaf) - 1, np.cumsum(~is_leaf) - 1
        number = np.where(is_leaf, own_leaf + n_leaves, own_split + n_splits)
        first, second = children[:, 0]
        shift = int(is_leaf[first] != is_leaf[second] and number[first] == number[second])
        if shift:
            own_leaf = (own_leaf + shift) % int(is_leaf.sum())
            number = np.where(is_leaf, own_leaf + n_leaves, number)
        roots.append(n_splits)
        parts.append(
            (
                np.asarray(tree.feature)[inner],
                np.asarray(tree.threshold)[inner],
                number[children],
                is_leaf[children],
                np.asarray(tree.missing_left)[inner],
                np.roll(tree.value[is_leaf], shift, axis=0),
                np.full(int(is_leaf.sum()), tree.output),
                np.full(int(is_leaf.sum()), i),
            )
        )
        n_splits += len(inner)
        n_leaves += int(is_leaf.sum())
    feature, threshold, children, leaf, missing, value, output, number_of_tree = zip(
        *parts, strict=True
    )
    return _Arrays(
        roots,
        np.concatenate(feature).astype(np.int64),
        np.concatenate(threshold),
        np.concatenate(children, axis=1),
        np.concatenate(leaf, axis=1),
        np.concatenate(missing),
        np.concatenate(value),
        np.concatenate(output),
        np.concatenate(number_of_tree),
    )
