"""Twins and networks: differences to anchors, weights, and mean and spread of the estimates.

Networks compute in float32, as they were trained, all members at once.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.export.model_parts import anchor_shares, mean_residual
from twinned.export.onnx import regressors
from twinned.export.onnx.graph import DOUBLE, FLOAT, Tensor, concatenate
from twinned.export.onnx.inputs import split_rows
from twinned.fitted.twin import FittedTwin
from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.models.neural.inputs import Scale
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.pairing.differences import PairColumn, both_orders
from twinned.rows.neighbors import LEAST_VARIANCE
from twinned.rows.schema import Floats, TableSchema

Networks = NeuralDifferenceModel | PlainNetworks


class Moments(NamedTuple):
    """Mean and standard deviation of the estimates of the fitted target, (row, output) each.

    `value` is the prediction of y: the mean of the estimates in its units.
    """

    mean: Tensor
    std: Tensor
    value: Tensor


def weighted_moments(values: Tensor, mean_of: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Mean of values, and the root of the mean of their squared deviations from it."""
    mean = mean_of(values)
    deviations = values - mean
    return mean, mean_of(deviations * deviations).apply("Sqrt")


def add_twin(fitted: FittedTwin, matrix: Tensor) -> Moments:
    """Add the prediction of a twin: encoded rows (row, feature) → (row, output)."""
    moments = AnchorGraph(fitted, matrix).moments()
    return add_residuals(fitted, matrix, moments.mean, moments.std) or moments


def add_residuals(fitted: FittedTwin, matrix: Tensor, mean: Tensor, std: Tensor) -> Moments | None:
    """Moments of the estimates that are a mean plus the residuals of the anchors, if it has any."""
    if fitted.residuals is None:
        return None
    if fitted.is_local:
        local_mean, value = AnchorGraph(fitted, matrix).average_estimates(mean)
        return Moments(local_mean, std, value)
    mean_estimate = mean + mean_residual(fitted)
    if not fitted.target.is_log:
        return Moments(mean_estimate, std, mean_estimate)
    factor = anchor_shares(fitted) @ np.exp(fitted.residuals)
    return Moments(mean_estimate, std, mean.apply("Exp") * factor)


def add_networks(networks: PlainNetworks, schema: TableSchema, matrix: Tensor) -> Moments:
    """Add the prediction of plain networks, as that of a twin."""
    layers = _Layers(networks, schema.n_encoded)
    (first,) = layers.first(split_rows(schema, matrix))
    members = layers.output(layers.last_hidden(first)).cast(DOUBLE)
    members = members * networks.scale.y_spread + networks.scale.y_mean
    weights = networks.member_weights[:, None, None]
    mean, std = weighted_moments(members, lambda values: (values * weights).sum(0))
    return Moments(mean, std, mean)


class AnchorGraph:
    """The anchors of a twin in a graph, and what is predicted from them for encoded rows."""

    def __init__(self, fitted: FittedTwin, matrix: Tensor) -> None:
        self._graph, self._fitted = matrix.graph, fitted
        self._queries = split_rows(fitted.schema, matrix)
        self._rows = split_rows(fitted.schema, self._graph.constant(fitted.anchors.matrix))
        self._known_y = self._graph.constant(fitted.anchors.outputs)

    def moments(self) -> Moments:
        """(row, output): the moments of the estimates by differences."""
        return Moments(*self._graph.map_rows(self._moments_of_query, self._queries))

    def average_estimates(self, mean: Tensor) -> list[Tensor]:
        """(row, output): weighted mean of the estimates with residuals, also in units of y."""
        return self._graph.map_rows(self._average_of_query, self._queries, mean)

    def process_std(self) -> Tensor:
        """(row, 1): standard deviation of y by the process of the learned metric, as its `std`."""
        return self._graph.map_rows(self._process_std_of_query, self._queries)[0]

    def _in_units_of_y(self, estimates: Tensor) -> Tensor:
        return estimates.apply("Exp") if self._fitted.target.is_log else estimates

    def _average_of_query(self, query: Tensor, mean: Tensor) -> list[Tensor]:
        both_missing = self._rows.is_nan().apply("And", query.is_nan())
        equal = self._rows.apply("Equal", query).apply("Or", both_missing).cast(DOUBLE)
        is_equal = equal.reduce("ReduceMin", 1, keepdims=True)  # (anchor, 1)
        shares = self._graph.constant(anchor_shares(self._fitted))
        if (local_weights := self._fitted.local_weights) is not None:
            shares = shares * self._process_weights(query, local_weights.power)
            shares = shares / shares.sum(0, keepdims=True)
        shares = shares.add_axis(1)
        if correlation := self._fitted.replicate_correlation:
            # as `weigh_replicates`
            n_equal = is_equal.sum(0)
            n_others = (n_equal - 1.0).apply("Max", 0.0)
            share_of_equal = correlation / (n_others * correlation + 1.0)
            shares = shares * (1.0 - n_equal * share_of_equal) + is_equal * share_of_equal
        estimates = mean + self._graph.constant(np.asarray(self._fitted.residuals))
        estimates = is_equal.apply("Greater", 0.0).apply("Where", self._known_y, estimates)
        return [(shares * estimates).sum(0), (shares * self._in_units_of_y(estimates)).sum(0)]

    def _moments_of_query(self, query: Tensor) -> list[Tensor]:
        estimates = self._differences(query) + self._known_y
        shares = anchor_shares(self._fitted)[:, None]
        member_weights = self._fitted.model.member_weights[:, None]

        def mean_of(values: Tensor) -> Tensor:
            """(member, anchor, output) → (output,)."""
            return ((values * shares).sum(-2) * member_weights).sum(0)

        mean, std = weighted_moments(estimates, mean_of)
        if not self._fitted.target.is_log:
            return [mean, std, mean]
        mean_of_members = (estimates * member_weights[..., None]).sum(0)
        return [mean, std, (self._in_units_of_y(mean_of_members) * shares).sum(0)]

    # --- differences --------------------------------------------------------------------------

    def _differences(self, query: Tensor) -> Tensor:
        """(member, anchor, output): F(query, anchor)."""
        model = self._fitted.model
        if isinstance(model, NeuralDifferenceModel):
            return self._neural_differences(model, query)
        assert isinstance(model, SklearnDifferenceModel)
        return self._pair_differences(model, query)

    def _neural_differences(self, model: NeuralDifferenceModel, query: Tensor) -> Tensor:
        layers = _Layers(model, self._fitted.schema.n_encoded)
        with self._graph.outside_loops():
            first, second = layers.first(self._rows)  # computed once
        query_halves = layers.first(query.add_axis(0))
        # the bias of the output layer cancels
        forward = layers.last_hidden(second + query_halves[0])
        backward = layers.last_hidden(first + query_halves[1])
        scaled = (forward - backward) @ (np.float32(0.5) * layers.output_weight)
        return scaled.cast(DOUBLE) * model.scale.y_spread

    def _pair_differences(self, model: SklearnDifferenceModel, query: Tensor) -> Tensor:
        role, source = model.features.layout(self._fitted.anchors.rows)
        groups = {kind: source[role == kind] for kind in PairColumn if (role == kind).any()}
        # the query is repeated for each anchor
        queries = query.apply("Expand", self._rows.apply("Shape"))
        orders = [_pairs(groups, queries, self._rows)]
        if model.symmetric:
            orders.append(_pairs(groups, self._rows, queries))
        pairs = concatenate(orders, axis=0)
        if model.features.dtype == np.float32:
            pairs = pairs.cast(FLOAT).cast(DOUBLE)
        predicted = regressors.add_regressor(model.estimator, pairs) * model.unit
        n_outputs = self._fitted.anchors.outputs.shape[1]
        predicted = predicted.reshape(len(orders), -1, n_outputs)
        signs = both_orders(np.ones((1, 1)), np.ones((1, 1)))  # of F(query, anchor) and its mirror
        return predicted * signs if model.symmetric else predicted

    # --- the process of the learned metric ----------------------------------------------------

    def _process_weights(self, query: Tensor, power: float) -> Tensor:
        """(anchor,) powers of inverse variances of y at the query, given each anchor."""
        metric = self._fitted.anchors.metric
        correlation = regressors.add_matern(self._squares(query, 1.0 / metric.length_scales))
        total = (1.0 + metric.noise) ** 2
        return ((total - 1.0) / (total - correlation * correlation)).apply("Pow", float(power))

    def _process_std_of_query(self, query: Tensor) -> list[Tensor]:
        process, schema = self._fitted.anchors.process, self._fitted.schema
        inverse_lengths = 1.0 / process.metric.length_scales
        squares = self._squares(query, inverse_lengths).take(process.used)
        for feature in schema.categorical:
            columns = schema.encoded_columns(np.array([feature]))
            is_new = query.columns(columns).sum(-1, keepdims=True).equals(0.0)
            squares = squares + is_new * np.mean(inverse_lengths[columns] ** 2)
        explained = regressors.add_matern(squares) @ np.linalg.inv(process.factor).T
        remaining = 1.0 - (explained * explained).sum(-1, keepdims=True)
        features = self._encoded(query)
        excess = features - features.apply("Max", process.low).apply("Min", process.high)
        excess = (excess * inverse_lengths).fill_nan(0.0)
        trend = (excess * excess * process.trend).sum(-1, keepdims=True)
        variance = remaining.apply("Max", LEAST_VARIANCE) + process.metric.noise + trend
        return [variance.apply("Sqrt")]

    def _encoded(self, rows: Tensor) -> Tensor:
        """Numeric features, scaled where the twin is neural, and indicators."""
        model, n_encoded = self._fitted.model, self._fitted.schema.n_encoded
        values = rows.columns(range(n_encoded))
        if isinstance(model, NeuralDifferenceModel):
            return _scaled(model.scale, values, n_encoded)
        return values

    def _squares(self, query: Tensor, scale: Floats) -> Tensor:
        """(anchor,) squared distances of a query, on features that are multiplied by a scale."""
        center = self._fitted.anchors.metric.center
        with self._graph.outside_loops():
            anchors = ((self._encoded(self._rows) - center) * scale).fill_nan(0.0)
        return regressors.add_squares(
            ((self._encoded(query) - center) * scale).fill_nan(0.0), anchors
        )


def _pairs(groups: dict[PairColumn, NDArray[np.int64]], first: Tensor, second: Tensor) -> Tensor:
    """(pair, pair column) of rows (pair, row column)."""
    pair_columns = []
    for kind, columns in groups.items():
        if kind == PairColumn.FIRST:
            values = first.columns(columns)
        elif kind == PairColumn.SECOND:
            values = second.columns(columns)
        else:
            values = first.columns(columns) - second.columns(columns)
        if kind == PairColumn.MISMATCH:
            differs = 1.0 - values.equals(0.0)
            values = values.is_nan().apply("Where", np.nan, differs)
        pair_columns.append(values)
    return concatenate(pair_columns)


def _scaled(scale: Scale, encoded: Tensor, n_encoded: int) -> Tensor:
    """(row, column): encoded features, with missing values filled and numbers scaled."""
    n_rest = n_encoded - len(scale.X_mean)
    filled = encoded.fill_nan(np.append(scale.X_fill, np.zeros(n_rest)))
    mean = np.append(scale.X_mean, np.zeros(n_rest))
    return (filled - mean) / np.append(scale.X_spread, np.ones(n_rest))


def _unpadded_parameters(networks: Networks, n_features: int) -> dict[str, NDArray[np.float32]]:
    """Parameters of networks of so many inputs, leading axis member."""
    parameters = {name: np.asarray(value) for name, value in networks.parameters.items()}
    for name, value in parameters.items():
        if name.startswith(("linear", "frequency")):
            parameters[name] = value[:, :n_features]
        elif name.startswith("periodic"):
            parameters[name] = value[:, : 2 * networks.shape.n_frequencies * n_features]
    return parameters


class _Layers:
    """Layers of trained networks. Axes: member, row (or anchor), hidden."""

    def __init__(self, networks: Networks, n_encoded: int) -> None:
        self._networks, self._n_encoded = networks, n_encoded
        n_features = n_encoded if networks.columns is None else len(networks.columns)
        self._parameters = _unpadded_parameters(networks, n_features)
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
        if self._networks.shape.n_frequencies:
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
    if activation == "silu":
        half = x * np.float32(0.5)
        return half + half * half.apply("Tanh")
    return x.apply({"relu": "Relu", "tanh": "Tanh"}[activation])
