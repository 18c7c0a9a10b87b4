"""The Gaussian process of the deviations of batches, and its likelihood given residuals."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.spatial.distance import cdist

from twinned.rows.kernels import KERNELS
from twinned.rows.schema import Floats, Indices

_MAX_ROWS = 150  # of a batch, by which the likelihood is computed
_MAX_ALL_ROWS = 4000
# Logarithms of the variances of slopes and smooth deviations in units of that of the residuals, of
# the factor of the length scales and of the noise: bounds, means and deviations of priors.
_BOUNDS = ((-14.0, 8.0), (-14.0, 4.0), (-1.5, 2.5), (-12.0, 2.0))
_PRIOR = np.array([[-3.0, -3.0, 0.5, -1.0], [3.0, 3.0, 0.7, 4.0]])
_BETWEEN = np.exp(np.linspace(-14.0, 14.0, 281))  # variances that are compared
_LEAST_GAIN = 3.0  # of the likelihood, by the three parameters of deviations that are functions


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


def fit_deviation(
    start: Deviation, features: Floats, residual: Floats, codes: Indices, weight: Floats
) -> Deviation:
    """The deviation that makes residuals likeliest, with a constant of any size in each batch.

    Its length scales are those of `start`, from which the search begins. With `slope` and `smooth`
    of 0, they remain so. Only differences within batches count. `features` are scaled.
    """
    order = np.random.RandomState(0).permutation(len(residual))
    order = order[np.argsort(codes[order], kind="stable")]
    position = np.arange(len(order)) - np.searchsorted(codes[order], codes[order])
    counts = np.bincount(codes)
    n_batches = max(1, int(np.sum(counts > 1)))
    n_rows = max(2, min(_MAX_ROWS, _MAX_ALL_ROWS // n_batches))
    chosen = order[(position < n_rows) & (counts[codes[order]] > 1) & (weight[order] > 0)]
    means = np.bincount(codes, weight * residual) / np.maximum(np.bincount(codes, weight), 1e-300)
    centered = residual - means[codes]
    unit = float(np.sqrt(np.mean(centered[chosen] ** 2))) if len(chosen) else 0.0
    if unit <= 1e-12 * (np.abs(residual).max() + 1e-280):
        return replace(start, slope=0.0, smooth=0.0, noise=1e-24 * float(np.mean(residual**2)))
    if start.is_constant:
        freedom = len(chosen) - len(np.unique(codes[chosen]))
        noise = float(np.sum(weight[chosen] * centered[chosen] ** 2)) / freedom
        return replace(start, noise=noise)
    likelihood = _Likelihood(
        features[chosen], centered[chosen] / unit, codes[chosen], weight[chosen]
    )
    variances = np.array([start.slope, start.smooth, start.noise]) / unit**2
    slope, smooth, noise = np.clip(np.log(np.maximum(variances, 1e-9)), -4.0, 2.0)
    found = minimize(
        likelihood.negative,
        [slope, smooth, np.log(start.stretch), noise],
        jac=True,
        method="L-BFGS-B",
        bounds=_BOUNDS,
        options={"maxiter": 40},
    )
    slope, smooth, stretch, noise = (np.exp(found.x) * [unit**2, unit**2, 1.0, unit**2]).tolist()
    return replace(start, slope=slope, smooth=smooth, stretch=stretch, noise=noise)


class _Likelihood:
    """The restricted likelihood of residuals, of batches that are padded to equal sizes."""

    def __init__(self, features: Floats, y: Floats, codes: Indices, weight: Floats) -> None:
        self.n_features = max(features.shape[1], 1)
        self.stacks = []
        for index, has_row in padded_batches(codes):
            is_row = has_row.astype(float)
            X = features[index] * is_row[:, :, None]
            products = X @ X.transpose(0, 2, 1)
            norms = np.einsum("bii->bi", products)
            squares = np.maximum(norms[:, :, None] + norms[:, None] - 2.0 * products, 0.0)
            parts = y[index] * is_row, is_row / weight[index], is_row
            self.stacks.append((squares, products, *parts))

    def negative(self, parameters: Floats) -> tuple[float, Floats]:
        """The negative logarithm of the likelihood and prior, and its gradient."""
        mean, std = _PRIOR
        scores = (parameters - mean) / std
        value, gradient = 0.5 * float(np.sum(scores**2)), scores / std
        slope, smooth, stretch, noise = np.exp(parameters)
        for squares, products, y, per_weight, is_row in self.stacks:
            both = is_row[:, :, None] * is_row[:, None]
            correlation, by_square = KERNELS["matern"](squares / stretch**2)
            parts = [
                slope * products / self.n_features,
                smooth * correlation * both,
                smooth * by_square * (-2.0 / stretch**2) * squares * both,
            ]
            diagonal = noise * per_weight
            covariance = parts[0] + parts[1]
            index = np.arange(y.shape[1])
            covariance[:, index, index] += diagonal + 1e-10 + (1.0 - is_row)
            inverse = np.linalg.inv(covariance)
            ones = np.einsum("bij,bj->bi", inverse, is_row)
            total = np.sum(ones * is_row, axis=1)
            value += 0.5 * float(np.sum(np.linalg.slogdet(covariance)[1] + np.log(total)))
            inverse -= ones[:, :, None] * ones[:, None] / total[:, None, None]
            solved = np.einsum("bij,bj->bi", inverse, y)
            value += 0.5 * float(np.sum(solved * y))
            sensitivity = 0.5 * (inverse - solved[:, :, None] * solved[:, None])
            of_noise = np.sum(sensitivity[:, index, index] * diagonal)
            gradient += [*(np.sum(sensitivity * part) for part in parts), of_noise]
        return value, gradient


def padded_batches(codes: Indices) -> Iterator[tuple[Indices, NDArray[np.bool_]]]:
    """Rows of batches of similar sizes, (batch, row) each: indices, and whether there is a row."""
    order = np.argsort(codes, kind="stable")
    rows_of = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    sizes = np.array([1 << (len(rows) - 1).bit_length() for rows in rows_of])
    for size in np.unique(sizes):
        chosen = [rows for rows, own in zip(rows_of, sizes, strict=True) if own == size]
        width = max(map(len, chosen))
        index = np.array([np.pad(rows, (0, width - len(rows)), mode="edge") for rows in chosen])
        yield index, np.arange(width) < np.array([len(rows) for rows in chosen])[:, None]


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
