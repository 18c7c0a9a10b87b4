"""The network of one member, and the padded arrays and random numbers that it is made of.

The first layer is linear in both sides of a pair, so it is a sum of two halves: one for the first
point, one for the second. Each is computed once per point and added for every pair that the point
is part of; only the following layers are computed pair by pair.

Arrays are padded so that few programs are compiled. `jax.random` gives other numbers when an array
is padded or batched. Here each number is a hash of a key and its own coordinates, so that a padded
problem, and a problem trained beside others, gets exactly the numbers that it would get alone. It
is also several times cheaper on a CPU, where the random bits of dropout cost more than the matrix
products.

Axes: `point` (or `pair`), `feature`, `hidden`, `output`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike as JaxArrayLike
from numpy.typing import ArrayLike, DTypeLike, NDArray

from twinned.models.neural.device import platform

_GOLDEN = np.uint32(0x9E3779B9)  # 2³² / golden ratio: spreads successive counters over all bits
_ROW = np.uint32(0x85EBCA6B)


def round_up(n: int, least: int) -> int:
    """Return the next of 1, 2, 3, 4, 6, 8, 12, …, but at least `least`.

    So there are few shapes to compile, and at most a third is padding.

    >>> [round_up(n, 4) for n in (1, 5, 9, 13, 100, 700)]
    [4, 6, 12, 16, 128, 768]
    >>> [round_up(n, 1) for n in (1, 2, 3, 5)]
    [1, 2, 3, 6]
    """
    size = least
    while size < n:
        # 2ᵏ → 3·2ᵏ⁻¹ → 2ᵏ⁺¹
        size = max(size + 1, size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3)
    return size


def pad_to(values: ArrayLike, *shape: int, dtype: DTypeLike = np.float32) -> NDArray[Any]:
    """Return an array of this shape, with zeros after the values along every axis.

    >>> pad_to([[1, 2], [3, 4]], 2, 3)
    array([[1., 2., 0.],
           [3., 4., 0.]], dtype=float32)
    """
    out = np.zeros(shape, dtype=dtype)
    out[tuple(slice(size) for size in np.shape(values))] = values
    return out


def pad_rows(values: NDArray[Any], n_rows: int) -> NDArray[np.float32]:
    """(n_rows, …) float32: zeros after the rows of `values`."""
    return pad_to(values, n_rows, *values.shape[1:])


def stack_fields(items: Any) -> Any:
    """Stack the fields of named tuples of one type along a new leading axis."""
    return jax.tree.map(lambda *values: np.stack(values), *items)


def mix(x: JaxArrayLike) -> Array:
    """Hash 32-bit integers; each input bit changes each output bit about half of the time."""
    x = jnp.asarray(x, jnp.uint32)
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def fold_in(key: JaxArrayLike, number: JaxArrayLike) -> Array:
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


# --- networks -------------------------------------------------------------------------------------


Parameters = dict[str, jax.Array]
Halves = tuple[
    jax.Array, ...
]  # of the first layer: one array (..., hidden) for each side of a pair
Masks = Sequence[jax.Array] | None  # of dropout: one for each hidden layer


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
    "tanh": jnp.tanh,
}


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
    gate: Array | float = 1.0  # while training, 0 for members without periodic embedding

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
        # The output layer is linear, and its bias cancels: it is applied to the difference, at half
        # the cost. No activation ends in a product: a compiler would round that and the subtraction
        # at once, on one side alone, so that F(a, b) were not −F(b, a) to the last bit.
        forward, backward = jnp.split(hidden, 2)
        return (forward - backward) @ output
