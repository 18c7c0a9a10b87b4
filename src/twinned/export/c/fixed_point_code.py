"""C code of networks in fixed point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

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
    sine_table,
)
from twinned.export.c.networks import (
    NetworkCore,
    first_layer_code,
    write_network_moments,
    write_shared_tables,
)
from twinned.export.c.source import CSource, float_literal


@dataclass(frozen=True, eq=False)
class FixedMember:
    """A network in fixed point."""

    first: list[FixedMatrix]
    first_bias: Integers
    hidden: list[tuple[FixedMatrix, Integers]]
    output: FixedMatrix


def write_fixed_point(
    source: CSource, core: NetworkCore, members: list[FixedMember], layer_bits: list[int]
) -> None:
    """Add the tables and functions of networks in fixed point.

    `layer_bits` are the fractional bits of the activations of each hidden layer.
    """
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
        [2.0 ** -(layer_bits[-1] + int(own.output.bits[0])) for own in members],
    )
    source.code(_ARITHMETIC)
    _write_inputs(source, core)
    _write_activation(source, core.activation)
    width = core.widths[0]
    bits = f"@_first_bits[{width} * ({n_sides} * m + side) + i]"
    value = f"@_shift(value, (int){bits} + {INPUT_BITS - SUM_BITS})"
    bias = f"(side ? 0 : @_first_bias[{width} * m + i])"
    code = first_layer_code(core, "int16_t", "int32_t", f"@_limit({value} + {bias})")
    source.code(code.replace("@_dot(", "@_dot_inputs("))
    _write_output(source, core.widths, layer_bits)
    write_network_moments(source, core, "int32_t")


def _write_inputs(source: CSource, core: NetworkCore) -> None:
    """Add `@_inputs`."""
    n_columns = len(core.columns)
    n_frequencies = (core.n_inputs - n_columns) // (2 * n_columns)
    waves = ""
    if n_frequencies:
        source.table("@_sine_table", "int16_t", sine_table())
        bits = PHASE_BITS - (SINE_ENTRIES.bit_length() - 1)
        source.code(f"""
static inline int32_t @_sine(uint32_t phase)
{{
    return @_interpolate(@_sine_table, phase & {2**PHASE_BITS - 1}u, {bits});
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
                const uint32_t phase = (uint32_t)(part * {float_literal(2**PHASE_BITS)});
                wave[k] = @_sine(phase);
                wave[k + {n_frequencies}] = @_sine(phase + {2 ** (PHASE_BITS - 2)}u) - {LARGEST};
            }}
            wave += {2 * n_frequencies};
        }}
    }}"""
    source.code(f"""
/* The inputs of member m: the columns of a row, and the sines and cosines of each. */
static inline void @_inputs(int m, const float *x, int32_t *inputs)
{{
    const float limit = {float_literal(INPUT_LIMIT)};
    float columns[{n_columns}];
    int i{", k" if n_frequencies else ""};
    @_encode(x, columns);
    for (i = 0; i < {n_columns}; i++) {{
        columns[i] = columns[i] < -limit ? -limit : columns[i] > limit ? limit : columns[i];
        inputs[i] = (int32_t)(columns[i] * {float_literal(2**INPUT_BITS)}
            + (columns[i] < 0.0f ? -0.5f : 0.5f));
    }}{waves}
    (void)m;
}}
""")


def _write_activation(source: CSource, activation: str) -> None:
    """Add `@_activation`: from 16 fractional bits to 16-bit numbers of `bits`."""
    if activation == "relu":
        body = f"value = @_shift(x > 0 ? x : 0, {SUM_BITS} - bits);"
    else:
        source.table("@_activation_table", "int16_t", activation_table(activation))
        end = 2 * TABLE_RANGE << SUM_BITS
        result = (
            "@_shift(gate, 15 - bits)"
            if activation == "tanh"
            else f"@_shift((int64_t)x * gate, {SUM_BITS + 15} - bits)"
        )
        body = f"""value = (int64_t)x + {end // 2};
    value = value < 0 ? 0 : value > {end} ? {end} : value;
    gate = @_interpolate(@_activation_table, (uint32_t)value, {STEP_BITS});
    value = {result};"""
    source.code(f"""
static inline int16_t @_activation(int32_t x, int bits)
{{
    int64_t value;
    {"" if activation == "relu" else "int32_t gate;"}
    {body}
    return (int16_t)(value < -{LARGEST} ? -{LARGEST} : value > {LARGEST} ? {LARGEST} : value);
}}
""")


def _write_output(source: CSource, widths: list[int], bits: list[int]) -> None:
    """Add `@_output`."""
    widest = max(widths)
    buffers = ["layers", f"layers + {widest}"]  # two layers take turns
    lines = [
        f"""
    for (i = 0; i < {after}; i++) {{
        const int k = {after} * m + i;
        const int16_t *weight = @_weight_{layer} + {before} * k;
        const int64_t sum = @_dot(weight, {buffers[(layer - 1) % 2]}, {before});
        const int bits = (int)@_weight_{layer}_bits[k] + {bits[layer - 1] - SUM_BITS};
        const int32_t value = @_limit(@_shift(sum, bits) + @_bias_{layer}[k]);
        ({buffers[layer % 2]})[i] = @_activation(value, {bits[layer]});
    }}"""
        for layer, (before, after) in enumerate(pairwise(widths), 1)
    ]
    last = buffers[(len(widths) - 1) % 2]
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


def _write_matrices(source: CSource, name: str, matrices: Sequence[FixedMatrix]) -> None:
    values = np.concatenate([np.ravel(matrix.values) for matrix in matrices])
    source.table(name, "int16_t", values)
    source.table(f"{name}_bits", "uint8_t", np.concatenate([own.bits for own in matrices]))


_ARITHMETIC = f"""
static inline int32_t @_limit(int64_t value)
{{
    const int64_t most = {SUM_LIMIT};
    return (int32_t)(value < -most ? -most : value > most ? most : value);
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
