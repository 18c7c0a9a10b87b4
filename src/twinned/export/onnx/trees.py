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
from sklearn.ensemble import HistGradientBoostingRegressor

from twinned._compat import boosting_categories, boosting_trees
from twinned.export.onnx.graph import DOUBLE, FLOAT, INT64, ML_DOMAIN, Tensor, concatenate, refuse
from twinned.export.onnx.inputs import add_category_index
from twinned.models.trees.reader import FLOAT32, FLOAT64, Tree, TreeEnsemble, inclusive_threshold
from twinned.rows.schema import Floats

_SUM, _IDENTITY = 1, 0  # codes of ONNX: how trees are added, and what is done with the sum
_LESS_OR_EQUAL = 0
_MAX_EXACT = 2**24  # integers below are exact in float32
_LOSSES = ("squared_error", "absolute_error", "quantile")  # without a link function


class JoinedTrees(NamedTuple):
    """Splits and leaves of all trees; a split refers to either by its index."""

    roots: list[int]
    feature: NDArray[np.int64]  # (split,), as all up to `missing_left`
    threshold: Floats
    missing_left: NDArray[np.bool_]
    children: NDArray[np.int64]  # (2, split): left, which is true, and right
    is_leaf: NDArray[np.bool_]  # (2, split)
    value: Floats  # (n_values, leaf)
    output: NDArray[np.int64]  # (leaf,): the first output of its values
    tree: NDArray[np.int64]  # (leaf,): the number of its tree


def add_trees(ensemble: TreeEnsemble, X: Tensor) -> Tensor:
    """Add the prediction of an ensemble: (row, feature) → (row, output)."""
    dtype = FLOAT32 if ensemble.value_type == FLOAT32 else FLOAT64
    joined, offset = join_trees(ensemble, dtype)
    if joined is None:
        return (X * 0.0).sum(-1, keepdims=True) + offset
    n_values, n_leaves = joined.value.shape
    if n_values == 1:
        return _add_operator(joined, joined.value[0], joined.output, dtype, X, len(offset)) + offset
    # A leaf of the operator has one value: its index. Each tree has an output of the operator, and
    # the values are looked up by the indices.
    exact = dtype if n_leaves <= _MAX_EXACT else FLOAT64
    numbers = np.arange(n_leaves)
    indices = _add_operator(joined, numbers, joined.tree, exact, X, len(joined.roots)).cast(INT64)
    with X.graph.outside_loops():
        table = X.graph.constant(joined.value.T.astype(dtype)).cast(DOUBLE)
    return table.take(indices).sum(1) + offset


def _add_operator(
    joined: JoinedTrees,
    values: NDArray[Any],
    outputs: NDArray[np.int64],
    dtype: np.dtype[Any],
    X: Tensor,
    n_outputs: int,
) -> Tensor:
    """Sums (row, output) of values of leaves, which belong to outputs."""
    missing = {}
    if joined.missing_left.any():
        missing["nodes_missing_value_tracks_true"] = joined.missing_left.astype(int).tolist()
    modes = np.full(len(joined.feature), _LESS_OR_EQUAL, dtype=np.uint8)
    sums = (X.cast(FLOAT) if dtype == FLOAT32 else X).apply(
        "TreeEnsemble",
        domain=ML_DOMAIN,
        n_targets=n_outputs,
        aggregate_function=_SUM,
        post_transform=_IDENTITY,
        tree_roots=joined.roots,
        nodes_featureids=joined.feature.tolist(),
        nodes_modes=numpy_helper.from_array(modes),
        nodes_splits=numpy_helper.from_array(joined.threshold.astype(dtype)),
        nodes_truenodeids=joined.children[0].tolist(),
        nodes_trueleafs=joined.is_leaf[0].astype(int).tolist(),
        nodes_falsenodeids=joined.children[1].tolist(),
        nodes_falseleafs=joined.is_leaf[1].astype(int).tolist(),
        leaf_targetids=outputs.tolist(),
        leaf_weights=numpy_helper.from_array(values.astype(dtype)),
        **missing,
    )
    return sums.cast(DOUBLE) if dtype == FLOAT32 else sums


def join_trees(ensemble: TreeEnsemble, dtype: np.dtype[Any]) -> tuple[JoinedTrees | None, Floats]:
    """Number the splits and leaves of trees, and return (output,) offsets.

    None where no tree has a split. onnxruntime takes a root for a leaf where its children, a leaf
    and a split, have the same number (issue 24679); the leaves of such a tree are numbered from the
    second one on.
    """
    offset = ensemble.offset.astype(np.float64)
    roots: list[int] = []
    parts = []
    n_splits = n_all_leaves = 0
    for tree in ensemble.trees:
        is_leaf = np.asarray(tree.left) < 0
        leaves = (tree.value * tree.scale)[is_leaf]
        center = 0.5 * (leaves.min(axis=0) + leaves.max(axis=0))
        offset[tree.output : tree.output + len(center)] += center
        inner, n_leaves = np.flatnonzero(~is_leaf), len(leaves)
        if not len(inner):  # it is a constant
            continue
        children = np.stack([np.asarray(tree.left)[inner], np.asarray(tree.right)[inner]])
        number = np.cumsum(is_leaf) - 1 + n_all_leaves
        number[inner] = np.arange(len(inner)) + n_splits
        first, second = children[:, 0]
        shift = int(is_leaf[first] != is_leaf[second] and number[first] == number[second])
        number[is_leaf] = (np.arange(n_leaves) + shift) % n_leaves + n_all_leaves
        threshold = inclusive_threshold(np.asarray(tree.threshold), dtype, ensemble.strict)
        parts.append(
            (
                np.asarray(tree.feature, dtype=np.int64)[inner],
                threshold[inner],
                np.asarray(tree.missing_left)[inner],
                number[children],
                is_leaf[children],
                np.roll((leaves - center).T, shift, axis=1),
                np.full(n_leaves, tree.output),
                np.full(n_leaves, len(roots)),
            )
        )
        roots.append(n_splits)
        n_splits, n_all_leaves = n_splits + len(inner), n_all_leaves + n_leaves
    if not parts:
        return None, offset
    arrays = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
    return JoinedTrees(roots, *arrays), offset


def add_categorical_trees(estimator: HistGradientBoostingRegressor, X: Tensor) -> Tensor:
    """Add the prediction of histogram gradient boosting with categorical features: (row, 1).

    A split by categories is replaced by a split of an additional feature, which is 0 for the
    categories that go left and 1 for the others; a row has those of its categories.
    """
    if estimator.loss not in _LOSSES:
        reason = f"boosting with loss={estimator.loss!r} has a link function"
        refuse(reason, f"use one of {_LOSSES}")
    columns, categories, all_bitsets = boosting_categories(estimator)
    all_nodes, baseline = boosting_trees(estimator)
    # of each column of X, which of its categories go right, in order of the additional features
    directions: dict[int, dict[bytes, int]] = {j: {} for j in categories}
    n_features = estimator.n_features_in_
    trees, splits = [], []
    for nodes, bitsets in zip(all_nodes, all_bitsets, strict=True):
        is_leaf = nodes["is_leaf"].astype(bool)
        feature = columns[nodes["feature_idx"].astype(np.int64)]
        threshold = nodes["num_threshold"].copy()
        for i in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~is_leaf):
            j, bitset = int(feature[i]), bitsets[nodes["bitset_idx"][i]]
            bits = np.unpackbits(np.asarray(bitset, "<u4").view(np.uint8), bitorder="little")
            # the last entry is for missing values and new categories
            goes_left = [*bits[: len(categories[j])], nodes["missing_go_to_left"][i]]
            key = (1 - np.array(goes_left, dtype=np.uint8)).tobytes()
            splits.append((feature, i, j, directions[j].setdefault(key, len(directions[j]))))
            threshold[i] = 0.5
        left = np.where(is_leaf, -1, nodes["left"].astype(np.int64))
        right, missing_left = nodes["right"].astype(np.int64), nodes["missing_go_to_left"] != 0
        values = nodes["value"][:, None]
        trees.append(Tree(feature, threshold, left, right, missing_left, values, 1.0, 0))
    parts, starts = [X], {}
    for j, keys in directions.items():
        starts[j] = n_features
        n_features += len(keys)
        if keys:
            table = np.stack([np.frombuffer(key, dtype=np.uint8) for key in keys], axis=1)
            index = add_category_index(categories[j], X.columns([j])).cast(INT64)
            parts.append(X.graph.constant(table).take(index).reshape(0, -1).cast(DOUBLE))
    for feature, i, j, number in splits:
        feature[i] = starts[j] + number
    offset = np.asarray(baseline, dtype=np.float64).reshape(1)
    ensemble = TreeEnsemble(trees, offset, FLOAT64, False, FLOAT64)
    return add_trees(ensemble, concatenate(parts))
