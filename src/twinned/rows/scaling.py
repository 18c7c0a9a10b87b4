"""Standard scaling of features: columns of mean 0 and standard deviation 1."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twinned.rows.schema import Floats


class StandardScaling(NamedTuple):
    """Means and standard deviations of columns, with missing values counted as the mean.

    Attributes
    ----------
    center : ndarray of shape (column,)
        Means of the values that are not missing.
    scale : ndarray of shape (column,)
        Standard deviations; that of a constant column is exactly 0, despite rounding.

    Examples
    --------
    >>> values = np.array([[1.0, 7.0], [np.nan, 7.0], [3.0, 7.0]])
    >>> scaling = StandardScaling.fit(values)
    >>> scaling.center, scaling.scale.round(3)
    (array([2., 7.]), array([0.816, 0.   ]))
    >>> scaling.transform(values).round(3)
    array([[-1.225,  0.   ],
           [ 0.   ,  0.   ],
           [ 1.225,  0.   ]])
    """

    center: Floats
    scale: Floats

    @classmethod
    def fit(cls, values: Floats, weight: Floats | None = None) -> StandardScaling:
        """Scaling of `values` (row, column), where a row counts by its weight (row,)."""
        values = np.asarray(values, dtype=np.float64)
        weight = np.ones(len(values)) if weight is None else weight
        known = ~np.isnan(values)
        filled = np.where(known, values, 0.0)
        # squares of values in units of a power of two neither overflow nor are rounded otherwise
        unit = np.ldexp(1.0, np.frexp(np.abs(filled).max(axis=0, initial=0.0))[1] - 1)
        filled /= unit
        weight_sums = weight @ known
        center = weight @ filled / np.where(weight_sums > 0, weight_sums, 1.0)
        deviations = np.where(known, filled - center, 0.0)
        scale = np.sqrt(weight @ deviations**2 / weight.sum())
        largest = np.where(known, filled, -np.inf).max(axis=0, initial=-np.inf)
        smallest = np.where(known, filled, np.inf).min(axis=0, initial=np.inf)
        return cls(center * unit, np.where(largest > smallest, scale, 0.0) * unit)

    @property
    def varying(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """(column,): whether the values of a column differ."""
        return self.scale > 0

    def fill(self, values: Floats) -> Floats:
        """The values, with the mean for missing ones."""
        values = np.asarray(values, dtype=np.float64)
        return np.where(np.isnan(values), self.center, values)

    def transform(self, values: Floats) -> Floats:
        """Scaled values; those of constant columns and missing ones are 0."""
        scaled = (self.fill(values) - self.center) / np.where(self.varying, self.scale, 1.0)
        return np.where(self.varying, scaled, 0.0)
