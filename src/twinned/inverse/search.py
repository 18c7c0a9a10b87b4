"""Search for rows that reach goals.

Many rows are moved at once, by steps to where the goals are reached by a linear approximation of
the model. The gradients are those of a Gaussian process of the known rows, which is quick to
evaluate; the differences of the model to it are learned from its values along the steps (Broyden's
method), so that each step needs one prediction for each row, of any kind of model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from twinned.inverse.goals import Goals
from twinned.inverse.space import Mask, SearchSpace
from twinned.rows.schema import Floats, Indices

Predict = Callable[[Floats], Floats]  # of rows, (row, goal, 2)
_RADIUS, _LEAST_RADIUS = 0.3, 1e-7  # of a step, in ranges of the columns
_RIDGE = 1e-9
_CONVERGED = 1e-9  # a miss in units of the standard deviation of y
_DIFFERENCE = 1e-4  # of a variable, for the gradients of the approximation


@dataclass
class Candidates:
    """Rows that are moved, with the ends of their predictions."""

    rows: Floats  # (row, feature)
    moving: Mask  # (row, variable): which variables of a row may change
    ends: Floats  # (row, goal, 2)

    def take(self, chosen: Indices | Mask) -> Candidates:
        return Candidates(self.rows[chosen], self.moving[chosen], self.ends[chosen])


@dataclass(frozen=True, eq=False)
class Search:
    """What is needed to move rows: the space, the goals, and a quick approximation of the model.

    `near` (feature,) is the row from which changes are to be small, where there is one, and
    `pull_weight` the weight of the squared distance from it.
    """

    space: SearchSpace
    goals: Goals
    approximate: Predict
    near: Floats | None = None
    pull_weight: float = 1e-2

    def gradients(self, rows: Floats) -> Floats:
        """(row, goal, variable): of the approximation, in units of the goals."""
        space = self.space
        n_free, n_slacks = len(space.free), len(space.upper) - len(space.free)
        step = np.where(rows[:, space.free] > (space.low + space.width / 2)[space.free], -1.0, 1.0)
        step *= _DIFFERENCE
        moved = np.repeat(rows[:, None], n_free, axis=1)
        columns = np.arange(n_free)
        moved[:, columns, space.free] += step * space.width[space.free]
        values = self.approximate(moved.reshape(-1, rows.shape[1])).mean(axis=2)
        values = values.reshape(len(rows), n_free, len(self.goals.unit))
        slopes = (values - self.approximate(rows).mean(axis=2)[:, None]) / step[..., None]
        slopes = slopes.transpose(0, 2, 1) / self.goals.unit[:, None]
        return np.concatenate([slopes, np.zeros((*slopes.shape[:2], n_slacks))], axis=2)

    def loss(self, rows: Floats, ends: Floats) -> Floats:
        """(row,): the loss of the goals and, where there is one, the distance from `near`."""
        loss = self.goals.loss(ends)
        if self.near is None:
            return loss
        difference = ((rows - self.near) / self.space.width)[:, self.space.free]
        return loss + self.pull_weight * np.sum(difference**2, axis=1)

    def step(self, candidates: Candidates, slopes: Floats, radius: Floats) -> Floats:
        """(row, variable): steps to the goals by (row, goal, variable) slopes.

        Each is the smallest change of the row, or from `near`, within bounds and constraints.
        """
        space, n_rows = self.space, len(candidates.rows)
        variables = space.variables(candidates.rows)
        limits, weight = space.limits(candidates.rows), candidates.moving.astype(float)
        base = np.zeros_like(variables)
        if self.near is not None:
            towards = space.variables(np.where(space.is_free, self.near, candidates.rows))
            base = (towards - variables) * weight
        system = np.concatenate(
            [slopes, np.broadcast_to(space.system, (n_rows, *space.system.shape))], axis=1
        )
        for _ in range(5):
            shift = np.einsum("rgv,rv->rg", slopes, base) * self.goals.unit
            excess = self.goals.excess(candidates.ends + shift[..., None])
            error = (variables + base) @ space.system.T - limits
            matrix = (system * weight[:, None]) @ system.transpose(0, 2, 1)
            matrix += _RIDGE * np.eye(matrix.shape[1])
            solved = np.linalg.solve(matrix, np.concatenate([excess, error], 1)[..., None])
            change = base - weight * (system.transpose(0, 2, 1) @ solved)[..., 0]
            moved = variables + change
            beyond = ((moved < -1e-12) | (moved > space.upper + 1e-12)) & (weight > 0)
            if not beyond.any():
                break
            base = np.where(beyond, np.clip(moved, 0.0, space.upper) - variables, base)
            weight[beyond] = 0.0
        length = np.abs(change[:, : len(space.free)]).max(axis=1, initial=1e-300)
        return change * np.minimum(1.0, radius / length)[:, None]

    def descend(self, candidates: Candidates, predict: Predict, n_steps: int) -> Candidates:
        """Move rows to the goals; a step that is no improvement is tried again with less length."""
        space, unit = self.space, self.goals.unit
        best = candidates.take(np.arange(len(candidates.rows)))
        n_rows, n_variables = best.moving.shape
        correction = np.zeros((n_rows, len(unit), n_variables))
        radius = np.full(n_rows, _RADIUS)
        loss = self.loss(best.rows, best.ends)
        slopes = self.gradients(best.rows)
        is_done = np.zeros(n_rows, dtype=bool)
        for _ in range(n_steps):
            is_done |= (radius < _LEAST_RADIUS) | ~best.moving.any(axis=1)
            if self.near is None and not any(goal.direction for goal in self.goals.goals):
                is_done |= self.goals.miss(best.ends) <= _CONVERGED
            active = np.flatnonzero(~is_done)
            if not len(active):
                break
            now = best.take(active)
            change = self.step(now, slopes[active] + correction[active], radius[active])
            variables = space.variables(now.rows)
            moved = space.project(variables + change, now.rows, now.moving)
            rows = space.rows(moved, now.rows)
            change = space.variables(rows) - variables
            ends = predict(rows)
            after = self.loss(rows, ends)
            new_slopes = self.gradients(rows)
            # what the linear approximation missed along the step
            mean_slopes = (slopes[active] + new_slopes) / 2 + correction[active]
            missed = (ends - now.ends).mean(axis=2) / unit
            missed -= np.einsum("rgv,rv->rg", mean_slopes, change)
            square = np.maximum(np.sum(change**2, axis=1), 1e-16)
            correction[active] += (missed / square[:, None])[..., None] * change[:, None]
            better = after < loss[active]
            improved, failed = active[better], active[~better]
            best.rows[improved], best.ends[improved] = rows[better], ends[better]
            loss[improved], slopes[improved] = after[better], new_slopes[better]
            radius[improved] = np.minimum(2.0 * radius[improved], _RADIUS)
            length = np.abs(change[~better, : len(space.free)]).max(axis=1, initial=0.0)
            radius[failed] = 0.3 * np.minimum(radius[failed], length)
        return best


def select_different(rows: Floats, order: Indices, n: int, gap: float) -> Indices:
    """The first n rows in this order that differ by a gap in some column, or by less if they must.

    >>> rows = np.array([[0.0], [0.01], [0.5], [1.0]])
    >>> select_different(rows, np.arange(4), 3, 0.25)
    array([0, 2, 3])
    """
    selected: list[int] = []
    while len(selected) < min(n, len(order)) and gap > 1e-7:
        for i in order:
            if len(selected) == n:
                break
            others = np.abs(rows[selected] - rows[i]).max(axis=1, initial=0.0)
            if not selected or others.min() > gap:
                selected.append(int(i))
        gap /= 2
    return np.array(selected, dtype=np.intp)
