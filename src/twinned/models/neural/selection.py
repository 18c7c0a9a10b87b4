"""Selection of settings by the out-of-fold predictions of their networks."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from twinned.models.neural.ensemble import NO_STOP, allocate_members, select_settings
from twinned.models.neural.inference import MemberParameters
from twinned.models.neural.problem import TrainingProblem
from twinned.rows.schema import Floats

# A setting stops early if that lowers the error of its out-of-fold predictions by this share.
_LEAST_GAIN = 0.05


class TrainedMembers(NamedTuple):
    """The trained networks of one problem, and their predictions; leading axis member."""

    parameters: MemberParameters
    errors: NDArray[np.float32]  # (member, check), of held-out rows
    # (member, check, held-out row, output); one check in the paper's own training
    predicted: NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Selection:
    """The weights of the settings of one problem, and what they are selected by."""

    problem: TrainingProblem
    predicted: Floats  # (setting, row, output): predictions of the rows of all folds, in order
    converged: NDArray[np.bool_]  # (setting, fold)
    weights: Floats  # (setting,), sum to one
    weights_without: Floats  # (fold, setting): selected without the rows of each fold
    stops: list[int]  # (setting,): the check at which members that train on all rows stop

    def of_fold_members(self) -> Floats:
        """(member,): weights of the networks of all settings and folds that converged."""
        weights: Floats = (self.weights[:, None] * self.converged).ravel()
        return weights / weights.sum()

    def allocate(self, n_members: int) -> Selection:
        """Return the selection with weights that are multiples of 1 / `n_members`."""

        def rounded(weights: Floats) -> Floats:
            settings = allocate_members(weights, n_members)
            return np.bincount(settings, minlength=len(weights)) / n_members

        return replace(
            self,
            weights=rounded(self.weights),
            weights_without=np.stack([rounded(own) for own in self.weights_without]),
        )

    def settings_of_members(self, n_members: int) -> NDArray[np.intp]:
        """(member,): the settings of `n_members`, in proportion to their weights."""
        return allocate_members(self.weights, n_members)

    def out_of_fold(self) -> Floats:
        """(table row, output) in units of y; NaN for rows without a label or a weight.

        NaN also for rows that no network with a weight predicts, as it diverged. The weights are
        selected without the rows that they predict.
        """
        problem = self.problem
        of_folds = self.weights_without.T * self.converged  # (setting, fold)
        weight = np.repeat(of_folds, [len(fold) for fold in problem.folds], axis=1)[..., None]
        with np.errstate(invalid="ignore"):  # 0 / 0
            mean = np.where(weight > 0, weight * self.predicted, 0.0).sum(0) / weight.sum(0)
        scaled = np.full_like(problem.y, np.nan)
        scaled[np.concatenate(problem.folds)] = mean
        table = np.full((problem.table.n_rows, scaled.shape[1]), np.nan)
        unscaled = problem.scale.inverse_transform_y(scaled)
        table[problem.table.indices] = unscaled[problem.merged_into]  # equal rows are merged
        return table


def select(
    problem: TrainingProblem,
    n_settings: int,
    trained: TrainedMembers,
    method: str,
    *,
    stop_together: bool,
) -> Selection:
    """Weigh the settings: by greedy selection on the predictions of held-out rows, or equally.

    Each network stops at the least error of its own held-out rows. With `stop_together`, all
    networks of a setting stop at one check, chosen for each by the rows that others hold out, so
    that its predictions do not depend on the rows that it predicts.
    """
    n_folds = len(problem.folds)
    each_converged = converged(trained).reshape(n_settings, n_folds)
    # (setting, fold, check, held-out row, output)
    held_out = trained.predicted.reshape(n_settings, n_folds, *trained.predicted.shape[1:])
    stops, at_check = (
        np.full(n_settings, held_out.shape[2] - 1),
        np.zeros((n_settings, n_folds), int),
    )
    if stop_together:
        stops, at_check = _common_stops(problem, held_out)
    elif held_out.shape[2] > 1:
        errors = np.where(np.isfinite(trained.errors), trained.errors, np.inf)
        at_check = errors.argmin(axis=-1).reshape(n_settings, n_folds)
    predicted = np.concatenate(
        [
            held_out[np.arange(n_settings), f, at_check[:, f], : len(fold)]
            for f, fold in enumerate(problem.folds)
        ],
        axis=1,
    ).astype(np.float64)
    rows = np.concatenate(problem.folds)
    complete = each_converged.all(axis=1)  # only these settings have predictions of all rows
    known = ~problem.is_censored[rows]

    def weigh(used: NDArray[np.bool_]) -> Floats:
        used = used & known
        if not complete.any():
            return np.full(n_settings, 1.0 / n_settings)
        weights: Floats = complete / complete.sum()
        if method == "greedy" and used.any():
            weights[complete] = select_settings(
                predicted[complete][:, used], problem.y[rows[used]], problem.row_weight[rows[used]]
            )
        return weights

    fold_of_row = np.repeat(np.arange(n_folds), [len(fold) for fold in problem.folds])
    return Selection(
        problem=problem,
        predicted=predicted,
        converged=each_converged,
        weights=weigh(np.ones(len(rows), dtype=bool)),
        weights_without=np.stack([weigh(fold_of_row != fold) for fold in range(n_folds)]),
        stops=[int(stop) for stop in stops],
    )


def _common_stops(
    problem: TrainingProblem, held_out: NDArray[np.float32]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(setting,) checks at which settings stop by all folds, and (setting, fold) by the others.

    `held_out` is (setting, fold, check, held-out row, output). A setting stops before the last
    check only where that clearly lowers its error.
    """
    squares = np.stack(
        [
            np.einsum(
                "r,scro->sc",
                problem.row_weight[fold],
                problem.errors(held_out[:, f, :, : len(fold)], fold).astype(np.float64) ** 2,
            )
            for f, fold in enumerate(problem.folds)
        ],
        axis=1,
    )  # (setting, fold, check)
    squares = np.where(np.isfinite(squares), squares, np.inf)

    def best_check(square: Floats) -> NDArray[np.intp]:
        last = square.shape[-1] - 1
        is_lower = square.min(axis=-1) < (1.0 - _LEAST_GAIN) ** 2 * square[..., -1]
        return np.where(is_lower, square.argmin(axis=-1), last)

    total = squares.sum(axis=1)
    others = np.stack(
        [np.delete(squares, f, axis=1).sum(axis=1) for f in range(squares.shape[1])], axis=1
    )
    stops = best_check(total)
    # the members may have more checks than the networks of the folds
    stops = np.where(stops == squares.shape[-1] - 1, NO_STOP, stops)
    return stops, best_check(others)


def converged(trained: TrainedMembers) -> NDArray[np.bool_]:
    """(member,): False for members with an infinite or NaN loss before their first check.

    Their parameters are the initial ones, or not finite.
    """
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(trained.errors).any(axis=-1))
    for value in (*trained.parameters.values(), trained.predicted[:, -1]):
        finite &= np.isfinite(value).reshape(len(value), -1).all(axis=1)
    n_diverged = int((~finite).sum())
    if n_diverged == len(finite):
        raise ValueError(
            f"All {n_diverged} networks diverged: their loss is infinite or NaN. Use a smaller "
            "learning_rate."
        )
    if n_diverged:
        warnings.warn(
            f"{n_diverged} of {len(finite)} networks diverged (their loss is infinite or NaN) "
            "and are excluded from the ensemble; use a smaller learning_rate.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return finite
