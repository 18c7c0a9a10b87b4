"""The distribution of scores.

A score is the error of a held-out row, y minus prediction, in units of its error scale. The next
score is below the k-th of n in increasing order with the probability k / (n + 1), whatever the
distribution is (conformal prediction). Between some such quantiles the distribution is that of a
transformed Student variable, so that it has a smooth density, and beyond them it has its tails.
"""

from __future__ import annotations

from numbers import Real
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr, stdtrit
from scipy.stats import t as student_t

from twinned.rows.schema import Floats
from twinned.rows.validation import check_numbers, check_real

# Probabilities at which quantiles of scores are those of conformal prediction; and degrees of
# freedom of the variable that is transformed: with its heavy tails, a row whose error scale is ten
# times too small costs about 8 nats, not 50 as with a normal variable.
_LEVELS = (0.005, 0.025, 0.05, 0.1, 0.25)
_FREEDOM = 3.0
_TIED = 0.05  # share of the scores with the same value, from which on it has knots
_LEAST_SLOPE = 1e-3  # of the transformation, in units of that of most scores
_LEAST_LEVEL = 1e-100  # `stdtrit` fails at levels near the smallest number
_LARGEST = 1e100  # score; larger and infinite ones count as this one


class ScoreDistribution(NamedTuple):
    """A continuous distribution with quantiles at some levels, and density everywhere.

    The score at a level is a piecewise linear function of the Student variable at that level.

    >>> distribution = ScoreDistribution.of(np.arange(1.0, 100.0))
    >>> distribution.quantile(np.array([0.05, 0.5, 0.95]))
    array([ 5., 50., 95.])
    >>> distribution.cdf(np.array([5.0, 50.0])).round(6)
    array([0.05, 0.5 ])
    """

    student: Floats  # (knot,): values of the Student variable
    scores: Floats  # (knot,), increasing

    @classmethod
    def of(cls, scores: Floats) -> ScoreDistribution:
        """The distribution of the next score after sorted ones."""
        scores = np.repeat(scores, 2) if len(scores) == 1 else scores
        scores = np.clip(scores, -_LARGEST, _LARGEST)
        n = len(scores)
        each = np.array([*_LEVELS, 0.5, *(1 - level for level in reversed(_LEVELS))])
        # the margin is for rounding; few scores are those of a Student variable
        levels = each[(each * (n + 1) >= 1 - 1e-9) & (each * (n + 1) <= n + 1e-9)]
        levels = levels if len(levels) > 1 else np.array([1.0, n]) / (n + 1)
        ranks = np.arange(1, n + 1) / (n + 1)
        # a value of many scores is the quantile from the first of its ranks to the last
        _, first, counts = np.unique(scores, return_index=True, return_counts=True)
        is_tied = counts > max(1.0, _TIED * n)
        if n > 2 and is_tied.any():
            ends = [ranks[first[is_tied]], ranks[(first + counts - 1)[is_tied]]]
            levels = np.unique(np.round(np.concatenate([levels, *ends]), 12))
        student, values = stdtrit(_FREEDOM, levels), np.interp(levels, ranks, scores)
        # that of the middle half, or of all where it is one value; and steps beyond rounding
        slopes = [np.ptp(np.interp([0.25, 0.75], ranks, scores)), np.ptp(values) / np.ptp(student)]
        least = (_LEAST_SLOPE * (slopes[0] or slopes[1]) or 1e-12) * np.diff(student)
        rounding = 1e-12 * np.maximum(np.abs(values[1:]), np.abs(values[:-1]))
        steps = np.maximum.reduce([np.diff(values), least, rounding])
        middle = _middle(student)
        below, above = np.cumsum(steps[:middle][::-1])[::-1], np.cumsum(steps[middle:])
        return cls(student, values[middle] + np.concatenate([-below, [0.0], above]))

    @property
    def _slopes(self) -> Floats:
        """(knot + 1,): slopes below, between and beyond the knots.

        The outer ones are those of the lines through the middle and the ends.
        """
        # the other end of two
        middle = _middle(self.student) if len(self.scores) > 2 else [-1, 0]
        rise, run = (part[[0, -1]] - part[middle] for part in (self.scores, self.student))
        low, high = rise / run
        return np.array([low, *(np.diff(self.scores) / np.diff(self.student)), high])

    def quantile(self, levels: Floats) -> Floats:
        """The scores at these levels, which are between 0 and 1."""
        student, slopes = stdtrit(_FREEDOM, np.maximum(levels, _LEAST_LEVEL)), self._slopes
        return _interpolate(student, self.student, self.scores, slopes)

    def _to_student(self, scores: Floats) -> Floats:
        """The values of the Student variable at these scores."""
        scores = np.clip(scores, -_LARGEST, _LARGEST)
        return _interpolate(scores, self.scores, self.student, 1 / self._slopes)

    def cdf(self, scores: Floats) -> Floats:
        """The probability of a score of at most these."""
        return stdtr(_FREEDOM, self._to_student(scores))

    def log_density(self, scores: Floats) -> Floats:
        """The logarithm of the density at these scores."""
        slopes = self._slopes[np.searchsorted(self.scores, scores, side="right")]
        return student_t.logpdf(self._to_student(scores), _FREEDOM) - np.log(slopes)


def _middle(student: Floats) -> int:
    """The knot of the median, or the second of two."""
    return int(np.searchsorted(student, -1e-9))


def _interpolate(x: Floats, knots: Floats, values: Floats, slopes: Floats) -> Floats:
    """Piecewise linear interpolation, with the first and the last slope beyond the knots."""
    below, beyond = np.minimum(x - knots[0], 0.0), np.maximum(x - knots[-1], 0.0)
    return np.interp(x, knots, values) + slopes[0] * below + slopes[-1] * beyond


def total_log_density(errors: Floats, scales: Floats) -> float:
    """Sum of the logarithms of the densities of errors with these error scales."""
    scores = errors / scales
    return float(np.sum(ScoreDistribution.of(np.sort(scores)).log_density(scores) - np.log(scales)))


def check_confidence(confidence: object, n: int, rows: str = "calibration rows") -> float:
    """Validate a confidence that n scores can guarantee; `rows` is what a message calls them."""
    level = check_real("confidence", confidence)
    if not 0 < level < 1:
        raise ValueError(f"confidence must be between 0 and 1, but is {confidence!r}.")
    if not suffices(level, n):
        needed = int(np.ceil(1.0 / (1.0 - level) - 1e-9)) - 1
        raise ValueError(f"confidence={level:g} needs at least {needed} {rows}; there are {n}.")
    return level


def tails(confidence: float | Floats) -> Floats:
    """The levels of the ends of intervals, beyond which y is equally likely, (2,) or (2, …).

    >>> tails(0.8)
    array([0.1, 0.9])
    """
    return np.array([0.5 - 0.5 * confidence, 0.5 + 0.5 * confidence])


def check_levels(quantiles: ArrayLike) -> Floats:
    """Validate probabilities of quantiles."""
    try:
        levels = np.asarray(quantiles, dtype=np.float64)
    except (TypeError, ValueError):
        levels = np.empty(0)
    if levels.ndim != 1 or not len(levels) or not np.all((levels > 0) & (levels < 1)):
        raise ValueError(f"quantiles must be a list of numbers between 0 and 1, not {quantiles!r}.")
    return levels


def check_values(y: ArrayLike, n_rows: int) -> Floats:
    """Validate one value of y, or one for each row."""
    values = np.array(y, dtype=np.float64) if isinstance(y, Real) else check_numbers("y", y)
    if values.shape not in ((), (n_rows,)) or np.isnan(values).any():
        raise ValueError(f"y must be one number, or one for each of the {n_rows} rows.")
    return values


def suffices(level: float, n: int) -> bool:
    """Whether n scores can guarantee a confidence."""
    return (1.0 - level) * (n + 1) + 1e-9 >= 1
