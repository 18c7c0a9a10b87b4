"""Ensembles of networks in single precision, as C: of differences to anchors, or of y itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.export.c.columns import ColumnEncoding, Singles
from twinned.export.c.core import write_anchors
from twinned.export.c.source import CSource, float_literal

_TWO_PI = np.float32(2.0 * np.pi)  # as in the library, in single precision


class Member(NamedTuple):
    """The parameters of one network; matrices are (after, before).

    `first` has a matrix for each side of a pair, or one for a plain network. Its inputs are the
    columns and, with `frequencies` (column, frequency), the sines and cosines − 1 of each column.
    """

    first: list[Singles]
    first_bias: Singles
    frequencies: Singles | None
    hidden: list[tuple[Singles, Singles]]  # weight and bias of each further hidden layer
    output: Singles  # (last hidden,); of a twin, half the weights
    output_bias: np.float32  # 0 of a twin, where it cancels
    weight: float

    @classmethod
    def read(cls, networks: Any, member: int, n_columns: int) -> Member:
        """Read a member of `PlainNetworks` or `NeuralDifferenceModel`, without its padding."""
        shape, gate = networks.shape, float(networks.gates[member])
        own = {name: np.asarray(value[member]) for name, value in networks.parameters.items()}
        has_waves = gate != 0 and shape.n_frequencies > 0
        first = []
        for side in range(2 if shape.twin else 1):
            parts = [own[f"linear_{side}"][:n_columns]]
            if has_waves:
                rows = n_columns * 2 * shape.n_frequencies
                parts.append(gate * own[f"periodic_{side}"][:rows])
            first.append(np.concatenate(parts).T)
        last = len(shape.hidden_sizes)
        output, bias = own[f"weight_{last}"][:, 0], own[f"bias_{last}"][0]
        return cls(
            [matrix.astype(np.float32) for matrix in first],
            own["bias_0"],
            own["frequency"][:n_columns] if has_waves else None,
            [(own[f"weight_{i}"].T, own[f"bias_{i}"]) for i in range(1, last)],
            np.float32(0.5) * output if shape.twin else output,
            np.float32(0.0 if shape.twin else bias),
            float(networks.member_weights[member]),
        )

    def inputs(self, columns: Singles) -> Singles:
        """(row, column) → (row, input) of the first layer."""
        if self.frequencies is None:
            return columns
        angle = (_TWO_PI * columns)[..., None] * self.frequencies
        waves = np.concatenate([np.sin(angle), np.cos(angle) - np.float32(1.0)], axis=-1)
        return np.concatenate([columns, waves.reshape(len(columns), -1)], axis=1)

    def halves(self, columns: Singles) -> list[Singles]:
        """(row, hidden) for each side of a pair; the bias is part of the first one."""
        inputs = self.inputs(columns)
        halves = [inputs @ matrix.T for matrix in self.first]
        halves[0] += self.first_bias
        return halves

    def last_hidden(self, value: Singles, activation: str) -> list[Singles]:
        """The hidden layers after their activation, from the first before it."""
        layers = [ACTIVATIONS[activation](value)]
        for weight, bias in self.hidden:
            layers.append(ACTIVATIONS[activation](layers[-1] @ weight.T + bias))
        return layers

    def combine(self, query: list[Singles], anchor: list[Singles] | None) -> list[Singles]:
        """(row, anchor, hidden) before the first activation, in both orders; or of the row."""
        if anchor is None:
            return [query[0][:, None]]
        return [query[0][:, None] + anchor[1], anchor[0] + query[1][:, None]]


def _silu(x: Singles) -> Singles:
    half = np.float32(0.5) * x
    return half + half * np.tanh(half)


def _mish(x: Singles) -> Singles:
    return x * np.tanh(np.logaddexp(x, np.float32(0.0)))


ACTIVATIONS: dict[str, Callable[[Singles], Singles]] = {
    "relu": lambda x: np.maximum(x, np.float32(0.0)),
    "silu": _silu,
    "mish": _mish,
    "tanh": np.tanh,
}
_ACTIVATION_CODE = {
    "relu": "return x > 0.0f ? x : 0.0f;",
    "silu": "return 0.5f * x + 0.5f * x * tanhf(0.5f * x);",
    # log1p(exp(x)) without overflow
    "mish": "return x * tanhf(x > 0.0f ? x + log1pf(expf(-x)) : log1pf(expf(x)));",
    "tanh": "return tanhf(x);",
}


@dataclass(frozen=True, eq=False)
class NetworkCore:
    """An ensemble of networks; estimates are in units of the scaled y.

    Parameters
    ----------
    columns : ColumnEncoding
        The scaled columns, the inputs of the networks.
    members : list of Member
        The networks.
    activation : str
        The activation of all hidden layers.
    center, unit : float
        Mean and spread of y.
    anchors : ndarray of shape (n_anchors, n_features), or None
        The features of the anchors, as given; None for networks that predict y itself.
    anchor_estimates : ndarray of shape (n_anchors,)
        Scaled values of the anchors.
    anchor_weights : ndarray of shape (n_anchors,)
        Their weights, which sum to one.
    """

    columns: ColumnEncoding
    members: list[Member]
    activation: str
    center: float
    unit: float
    anchors: Singles | None
    anchor_estimates: Singles
    anchor_weights: NDArray[np.float64]

    @property
    def weights(self) -> NDArray[np.float64]:
        own = np.array([member.weight for member in self.members])
        return np.outer(own / own.sum(), self.anchor_weights).ravel()

    @property
    def widths(self) -> list[int]:
        """The widths of the hidden layers."""
        first = self.members[0]
        return [len(first.first_bias), *(len(bias) for _, bias in first.hidden)]

    @property
    def n_inputs(self) -> int:
        """The largest number of inputs of the first layer."""
        return max(member.first[0].shape[1] for member in self.members)

    @property
    def ram_bytes(self) -> int:
        is_twin = self.anchors is not None
        halves = 4 if is_twin else 1
        return 4 * (self.n_inputs + halves * self.widths[0] + 2 * max(self.widths))

    @cached_property
    def anchor_columns(self) -> Singles | None:
        return None if self.anchors is None else self.columns.encode(self.anchors)

    def estimates(self, X: Singles) -> Singles:
        """(row, member × anchor), in units of the scaled y."""
        parts = [self._member_estimates(member, self.columns.encode(X)) for member in self.members]
        return np.concatenate(parts, axis=1)

    def _member_estimates(self, member: Member, columns: Singles) -> Singles:
        known = self.anchor_columns
        anchor = None if known is None else member.halves(known)
        orders = member.combine(member.halves(columns), anchor)
        hidden = [member.last_hidden(order, self.activation)[-1] for order in orders]
        value = hidden[0] if anchor is None else hidden[0] - hidden[1]
        out = value @ member.output + member.output_bias + self.anchor_estimates
        return np.asarray(out, dtype=np.float32)

    def write(self, source: CSource) -> None:
        self.columns.write(source)
        write_members(source, self.members, self)
        code = _ACTIVATION_CODE[self.activation]
        source.code(f"static inline float @_activation(float x)\n{{\n    {code}\n}}\n")
        source.code("""
static inline float @_dot(const float *a, const float *b, int n)
{
    float sum = 0.0f;
    int i;
    for (i = 0; i < n; i++) {
        sum += a[i] * b[i];
    }
    return sum;
}
""")
        self._write_layers(source)
        write_network_moments(source, self, "float")

    def _write_layers(self, source: CSource) -> None:
        """Add `@_inputs`, `@_first_layer` and `@_output`."""
        n_columns, n_inputs = len(self.columns), self.n_inputs
        n_frequencies = (n_inputs - n_columns) // (2 * n_columns)
        waves = ""
        if n_frequencies:
            waves = f"""
    if (@_waves[m] >= 0) {{
        const float *frequency = @_frequencies + {n_columns * n_frequencies} * @_waves[m];
        float *wave = inputs + {n_columns};
        for (i = 0; i < {n_columns}; i++) {{
            for (k = 0; k < {n_frequencies}; k++) {{
                const float angle = {float_literal(float(_TWO_PI))} * inputs[i] * *frequency++;
                wave[k] = sinf(angle);
                wave[k + {n_frequencies}] = cosf(angle) - 1.0f;
            }}
            wave += {2 * n_frequencies};
        }}
    }}"""
        source.code(f"""
/* The inputs of member m: the columns of a row, and the sines and cosines of each. */
static inline void @_inputs(int m, const float *x, float *inputs)
{{
    {"int i, k;" if n_frequencies else "(void)m;"}
    @_encode(x, inputs);{waves}
}}
""")
        bias = f"@_first_bias[{self.widths[0]} * m + i]"
        source.code(first_layer_code(self, "float", "float", f"value + (side ? 0.0f : {bias})"))
        widths, widest = self.widths, max(self.widths)
        buffers = ["work", f"work + {widest}"]  # two layers take turns
        lines = [
            f"""
    for (i = 0; i < {after}; i++) {{
        const float *weight = @_weight_{layer} + {before} * ({after} * m + i);
        const float value = @_dot(weight, {buffers[(layer - 1) % 2]}, {before});
        ({buffers[layer % 2]})[i] = @_activation(@_bias_{layer}[{after} * m + i] + value);
    }}"""
            for layer, (before, after) in enumerate(pairwise(widths), 1)
        ]
        last = buffers[(len(widths) - 1) % 2]
        source.code(f"""
/* The output of member m; the first layer before its activation is in the first half of work. */
static inline float @_output(int m, float *work)
{{
    int i;
    for (i = 0; i < {widths[0]}; i++) {{
        work[i] = @_activation(work[i]);
    }}{"".join(lines)}
    return @_dot(@_output_weight + {widths[-1]} * m, {last}, {widths[-1]});
}}
""")


def write_members(source: CSource, members: list[Member], core: NetworkCore) -> None:
    """Add the parameters of the networks, one member after another."""
    write_shared_tables(source, core)
    n_sides = len(members[0].first)
    starts = np.cumsum([0, *(n_sides * member.first[0].size for member in members)])
    source.table("@_first_start", "uint32_t", starts[:-1])
    source.table("@_first", "float", np.concatenate([np.ravel(m.first) for m in members]))
    source.table("@_first_bias", "float", np.stack([member.first_bias for member in members]))
    for layer in range(1, len(core.widths)):
        weights, biases = zip(*(member.hidden[layer - 1] for member in members), strict=True)
        source.table(f"@_weight_{layer}", "float", np.stack(weights))
        source.table(f"@_bias_{layer}", "float", np.stack(biases))
    source.table("@_output_weight", "float", np.stack([member.output for member in members]))


def write_shared_tables(source: CSource, core: NetworkCore) -> None:
    """Add what networks of single precision and of fixed point have in common."""
    members = core.members
    waves = [own.frequencies for own in members if own.frequencies is not None]
    if waves:
        has_waves = np.array([own.frequencies is not None for own in members])
        source.table("@_waves", "int16_t", np.where(has_waves, np.cumsum(has_waves) - 1, -1))
        source.table("@_frequencies", "float", np.stack(waves))
    source.table("@_n_inputs", "uint16_t", [member.first[0].shape[1] for member in members])
    share = np.array([member.weight for member in members])
    source.table("@_member_weight", "float", share / share.sum())
    source.table("@_member_bias", "float", [member.output_bias for member in members])
    if core.anchors is not None:
        weights = core.anchor_weights.astype(np.float32)
        write_anchors(source, core.anchors, core.anchor_estimates, weights)


def first_layer_code(core: NetworkCore, weight_type: str, value_type: str, value: str) -> str:
    """The function `@_first_layer`: one half of the first layer of member m, for a side."""
    width = core.widths[0]
    return f"""
/* One half of the first layer of member m, for a side of a pair. */
static inline void @_first_layer(int m, int side, const {value_type} *inputs, {value_type} *half)
{{
    const int n = @_n_inputs[m];
    const {weight_type} *weight = @_first + @_first_start[m] + {width} * n * side;
    int i;
    for (i = 0; i < {width}; i++) {{
        const {"float" if value_type == "float" else "int64_t"} value = @_dot(weight, inputs, n);
        half[i] = {value};
        weight += n;
    }}
}}
"""


def write_network_moments(source: CSource, core: NetworkCore, value_type: str) -> None:
    """Add `@_moments`, for halves of the first layer of a type."""
    width, widest = core.widths[0], max(core.widths)
    if core.anchors is None:
        source.code(f"""
static inline void @_moments(const float *x, @_sum *sum)
{{
    {value_type} inputs[{core.n_inputs}], work[{2 * widest}];
    int m;
    for (m = 0; m < {len(core.members)}; m++) {{
        @_inputs(m, x, inputs);
        @_first_layer(m, 0, inputs, work);
        @_add(sum, @_member_weight[m], @_member_bias[m] + @_output(m, work));
    }}
}}
""")
        return
    source.code(f"""
static inline void @_moments(const float *x, @_sum *sum)
{{
    {value_type} inputs[{core.n_inputs}], work[{2 * widest}];
    {value_type} query[{2 * width}], anchor[{2 * width}];
    int m, i, j;
    for (m = 0; m < {len(core.members)}; m++) {{
        @_inputs(m, x, inputs);
        @_first_layer(m, 0, inputs, query);
        @_first_layer(m, 1, inputs, query + {width});
        for (j = 0; j < {len(core.anchor_weights)}; j++) {{
            float value = @_anchor_estimates[j];
            @_inputs(m, @_anchors + {core.anchors.shape[1]} * j, inputs);
            @_first_layer(m, 0, inputs, anchor);
            @_first_layer(m, 1, inputs, anchor + {width});
            for (i = 0; i < {width}; i++) {{
                work[i] = query[i] + anchor[{width} + i];
            }}
            value += @_output(m, work);
            for (i = 0; i < {width}; i++) {{
                work[i] = anchor[i] + query[{width} + i];
            }}
            value -= @_output(m, work);
            @_add(sum, @_member_weight[m] * @_anchor_weights[j], value);
        }}
    }}
}}
""")
