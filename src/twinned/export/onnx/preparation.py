"""Features of the members of a blend: imputation, indicators and scaling."""

from __future__ import annotations

import numpy as np

from twinned.estimators.blending.features import FeaturePreparation
from twinned.export.onnx.graph import DOUBLE, Graph, Tensor


def add_preparation(graph: Graph, own: FeaturePreparation, matrix: Tensor) -> Tensor:
    """Encoded rows (row, feature) → features of a member, as `FeaturePreparation.transform`."""
    if own.kind == "encoded":
        return _without_empty(graph, own, matrix)
    missing = graph.add("IsNaN", matrix)
    filled = _fill(graph, own, matrix, missing)
    marks = []
    if own.marked:
        marks = [graph.columns(graph.cast(missing, DOUBLE), own.marked)]
    if own.kind == "complete":
        return graph.concatenate([filled, *marks])
    numeric = [j for j in range(own.n_features) if j not in own.categorical]
    parts = [graph.columns(filled, numeric)] if numeric else []
    for j, n in zip(own.categorical, own.n_categories, strict=True):
        is_own = graph.add("Equal", graph.columns(filled, [j]), np.arange(n + 1, dtype=float))
        marks.append(graph.cast(is_own, DOUBLE))
    dense = graph.concatenate(parts + marks)
    return graph.add("Div", graph.add("Sub", dense, own.center), own.spread)


def _without_empty(graph: Graph, own: FeaturePreparation, matrix: Tensor) -> Tensor:
    """Encoded rows with zeros in the features that had no known value."""
    if not own.empty:
        return matrix
    is_empty = np.zeros(own.n_features, dtype=bool)
    is_empty[own.empty] = True
    return graph.add("Where", is_empty, 0.0, matrix)


def _fill(graph: Graph, own: FeaturePreparation, matrix: Tensor, missing: Tensor) -> Tensor:
    """Encoded rows without missing values; those of categories, and new ones, have own codes."""
    fill, largest = own.medians.copy(), np.full(own.n_features, np.inf)
    fill[own.categorical] = own.n_categories
    # a known category is below n, which is the code of a missing one; n + 1 is that of a new one
    largest[own.categorical] = np.array(own.n_categories, dtype=float) - 1
    known = _without_empty(graph, own, matrix)
    if own.categorical:
        is_new = graph.add("Greater", known, largest)
        known = graph.add("Where", is_new, fill + 1.0, known)
    return graph.add("Where", missing, fill, known)
