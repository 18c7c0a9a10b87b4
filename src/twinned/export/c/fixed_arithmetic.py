"""Fixed-point arithmetic: rounding, tables of functions, and matrices of 16-bit integers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinned.export.c.columns import Singles

Integers = NDArray[np.int64]

INPUT_BITS = 15  # fractional bits of the inputs of the first layer
SUM_BITS = 16  # fractional bits of a layer before its activation
INPUT_LIMIT = 32_768.0  # scaled features beyond are clipped
TABLE_RANGE, STEP_BITS = 12, 11  # the table of an activation: within ±12, a step is 2¹¹ of 2¹⁶
SINE_ENTRIES, PHASE_BITS = 512, 20
SUM_LIMIT = 2**29  # of a layer before its activation; the sum of two halves fits into 32 bits
_MAX_SHIFT = 30
LARGEST = 32_767


@dataclass(frozen=True, eq=False)
class FixedMatrix:
    """A matrix (after, before) of 16-bit integers, and the fractional bits of its rows."""

    values: NDArray[np.int16]
    bits: NDArray[np.uint8]

    @classmethod
    def quantize(cls, matrix: Singles) -> FixedMatrix:
        """Round each row with as many fractional bits as its largest number allows."""
        largest = np.abs(matrix).max(axis=1).astype(np.float64)
        bits = np.floor(np.log2(LARGEST / np.maximum(largest, 1e-30)))
        bits = np.clip(bits, 0, _MAX_SHIFT)
        values = np.rint(matrix * np.exp2(bits)[:, None])
        return cls(np.clip(values, -LARGEST, LARGEST).astype(np.int16), bits.astype(np.uint8))

    def product(self, inputs: Integers, bits: int) -> Integers:
        """(..., before) → (..., after) with 16 fractional bits, from inputs with `bits`."""
        # exact: sums are far below 2⁵³
        sums = inputs.astype(np.float64) @ self.values.T.astype(np.float64)
        return shift(sums.astype(np.int64), self.bits.astype(np.int64) + bits - SUM_BITS)


def shift(values: Integers, bits: Integers | int) -> Integers:
    """Divide by 2^bits and round to the nearest integer, halves away from zero.

    >>> shift(np.array([5, -5, 6]), 1), shift(np.array([3]), -2)
    (array([ 3, -3,  3]), array([12]))
    """
    bits = np.asarray(bits, dtype=np.int64)
    right = np.maximum(bits, 0)
    half = np.where(right > 0, np.int64(1) << np.maximum(right - 1, 0), 0)
    rounded = np.sign(values) * ((np.abs(values) + half) >> right)
    return rounded << np.maximum(-bits, 0)


def _gate(activation: str) -> Callable[[NDArray[np.float64]], NDArray[np.float64]]:
    """The function that is tabulated: activation(x) / x, or tanh itself."""
    if activation == "silu":
        return lambda x: 1.0 / (1.0 + np.exp(-x))
    if activation == "mish":
        return lambda x: np.tanh(np.log1p(np.exp(x)))
    return np.tanh


def activation_table(activation: str) -> Integers:
    """(entry,) with 15 fractional bits, of equidistant arguments within ±12."""
    n_steps = 2 * TABLE_RANGE << (SUM_BITS - STEP_BITS)
    x = np.linspace(-TABLE_RANGE, TABLE_RANGE, n_steps + 1)
    return np.minimum(np.rint(32_768 * _gate(activation)(x)), LARGEST).astype(np.int64)


def sine_table() -> Integers:
    turns = np.arange(SINE_ENTRIES + 1) / SINE_ENTRIES
    return np.rint(LARGEST * np.sin(2 * np.pi * turns)).astype(np.int64)


def interpolate(table: Integers, position: Integers, bits: int) -> Integers:
    """Entries of a table at positions with fractional bits."""
    index, rest = position >> bits, position & ((1 << bits) - 1)
    low, high = table[index], table[np.minimum(index + 1, len(table) - 1)]
    return low + shift((high - low) * rest, bits)
