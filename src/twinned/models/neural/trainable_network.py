"""Networks that are trained: their random numbers, first parameters and derivatives.

`jax.random` gives other numbers when an array is padded or batched. Here each number is a hash of a
key and its own coordinates, so that a padded problem, and a problem trained beside others, gets
exactly the numbers that it would get alone. It is also several times cheaper on a CPU, where the
random bits of dropout cost more than the matrix products.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from twinned.models.neural import network
from twinned.models.neural.device import platform
from twinned.models.neural.network import Network, Parameters, Shape

_GOLDEN = np.uint32(0x9E3779B9)  # 2³² / golden ratio: spreads successive counters over all bits
_ROW = np.uint32(0x85EBCA6B)


def stack_fields(items: Any) -> Any:
    """Stack the fields of named tuples of one type along a new leading axis."""
    return jax.tree.map(lambda *values: np.stack(values), *items)


def mix(x: ArrayLike) -> Array:
    """Hash 32-bit integers; each input bit changes each output bit about half of the time."""
    x = jnp.asarray(x, jnp.uint32)
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def fold_in(key: ArrayLike, number: ArrayLike) -> Array:
    """Derive a new key from a key and a number: a step, a layer, a member."""
    return mix(jnp.asarray(key, jnp.uint32) + mix(jnp.asarray(number, jnp.uint32) + _GOLDEN))


def random_bits(key: Array, rows: int, columns: int) -> Array:
    """(rows, columns) of 32 random bits; they do not depend on the numbers of rows and columns."""
    row = mix(key + jnp.arange(rows, dtype=jnp.uint32)[:, None] * _ROW)
    return mix(row + jnp.arange(columns, dtype=jnp.uint32) * _GOLDEN)


def uniform(key: Array, rows: int, columns: int) -> Array:
    """(rows, columns) float32 in [0, 1)."""
    return (random_bits(key, rows, columns) >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


def normal(key: Array, rows: int, columns: int) -> Array:
    """(rows, columns) float32, standard normal (Box and Muller)."""
    radius = uniform(fold_in(key, 1), rows, columns)
    angle = uniform(fold_in(key, 2), rows, columns)
    return jnp.sqrt(-2.0 * jnp.log1p(-radius)) * jnp.cos(2.0 * jnp.pi * angle)


def integers(key: Array, count: Array, size: int) -> Array:
    """(size,) int32 from 0 to count − 1."""
    drawn = uniform(key, 1, size)[0] * count.astype(jnp.float32)
    # rounding may reach `count` itself where that is large
    return jnp.minimum(drawn.astype(jnp.int32), count.astype(jnp.int32) - 1)


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


# --- derivatives ----------------------------------------------------------------------------------


@jax.custom_vjp
def _silu(x: Array) -> Array:
    return _silu_forward(x)[0]


def _silu_forward(x: Array) -> tuple[Array, tuple[Array, Array]]:
    half = 0.5 * x
    tanh = jnp.tanh(half)
    value = half + half * tanh  # as in `network.silu`
    return value, (value, 0.5 + 0.5 * tanh)


def _silu_backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array]:
    value, sigmoid = residuals
    return (gradient * (sigmoid + value * (1.0 - sigmoid)),)


_silu.defvjp(_silu_forward, _silu_backward)


@jax.custom_vjp
def _matmul(x: Array, weight: Array) -> Array:
    return network.matmul(x, weight)


def _matmul_forward(x: Array, weight: Array) -> tuple[Array, tuple[Array, Array]]:
    return _matmul(x, weight), (x, weight)


def _matmul_backward(residuals: tuple[Array, Array], gradient: Array) -> tuple[Array, Array]:
    x, weight = residuals
    rows, by_row = x.reshape(-1, x.shape[-1]), gradient.reshape(-1, gradient.shape[-1])
    columns = rows.T
    if platform() == "cpu":
        # its product of a transposed matrix takes half as long again as a copy and a plain one
        columns = jax.lax.optimization_barrier(columns)
    return (by_row @ weight.T).reshape(x.shape), columns @ by_row


_matmul.defvjp(_matmul_forward, _matmul_backward)


_ACTIVATIONS: dict[str, Any] = {"relu": jax.nn.relu, "silu": _silu, "tanh": jnp.tanh}


class TrainableNetwork(Network):
    """A network whose layers have derivatives of their own, which are cheaper."""

    activations = _ACTIVATIONS
    matmul = staticmethod(_matmul)
