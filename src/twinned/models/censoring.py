"""Censored target values: bounds of the target of each row, and moments within bounds.

A row is known where its bounds are equal. Otherwise its value lies between them: below a detection
limit (the lower bound is −∞), above one (the upper bound is ∞), or in an interval.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr
from sklearn.base import BaseEstimator
from sklearn.utils import check_array

from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats
from twinned.rows.validation import validate_target

_MIN_KNOWN = 2  # rows, of which a pair can be made
_LEAST_VARIANCE = 1e-8  # within bounds, as a share of that without; rounding may leave less


class TargetBounds(NamedTuple):
    """(row,) lower and upper bounds of the target, which are equal where it is known."""

    lower: Floats
    upper: Floats

    @property
    def censored(self) -> NDArray[np.bool_]:
        """(row,): whether the value is not known."""
        censored: NDArray[np.bool_] = self.lower < self.upper
        return censored

    @property
    def beyond(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(row,): whether the value is below a limit, and whether it is above one."""
        return np.isneginf(self.lower), np.isposinf(self.upper)

    def take(self, rows: Indices | slice) -> TargetBounds:
        return TargetBounds(self.lower[rows], self.upper[rows])

    def scaled(self, unit: float) -> TargetBounds:
        """The bounds in units of `unit`."""
        return TargetBounds(self.lower / unit, self.upper / unit)

    def logarithm(self) -> TargetBounds:
        """The bounds of the logarithm. A lower bound of at most 0 is none.

        A ValueError names a row without a positive bound.
        """
        wrong = (self.upper <= 0) | ((self.lower <= 0) & np.isposinf(self.upper))
        if wrong.any():
            row = int(wrong.argmax())
            bounds = f"between {self.lower[row]:g} and {self.upper[row]:g}"
            raise ValueError(f"The logarithm needs a positive bound; y[{row}] is {bounds}.")
        with np.errstate(divide="ignore"):
            return TargetBounds(np.log(np.maximum(self.lower, 0.0)), np.log(self.upper))

    def limits(self) -> Floats:
        """(row,): the known value, the only finite bound, or the middle of both.

        >>> TargetBounds(np.array([1.0, -np.inf, 2.0]), np.array([1.0, 5.0, 3.0])).limits()
        array([1. , 5. , 2.5])
        """
        lower = np.where(np.isfinite(self.lower), self.lower, self.upper)
        upper = np.where(np.isfinite(self.upper), self.upper, self.lower)
        return lower + 0.5 * (upper - lower)

    def errors(self, predicted: Floats) -> Floats:
        """(row,): signed distances of predictions to the interval between the bounds.

        That of a known row is its error, and that of a prediction between the bounds is 0.

        >>> bounds = TargetBounds(np.array([1.0, -np.inf, 2.0]), np.array([1.0, 5.0, 3.0]))
        >>> bounds.errors(np.array([4.0, 4.0, 1.5]))
        array([ 3. ,  0. , -0.5])
        """
        return predicted - np.clip(predicted, self.lower, self.upper)


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


def validate_bounds(
    estimator: BaseEstimator | None,
    y: ArrayLike,
    y_lower: ArrayLike | None,
    y_upper: ArrayLike | None,
    n_rows: int,
    sample_weight: Floats | None,
) -> TargetBounds:
    """Validate y and its bounds: both (n,) float64; `sample_weight` is validated.

    A bound that is None or NaN is the value of y or, where y is NaN, infinite. A finite y must lie
    within its bounds; where they differ, it is not used.
    """
    y = validate_target(estimator, y, n_rows, multi_output=True, unlabelled=True)
    if y.ndim == 2:
        if y.shape[1] > 1:
            raise ValueError(
                f"y_lower and y_upper need a single output, but y has {y.shape[1]} columns."
            )
        y = y[:, 0]
    lower = _validate_bound("y_lower", y_lower, y, -np.inf)
    upper = _validate_bound("y_upper", y_upper, y, np.inf)
    _refuse(lower == np.inf, "y_lower[{0}] = inf leaves no value of y; use -inf or NaN.")
    _refuse(upper == -np.inf, "y_upper[{0}] = -inf leaves no value of y; use inf or NaN.")
    _refuse(lower > upper, "y_lower[{0}] = {1:g} exceeds y_upper[{0}] = {2:g}.", lower, upper)
    _refuse(
        (y < lower) | (y > upper),
        "y[{0}] = {3:g} is outside of its bounds, y_lower[{0}] = {1:g} and y_upper[{0}] = {2:g}.",
        lower,
        upper,
        y,
    )
    _refuse(
        np.isneginf(lower) & np.isposinf(upper),
        "y[{0}] is NaN and has no bound; give y_lower[{0}] or y_upper[{0}], or drop the row.",
    )
    n_known = int(np.sum((lower == upper) & (True if sample_weight is None else sample_weight > 0)))
    if n_known < _MIN_KNOWN:
        raise ValueError(
            f"{n_known} of {n_rows} rows have a known value (y_lower = y_upper); at least "
            f"{_MIN_KNOWN} are needed."
        )
    return TargetBounds(lower, upper)


def _refuse(wrong: NDArray[np.bool_], message: str, *values: Floats) -> None:
    """Raise the message for the first wrong row, with its number and its values."""
    if wrong.any():
        row = int(wrong.argmax())
        raise ValueError(message.format(row, *(column[row] for column in values)))


def _validate_bound(name: str, given: ArrayLike | None, y: Floats, infinity: float) -> Floats:
    """A bound of each row (n,), with y, or infinity where y is NaN, for what is not given."""
    default = np.where(np.isnan(y), infinity, y)
    if given is None:
        return default
    bound = check_array(
        given, ensure_2d=False, dtype=np.float64, ensure_all_finite=False, input_name=name
    )
    if bound.shape != y.shape:
        raise ValueError(f"{name} has the shape {bound.shape}, but y has {y.shape}.")
    return np.where(np.isnan(bound), default, bound)


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
