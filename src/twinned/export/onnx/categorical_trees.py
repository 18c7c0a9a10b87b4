"""Histogram gradient boosting with categorical features.

A split by categories is replaced by a split of an additional feature, which is 0 for the categories
that go left and 1 for the others. The additional features of a row are looked up by its categories.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

from twinned._compat import boosting_categories, boosting_trees
from twinned.export.onnx.graph import DOUBLE, INT64, Graph, Tensor
from twinned.export.onnx.inputs import add_category_index
from twinned.export.onnx.refusal import refuse
from twinned.export.onnx.trees import add_trees
from twinned.models.trees.reader import FLOAT64, Tree, TreeEnsemble

_SUMS = ("squared_error", "absolute_error", "quantile")  # losses without a link function


def add_categorical_trees(
    graph: Graph, estimator: HistGradientBoostingRegressor, X: Tensor
) -> Tensor:
    """Add the prediction of boosting: (row, feature) → (row, 1)."""
    if estimator.loss not in _SUMS:
        refuse(f"boosting with loss={estimator.loss!r} has a link function", f"use one of {_SUMS}")
    found = boosting_categories(estimator)
    all_nodes, baseline = boosting_trees(estimator)
    tables: dict[tuple[int, bytes], int] = {}  # feature and directions: additional feature
    n_features = estimator.n_features_in_
    trees = []
    for nodes, bitsets in zip(all_nodes, found.bitsets, strict=True):
        is_leaf = nodes["is_leaf"].astype(bool)
        feature = found.columns[nodes["feature_idx"].astype(np.int64)]
        threshold = nodes["num_threshold"].copy()
        for i in np.flatnonzero(nodes["is_categorical"].astype(bool) & ~is_leaf):
            bits = bitsets[nodes["bitset_idx"][i]]
            n_known = len(found.categories[feature[i]])
            goes_left = [*_bits(bits, n_known), bool(nodes["missing_go_to_left"][i])]
            directions = (~np.array(goes_left)).astype(np.uint8).tobytes()
            key = (int(feature[i]), directions)
            feature[i] = n_features + tables.setdefault(key, len(tables))
            threshold[i] = 0.5
        trees.append(
            Tree(
                feature,
                threshold,
                np.where(is_leaf, -1, nodes["left"].astype(np.int64)),
                nodes["right"].astype(np.int64),
                nodes["missing_go_to_left"].astype(bool),
                nodes["value"][:, None],
                1.0,
                0,
            )
        )
    offset = np.asarray(baseline, dtype=np.float64).reshape(1)
    parts = [X]
    order = [*range(n_features)]
    for j, known in found.categories.items():
        own = [(number, directions) for (i, directions), number in tables.items() if i == j]
        if own:
            order += [n_features + number for number, _ in own]
            table = [directions for _, directions in own]
            parts.append(_look_up(graph, known, table, graph.columns(X, [j])))
    columns = graph.concatenate(parts)
    if order != sorted(order):
        columns = graph.columns(columns, np.argsort(order))
    return add_trees(graph, TreeEnsemble(trees, offset, FLOAT64, False, FLOAT64), columns)


def _bits(bitset: Any, n: int) -> list[bool]:
    """The first n bits of 8 integers of 32 bits."""
    return [bool((int(bitset[k // 32]) >> (k % 32)) & 1) for k in range(n)]


def _look_up(graph: Graph, known: Any, directions: list[bytes], values: Tensor) -> Tensor:
    """(row, additional feature): the directions of the category of each row (row, 1).

    The last entry of the directions is for missing values and new categories.
    """
    table = np.stack([np.frombuffer(own, dtype=np.uint8) for own in directions], axis=1)
    index = add_category_index(graph, known, values)
    rows = graph.add("Gather", graph.constant(table), graph.cast(index, INT64), axis=0)
    return graph.cast(graph.reshape(rows, 0, -1), DOUBLE)
