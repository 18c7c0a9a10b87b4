"""The rows among which solutions are searched: free columns, bounds and linear constraints.

Free numeric columns are variables between 0 and 1, their bounds, and each inequality has a slack
variable, so that all constraints are equations of variables within bounds. The variables of rows
are (row, variable) arrays; columns that are not free are those of the row itself.
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

from twinned.rows.schema import NUMERIC, Floats, TableSchema
from twinned.rows.validation import check_real

Mask = NDArray[np.bool_]

_NUMBER = r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+"
_RELATION = re.compile(rf"(.+?)(<=|>=|==|=)\s*([+-]?\s*(?:{_NUMBER}))\s*")
_EXACT = 1e-12  # largest error of an equation, in units of its largest coefficient
_FEASIBLE = 1e-9
_NEWTON_STEPS = 60


def find_columns(names: Sequence[str], wanted: Sequence[Any], argument: str) -> list[int]:
    """The positions of named columns; raises for an unknown one."""
    for name in wanted:
        if name not in names:
            raise ValueError(f"{argument} names {name!r}; the columns are {', '.join(names)}.")
    return [names.index(name) for name in wanted]


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
        for row, text in enumerate(texts):
            whole = _RELATION.fullmatch(text) if isinstance(text, str) else None
            if whole is None:
                form = "'a + b + c = 100' or '2 a - b <= 5'"
                raise ValueError(f"A constraint has the form {form}, not {text!r}.")
            position, left = 0, whole[1].rstrip()
            while position < len(left):
                match = term.match(left, position)
                if match is None or (position and not match[1]):
                    rest, columns = left[position:].strip(), ", ".join(names)
                    raise ValueError(f"{text!r}: {rest!r} is no column; they are {columns}.")
                sign, factor, name = match.groups()
                value = float(factor or 1.0) * (-1.0 if sign == "-" else 1.0)
                coefficients[row, names.index(name)] += value
                position = match.end()
            limits[row], is_equation[row] = float(whole[3].replace(" ", "")), "<" not in whole[2]
            if whole[2] == ">=":
                coefficients[row], limits[row], is_equation[row] = (
                    -coefficients[row],
                    -limits[row],
                    0,
                )
        return cls(coefficients, limits, is_equation)

    def violation(self, rows: Floats) -> Floats:
        """(row,): the largest error of a constraint."""
        error = rows @ self.coefficients.T - self.limits
        error = np.where(self.is_equation, np.abs(error), np.maximum(error, 0.0))
        return error.max(axis=1, initial=0.0)


def parse_bounds(
    bounds: Mapping[str, Sequence[float | None]] | None,
    names: Sequence[str],
    schema: TableSchema,
    known: Floats,
) -> tuple[Floats, Floats]:
    """(feature,): least and largest values, those of the known rows where none are given."""
    low, high = np.fmin.reduce(known), np.fmax.reduce(known)
    for j, name in zip(
        find_columns(names, list(bounds or ()), "bounds"), bounds or (), strict=True
    ):
        ends = (bounds or {})[name]
        if schema.kinds[j] != NUMERIC:
            raise ValueError(f"bounds: the column {name!r} is not numeric.")
        if isinstance(ends, str) or len(ends) != 2:
            raise ValueError(f"bounds of {name!r} must be (low, high), not {ends!r}.")
        low[j] = low[j] if ends[0] is None else check_real(f"bounds of {name!r}", ends[0])
        high[j] = high[j] if ends[1] is None else check_real(f"bounds of {name!r}", ends[1])
        if low[j] > high[j]:
            raise ValueError(f"bounds of {name!r}: {low[j]:g} is larger than {high[j]:g}.")
    return low, high


@dataclass(frozen=True, eq=False)
class SearchSpace:
    """Columns of rows (row, feature), with categories as codes, and what they may be."""

    names: list[str]
    low: Floats  # (feature,): bounds of numeric columns
    high: Floats
    is_free: Mask  # (feature,): numeric columns that may change
    is_whole: Mask  # (feature,): columns of whole numbers
    constraints: LinearConstraints

    @cached_property
    def width(self) -> Floats:
        """(feature,): the range of a column, by which differences are divided."""
        return np.where(self.high > self.low, self.high - self.low, 1.0)

    @cached_property
    def free(self) -> NDArray[np.intp]:
        return np.flatnonzero(self.is_free)

    @cached_property
    def system(self) -> Floats:
        """(constraint, variable): coefficients of the equations of variables and slacks."""
        columns = self.constraints.coefficients[:, self.free] * self.width[self.free]
        slacks = np.eye(len(columns))[:, ~self.constraints.is_equation]
        return np.concatenate([columns / self._unit[:, None], slacks], axis=1)

    @cached_property
    def _unit(self) -> Floats:
        """(constraint,): the largest coefficient of a variable, by which an equation is divided."""
        columns = self.constraints.coefficients[:, self.free] * self.width[self.free]
        largest = np.abs(columns).max(axis=1, initial=0.0)
        return np.where(largest > 0, largest, 1.0)

    @cached_property
    def upper(self) -> Floats:
        """(variable,): the largest value of a variable; the least is 0."""
        n_slacks = int(np.sum(~self.constraints.is_equation))
        one = (self.high > self.low)[self.free].astype(float)
        return np.concatenate([one, np.full(n_slacks, np.inf)])

    @cached_property
    def whole(self) -> Mask:
        """(variable,): variables of columns of whole numbers."""
        n_slacks = len(self.upper) - len(self.free)
        return np.concatenate([self.is_whole[self.free], np.zeros(n_slacks, dtype=bool)])

    def limits(self, rows: Floats) -> Floats:
        """(row, constraint): right-hand sides of the equations of the variables of rows."""
        others = np.nan_to_num(np.where(self.is_free, self.low, rows))
        return (self.constraints.limits - others @ self.constraints.coefficients.T) / self._unit

    def variables(self, rows: Floats) -> Floats:
        """(row, variable): the variables of rows, with slacks that are not negative."""
        variables = (rows - self.low)[:, self.free] / self.width[self.free]
        slacks = self.limits(rows) - variables @ self.system[:, : len(self.free)].T
        slacks = np.maximum(slacks[:, ~self.constraints.is_equation], 0.0)
        return np.concatenate([variables, slacks], axis=1)

    def rows(self, variables: Floats, rows: Floats) -> Floats:
        """Rows with the values of variables; other columns are those of `rows`."""
        values = self.low[self.free] + variables[:, : len(self.free)] * self.width[self.free]
        values = np.clip(values, self.low[self.free], self.high[self.free])
        out = rows.copy()
        out[:, self.free] = np.where(self.is_whole[self.free], np.round(values), values)
        return out

    def project(self, variables: Floats, rows: Floats, moving: Mask | None = None) -> Floats:
        """The nearest variables that satisfy the equations and bounds, where there are some.

        Newton's method for the multipliers of the equations. Variables that are not `moving` stay.
        """
        system, limits = self.system, self.limits(rows)
        share = np.ones(variables.shape) if moving is None else moving.astype(float)
        multipliers = np.zeros(limits.shape)
        ridge = _EXACT * np.eye(len(system))
        for _ in range(_NEWTON_STEPS if len(system) else 1):
            moved = np.clip(variables + share * (multipliers @ system), 0.0, self.upper)
            error = limits - moved @ system.T
            if np.abs(error).max(initial=0.0) <= _EXACT:
                break
            inside = share * ((moved > 0.0) & (moved < self.upper))
            matrix = np.einsum("iv,rv,jv->rij", system, inside, system) + ridge
            multipliers += np.linalg.solve(matrix, error[..., None])[..., 0].clip(-2.0, 2.0)
        return moved

    def settle(self, rows: Floats) -> tuple[Floats, Mask]:
        """Rows within bounds and constraints, with whole numbers; and whether each is so."""
        settled = self.rows(self.project(self.variables(rows), rows), rows)
        violated = self.constraints.violation(settled) > _FEASIBLE
        if violated.any():
            settled[violated] = [self.nearest(row) for row in settled[violated]]
            variables = self.variables(settled)
            moving = np.broadcast_to(~self.whole, variables.shape)
            settled = self.rows(self.project(variables, settled, moving), settled)
        return settled, self.constraints.violation(settled) <= _FEASIBLE

    def nearest(self, row: Floats) -> Floats:
        """The row whose columns differ least in sum, by linear programming; itself if none is."""
        n, free, system = len(self.free), self.free, self.constraints.coefficients[:, self.free]
        limit = (
            self.constraints.limits
            - np.nan_to_num(np.where(self.is_free, 0.0, row)) @ self.constraints.coefficients.T
        )
        eye = np.eye(n)
        least = np.where(self.constraints.is_equation, limit, -np.inf)
        rows = [
            LinearConstraint(np.concatenate([system, np.zeros((len(system), n))], 1), least, limit),
            LinearConstraint(np.concatenate([eye, -eye], 1), -np.inf, row[free]),
            LinearConstraint(np.concatenate([eye, eye], 1), row[free], np.inf),
        ]
        found = milp(
            np.concatenate([np.zeros(n), 1.0 / self.width[free]]),
            constraints=rows,
            integrality=np.concatenate([self.is_whole[free], np.zeros(n)]),
            bounds=Bounds(
                np.concatenate([self.low[free], np.zeros(n)]),
                np.concatenate([self.high[free], np.full(n, np.inf)]),
            ),
        )
        if found.x is None:
            return row
        nearest = row.copy()
        nearest[free] = np.where(self.is_whole[free], np.round(found.x[:n]), found.x[:n])
        return nearest
