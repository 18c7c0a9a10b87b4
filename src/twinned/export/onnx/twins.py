"""Twins: differences to anchors, their weights, and the mean and spread of the estimates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from twinned.estimators.base import BaseTwin
from twinned.estimators.predictor import TwinPredictor
from twinned.export.onnx.distances import add_distances, add_nearest
from twinned.export.onnx.graph import DOUBLE, FLOAT, Graph, Tensor
from twinned.export.onnx.inputs import split_rows
from twinned.export.onnx.refusal import refuse
from twinned.export.onnx.regressors import add_inverse, add_matern, add_regressor
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.pairing.differences import both_orders
from twinned.pairing.features import PairColumn
from twinned.pairing.weights import DistanceWeights, GPWeights, UniformWeights
from twinned.rows.neighbors import LEARNED, LearnedMetric

# (body, query, indices of its anchors or None) → (member, anchor, output)
Differences = Callable[[Graph, Tensor, Tensor | None], Tensor]


class Prediction(NamedTuple):
    """Mean and standard deviation, (row, output) each."""

    mean: Tensor
    std: Tensor


def add_twin(graph: Graph, twin: BaseTwin, matrix: Tensor) -> Prediction:
    """Add the prediction of a twin: encoded rows (row, feature) → mean and std (row, output)."""
    return _TwinGraph(graph, twin).add_prediction(matrix)


class _TwinGraph:
    """The anchors of a twin in a graph, and the prediction of one query from them."""

    def __init__(self, graph: Graph, twin: BaseTwin) -> None:
        self._graph = graph
        self._schema = twin._schema
        self._predictor: TwinPredictor = twin._predictor()
        self._nearest = self._predictor.anchor_strategy.nearest(len(twin.anchors_X_))
        self._rows = split_rows(graph, self._schema, graph.matrix(twin.anchors_X_))
        self._known = graph.matrix(self._predictor.anchors_y)
        model = self._predictor.model
        if isinstance(model, SklearnDifferenceModel):
            self._differences = self._pair_differences(model)
        else:
            self._differences = self._neural_differences(model)

    def add_prediction(self, matrix: Tensor) -> Prediction:
        rows = split_rows(self._graph, self._schema, matrix)
        mean, std = self._graph.map_rows(self._predict_query, rows)
        return Prediction(mean, std)

    def _predict_query(self, body: Graph, query: Tensor) -> list[Tensor]:
        """(output,): mean and std of one query (row column,)."""
        indices, distances, known = None, None, self._known
        if self._nearest is not None:
            k, metric = self._nearest
            distances, indices = add_nearest(body, self._distances(body, query, metric), k)
            known = body.add("Gather", known, indices, axis=0)
        estimates = body.add("Add", self._differences(body, query, indices), known)
        share = self._share(body, query, indices, distances)
        members = self._predictor.model.member_weights[:, None]

        def mean_of(values: Tensor) -> Tensor:
            """(member, anchor, output) → (output,)."""
            if share is None:
                own = body.reduce("ReduceMean", values, 1)
            else:
                own = body.reduce("ReduceSum", body.add("Mul", values, share), 1)
            return body.reduce("ReduceSum", body.add("Mul", own, members), 0)

        mean = mean_of(estimates)
        apart = body.add("Sub", estimates, mean)
        return [mean, body.add("Sqrt", mean_of(body.add("Mul", apart, apart)))]

    # --- differences --------------------------------------------------------------------------

    def _neural_differences(self, model: Any) -> Differences:
        from twinned.export.onnx.networks import AnchoredLayers, add_features, count_features

        n_encoded = self._schema.n_encoded
        anchors = add_features(self._graph, model, self._rows, n_encoded)
        layers = AnchoredLayers(self._graph, model, anchors, count_features(model, n_encoded))

        def differences(body: Graph, query: Tensor, indices: Tensor | None) -> Tensor:
            features = add_features(body, model, query, n_encoded)
            return layers.add_differences(body, features, indices)

        return differences

    def _pair_differences(self, model: SklearnDifferenceModel) -> Differences:
        if callable(model.features.kind):
            refuse(
                "its pair features are a Python function",
                "fit it with pair_features='concat+difference', 'concat' or 'difference'",
            )
        role, source = model.features.layout(self._predictor.anchors)
        groups = {own: source[role == own] for own in PairColumn}
        signs = both_orders(np.ones((1, 1)), np.ones((1, 1)))  # of F(query, anchor) and its mirror

        def differences(body: Graph, query: Tensor, indices: Tensor | None) -> Tensor:
            anchors = self._rows
            if indices is not None:
                anchors = body.add("Gather", anchors, indices, axis=0)
            orders = [(query, anchors), (anchors, query)][: 1 + model.symmetric]
            pairs = [self._pairs(body, groups, *order, anchors) for order in orders]
            joined = body.concatenate(pairs, axis=0)
            if model.features.dtype == np.float32:
                joined = body.cast(body.cast(joined, FLOAT), DOUBLE)
            found = body.add("Mul", add_regressor(body, model.estimator, joined), model.unit)
            n_orders, n_outputs = len(orders), self._predictor.anchors_y.shape[1]
            found = body.reshape(found, n_orders, -1, n_outputs)
            if not model.symmetric:
                return found
            return body.add("Mul", found, signs)

        return differences

    @staticmethod
    def _pairs(
        body: Graph, groups: dict[PairColumn, Any], first: Tensor, second: Tensor, anchors: Tensor
    ) -> Tensor:
        """(anchor, pair column); one of the sides is a single row."""
        parts = []
        for kind, columns in groups.items():
            if not len(columns):
                continue
            a, b = (body.columns(side, columns) for side in (first, second))
            if kind in (PairColumn.FIRST, PairColumn.SECOND):
                own = a if kind == PairColumn.FIRST else b
                is_query = (first if kind == PairColumn.FIRST else second) != anchors
                parts.append(body.broadcast_rows(own, anchors) if is_query else own)
                continue
            difference = body.add("Sub", a, b)
            if kind == PairColumn.MISMATCH:
                is_same = body.add("Equal", difference, 0.0)
                flag = body.add("Where", is_same, 0.0, 1.0)
                difference = body.add("Where", body.add("IsNaN", difference), np.nan, flag)
            parts.append(difference)
        return body.concatenate(parts)

    # --- weights ------------------------------------------------------------------------------

    def _share(
        self, body: Graph, query: Tensor, indices: Tensor | None, distances: Tensor | None
    ) -> Tensor | None:
        """(anchor, 1) weights that sum to one; None for equal weights."""
        weights = self._strategy_weights(body, query, indices, distances)
        if (own := self._predictor.anchor_weights) is not None:
            sample: Tensor = body.constant(own / own.max())
            if indices is not None:
                sample = body.add("Gather", sample, indices)
            weights = sample if weights is None else body.add("Mul", weights, sample)
        if weights is None:
            return None
        share = body.add("Div", weights, body.reduce("ReduceSum", weights, 0, keepdims=True))
        return body.add("Unsqueeze", share, np.array([1]))

    def _strategy_weights(
        self, body: Graph, query: Tensor, indices: Tensor | None, distances: Tensor | None
    ) -> Tensor | None:
        strategy = self._predictor.weight_strategy
        if type(strategy) is UniformWeights:
            return None
        if type(strategy) is DistanceWeights:
            if distances is None:
                distances = self._distances(body, query, "nan_euclidean")
            return _inverse_of_known(body, distances)
        if type(strategy) is GPWeights:
            return self._process_weights(body, query, indices)
        return refuse(
            f"its weights are {strategy!r}", "use weights 'uniform' or 'distance', or GPWeights()"
        )

    def _process_weights(self, body: Graph, query: Tensor, indices: Tensor | None) -> Tensor:
        """Inverse variances of y at the query, given each anchor; see `GPWeights`."""
        metric = self._predictor.learned_metric()
        lengths = 1.0 / metric.length_scales
        distances = self._distances(body, query, LEARNED, metric._replace(scale=lengths))
        if indices is not None:
            distances = body.add("Gather", distances, indices)
        correlation = add_matern(body, body.add("Mul", distances, distances))
        total = 1.0 + metric.noise
        explained = body.add("Div", body.add("Mul", correlation, correlation), total)
        return body.add("Div", 1.0, body.add("Sub", total, explained))

    def _distances(
        self, body: Graph, query: Tensor, metric: str, learned: LearnedMetric | None = None
    ) -> Tensor:
        """(anchor,) distances of a query, on the features that the twin searches neighbors by."""
        anchors = self._distance_features(self._graph, self._rows)
        own = self._distance_features(body, query)
        if metric == LEARNED:
            learned = self._predictor.learned_metric() if learned is None else learned
            anchors = add_learned(self._graph, learned, anchors)
            own, metric = add_learned(body, learned, own), "euclidean"
        return add_distances(body, own, anchors, metric)

    def _distance_features(self, graph: Graph, rows: Tensor) -> Tensor:
        """Numeric features, scaled where the twin is neural, and indicators."""
        scale, n_encoded = getattr(self._predictor.model, "scale", None), self._schema.n_encoded
        features = graph.columns(rows, range(n_encoded))
        if scale is None:
            return features
        from twinned.export.onnx.networks import add_scaled

        return add_scaled(graph, scale, features, n_encoded)


def add_learned(graph: Graph, metric: LearnedMetric, features: Tensor) -> Tensor:
    """Features whose Euclidean distances are the learned ones; a missing value is the mean."""
    scaled = graph.add("Mul", graph.add("Sub", features, metric.center), metric.scale)
    return graph.add("Where", graph.add("IsNaN", scaled), 0.0, scaled)


def _inverse_of_known(graph: Graph, distances: Tensor) -> Tensor:
    """Inverse distances; an undefined one gets weight zero, unless all are undefined."""
    undefined = graph.add("IsNaN", distances)
    as_number = graph.cast(undefined, DOUBLE)
    all_undefined = graph.add(
        "Greater", graph.reduce("ReduceMin", as_number, 0, keepdims=True), 0.0
    )
    instead = graph.add("Where", all_undefined, 1.0, np.inf)
    return add_inverse(graph, graph.add("Where", undefined, instead, distances))
