"""Distances of one row to stored rows, and its nearest ones."""

from __future__ import annotations

import numpy as np

from twinned.export.onnx.graph import FLOAT, Graph, Operand, Tensor
from twinned.export.onnx.refusal import refuse

_POWERS = {
    "euclidean": 2, "l2": 2, "minkowski": 2, "manhattan": 1, "l1": 1, "cityblock": 1,
    "sqeuclidean": 2, "chebyshev": 0, "nan_euclidean": 2,
}  # fmt: skip


def add_distances(graph: Graph, row: Tensor, rows: Operand, metric: str = "euclidean") -> Tensor:
    """(row,) distances of a row (feature,) to rows (row, feature)."""
    if metric not in _POWERS:
        refuse(
            f"the metric {metric!r} is not supported",
            f"use one of {', '.join(sorted(_POWERS))} or 'learned'",
        )
    gaps = graph.add("Abs", graph.add("Sub", rows, row))
    if metric == "chebyshev":
        return graph.reduce("ReduceMax", gaps, -1)
    if _POWERS[metric] == 1:
        return graph.reduce("ReduceSum", gaps, -1)
    if metric == "nan_euclidean":
        return _add_known_distances(graph, gaps)
    squares = graph.reduce("ReduceSum", graph.add("Mul", gaps, gaps), -1)
    return squares if metric == "sqeuclidean" else graph.add("Sqrt", squares)


def add_squares(graph: Graph, row: Tensor, rows: Operand) -> Tensor:
    """(row,) squared Euclidean distances."""
    return add_distances(graph, row, rows, "sqeuclidean")


def add_nearest(
    graph: Graph, distances: Tensor, k: int, *, rounded: bool = True
) -> tuple[Tensor, Tensor]:
    """(k,) smallest distances and their indices, nearest first; of equal ones, the first.

    Distances are equal if they are so in float32, as in `NeighborIndex`, or if not `rounded`, in
    float64.
    """
    keys = graph.cast(distances, FLOAT) if rounded else distances
    _, indices = graph.add_several("TopK", 2, keys, np.array([k]), axis=-1, largest=0, sorted=1)
    return graph.add("Gather", distances, indices), indices


def _add_known_distances(graph: Graph, gaps: Tensor) -> Tensor:
    """Euclidean over the features that both have, scaled to all; NaN where they share none."""
    missing = graph.add("IsNaN", gaps)
    known = graph.add("Where", missing, 0.0, 1.0)
    gaps = graph.add("Where", missing, 0.0, gaps)
    squares = graph.reduce("ReduceSum", graph.add("Mul", gaps, gaps), -1)
    share = graph.reduce("ReduceMean", known, -1)
    return graph.add("Sqrt", graph.add("Div", squares, share))
