"""Exact Gaussian process regression with one length scale per feature, and of counts.

The covariance of two rows is `amplitude · (k(r) + noise · [same row] / weight)`, where r is their
distance after each feature is divided by its length scale. The amplitude and the constant mean
have closed-form optima; the length scales and the noise maximize the likelihood by L-BFGS-B, with
gradients that need O(n²) memory for any number of features.

Counts, such as those of the fragments of molecules, have the Tanimoto kernel. The correlation is
then the weighted mean of their similarity and of the kernel of the other features, which have one
common length scale; the likelihood chooses it, the weight and the noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import cho_solve, lapack, solve_triangular
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state

from twinned.exceptions import UnsuitableDataError
from twinned.rows.kernels import (
    KERNELS,
    NARROW_FEATURES,
    kernel_of_rows,
    mixed_correlation,
    tanimoto_similarity,
)
from twinned.rows.neighbors import LearnedMetric
from twinned.rows.scaling import StandardScaling, merge_equal_rows
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_choice, check_integer

# Bounds of the length scales, in standard deviations of a feature, and of the noise variance in
# units of the amplitude. Below the lower bound of the noise, the factorization is rounding error.
_LENGTH_BOUNDS = (1e-2, 1e6)
_NOISE_BOUNDS = (1e-12, 1e3)
# Of the logarithm of the noise with counts, where less hardly changes a prediction; of the logit of
# the share of their similarity; and of the logarithm of the length scale of other features.
_COUNT_BOUNDS = (-9.0, 4.5), (-6.0, 6.0), (-3.0, 8.0)
_COUNT_ROWS, _COUNT_STEPS = 500, 25  # of the search for these three
_COARSE_ROWS = 250  # rows on which several starts are compared
_COARSE_STEPS, _FINE_STEPS = 60, 30
_TOLERANCE = 1e-5  # of the likelihood per row: a tenth of it takes a third more steps
_ROWS_PER_FEATURE = 15  # fewer do not determine the length scales
# Of a table with more features and so few rows, the likelihood has a maximum that fits the rows by
# a few features. A few steps from equal length scales predict other rows better, in a fifth of the
# time.
_WIDE_STEPS = 15
_BLOCK_ELEMENTS = 4_000_000  # elements of the covariance of a block of queries
_DECIMALS = 9  # of standardized features in the search


@dataclass(frozen=True, eq=False)
class GaussianProcess:
    """A fitted Gaussian process, as plain arrays.

    Attributes
    ----------
    kernel : {"rbf", "matern"}
        Squared exponential or Matérn 5/2.
    length_scales : ndarray of shape (n_features,)
        In units of X; infinite for a constant feature and for counts.
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
    n_counts, count_share : int, float
        Number of leading features that are counts, and the share of their similarity.
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
    n_counts: int = 0
    count_share: float = 0.0

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
        n = self.n_counts
        scaled = (self._scaled(rows)[:, n:] for rows in (first, second))
        correlation = kernel_of_rows(self.kernel, *scaled)[0]
        similarity = tanimoto_similarity(first[:, :n], second[:, :n]) if n else None
        return mixed_correlation(similarity, correlation, self.count_share)

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
    n_counts: int = 0,
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
    kernel : {"matern", "rbf"}, default="matern"
        Matérn 5/2 or squared exponential.
    n_counts : int, default=0
        Number of leading features that are counts, which have the Tanimoto kernel. The others have
        one length scale then, and are not standardized.
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
    max_likelihood_rows = check_integer("max_likelihood_rows", max_likelihood_rows)
    X, y = _check_rows(X, y, kernel, n_counts)
    drawn, weight = _draw_rows(X, y, sample_weight, max_rows, random_state)
    rows, outputs = X[drawn], y[drawn].reshape(len(drawn), -1)
    scaling = _scale_rows(rows, weight, n_counts)
    target_scaling = StandardScaling.fit(outputs, weight)
    varying = scaling.varying
    standardized = scaling.transform(rows)[:, varying]
    target = target_scaling.transform(outputs)
    # rounded, so that the search does not depend on the units of the features
    rounded = MarginalLikelihood(kernel, standardized.round(_DECIMALS), target, weight)
    exact = MarginalLikelihood(kernel, standardized, target, weight)
    if n_counts:
        similarity = tanimoto_similarity(rows[:, :n_counts], rows[:, :n_counts])
        log_parameters, share = _maximize_with_counts(rounded, similarity, max_likelihood_rows)
    else:
        start = _similar_start(similar, scaling, len(rows))
        similarity, share = None, 0.0
        log_parameters = _maximize(rounded, max_likelihood_rows, start)
    value, amplitude, constant, dual = exact.solve(log_parameters, similarity, share)
    length_scales = np.full(X.shape[1], np.inf)
    length_scales[varying] = scaling.scale[varying] * np.exp(log_parameters[:-1])
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
        n_counts=n_counts,
        count_share=share,
    )


def _draw_rows(
    X: Floats, y: Floats, sample_weight: Floats | None, max_rows: int, random_state: object
) -> tuple[Indices, Floats]:
    """At most so many distinct rows in random order, and their weights, of mean 1."""
    merged, weight = merge_equal_rows(X, y, sample_weight)
    order = check_random_state(random_state).permutation(len(merged))
    order = order[: check_integer("max_rows", max_rows)]
    return merged[order], weight[order] / weight[order].mean()


def _scale_rows(rows: Floats, weight: Floats, n_counts: int) -> StandardScaling:
    """The scaling of rows; features beside counts have one length scale, and stay as they are."""
    scaling = StandardScaling.fit(rows, weight)
    if not n_counts:
        return scaling
    others = np.arange(rows.shape[1]) >= n_counts
    return StandardScaling(scaling.center, np.where(scaling.varying & others, 1.0, 0.0))


def _check_rows(X: Floats, y: Floats, kernel: str, n_counts: int) -> tuple[Floats, Floats]:
    check_choice("kernel", kernel, [*KERNELS])
    check_integer("n_counts", n_counts, 0)
    X = np.asarray(X, dtype=np.float64)
    y = np.asarray(y, dtype=np.float64)
    if not (np.isfinite(X).all() and np.isfinite(y).all()):
        raise ValueError("X and y of a Gaussian process must be finite, without missing values.")
    if n_counts > X.shape[1]:
        raise ValueError(f"n_counts={n_counts} exceeds the {X.shape[1]} features of X.")
    if (X[:, :n_counts] < 0).any():
        raise UnsuitableDataError(f"n_counts={n_counts} needs counts, and X has negative values.")
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
    root = 0.5 * np.log(n_features or 1)  # the typical distance of two standardized rows
    if n_rows < 2 or not n_features:
        return np.append(np.full(n_features, root), np.log(1e-2))

    def start(log_length: float, noise: float) -> Floats:
        return np.append(np.full(n_features, log_length), np.log(noise))

    if n_features > NARROW_FEATURES and n_rows < _ROWS_PER_FEATURE * n_features:
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


def _maximize_with_counts(
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
    options = {"maxiter": _COUNT_STEPS, "ftol": _TOLERANCE}
    bounds = _COUNT_BOUNDS[: len(start)]
    best = minimize(negative, start, method="L-BFGS-B", bounds=bounds, options=options).x
    log_noise, share = best[0], float(expit(best[1])) if n_features else 1.0
    return np.append(np.full(n_features, best[-1]), log_noise), share


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
