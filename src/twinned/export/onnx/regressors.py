"""Regressors of scikit-learn, LightGBM and twinned, on a matrix of numbers; nearest rows."""

from __future__ import annotations

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline

from twinned._compat import neighbor_rows, unwrap_search
from twinned.estimators.gaussian_process import GPRegressor
from twinned.export.model_parts import read_linear, read_scaler
from twinned.export.onnx.graph import FLOAT, INT64, Graph, Tensor, concatenate, refuse
from twinned.export.onnx.trees import add_categorical_trees, add_trees
from twinned.models.gaussian_process import GaussianProcess
from twinned.models.trees.reader import read_trees
from twinned.rows.schema import Floats

_POWERS = {
    "euclidean": 2, "l2": 2, "minkowski": 2, "manhattan": 1, "l1": 1, "cityblock": 1,
    "sqeuclidean": 2, "chebyshev": 0, "nan_euclidean": 2,
}  # fmt: skip


def add_regressor(estimator: BaseEstimator, X: Tensor) -> Tensor:
    """Add the prediction of a fitted regressor: (row, feature) → (row, output)."""
    estimator = unwrap_search(estimator)
    trees = read_trees(estimator)
    if trees is not None:
        return add_trees(trees, X)
    if (linear := read_linear(estimator)) is not None:
        return X @ linear[0].T + linear[1]
    if type(estimator) is Pipeline:
        *steps, (_, last) = estimator.steps
        for _, step in steps:
            X = add_scaler(step, X)
        return add_regressor(last, X)
    if type(estimator) is MultiOutputRegressor:
        return concatenate([add_regressor(each, X) for each in estimator.estimators_])
    if type(estimator) is HistGradientBoostingRegressor:
        return add_categorical_trees(estimator, X)
    if type(estimator) is KNeighborsRegressor:
        return _add_neighbors(estimator, X)
    if type(estimator) is GPRegressor:
        return add_process(estimator.process_, X)
    return refuse(
        f"{type(estimator).__name__} is not a kind of regressor that the exporter knows",
        "use trees, forests, boosting, a linear model, k nearest neighbors or networks",
    )


def add_scaler(scaler: BaseEstimator, X: Tensor) -> Tensor:
    """Add a fitted scaler or imputer of scikit-learn, which keeps the number of features."""
    if type(scaler) is SimpleImputer and _replaces_nan(scaler):
        return X.fill_nan(np.asarray(scaler.statistics_, dtype=np.float64))
    operations = read_scaler(scaler)
    if operations is None:
        refuse(
            f"the pipeline step {type(scaler).__name__} is not a scaler that the exporter knows",
            "apply it before the model, and export the last step of the pipeline",
        )
    for operator, values in operations:
        X = X.apply(operator, values)
    return X


def _replaces_nan(imputer: SimpleImputer) -> bool:
    """Whether an imputer only replaces NaN, and drops or adds no feature."""
    is_nan = isinstance(imputer.missing_values, float) and np.isnan(imputer.missing_values)
    values = np.asarray(imputer.statistics_)
    is_known = values.dtype.kind in "fiu" and not np.isnan(values.astype(float)).any()
    return is_nan and not imputer.add_indicator and is_known


# --- distances --------------------------------------------------------------------------------


def add_distances(row: Tensor, rows: Tensor, metric: str = "euclidean") -> Tensor:
    """(row,) distances of a row (feature,) to rows (row, feature)."""
    if metric not in _POWERS:
        refuse(
            f"the metric {metric!r} is not supported",
            f"use one of {', '.join(sorted(_POWERS))} or 'learned'",
        )
    gaps = (rows - row).apply("Abs")
    if metric == "chebyshev":
        return gaps.reduce("ReduceMax", -1)
    if _POWERS[metric] == 1:
        return gaps.sum(-1)
    if metric == "nan_euclidean":
        # over the features that both have, scaled to all; NaN where they share none
        share = gaps.is_nan().apply("Where", 0.0, 1.0).mean(-1)
        gaps = gaps.fill_nan(0.0)
        return ((gaps * gaps).sum(-1) / share).apply("Sqrt")
    squares = (gaps * gaps).sum(-1)
    return squares if metric == "sqeuclidean" else squares.apply("Sqrt")


def add_nearest(distances: Tensor, k: int, *, rounded: bool = True) -> tuple[Tensor, Tensor]:
    """(k,) smallest distances and their indices, nearest first; of equal ones, the first.

    Distances are equal if they are so in float32, as in `NeighborIndex`, or if not `rounded`, in
    float64.
    """
    keys = distances.cast(FLOAT) if rounded else distances
    add = distances.graph.add_several
    _, indices = add("TopK", 2, keys, np.array([k]), axis=-1, largest=0, sorted=1)
    return distances.take(indices), indices


def add_inverse(distances: Tensor) -> Tensor:
    """Inverse distances; where some are zero, 1 for these and 0 for others."""
    is_zero = distances.equals(0.0)
    any_zero = is_zero.reduce("ReduceMax", -1, keepdims=True).apply("Greater", 0.0)
    return any_zero.apply("Where", is_zero, 1.0 / distances.apply("Max", 1e-300))


def add_matern(squares: Tensor) -> Tensor:
    """Add the Matérn 5/2 correlation of squared distances in length scales."""
    root = (squares * 5.0).apply("Sqrt")
    return root.apply("Neg").apply("Exp") * (root + 1.0 + squares * (5.0 / 3.0))


# --- regressors that store rows ---------------------------------------------------------------


def add_process(process: GaussianProcess, X: Tensor) -> Tensor:
    """Add the mean of a Gaussian process."""

    def scaled(values: Tensor) -> Tensor:
        return (values - process.X[0]) / process.length_scales

    def mean_of_row(row: Tensor) -> list[Tensor]:
        squares = add_distances(scaled(row), rows, "sqeuclidean")
        is_matern = process.kernel == "matern"
        kernel = add_matern(squares) if is_matern else (squares * -0.5).apply("Exp")
        return [kernel @ process.dual]

    with X.graph.outside_loops():
        rows = scaled(X.graph.matrix(process.X))
    return X.graph.map_rows(mean_of_row, X)[0] * process.scale + process.mean


def _add_neighbors(estimator: KNeighborsRegressor, X: Tensor) -> Tensor:
    metric = estimator.effective_metric_
    if callable(estimator.weights) or metric == "minkowski":
        refuse(
            f"KNeighborsRegressor has weights={estimator.weights!r} and the metric {metric!r}",
            "use weights 'uniform' or 'distance' and the Euclidean or Manhattan distance",
        )
    stored, stored_y = neighbor_rows(estimator)
    with X.graph.outside_loops():
        rows = _add_stored_pairs(X.graph, stored)
    known_y = X.graph.constant(np.asarray(stored_y, float).reshape(len(stored), -1))

    def mean_of_row(row: Tensor) -> list[Tensor]:
        all_distances = add_distances(row, rows, metric)
        distances, indices = add_nearest(all_distances, estimator.n_neighbors, rounded=False)
        values = known_y.take(indices)
        if estimator.weights == "uniform":
            return [values.mean(0)]
        weights = add_inverse(distances)
        return [weights @ values / weights.sum(0, keepdims=True)]

    return X.graph.map_rows(mean_of_row, X)[0]


def _add_stored_pairs(graph: Graph, pairs: Floats) -> Tensor:
    """Store training pairs; those of (a, b) or (a, b, a − b) as two indices of distinct rows."""
    for n_blocks in (3, 2):
        width, rest = divmod(pairs.shape[1], n_blocks)
        first, second = pairs[:, :width], pairs[:, width : 2 * width]
        if rest or not width or np.isnan(pairs).any():
            continue
        if n_blocks == 3 and not np.array_equal(first - second, pairs[:, 2 * width :]):
            continue
        rows, index = np.unique(np.concatenate([first, second]), axis=0, return_inverse=True)
        if 2 * len(rows) > len(pairs):
            continue
        dtype = np.int16 if len(rows) < 2**15 else np.int32
        distinct = graph.matrix(rows)
        halves = [half.astype(dtype) for half in np.split(index.ravel(), 2)]
        a, b = (distinct.take(graph.constant(half).cast(INT64)) for half in halves)
        return concatenate([a, b, a - b] if n_blocks == 3 else [a, b])
    return graph.matrix(pairs)
