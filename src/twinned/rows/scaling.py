"""Standard and power scaling of columns, and equal rows merged with the sum of their weights."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from twinned.rows.folds import distinct_rows
from twinned.rows.schema import Floats, Indices

_LEAST_SKEWNESS = 0.5
_SUM_BITS = 32  # of a rounded value; the other 20 are for sums
MAX_EXPONENT = 300.0  # so that squares of transformed values do not overflow
_POWERS = np.linspace(0.0, 2.0, 41).clip(1e-3, 2.0 - 1e-3)


def round_for_sums(y: Floats) -> Floats:
    """Values that are rounded so that sums of up to a million of them are exact.

    Where several splits of a tree are equally good, as those of two rows are, it otherwise has the
    one that rounding favors, which depends on the unit of y.

    >>> y = round_for_sums(np.array([0.1, 0.7]))
    >>> bool(y[0] + y[1] - y[0] == y[1]), np.abs(y - [0.1, 0.7]).max() < 1e-9
    (True, np.True_)
    """
    largest = np.max(np.abs(y), axis=0, initial=1e-290)
    unit = 2.0 ** (np.ceil(np.log2(largest)) - _SUM_BITS)
    return np.round(y / unit) * unit


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
    def fit(cls, values: Floats, weight: Floats | None = None) -> Self:
        """Scaling of `values` (row, column), where a row counts by its weight (row,)."""
        values = np.asarray(values, dtype=np.float64)
        is_known = ~np.isnan(values)
        if is_known.all():
            center = np.average(values, axis=0, weights=weight)
        else:
            known_weight = is_known * (1.0 if weight is None else weight[:, None])
            sums = np.sum(np.where(is_known, values, 0.0) * known_weight, axis=0)
            weight_sums = known_weight.sum(axis=0)
            center = sums / np.where(weight_sums > 0, weight_sums, 1.0)
        deviations = np.where(is_known, values - center, 0.0)
        if weight is None:
            scale = deviations.std(axis=0)
        else:
            scale = np.sqrt(np.average(deviations**2, axis=0, weights=weight))
        largest = np.where(is_known, values, -np.inf).max(axis=0)
        smallest = np.where(is_known, values, np.inf).min(axis=0)
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


class PowerScaling(NamedTuple):
    """Yeo–Johnson transformation of columns, then standard scaling.

    Values are divided by their unit before. Without it, the transformation of a small column would
    be the identity.

    Attributes
    ----------
    power : ndarray of shape (column,)
        Exponents of Yeo and Johnson, from nearly 0, a logarithm, to nearly 2; 1 is the identity.
        Within these limits, the transformation has an inverse everywhere.
    unit : ndarray of shape (column,)
        A tenth of the smallest absolute value that is not zero, so that positive values get nearly
        the transformation of Box and Cox; at least 1e-4 times the median.
    center, scale : ndarray of shape (column,)
        Means and standard deviations of transformed values; 1 in a constant column.

    Examples
    --------
    >>> values = np.array([[1.0, 7.0], [10.0, 8.0], [100.0, 9.0], [1000.0, 10.0]])
    >>> scaling = PowerScaling.fit(values, powers=True)
    >>> scaling.transform(values).round(1)
    array([[-1.3, -1.3],
           [-0.5, -0.4],
           [ 0.4,  0.4],
           [ 1.3,  1.3]])
    >>> scaling.invert(scaling.transform(values)).round(9)[-1]
    array([1000.,   10.])
    """

    power: Floats
    unit: Floats
    center: Floats
    scale: Floats

    @classmethod
    def fit(cls, values: Floats, *, powers: bool) -> Self:
        """Scaling of (row, column) values, with `powers` of those whose distribution is skewed.

        The power is the one of a grid that has the largest likelihood.
        """
        power, unit = np.ones((2, values.shape[1]))
        chosen = skewed_columns(values) & powers
        skewed = values[:, chosen]
        sizes = np.where(skewed == 0, np.nan, np.abs(skewed))
        least, median = np.nanmin(sizes, axis=0), np.nanmedian(sizes, axis=0)
        unit[chosen] = np.maximum(0.1 * least, 1e-4 * median)
        skewed = skewed / unit[chosen]
        slopes = (np.sign(skewed) * np.log1p(np.abs(skewed))).mean(axis=0)
        variances = np.array([yeo_johnson(skewed, exponent).var(axis=0) for exponent in _POWERS])
        likelihoods = np.outer(_POWERS - 1.0, slopes) - 0.5 * np.log(variances)
        power[chosen] = _POWERS[np.argmax(likelihoods, axis=0)]
        return cls.with_powers(values, power, unit)

    @classmethod
    def with_powers(cls, values: Floats, power: Floats, unit: Floats) -> Self:
        """Scaling of (row, column) values with powers and units (column,)."""
        scaling = StandardScaling.fit(yeo_johnson(values / unit, power))
        return cls(power, unit, scaling.center, np.where(scaling.varying, scaling.scale, 1.0))

    def transform(self, values: Floats) -> Floats:
        """Scaled values (row, column)."""
        return (yeo_johnson(values / self.unit, self.power) - self.center) / self.scale

    def invert(self, scaled: Floats) -> Floats:
        """Values from scaled ones."""
        values = scaled * self.scale + self.center
        power = np.where(values >= 0, self.power, 2.0 - self.power)
        sizes = np.expm1(np.minimum(np.log1p(power * np.abs(values)) / power, MAX_EXPONENT))
        return np.sign(values) * sizes * self.unit

    def slope(self, values: Floats) -> Floats:
        """The derivatives of values by scaled ones."""
        power = np.where(values >= 0, self.power, 2.0 - self.power)
        sizes = np.log1p(np.abs(values) / self.unit)
        return np.exp((1.0 - power) * sizes) * self.unit * self.scale


def skewed_columns(values: Floats) -> NDArray[np.bool_]:
    """(column,): whether the skewness of a column of more than two values exceeds 0.5.

    >>> skewed_columns(np.array([[1.0, 1.0, 0.0], [2.0, 10.0, 0.0], [3.0, 100.0, 0.0]]))
    array([False,  True, False])
    """
    skewness = np.mean(StandardScaling.fit(values).transform(values) ** 3, axis=0)
    many = [len(np.unique(column)) > 2 for column in values.T]
    return (np.abs(skewness) > _LEAST_SKEWNESS) & many


def yeo_johnson(values: Floats, power: Floats) -> Floats:
    """The transformation of Yeo and Johnson, for powers between 0 and 2, both excluded.

    >>> yeo_johnson(np.array([3.0, -3.0]), np.array([0.5, 0.5])).round(3)
    array([ 2.   , -4.667])
    """
    power = np.where(values >= 0, power, 2.0 - power)
    exponents = np.minimum(power * np.log1p(np.abs(values)), MAX_EXPONENT)
    return np.sign(values) * np.expm1(exponents) / power


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
    return positive[first], np.bincount(merged_into, weights=weight[positive]).astype(np.float64)
