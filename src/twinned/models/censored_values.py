"""Imputation of censored target values by a Gaussian process.

Given the known rows, the values of the censored rows have a joint normal distribution. Given their
bounds, too, it is truncated. Its means are computed by expectation propagation, which replaces the
bounds of each row by a normal factor that gives the row the same mean and variance. Far from known
rows the process is uncertain: there, values are expected farther beyond a limit than close to it.
"""

from functools import partial
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_ndtr

from twinned.models.gaussian_process import GaussianProcess, fit_gaussian_process
from twinned.rows.neighbors import KERNELS
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats
from twinned.rows.training import TargetBounds

_MAX_KNOWN = 1000  # known rows of the process; of more, a random subset
_LIKELIHOOD_ROWS = 500  # by which its hyperparameters are chosen
_BLOCK = 500  # censored rows whose joint distribution is computed
_REACH, _LEAST_REACH = 2.0, 1e-3  # of expected distances, and of the deviation of known values
_CLEAR_GAIN = 0.1  # of the log likelihood per row
# Added to the variances of censored rows, in units of the largest: covariances of processes with
# little noise are so positive definite despite rounding. The other is in units of the amplitude.
_ADDED_VARIANCE, _LEAST_VARIANCE = 1e-6, 1e-12
_MOST_DEVIATIONS = 5.0  # of an expected value beyond its bounds; else its variance is too small
_SWEEPS, _STEP, _TOLERANCE = 50, 0.7, 1e-3  # of expectation propagation
_LEAST_PRECISION, _MOST_PRECISION = 1e-10, 1e6  # of a factor, relative to that of the row
_LEAST_SHARE = 1e-8  # of the variance within bounds in that without; rounding may leave less


class Imputation(NamedTuple):
    """Known and imputed values, and how they were imputed."""

    y: Floats  # (row,)
    processes: dict[bool, GaussianProcess]  # of y (False) and of log y (True)
    uses_log: tuple[bool, bool] = (False, False)  # below limits and above


class _Rows(NamedTuple):
    """Rows of positive weight, without missing values."""

    features: Floats  # (row, feature)
    bounds: TargetBounds
    weight: Floats

    def take(self, rows: NDArray[np.intp]) -> Self:
        return type(self)(self.features[rows], self.bounds.take(rows), self.weight[rows])

    def with_log_target(self) -> Self:
        return type(self)(self.features, self.bounds.logarithm(), self.weight)


def impute_target(
    features: Floats,
    bounds: TargetBounds,
    sample_weight: Floats | None = None,
    similar: Imputation | None = None,
) -> Imputation:
    """Known values and, for censored rows, expected values given the known ones and the bounds.

    The process is that of y or, where all known values and limits are positive, that of log y, if
    it has the higher likelihood. A lower bound of 0 is that of all positive values.

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
    rows = _Rows(StandardScaling.fit(features).fill(features), bounds, weight)
    order = np.random.RandomState(0).permutation(len(features))
    censored = bounds.censored[order]
    known_rows, hidden = rows.take(order[~censored][:_MAX_KNOWN]), order[censored]
    if similar is None:
        processes, uses_log = _choose_processes(known_rows, bounds)
    else:
        uses_log = similar.uses_log
        processes = {
            logarithm: _fit_process(known_rows, logarithm, process)
            for logarithm, process in similar.processes.items()
        }
    below, above = bounds.lower[hidden] <= 0, bounds.beyond[1][hidden]
    by_log = (below & uses_log[0]) | (above & uses_log[1])
    for logarithm, process in processes.items():
        by_process = hidden[by_log == logarithm]
        if len(by_process):
            imputed[by_process] = _expected_values(
                process, known_rows, rows.take(by_process), logarithm
            )
    return Imputation(imputed, processes, uses_log)


def finite_bounds(
    features: Floats, bounds: TargetBounds, sample_weight: Floats | None = None
) -> TargetBounds:
    """Bounds without infinite ends: these are twice as far from the limit as is expected.

    So a model that is trained with bounds cannot extrapolate arbitrarily far beyond a limit. A
    lower bound of 0, which all positive values have, is replaced, too, by one that is not lower.
    The arguments are those of `impute_target`.
    """
    below, above = np.isneginf(bounds.lower) | _is_zero(bounds), bounds.beyond[1]
    least = _LEAST_REACH * np.std(bounds.lower[~bounds.censored])
    limits = np.where(below, bounds.upper, bounds.limits())
    distance = np.abs(impute_target(features, bounds, sample_weight).y - limits)
    reach = _REACH * np.maximum(distance, least)
    lower = np.where(below, np.maximum(limits - reach, bounds.lower), bounds.lower)
    return TargetBounds(lower, np.where(above, limits + reach, bounds.upper))


def _is_zero(bounds: TargetBounds) -> NDArray[np.bool_]:
    """(row,): whether the lower bound of a censored value is 0, that of all positive values."""
    is_zero: NDArray[np.bool_] = bounds.censored & (bounds.lower == 0) & np.isfinite(bounds.upper)
    others = np.append(bounds.lower[~is_zero], bounds.upper)
    return is_zero & bool(np.all(others > 0))


def _choose_processes(
    known_rows: _Rows, bounds: TargetBounds
) -> tuple[dict[bool, GaussianProcess], tuple[bool, bool]]:
    """The processes of y (False) and log y (True), and whether log y is used below and above.

    The known values decide by their likelihood. Above limits, where errors of the logarithm grow,
    it must be clearly better.
    """
    process = _fit_process(known_rows, False)
    ends = np.append(bounds.lower[~_is_zero(bounds)], bounds.upper)
    if np.min(ends[np.isfinite(ends)]) <= 0:
        return {False: process}, (False, False)
    of_log = _fit_process(known_rows, True)
    gain = _log_likelihood(of_log, True) - _log_likelihood(process, False)
    if gain <= 0:
        return {False: process}, (False, False)
    return {False: process, True: of_log}, (True, gain > _CLEAR_GAIN)


def _fit_process(
    known_rows: _Rows, logarithm: bool, similar: GaussianProcess | None = None
) -> GaussianProcess:
    """The process of y or log y of known rows, with the kernel of the higher likelihood."""
    y = np.log(known_rows.bounds.lower) if logarithm else known_rows.bounds.lower
    fit = partial(fit_gaussian_process, max_likelihood_rows=_LIKELIHOOD_ROWS, random_state=0)
    kernels = KERNELS if similar is None else [similar.kernel]
    processes = [
        fit(known_rows.features, y, kernel=kernel, sample_weight=known_rows.weight, similar=similar)
        for kernel in kernels
    ]
    return max(processes, key=lambda process: process.log_marginal_likelihood_)


def _log_likelihood(process: GaussianProcess, logarithm: bool) -> float:
    """Log likelihood per row of the values y of the rows of a process of y or log y."""
    value = process.log_marginal_likelihood_ / len(process.X) - np.log(process.scale[0])
    if logarithm:  # the derivative of log y is 1 / y
        value -= np.mean(process.target[:, 0] * process.scale[0] + process.mean[0])
    return float(value)


def _expected_values(
    process: GaussianProcess, known_rows: _Rows, rows: _Rows, logarithm: bool
) -> Floats:
    """(row,): expected values of censored rows, given known rows and bounds."""
    if logarithm:
        known_rows, rows = known_rows.with_log_target(), rows.with_log_target()
        return np.exp(_expected_values(process, known_rows, rows, logarithm=False))
    noise = process.noise * known_rows.weight.mean()  # of a row of weight 1
    factor = process.factorize(known_rows.features, noise / known_rows.weight), True
    dual = cho_solve(factor, known_rows.bounds.lower - process.mean[0])
    std = np.sqrt(process.amplitude) * process.scale[0]  # of the process
    expected = []
    for index in np.array_split(np.arange(len(rows.weight)), -(-len(rows.weight) // _BLOCK)):
        block = rows.take(index)
        across = process.correlation(block.features, known_rows.features)
        joint = process.correlation(block.features, block.features)
        joint -= across @ cho_solve(factor, across.T)
        mean, bounds = (process.mean[0] + across @ dual) / std, block.bounds.scaled(std)
        variance = np.maximum(np.diag(joint), _LEAST_VARIANCE) + noise / block.weight
        added = _ADDED_VARIANCE * variance.max()
        variance = np.maximum(variance, (bounds.errors(mean) / _MOST_DEVIATIONS) ** 2)
        np.fill_diagonal(joint, variance + added)
        expected.append(std * expected_within(mean, joint, bounds))
    return np.clip(np.concatenate(expected), rows.bounds.lower, rows.bounds.upper)


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
    most = _MOST_PRECISION / variance
    for _ in range(_SWEEPS):
        rest = np.maximum(1.0 / variance - precision, _LEAST_PRECISION / variance)
        rest_mean = (posterior_mean / variance - shift) / rest
        inside, inside_variance = truncated_moments(rest_mean, rest**-0.5, bounds)
        target = np.clip(1.0 / inside_variance - rest, 0.0, most)
        target_shift = np.where(target > 0, (rest + target) * inside - rest * rest_mean, 0.0)
        precision = precision + _STEP * (target - precision)
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
    explained = cho_solve(cho_factor(system, lower=True), root[:, None] * covariance)
    variance = np.diag(covariance) - np.einsum("ij,ji->i", covariance * root, explained)
    residual = shift - precision * mean
    posterior = mean + covariance @ residual - (covariance * root) @ (explained @ residual)
    return posterior, np.maximum(variance, 1e-12 * np.diag(covariance))


def truncated_moments(mean: Floats, std: Floats, bounds: TargetBounds) -> tuple[Floats, Floats]:
    """Mean and variance of normal variables, given that they lie between bounds.

    >>> bounds = TargetBounds(np.array([0.0, -1.0]), np.array([np.inf, 1.0]))
    >>> mean, variance = truncated_moments(np.zeros(2), np.ones(2), bounds)
    >>> mean.round(3), variance.round(3)
    (array([0.798, 0.   ]), array([0.363, 0.291]))
    """
    lower, upper = (bounds.lower - mean) / std, (bounds.upper - mean) / std
    # Mirrored, so that the lower tail, which is accurate, has the interval.
    mirrored = lower > 0
    lower, upper = np.where(mirrored, -upper, lower), np.where(mirrored, -lower, upper)
    log_lower, log_upper = log_ndtr(lower), log_ndtr(upper)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        log_mass = log_upper + np.log1p(-np.exp(log_lower - log_upper))
        ends = np.stack([lower, upper])
        densities = np.exp(-0.5 * ends**2 - log_mass) / np.sqrt(2 * np.pi)
        products = np.where(np.isfinite(ends), ends, 0.0) * densities
        shift = densities[0] - densities[1]
        variance = 1.0 + products[0] - products[1] - shift**2
    # An interval so narrow or so far away that its mass is rounding error: its nearest end.
    failed = ~np.isfinite(shift) | ~np.isfinite(variance)
    shift = np.where(failed, np.clip(0.0, lower, upper), shift)
    variance = np.where(failed, 0.0, variance)
    shift = np.where(mirrored, -shift, shift)
    inside = np.clip(mean + std * shift, bounds.lower, bounds.upper)
    return inside, std**2 * np.clip(variance, _LEAST_SHARE, 1.0)
