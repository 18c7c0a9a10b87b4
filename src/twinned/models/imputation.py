"""Imputation of censored target values by a Gaussian process.

Given the known rows, the values of the censored rows have a joint normal distribution. Given their
bounds, too, it is truncated. Its means are computed by expectation propagation, which replaces the
bounds of each row by a normal factor that gives the row the same mean and variance. Far from known
rows the process is uncertain: there, values are expected farther beyond a limit than close to it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.spatial.distance import cdist

from twinned._table import Floats
from twinned.models.censoring import TargetBounds, truncated_moments
from twinned.models.gaussian_process import KERNELS, GaussianProcess, fit_gaussian_process
from twinned.models.relevance import fill_missing

_MAX_KNOWN = 1000  # known rows of the process; of more, a random subset
_LIKELIHOOD_ROWS = 500  # by which its hyperparameters are chosen
_BLOCK = 500  # censored rows whose joint distribution is computed
_LEAST_NOISE = 1e-6  # in units of the amplitude, so that covariances are positive definite
_SWEEPS, _STEP, _TOLERANCE = 50, 0.7, 1e-3  # of expectation propagation
_LEAST_PRECISION = 1e-10  # of a factor, relative to that of the row


def impute_target(
    features: Floats, bounds: TargetBounds, sample_weight: Floats | None = None
) -> Floats:
    """Known values and, for censored rows, expected values given the known ones and the bounds.

    Parameters
    ----------
    features : ndarray of shape (n, n_encoded)
        Numeric features and indicators of categories; a missing value counts as the mean.
    bounds : TargetBounds
        (n,) bounds; at least two rows are known.
    sample_weight : ndarray of shape (n,), default=None
        Positive weights of the rows, which divide the noise variance.

    Returns
    -------
    ndarray of shape (n,), within the bounds

    Examples
    --------
    >>> X = np.linspace(0, 1, 21)[:, None]
    >>> y = 3.0 * X[:, 0]
    >>> is_low = y < 1.0
    >>> bounds = TargetBounds(np.where(is_low, -np.inf, y), np.where(is_low, 1.0, y))
    >>> bool(np.abs(impute_target(X, bounds) - y).max() < 0.2)
    True
    """
    imputed = bounds.limits()
    if not bounds.censored.any():
        return imputed
    filled, _ = fill_missing(features)
    weight = np.ones(len(filled)) if sample_weight is None else sample_weight
    order = np.random.RandomState(0).permutation(len(filled))
    censored = bounds.censored[order]
    known, hidden = order[~censored][:_MAX_KNOWN], order[censored]
    process = fit_gaussian_process(
        filled[known],
        imputed[known],
        sample_weight=weight[known],
        max_rows=_MAX_KNOWN,
        max_likelihood_rows=_LIKELIHOOD_ROWS,
        random_state=0,
    )
    noise = max(process.noise, _LEAST_NOISE) * weight[known].mean() / weight
    covariance = _covariance(process, filled[known], filled[known])
    covariance[np.diag_indices_from(covariance)] += noise[known]
    factor = cho_factor(covariance, lower=True)
    dual = cho_solve(factor, imputed[known] - process.mean[0])
    std = np.sqrt(process.amplitude) * process.scale[0]  # of the process
    for rows in np.array_split(hidden, -(-len(hidden) // _BLOCK)):
        across = _covariance(process, filled[rows], filled[known])
        joint = _covariance(process, filled[rows], filled[rows])
        joint[np.diag_indices_from(joint)] += noise[rows]
        joint -= across @ cho_solve(factor, across.T)
        mean = process.mean[0] + across @ dual
        imputed[rows] = expected_within(mean / std, joint, bounds.take(rows).scaled(std)) * std
    return np.clip(imputed, bounds.lower, bounds.upper)


def _covariance(process: GaussianProcess, first: Floats, second: Floats) -> Floats:
    """(first row, second row): covariance without noise, in units of the amplitude."""
    # relative to a row, so that features far from zero do not lose digits
    scaled = [(side - process.X[0]) / process.length_scales for side in (first, second)]
    return KERNELS[process.kernel](cdist(*scaled, "sqeuclidean"))[0]


def expected_within(mean: Floats, covariance: Floats, bounds: TargetBounds) -> Floats:
    """(row,): approximate means of jointly normal variables, given that all are within bounds.

    Expectation propagation: in each sweep, the bounds of each row are replaced by the normal factor
    with which the row, given all other factors, has its mean and variance within the bounds.

    >>> bounds = TargetBounds(np.array([0.0, -np.inf]), np.array([np.inf, np.inf]))
    >>> expected_within(np.zeros(2), np.array([[1.0, 0.5], [0.5, 1.0]]), bounds).round(3)
    array([0.798, 0.399])
    """
    n = len(mean)
    precision, shift = np.zeros(n), np.zeros(n)  # of the factors; shift is precision times mean
    posterior_mean, variance = mean, np.diag(covariance)
    for _ in range(_SWEEPS):
        rest = np.maximum(1.0 / variance - precision, _LEAST_PRECISION / variance)
        rest_mean = (posterior_mean / variance - shift) / rest
        inside, inside_variance = truncated_moments(rest_mean, rest**-0.5, bounds)
        target = np.maximum(1.0 / inside_variance - rest, 0.0)
        target_shift = inside / inside_variance - rest_mean * rest
        target_shift = np.where(target > 0, target_shift, 0.0)
        change = _STEP * (target - precision)
        precision = precision + change
        shift = shift + _STEP * (target_shift - shift)
        previous = posterior_mean
        posterior_mean, variance = _posterior(mean, covariance, precision, shift)
        if np.max(np.abs(posterior_mean - previous)) < _TOLERANCE:
            break
    return posterior_mean


def _posterior(
    mean: Floats, covariance: Floats, precision: Floats, shift: Floats
) -> tuple[Floats, Floats]:
    """(row,) means and variances of normal variables times normal factors of each row."""
    root = np.sqrt(precision)
    system = root[:, None] * covariance * root
    system[np.diag_indices_from(system)] += 1.0
    factor = cho_factor(system, lower=True)
    explained = cho_solve(factor, root[:, None] * covariance)
    variance = np.diag(covariance) - np.einsum("ij,ji->i", covariance * root, explained)
    residual = shift - precision * mean
    posterior = mean + covariance @ residual - (covariance * root) @ (explained @ residual)
    least: NDArray[np.float64] = np.diag(covariance) * 1e-12
    return posterior, np.maximum(variance, least)
