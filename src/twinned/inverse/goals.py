"""Wanted targets: what they are, and how far predictions are from them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from twinned.rows.schema import Floats
from twinned.rows.validation import check_real

_LIMIT = re.compile(r"\s*(>=|<=|>|<|=?)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*")
_RANGE = re.compile(r"\s*(\S+?)\s*\.\.\s*(\S+)\s*")
_DIRECTIONS = {"max": 1.0, "min": -1.0}
_TOLERANCE = 0.01  # of a number that is wanted, in standard deviations of y
_WEIGHT = 1e3  # of a miss against the value of a target to maximize


@dataclass(frozen=True)
class Goal:
    """A wanted range of one output, or a direction in which it is to be as large as possible."""

    output: int
    low: float = -np.inf
    high: float = np.inf
    direction: float = 0.0

    @classmethod
    def parse(cls, output: int, wanted: Any) -> Goal:
        """The goal of a number, (low, high), `">= 60"`, `"<= 5"`, `"40..60"`, `"max"` or `"min"`.

        >>> Goal.parse(0, ">= 60")
        Goal(output=0, low=60.0, high=inf, direction=0.0)
        """
        if isinstance(wanted, str):
            if wanted.strip() in _DIRECTIONS:
                return cls(output, direction=_DIRECTIONS[wanted.strip()])
            if limit := _LIMIT.fullmatch(wanted):
                sign, value = limit[1][:1], float(limit[2])
                return cls(
                    output, -np.inf if sign == "<" else value, np.inf if sign == ">" else value
                )
            if ends := _RANGE.fullmatch(wanted):
                try:
                    return cls.parse(output, (float(ends[1]), float(ends[2])))
                except ValueError:
                    pass
            forms = "a number, (low, high), '>= 60', '<= 5', '40..60', 'max' or 'min'"
            raise ValueError(f"target must be {forms}, not {wanted!r}.")
        if isinstance(wanted, Sequence | np.ndarray):
            if len(wanted) != 2:
                raise ValueError(f"target must be a number or (low, high), not {wanted!r}.")
            low, high = (check_real("target", end) for end in wanted)
            if low > high:
                raise ValueError(f"target: {low:g} is larger than {high:g}.")
            return cls(output, low, high)
        value = check_real("target", wanted)
        return cls(output, value, value)

    @property
    def is_number(self) -> bool:
        return self.low == self.high


@dataclass(frozen=True, eq=False)
class Goals:
    """Goals of several outputs, with the standard deviations of their known values as units."""

    goals: list[Goal]
    unit: Floats  # (goal,)

    @classmethod
    def parse(cls, target: Any, names: Sequence[str], known_y: Floats) -> Goals:
        """The goals of `solve`, for targets with these names."""
        if isinstance(target, Mapping):
            for name in target:
                if name not in names:
                    raise ValueError(f"target names {name!r}; the model has {', '.join(names)}.")
            wanted = {names.index(name): each for name, each in target.items()}
        elif len(names) > 1:
            example = ", ".join(f"{name!r}: …" for name in names)
            raise ValueError(f"The model has {len(names)} targets; give target={{{example}}}.")
        else:
            wanted = {0: target}
        if not wanted:
            raise ValueError("target is empty.")
        goals = [Goal.parse(output, each) for output, each in wanted.items()]
        std = np.nanstd(known_y, axis=0)[[goal.output for goal in goals]]
        return cls(goals, np.where(std > 0, std, 1.0))

    @property
    def outputs(self) -> list[int]:
        return [goal.output for goal in self.goals]

    @property
    def tolerance(self) -> float:
        """The largest miss, in units, of a row that reaches the goals."""
        return _TOLERANCE if any(goal.is_number for goal in self.goals) else 1e-9

    def describe(self, ends: Floats) -> str:
        """The (goal, 2) ends of a row as text."""
        pairs = zip(self.goals, ends, strict=True)
        values = [end[0] if goal.low > -np.inf else end[1] for goal, end in pairs]
        return ", ".join(f"{value:.4g}" for value in values)

    def take(self, predicted: Floats, intervals: Floats | None = None) -> Floats:
        """(row, goal, 2): the ends that must be within each goal: equal ones without intervals.

        The prediction itself must be a number that is wanted, also with intervals.
        """
        ends = np.stack([predicted, predicted], axis=2)[:, self.outputs]
        if intervals is None:
            return ends
        is_number = np.array([goal.is_number for goal in self.goals])
        return np.where(is_number[:, None], ends, intervals[:, self.outputs])

    def excess(self, ends: Floats) -> Floats:
        """(row, goal): how far ends are above (or, negative, below) the goals, in units.

        A target to maximize is always one unit too low.
        """
        low, high, direction = self._arrays
        below, above = np.minimum(ends[..., 0] - low, 0.0), np.maximum(ends[..., 1] - high, 0.0)
        return np.where(direction != 0, -direction, (below + above) / self.unit)

    def miss(self, ends: Floats) -> Floats:
        """(row,): the largest distance of an end from its goal, in units."""
        low, high, _ = self._arrays
        outside = np.maximum(np.maximum(low - ends[..., 0], ends[..., 1] - high), 0.0)
        return (outside / self.unit).max(axis=1)

    def loss(self, ends: Floats) -> Floats:
        """(row,): what the search minimizes: misses and, with less weight, values to maximize."""
        direction = self._arrays[2]
        value = np.where(direction > 0, ends[..., 0], ends[..., 1]) * direction / self.unit
        return _WEIGHT * self.miss(ends) - value.sum(axis=1)

    @property
    def _arrays(self) -> tuple[Floats, Floats, Floats]:
        goals = [(goal.low, goal.high, goal.direction) for goal in self.goals]
        low, high, direction = np.array(goals).T
        return low, high, direction
