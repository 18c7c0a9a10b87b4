"""Regressors of scikit-learn, LightGBM and twinned, on a matrix of numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.impute import SimpleImputer
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from twinned._compat import unwrap_search
from twinned.estimators.gaussian_process import GPRegressor
from twinned.export.onnx.categorical_trees import add_categorical_trees
from twinned.export.onnx.distances import add_distances, add_nearest, add_squares
from twinned.export.onnx.graph import DOUBLE, INT64, Graph, Tensor
from twinned.export.onnx.refusal import refuse
from twinned.export.onnx.trees import add_trees
from twinned.models.gaussian_process import GaussianProcess
from twinned.models.trees.reader import read_trees
from twinned.persistence.schema import KINDS

_LINEAR = {name for name, kind in KINDS.items() if "intercept_" in kind.fields}


def add_regressor(graph: Graph, estimator: Any, X: Tensor) -> Tensor:
    """Add the prediction of a fitted regressor: (row, feature) → (row, output)."""
    estimator = unwrap_search(estimator)
    trees = read_trees(estimator)
    if trees is not None:
        return add_trees(graph, trees, X)
    if type(estimator) is Pipeline:
        *steps, (_, last) = estimator.steps
        for _, step in steps:
            X = add_scaler(graph, step, X)
        return add_regressor(graph, last, X)
    if type(estimator) is MultiOutputRegressor:
        return graph.concatenate([add_regressor(graph, own, X) for own in estimator.estimators_])
    if type(estimator) is HistGradientBoostingRegressor:
        return add_categorical_trees(graph, estimator, X)
    if type(estimator) is KNeighborsRegressor:
        return _add_neighbors(graph, estimator, X)
    if type(estimator) is GPRegressor:
        return add_process(graph, estimator.process_, X)
    if type(estimator).__name__ in _LINEAR and type(estimator).__module__.startswith("sklearn."):
        return _add_linear(graph, estimator, X)
    return refuse(
        f"{type(estimator).__name__} is not a kind of regressor that the exporter knows",
        "use trees, forests, boosting, a linear model, k nearest neighbors or networks",
    )


def add_scaler(graph: Graph, scaler: Any, X: Tensor) -> Tensor:
    """Add a fitted scaler or imputer of scikit-learn, which keeps the number of features."""
    if scaler is None or (isinstance(scaler, str) and scaler == "passthrough"):
        return X
    kind = type(scaler)
    if kind is MinMaxScaler and not scaler.clip:
        return graph.add("Add", graph.add("Mul", X, scaler.scale_), scaler.min_)
    if kind in (StandardScaler, RobustScaler):
        is_standard = kind is StandardScaler
        if scaler.with_mean if is_standard else scaler.with_centering:
            X = graph.add("Sub", X, scaler.mean_ if is_standard else scaler.center_)
        return X if scaler.scale_ is None else graph.add("Div", X, scaler.scale_)
    if kind is MaxAbsScaler and not getattr(scaler, "clip", False):
        return graph.add("Div", X, scaler.scale_)
    if kind is SimpleImputer and _replaces_nan(scaler):
        values = np.asarray(scaler.statistics_, dtype=np.float64)
        return graph.add("Where", graph.add("IsNaN", X), values, X)
    return refuse(
        f"the pipeline step {kind.__name__} is not a scaler that the exporter knows",
        "apply it before the model, and export the last step of the pipeline",
    )


def _replaces_nan(imputer: SimpleImputer) -> bool:
    """Whether an imputer only replaces NaN, and drops or adds no feature."""
    is_nan = isinstance(imputer.missing_values, float) and np.isnan(imputer.missing_values)
    values = np.asarray(imputer.statistics_)
    is_known = values.dtype.kind in "fiu" and not np.isnan(values.astype(float)).any()
    return is_nan and not imputer.add_indicator and is_known


def _add_linear(graph: Graph, estimator: Any, X: Tensor) -> Tensor:
    weights = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64)).T
    products = graph.add("MatMul", X, weights)
    return graph.add("Add", products, np.atleast_1d(np.asarray(estimator.intercept_, float)))


def add_process(graph: Graph, process: GaussianProcess, X: Tensor) -> Tensor:
    """Add the mean of a Gaussian process."""
    origin, lengths = process.X[0], process.length_scales
    rows = _scaled(graph.root, graph.matrix(process.X), origin, lengths)

    def mean_of_row(body: Graph, row: Tensor) -> list[Tensor]:
        squares = add_squares(body, _scaled(body, row, origin, lengths), rows)
        return [body.add("MatMul", _KERNELS[process.kernel](body, squares), process.dual)]

    (mean,) = graph.map_rows(mean_of_row, X)
    return graph.add("Add", graph.add("Mul", mean, process.scale), process.mean)


def _scaled(graph: Graph, X: Tensor, origin: NDArray[Any], length_scales: NDArray[Any]) -> Tensor:
    return graph.add("Div", graph.add("Sub", X, origin), length_scales)


def _add_rbf(graph: Graph, squares: Tensor) -> Tensor:
    return graph.add("Exp", graph.add("Mul", squares, -0.5))


def add_matern(graph: Graph, squares: Tensor) -> Tensor:
    """Add the Matérn 5/2 correlation of squared distances in length scales."""
    root = graph.add("Sqrt", graph.add("Mul", squares, 5.0))
    decay = graph.add("Exp", graph.add("Neg", root))
    polynomial = graph.add("Add", graph.add("Add", root, 1.0), graph.add("Mul", squares, 5.0 / 3.0))
    return graph.add("Mul", decay, polynomial)


_KERNELS: dict[str, Callable[[Graph, Tensor], Tensor]] = {"rbf": _add_rbf, "matern": add_matern}


def _add_neighbors(graph: Graph, estimator: KNeighborsRegressor, X: Tensor) -> Tensor:
    metric = estimator.effective_metric_
    if callable(estimator.weights) or (metric == "minkowski"):
        refuse(
            f"KNeighborsRegressor has weights={estimator.weights!r} and the metric {metric!r}",
            "use weights 'uniform' or 'distance' and the Euclidean or Manhattan distance",
        )
    rows = _add_stored_pairs(graph.root, estimator._fit_X)
    known = graph.constant(np.asarray(estimator._y, float).reshape(len(estimator._fit_X), -1))

    def mean_of_row(body: Graph, row: Tensor) -> list[Tensor]:
        all_distances = add_distances(body, row, rows, metric)
        distances, indices = add_nearest(body, all_distances, estimator.n_neighbors, rounded=False)
        values = body.add("Gather", known, indices, axis=0)
        if estimator.weights == "uniform":
            return [body.reduce("ReduceMean", values, 0)]
        weights = add_inverse(body, distances)
        total = body.reduce("ReduceSum", weights, 0, keepdims=True)
        return [body.add("Div", body.add("MatMul", weights, values), total)]

    return graph.map_rows(mean_of_row, X)[0]


def add_inverse(graph: Graph, distances: Tensor) -> Tensor:
    """Inverse distances; where some are zero, 1 for these and 0 for others."""
    is_zero = graph.cast(graph.add("Equal", distances, 0.0), DOUBLE)
    any_zero = graph.reduce("ReduceMax", is_zero, -1, keepdims=True)
    inverse = graph.add("Div", 1.0, graph.add("Max", distances, 1e-300))
    return graph.add("Where", graph.add("Greater", any_zero, 0.0), is_zero, inverse)


def _add_stored_pairs(graph: Graph, pairs: NDArray[Any]) -> Tensor:
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
        sides = [
            graph.add("Gather", distinct, graph.cast(graph.constant(own.astype(dtype)), INT64))
            for own in np.split(index.ravel(), 2)
        ]
        return graph.concatenate(sides + [graph.add("Sub", *sides)] * (n_blocks == 3))
    return graph.matrix(pairs)
