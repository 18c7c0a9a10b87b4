"""Standard scaling of features, and equal rows merged into one with the sum of their weights."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twinned.rows.folds import distinct_rows
from twinned.rows.schema import Floats, Indices


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
        known = ~np.isnan(values)
        if known.all():
            center = np.average(values, axis=0, weights=weight)
        else:
            known_weight = known * (1.0 if weight is None else weight[:, None])
            sums = np.sum(np.where(known, values, 0.0) * known_weight, axis=0)
            weight_sums = known_weight.sum(axis=0)
            center = sums / np.where(weight_sums > 0, weight_sums, 1.0)
        deviations = np.where(known, values - center, 0.0)
        if weight is None:
            scale = deviations.std(axis=0)
        else:
            scale = np.sqrt(np.average(deviations**2, axis=0, weights=weight))
        largest = np.where(known, values, -np.inf).max(axis=0)
        smallest = np.where(known, values, np.inf).min(axis=0)
        return cls(center, np.where(largest > smallest, scale, 0.0))

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


def merge_equal_rows(X: Floats, y: Floats, weight: Floats | None = None) -> tuple[Indices, Floats]:
    """Indices of rows of positive weight, one of those that are equal, and the sums of weights.

    So a weight of 2 is equivalent to a repeated row, for models that otherwise treat repetitions as
    independent. Rows are equal where both `X` (row, feature), in which missing values are equal,
    and `y` (row,) or (row, output) are; they are sorted.

    >>> merge_equal_rows(np.array([[2.0], [1.0], [2.0]]), np.array([5.0, 5.0, 5.0]))
    (array([1, 0]), array([1., 2.]))
    """
    weight = np.ones(len(X)) if weight is None else weight
    positive = np.flatnonzero(weight > 0)
    both = np.column_stack([X, y])[positive]
    first, merged_into = distinct_rows(both)
    sums = np.bincount(merged_into, weights=weight[positive])
    return positive[first], sums.astype(np.float64)
