"""The covariance of the deviations of batches, and the variance of their constants."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.spatial.distance import cdist

from twinned.rows.kernels import KERNELS
from twinned.rows.schema import Floats

_BETWEEN = np.exp(np.linspace(-14.0, 14.0, 281))  # variances that are compared


@dataclass(frozen=True, eq=False)
class Deviation:
    """The covariance of the deviations of rows of the same batch.

    It is that of a constant, of a linear function of the scaled features, and of a smooth one
    (Matérn 5/2). Deviations of different batches are independent.
    """

    center: Floats  # (encoded feature,)
    length_scales: Floats  # (encoded feature,), infinite where a feature is constant
    slope: float = 0.0  # variances of the linear and of the smooth function
    smooth: float = 0.0
    stretch: float = 1.0  # factor of the length scales of the smooth function
    noise: float = 1.0  # variance of the error of a row of weight 1
    between: float = 0.0  # variance of the constants

    @property
    def is_constant(self) -> bool:
        """Whether deviations are constants."""
        return self.slope == 0.0 and self.smooth == 0.0

    @property
    def differs(self) -> bool:
        """Whether deviations of batches are not all the same."""
        return self.between > 0.0 or not self.is_constant

    def scaled(self, features: Floats) -> Floats:
        """(row, encoded feature): features in length scales; a missing value is the mean."""
        return np.nan_to_num((features - self.center) / self.length_scales)

    def covariance(self, first: Floats, second: Floats) -> Floats:
        """(first, second): covariances at scaled rows, without that of the constants.

        >>> deviation = Deviation(np.zeros(1), np.ones(1), slope=2.0)
        >>> deviation.covariance(np.array([[1.0]]), np.array([[3.0], [0.0]]))
        array([[6., 0.]])
        """
        linear = self.slope * (first @ second.T) / first.shape[1]
        squares = cdist(first, second, "sqeuclidean") / self.stretch**2
        return linear + self.smooth * KERNELS["matern"](squares)[0]

    def paired(self, first: Floats, second: Floats) -> Floats:
        """(row,): covariances of each row and the same one, or the only one, of `second`."""
        squares = np.sum((first - second) ** 2, axis=1) / self.stretch**2
        linear = self.slope * np.sum(first * second, axis=1) / first.shape[1]
        return linear + self.smooth * KERNELS["matern"](squares)[0]


def variance_between(means: Floats, variance: Floats) -> float:
    """The variance of constants, from estimates that have these variances.

    The restricted likelihood, with a Gamma(2) prior of the standard deviation that keeps it from
    zero: few batches that look alike may still differ (Chung et al., 2013).

    >>> bool(0 < variance_between(np.ones(5), np.ones(5)) < 1)
    True
    """
    unit = float(np.median(variance)) + float(np.var(means)) + 1e-280
    candidates = unit * _BETWEEN
    precision = 1.0 / (candidates[:, None] + variance)
    total = precision.sum(axis=1)
    deviations = means - (precision @ means / total)[:, None]
    value = np.sum(np.log(precision) - precision * deviations**2, axis=1) - np.log(total)
    return float(candidates[np.argmax(value + np.log(candidates))])
