"""The error scale of stored intervals: nearest known rows, and trees fitted to errors."""

from __future__ import annotations

import numpy as np

from twinned.export.onnx.distances import add_distances, add_nearest
from twinned.export.onnx.graph import Graph, Tensor
from twinned.export.onnx.regressors import add_regressor
from twinned.export.onnx.twins import add_learned
from twinned.fitted.calibration import Calibration
from twinned.fitted.error_scale import (
    FITTED_EXPONENT,
    MAX_FLOAT32,
    N_NEIGHBORS,
    NeighborFeatures,
)


def add_error_scale(
    graph: Graph, stored: Calibration, matrix: Tensor, mean: Tensor, std: Tensor
) -> Tensor:
    """(row, 1): the error scale of encoded rows with predictions (row, 1)."""
    own = stored.scale
    ones = graph.add("Add", graph.add("Mul", mean, 0.0), 1.0)
    if own.width == "constant":
        return ones
    std = graph.add("Add", std, own.floor) if own.floor > 0 else ones
    if own.regressor is None:
        return std
    parts = [mean, std]
    if stored.neighbors.columns:
        values = graph.columns(matrix, stored.neighbors.columns)
        parts = [values, _add_neighbor_features(graph, stored.neighbors, values, mean), *parts]
    features = graph.add("Clip", graph.concatenate(parts), -MAX_FLOAT32, MAX_FLOAT32)
    size = ones
    if own.regressor_floor > 0:
        size = graph.add("Add", add_regressor(graph, own.regressor, features), own.regressor_floor)
    return graph.add(
        "Mul",
        graph.add("Pow", size, FITTED_EXPONENT),
        graph.add("Pow", std, 1.0 - FITTED_EXPONENT),
    )


def _add_neighbor_features(
    graph: Graph, neighbors: NeighborFeatures, values: Tensor, mean: Tensor
) -> Tensor:
    """(row, feature): distances and target values of the nearest known rows."""
    rows = _standardize(graph, neighbors, graph.matrix(neighbors.values))
    known = graph.matrix(neighbors.y[:, None])
    k = min(max(N_NEIGHBORS), len(neighbors.y))

    def features_of_row(body: Graph, row: Tensor, mean: Tensor) -> list[Tensor]:
        row = _standardize(body, neighbors, row)
        distances, indices = add_nearest(body, add_distances(body, row, rows), k)
        y = body.reshape(body.add("Gather", known, indices, axis=0), -1)
        tenth = min(N_NEIGHBORS[1], k) - 1
        parts = [body.columns(distances, [0]), body.columns(distances, [tenth])]
        parts += [_add_deviation(body, y, min(n, k)) for n in N_NEIGHBORS]
        nearest = [body.columns(y, [0]), _add_mean(body, y, min(5, k))]
        parts += [body.add("Abs", body.add("Sub", value, mean)) for value in nearest]
        return [body.concatenate(parts, axis=0)]

    return graph.map_rows(features_of_row, values, mean)[0]


def _standardize(graph: Graph, neighbors: NeighborFeatures, values: Tensor) -> Tensor:
    """Features for distances, with missing values replaced by the mean."""
    if neighbors.learned is not None:
        return add_learned(graph, neighbors.learned, values)
    scaler = neighbors.scaler
    scaled = graph.add("Div", graph.add("Sub", values, scaler.mean_), scaler.scale_)
    return graph.add("Where", graph.add("IsNaN", scaled), 0.0, scaled)


def _add_mean(graph: Graph, y: Tensor, n: int) -> Tensor:
    """(1,): the mean of the first n values."""
    return graph.reduce("ReduceMean", graph.columns(y, np.arange(n)), 0, keepdims=True)


def _add_deviation(graph: Graph, y: Tensor, n: int) -> Tensor:
    """(1,): the standard deviation of the first n values."""
    apart = graph.add("Sub", graph.columns(y, np.arange(n)), _add_mean(graph, y, n))
    square = graph.reduce("ReduceMean", graph.add("Mul", apart, apart), 0, keepdims=True)
    return graph.add("Sqrt", square)
