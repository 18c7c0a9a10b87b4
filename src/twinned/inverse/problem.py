"""What is wanted: goals of targets, and the columns that may change with their constraints.

Free numeric columns are variables between 0 and 1, their bounds, and each inequality has a slack
variable, so that all constraints are equations of variables within bounds. Rows are
(row, feature) arrays with categories as codes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from twinned.rows.schema import Floats
from twinned.rows.validation import check_real

Mask = NDArray[np.bool_]

_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_GOAL = re.compile(rf"\s*(>=|<=)?\s*([+-]?{_NUMBER})\s*(?:\.\.\s*([+-]?{_NUMBER})\s*)?")
_CONSTRAINT = re.compile(rf"(.+?)\s*(<=|>=|=)\s*([+-]?{_NUMBER})\s*")
_TOLERANCE = 0.01  # of a number that is wanted, in standard deviations of y
_LIMIT_TOLERANCE = 1e-7  # of a limit
_FAR = 1e6  # a value in units of the largest known one that is a mistake
_MISS_WEIGHT = 1e3  # of a miss against the value of a target to maximize
_FEASIBLE = 1e-9  # largest error of a constraint
_RIDGE = 1e-12  # of equations that determine the change
_GOAL_RIDGE = 1e-6  # of those of goals, relative
_MAX_PASSES = 8  # in which variables reach their bounds
_CORRECTIONS = 2  # of fractions; the second one is that of rounding errors


def find_columns(names: Sequence[str], wanted: Sequence[Any], argument: str) -> list[int]:
    """The positions of names; raises for an unknown one."""
    for name in wanted:
        if name not in names:
            raise ValueError(f"{argument} names {name!r}, which is none of {', '.join(names)}.")
    return [names.index(name) for name in wanted]


def check_end(what: str, end: Any, known: Floats) -> float:
    """An end of a range as a number; raises for one that is far from all known values."""
    number, largest = check_real(what, end), np.nanmax(np.abs(known), initial=0.0)
    if abs(number) > _FAR * (largest or 1.0):
        raise ValueError(f"{what}: {number:g} is over a million times the known values.")
    return number


def parse_goal(wanted: Any, known: Floats) -> tuple[float, float, int]:
    """The ends of the wanted range, and 1 for `"max"`, -1 for `"min"` and 0 for any other goal.

    >>> known = np.array([10.0, 90.0])
    >>> [parse_goal(wanted, known) for wanted in (">= 60", "max", (1, 2))]
    [(60.0, inf, 0), (-inf, inf, 1), (1.0, 2.0, 0)]
    """
    if wanted in ("max", "min"):
        return -np.inf, np.inf, 1 if wanted == "max" else -1
    sign, ends = "", [wanted, wanted] if np.ndim(wanted) == 0 else list(wanted)
    if isinstance(wanted, str):
        match = _GOAL.fullmatch(wanted)
        sign, *texts = (match[1], match[2], match[3] or match[2]) if match else ("",)
        ends = [float(text) for text in texts]
    if len(ends) != 2 or (sign and ends[0] != ends[1]):
        forms = "a number, (low, high), '>= 60', '<= 5', '40..60', 'max' or 'min'"
        raise ValueError(f"target must be {forms}, not {wanted!r}.")
    low, high = (check_end("target", end, known) for end in ends)
    low, high = -np.inf if sign == "<=" else low, np.inf if sign == ">=" else high
    if low > high:
        raise ValueError(f"target: {low:g} is larger than {high:g}.")
    return low, high, 0


class Goals:
    """Goals of outputs, with the standard deviations of their known values as units.

    Predictions are (row, goal, 2) ends, which must be within the goals: those of an interval, or
    the prediction twice.
    """

    def __init__(self, target: Any, names: Sequence[str], known_y: Sequence[Floats]) -> None:
        if not isinstance(target, Mapping):
            if len(names) > 1:
                raise ValueError(f"target must have a value for each of {', '.join(names)}.")
            target = {names[0]: target}
        self.outputs = find_columns(names, list(target), "target")
        if not target:
            raise ValueError("target is empty.")
        known = [known_y[output] for output in self.outputs]
        goals = [*map(parse_goal, target.values(), known)]
        self.low, self.high, self.direction = np.array(goals).T
        self.unit = np.array([y.std() or 1.0 for y in known])
        self.tolerance = np.where(self.low == self.high, _TOLERANCE, _LIMIT_TOLERANCE)
        each = zip(self.outputs, self.low, self.high, self.direction, strict=True)
        self.ranges = {j: (low, high) for j, low, high, sign in each if low < high and not sign}

    def ends(self, predicted: Floats, intervals: Floats | None = None) -> Floats:
        """(row, goal, 2): of intervals (row, output, 2), but of the prediction for a number."""
        ends = np.stack([predicted, predicted], axis=2)[:, self.outputs]
        is_number = (self.low == self.high)[:, None]
        return ends if intervals is None else np.where(is_number, ends, intervals[:, self.outputs])

    def _outside(self, ends: Floats) -> Floats:
        """(row, goal, 2): how far ends are too low, negative, and too high, in units."""
        below = np.minimum(ends[..., 0] - self.low, 0.0)
        above = np.maximum(ends[..., 1] - self.high, 0.0)
        return np.stack([below, above], axis=2) / self.unit[:, None]

    def excess(self, ends: Floats) -> Floats:
        """(row, goal): how far ends are too high or, negative, too low, in units.

        A target to maximize is always one unit too low.
        """
        return np.where(self.direction != 0, -self.direction, self._outside(ends).sum(axis=2))

    def miss(self, ends: Floats) -> Floats:
        """(row, goal): the distance of the farther end from the goal, in units."""
        return np.abs(self._outside(ends)).max(axis=2)

    def is_reached(self, ends: Floats) -> Mask:
        """(row,): whether all goals are reached."""
        return (self.miss(ends) - self.tolerance).max(axis=1) <= 0.0

    def loss(self, ends: Floats) -> Floats:
        """(row,): what is minimized: the miss and, with less weight, values to maximize."""
        value = np.where(self.direction > 0, ends[..., 0], ends[..., 1]) / self.unit
        return _MISS_WEIGHT * np.linalg.norm(self.miss(ends), axis=1) - value @ self.direction


def parse_constraints(texts: Sequence[str], names: Sequence[str]) -> tuple[Floats, Floats, Mask]:
    """(constraint, feature) coefficients, limits, and which constraints are equations.

    The others are inequalities: coefficients · row ≤ limit.

    >>> parse_constraints(["a + b = 100", "2 * a - b >= 5"], ["a", "b", "c"])
    (array([[ 1.,  1.,  0.],
           [-2.,  1.,  0.]]), array([100.,  -5.]), array([ True, False]))
    """
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    term = re.compile(rf"\s*([+-]?)\s*(?:({_NUMBER})\s*\*?\s*)?({known})\s*(?=[+-]|$)")
    coefficients = np.zeros((len(texts), len(names)))
    limits, is_equation = np.zeros(len(texts)), np.zeros(len(texts), dtype=bool)
    for i, text in enumerate(texts):
        match = _CONSTRAINT.fullmatch(text)
        terms = list(term.finditer(match[1])) if match else []
        if match is None or "".join(each[0] for each in terms) != match[1]:
            form = f"'a + b = 100' or '2 a - b <= 5' of the columns {', '.join(names)}"
            raise ValueError(f"A constraint has the form {form}, not {text!r}.")
        sign = -1.0 if match[2] == ">=" else 1.0
        for each in terms:
            coefficients[i, names.index(each[3])] += sign * float(each[1] + (each[2] or "1"))
        limits[i], is_equation[i] = sign * float(match[3]), match[2] == "="
    return coefficients, limits, is_equation


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """The columns of rows and what they may be."""

    low: Floats  # (feature,): bounds of numeric columns
    high: Floats
    is_free: Mask  # (feature,): numeric columns that may change
    is_whole: Mask  # (feature,): columns of whole numbers
    coefficients: Floats  # (constraint, feature)
    limits: Floats  # (constraint,)
    is_equation: Mask  # (constraint,)
    # results of `_nearest` by rows: a search returns to the same whole numbers
    _nearest_values: dict[bytes, Floats] = field(default_factory=dict)

    @cached_property
    def width(self) -> Floats:
        """(feature,): by which differences are divided, the ranges of numeric columns."""
        return np.where(self.high > self.low, self.high - self.low, 1.0)

    @cached_property
    def system(self) -> Floats:
        """(constraint, variable): coefficients of the equations of columns and slacks."""
        columns = (self.coefficients * self.width / self._units[:, None])[:, self.is_free]
        return np.concatenate([columns, np.eye(len(self.limits))[:, ~self.is_equation]], axis=1)

    @cached_property
    def _units(self) -> Floats:
        """(constraint,): by which constraints are divided, the largest changes by one column."""
        return np.abs(self.coefficients * self.width).max(axis=1, initial=1e-9)

    @cached_property
    def upper(self) -> Floats:
        """(variable,): the largest value of a variable; the least is 0."""
        is_range = (self.high > self.low)[self.is_free].astype(float)
        return np.append(is_range, np.full(self.system.shape[1] - len(is_range), np.inf))

    def _excess(self, rows: Floats) -> Floats:
        """(row, constraint): the excess of rows over the limits."""
        return np.nan_to_num(rows) @ self.coefficients.T - self.limits

    def missing(self, rows: Floats) -> Floats:
        """(row, constraint): the change of the equations by which rows satisfy them."""
        excess = self._excess(rows)
        return -np.where(self.is_equation, excess, np.maximum(excess, 0.0)) / self._units

    def variables(self, rows: Floats) -> Floats:
        """(row, variable): columns in their ranges, and slacks, which are not negative."""
        scaled = (rows - self.low)[:, self.is_free] / self.width[self.is_free]
        slacks = np.maximum(-self._excess(rows) / self._units, 0.0)[:, ~self.is_equation]
        return np.concatenate([scaled, slacks], axis=1)

    def smallest_change(
        self, variables: Floats, system: Floats, wanted: Floats, weight: Floats, base: Floats
    ) -> Floats:
        """(row, variable): the change within bounds nearest to `base`: system · change = wanted.

        The last equations are those of the space, which hold where not all can. Variables with the
        (row, variable) weight 0 do not change, but by `base`.
        """
        n_goals, weight = system.shape[1] - len(self.limits), weight.copy()
        ridge = np.diag([_GOAL_RIDGE] * n_goals + [0.0] * len(self.limits))
        for _ in range(_MAX_PASSES):
            matrix = (system * weight[:, None]) @ system.transpose(0, 2, 1)
            matrix = matrix * (1.0 + ridge) + _RIDGE * np.eye(len(ridge))
            missing = wanted[..., None] - system @ base[..., None]
            solved = np.linalg.solve(matrix, missing)
            change = base + weight * (system.transpose(0, 2, 1) @ solved)[..., 0]
            moved = np.clip(variables + change, 0.0, self.upper)
            beyond = (np.abs(moved - variables - change) > 1e-12) & (weight > 0)
            if not beyond.any():
                break
            base = np.where(beyond, moved - variables, base)
            weight[beyond] = 0.0
        return moved - variables

    def rows(self, variables: Floats, rows: Floats) -> tuple[Floats, Mask]:
        """Rows with the values of variables, and whether each satisfies the constraints.

        Where rounding to whole numbers or `rows` violate them, fractions change as little as is
        needed; where that is not enough, the row is the nearest that satisfies them.
        """
        free, rows, n_free = self.is_free, rows.copy(), self.is_free.sum()
        weight = np.append(~self.is_whole[free], np.ones(len(self.upper) - n_free))
        weight = np.tile(weight, (len(rows), 1))
        system = np.broadcast_to(self.system, (len(rows), *self.system.shape))
        for _ in range(_CORRECTIONS + 1):
            values = self.low[free] + variables[:, :n_free] * self.width[free]
            values = np.where(self.is_whole[free], np.round(values), values)
            rows[:, free] = np.clip(values, self.low[free], self.high[free])
            if self._is_feasible(rows).all():
                break
            variables, nothing = self.variables(rows), np.zeros_like(variables)
            wanted = self.missing(rows)
            variables += self.smallest_change(variables, system, wanted, weight, nothing)
        for i in np.flatnonzero(~self._is_feasible(rows) & free.any()):
            key = rows[i].tobytes()
            if key not in self._nearest_values:
                self._nearest_values[key] = self._nearest(rows[i])
            rows[i, free] = self._nearest_values[key]
        return rows, self._is_feasible(rows)

    def _is_feasible(self, rows: Floats) -> Mask:
        return np.abs(self.missing(rows) * self._units).max(axis=1, initial=0.0) <= _FEASIBLE

    def _nearest(self, row: Floats) -> Floats:
        """(free column,): values that satisfy the constraints and differ least in sum, if any."""
        values, low, high = row[self.is_free], self.low[self.is_free], self.high[self.is_free]
        columns, excess = self.coefficients[:, self.is_free], self._excess(row)
        # the increases and decreases of the values, whose sum is minimized
        least = np.where(self.is_equation, -excess, -np.inf)
        found = milp(
            np.tile(1 / self.width[self.is_free], 2),
            integrality=np.tile(self.is_whole[self.is_free], 2),
            bounds=Bounds(0.0, np.append(high - values, values - low)),
            constraints=LinearConstraint(np.hstack([columns, -columns]), least, -excess),
        )
        if found.x is None:
            return values
        change = np.subtract(*np.split(found.x, 2))
        return values + np.where(self.is_whole[self.is_free], np.round(change), change)
