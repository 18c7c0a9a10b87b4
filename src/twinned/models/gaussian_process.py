"""Exact Gaussian process regression with one length scale per feature, or of counts.

The covariance of two rows is `amplitude · (k(r) + noise · [same row] / weight)`, where r is their
distance after each feature is divided by its length scale. The amplitude and the constant mean
have closed-form optima; the length scales and the noise maximize the likelihood by L-BFGS-B, with
gradients that need O(n²) memory for any number of features. The Tanimoto kernel of counts, such as
those of the fragments of molecules, has no length scales, only noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, lapack, solve_triangular
from scipy.optimize import minimize, minimize_scalar
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances
from sklearn.utils import check_random_state

from twinned.exceptions import UnsuitableDataError
from twinned.rows.kernels import KERNELS
from twinned.rows.neighbors import LearnedMetric
from twinned.rows.scaling import StandardScaling, merge_equal_rows
from twinned.rows.schema import Floats
from twinned.rows.validation import check_choice, check_integer

# Bounds of the length scales, in standard deviations of a feature, and of the noise variance in
# units of the amplitude. Below the lower bound of the noise, the factorization is rounding error.
_LENGTH_BOUNDS = (1e-2, 1e6)
_NOISE_BOUNDS = (1e-12, 1e3)
_COUNT_NOISE_BOUNDS = (1e-4, 1e2)  # less noise hardly changes a prediction
_COARSE_ROWS = 250  # rows on which several starts are compared
_COARSE_STEPS, _FINE_STEPS = 60, 30
_TOLERANCE = 1e-5  # of the likelihood per row: a tenth of it takes a third more steps
_ROWS_PER_FEATURE = 15  # fewer do not determine the length scales
# Of a table with more features and so few rows, the likelihood has a maximum that fits the rows by
# a few features. A few steps from equal length scales predict other rows better, in a fifth of the
# time.
_NARROW_FEATURES, _WIDE_STEPS = 20, 15
_BLOCK_ELEMENTS = 4_000_000  # elements of the covariance of a block of queries
_DECIMALS = 9  # of standardized features in the search


TANIMOTO = "tanimoto"  # of counts, which are not standardized


def tanimoto_similarity(first: Floats, second: Floats) -> Floats:
    """(first row, second row): sum of the smaller counts divided by that of the larger ones.

    Rows without any count are equal.

    >>> tanimoto_similarity(np.array([[2.0, 1.0, 0.0]]), np.array([[1.0, 1.0, 2.0]]))
    array([[0.4]])
    """
    total = first.sum(axis=1)[:, None] + second.sum(axis=1)
    # molecules have few of all fragments; |a − b| is the larger count less the smaller one
    distance = manhattan_distances(csr_array(first), csr_array(second))
    return np.divide(total - distance, total + distance, out=np.ones_like(total), where=total > 0)


def kernel_of_rows(kernel: str, first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """(first row, second row): correlation of scaled rows, and its derivative by r².

    That of counts has no derivative.
    """
    if kernel == TANIMOTO:
        return tanimoto_similarity(first, second), np.zeros(0)
    if first.shape[1] > _NARROW_FEATURES:  # by a matrix product, ten times as fast for 1,000
        return KERNELS[kernel](euclidean_distances(first, second, squared=True))
    return KERNELS[kernel](cdist(first, second, "sqeuclidean"))


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A fitted Gaussian process, as plain arrays.

    Attributes
    ----------
    kernel : {"rbf", "matern", "tanimoto"}
        Squared exponential, Matérn 5/2, or the similarity of counts.
    length_scales : ndarray of shape (n_features,)
        In units of X; infinite for a constant feature, and 1 for counts.
    amplitude : float
        Variance of the process, in units of the variance of y.
    noise : float
        Noise variance of a row of weight 1, in units of `amplitude`.
    X : ndarray of shape (n_rows, n_features)
        Rows of the predictive equations.
    weight : ndarray of shape (n_rows,)
        Their weights, which divide the noise variance.
    target : ndarray of shape (n_rows, n_outputs)
        Their standardized target values, less the constant mean.
    dual : ndarray of shape (n_rows, n_outputs)
        Solution of the linear equations, the coefficients of the mean.
    mean, scale : ndarray of shape (n_outputs,)
        The constant mean, in units of y, and the standard deviation of y.
    log_marginal_likelihood_ : float
        Of the standardized target values of the rows, summed over outputs.
    single_output : bool
        Whether y was one-dimensional.
    """

    kernel: str
    length_scales: Floats
    amplitude: float
    noise: float
    X: Floats
    weight: Floats
    target: Floats
    dual: Floats
    mean: Floats
    scale: Floats
    log_marginal_likelihood_: float
    single_output: bool

    def predict(self, X: Floats, return_std: bool = False) -> Any:
        """Mean, and standard deviation of a new observation of weight 1 with `return_std`.

        Both are (n,), or (n, n_outputs) where y has several.
        """
        X = np.asarray(X, dtype=np.float64)
        mean = np.empty((len(X), len(self.scale)))
        std = np.empty_like(mean)
        step = max(1, _BLOCK_ELEMENTS // len(self.X))
        for block in (slice(start, start + step) for start in range(0, len(X), step)):
            covariance = self.correlation(X[block], self.X)
            mean[block] = covariance @ self.dual * self.scale + self.mean
            if return_std:
                explained = solve_triangular(self._factor, covariance.T, lower=True)
                variance = 1.0 + self.noise - np.einsum("ij,ij->j", explained, explained)
                # rounding may leave less than the noise, which is certain
                variance = self.amplitude * np.maximum(variance, self.noise)
                std[block] = np.sqrt(variance)[:, None] * self.scale
        return (self._squeeze(mean), self._squeeze(std)) if return_std else self._squeeze(mean)

    def root_mean_square_slopes(self) -> Floats:
        """(n_features,) slopes of the mean at the rows, of standardized y per unit of X."""
        rows = self._scaled(self.X)
        _, slope = kernel_of_rows(self.kernel, rows, rows)
        squares = np.zeros(self.X.shape[1])
        for dual in self.dual.T:
            weights = slope * dual
            gradient = weights.sum(axis=1)[:, None] * rows - weights @ rows
            squares += np.mean((2.0 * gradient / self.length_scales) ** 2, axis=0)
        return np.sqrt(squares / self.dual.shape[1])

    def correlation(self, first: Floats, second: Floats) -> Floats:
        """(first row, second row): correlation of the process, without noise."""
        if self.kernel != TANIMOTO:
            first, second = self._scaled(first), self._scaled(second)
        return kernel_of_rows(self.kernel, first, second)[0]

    @cached_property
    def _factor(self) -> Floats:
        """The lower Cholesky factor, computed again when it is first needed: it is large."""
        return self.factorize(self.X, self.noise / self.weight)

    def factorize(self, rows: Floats, noise: Floats) -> Floats:
        """The lower Cholesky factor of the correlation of rows with this noise, (row,)."""
        return factorize(self.correlation(rows, rows), noise)

    def _scaled(self, X: Floats) -> Floats:
        # relative to a row, so that features far from zero do not lose digits
        return (X - self.X[0]) / self.length_scales

    def _squeeze(self, values: Floats) -> Floats:
        return values[:, 0] if self.single_output else values

    def __getstate__(self) -> dict[str, object]:
        return {name: vars(self)[name] for name in self.__dataclass_fields__}


def fit_gaussian_process(
    X: Floats,
    y: Floats,
    *,
    kernel: str = "matern",
    sample_weight: Floats | None = None,
    max_rows: int = 2000,
    max_likelihood_rows: int = 1000,
    similar: GaussianProcess | LearnedMetric | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> GaussianProcess:
    """Fit a Gaussian process by maximum marginal likelihood.

    Parameters
    ----------
    X : array of shape (n, n_features)
        Numeric features without missing values; they are standardized.
    y : array of shape (n,) or (n, n_outputs)
        Target values; each output is standardized. All share the hyperparameters.
    kernel : {"matern", "rbf", "tanimoto"}, default="matern"
        Matérn 5/2 or squared exponential; or, for features that are counts, their similarity.
    sample_weight : array of shape (n,), default=None
        Divides the noise variance of a row; only ratios count. Equal rows (in X and y) are merged
        into one with the sum of their weights.
    max_rows : int, default=2000
        Number of rows in the predictive equations. If there are more, a random subset is drawn.
    max_likelihood_rows : int, default=1000
        Number of rows by which the hyperparameters are chosen, a subset of those.
    similar : GaussianProcess or LearnedMetric, default=None
        Of similar rows, from whose length scales and noise the search starts. None tries several
        starts, and so do fewer than 15 rows per feature: their likelihood has many optima, and the
        one of similar rows may fit rows that are held out here. Of more than 20 features with so
        few rows, a few steps from equal length scales are taken.
    random_state : int, RandomState or None, default=None
        Seed of the subsets.

    Returns
    -------
    GaussianProcess

    Examples
    --------
    >>> rng = np.random.RandomState(0)
    >>> X = rng.uniform(-2, 2, (60, 2))
    >>> process = fit_gaussian_process(X, np.sin(2 * X[:, 0]))  # the second feature is irrelevant
    >>> bool(process.length_scales[1] > 10 * process.length_scales[0])
    True
    >>> float(process.predict(np.array([[0.5, 0.0]]))[0].round(3))
    0.841
    """
    check_choice("kernel", kernel, [*KERNELS, TANIMOTO])
    max_rows = check_integer("max_rows", max_rows)
    max_likelihood_rows = check_integer("max_likelihood_rows", max_likelihood_rows)
    X, y = _check_rows(X, y, kernel)
    merged, weight = merge_equal_rows(X, y, sample_weight)
    order = check_random_state(random_state).permutation(len(merged))[:max_rows]
    merged, weight = merged[order], weight[order] / weight[order].mean()
    rows, outputs = X[merged], y[merged].reshape(len(merged), -1)
    scaling = StandardScaling.fit(rows, weight)
    if kernel == TANIMOTO:
        scaling = StandardScaling(np.zeros(X.shape[1]), np.ones(X.shape[1]))
    target_scaling = StandardScaling.fit(outputs, weight)
    spread = scaling.scale[scaling.varying]
    standardized = scaling.transform(rows)[:, scaling.varying]
    target = target_scaling.transform(outputs)
    # rounded, so that the search does not depend on the units of the features
    rounded = MarginalLikelihood(kernel, standardized.round(_DECIMALS), target, weight)
    start = _similar_start(similar, scaling, len(rows))
    log_parameters = _maximize(rounded, max_likelihood_rows, start)
    exact = MarginalLikelihood(kernel, standardized, target, weight)
    value, amplitude, constant, dual = exact.solve(log_parameters)
    length_scales = np.full(X.shape[1], np.inf)
    length_scales[scaling.varying] = spread * np.exp(log_parameters[:-1])
    y_scale = np.where(target_scaling.varying, target_scaling.scale, 1.0)
    return GaussianProcess(
        kernel=kernel,
        length_scales=length_scales,
        amplitude=amplitude,
        noise=float(np.exp(log_parameters[-1])),
        X=rows,
        weight=weight,
        target=target - constant,
        dual=dual,
        mean=target_scaling.center + constant * y_scale,
        scale=y_scale,
        log_marginal_likelihood_=value,
        single_output=y.ndim == 1,
    )


def _check_rows(X: Floats, y: Floats, kernel: str) -> tuple[Floats, Floats]:
    X = np.asarray(X, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise ValueError("X and y of a Gaussian process must be finite, without missing values.")
    if kernel == TANIMOTO and (X < 0).any():
        raise UnsuitableDataError("kernel='tanimoto' needs counts, and X has negative values.")
    return X, y


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

    def solve(self, log_parameters: Floats) -> tuple[float, float, Floats, Floats]:
        """The log likelihood, amplitude, (output,) mean and (row, output) dual coefficients."""
        scaled = self.X / np.exp(log_parameters[:-1])
        correlation, _ = kernel_of_rows(self.kernel, scaled, scaled)
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


def _similar_start(
    similar: GaussianProcess | LearnedMetric | None, scaling: StandardScaling, n_rows: int
) -> Floats | None:
    """Logarithms of the length scales and noise of similar rows; None with few rows per feature."""
    varying = scaling.varying
    if similar is None or n_rows < _ROWS_PER_FEATURE * np.count_nonzero(varying):
        return None
    return np.log(np.append(similar.length_scales[varying] / scaling.scale[varying], similar.noise))


def _maximize(
    likelihood: MarginalLikelihood, max_rows: int, known_start: Floats | None = None
) -> Floats:
    """Logarithms of the best length scales and noise: several starts on few rows, then more rows.

    From a start that is known, a few steps on all rows are enough.
    Two starts have little noise, and one of them keeps it for its first steps: a function of
    interacting features easily looks like noise, from which the search does not return.
    """
    if known_start is not None:
        return _descend(likelihood.first_rows(max_rows), known_start, _FINE_STEPS)[0]
    n_rows, n_features = likelihood.X.shape
    n_rows = min(n_rows, max_rows)
    if likelihood.kernel == TANIMOTO:
        return np.append(np.zeros(n_features), _best_noise(likelihood.first_rows(n_rows)))
    root = 0.5 * np.log(n_features or 1)  # the typical distance of two standardized rows
    if n_rows < 2 or not n_features:
        return np.append(np.full(n_features, root), np.log(1e-2))

    def start(log_length: float, noise: float) -> Floats:
        return np.append(np.full(n_features, log_length), np.log(noise))

    if n_features > _NARROW_FEATURES and n_rows < _ROWS_PER_FEATURE * n_features:
        return _descend(likelihood.first_rows(n_rows), start(root, 0.1), _WIDE_STEPS)[0]
    coarse = likelihood.first_rows(min(n_rows, _COARSE_ROWS))
    with_little_noise = _descend(coarse, start(root, 1e-4), _COARSE_STEPS // 2, (1e-6, 1e-3))[0]
    starts = [start(root, 0.1), start(root + 1.0, 1e-4), with_little_noise]
    # the order of the starts hardly changes after the first steps
    results = [_descend(coarse, point, _COARSE_STEPS // 6) for point in starts]
    best = _descend(coarse, min(results, key=lambda result: result[1])[0], _COARSE_STEPS)[0]
    if len(coarse.X) < n_rows:
        best = _descend(likelihood.first_rows(n_rows), best, _FINE_STEPS)[0]
    return best


def _best_noise(likelihood: MarginalLikelihood) -> float:
    """The logarithm of the noise of largest likelihood, of a kernel without length scales."""
    correlation, _ = kernel_of_rows(likelihood.kernel, likelihood.X, likelihood.X)

    def negative(log_noise: float) -> float:
        return -likelihood.of_correlation(correlation, log_noise)[0]

    search = minimize_scalar(
        negative, bounds=np.log(_COUNT_NOISE_BOUNDS), method="bounded", options={"xatol": 0.05}
    )
    return float(search.x)


def _descend(
    likelihood: MarginalLikelihood,
    start: Floats,
    steps: int,
    noise_bounds: tuple[float, float] = _NOISE_BOUNDS,
) -> tuple[Floats, float]:
    """The end point of L-BFGS-B and the negative likelihood per row there."""
    n_rows, n_lengths = len(likelihood.X), len(start) - 1

    def per_row(log_parameters: Floats) -> tuple[float, Floats]:
        # else the first steps, which have the size of the gradient, would be far too long
        value, gradient = likelihood.negative(log_parameters)
        return value / n_rows, gradient / n_rows

    bounds = [tuple(np.log(_LENGTH_BOUNDS))] * n_lengths + [tuple(np.log(noise_bounds))]
    options = {"maxiter": steps, "ftol": _TOLERANCE}
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
