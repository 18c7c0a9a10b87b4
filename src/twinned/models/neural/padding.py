"""Padding of arrays to a few sizes, so that few programs are compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray


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


def pad_rows(values: NDArray[Any], n_rows: int) -> NDArray[Any]:
    """(n_rows, …) float32: zeros after the rows of `values`."""
    return pad_to(values, n_rows, *values.shape[1:])
