"""Search for rows that reach goals.

Many rows are moved at once, by steps to where the goals are reached by a linear approximation of
the model. Its gradients are those of a Gaussian process of the known rows, which is quick to
evaluate. What the model differs from it is learned along the steps (Broyden's method), so that
each step needs one prediction for each row, whatever the kind of model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from twinned.rows.schema import Floats, Indices
from twinned.search.problem import Goals, Mask, SearchSpace

Predict = Callable[[Floats], Floats]  # of rows, (row, goal, end)

_RADIUS, _LEAST_RADIUS = 0.3, 1e-7  # of a step, in ranges of the columns
_DIFFERENCE = 1e-4  # of a variable, for gradients
_NEAR_WEIGHT = 0.01  # of the squared change of the given row
_CONVERGED = 1e-5  # fall of the loss in a step


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
