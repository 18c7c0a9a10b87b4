"""Imputation of censored target values by a Gaussian process.

Given the known rows, the values of the censored rows have a joint normal distribution. Given their
bounds, too, it is truncated. Its means are computed by expectation propagation, which replaces the
bounds of each row by a normal factor that gives the row the same mean and variance. Far from known
rows the process is uncertain: there, values are expected farther beyond a limit than close to it.
"""

from __future__ import annotations

from typing import NamedTuple

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
_TRIAL_ROWS, _LEAST_TRIAL = 300, 5  # known rows of a trial, and those treated as censored
_MAX_TRIAL_SHARE = 0.25  # of them that are treated as censored, on each side
_CLEARLY_LOWER = 0.7  # ratio of errors
_LEAST_NOISE = 1e-6  # in units of the amplitude, so that covariances are positive definite
_SWEEPS, _STEP, _TOLERANCE = 50, 0.7, 1e-3  # of expectation propagation
_LEAST_PRECISION = 1e-10  # of a factor, relative to that of the row


class Imputation(NamedTuple):
    """Known and imputed values, and how they were imputed."""

    y: Floats  # (row,)
    processes: dict[bool, GaussianProcess]  # of y (False) and of log y (True), where they are used
    uses_log: tuple[bool, bool] = (False, False)  # below limits and above


class _Rows(NamedTuple):
    """Rows of positive weight, without missing values."""

    features: Floats  # (row, feature)
    bounds: TargetBounds
    weight: Floats

    def take(self, rows: NDArray[np.intp]) -> _Rows:
        return _Rows(self.features[rows], self.bounds.take(rows), self.weight[rows])


def impute_target(
    features: Floats,
    bounds: TargetBounds,
    sample_weight: Floats | None = None,
    similar: Imputation | None = None,
) -> Imputation:
    """Known values and, for censored rows, expected values given the known ones and the bounds.

    The process is that of y or, where y is positive, of log y. Which one imputes the values below
    limits, and which those above, is chosen by known rows: the smallest or largest of them are
    imputed as if they were censored, too.

    Parameters
    ----------
    features : ndarray of shape (n, n_encoded)
        Numeric features and indicators of categories; a missing value counts as the mean.
    bounds : TargetBounds
        (n,) bounds; at least two rows are known.
    sample_weight : ndarray of shape (n,), default=None
        Positive weights of the rows, which divide the noise variance.
    similar : Imputation, default=None
        Of nearly the same rows, from which the search for the process starts.

    Returns
    -------
    Imputation
        With `y` of shape (n,), which is within the bounds.

    Examples
    --------
    >>> X = np.linspace(0, 1, 61)[:, None]
    >>> y = 3.0 * X[:, 0]
    >>> is_low = y < 1.0
    >>> bounds = TargetBounds(np.where(is_low, -np.inf, y), np.where(is_low, 1.0, y))
    >>> bool(np.abs(impute_target(X, bounds).y - y).max() < 0.2)
    True
    """
    imputed = bounds.limits()
    if not bounds.censored.any():
        return Imputation(imputed, {})
    weight = np.ones(len(features)) if sample_weight is None else sample_weight
    rows = _Rows(fill_missing(features)[0], bounds, weight)
    sides = _choose_process(rows) if similar is None else _same_process(rows, similar)
    processes = {}
    for logarithm, beyond in sides.items():
        if beyond.any():
            start = None if similar is None else similar.processes.get(logarithm)
            values, processes[logarithm] = _expected_values(rows, logarithm, start)
            imputed[beyond] = values[beyond]
    uses_log = [bool(np.any(sides[True] & side)) for side in rows.bounds.beyond]
    return Imputation(imputed, processes, (uses_log[0], uses_log[1]))


def _same_process(rows: _Rows, similar: Imputation) -> dict[bool, NDArray[np.bool_]]:
    """(row,): the censored rows that each process imputes, by the choice of a similar one."""
    below, above = rows.bounds.beyond
    use_log = (below & similar.uses_log[0]) | (above & similar.uses_log[1])
    return {False: rows.bounds.censored & ~use_log, True: use_log}


def _choose_process(rows: _Rows) -> dict[bool, NDArray[np.bool_]]:
    """(row,): the censored rows that the process of y (False) and of log y (True) imputes.

    The logarithm is preferred below limits and y itself above, which both change values less, if
    the other is not clearly better.
    """
    bounds = rows.bounds
    below, above = bounds.beyond
    if min(np.min(ends[np.isfinite(ends)]) for ends in bounds) <= 0:
        return {False: bounds.censored, True: np.zeros_like(below)}
    known = np.random.RandomState(0).permutation(np.flatnonzero(~bounds.censored))[:_TRIAL_ROWS]
    y = bounds.lower[known]
    shares = [min(float(np.mean(side)), _MAX_TRIAL_SHARE) for side in (below, above)]
    trial = rows.take(known)._replace(bounds=_limit_values(y, *shares))
    use_log = below.copy()
    if np.sum(trial.bounds.censored) >= _LEAST_TRIAL:
        of_y, of_log = (np.abs(_expected_values(trial, own)[0] - y) for own in (False, True))
        if _is_clearly_lower(of_y, of_log, trial.bounds.beyond[0]):
            use_log = np.zeros_like(below)
        if _is_clearly_lower(of_log, of_y, trial.bounds.beyond[1]):
            use_log |= above
    return {False: bounds.censored & ~use_log, True: use_log}


def _is_clearly_lower(errors: Floats, others: Floats, rows: NDArray[np.bool_]) -> bool:
    return bool(np.sum(errors[rows] ** 2) < _CLEARLY_LOWER**2 * np.sum(others[rows] ** 2))


def _limit_values(y: Floats, below: float, above: float) -> TargetBounds:
    """Bounds of values, of which these shares are beyond a limit.

    >>> _limit_values(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 0.0, 0.25).upper
    array([ 1.,  2.,  3.,  4., inf])
    """
    low, high = np.quantile(y, [below, 1.0 - above])
    is_low, is_high = y < low, y > high
    return TargetBounds(
        np.where(is_low, -np.inf, np.where(is_high, high, y)),
        np.where(is_low, low, np.where(is_high, np.inf, y)),
    )


def _expected_values(
    rows: _Rows, logarithm: bool, similar: GaussianProcess | None = None
) -> tuple[Floats, GaussianProcess]:
    """(row,) known values and those that a process of y or log y expects, and the process."""
    if logarithm:
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = TargetBounds(*(np.log(np.maximum(ends, 0.0)) for ends in rows.bounds))
        values, process = _expected_values(rows._replace(bounds=logs), False, similar)
        return np.exp(values), process
    imputed = rows.bounds.limits()
    order = np.random.RandomState(0).permutation(len(imputed))
    censored = rows.bounds.censored[order]
    known, hidden = rows.take(order[~censored][:_MAX_KNOWN]), order[censored]
    y = known.bounds.lower
    process = fit_gaussian_process(
        known.features,
        y,
        sample_weight=known.weight,
        max_rows=_MAX_KNOWN,
        max_likelihood_rows=_LIKELIHOOD_ROWS,
        start=None if similar is None else (similar.length_scales, similar.noise),
        random_state=0,
    )
    noise = max(process.noise, _LEAST_NOISE) * known.weight.mean()  # of a row of weight 1
    factor = cho_factor(_covariance(process, known.features, noise / known.weight), lower=True)
    dual = cho_solve(factor, y - process.mean[0])
    std = np.sqrt(process.amplitude) * process.scale[0]  # of the process
    for index in np.array_split(hidden, -(-len(hidden) // _BLOCK)):
        own = rows.take(index)
        across = _correlation(process, own.features, known.features)
        joint = _covariance(process, own.features, noise / own.weight)
        joint -= across @ cho_solve(factor, across.T)
        mean = (process.mean[0] + across @ dual) / std
        imputed[index] = std * expected_within(mean, joint, own.bounds.scaled(std))
    return np.clip(imputed, rows.bounds.lower, rows.bounds.upper), process


def _covariance(process: GaussianProcess, features: Floats, noise: Floats) -> Floats:
    """(row, row): covariance with (row,) noise, in units of the amplitude."""
    covariance = _correlation(process, features, features)
    covariance[np.diag_indices_from(covariance)] += noise
    return covariance


def _correlation(process: GaussianProcess, first: Floats, second: Floats) -> Floats:
    """(first row, second row): correlation without noise."""
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
    return posterior, np.maximum(variance, 1e-12 * np.diag(covariance))
