"""Pair features: the columns that a base estimator sees of a pair of rows."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinned.rows.schema import Floats, Indices, Rows, TableSchema
from twinned.rows.validation import check_choice

PAIR_FEATURES = ("concat", "concat+difference", "difference")


class PairColumn(IntEnum):
    """Role of a pair column: a feature of either row, a difference, or a category mismatch."""

    FIRST = 0
    SECOND = 1
    DIFFERENCE = 2
    MISMATCH = 3


class PairFeatures:
    """Builder of pair features.

    `"concat"` is (a, b); `"difference"` is a − b; `"concat+difference"` is (a, b, a − b), in that
    order; a callable gets both sides as (n_pairs, n_encoded) arrays and returns
    (n_pairs, width). Differences are subtracted in float64, then rounded to `dtype`.
    `selected` are the features of the table that pairs are made of; None for all of them.
    """

    def __init__(
        self,
        kind: Any,
        schema: TableSchema,
        dtype: np.dtype,
        selected: Indices | None = None,
    ) -> None:
        if not callable(kind) or isinstance(kind, type):
            check_choice("pair_features", kind, PAIR_FEATURES, " or a callable")
        self.kind = kind
        self.dtype = dtype
        self._selected = None if selected is None else schema.row_columns(selected)
        example = self._select(schema.to_rows(np.zeros((2, schema.n_features))))
        n_numeric, n_indicators, n_codes = (part.shape[1] for part in example)
        self._n_encoded = n_numeric + n_indicators
        if callable(kind):
            self.width = self._call(example, example).shape[1]
        else:
            self.width = 2 * self._n_encoded * ("concat" in kind)
            self.width += (n_numeric + n_codes) * ("difference" in kind)

    @property
    def n_concatenated(self) -> int:
        """Number of leading columns that are features of one row."""
        is_concatenated = isinstance(self.kind, str) and "concat" in self.kind
        return 2 * self._n_encoded if is_concatenated else 0

    @property
    def bytes_per_pair(self) -> int:
        return self.width * self.dtype.itemsize

    def build(self, first: Rows, second: Rows, out: Floats | None = None) -> Floats:
        """(..., width) in C order, for sides whose leading axes broadcast against each other."""
        first, second = self._select(first), self._select(second)
        leading = np.broadcast_shapes(first.codes.shape[:-1], second.codes.shape[:-1])
        if callable(self.kind):
            flat = [_flatten(side, leading) for side in (first, second)]
            rows = self._call(*flat).reshape(*leading, self.width)
            if out is not None:
                out[...] = rows
            return rows
        if out is None:
            out = np.empty((*leading, self.width), dtype=self.dtype)
        column = 0
        if "concat" in self.kind:
            for part in (first.numeric, first.one_hot, second.numeric, second.one_hot):
                out[..., column : column + part.shape[-1]] = part
                column += part.shape[-1]
        if "difference" in self.kind:
            n_numeric = first.numeric.shape[-1]
            np.subtract(
                first.numeric,
                second.numeric,
                out=out[..., column : column + n_numeric],
                casting="same_kind",
                dtype=np.float64,
            )
            if first.codes.shape[-1]:
                out[..., column + n_numeric :] = category_mismatch(first.codes, second.codes)
        return out

    def _select(self, rows: Rows) -> Rows:
        return rows if self._selected is None else rows.take_columns(*self._selected)

    def layout(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(width,) role of each pair column, and the index of the feature it is made of.

        Features are counted over numeric features, indicators and codes, in the order of `rows`.
        Used for prediction without building pairs.
        """
        numeric, indicators, codes = np.split(
            np.arange(sum(part.shape[-1] for part in rows)),
            np.cumsum([rows.numeric.shape[-1], rows.one_hot.shape[-1]]),
        )
        if self._selected is not None:
            numeric, indicators, codes = (
                part[columns]
                for part, columns in zip((numeric, indicators, codes), self._selected, strict=True)
            )
        encoded = [*numeric, *indicators]
        role: list[int] = []
        source: list[int] = []
        if "concat" in self.kind:
            role += [PairColumn.FIRST] * len(encoded) + [PairColumn.SECOND] * len(encoded)
            source += encoded * 2
        if "difference" in self.kind:
            role += [PairColumn.DIFFERENCE] * len(numeric) + [PairColumn.MISMATCH] * len(codes)
            source += [*numeric, *codes]
        return np.array(role, dtype=np.int64), np.array(source, dtype=np.int64)

    def _call(self, first: Rows, second: Rows) -> Floats:
        rows = np.asarray(self.kind(first.features, second.features))
        if rows.ndim != 2 or len(rows) != len(first) or rows.dtype.kind not in "fiub":
            raise ValueError(
                f"pair_features must return a numeric array of shape ({len(first)}, width), but "
                f"{self.kind!r} returned {rows.dtype} of shape {rows.shape}."
            )
        return rows.astype(self.dtype, copy=False)


def category_mismatch(first: Floats, second: Floats) -> Floats:
    """1 where two categories differ, 0 where they are equal, NaN where one is missing.

    >>> category_mismatch(np.array([0.0, 0.0, np.nan]), np.array([0.0, 3.0, 1.0]))
    array([ 0.,  1., nan])
    """
    differs = (first != second).astype(np.float64)
    return np.where(np.isnan(first) | np.isnan(second), np.nan, differs)


def _flatten(side: Rows, leading: tuple[int, ...]) -> Rows:
    """Rows with all leading axes merged into one."""
    shapes = [(*leading, part.shape[-1]) for part in side]
    parts = [np.broadcast_to(part, shape) for part, shape in zip(side, shapes, strict=True)]
    return Rows(*(part.reshape(int(np.prod(leading)), part.shape[-1]) for part in parts))
