"""What is wanted: goals of targets, and the columns that may change with their constraints.

Free numeric columns are variables between 0 and 1, their bounds, and each inequality has a slack
variable, so that all constraints are equations of variables within bounds. Rows are
(row, feature) arrays with categories as codes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
_MISS_WEIGHT = 1e3  # of a miss against the value of a target to maximize
_FEASIBLE = 1e-9  # largest error of a constraint
_MAX_PASSES = 8  # in which variables reach their bounds


def find_columns(names: Sequence[str], wanted: Sequence[Any], argument: str) -> list[int]:
    """The positions of names; raises for an unknown one."""
    for name in wanted:
        if name not in names:
            raise ValueError(f"{argument} names {name!r}, which is none of {', '.join(names)}.")
    return [names.index(name) for name in wanted]


@dataclass(frozen=True)
class Goal:
    """The wanted range of an output or, if `direction` is not 0, whether it is to be large."""

    output: int
    low: float = -np.inf
    high: float = np.inf
    direction: int = 0

    @classmethod
    def parse(cls, output: int, wanted: Any) -> Goal:
        """The goal of a number, (low, high), `">= 60"`, `"<= 5"`, `"40..60"`, `"max"` or `"min"`.

        >>> Goal.parse(0, ">= 60")
        Goal(output=0, low=60.0, high=inf, direction=0)
        """
        if isinstance(wanted, str):
            match = _GOAL.fullmatch(wanted)
            if wanted in ("max", "min"):
                return cls(output, direction=1 if wanted == "max" else -1)
            if match is None or (match[1] and match[3]):
                forms = "a number, (low, high), '>= 60', '<= 5', '40..60', 'max' or 'min'"
                raise ValueError(f"target must be {forms}, not {wanted!r}.")
            first, last = float(match[2]), float(match[3] or match[2])
            ends = (-np.inf if match[1] == "<=" else first, np.inf if match[1] == ">=" else last)
        else:
            given = [wanted, wanted] if np.ndim(wanted) == 0 else list(wanted)
            if len(given) != 2:
                raise ValueError(f"target must be a number or (low, high), not {wanted!r}.")
            ends = (check_real("target", given[0]), check_real("target", given[1]))
        if ends[0] > ends[1]:
            raise ValueError(f"target: {ends[0]:g} is larger than {ends[1]:g}.")
        return cls(output, *ends)

    @property
    def is_number(self) -> bool:
        return self.low == self.high


class Goals:
    """Goals of outputs, with the standard deviations of their known values as units.

    Predictions are (row, goal, 2) ends, which must be within the goals: those of an interval, or
    the prediction twice.
    """

    def __init__(self, target: Any, names: Sequence[str], known_y: Floats) -> None:
        if not isinstance(target, Mapping):
            if len(names) > 1:
                raise ValueError(f"target must have a value for each of {', '.join(names)}.")
            target = {names[0]: target}
        outputs = find_columns(names, list(target), "target")
        if not outputs:
            raise ValueError("target is empty.")
        self.goals = [Goal.parse(j, each) for j, each in zip(outputs, target.values(), strict=True)]
        self.low, self.high, self.direction = np.array(
            [(goal.low, goal.high, goal.direction) for goal in self.goals]
        ).T
        std = known_y[:, outputs].std(axis=0)
        self.outputs, self.unit = outputs, np.where(std > 0, std, 1.0)
        self.tolerance = _TOLERANCE if any(goal.is_number for goal in self.goals) else 1e-9

    def ends(self, predicted: Floats, intervals: Floats | None = None) -> Floats:
        """(row, goal, 2): of intervals (row, output, 2), but of the prediction for a number."""
        ends = np.stack([predicted, predicted], axis=2)[:, self.outputs]
        is_number = (self.low == self.high)[:, None]
        return ends if intervals is None else np.where(is_number, ends, intervals[:, self.outputs])

    def excess(self, ends: Floats) -> Floats:
        """(row, goal): how far ends are too high or, negative, too low, in units.

        A target to maximize is always one unit too low.
        """
        below = np.minimum(ends[..., 0] - self.low, 0.0)
        above = np.maximum(ends[..., 1] - self.high, 0.0)
        return np.where(self.direction != 0, -self.direction, (below + above) / self.unit)

    def miss(self, ends: Floats) -> Floats:
        """(row,): the largest distance of an end from its goal, in units."""
        outside = np.maximum(self.low - ends[..., 0], ends[..., 1] - self.high)
        return (np.maximum(outside, 0.0) / self.unit).max(axis=1)

    def loss(self, ends: Floats) -> Floats:
        """(row,): what is minimized: the miss and, with less weight, values to maximize."""
        value = np.where(self.direction > 0, ends[..., 0], ends[..., 1]) / self.unit
        return _MISS_WEIGHT * self.miss(ends) - value @ self.direction


@dataclass(frozen=True)
class LinearConstraints:
    """Equations and inequalities of columns: coefficients · row = or ≤ limits."""

    coefficients: Floats  # (constraint, feature)
    limits: Floats  # (constraint,)
    is_equation: Mask  # (constraint,)

    @classmethod
    def parse(cls, texts: Sequence[str], names: Sequence[str]) -> LinearConstraints:
        """Constraints from texts such as `"a + b + c = 100"` and `"2 a - b <= 5"`.

        >>> parsed = LinearConstraints.parse(["a + b = 100", "2 * a - b >= 5"], ["a", "b", "c"])
        >>> parsed.coefficients, parsed.limits, parsed.is_equation
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
        return cls(coefficients, limits, is_equation)

    def violation(self, rows: Floats) -> Floats:
        """(row,): the largest error of a constraint."""
        error = np.nan_to_num(rows) @ self.coefficients.T - self.limits
        error = np.where(self.is_equation, np.abs(error), np.maximum(error, 0.0))
        return error.max(axis=1, initial=0.0)


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """The columns of rows and what they may be."""

    low: Floats  # (feature,): bounds of numeric columns
    high: Floats
    is_free: Mask  # (feature,): numeric columns that may change
    is_whole: Mask  # (feature,): columns of whole numbers
    constraints: LinearConstraints

    @cached_property
    def width(self) -> Floats:
        """(feature,): by which differences are divided, the ranges of numeric columns."""
        return np.where(self.high > self.low, self.high - self.low, 1.0)

    @cached_property
    def system(self) -> Floats:
        """(constraint, variable): coefficients of the equations of columns and slacks."""
        columns = (self.constraints.coefficients * self.width)[:, self.is_free]
        slacks = np.diag(self._slack_unit)[:, ~self.constraints.is_equation]
        return np.concatenate([columns, slacks], axis=1)

    @cached_property
    def _slack_unit(self) -> Floats:
        """(constraint,): the largest change of an inequality by one column; 1 without any."""
        columns = (self.constraints.coefficients * self.width)[:, self.is_free]
        largest = np.abs(columns).max(axis=1, initial=0.0)
        return np.where(largest > 0, largest, 1.0)

    @cached_property
    def upper(self) -> Floats:
        """(variable,): the largest value of a variable; the least is 0."""
        n_slacks = self.system.shape[1] - self.is_free.sum()
        return np.concatenate([np.ones(self.is_free.sum()), np.full(n_slacks, np.inf)])

    def variables(self, rows: Floats) -> Floats:
        """(row, variable): columns in their ranges, and slacks, which are not negative."""
        scaled = (rows - self.low)[:, self.is_free] / self.width[self.is_free]
        slacks = self.constraints.limits - np.nan_to_num(rows) @ self.constraints.coefficients.T
        slacks = np.maximum(slacks / self._slack_unit, 0.0)[:, ~self.constraints.is_equation]
        return np.concatenate([scaled, slacks], axis=1)

    def error(self, rows: Floats, variables: Floats) -> Floats:
        """(row, constraint): errors of the equations for variables of rows."""
        others = np.nan_to_num(np.where(self.is_free, self.low, rows))
        limits = self.constraints.limits - others @ self.constraints.coefficients.T
        return variables @ self.system.T - limits

    def smallest_change(
        self, variables: Floats, system: Floats, wanted: Floats, weight: Floats, base: Floats
    ) -> Floats:
        """(row, variable): the change nearest to `base` within bounds with system · change = wanted.

        Variables with the (row, variable) weight 0 do not change, but by `base`.
        """
        ridge, weight = 1e-12 * np.eye(system.shape[1]), weight.copy()
        for _ in range(_MAX_PASSES):
            matrix = (system * weight[:, None]) @ system.transpose(0, 2, 1)
            missing = wanted[..., None] - system @ base[..., None]
            solved = np.linalg.solve(matrix + ridge, missing)
            change = base + weight * (system.transpose(0, 2, 1) @ solved)[..., 0]
            moved = np.clip(variables + change, 0.0, self.upper)
            beyond = (np.abs(moved - variables - change) > 1e-12) & (weight > 0)
            if not beyond.any():
                break
            base = np.where(beyond, moved - variables, base)
            weight[beyond] = 0.0
        return moved - variables

    def rows(self, variables: Floats, rows: Floats) -> tuple[Floats, Mask]:
        """Rows with the values of variables, whole numbers and constraints; and which are so."""
        free, low, high = self.is_free, self.low[self.is_free], self.high[self.is_free]
        rows, is_whole = rows.copy(), self.is_whole[free]

        def assign(values: Floats) -> Floats:
            values = np.where(is_whole, np.round(values), values)
            rows[:, free] = np.clip(values, low, high)
            return self.constraints.violation(rows)

        violated = assign(low + variables[:, : len(low)] * self.width[free]) > _FEASIBLE
        if violated.any():
            values = rows[:, free]
            values[violated] = [self._nearest(row) for row in rows[violated]]
            assign(values)
            variables = self.variables(rows)
            moving = np.ones(variables.shape)
            moving[:, : len(low)] = ~is_whole
            wanted = -self.error(rows, variables)
            system = np.broadcast_to(self.system, (len(rows), *self.system.shape))
            still = np.zeros(variables.shape)
            variables += self.smallest_change(variables, system, wanted, moving, still)
            violated = assign(low + variables[:, : len(low)] * self.width[free]) > _FEASIBLE
        return rows, ~violated

    def _nearest(self, row: Floats) -> Floats:
        """(free column,): values within bounds and constraints that differ least in sum."""
        free, constraints = self.is_free, self.constraints
        values, columns = row[free], constraints.coefficients[:, free]
        others = np.nan_to_num(np.where(free, 0.0, row))
        limits = constraints.limits - constraints.coefficients @ others
        one, n = np.eye(len(values)), len(values)
        matrix = np.block([[columns, np.zeros_like(columns)], [one, -one], [-one, -one]])
        least = np.where(constraints.is_equation, limits, -np.inf)
        found = milp(
            np.append(np.zeros(n), 1.0 / self.width[free]),
            integrality=np.append(self.is_whole[free], np.zeros(n)),
            bounds=Bounds(
                np.append(self.low[free], np.zeros(n)), np.append(self.high[free], [np.inf] * n)
            ),
            constraints=LinearConstraint(
                matrix,
                np.append(least, [-np.inf] * 2 * n),
                np.concatenate([limits, values, -values]),
            ),
        )
        return values if found.x is None else found.x[:n]
