"""Padding of arrays to a few sizes, and random numbers that do not depend on it.

Arrays are padded so that few programs are compiled. `jax.random` gives other numbers when an array
is padded or batched. Here each number is a hash of a key and its own coordinates, so that a padded
problem, and a problem trained beside others, gets exactly the numbers that it would get alone. It
is also several times cheaper on a CPU, where the random bits of dropout cost more than the matrix
products.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike as JaxArrayLike
from numpy.typing import ArrayLike, DTypeLike, NDArray

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


def pad_to(values: ArrayLike, *shape: int, dtype: DTypeLike = np.float32) -> NDArray:
    """Return an array of this shape, with zeros after the values along every axis.

    >>> pad_to([[1, 2], [3, 4]], 2, 3)
    array([[1., 2., 0.],
           [3., 4., 0.]], dtype=float32)
    """
    out = np.zeros(shape, dtype=dtype)
    out[tuple(slice(size) for size in np.shape(values))] = values
    return out


def pad_rows(values: NDArray, n_rows: int) -> NDArray[np.float32]:
    """(n_rows, …) float32: zeros after the rows of `values`."""
    return pad_to(values, n_rows, *values.shape[1:])


def stack_fields(items):
    """Stack the fields of named tuples of one type along a new leading axis."""
    return type(items[0])(*(np.stack(field) for field in zip(*items, strict=True)))


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
