"""The contract of models that are written as C, and the encoding of rows that they share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinned.rows.schema import Floats, TableSchema

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
    mean: Floats | None = None
    spread: Floats | None = None
    fill: Floats | None = None

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
        if self.fill is None:
            return values
        high, low, factor = self.scale
        return np.where(missing, self.fill.astype(np.float32), ((values - high) - low) * factor)

    @property
    def has_codes(self) -> bool:
        """Whether a column is not simply a feature."""
        return bool((self.code != VALUE).any())

    @property
    def is_scaled(self) -> bool:
        """Whether columns are scaled, and missing values replaced."""
        return self.mean is not None

    @property
    def scale(self) -> tuple[Singles, Singles, Singles]:
        """The mean as a sum of two floats, and the factor of columns."""
        assert self.mean is not None
        assert self.spread is not None
        high = self.mean.astype(np.float32)
        low = (self.mean - high.astype(np.float64)).astype(np.float32)
        return high, low, (1.0 / self.spread).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Core(ABC):
    """A model as a list of weighted estimates of y.

    A prediction is `center + unit · (weighted mean of the estimates)`.

    Parameters
    ----------
    columns : ColumnEncoding
        The columns that are computed from the features of a row.
    anchors : ndarray of shape (n_anchors, n_features), or None
        The features of the anchors, as given; None for networks that predict y itself.
    anchor_estimates : ndarray of shape (n_anchors,)
        Known values of the anchors, (y − center) / unit.
    anchor_weights : ndarray of shape (n_anchors,)
        Their weights, which sum to one.
    center, unit : float
        The value of y that an estimate of 0 stands for, and the factor of the estimates.
    """

    columns: ColumnEncoding
    anchors: Singles | None
    anchor_estimates: Singles
    anchor_weights: Floats
    center: float
    unit: float

    @property
    @abstractmethod
    def kind(self) -> str:
        """The part of the template that computes estimates: linear, trees or networks."""

    @property
    def n_orders(self) -> int:
        """Orders of a pair that are estimates of their own."""
        return 1

    @property
    @abstractmethod
    def weights(self) -> Floats:
        """(estimate,): weights that sum to one."""

    @property
    @abstractmethod
    def ram_bytes(self) -> int:
        """The bytes of the arrays on the stack while a row is predicted."""

    @abstractmethod
    def estimates(self, X: Singles) -> Singles:
        """(row, estimate) of rows (row, feature), computed as the C code does."""

    def predict(self, X: Singles) -> tuple[Floats, Floats]:
        """(row,): mean and standard deviation as the C code computes them, but for rounding."""
        estimates = self.estimates(X).astype(np.float64)
        mean = estimates @ self.weights
        variance = (estimates - mean[:, None]) ** 2 @ self.weights
        return self.center + self.unit * mean, self.unit * np.sqrt(variance)
