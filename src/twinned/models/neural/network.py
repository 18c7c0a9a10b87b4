"""The network of one member: its parameters, and what it answers for pairs and for points.

The first layer is linear in both sides of a pair, so it falls into two halves: one for the first
point, one for the second. Each is computed once a point and added for every pair that the point
takes part in; only what comes after is computed pair by pair.

Axes: `point` (or `pair`), `feature`, `hidden`, `output`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from twinned.models.neural import counter_rng

Parameters = dict[str, Array]


@jax.custom_vjp
def silu(x: Array) -> Array:
    """The silu, x · sigmoid(x), by tanh: cheaper on a processor than by exp and a division."""
    return _silu_forward(x)[0]


def _silu_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    half = 0.5 * x
    bend = jnp.tanh(half)
    value = half + half * bend  # a sum at the end: see `differences`
    return value, (value, 0.5 + 0.5 * bend)


def _silu_backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array]:
    value, gate = kept
    return (gradient * (gate + value * (1.0 - gate)),)


silu.defvjp(_silu_forward, _silu_backward)


@jax.custom_vjp
def product(x: Array, weight: Array) -> Array:
    """(..., before) times (before, after), as one product of two matrices."""
    rows = x.reshape(-1, x.shape[-1]) @ weight
    return rows.reshape(*x.shape[:-1], weight.shape[-1])


def _product_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return product(x, weight), (x, weight)


def _product_backward(kept: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = kept
    rows, by_row = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    columns = rows.T
    if platform() == "cpu":
        # its product of a transposed matrix takes half as long again as a copy and a plain one
        columns = jax.lax.optimization_barrier(columns)
    return (by_row @ weight.T).reshape(x.shape), columns @ by_row


product.defvjp(_product_forward, _product_backward)


def platform() -> str:
    """Where JAX would compute now: "cpu", "gpu", …."""
    device = getattr(jax.config, "jax_default_device", None)
    return str(jax.default_backend() if device is None else getattr(device, "platform", device))


ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "silu": silu,
    "mish": jax.nn.mish,
    "tanh": jnp.tanh,
}
_END_IN_A_PRODUCT = {"mish"}


class Shape(NamedTuple):
    """What fixes the compiled program of a network."""

    n_features: int  # padded
    n_outputs: int
    hidden_sizes: tuple[int, ...]
    n_frequencies: int
    activation: str
    twin: bool


def initial(shape: Shape, key: Array, n_features: Array, frequency_scale: Array) -> Parameters:
    """Random parameters; those of padded features exist and never matter.

    `n_features` is the true number, which sets the scale of the first layer.
    """
    d, n_frequencies = shape.n_features, shape.n_frequencies
    sides = 2 if shape.twin else 1
    fan_in = sides * n_features.astype(jnp.float32)
    first = shape.hidden_sizes[0]
    parameters: Parameters = {}
    for side in range(sides):
        parameters[f"linear_{side}"] = _weights(counter_rng.fold(key, 10 + side), d, first, fan_in)
        if n_frequencies:
            # a row a feature, so that the coordinates of a weight do not move with padding
            parameters[f"periodic_{side}"] = _weights(
                counter_rng.fold(key, 20 + side),
                d,
                2 * n_frequencies * first,
                fan_in * n_frequencies,
            ).reshape(d * 2 * n_frequencies, first)
    if n_frequencies:
        parameters["frequency"] = frequency_scale * counter_rng.normal(
            counter_rng.fold(key, 1), d, n_frequencies
        )
    parameters["bias_0"] = jnp.zeros(first)
    sizes = (*shape.hidden_sizes, shape.n_outputs)
    for layer in range(1, len(sizes)):
        before, after = sizes[layer - 1], sizes[layer]
        weights = _weights(counter_rng.fold(key, 1000 + layer), before, after, jnp.float32(before))
        parameters[f"weight_{layer}"] = weights
        parameters[f"bias_{layer}"] = jnp.zeros(after)
    return parameters


def _weights(key: Array, rows: int, columns: int, fan_in: Array) -> Array:
    """Uniform with variance 1 / fan_in, kept in float32."""
    return (2.0 * counter_rng.uniform(key, rows, columns) - 1.0) * jnp.sqrt(3.0 / fan_in)


def halves(shape: Shape, parameters: Parameters, x: Array, gate: Array) -> tuple[Array, ...]:
    """(..., feature) → the first layer's halves, (..., hidden) for each side of a pair.

    `gate` is 1 where the member embeds its features in waves, and 0 where it does not. The bias is
    in the first half: each order of a pair has one first point.
    """
    sides = range(2 if shape.twin else 1)
    out = [x @ parameters[f"linear_{side}"] for side in sides]
    out[0] = out[0] + parameters["bias_0"]
    if shape.n_frequencies:
        angle = 2.0 * jnp.pi * x[..., None] * parameters["frequency"]
        # sin and cos − 1: a padded feature, which is 0 everywhere, adds nothing
        waves = jnp.concatenate([jnp.sin(angle), jnp.cos(angle) - 1.0], axis=-1) * gate
        waves = waves.reshape(*x.shape[:-1], -1)
        for side in sides:
            out[side] = out[side] + waves @ parameters[f"periodic_{side}"]
    return tuple(out)


def finish(shape: Shape, parameters: Parameters, first: Array, masks: Any = None) -> Array:
    """(..., hidden) before the first activation → (..., output). `masks` are those of dropout."""
    last = len(shape.hidden_sizes)
    value = last_hidden(shape, parameters, first, masks)
    return value @ parameters[f"weight_{last}"] + parameters[f"bias_{last}"]


def last_hidden(shape: Shape, parameters: Parameters, value: Array, masks: Any = None) -> Array:
    """(..., hidden) before the first activation → (..., hidden) after the last one."""
    activation = ACTIVATIONS[shape.activation]
    for layer in range(len(shape.hidden_sizes)):
        if layer:
            value = product(value, parameters[f"weight_{layer}"]) + parameters[f"bias_{layer}"]
        value = activation(value)
        if masks is not None:
            value = value * masks[layer]
    return value


def differences(shape: Shape, parameters: Parameters, a: Any, b: Any, masks: Any = None) -> Array:
    """½F(a, b) − ½F(b, a) from the halves of both points, whose leading axes broadcast.

    `masks` are those of both orders, one after the other.
    """
    both = jnp.concatenate([a[0] + b[1], b[0] + a[1]])
    hidden = last_hidden(shape, parameters, both, masks)
    output = 0.5 * parameters[f"weight_{len(shape.hidden_sizes)}"]
    # The output layer is linear, and its bias cancels: it may be applied to the difference, at half
    # the cost. But a compiler rounds the product at the end of an activation and the subtraction
    # at once, on one side alone; then F(a, b) is not −F(b, a) to the last bit.
    if shape.activation in _END_IN_A_PRODUCT:
        forward, backward = jnp.split(hidden @ output, 2)
        return forward - backward
    forward, backward = jnp.split(hidden, 2)
    return (forward - backward) @ output
