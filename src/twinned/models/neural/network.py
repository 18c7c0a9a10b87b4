"""The network of one member: parameters, first layer, output, difference of two points.

The first layer is linear in both sides of a pair, so it is a sum of two halves: one for the first
point, one for the second. Each is computed once per point and added for every pair that the point
is part of; only the following layers are computed pair by pair.

Axes: `point` (or `pair`), `feature`, `hidden`, `output`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from twinned.models.neural.device import platform
from twinned.models.neural.padding import fold_in, normal, uniform

Parameters = dict[str, Array]
Halves = tuple[Array, ...]  # of the first layer: one array (..., hidden) for each side of a pair
Masks = Sequence[Array] | None  # of dropout: one for each hidden layer


@jax.custom_vjp
def silu(x: Array) -> Array:
    """Compute x · sigmoid(x) by tanh: cheaper on a CPU than exp and a division."""
    return _silu_forward(x)[0]


def _silu_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    half = 0.5 * x
    tanh = jnp.tanh(half)
    value = half + half * tanh  # a sum at the end: see `differences`
    return value, (value, 0.5 + 0.5 * tanh)


def _silu_backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array]:
    value, sigmoid = residuals
    return (gradient * (sigmoid + value * (1.0 - sigmoid)),)


silu.defvjp(_silu_forward, _silu_backward)


@jax.custom_vjp
def matmul(x: Array, weight: Array) -> Array:
    """(..., before) times (before, after), as one product of two matrices."""
    rows = x.reshape(-1, x.shape[-1]) @ weight
    return rows.reshape(*x.shape[:-1], weight.shape[-1])


def _matmul_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return matmul(x, weight), (x, weight)


def _matmul_backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = residuals
    rows, by_row = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    columns = rows.T
    if platform() == "cpu":
        # its product of a transposed matrix takes half as long again as a copy and a plain one
        columns = jax.lax.optimization_barrier(columns)
    return (by_row @ weight.T).reshape(x.shape), columns @ by_row


matmul.defvjp(_matmul_forward, _matmul_backward)


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "silu": silu,
    "mish": jax.nn.mish,
    "tanh": jnp.tanh,
}
_END_IN_A_PRODUCT = {"mish"}


@dataclass(frozen=True)
class Shape:
    """The sizes and the activation of a network, which determine its compiled program."""

    n_features: int  # padded
    n_outputs: int
    hidden_sizes: tuple[int, ...]
    n_frequencies: int
    activation: str
    twin: bool


def initial_parameters(
    shape: Shape, key: Array, n_features: Array, frequency_scale: Array
) -> Parameters:
    """Draw random parameters; those of padded features have no effect.

    `n_features` is the number without padding, which sets the scale of the first layer.
    """
    d, n_frequencies = shape.n_features, shape.n_frequencies
    sides = 2 if shape.twin else 1
    fan_in = sides * n_features.astype(jnp.float32)
    first = shape.hidden_sizes[0]
    parameters: Parameters = {}
    for side in range(sides):
        key_of_side = fold_in(key, 10 + side)
        parameters[f"linear_{side}"] = _weights(key_of_side, d, first, fan_in)
        if n_frequencies:
            # one row per feature, so that the coordinates of a weight do not change with padding
            n_columns, key_of_side = 2 * n_frequencies * first, fold_in(key, 20 + side)
            weights = _weights(key_of_side, d, n_columns, fan_in * n_frequencies)
            parameters[f"periodic_{side}"] = weights.reshape(d * 2 * n_frequencies, first)
    if n_frequencies:
        parameters["frequency"] = frequency_scale * normal(fold_in(key, 1), d, n_frequencies)
    parameters["bias_0"] = jnp.zeros(first)
    sizes = (*shape.hidden_sizes, shape.n_outputs)
    for layer in range(1, len(sizes)):
        before, after = sizes[layer - 1], sizes[layer]
        key_of_layer = fold_in(key, 1000 + layer)
        parameters[f"weight_{layer}"] = _weights(key_of_layer, before, after, jnp.float32(before))
        parameters[f"bias_{layer}"] = jnp.zeros(after)
    return parameters


def _weights(key: Array, rows: int, columns: int, fan_in: Array) -> Array:
    """Uniform float32 with variance 1 / fan_in."""
    return (2.0 * uniform(key, rows, columns) - 1.0) * jnp.sqrt(3.0 / fan_in)


class Network(NamedTuple):
    """One network: F(a, b) of a twin, or a plain network."""

    shape: Shape
    parameters: Parameters
    gate: Array  # 1 with periodic embedding of the features, 0 without

    def first_layer(self, x: Array) -> Halves:
        """(..., feature) → the halves of the first layer, (..., hidden) for each side of a pair.

        The bias is part of the first half: each order of a pair has one first point.
        """
        shape, parameters, gate = self
        sides = range(2 if shape.twin else 1)
        out = [x @ parameters[f"linear_{side}"] for side in sides]
        out[0] = out[0] + parameters["bias_0"]
        if shape.n_frequencies:
            angle = 2.0 * jnp.pi * x[..., None] * parameters["frequency"]
            # sin and cos − 1: a padded feature, which is 0 everywhere, adds nothing
            embedding = jnp.concatenate([jnp.sin(angle), jnp.cos(angle) - 1.0], axis=-1) * gate
            embedding = embedding.reshape(*x.shape[:-1], -1)
            for side in sides:
                out[side] = out[side] + embedding @ parameters[f"periodic_{side}"]
        return tuple(out)

    def last_hidden(self, value: Array, masks: Masks = None) -> Array:
        """(..., hidden) before the first activation → (..., hidden) after the last one."""
        activation = ACTIVATIONS[self.shape.activation]
        for layer in range(len(self.shape.hidden_sizes)):
            if layer:
                weight, bias = self.parameters[f"weight_{layer}"], self.parameters[f"bias_{layer}"]
                value = matmul(value, weight) + bias
            value = activation(value)
            if masks is not None:
                value = value * masks[layer]
        return value

    def output(self, first: Array, masks: Masks = None) -> Array:
        """(..., hidden) before the first activation → (..., output)."""
        last = len(self.shape.hidden_sizes)
        value = self.last_hidden(first, masks)
        return value @ self.parameters[f"weight_{last}"] + self.parameters[f"bias_{last}"]

    def half_output_weight(self) -> Array:
        """(hidden, output): half the weight of the last layer, for the mean of both orders."""
        return 0.5 * self.parameters[f"weight_{len(self.shape.hidden_sizes)}"]

    def differences(self, a: Halves, b: Halves, masks: Masks = None) -> Array:
        """½F(a, b) − ½F(b, a) from the first-layer halves of both points, which broadcast.

        `masks` are those of both orders, one after the other.
        """
        hidden = self.last_hidden(jnp.concatenate([a[0] + b[1], b[0] + a[1]]), masks)
        output = self.half_output_weight()
        # The output layer is linear, and its bias cancels: it may be applied to the difference, at
        # half the cost. But a compiler rounds the product at the end of an activation and the
        # subtraction at once, on one side alone; then F(a, b) is not −F(b, a) to the last bit.
        if self.shape.activation in _END_IN_A_PRODUCT:
            forward, backward = jnp.split(hidden @ output, 2)
            return forward - backward
        forward, backward = jnp.split(hidden, 2)
        return (forward - backward) @ output
