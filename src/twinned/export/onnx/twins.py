"""Twins and networks: differences to anchors, weights, and mean and spread of the estimates.

Networks compute in float32, as they were trained, all members at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.export.model_parts import Networks, unpadded_parameters
from twinned.export.onnx import regressors
from twinned.export.onnx.graph import DOUBLE, FLOAT, Graph, Tensor, concatenate, refuse
from twinned.export.onnx.inputs import split_rows
from twinned.fitted.twin import FittedTwin
from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.models.neural.problem import Scale
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.pairing.anchors import DistanceWeights, GPWeights, UniformWeights
from twinned.pairing.differences import both_orders
from twinned.pairing.pairs import PairColumn
from twinned.rows.neighbors import LEARNED
from twinned.rows.schema import Floats, TableSchema

# (query, indices of its anchors or None) → (member, anchor, output)
Differences = Callable[[Tensor, Tensor | None], Tensor]


class Prediction(NamedTuple):
    """Mean and standard deviation, (row, output) each.

    `exponential` is the mean of the exponentials, where it is wanted.
    """

    mean: Tensor
    std: Tensor
    exponential: Tensor | None = None


def weighted_moments(values: Tensor, mean_of: Callable[[Tensor], Tensor]) -> Prediction:
    """Mean of values, and the root of the mean of their squared deviations from it."""
    mean = mean_of(values)
    apart = values - mean
    return Prediction(mean, mean_of(apart * apart).apply("Sqrt"))


def add_twin(state: FittedTwin, matrix: Tensor, is_log: bool) -> Prediction:
    """Add the prediction of a twin: encoded rows (row, feature) → (row, output)."""
    rows, twin = split_rows(state.anchors.schema, matrix), _TwinGraph(matrix.graph, state, is_log)
    prediction = Prediction(*matrix.graph.map_rows(twin.predict_query, rows))
    return add_errors(state, matrix, prediction, is_log)


def add_errors(
    state: FittedTwin, matrix: Tensor, prediction: Prediction, is_log: bool
) -> Prediction:
    """The weighted mean of the prediction plus the out-of-fold errors of the anchors."""
    if state.errors is None:
        return prediction
    mean, std, _ = prediction
    if state.local_weights is None:
        average = partial(np.average, axis=0, weights=state.anchors.weights)
        exponential = mean.apply("Exp") * average(np.exp(state.errors)) if is_log else None
        return Prediction(mean + average(state.errors), std, exponential)
    rows, twin = split_rows(state.anchors.schema, matrix), _TwinGraph(matrix.graph, state, is_log)
    of_all, *exponential_of_all = matrix.graph.map_rows(twin.average_estimates, rows, mean)
    return Prediction(of_all, std, *exponential_of_all)


def add_networks(networks: PlainNetworks, schema: TableSchema, matrix: Tensor) -> Prediction:
    """Add the prediction of plain networks, as that of a twin."""
    layers = _Layers(networks, schema.n_encoded)
    (first,) = layers.first(split_rows(schema, matrix))
    members = layers.output(layers.last_hidden(first)).cast(DOUBLE)
    members = members * networks.scale.y_spread + networks.scale.y_mean
    weights = networks.member_weights[:, None, None]
    return weighted_moments(members, lambda values: (values * weights).sum(0))


class _TwinGraph:
    """The anchors of a twin in a graph, and the prediction of one query from them."""

    def __init__(self, graph: Graph, state: FittedTwin, is_log: bool) -> None:
        self._graph, self._state, self._is_log = graph, state, is_log
        self._rows = split_rows(state.anchors.schema, graph.matrix(state.anchors.X))
        self._known_y = graph.matrix(state.anchors.targets)
        if isinstance(state.model, SklearnDifferenceModel):
            self._differences = self._pair_differences(state.model)
        elif isinstance(state.model, NeuralDifferenceModel):
            self._differences = self._neural_differences(state.model)

    def average_estimates(self, query: Tensor, mean: Tensor) -> list[Tensor]:
        """(output,): locally weighted mean of the estimates, and of their exponentials.

        They are the mean plus the errors of the anchors, and the known value of an anchor that
        equals the query.
        """
        assert self._state.local_weights is not None
        assert self._state.errors is not None
        weights = self._process_weights(query, self._state.local_weights.power)
        if (given := self._state.anchors.weights) is not None:
            weights = weights * self._graph.constant(given)
        shares = (weights / weights.sum(0, keepdims=True)).add_axis(1)
        both_missing = self._rows.is_nan().apply("And", query.is_nan())
        equal = self._rows.apply("Equal", query).apply("Or", both_missing).cast(DOUBLE)
        is_equal = equal.reduce("ReduceMin", 1, keepdims=True).apply("Greater", 0.0)
        estimates = mean + self._graph.constant(self._state.errors)
        estimates = is_equal.apply("Where", self._known_y, estimates)
        wanted = [estimates, estimates.apply("Exp")] if self._is_log else [estimates]
        return [(shares * values).sum(0) for values in wanted]

    def predict_query(self, query: Tensor) -> list[Tensor]:
        """(output,): the prediction of one query (row column,)."""
        indices, distances, known_y = None, None, self._known_y
        if self._state.nearest is not None:
            k, metric = self._state.nearest
            distances, indices = regressors.add_nearest(self._distances(query, metric), k)
            known_y = known_y.take(indices)
        estimates = self._differences(query, indices) + known_y
        share = self._share(query, indices, distances)
        members = self._state.model.member_weights[:, None]

        def mean_of_anchors(values: Tensor) -> Tensor:
            """(..., anchor, output) → (..., output)."""
            return values.mean(-2) if share is None else (values * share).sum(-2)

        def mean_of(values: Tensor) -> Tensor:
            """(member, anchor, output) → (output,)."""
            return (mean_of_anchors(values) * members).sum(0)

        mean, std, _ = weighted_moments(estimates, mean_of)
        if not self._is_log or self._state.errors is not None:
            return [mean, std]
        of_members = (estimates * members[..., None]).sum(0)
        return [mean, std, mean_of_anchors(of_members.apply("Exp"))]

    # --- differences --------------------------------------------------------------------------

    def _neural_differences(self, model: NeuralDifferenceModel) -> Differences:
        layers = _Layers(model, self._state.anchors.schema.n_encoded)
        anchors = layers.first(self._rows)  # computed once

        def differences(query: Tensor, indices: Tensor | None) -> Tensor:
            q, a = layers.first(query.add_axis(0)), [half.take(indices, 1) for half in anchors]
            # the bias of the output layer cancels
            halves = layers.last_hidden(a[1] + q[0]) - layers.last_hidden(a[0] + q[1])
            scaled = halves @ (np.float32(0.5) * layers.output_weight)
            return scaled.cast(DOUBLE) * model.scale.y_spread

        return differences

    def _pair_differences(self, model: SklearnDifferenceModel) -> Differences:
        if callable(model.features.kind):
            way_out = "fit it with pair_features='concat+difference', 'concat' or 'difference'"
            refuse("its pair features are a Python function", way_out)
        role, source = model.features.layout(self._state.anchors.rows)
        groups = {kind: source[role == kind] for kind in PairColumn if (role == kind).any()}
        signs = both_orders(np.ones((1, 1)), np.ones((1, 1)))  # of F(query, anchor) and its mirror

        def differences(query: Tensor, indices: Tensor | None) -> Tensor:
            anchors = self._rows.take(indices)
            # the query is repeated for each anchor
            queries = query.apply("Expand", anchors.apply("Shape"))
            orders = [(queries, anchors), (anchors, queries)][: 1 + model.symmetric]
            pairs = concatenate([_pairs(groups, *order) for order in orders], axis=0)
            if model.features.dtype == np.float32:
                pairs = pairs.cast(FLOAT).cast(DOUBLE)
            predicted = regressors.add_regressor(model.estimator, pairs) * model.unit
            predicted = predicted.reshape(len(orders), -1, self._state.anchors.targets.shape[1])
            return predicted * signs if model.symmetric else predicted

        return differences

    # --- weights ------------------------------------------------------------------------------

    def _share(
        self, query: Tensor, indices: Tensor | None, distances: Tensor | None
    ) -> Tensor | None:
        """(anchor, 1) weights that sum to one; None for equal weights."""
        weights = self._strategy_weights(query, indices, distances)
        if (given := self._state.anchors.weights) is not None:
            sample = self._graph.constant(given / given.max()).take(indices)
            weights = sample if weights is None else weights * sample
        return None if weights is None else (weights / weights.sum(0, keepdims=True)).add_axis(1)

    def _strategy_weights(
        self, query: Tensor, indices: Tensor | None, distances: Tensor | None
    ) -> Tensor | None:
        strategy = self._state.weight_strategy
        if type(strategy) is UniformWeights:
            return None
        if type(strategy) is DistanceWeights:
            if distances is None:
                distances = self._distances(query, "nan_euclidean")
            return _inverse_of_known(distances)
        if type(strategy) is GPWeights:
            return self._process_weights(query, strategy.power).take(indices)
        way_out = "use weights 'uniform' or 'distance', or GPWeights()"
        return refuse(f"its weights are {strategy!r}", way_out)

    def _process_weights(self, query: Tensor, power: float) -> Tensor:
        """(anchor,) powers of inverse variances of y at the query, given each anchor."""
        metric = self._state.anchors.metric
        distances = self._distances(query, LEARNED, 1.0 / metric.length_scales)
        correlation = regressors.add_matern(distances * distances)
        total = (1.0 + metric.noise) ** 2
        return ((total - 1.0) / (total - correlation * correlation)).apply("Pow", float(power))

    def _distances(self, query: Tensor, metric: str, scale: Floats | None = None) -> Tensor:
        """(anchor,) distances of a query, on the features that the twin searches neighbors by.

        These are numeric features, scaled where the twin is neural, and indicators; for the learned
        metric they are scaled again, by its own scale unless another one is given.
        """
        model, n_encoded = self._state.model, self._state.anchors.schema.n_encoded

        def features(rows: Tensor) -> Tensor:
            values = rows.columns(range(n_encoded))
            if isinstance(model, NeuralDifferenceModel):
                values = _scaled(model.scale, values, n_encoded)
            if metric != LEARNED:
                return values
            learned = self._state.anchors.metric
            scaled = (values - learned.center) * (learned.scale if scale is None else scale)
            return scaled.fill_nan(0.0)

        with self._graph.outside_loops():
            anchors = features(self._rows)
        name = "euclidean" if metric == LEARNED else metric
        return regressors.add_distances(features(query), anchors, name)


def _pairs(groups: dict[PairColumn, NDArray[np.int64]], first: Tensor, second: Tensor) -> Tensor:
    """(pair, pair column) of rows (pair, row column)."""
    parts = []
    for kind, columns in groups.items():
        if kind in (PairColumn.FIRST, PairColumn.SECOND):
            parts.append((first if kind == PairColumn.FIRST else second).columns(columns))
            continue
        difference = first.columns(columns) - second.columns(columns)
        if kind == PairColumn.MISMATCH:
            differs = difference.apply("Equal", 0.0).apply("Where", 0.0, 1.0)
            difference = difference.is_nan().apply("Where", np.nan, differs)
        parts.append(difference)
    return concatenate(parts)


def _inverse_of_known(distances: Tensor) -> Tensor:
    """Inverse distances; an undefined one gets weight zero, unless all are undefined."""
    undefined = distances.is_nan()
    least = undefined.cast(DOUBLE).reduce("ReduceMin", 0, keepdims=True)
    instead = least.apply("Greater", 0.0).apply("Where", 1.0, np.inf)
    return regressors.add_inverse(undefined.apply("Where", instead, distances))


def _scaled(scale: Scale, encoded: Tensor, n_encoded: int) -> Tensor:
    """(row, column): encoded features, with missing values filled and numbers scaled."""
    n_rest = n_encoded - len(scale.X_mean)
    filled = encoded.fill_nan(np.append(scale.X_fill, np.zeros(n_rest)))
    mean = np.append(scale.X_mean, np.zeros(n_rest))
    return (filled - mean) / np.append(scale.X_spread, np.ones(n_rest))


class _Layers:
    """Layers of trained networks. Axes: member, row (or anchor), hidden."""

    def __init__(self, networks: Networks, n_encoded: int) -> None:
        self._networks, self._n_encoded = networks, n_encoded
        n_features = n_encoded if networks.columns is None else len(networks.columns)
        self._parameters = unpadded_parameters(networks, n_features)
        self._last = len(networks.shape.hidden_sizes)
        self.output_weight = self._parameters[f"weight_{self._last}"]  # (member, hidden, output)

    def first(self, rows: Tensor) -> list[Tensor]:
        """Rows of `split_rows` → halves of the first layer for each side."""
        X = _scaled(self._networks.scale, rows.columns(range(self._n_encoded)), self._n_encoded)
        if self._networks.columns is not None:
            X = X.columns(self._networks.columns)
        X = X.cast(FLOAT)
        sides = range(2 if self._networks.shape.twin else 1)
        halves = [X @ self._parameters[f"linear_{side}"] for side in sides]
        halves[0] += self._bias(0)
        if self._networks.shape.n_frequencies and np.asarray(self._networks.gates).any():
            embedding = self._embedding(X)
            for side in sides:
                halves[side] += embedding @ self._parameters[f"periodic_{side}"]
        return halves

    def _embedding(self, X: Tensor) -> Tensor:
        """(row, feature) → (member, row, wave)."""
        frequency = self._parameters["frequency"]  # (member, feature, wave)
        angle = (X * np.float32(2 * np.pi)).add_axis(-1) * frequency[:, None]
        waves = concatenate([angle.apply("Sin"), angle.apply("Cos") - np.float32(1)])
        return waves.reshape(len(frequency), -1, 2 * frequency.shape[1] * frequency.shape[2])

    def last_hidden(self, value: Tensor) -> Tensor:
        """(member, row, hidden) before the first activation → after the last one."""
        for layer in range(self._last):
            if layer:
                value = value @ self._parameters[f"weight_{layer}"] + self._bias(layer)
            value = add_activation(self._networks.shape.activation, value)
        return value

    def output(self, hidden: Tensor) -> Tensor:
        """(member, row, hidden) after the last activation → (member, row, output)."""
        return hidden @ self.output_weight + self._bias(self._last)

    def _bias(self, layer: int) -> NDArray[np.float32]:
        """(member, 1, hidden)."""
        return self._parameters[f"bias_{layer}"][:, None]


def add_activation(activation: str, x: Tensor) -> Tensor:
    if activation == "mish":
        return x * x.apply("Softplus").apply("Tanh")
    if activation == "silu":
        half = x * np.float32(0.5)
        return half + half * half.apply("Tanh")
    return x.apply({"relu": "Relu", "tanh": "Tanh"}[activation])
