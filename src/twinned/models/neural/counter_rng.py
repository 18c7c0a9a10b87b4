"""Counter-based random numbers, which depend on a key and their position only.

`jax.random` gives other numbers when an array is padded or batched. Here each number is a hash of
a key and its own coordinates, so that a padded problem, and a problem trained beside others, gets
exactly the numbers that it would get alone. It is also several times cheaper on a CPU, where the
random bits of dropout cost more than the matrix products.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

_GOLDEN = np.uint32(0x9E3779B9)  # 2³² / golden ratio: spreads successive counters over all bits
_ROW = np.uint32(0x85EBCA6B)


def mix(x: Any) -> Array:
    """Hash 32-bit integers; each input bit changes each output bit about half of the time."""
    x = jnp.asarray(x, jnp.uint32)
    x = (x ^ (x >> 16)) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * np.uint32(0x846CA68B)
    return x ^ (x >> 16)


def fold_in(key: Any, number: Any) -> Array:
    """Derive a new key from a key and a number: a step, a layer, a member."""
    return mix(jnp.asarray(key, jnp.uint32) + mix(jnp.asarray(number, jnp.uint32) + _GOLDEN))


def bits(key: Array, rows: int, columns: int) -> Array:
    """(rows, columns) of 32 random bits; they do not depend on the numbers of rows and columns."""
    row = mix(key + jnp.arange(rows, dtype=jnp.uint32)[:, None] * _ROW)
    return mix(row + jnp.arange(columns, dtype=jnp.uint32) * _GOLDEN)


def uniform(key: Array, rows: int, columns: int) -> Array:
    """(rows, columns) float32 in [0, 1)."""
    return (bits(key, rows, columns) >> 8).astype(jnp.float32) * jnp.float32(2.0**-24)


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
