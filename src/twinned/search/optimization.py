"""Search for rows that reach goals, within bounds and linear constraints of their columns.

Free numeric columns are variables between 0 and 1, their bounds. Rows are (row, feature) arrays
with categories as codes.

Many rows are moved at once, by steps to where the goals are reached by a linear approximation of
the model. Its gradients are those of a Gaussian process of the known rows, which is quick to
evaluate. What the model differs from it is learned along the steps (Broyden's method), so that
each step needs one prediction for each row, whatever the kind of model.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import Bounds, LinearConstraint, milp

from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_real

Mask = NDArray[np.bool_]
Constraints = tuple[Floats, Floats, Mask]  # as by `parse_constraints`
Predict = Callable[[Floats], Floats]  # of rows, (row, goal, end)

_NUMBER = r"(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][+-]?\d+)?"
_RANGE = re.compile(rf"(?=.*\d)\s*([+-]?{_NUMBER})?\s*\.\.\s*([+-]?{_NUMBER})?\s*")
_CONSTRAINT = re.compile(rf"(.+?)\s*(<=|>=|=)\s*([+-]?{_NUMBER})\s*")
_DIRECTIONS = {"max": 1, "min": -1}
_TOLERANCE = 0.01  # of a number that is wanted, in standard deviations of y
_LIMIT_TOLERANCE = 1e-7  # of a limit
_FAR = 1e6  # a value in units of the largest known one that is a mistake
_MISS_WEIGHT = 1e3  # of a miss against the value of a target to maximize
_FEASIBLE = 1e-9  # largest error of a constraint
_RIDGE = 1e-12  # of equations that determine the change
_GOAL_RIDGE = 1e-6  # of those of goals, relative
_MAX_PASSES = 8  # in which variables reach their bounds
_CORRECTIONS = 2  # of fractions; the second one is that of rounding errors
_RADIUS, _LEAST_RADIUS = 0.3, 1e-7  # of a step, in ranges of the columns
_DIFFERENCE = 1e-4  # of a variable, for gradients
_NEAR_WEIGHT = 0.01  # of the squared change of the given row
_CONVERGED = 1e-5  # fall of the loss in a step


def find_columns(names: Sequence[str], wanted: Sequence[object], argument: str) -> list[int]:
    """The positions of names; raises for an unknown one."""
    if unknown := [name for name in wanted if name not in names]:
        raise ValueError(f"{argument} names {unknown[0]!r}, which is none of {', '.join(names)}.")
    return [names.index(name) for name in wanted]


def parse_range(what: str, wanted: Any, known: Floats, others: str = "") -> tuple[float, float]:
    """The ends of a range, infinite where there is none; raises for those far from known values.

    The message for other values has the further forms `others`.

    >>> known = np.array([10.0, 90.0])
    >>> [parse_range("target", wanted, known) for wanted in (">= 60", "40..60", 5, (None, 2))]
    [(60.0, inf), (40.0, 60.0), (5.0, 5.0), (-inf, 2.0)]
    """
    ends = [wanted, wanted] if np.ndim(wanted) == 0 else list(wanted)
    if isinstance(wanted, str):
        text = re.sub("<=(.*)", r"..\1", re.sub(">=(.*)", r"\1..", wanted))
        match = _RANGE.fullmatch(text if ".." in text else f"{text}..{text}")
        ends = [end and float(end) for end in match.groups()] if match else []
    if len(ends) != 2 or wanted is None:
        forms = f"a number, (low, high), '>= 60', '<= 5'{others} or '40..60'"
        raise ValueError(f"{what} must be {forms}, not {wanted!r}.")
    low = -np.inf if ends[0] is None else check_real(what, ends[0])
    high = np.inf if ends[1] is None else check_real(what, ends[1])
    largest = np.nanmax(np.abs(known), initial=0.0) or 1.0
    if far := [end for end in (low, high) if _FAR * largest < abs(end) < np.inf]:
        raise ValueError(f"{what}: {far[0]:g} is over a million times the known values.")
    if low > high:
        raise ValueError(f"{what}: {low:g} is larger than {high:g}.")
    return low, high


class Goals:
    """Goals of outputs, with the standard deviations of their known values as units.

    Predictions are (row, goal, end) values, all of which must be within the goals: one, the
    prediction, or the two ends of an interval.
    """

    def __init__(self, target: object, names: Sequence[str], known_y: Sequence[Floats]) -> None:
        """Of targets with these names and known values (row,), which may be of different rows."""
        if not isinstance(target, Mapping):
            if len(names) > 1:
                raise ValueError(f"target must have a value for each of {', '.join(names)}.")
            target = {names[0]: target}
        if not target:
            raise ValueError("target is empty.")
        self.outputs: list[int] = find_columns(names, list(target), "target")
        self.direction: Floats = np.array(
            [_DIRECTIONS.get(str(goal), 0) for goal in target.values()]
        )
        self.low: Floats = np.empty(len(target))
        self.high: Floats = np.empty(len(target))
        self.unit: Floats = np.empty(len(target))
        for i, (output, goal) in enumerate(zip(self.outputs, target.values(), strict=True)):
            wanted = (None, None) if self.direction[i] else goal
            self.low[i], self.high[i] = parse_range(
                "target", wanted, known_y[output], ", 'max', 'min'"
            )
            self.unit[i] = known_y[output].std() or 1.0
        self.is_number: Mask = self.low == self.high
        self.tolerance: Floats = np.where(self.is_number, _TOLERANCE, _LIMIT_TOLERANCE)
        is_range = np.flatnonzero(~self.is_number & (self.direction == 0))
        self.ranges: dict[int, tuple[float, float]] = {
            self.outputs[i]: (self.low[i], self.high[i]) for i in is_range
        }

    def _outside(self, ends: Floats) -> Floats:
        """(row, goal, 2): how far ends are too low, negative, and too high, in units."""
        below = np.minimum(ends[..., 0] - self.low, 0.0)
        above = np.maximum(ends[..., -1] - self.high, 0.0)
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
        value = np.where(self.direction > 0, ends[..., 0], ends[..., -1]) / self.unit
        return _MISS_WEIGHT * np.linalg.norm(self.miss(ends), axis=1) - value @ self.direction


def parse_constraints(texts: Sequence[str], names: Sequence[str]) -> Constraints:
    """(constraint, feature) coefficients, limits, and which constraints are equations.

    The others are inequalities: coefficients · row ≤ limit.

    >>> parse_constraints(["a + b = 100", "2 * a - b >= 5"], ["a", "b", "c"])
    (array([[ 1.,  1.,  0.],
           [-2.,  1.,  0.]]), array([100.,  -5.]), array([ True, False]))
    """
    any_name = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    term = re.compile(rf"\s*([+-]?)\s*(?:({_NUMBER})\s*\*?\s*)?({any_name})\s*(?=[+-]|$)")
    coefficients = np.zeros((len(texts), len(names)))
    limits, is_equation = np.zeros(len(texts)), np.zeros(len(texts), dtype=bool)
    for i, text in enumerate(texts):
        match = _CONSTRAINT.fullmatch(text)
        terms = list(term.finditer(match[1])) if match else []
        if match is None or "".join(term_match[0] for term_match in terms) != match[1]:
            form = f"'a + b = 100' or '2 a - b <= 5' of the columns {', '.join(names)}"
            raise ValueError(f"A constraint has the form {form}, not {text!r}.")
        sign = -1.0 if match[2] == ">=" else 1.0
        for plus_or_minus, factor, name in (term_match.groups() for term_match in terms):
            coefficients[i, names.index(name)] += sign * float(plus_or_minus + (factor or "1"))
        limits[i] = sign * float(match[3])
        is_equation[i] = match[2] == "="
    return coefficients, limits, is_equation


class SearchSpace:
    """The columns of rows and what they may be.

    Attributes
    ----------
    low, high : ndarray of shape (feature,)
        Bounds of numeric columns.
    is_free, is_whole : ndarray of shape (feature,)
        Whether a column is numeric and may change, and whether its numbers are whole.
    width : ndarray of shape (feature,)
        By which differences are divided, the ranges of numeric columns.
    """

    def __init__(
        self, low: Floats, high: Floats, is_free: Mask, is_whole: Mask, constraints: Constraints
    ) -> None:
        self.low: Floats = low
        self.high: Floats = high
        self.is_free: Mask = is_free
        self.is_whole: Mask = is_whole
        self.width: Floats = np.where(high > low, high - low, 1.0)
        # constraints are divided by the largest changes by one column
        coefficients, limits, self._is_equation = constraints
        unit = np.abs(coefficients * self.width).max(axis=1, initial=1e-9)
        self._coefficients, self._limits = coefficients / unit[:, None], limits / unit
        self._tolerance = _FEASIBLE / unit

    def _excess(self, rows: Floats) -> Floats:
        """(row, constraint): the excess of rows over the limits."""
        return np.nan_to_num(rows) @ self._coefficients.T - self._limits

    def _is_violated(self, excess: Floats) -> Mask:
        """(row, constraint): whether constraints with this excess are violated."""
        return np.where(self._is_equation, np.abs(excess), excess) > self._tolerance

    def _is_feasible(self, rows: Floats) -> Mask:
        return self._is_violated(self._excess(rows)).sum(axis=1) == 0

    def variables(self, rows: Floats) -> Floats:
        """(row, variable): free columns in their ranges."""
        return ((rows - self.low) / self.width)[:, self.is_free]

    def nearest(self, rows: Floats, weight: Floats, slopes: Floats, wanted: Floats) -> Floats:
        """(row, variable): the variables within bounds that satisfy the constraints, near to rows.

        Their change c is the smallest for which slopes (row, goal, variable) · c is as wanted
        (row, goal), if that does not violate the constraints. Variables with the (row, variable)
        weight 0 do not change.
        """
        start, weight, excess = self.variables(rows), weight.copy(), self._excess(rows)
        upper = (self.high > self.low)[self.is_free].astype(float)
        equations = (self._coefficients * self.width)[:, self.is_free]
        is_active = self._is_equation | self._is_violated(excess)
        ridge = np.diag(np.repeat([_GOAL_RIDGE, 0.0], [slopes.shape[1], len(equations)]))
        fixed = np.zeros_like(start)  # changes of the variables that have reached a bound
        for _ in range(_MAX_PASSES):
            system = np.concatenate([slopes, is_active[..., None] * equations], axis=1)
            total = np.concatenate([wanted, is_active * -excess], axis=1)[..., None]
            matrix = (system * weight[:, None]) @ system.transpose(0, 2, 1)
            matrix = matrix * (1.0 + ridge) + _RIDGE * np.eye(len(ridge))
            solved = np.linalg.solve(matrix, total - system @ fixed[..., None])
            change = fixed + weight * (system.transpose(0, 2, 1) @ solved)[..., 0]
            moved = np.clip(start + change, 0.0, upper)
            is_beyond = (np.abs(moved - start - change) > 1e-12) & (weight > 0)
            is_new = self._is_violated(excess + (moved - start) @ equations.T) & ~is_active
            if not is_beyond.any() and not is_new.any():
                break
            fixed = np.where(is_beyond, moved - start, fixed)
            weight[is_beyond], is_active = 0.0, is_active | is_new
        return moved

    def rows(self, variables: Floats, rows: Floats) -> tuple[Floats, Mask]:
        """Rows with the values of variables, and whether each satisfies the constraints.

        Where rounding to whole numbers or `rows` violate them, fractions change as little as is
        needed; where that is not enough, the row is the nearest that satisfies them.
        """
        free, rows, n_free = self.is_free, rows.copy(), self.is_free.sum()
        weight = np.tile(1.0 - self.is_whole[free], (len(rows), 1))
        no_slopes, no_changes = np.empty((len(rows), 0, n_free)), np.empty((len(rows), 0))
        for _ in range(_CORRECTIONS + 1):
            values = self.low[free] + variables * self.width[free]
            values = np.where(self.is_whole[free], np.round(values), values)
            rows[:, free] = np.clip(values, self.low[free], self.high[free])
            if self._is_feasible(rows).all():
                break
            variables = self.nearest(rows, weight, no_slopes, no_changes)
        for i in np.flatnonzero(~self._is_feasible(rows) & free.any()):
            rows[i, free] = self._nearest_values(rows[i])
        return rows, self._is_feasible(rows)

    def _nearest_values(self, row: Floats) -> Floats:
        """(free column,): values that satisfy the constraints and differ least in sum, if any."""
        values, low, high = row[self.is_free], self.low[self.is_free], self.high[self.is_free]
        columns, excess = self._coefficients[:, self.is_free], self._excess(row)
        # the increases and decreases of the values, whose sum is minimized
        least = np.where(self._is_equation, -excess, -np.inf)
        solution = milp(
            np.tile(1 / self.width[self.is_free], 2),
            integrality=np.tile(self.is_whole[self.is_free], 2),
            bounds=Bounds(0.0, np.append(high - values, values - low)),
            constraints=LinearConstraint(np.hstack([columns, -columns]), least, -excess),
        )
        if solution.x is None:
            return values
        change = np.subtract(*np.split(solution.x, 2))
        return values + np.where(self.is_whole[self.is_free], np.round(change), change)


@dataclass(frozen=True, eq=False)
class Search:
    """A search in a space, with `near` (feature,), the row that is to change little, or None."""

    space: SearchSpace
    goals: Goals
    approximate: Predict
    near: Floats | None = None

    def descend(
        self, rows: Floats, moving: Mask, predict: Predict, n_steps: int
    ) -> tuple[Floats, Floats]:
        """The rows, then the rows as moved to the goals, and the (row, goal, end) ends of both.

        `moving` (row, variable) are the variables that may change. A step that is no improvement is
        repeated with less length.
        """
        space, unit = self.space, self.goals.unit
        starts, first_ends = rows, predict(rows)
        rows, ends = starts.copy(), first_ends.copy()
        loss, slopes = self._loss(rows, ends), self._gradients(rows)
        correction, radius = np.zeros_like(slopes), np.full(len(rows), _RADIUS)
        least = -np.inf if self.goals.direction.any() else 0.0
        active = np.flatnonzero(moving.any(axis=1) & (loss > least))
        for _ in range(n_steps):
            if not len(active):
                break
            before, variables = rows[active], space.variables(rows[active])
            linear = slopes[active] + correction[active]
            change = self._step(before, ends[active], linear, moving[active], radius[active])
            largest = np.abs(change).max(axis=1, initial=1e-300)
            change *= np.minimum(1.0, radius[active] / largest)[:, None]
            after, is_possible = space.rows(variables + change, before)
            new_ends, change = predict(after), space.variables(after) - variables
            new_loss = np.where(is_possible, self._loss(after, new_ends), np.inf)
            new_slopes = self._gradients(after)
            # what the linear approximation missed along the step
            missed = (new_ends - ends[active]).mean(axis=2) / unit
            linear = linear + (new_slopes - slopes[active]) / 2
            missed -= np.einsum("rgv,rv->rg", linear, change)
            square = np.maximum(np.sum(change**2, axis=1), 1e-20)
            correction[active] += missed[..., None] * (change / square[:, None])[:, None]
            gain = loss[active] - new_loss
            better = gain > 0
            improved = active[better]
            rows[improved], ends[improved] = after[better], new_ends[better]
            loss[improved], slopes[improved] = new_loss[better], new_slopes[better]
            shorter = np.minimum(radius[active], largest) / 3
            radius[active] = np.where(better, np.minimum(2 * radius[active], _RADIUS), shorter)
            is_done = (radius[active] < _LEAST_RADIUS) | (better & (gain < _CONVERGED))
            active = active[~is_done & (loss[active] > least)]
        return np.concatenate([starts, rows]), np.concatenate([first_ends, ends])

    def _loss(self, rows: Floats, ends: Floats) -> Floats:
        near = rows if self.near is None else self.near
        change = ((rows - near) / self.space.width)[:, self.space.is_free]
        return self.goals.loss(ends) + _NEAR_WEIGHT * np.sum(change**2, axis=1)

    def _gradients(self, rows: Floats) -> Floats:
        """(row, goal, variable): of the approximation, in units of the goals."""
        space, free = self.space, np.flatnonzero(self.space.is_free)
        center = ((space.low + space.high) / 2)[free]
        step = _DIFFERENCE * np.where(rows[:, free] > center, -1.0, 1.0)  # stays within bounds
        moved = np.repeat(rows[:, None], len(free), axis=1)
        moved[:, np.arange(len(free)), free] += step * space.width[free]
        values = self.approximate(np.concatenate([rows, moved.reshape(-1, rows.shape[1])]))
        here, there = np.split(values.mean(axis=2) / self.goals.unit, [len(rows)])
        there = there.reshape(len(rows), len(free), len(self.goals.unit))
        return ((there - here[:, None]) / step[..., None]).transpose(0, 2, 1)

    def _step(
        self, rows: Floats, ends: Floats, slopes: Floats, moving: Mask, radius: Floats
    ) -> Floats:
        """(row, variable): the smallest changes, of the rows or of `near`, to the goals.

        Goals are approached as far as changes of all variables by the (row,) radius lead.
        """
        space, free, weight = self.space, self.space.is_free, moving.astype(float)
        variables, pulled = space.variables(rows), rows.copy()
        if self.near is not None:
            pulled[:, free] = np.where(moving, self.near[free], rows[:, free])
        towards = np.einsum("rgv,rv->rg", slopes, space.variables(pulled) - variables)
        excess = self.goals.excess(ends + (towards * self.goals.unit)[..., None])
        farthest = radius[:, None] * (np.abs(slopes) @ weight[..., None])[..., 0]
        excess = np.clip(excess, -farthest, farthest)
        return space.nearest(pulled, weight, slopes, -excess) - variables


def select_different(rows: Floats, order: Indices, n: int, gap: float) -> Indices:
    """The first n rows, in order, that differ by a gap in some column, or by less if they must.

    >>> rows = np.array([[0.0], [0.01], [0.5], [1.0]])
    >>> select_different(rows, np.arange(4), 3, 0.25)
    array([0, 2, 3])
    """
    selected: list[int] = []
    while len(selected) < min(n, len(order)) and gap > 1e-7:
        for i in order:
            differences = np.abs(rows[selected] - rows[i]).max(axis=1, initial=0.0)
            if len(selected) < n and differences.min(initial=np.inf) > gap:
                selected.append(int(i))
        gap /= 2
    return order[np.isin(order, selected)]
