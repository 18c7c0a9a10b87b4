"""Trees and linear models over pair features, as C."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from twinned.export.c.columns import ColumnEncoding, Singles
from twinned.export.c.core import write_anchors
from twinned.export.c.source import CSource, float_literal, smallest_unsigned
from twinned.models.trees.reader import TreeEnsemble
from twinned.pairing.features import PairColumn

_LEAF = 0xFFFF  # in place of a column


class PairScore(Protocol):
    """A function of the pair columns."""

    def evaluate(self, pairs: Singles) -> Singles:
        """(pair, column) → (pair,)."""

    def write(self, source: CSource) -> None:
        """Add the tables, and `static inline float @_score(const float *pair)`."""


class LinearScore(NamedTuple):
    """A linear function of the pair columns."""

    coefficients: Singles  # (column,)
    intercept: np.float32

    def evaluate(self, pairs: Singles) -> Singles:
        return pairs @ self.coefficients + self.intercept

    def write(self, source: CSource) -> None:
        source.table("@_coefficients", "float", self.coefficients)
        source.code(f"""
static inline float @_score(const float *pair)
{{
    float sum = {float_literal(float(self.intercept))};
    int i;
    for (i = 0; i < {len(self.coefficients)}; i++) {{
        sum += @_coefficients[i] * pair[i];
    }}
    return sum;
}}
""")


class TreeScore(NamedTuple):
    """A sum of trees, in one array of nodes; the left child of a node is the next one.

    A value goes left where it is at most the threshold. At a leaf, `column` is 65535 and
    `threshold` its value.
    """

    column: NDArray[np.uint16]
    missing_left: NDArray[np.bool_]
    threshold: Singles
    right: NDArray[np.uint32]  # distance to the right child
    roots: NDArray[np.uint32]
    offset: np.float32

    @classmethod
    def of_ensemble(cls, ensemble: TreeEnsemble, unit: float) -> TreeScore:
        """The trees of a single output, with leaf values multiplied by `unit`."""
        if ensemble.n_features >= _LEAF // 2:
            raise ValueError(f"C export supports {_LEAF // 2} pair columns at most.")
        parts: list[list[tuple[int, bool, float, int]]] = []
        for tree in ensemble.trees:
            nodes: list[tuple[int, bool, float, int]] = []
            stack = [(0, -1)]  # the node, and the parent whose right child it is
            while stack:
                node, parent = stack.pop()
                if parent >= 0:
                    nodes[parent] = (*nodes[parent][:3], len(nodes) - parent)
                if tree.left[node] < 0:
                    value = float(tree.value[node, 0]) * tree.scale * unit
                    nodes.append((_LEAF, False, value, 0))
                    continue
                stack.append((int(tree.right[node]), len(nodes)))
                stack.append((int(tree.left[node]), -1))
                threshold = largest_single(float(tree.threshold[node]), strict=ensemble.strict)
                missing_left = bool(tree.missing_left[node])
                nodes.append((int(tree.feature[node]), missing_left, threshold, 0))
            parts.append(nodes)
        columns, goes_left, values, distances = zip(*chain.from_iterable(parts), strict=True)
        sizes = [len(nodes) for nodes in parts]
        return cls(
            np.array(columns, dtype=np.uint16),
            np.array(goes_left),
            np.array(values, dtype=np.float32),
            np.array(distances, dtype=np.uint32),
            np.cumsum([0, *sizes[:-1]]).astype(np.uint32),
            np.float32(ensemble.offset[0] * unit),
        )

    def evaluate(self, pairs: Singles) -> Singles:
        total = np.full(len(pairs), self.offset, dtype=np.float32)
        rows = np.arange(len(pairs))
        for root in self.roots:
            node = np.full(len(pairs), root, dtype=np.int64)
            while (inner := self.column[node] != _LEAF).any():
                value = pairs[rows, np.where(inner, self.column[node], 0)]
                left = value <= self.threshold[node]
                left |= self.missing_left[node] & np.isnan(value)
                step = np.where(left, 1, self.right[node].astype(np.int64))
                node += np.where(inner, step, 0)
            total += self.threshold[node]
        return total

    def write(self, source: CSource) -> None:
        packed = np.where(
            self.column == _LEAF, _LEAF, 2 * self.column.astype(np.int64) + self.missing_left
        )
        source.table("@_node_column", "uint16_t", packed)
        right_type = smallest_unsigned(int(self.right.max(initial=0)))
        source.table("@_node_right", right_type, self.right)
        source.table("@_node_value", "float", self.threshold)
        source.table("@_roots", smallest_unsigned(len(self.column)), self.roots)
        source.code(f"""
/* The sum of the trees. The column of a node is twice its number, plus 1 where a missing value
   goes left, and {_LEAF} at a leaf; the left child is the next node. */
static inline float @_score(const float *pair)
{{
    float sum = {float_literal(float(self.offset))};
    int i;
    for (i = 0; i < {len(self.roots)}; i++) {{
        uint32_t node = @_roots[i];
        while (@_node_column[node] != {_LEAF}u) {{
            const float value = pair[@_node_column[node] >> 1];
            const int missing = value != value;
            if (missing ? @_node_column[node] & 1 : value <= @_node_value[node]) {{
                node += 1u;
            }} else {{
                node += @_node_right[node];
            }}
        }}
        sum += @_node_value[node];
    }}
    return sum;
}}
""")


def largest_single(threshold: float, *, strict: bool) -> float:
    """The largest single-precision number at most, or where strict below, a threshold.

    A single-precision value goes left by the one exactly where it does by the other.

    >>> largest_single(0.5, strict=False), bool(largest_single(0.1, strict=False) <= 0.1)
    (0.5, True)
    >>> largest_single(0.5, strict=True) < 0.5
    True
    """
    with np.errstate(over="ignore"):
        single = np.float32(threshold)
    # compared as doubles: numpy rounds a Python number to the type of the other side
    if float(single) > threshold or (strict and float(single) >= threshold):
        single = np.nextafter(single, np.float32(-np.inf))
    return float(single)


@dataclass(frozen=True, eq=False)
class PairCore:
    """A score of pair features with anchors; without anchors, of the columns of the row alone.

    Parameters
    ----------
    columns : ColumnEncoding
        The columns of a row.
    role, source_column : ndarray of shape (n_pair_columns,)
        The role of each pair column (`PairColumn`), and the column of a row it is made of.
    score : PairScore
        The predicted difference, in units of y.
    symmetric : bool
        Whether both orders of a pair are evaluated.
    anchors : ndarray of shape (n_anchors, n_features)
        The features of the anchors, as given.
    anchors_y : ndarray of shape (n_anchors,)
        Their known values.
    anchor_weights : ndarray of shape (n_anchors,)
        Their weights, which sum to one.
    """

    columns: ColumnEncoding
    role: NDArray[np.int64]
    source_column: NDArray[np.int64]
    score: PairScore
    symmetric: bool
    anchors: Singles
    anchors_y: NDArray[np.float64]
    anchor_weights: NDArray[np.float64]

    unit = 1.0

    @property
    def center(self) -> float:
        # float32 represents deviations from the mean, whatever the mean is
        return float(self.anchor_weights @ self.anchors_y)

    @property
    def weights(self) -> NDArray[np.float64]:
        return np.repeat(self.anchor_weights, 2) / 2 if self.symmetric else self.anchor_weights

    @property
    def ram_bytes(self) -> int:
        return 4 * (2 * len(self.columns) + len(self.role))

    def estimates(self, X: Singles) -> Singles:
        """(row, estimate): of each anchor, in both orders one after the other where symmetric."""
        first, second = self.columns.encode(X)[:, None], self.columns.encode(self.anchors)[None]
        known = (self.anchors_y - self.center).astype(np.float32)
        forward = known + self._differences(first, second)
        if not self.symmetric:
            return forward
        backward = known - self._differences(second, first)
        return np.stack([forward, backward], axis=-1).reshape(len(X), -1)

    def _differences(self, first: Singles, second: Singles) -> Singles:
        """(row, anchor) of sides that broadcast."""
        shape = np.broadcast_shapes(first.shape, second.shape)[:2]
        a, b = (side[..., self.source_column] for side in (first, second))
        a, b = np.broadcast_arrays(a, b)
        pairs = np.where(self.role == PairColumn.FIRST, a, b)
        pairs = np.where(self.role == PairColumn.DIFFERENCE, a - b, pairs)
        differs = np.where(np.isnan(a) | np.isnan(b), np.nan, a != b).astype(np.float32)
        pairs = np.where(self.role == PairColumn.MISMATCH, differs, pairs)
        return self.score.evaluate(pairs.reshape(-1, len(self.role))).reshape(shape)

    def write(self, source: CSource) -> None:
        self.columns.write(source)
        self.score.write(source)
        write_anchors(
            source,
            self.anchors,
            (self.anchors_y - self.center).astype(np.float32),
            (self.anchor_weights / (2 if self.symmetric else 1)).astype(np.float32),
        )
        self._write_difference(source)
        add = ["@_add(sum, weight, known + @_difference(query, anchor));"]
        if self.symmetric:
            add.append("@_add(sum, weight, known - @_difference(anchor, query));")
        lines = "\n        ".join(add)
        source.code(f"""
static inline void @_moments(const float *x, @_sum *sum)
{{
    float query[{len(self.columns)}], anchor[{len(self.columns)}];
    int j;
    @_encode(x, query);
    for (j = 0; j < {len(self.anchors)}; j++) {{
        const float weight = @_anchor_weights[j], known = @_anchor_estimates[j];
        @_encode(@_anchors + {self.anchors.shape[1]} * j, anchor);
        {lines}
    }}
}}
""")

    def _write_difference(self, source: CSource) -> None:
        """Add `@_difference`: F(first, second)."""
        source.table(
            "@_pair_column",
            smallest_unsigned(int(self.source_column.max())),
            self.source_column,
        )
        parts = {
            PairColumn.FIRST: "first[@_pair_column[i]]",
            PairColumn.SECOND: "second[@_pair_column[i]]",
            PairColumn.DIFFERENCE: "first[@_pair_column[i]] - second[@_pair_column[i]]",
            PairColumn.MISMATCH: "@_mismatch(first[@_pair_column[i]], second[@_pair_column[i]])",
        }
        ends = [int(np.count_nonzero(self.role <= role)) for role in parts]
        # the roles are in this order, so that each is a range of pair columns
        assert (np.diff(self.role) >= 0).all()
        loops, start = [], 0
        for (role, expression), end in zip(parts.items(), ends, strict=True):
            if end > start:
                loops.append(
                    f"    for (; i < {end}; i++) {{\n        pair[i] = {expression};\n    }}"
                )
            if role == PairColumn.MISMATCH and end > start:
                source.code("""
static inline float @_mismatch(float first, float second)
{
    if (first != first || second != second) {
        return NAN;
    }
    return first != second ? 1.0f : 0.0f;
}
""")
            start = end
        body = "\n".join(loops)
        source.code(f"""
/* F(first, second): the predicted difference of two rows, given by their columns. */
static inline float @_difference(const float *first, const float *second)
{{
    float pair[{len(self.role)}];
    int i = 0;
{body}
    (void)second;
    return @_score(pair);
}}
""")
