"""Features of the members of a blend: what each can take, made from one encoded table.

`"encoded"` are the features of the table with codes of categories and missing values as NaN.
`"complete"` has no missing values: numeric ones are replaced by the median and marked by indicator
columns, and missing categories are a category of their own. `"dense"` has one indicator for each
category instead of codes, too, and all columns are standardized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from twinned.rows.schema import Floats, Rows, TableSchema, known_medians


@dataclass(frozen=True, eq=False)
class FeaturePreparation:
    """Imputation, indicators and scaling, fitted to the training rows of a member."""

    kind: str
    n_features: int
    categorical: list[int]  # columns of codes in the encoded table
    n_categories: list[int]  # of each of them; a missing value has this code, a new one the next
    empty: list[int]  # numeric features without any known value
    medians: Floats  # (feature,): of the numeric features
    marked: list[int]  # numeric features with an indicator of missing values
    center: Floats  # (column,) of the dense features
    spread: Floats

    @classmethod
    def fit(cls, kind: str, schema: TableSchema, matrix: Floats) -> Self:
        """Fit to encoded training rows (n, n_features)."""
        missing = np.isnan(matrix)
        known: NDArray[np.bool_] = np.asarray(~missing.all(axis=0))
        own = cls(
            kind=kind,
            n_features=matrix.shape[1],
            categorical=schema.categorical,
            n_categories=[schema.n_indicators[j] for j in schema.categorical],
            empty=[j for j in schema.numeric if not known[j]],
            medians=known_medians(matrix),
            marked=[j for j in schema.numeric if missing[:, j].any() and known[j]],
            center=np.empty(0),
            spread=np.empty(0),
        )
        if kind != "dense":
            return own
        dense = own._one_hot(own._complete(matrix))
        center, spread = dense.mean(axis=0), dense.std(axis=0)
        constant = spread <= 1e-12 * np.maximum(1.0, np.abs(center))
        return cls(**{**vars(own), "center": center, "spread": np.where(constant, 1.0, spread)})

    @property
    def categorical_columns(self) -> list[int] | None:
        """The columns of codes after `transform`; None where there are none."""
        return None if self.kind == "dense" or not self.categorical else self.categorical

    @property
    def n_columns(self) -> int:
        """The number of columns after `transform`."""
        marked = len(self.marked) if self.kind == "complete" else 0
        return len(self.center) if self.kind == "dense" else self.n_features + marked

    def transform(self, matrix: Floats) -> Floats:
        """(n, n_features) encoded rows → (n, column) features of the member."""
        if self.kind == "encoded":
            return self._without_empty(matrix)
        complete = self._complete(matrix)
        if self.kind == "complete":
            return complete
        return (self._one_hot(complete) - self.center) / self.spread

    def _without_empty(self, matrix: Floats) -> Floats:
        """Encoded rows with zeros in the features that had no known value."""
        if not self.empty:
            return matrix
        filled = matrix.copy()
        filled[:, self.empty] = 0.0
        return filled

    def _complete(self, matrix: Floats) -> Floats:
        """Encoded rows without missing values, and the indicator columns."""
        missing = np.isnan(matrix)
        fill = self.medians.copy()
        fill[self.categorical] = self.n_categories
        filled = np.where(missing, fill, self._without_empty(matrix))
        for j, n in zip(self.categorical, self.n_categories, strict=True):
            new = ~missing[:, j] & (filled[:, j] >= n)
            filled[new, j] = n + 1
        return np.column_stack([filled, missing[:, self.marked].astype(float)])

    def _one_hot(self, complete: Floats) -> Floats:
        """Numeric columns and indicators of missing values, then indicators of categories."""
        indicators = [
            (complete[:, [j]] == np.arange(n + 1)).astype(float)
            for j, n in zip(self.categorical, self.n_categories, strict=True)
        ]
        return np.column_stack([np.delete(complete, self.categorical, axis=1), *indicators])


def to_matrix(schema: TableSchema, rows: Rows) -> Floats:
    """(..., n_features): the encoded matrix from which `TableSchema.to_rows` made these rows.

    >>> schema = TableSchema(["categorical", "numeric"], [["a", "b"], []], [2, 0])
    >>> matrix = np.array([[1.0, 2.5], [0.0, 3.5]])
    >>> np.array_equal(to_matrix(schema, schema.to_rows(matrix)), matrix)
    True
    """
    matrix = np.empty((*rows.numeric.shape[:-1], schema.n_features))
    matrix[..., schema.numeric] = rows.numeric
    matrix[..., schema.categorical] = rows.codes
    return matrix
