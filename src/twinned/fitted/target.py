"""Transformed targets: models that are fitted to a function of y, and results in units of y.

Only this module knows the transformations: others split a model into its twin and its
`TargetTransform`.
"""

from typing import NamedTuple, Self

import numpy as np

from twinned.rows.scaling import PowerScaling
from twinned.rows.schema import Floats
from twinned.rows.training import TargetBounds


class TargetTransform(NamedTuple):
    """An increasing function of the target, which is fitted: logarithm, power scaling or none."""

    is_log: bool = False
    scaling: PowerScaling | None = None

    @classmethod
    def fit(cls, name: str | None, y: Floats) -> Self:
        """The transformation "log", "power" or None of values (row,) or (row, output)."""
        power = PowerScaling.fit(y.reshape(len(y), -1), powers=True) if name == "power" else None
        transform = cls(name == "log", power)
        transform.check(y)
        return transform

    def check(self, y: Floats) -> None:
        """Raise for values that have no finite transformed value."""
        if self.is_log and y.min() <= 0:
            raise ValueError(f"The logarithm needs positive y, but the smallest is {y.min():g}.")

    def apply(self, y: Floats) -> Floats:
        """Values of the fitted target; the logarithm of a negative value is that of 0."""
        if self.scaling is not None:
            return self.scaling.transform(y).reshape(np.shape(y))
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(y, 0.0)) if self.is_log else y

    def apply_bounds(self, bounds: TargetBounds) -> TargetBounds:
        """Bounds of the fitted target."""
        if self.is_log:
            return bounds.logarithm()
        return TargetBounds(*(np.where(np.isinf(end), end, self.apply(end)) for end in bounds))

    def invert(self, values: Floats) -> Floats:
        """Values in units of y; an infinite value is one."""
        if self.scaling is not None:
            return self.scaling.invert(values)
        with np.errstate(over="ignore"):
            return np.exp(values) if self.is_log else values

    def invert_known(self, values: Floats) -> Floats:
        """Known values in units of y, without what rounding adds to them.

        >>> log = TargetTransform(is_log=True)
        >>> log.invert(np.log(np.array([540000.0]))), log.invert_known(np.log(np.array([540000.0])))
        (array([540000.]), array([540000.]))
        """
        y = self.invert(values)
        unit = 10.0 ** (14 - np.ceil(np.log10(np.abs(y).clip(1e-290))))  # of the last digit
        return y if self == IDENTITY else np.round(y * unit) / unit

    def slope(self, y: Floats) -> Floats:
        """The derivative of y by the fitted target, which transforms standard deviations to y."""
        if self.scaling is not None:
            return self.scaling.slope(y)
        return y if self.is_log else np.ones_like(y)

    def invert_mean(self, predicted: Floats, y: Floats) -> Floats:
        """(row,): out-of-fold predictions in units of y, from those of the fitted target y.

        They are means over the errors of all rows, Duan's smearing estimate, as `predict` of a twin
        with out-of-fold errors is.

        >>> log = TargetTransform(is_log=True)
        >>> log.invert_mean(np.log([1.0, 2.0]), np.log([2.0, 1.0]))
        array([1.25, 2.5 ])
        """
        if self.scaling is not None:
            return self.invert(predicted[:, None] + (y - predicted)).mean(axis=1)
        mean = self.invert(predicted)
        return mean * self.invert(y - predicted).mean() if self.is_log else mean

    def invert_adjustments(self, adjustments: Floats, known_y: Floats, estimates: Floats) -> Floats:
        """(pair, feature) adjustments of y from those of the fitted target.

        They sum to estimate − known value, (pair,) each in units of y: those of the logarithm are
        multiplied by the logarithmic mean of the two.

        >>> log = TargetTransform(is_log=True)
        >>> log.invert_adjustments(np.log([[2.0, 2.0]]), np.array([1.0]), np.array([4.0]))
        array([[1.5, 1.5]])
        """
        if self == IDENTITY:
            return adjustments
        with np.errstate(invalid="ignore"):
            change = self.apply(estimates) - self.apply(known_y)
            close = np.abs(change) < 1e-9
            mean = (estimates - known_y) / np.where(close, 1.0, change)
        return adjustments * np.where(close, self.slope(known_y), mean)[:, None]


IDENTITY = TargetTransform()
