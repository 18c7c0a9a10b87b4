"""Exact Gaussian process regression with one length scale per feature, and of counts.

The covariance of two rows is `amplitude · (k(r) + noise · [same row] / weight)`, where r is their
distance after each feature is divided by its length scale. The amplitude and the constant mean
have closed-form optima; the length scales and the noise maximize the likelihood by L-BFGS-B, with
gradients that need O(n²) memory for any number of features.

Counts, such as those of the fragments of molecules, have the Tanimoto kernel. The correlation is
then the weighted mean of their similarity and of the kernel of the other features, which have one
common length scale; the likelihood chooses it, the weight and the noise.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.linalg import solve_triangular
from sklearn.utils import check_random_state

from twinned.exceptions import UnsuitableDataError
from twinned.models.marginal_likelihood import (
    MarginalLikelihood,
    factorize,
    maximize,
    maximize_with_counts,
    similar_start,
)
from twinned.rows.neighbors import (
    KERNELS,
    LearnedMetric,
    kernel_of_rows,
    mixed_correlation,
    tanimoto_similarity,
)
from twinned.rows.scaling import StandardScaling, merge_equal_rows
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_choice, check_integer

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
        log_parameters, share = maximize_with_counts(rounded, similarity, max_likelihood_rows)
    else:
        start = similar_start(similar, scaling, len(rows))
        similarity, share = None, 0.0
        log_parameters = maximize(rounded, max_likelihood_rows, start)
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
