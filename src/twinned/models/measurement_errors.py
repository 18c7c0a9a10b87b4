"""Known errors of measurement: the weights of rows, and the part of errors that remains.

The error of a held-out row is that of the model and that of its measurement, whose standard
deviation is known. Rows are weighted by the inverse of the total variance, so that a row without
any error of measurement has no infinite weight. The remaining part is the error that a Gaussian
process expects of itself, given the known ones. In Gaussian processes a weight divides the noise
variance of the row, which does not include errors of the model: so their weights are by a smaller
variance, the likeliest one.
"""

from dataclasses import replace
from typing import TypeVar

import numpy as np
from scipy.linalg import cho_solve

from twinned.models.gaussian_process import fit_gaussian_process
from twinned.models.resources import limit_threads
from twinned.rows.scaling import StandardScaling
from twinned.rows.schema import Floats
from twinned.rows.training import TrainingRows

_MAX_ROWS = 500  # of the process
_NOISE = (0.3, 0.1, 0.03, 0.01, 1e-3, 1e-4)  # its noise, in variances of y
# Candidates of the remaining part, in units of what is expected, and the standard deviation of
# their logarithm before any error is known.
_CANDIDATES, _SPREAD = np.logspace(-2, 2, 300), 0.3

Rows = TypeVar("Rows", bound=TrainingRows)


def remaining_std(
    errors: Floats, y_std: Floats, expected: float, scale: Floats | float = 1.0
) -> float:
    """The standard deviation, in units of `scale`, of what `y_std` does not explain of errors.

    All are (row,). Errors are taken as normal with the variance (result · scale)² + y_std², and the
    result as lognormal around `expected`, for rows of mean scale, before they are known. It is the
    mean given the errors: where these are hardly more than y_std, they do not determine it.

    >>> rng = np.random.RandomState(0)
    >>> y_std = rng.uniform(0, 3, 5000)
    >>> errors = np.hypot(2.0, y_std) * rng.normal(size=5000)
    >>> round(remaining_std(errors, y_std, expected=1.0), 1)
    2.0
    """
    candidates = expected / np.sqrt(np.mean(np.square(scale))) * _CANDIDATES
    variance = (candidates[:, None] * scale) ** 2 + y_std**2
    log_density = -0.5 * (np.log(variance) + errors**2 / variance).sum(axis=1)
    log_density -= 0.5 * (np.log(_CANDIDATES) / _SPREAD) ** 2
    return float(np.average(candidates, weights=np.exp(log_density - log_density.max())))


def expected_sizes(errors: Floats, y_std: Floats, expected: float) -> Floats:
    """(row,): root mean square of the remaining part of each error, given the error.

    It is the absolute error where y_std is 0, and the remaining standard deviation where y_std is
    far larger.

    >>> expected_sizes(np.array([1.0, -2.0]), np.zeros(2), expected=1.0)
    array([1., 2.])
    """
    variance = remaining_std(errors, y_std, expected) ** 2
    share = variance / (variance + y_std**2)
    return np.hypot(share * errors, np.sqrt(share) * y_std)


def remaining_variances(
    features: Floats, y: Floats, y_std: Floats, weight: Floats | None = None
) -> tuple[float, float]:
    """The variance that a Gaussian process expects of held-out rows besides y_std², and its noise.

    `features` are (row, feature), with missing values as NaN, the others (row,). The noise is the
    likeliest of a few; the other part is the mean variance of the process without each row.
    """
    weight = np.ones(len(y)) if weight is None else weight
    rows = np.random.RandomState(0).permutation(np.flatnonzero(weight))[:_MAX_ROWS]
    features, y, known_variance, weight = features[rows], y[rows], y_std[rows] ** 2, weight[rows]
    X, unit = StandardScaling.fit(features).fill(features), float(np.var(y)) or 1.0
    process, likeliest, result = None, -np.inf, (unit, unit)
    for noise in unit * np.array(_NOISE):
        total_weight = weight / (noise + known_variance)
        total_weight = total_weight / total_weight.mean()
        with limit_threads(1):
            process = fit_gaussian_process(
                X, y, sample_weight=total_weight, similar=process, random_state=0
            )
        # of y itself, without standardization
        likelihood = process.log_marginal_likelihood_ - len(process.X) * np.log(process.scale[0])
        if likelihood > likeliest:
            own_noise = process.noise / total_weight
            inverse = cho_solve((process.factorize(X, own_noise), True), np.eye(len(X)))
            expected = np.maximum(1 / np.diag(inverse) - own_noise, 0.0).mean()
            expected *= process.amplitude * process.scale[0] ** 2
            likeliest, result = likelihood, (float(expected + noise), float(noise))
    return result


def weigh_by_error(rows: Rows) -> Rows:
    """The rows with weights by their errors of measurement, times their sample weights.

    Without errors, or with equal ones, weights stay as they are, and so do those of rows of a model
    that was fitted before.
    """
    y_std = rows.y_std
    if y_std is None or np.ptp(y_std) == 0 or rows.variances is not None:
        return rows
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    known_rows = rows.known
    variances = remaining_variances(
        rows.rows.features[known_rows], rows.y[known_rows], y_std[known_rows], weight[known_rows]
    )
    weight = weight / (variances[0] + y_std**2)
    return replace(rows, weight=weight / weight[known_rows].mean(), variances=variances)
