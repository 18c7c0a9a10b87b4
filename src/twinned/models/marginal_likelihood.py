"""The marginal likelihood of a Gaussian process, and the search for its maximum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.linalg import cho_solve, lapack
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics.pairwise import euclidean_distances

from twinned.rows.neighbors import (
    KERNELS,
    NARROW_FEATURES,
    LearnedMetric,
    kernel_of_rows,
    mixed_correlation,
)
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats

if TYPE_CHECKING:
    from twinned.models.gaussian_process import GaussianProcess

# Bounds of the length scales, in standard deviations of a feature, and of the noise variance in
# units of the amplitude. Below the lower bound of the noise, the factorization is rounding error.
_LENGTH_BOUNDS = (1e-2, 1e6)
_NOISE_BOUNDS = (1e-12, 1e3)
# Of the logarithm of the noise with counts, where less hardly changes a prediction; of the logit of
# the share of their similarity; and of the logarithm of the length scale of other features.
_COUNT_BOUNDS = (-9.0, 4.5), (-6.0, 6.0), (-3.0, 8.0)
_COUNT_ROWS, _COUNT_STEPS = 500, 25  # of the search for these three
_COARSE_ROWS = 250  # rows on which several starts are compared
_START_STEPS = 30  # of the start that keeps little noise; others are compared after a third
# A search ends where a step gains less than this per row, mostly in 20 to 80 steps. With ten times
# as much, it may end far from the maximum where there is little noise. From the maximum of similar
# rows, that is enough.
_TOLERANCE, _KNOWN_TOLERANCE, _MOST_STEPS = 1e-6, 1e-5, 300
_ROWS_PER_FEATURE = 15  # fewer do not determine the length scales
# Of a table with more features and so few rows, the likelihood has a maximum that fits the rows by
# a few features. A few steps from equal length scales predict other rows better, in a fifth of the
# time.
_WIDE_STEPS = 15


@dataclass(frozen=True, eq=False)
class MarginalLikelihood:
    """Log marginal likelihood with the amplitude and the constant mean at their optima.

    Its parameters are the logarithms of the length scales and of the noise. `X` is (row, feature),
    `y` (row, output) and `weight` (row,).
    """

    kernel: str
    X: Floats
    y: Floats
    weight: Floats

    def first_rows(self, n: int) -> MarginalLikelihood:
        """The likelihood of the first n rows, which are in random order."""
        return MarginalLikelihood(self.kernel, self.X[:n], self.y[:n], self.weight[:n])

    def solve(
        self, log_parameters: Floats, similarity: Floats | None = None, share: float = 0.0
    ) -> tuple[float, float, Floats, Floats]:
        """The log likelihood, amplitude, (output,) mean and (row, output) dual coefficients.

        `similarity` (row, row) of counts has this share in the correlation.
        """
        scaled = self.X / np.exp(log_parameters[:-1])
        correlation, _ = kernel_of_rows(self.kernel, scaled, scaled)
        correlation = mixed_correlation(similarity, correlation, share)
        return self.of_correlation(correlation, log_parameters[-1])

    def of_correlation(
        self, correlation: Floats, log_noise: float
    ) -> tuple[float, float, Floats, Floats]:
        """As `solve`, of the (row, row) correlation of the rows, whose diagonal is changed."""
        return self._solve(factorize(correlation, np.exp(log_noise) / self.weight))

    def _solve(self, factor: Floats) -> tuple[float, float, Floats, Floats]:
        n, n_outputs = self.y.shape
        sums = cho_solve((factor, True), np.ones(n))
        mean = sums @ self.y / sums.sum()
        residual = self.y - mean
        dual = cho_solve((factor, True), residual)
        # a constant y has the amplitude 0, whose logarithm must stay finite
        amplitude = max(float(np.sum(residual * dual)) / (n * n_outputs), 1e-30)
        determinant = 2.0 * float(np.log(np.diag(factor)).sum())
        value = -0.5 * n_outputs * (n * np.log(2 * np.pi * amplitude) + n + determinant)
        return float(value), amplitude, mean, dual

    def negative(self, log_parameters: Floats) -> tuple[float, Floats]:
        """The negative log likelihood and its gradient."""
        lengths, noise = np.exp(log_parameters[:-1]), np.exp(log_parameters[-1])
        scaled = self.X / lengths
        correlation, slope = kernel_of_rows(self.kernel, scaled, scaled)
        factor = factorize(correlation, noise / self.weight)
        value, amplitude, _, dual = self._solve(factor)
        inverse = lapack.dpotri(factor, lower=True, overwrite_c=True)[0]  # its lower triangle
        inverse *= self.y.shape[1]
        # S, the derivative of the likelihood with respect to each element of the covariance
        diagonal = np.sum(dual**2, axis=1) / amplitude - np.diag(inverse)
        noise_gradient = 0.5 * noise * float(np.sum(diagonal / self.weight))
        # Σ_i>j S_ij (z_i − z_j)² for each feature, without an (n, n, feature) array: the halves of
        # the symmetric part of S add up to it, and the diagonal counts for nothing
        sensitivity = dual @ (dual.T / (2.0 * amplitude))
        sensitivity -= inverse
        sensitivity *= slope
        squares = (sensitivity.sum(axis=0) + sensitivity.sum(axis=1)) @ scaled**2
        products = np.einsum("ij,ij->j", scaled, sensitivity @ scaled)
        return -value, np.append(2.0 * squares - 4.0 * products, -noise_gradient)


def similar_start(
    similar: GaussianProcess | LearnedMetric | None, scaling: StandardScaling, n_rows: int
) -> Floats | None:
    """Logarithms of the length scales and noise of similar rows; None with few rows per feature."""
    varying = scaling.varying
    if similar is None or n_rows < _ROWS_PER_FEATURE * np.count_nonzero(varying):
        return None
    return np.log(np.append(similar.length_scales[varying] / scaling.scale[varying], similar.noise))


def maximize(
    likelihood: MarginalLikelihood, max_rows: int, known_start: Floats | None = None
) -> Floats:
    """Logarithms of the best length scales and noise: several starts on few rows, then more rows.

    From a start that is known, a few steps on all rows are enough.
    Two starts have little noise, and one of them keeps it for its first steps: a function of
    interacting features easily looks like noise, from which the search does not return.
    """
    if known_start is not None:
        rows = likelihood.first_rows(max_rows)
        return _descend(rows, known_start, _MOST_STEPS, tolerance=_KNOWN_TOLERANCE)[0]
    n_rows, n_features = likelihood.X.shape
    n_rows = min(n_rows, max_rows)
    root = 0.5 * np.log(n_features or 1)  # the typical distance of two standardized rows
    if n_rows < 2 or not n_features:
        return np.append(np.full(n_features, root), np.log(1e-2))

    def start(log_length: float, noise: float) -> Floats:
        return np.append(np.full(n_features, log_length), np.log(noise))

    if n_features > NARROW_FEATURES and n_rows < _ROWS_PER_FEATURE * n_features:
        return _descend(likelihood.first_rows(n_rows), start(root, 0.1), _WIDE_STEPS)[0]
    coarse = likelihood.first_rows(min(n_rows, _COARSE_ROWS))
    with_little_noise = _descend(coarse, start(root, 1e-4), _START_STEPS, (1e-6, 1e-3))[0]
    starts = [start(root, 0.1), start(root + 1.0, 1e-4), with_little_noise]
    # the order of the starts hardly changes after the first steps
    results = [_descend(coarse, point, _START_STEPS // 3) for point in starts]
    best = _descend(coarse, min(results, key=lambda result: result[1])[0], _MOST_STEPS)[0]
    if len(coarse.X) < n_rows:
        best = _descend(likelihood.first_rows(n_rows), best, _MOST_STEPS)[0]
    return best


def maximize_with_counts(
    likelihood: MarginalLikelihood, similarity: Floats, max_rows: int
) -> tuple[Floats, float]:
    """Logarithms of the best length scales, all equal, and of the noise; and the share of counts.

    `similarity` (row, row) is that of the counts. Three parameters need no more than 500 rows.
    """
    n_rows, n_features = min(len(similarity), max_rows, _COUNT_ROWS), likelihood.X.shape[1]
    likelihood, similarity = likelihood.first_rows(n_rows), similarity[:n_rows, :n_rows]
    squares = euclidean_distances(likelihood.X, squared=True) if n_features else None

    def negative(parameters: Floats) -> float:
        correlation = similarity.copy()
        if squares is not None:
            others, _ = KERNELS[likelihood.kernel](squares * np.exp(-2.0 * parameters[2]))
            correlation = mixed_correlation(similarity, others, expit(parameters[1]))
        return -likelihood.of_correlation(correlation, parameters[0])[0] / n_rows

    start = np.array([-2.0, 0.0, 0.5 * np.log(max(n_features, 1))])[: 3 if n_features else 1]
    options = {"maxiter": _COUNT_STEPS, "ftol": _KNOWN_TOLERANCE}
    bounds = _COUNT_BOUNDS[: len(start)]
    best = minimize(negative, start, method="L-BFGS-B", bounds=bounds, options=options).x
    log_noise, share = best[0], float(expit(best[1])) if n_features else 1.0
    return np.append(np.full(n_features, best[-1]), log_noise), share


def _descend(
    likelihood: MarginalLikelihood,
    start: Floats,
    steps: int,
    noise_bounds: tuple[float, float] = _NOISE_BOUNDS,
    tolerance: float = _TOLERANCE,
) -> tuple[Floats, float]:
    """The end point of L-BFGS-B and the negative likelihood per row there."""
    n_rows, n_lengths = len(likelihood.X), len(start) - 1

    def per_row(log_parameters: Floats) -> tuple[float, Floats]:
        # else the first steps, which have the size of the gradient, would be far too long
        value, gradient = likelihood.negative(log_parameters)
        return value / n_rows, gradient / n_rows

    bounds = [tuple(np.log(_LENGTH_BOUNDS))] * n_lengths + [tuple(np.log(noise_bounds))]
    options = {"maxiter": steps, "ftol": tolerance}
    end = minimize(per_row, start, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return end.x, float(end.fun)


def factorize(correlation: Floats, diagonal: Floats) -> Floats:
    """Lower Cholesky factor of the correlation with the noise added to its diagonal, in place.

    Where rounding makes it indefinite, the least power of ten from 1e-12 that helps is added.
    """
    for jitter in (0.0, *(10.0**power for power in range(-12, 1))):
        np.fill_diagonal(correlation, 1.0 + diagonal + jitter)
        factor, failed = lapack.dpotrf(correlation, lower=True, clean=True)
        if not failed:
            return factor
    raise np.linalg.LinAlgError("The covariance of the rows is not positive definite.")
