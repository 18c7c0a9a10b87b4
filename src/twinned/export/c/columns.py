"""Encoding of a row of a table in C: from the features of x to the columns of a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinned.export.c.source import CSource, smallest_unsigned
from twinned.rows.schema import TableSchema

Singles = NDArray[np.float32]
# in place of a code: the column is the feature itself, or 1 where its value is missing
VALUE, _IS_MISSING = -1, -2


@dataclass(frozen=True, eq=False)
class ColumnEncoding:
    """The columns that a model computes from the features of a row.

    A column is a feature, or 1 where a categorical feature has a certain code or a numeric one is
    missing and 0 elsewhere. Columns may be scaled: (value − mean) / spread, where the mean is a sum
    of two floats, so that features far from zero lose no digits. A missing value (NaN) is then
    replaced by `fill`, and stays missing in other columns.

    Parameters
    ----------
    feature, code : ndarray of shape (n_columns,)
        The feature of each column, and the code it indicates; −1 for its value, −2 for whether it
        is missing.
    mean, spread, fill : ndarray of shape (n_columns,), or None
        The scale of the columns, in double precision, and the scaled values of missing ones.
    """

    feature: NDArray[np.intp]
    code: NDArray[np.intp]
    mean: NDArray[np.float64] | None = None
    spread: NDArray[np.float64] | None = None
    fill: NDArray[np.float64] | None = None

    @classmethod
    def of_schema(cls, schema: TableSchema) -> ColumnEncoding:
        """The columns of `Rows`: numeric features, indicators, and codes of categories."""
        indicators = [(j, c) for j in schema.categorical for c in range(schema.n_indicators[j])]
        every = [(j, VALUE) for j in schema.numeric] + indicators
        every += [(j, _IS_MISSING) for j in schema.marked]
        every += [(j, VALUE) for j in schema.categorical]
        feature, code = np.array(every, dtype=np.intp).reshape(-1, 2).T
        return cls(feature, code)

    def __len__(self) -> int:
        return len(self.feature)

    def encode(self, X: Singles) -> Singles:
        """(row, feature) → (row, column), as the C code computes it."""
        values = X[:, self.feature]
        missing = np.isnan(values)
        is_equal = (values == self.code.astype(np.float32)) & (self.code >= 0)
        is_equal = np.where(missing, np.float32(np.nan), is_equal.astype(np.float32))
        values = np.where(self.code == VALUE, values, is_equal)
        if self.mean is None or self.fill is None:
            return values
        high, low = _two_floats(self.mean)
        scaled = ((values - high) - low) * self.spread_inverse
        return np.where(missing, self.fill.astype(np.float32), scaled)

    @property
    def spread_inverse(self) -> Singles:
        assert self.spread is not None
        return (1.0 / self.spread).astype(np.float32)

    def write(self, source: CSource) -> None:
        """Add the function `@_encode`."""
        source.table("@_column_feature", smallest_unsigned(int(self.feature.max())), self.feature)
        has_codes = bool((self.code != VALUE).any())
        value = "x[@_column_feature[i]]"
        if has_codes:
            source.table("@_column_code", "int16_t", self.code)
        lines = [f"        float value = {value};"]
        if has_codes:
            lines += [
                "        if (@_column_code[i] >= 0 && value == value) {",
                "            value = value == (float)@_column_code[i] ? 1.0f : 0.0f;",
                "        }",
            ]
        if (self.code == _IS_MISSING).any():
            is_known = f"@_column_code[i] == {_IS_MISSING} && value == value"
            lines.append(f"        value = {is_known} ? 0.0f : value;")
        if self.mean is not None and self.fill is not None:
            high, low = _two_floats(self.mean)
            source.table("@_column_mean", "float", high)
            source.table("@_column_mean_rest", "float", low)
            source.table("@_column_factor", "float", self.spread_inverse)
            lines.append(
                "        value = ((value - @_column_mean[i]) - @_column_mean_rest[i]) "
                "* @_column_factor[i];"
            )
            source.table("@_column_fill", "float", self.fill)
            lines.append("        value = value != value ? @_column_fill[i] : value;")
        body = "\n".join(lines)
        source.code(f"""
/* The columns of the model, from the features x of a row. */
static inline void @_encode(const float *x, float *columns)
{{
    int i;
    for (i = 0; i < {len(self)}; i++) {{
{body}
        columns[i] = value;
    }}
}}
""")


def _two_floats(values: NDArray[np.float64]) -> tuple[Singles, Singles]:
    """Two single-precision numbers whose sum is the double-precision one, nearly."""
    high = values.astype(np.float32)
    return high, (values - high.astype(np.float64)).astype(np.float32)
