"""Ensembles of networks in fixed point, as C: weights and activations of 16 bits.

Each row of a weight matrix has an exponent of its own. Products are summed in 64 bits, so that no
sum overflows. Activations and sines are tables with linear interpolation. Scaling of the features
and the mean over the estimates are in single precision.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from twinned.export.c.columns import ColumnEncoding, Singles
from twinned.export.c.networks import (
    ACTIVATIONS,
    Member,
    NetworkCore,
    first_layer_code,
    write_network_moments,
    write_shared_tables,
)
from twinned.export.c.source import CSource, float_literal

Integers = NDArray[np.int64]

_INPUT_BITS = 15  # fractional bits of the inputs of the first layer
_SUM_BITS = 16  # fractional bits of a layer before its activation
_INPUT_LIMIT = 32_768.0  # scaled features beyond are clipped
_RANGE, _STEP_BITS = 12, 11  # the table of an activation: within ±12, a step is 2¹¹ of 2¹⁶
_SINE_ENTRIES, _PHASE_BITS = 512, 20
_SUM_LIMIT = 2**29  # of a layer before its activation; the sum of two halves fits into 32 bits
_MAX_SHIFT = 30
_LARGEST = 32_767
_MAX_CALIBRATION_ROWS = 100
_HEADROOM = 2.0  # activations beyond this factor of the largest known one are clipped


@dataclass(frozen=True, eq=False)
class FixedMatrix:
    """A matrix (after, before) of 16-bit integers, and the fractional bits of its rows."""

    values: NDArray[np.int16]
    bits: NDArray[np.uint8]

    @classmethod
    def quantize(cls, matrix: Singles) -> FixedMatrix:
        """Round each row with as many fractional bits as its largest number allows."""
        largest = np.abs(matrix).max(axis=1).astype(np.float64)
        bits = np.floor(np.log2(_LARGEST / np.maximum(largest, 1e-30)))
        bits = np.clip(bits, 0, _MAX_SHIFT)
        values = np.rint(matrix * np.exp2(bits)[:, None])
        return cls(
            np.clip(values, -_LARGEST, _LARGEST).astype(np.int16), bits.astype(np.uint8)
        )

    def product(self, inputs: Integers, bits: int) -> Integers:
        """(..., before) → (..., after) with 16 fractional bits, from inputs with `bits`."""
        # exact: sums are far below 2⁵³
        sums = inputs.astype(np.float64) @ self.values.T.astype(np.float64)
        return shift(sums.astype(np.int64), self.bits.astype(np.int64) + bits - _SUM_BITS)


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
    n_steps = 2 * _RANGE << (_SUM_BITS - _STEP_BITS)
    x = np.linspace(-_RANGE, _RANGE, n_steps + 1)
    return np.minimum(np.rint(32_768 * _gate(activation)(x)), _LARGEST).astype(np.int64)


def _sine_table() -> Integers:
    turns = np.arange(_SINE_ENTRIES + 1) / _SINE_ENTRIES
    return np.rint(_LARGEST * np.sin(2 * np.pi * turns)).astype(np.int64)


def _interpolate(table: Integers, position: Integers, bits: int) -> Integers:
    """Entries of a table at positions with fractional bits."""
    index, rest = position >> bits, position & ((1 << bits) - 1)
    low, high = table[index], table[np.minimum(index + 1, len(table) - 1)]
    return low + shift((high - low) * rest, bits)


@dataclass(frozen=True, eq=False)
class FixedMember:
    """A network in fixed point."""

    first: list[FixedMatrix]
    first_bias: Integers
    hidden: list[tuple[FixedMatrix, Integers]]
    output: FixedMatrix


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
        bits = np.floor(np.log2(_LARGEST / (_HEADROOM * largest)))
        return [int(value) for value in np.clip(bits, 0, 15)]

    def _quantize(self, member: Member) -> FixedMember:
        def bias(values: Singles) -> Integers:
            return np.rint(values.astype(np.float64) * 2**_SUM_BITS).astype(np.int64)

        return FixedMember(
            [FixedMatrix.quantize(matrix) for matrix in member.first],
            bias(member.first_bias),
            [(FixedMatrix.quantize(weight), bias(own)) for weight, own in member.hidden],
            FixedMatrix.quantize(member.output[None]),
        )

    # --- the same arithmetic in numpy -----------------------------------------------------------

    def estimates(self, X: Singles) -> Singles:
        """(row, member × anchor), to the last bit but for rounding of the scaled features."""
        core = self.networks
        columns = np.clip(core.columns.encode(X), -_INPUT_LIMIT, _INPUT_LIMIT)
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
        scaled = columns.astype(np.float64) * 2**_INPUT_BITS
        inputs = (np.sign(scaled) * np.floor(np.abs(scaled) + 0.5)).astype(np.int64)
        if exact.frequencies is not None:
            turns = columns[..., None] * exact.frequencies
            phase = ((turns - np.floor(turns)) * np.float32(2**_PHASE_BITS)).astype(np.int64)
            waves = [self._sine(phase), self._sine(phase + 2 ** (_PHASE_BITS - 2)) - _LARGEST]
            flat = np.concatenate(waves, axis=-1).reshape(len(columns), -1)
            inputs = np.concatenate([inputs, flat], axis=1)
        halves = [matrix.product(inputs, _INPUT_BITS) for matrix in member.first]
        halves[0] += member.first_bias
        return [np.clip(half, -_SUM_LIMIT, _SUM_LIMIT) for half in halves]

    @staticmethod
    def _sine(phase: Integers) -> Integers:
        bits = _PHASE_BITS - (_SINE_ENTRIES.bit_length() - 1)
        return _interpolate(_sine_table(), phase % 2**_PHASE_BITS, bits)

    def _activate(self, values: Integers, bits: int) -> Integers:
        activation = self.networks.activation
        if activation == "relu":
            result = shift(np.maximum(values, 0), _SUM_BITS - bits)
        else:
            table = activation_table(activation)
            position = np.clip(values + (_RANGE << _SUM_BITS), 0, 2 * _RANGE << _SUM_BITS)
            gate = _interpolate(table, position, _STEP_BITS)
            if activation == "tanh":
                result = shift(gate, 15 - bits)
            else:
                result = shift(values * gate, _SUM_BITS + 15 - bits)
        return np.clip(result, -_LARGEST, _LARGEST)

    def _output(self, member: FixedMember, value: Integers) -> Singles:
        bits = self.layer_bits
        value = self._activate(value, bits[0])
        for layer, (weight, bias) in enumerate(member.hidden, 1):
            value = weight.product(value, bits[layer - 1]) + bias
            value = self._activate(np.clip(value, -_SUM_LIMIT, _SUM_LIMIT), bits[layer])
        sums = value.astype(np.float64) @ member.output.values[0].astype(np.float64)
        factor = 2.0 ** -(bits[-1] + int(member.output.bits[0]))
        return sums.astype(np.float32) * np.float32(factor)

    # --- C --------------------------------------------------------------------------------------

    def write(self, source: CSource) -> None:
        core, members = self.networks, self.members
        core.columns.write(source)
        write_shared_tables(source, core)
        n_sides = len(members[0].first)
        starts = np.cumsum([0, *(n_sides * own.first[0].values.size for own in members)])
        source.table("@_first_start", "uint32_t", starts[:-1])
        first = [matrix for member in members for matrix in member.first]
        _write_matrices(source, "@_first", first)
        source.table("@_first_bias", "int32_t", [member.first_bias for member in members])
        for layer in range(1, len(core.widths)):
            weights, biases = zip(*(member.hidden[layer - 1] for member in members), strict=True)
            _write_matrices(source, f"@_weight_{layer}", weights)
            source.table(f"@_bias_{layer}", "int32_t", biases)
        source.table("@_output_weight", "int16_t", [own.output.values for own in members])
        source.table(
            "@_output_factor",
            "float",
            [2.0 ** -(self.layer_bits[-1] + int(own.output.bits[0])) for own in members],
        )
        source.code(_ARITHMETIC)
        self._write_inputs(source)
        self._write_activation(source)
        width = core.widths[0]
        bits = f"@_first_bits[{width} * ({n_sides} * m + side) + i]"
        value = f"@_shift(value, (int){bits} + {_INPUT_BITS - _SUM_BITS})"
        bias = f"(side ? 0 : @_first_bias[{width} * m + i])"
        layer = first_layer_code(core, "int16_t", "int32_t", f"@_limit({value} + {bias})")
        source.code(layer.replace("@_dot(", "@_dot_inputs("))
        self._write_output(source)
        write_network_moments(source, core, "int32_t", "@_is_missing(x)")

    def _write_inputs(self, source: CSource) -> None:
        core = self.networks
        n_columns = len(core.columns)
        n_frequencies = (core.n_inputs - n_columns) // (2 * n_columns)
        waves = ""
        if n_frequencies:
            source.table("@_sine_table", "int16_t", _sine_table())
            bits = _PHASE_BITS - (_SINE_ENTRIES.bit_length() - 1)
            source.code(f"""
static inline int32_t @_sine(uint32_t phase)
{{
    return @_interpolate(@_sine_table, phase & {2**_PHASE_BITS - 1}u, {bits});
}}
""")
            waves = f"""
    if (@_waves[m] >= 0) {{
        const float *frequency = @_frequencies + {n_columns * n_frequencies} * @_waves[m];
        int32_t *wave = inputs + {n_columns};
        for (i = 0; i < {n_columns}; i++) {{
            for (k = 0; k < {n_frequencies}; k++) {{
                const float turns = columns[i] * *frequency++;
                const float part = turns - floorf(turns);
                const uint32_t phase = (uint32_t)(part * {float_literal(2**_PHASE_BITS)});
                wave[k] = @_sine(phase);
                wave[k + {n_frequencies}] = @_sine(phase + {2 ** (_PHASE_BITS - 2)}u) - {_LARGEST};
            }}
            wave += {2 * n_frequencies};
        }}
    }}"""
        source.code(f"""
static inline int @_is_missing(const float *x)
{{
    float columns[{n_columns}];
    int i;
    @_encode(x, columns);
    for (i = 0; i < {n_columns}; i++) {{
        if (columns[i] != columns[i]) {{
            return 1;
        }}
    }}
    return 0;
}}

/* The inputs of member m: the columns of a row, and the sines and cosines of each. */
static inline void @_inputs(int m, const float *x, int32_t *inputs)
{{
    const float limit = {float_literal(_INPUT_LIMIT)};
    float columns[{n_columns}];
    int i{", k" if n_frequencies else ""};
    @_encode(x, columns);
    for (i = 0; i < {n_columns}; i++) {{
        columns[i] = columns[i] < -limit ? -limit : columns[i] > limit ? limit : columns[i];
        inputs[i] = (int32_t)(columns[i] * {float_literal(2**_INPUT_BITS)}
            + (columns[i] < 0.0f ? -0.5f : 0.5f));
    }}{waves}
    (void)m;
}}
""")

    def _write_activation(self, source: CSource) -> None:
        """Add `@_activation`: from 16 fractional bits to 16-bit numbers of `bits`."""
        activation = self.networks.activation
        if activation == "relu":
            body = f"value = @_shift(x > 0 ? x : 0, {_SUM_BITS} - bits);"
        else:
            source.table("@_activation_table", "int16_t", activation_table(activation))
            end = 2 * _RANGE << _SUM_BITS
            result = (
                "@_shift(gate, 15 - bits)"
                if activation == "tanh"
                else f"@_shift((int64_t)x * gate, {_SUM_BITS + 15} - bits)"
            )
            body = f"""value = (int64_t)x + {end // 2};
    value = value < 0 ? 0 : value > {end} ? {end} : value;
    gate = @_interpolate(@_activation_table, (uint32_t)value, {_STEP_BITS});
    value = {result};"""
        source.code(f"""
static inline int16_t @_activation(int32_t x, int bits)
{{
    int64_t value;
    {"" if activation == "relu" else "int32_t gate;"}
    {body}
    return (int16_t)(value < -{_LARGEST} ? -{_LARGEST} : value > {_LARGEST} ? {_LARGEST} : value);
}}
""")

    def _write_output(self, source: CSource) -> None:
        widths, widest = self.networks.widths, max(self.networks.widths)
        bits = self.layer_bits
        places = ["layers", f"layers + {widest}"]  # two layers take turns
        lines = [
            f"""
    for (i = 0; i < {after}; i++) {{
        const int k = {after} * m + i;
        const int64_t sum = @_dot(@_weight_{layer} + {before} * k, {places[(layer - 1) % 2]}, {before});
        const int bits = (int)@_weight_{layer}_bits[k] + {bits[layer - 1] - _SUM_BITS};
        const int32_t value = @_limit(@_shift(sum, bits) + @_bias_{layer}[k]);
        ({places[layer % 2]})[i] = @_activation(value, {bits[layer]});
    }}"""
            for layer, (before, after) in enumerate(pairwise(widths), 1)
        ]
        last = places[(len(widths) - 1) % 2]
        source.code(f"""
/* The output of member m, from the first layer before its activation. */
static inline float @_output(int m, const int32_t *first)
{{
    int16_t layers[{2 * widest}];
    int i;
    for (i = 0; i < {widths[0]}; i++) {{
        layers[i] = @_activation(first[i], {bits[0]});
    }}{"".join(lines)}
    return @_output_factor[m]
        * (float)@_dot(@_output_weight + {widths[-1]} * m, {last}, {widths[-1]});
}}
""")


def _write_matrices(source: CSource, name: str, matrices: list[FixedMatrix]) -> None:
    values = np.concatenate([np.ravel(matrix.values) for matrix in matrices])
    source.table(name, "int16_t", values)
    source.table(f"{name}_bits", "uint8_t", np.concatenate([own.bits for own in matrices]))


_ARITHMETIC = f"""
static inline int32_t @_limit(int64_t value)
{{
    return (int32_t)(value < -{_SUM_LIMIT} ? -{_SUM_LIMIT} : value > {_SUM_LIMIT} ? {_SUM_LIMIT} : value);
}}
"""
_ARITHMETIC += """
/* value / 2^bits, rounded to the nearest integer. */
static inline int64_t @_shift(int64_t value, int bits)
{
    if (bits <= 0) {
        return value * ((int64_t)1 << -bits);
    }
    if (value < 0) {
        return -((-value + ((int64_t)1 << (bits - 1))) >> bits);
    }
    return (value + ((int64_t)1 << (bits - 1))) >> bits;
}

/* The entry of a table at a position with fractional bits. */
static inline int32_t @_interpolate(const int16_t *table, uint32_t position, int bits)
{
    const uint32_t i = position >> bits;
    const int32_t rest = (int32_t)(position & ((1u << bits) - 1u));
    if (rest == 0) {
        return table[i];
    }
    return table[i] + (int32_t)@_shift((int64_t)(table[i + 1] - table[i]) * rest, bits);
}

static inline int64_t @_dot(const int16_t *a, const int16_t *b, int n)
{
    int64_t sum = 0;
    int i;
    for (i = 0; i < n; i++) {
        sum += (int32_t)a[i] * b[i];
    }
    return sum;
}

static inline int64_t @_dot_inputs(const int16_t *a, const int32_t *b, int n)
{
    int64_t sum = 0;
    int i;
    for (i = 0; i < n; i++) {
        sum += (int64_t)a[i] * b[i];
    }
    return sum;
}
"""
