"""Censored target values: bounds of the target of each row, and moments within bounds.

A row is known where its bounds are equal. Otherwise its value lies between them: below a detection
limit (the lower bound is −∞), above one (the upper bound is ∞), or in an interval.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from twinned.rows.schema import Floats
from twinned.rows.training import TargetBounds, validate_bounds

_LEAST_VARIANCE = 1e-8  # within bounds, as a share of that without; rounding may leave less


def log_target_arguments(
    y: Floats, y_lower: ArrayLike | None, y_upper: ArrayLike | None
) -> tuple[Floats, Floats, Floats]:
    """(row,) arguments of `fit` of a `TransformedTargetRegressor` that takes the logarithm.

    It transforms y, but not its bounds, and takes no NaN. So the bounds are those of the logarithm,
    and NaN where y is known, and y is a number within the bounds where it is not known. A bound may
    be None or NaN, as in `validate_bounds`.

    >>> log_target_arguments([2, 3, np.nan, np.nan], [2, 3, 0, 10], [2, 3, 5, np.inf])[0]
    array([ 2. ,  3. ,  2.5, 20. ])
    """
    bounds = validate_bounds(None, y, y_lower, y_upper, len(y), None)
    logarithms = bounds.logarithm()
    least = np.maximum(bounds.lower, 0.0)
    within = np.where(np.isposinf(bounds.upper), 2.0 * least, 0.5 * (least + bounds.upper))
    return (
        np.where(bounds.censored, within, bounds.lower),
        np.where(bounds.censored, logarithms.lower, np.nan),
        np.where(bounds.censored, logarithms.upper, np.nan),
    )


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
        at_lower, at_upper = (
            np.exp(-0.5 * end**2 - log_mass) / np.sqrt(2 * np.pi) for end in (lower, upper)
        )
        ends = [
            np.where(np.isfinite(end), end, 0.0) * density
            for end, density in ((lower, at_lower), (upper, at_upper))
        ]
        shift = at_lower - at_upper
        variance = 1.0 + ends[0] - ends[1] - shift**2
    # An interval so narrow or so far away that its mass is rounding error: its nearest end.
    failed = ~np.isfinite(shift) | ~np.isfinite(variance)
    shift = np.where(failed, np.clip(0.0, lower, upper), shift)
    variance = np.where(failed, 0.0, variance)
    shift = np.where(mirrored, -shift, shift)
    inside = np.clip(mean + std * shift, bounds.lower, bounds.upper)
    return inside, std**2 * np.clip(variance, _LEAST_VARIANCE, 1.0)
