"""Ensembles of networks in fixed point: weights and activations of 16 bits.

Each row of a weight matrix has an exponent of its own. Products are summed in 64 bits, so that no
sum overflows. Activations and sines are tables with linear interpolation. Scaling of the features
and the mean over the estimates are in single precision.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from twinned.export.c.columns import ColumnEncoding, Singles
from twinned.export.c.fixed_arithmetic import (
    INPUT_BITS,
    INPUT_LIMIT,
    LARGEST,
    PHASE_BITS,
    SINE_ENTRIES,
    STEP_BITS,
    SUM_BITS,
    SUM_LIMIT,
    TABLE_RANGE,
    FixedMatrix,
    Integers,
    activation_table,
    interpolate,
    shift,
    sine_table,
)
from twinned.export.c.fixed_point_code import FixedMember, write_fixed_point
from twinned.export.c.networks import Member, NetworkCore
from twinned.export.c.source import CSource

_MAX_CALIBRATION_ROWS = 100
_HEADROOM = 2.0  # activations beyond this factor of the largest known one are clipped


@dataclass(frozen=True, eq=False)
class FixedPointCore:
    """A `NetworkCore` in fixed point.

    Parameters
    ----------
    networks : NetworkCore
        The networks in single precision.
    rows : ndarray of shape (n_rows, n_features)
        Rows that determine the ranges of the activations.
    """

    networks: NetworkCore
    rows: Singles

    @property
    def columns(self) -> ColumnEncoding:
        return self.networks.columns

    @property
    def center(self) -> float:
        return self.networks.center

    @property
    def unit(self) -> float:
        return self.networks.unit

    @property
    def weights(self) -> NDArray[np.float64]:
        return self.networks.weights

    @property
    def ram_bytes(self) -> int:
        core = self.networks
        floats = 4 * len(core.columns) + 2 * 2 * max(core.widths)
        return core.ram_bytes + floats

    @cached_property
    def members(self) -> list[FixedMember]:
        return [self._quantize(member) for member in self.networks.members]

    @cached_property
    def layer_bits(self) -> list[int]:
        """The fractional bits of the activations of each hidden layer."""
        core = self.networks
        known = core.anchor_columns
        columns = core.columns.encode(self.rows[:_MAX_CALIBRATION_ROWS])
        largest = np.full(len(core.widths), 1e-6)
        for member in core.members:
            anchor = None if known is None else member.halves(known[:_MAX_CALIBRATION_ROWS])
            for order in member.combine(member.halves(columns), anchor):
                layers = member.last_hidden(order, core.activation)
                largest = np.maximum(largest, [np.abs(layer).max() for layer in layers])
        bits = np.floor(np.log2(LARGEST / (_HEADROOM * largest)))
        return [int(value) for value in np.clip(bits, 0, 15)]

    def _quantize(self, member: Member) -> FixedMember:
        def bias(values: Singles) -> Integers:
            return np.rint(values.astype(np.float64) * 2**SUM_BITS).astype(np.int64)

        return FixedMember(
            [FixedMatrix.quantize(matrix) for matrix in member.first],
            bias(member.first_bias),
            [(FixedMatrix.quantize(weight), bias(own)) for weight, own in member.hidden],
            FixedMatrix.quantize(member.output[None]),
        )

    def estimates(self, X: Singles) -> Singles:
        """(row, member × anchor), to the last bit but for rounding of the scaled features."""
        core = self.networks
        columns = np.clip(core.columns.encode(X), -INPUT_LIMIT, INPUT_LIMIT)
        known = core.anchor_columns
        parts = []
        for exact, member in zip(core.members, self.members, strict=True):
            query = self._halves(exact, member, columns)
            anchor = None if known is None else self._halves(exact, member, known)
            if anchor is None:
                value = self._output(member, query[0][:, None])
            else:
                value = self._output(member, query[0][:, None] + anchor[1])
                value = value - self._output(member, anchor[0] + query[1][:, None])
            parts.append(value + exact.output_bias + core.anchor_estimates)
        return np.concatenate(parts, axis=1)

    def _halves(self, exact: Member, member: FixedMember, columns: Singles) -> list[Integers]:
        scaled = columns.astype(np.float64) * 2**INPUT_BITS
        inputs = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int64)
        if exact.frequencies is not None:
            turns = columns[..., None] * exact.frequencies
            phase = ((turns - np.floor(turns)) * np.float32(2**PHASE_BITS)).astype(np.int64)
            waves = [self._sine(phase), self._sine(phase + 2 ** (PHASE_BITS - 2)) - LARGEST]
            flat = np.concatenate(waves, axis=-1).reshape(len(columns), -1)
            inputs = np.concatenate([inputs, flat], axis=1)
        halves = [matrix.product(inputs, INPUT_BITS) for matrix in member.first]
        halves[0] += member.first_bias
        return [np.clip(half, -SUM_LIMIT, SUM_LIMIT) for half in halves]

    @staticmethod
    def _sine(phase: Integers) -> Integers:
        bits = PHASE_BITS - (SINE_ENTRIES.bit_length() - 1)
        return interpolate(sine_table(), phase % 2**PHASE_BITS, bits)

    def _activate(self, values: Integers, bits: int) -> Integers:
        activation = self.networks.activation
        if activation == "relu":
            result = shift(np.maximum(values, 0), SUM_BITS - bits)
        else:
            table = activation_table(activation)
            position = np.clip(values + (TABLE_RANGE << SUM_BITS), 0, 2 * TABLE_RANGE << SUM_BITS)
            gate = interpolate(table, position, STEP_BITS)
            if activation == "tanh":
                result = shift(gate, 15 - bits)
            else:
                result = shift(values * gate, SUM_BITS + 15 - bits)
        return np.clip(result, -LARGEST, LARGEST)

    def _output(self, member: FixedMember, value: Integers) -> Singles:
        bits = self.layer_bits
        value = self._activate(value, bits[0])
        for layer, (weight, bias) in enumerate(member.hidden, 1):
            value = weight.product(value, bits[layer - 1]) + bias
            value = self._activate(np.clip(value, -SUM_LIMIT, SUM_LIMIT), bits[layer])
        sums = value.astype(np.float64) @ member.output.values[0].astype(np.float64)
        factor = 2.0 ** -(bits[-1] + int(member.output.bits[0]))
        return sums.astype(np.float32) * np.float32(factor)

    def write(self, source: CSource) -> None:
        """Add the tables and functions."""
        write_fixed_point(source, self.networks, self.members, self.layer_bits)
