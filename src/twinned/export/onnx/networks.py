"""Networks: the layers of all members at once, in float32 as they were trained.

Axes: `member`, `row` (or `anchor`), `hidden`, `output`. Padded features are removed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.export.onnx.graph import DOUBLE, FLOAT, Graph, Tensor
from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.models.neural.network import Shape
from twinned.models.neural.problem import Scale

Networks = NeuralDifferenceModel | PlainNetworks


class _Layers(NamedTuple):
    """Parameters of trained networks without padding; leading axis member."""

    shape: Shape
    parameters: dict[str, NDArray[np.float32]]
    has_embedding: bool

    @classmethod
    def of(cls, networks: Networks, n_features: int) -> _Layers:
        shape, gates = networks.shape, np.asarray(networks.gates)
        own = {name: np.asarray(value) for name, value in networks.parameters.items()}
        for name in [name for name in own if name.startswith(("linear", "frequency"))]:
            own[name] = own[name][:, :n_features]
        for name in [name for name in own if name.startswith("periodic")]:
            # a member without periodic embedding has the gate 0
            rows = own[name][:, : 2 * shape.n_frequencies * n_features]
            own[name] = rows * gates[:, None, None].astype(np.float32)
        return cls(shape, own, bool(shape.n_frequencies and gates.any()))

    def first(self, graph: Graph, X: Tensor) -> list[Tensor]:
        """(row, feature) → halves of the first layer, (member, row, hidden) for each side."""
        sides = range(2 if self.shape.twin else 1)
        halves = [graph.add("MatMul", X, self.parameters[f"linear_{side}"]) for side in sides]
        halves[0] = graph.add("Add", halves[0], self._bias(0))
        if self.has_embedding:
            embedding = self._embedding(graph, X)
            for side in sides:
                products = graph.add("MatMul", embedding, self.parameters[f"periodic_{side}"])
                halves[side] = graph.add("Add", halves[side], products)
        return halves

    def _embedding(self, graph: Graph, X: Tensor) -> Tensor:
        """(row, feature) → (member, row, wave)."""
        frequency = self.parameters["frequency"]  # (member, feature, wave)
        turns = graph.add("Unsqueeze", graph.add("Mul", X, np.float32(2 * np.pi)), np.array([-1]))
        angle = graph.add("Mul", turns, frequency[:, None])
        cosine = graph.add("Sub", graph.add("Cos", angle), np.float32(1))
        waves = graph.concatenate([graph.add("Sin", angle), cosine])
        n_waves = 2 * frequency.shape[1] * frequency.shape[2]
        return graph.reshape(waves, len(frequency), -1, n_waves)

    def last_hidden(self, graph: Graph, value: Tensor) -> Tensor:
        """(member, row, hidden) before the first activation → after the last one."""
        for layer in range(len(self.shape.hidden_sizes)):
            if layer:
                value = graph.add("MatMul", value, self.parameters[f"weight_{layer}"])
                value = graph.add("Add", value, self._bias(layer))
            value = _activate(graph, self.shape.activation, value)
        return value

    @property
    def output_weight(self) -> NDArray[np.float32]:
        """(member, hidden, output)."""
        return self.parameters[f"weight_{len(self.shape.hidden_sizes)}"]

    def output(self, graph: Graph, hidden: Tensor) -> Tensor:
        """(member, row, hidden) after the last activation → (member, row, output)."""
        products = graph.add("MatMul", hidden, self.output_weight)
        return graph.add("Add", products, self._bias(len(self.shape.hidden_sizes)))

    def _bias(self, layer: int) -> NDArray[np.float32]:
        """(member, 1, hidden)."""
        return self.parameters[f"bias_{layer}"][:, None]


def add_features(graph: Graph, networks: Networks, rows: Tensor, n_encoded: int) -> Tensor:
    """(row, feature) float32: scaled inputs of networks, from rows of `split_rows`."""
    features = add_scaled(graph, networks.scale, graph.columns(rows, range(n_encoded)), n_encoded)
    if networks.columns is not None:
        features = graph.columns(features, networks.columns)
    return graph.cast(features, FLOAT)


def add_scaled(graph: Graph, scale: Scale, encoded: Tensor, n_encoded: int) -> Tensor:
    """(row, column): encoded features, with missing values filled and numbers scaled."""
    n_rest = n_encoded - len(scale.X_mean)
    missing = graph.add("IsNaN", encoded)
    filled = graph.add("Where", missing, np.append(scale.X_fill, np.zeros(n_rest)), encoded)
    centered = graph.add("Sub", filled, np.append(scale.X_mean, np.zeros(n_rest)))
    return graph.add("Div", centered, np.append(scale.X_spread, np.ones(n_rest)))


def count_features(networks: Networks, n_encoded: int) -> int:
    """The number of inputs without padding."""
    return n_encoded if networks.columns is None else len(networks.columns)


def add_plain_networks(graph: Graph, networks: PlainNetworks, X: Tensor, n_features: int) -> Tensor:
    """(row, feature) float32 → (member, row, output) float64, in units of y."""
    layers = _Layers.of(networks, n_features)
    (first,) = layers.first(graph, X)
    scaled = graph.cast(layers.output(graph, layers.last_hidden(graph, first)), DOUBLE)
    scaled = graph.add("Mul", scaled, networks.scale.y_spread)
    return graph.add("Add", scaled, networks.scale.y_mean)


class AnchoredLayers:
    """Networks of differences with the first layer of the anchors, which is computed once."""

    def __init__(
        self, graph: Graph, model: NeuralDifferenceModel, anchors: Tensor, n_features: int
    ) -> None:
        self._layers = _Layers.of(model, n_features)
        self._unit: Any = model.scale.y_spread
        self._anchors = self._layers.first(graph, anchors)

    def add_differences(self, graph: Graph, query: Tensor, indices: Tensor | None) -> Tensor:
        """(member, anchor, output) float64: differences of one query (feature,) to its anchors."""
        layers = self._layers
        q = layers.first(graph, graph.add("Unsqueeze", query, np.array([0])))
        a = self._anchors
        if indices is not None:
            a = [graph.add("Gather", half, indices, axis=1) for half in a]
        forward = layers.last_hidden(graph, graph.add("Add", a[1], q[0]))
        backward = layers.last_hidden(graph, graph.add("Add", a[0], q[1]))
        # the bias of the output layer cancels
        halves = graph.add("Sub", forward, backward)
        scaled = graph.add("MatMul", halves, np.float32(0.5) * layers.output_weight)
        return graph.add("Mul", graph.cast(scaled, DOUBLE), self._unit)


def _activate(graph: Graph, activation: str, x: Tensor) -> Tensor:
    if activation == "relu":
        return graph.add("Relu", x)
    if activation == "tanh":
        return graph.add("Tanh", x)
    if activation == "mish":
        return graph.add("Mul", x, graph.add("Tanh", graph.add("Softplus", x)))
    assert activation == "silu"
    half = graph.add("Mul", x, np.float32(0.5))
    return graph.add("Add", half, graph.add("Mul", half, graph.add("Tanh", half)))
