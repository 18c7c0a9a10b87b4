"""Features of the members of a blend: imputation, indicators and scaling.

Features are made from one encoded table, of the kind that a member can take. `"encoded"` are those
of the table with codes of categories and missing values as NaN. `"complete"` has no missing values:
numeric ones are replaced by the median and marked by indicator columns, and missing categories are
a category of their own. `"dense"` has one indicator for each category instead of codes, too, and
all columns are standardized; `"unscaled"` is the same without the latter. `"counts"` is `"dense"`
with counts first, of the fragments of molecules, which stay as they are; of the other columns it
has the inverse hyperbolic sine, as distances of descriptors with long tails are else those of a few
molecules. A member may have some columns of the table only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from twinned.rows.schema import Floats, Indices, TableSchema, known_medians


@dataclass(frozen=True, eq=False)
class FeaturePreparation:
    """Imputation, indicators and scaling, fitted to the training rows of a member."""

    kind: str
    n_features: int
    categorical: list[int]  # columns of codes in the encoded table
    n_categories: list[int]  # of each of them; a missing value has this code, a new one the next
    empty: list[int]  # numeric features without any known value, or that are not used
    medians: Floats  # (feature,): of the numeric features
    marked: list[int]  # numeric features with an indicator of missing values
    center: Floats  # (column,) of the dense features
    spread: Floats
    columns: list[int] | None = None  # of the table that the member has; None is all
    n_counts: int = 0  # leading columns that are counts

    @classmethod
    def fit(
        cls,
        kind: str,
        schema: TableSchema,
        rows: Floats,
        used: Indices | None = None,
        n_counts: int = 0,
    ) -> Self:
        """Fit to encoded training rows (n, n_features); only `used` features count, if given.

        The first `n_counts` of the kind `"counts"` are counts.
        """
        missing = np.isnan(rows)
        has_values: NDArray[np.bool_] = np.asarray(~missing.all(axis=0))
        if used is not None:
            has_values &= np.isin(np.arange(rows.shape[1]), used)
        is_dense = kind not in ("encoded", "complete")
        prepared = cls(
            kind="dense" if is_dense else kind,
            n_features=rows.shape[1],
            categorical=schema.categorical,
            n_categories=[schema.n_indicators[j] for j in schema.categorical],
            empty=[j for j in schema.numeric if not has_values[j]],
            medians=known_medians(rows),
            marked=[j for j in schema.numeric if missing[:, j].any() and has_values[j]],
            center=np.zeros(int(is_dense)),
            spread=np.ones(int(is_dense)),
        )
        if not is_dense:
            return prepared
        dense = prepared.transform(rows)
        center, spread = dense.mean(axis=0), dense.std(axis=0)
        constant = spread <= 1e-12 * np.abs(center)
        if kind == "unscaled":
            center, constant = np.zeros_like(center), np.ones_like(constant)
        center[:n_counts], constant[:n_counts] = 0.0, True
        spread = np.where(constant, 1.0, spread)
        return replace(prepared, center=center, spread=spread, n_counts=n_counts)

    @property
    def n_columns(self) -> int:
        """The number of columns after `transform`."""
        marked = len(self.marked) if self.kind == "complete" else 0
        return len(self.center) if self.kind == "dense" else self.n_features + marked

    def transform(self, matrix: Floats) -> Floats:
        """(n, n_table_features) encoded rows → (n, column) features of the member."""
        if self.columns is not None:
            matrix = matrix[:, self.columns]
        missing, filled = np.isnan(matrix), matrix
        if self.empty:  # zeros in the features that had no known value or are not used
            filled = matrix.copy()
            filled[:, self.empty] = 0.0
        if self.kind == "encoded":
            return filled
        fill = self.medians.copy()
        fill[self.categorical] = self.n_categories
        filled = np.where(missing, fill, filled)
        categories = list(zip(self.categorical, self.n_categories, strict=True))
        for j, n in categories:
            filled[~missing[:, j] & (filled[:, j] >= n), j] = n + 1
        complete = np.column_stack([filled, missing[:, self.marked].astype(float)])
        if self.kind == "complete":
            return complete
        indicators = [(complete[:, [j]] == np.arange(n + 1)).astype(float) for j, n in categories]
        dense = np.column_stack([np.delete(complete, self.categorical, axis=1), *indicators])
        dense = (dense - self.center) / self.spread
        if self.n_counts:
            dense[:, self.n_counts :] = np.arcsinh(dense[:, self.n_counts :])
        return dense
