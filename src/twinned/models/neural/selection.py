"""The settings of an ensemble, selected by the predictions of networks that hold out a fold."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from twinned.exceptions import UnsuitableDataError
from twinned.models.greedy_selection import greedy_selection
from twinned.models.neural.network import MemberParameters, Shape, TrainedNetworks
from twinned.models.neural.parameters import Setting
from twinned.models.neural.problem import TrainingProblem
from twinned.models.neural.training_run import NO_STOP, EnsembleMember
from twinned.rows.schema import Floats, Indices

# A setting stops early if that lowers the error of its out-of-fold predictions by this share.
_LEAST_GAIN = 0.05


class TrainedEnsemble(NamedTuple):
    """The trained networks of one problem; members without weight are dropped."""

    networks: TrainedNetworks
    weights: Floats  # (member,), sum to one
    learning_curve: Floats  # (network that holds out rows, check) in units of y
    n_members: int  # with those that diverged
    out_of_fold: Floats | None = None  # (table row, output) in units of y
    members: Sequence[EnsembleMember] = ()  # how those with a weight were trained
    selection: Any = None  # the `SettingSelection`, where there is one


class TrainedMembers(NamedTuple):
    """The trained networks of one problem, and their predictions; leading axis member."""

    parameters: MemberParameters
    errors: NDArray[np.float32]  # (member, check), of held-out rows
    predicted: NDArray[np.float32]  # (member, check, held-out row, output)

    def followed_by(self, other: Self) -> Self:
        """These members and then others, without errors and predictions."""
        parameters = {
            name: np.concatenate([value, other.parameters[name]])
            for name, value in self.parameters.items()
        }
        return self._replace(parameters=parameters)


@dataclass(frozen=True, eq=False)
class SettingSelection:
    """The weights of the settings of one problem, and what they are selected by."""

    problem: TrainingProblem
    errors: NDArray[np.float32]  # (setting and fold, check), of held-out rows
    predicted: Floats  # (setting, row, output): predictions of the rows of all folds, in order
    converged: NDArray[np.bool_]  # (setting, fold)
    weights: Floats  # (setting,), sum to one; with several folds, multiples of 1 / n_members
    weights_without: Floats  # (fold, setting): selected without the rows of each fold
    stops: list[int]  # (setting,): the check at which members that train on all rows stop

    def of_fold_members(self) -> Floats:
        """(member,): weights of the networks of all settings and folds that converged."""
        weights: Floats = (self.weights[:, None] * self.converged).ravel()
        return weights / weights.sum()

    def final_members(self, settings: list[Setting], first_number: int) -> list[EnsembleMember]:
        """Return the members that train on all rows, as many of each setting as it weighs."""
        chosen = allocate_members(self.weights, self.problem.options.effort.n_members)
        return [
            EnsembleMember(settings[i], None, number, self.stops[i])
            for number, i in enumerate(chosen, first_number)
        ]

    def make_ensemble(
        self, shape: Shape, members: list[EnsembleMember], trained: TrainedMembers, weights: Floats
    ) -> TrainedEnsemble:
        """Return the ensemble of the problem, without the members that have no weight."""
        problem, used = self.problem, np.flatnonzero(weights)
        scales = np.stack([member.feature_scale(problem) for member in members])
        networks = TrainedNetworks(shape, include_scale(trained.parameters, scales))
        return TrainedEnsemble(
            networks=networks.take(used),
            weights=weights[used],
            learning_curve=self.errors * np.sqrt(np.mean(problem.scale.y_spread**2)),
            n_members=len(weights),
            members=[members[i] for i in used],
            selection=self,
            out_of_fold=self.out_of_fold() if len(problem.folds) > 1 else None,
        )

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
        rows = np.concatenate(problem.folds)
        scaled[rows] = mean
        table = np.full((problem.table.n_table_rows, scaled.shape[1]), np.nan)
        unscaled = problem.scale.inverse_transform_y(scaled)
        table[problem.table.table_rows] = unscaled[problem.merged_into]  # equal rows are merged
        return table


def allocate_members(weights: Floats, n_members: int) -> Indices:
    """Return the (member,) settings of members in proportion to (setting,) weights.

    >>> allocate_members(np.array([0.55, 0.0, 0.45]), 4)
    array([0, 0, 2, 2])
    """
    quota = weights * n_members
    counts = np.floor(quota).astype(np.intp)
    largest_remainders = np.argsort(counts - quota, kind="stable")
    counts[largest_remainders[: n_members - counts.sum()]] += 1
    return np.repeat(np.arange(len(weights)), counts)


def select_settings(
    problem: TrainingProblem, n_settings: int, trained: TrainedMembers
) -> SettingSelection:
    """Weigh the settings: by greedy selection on the predictions of held-out rows, or equally.

    With a single fold, each network stops at the least error of its own held-out rows. With
    several, all networks of a setting stop at one check, chosen for each by the rows that others
    hold out, so that its predictions do not depend on the rows that it predicts.
    """
    n_folds, rows = len(problem.folds), np.concatenate(problem.folds)
    n_members = problem.options.effort.n_members
    fold_converged = converged(trained).reshape(n_settings, n_folds)
    # (setting, fold, check, held-out row, output)
    held_out = trained.predicted.reshape(n_settings, n_folds, *trained.predicted.shape[1:])
    if n_folds > 1:
        stops, at_check = _common_stops(problem, held_out)
    else:
        stops = np.full(n_settings, NO_STOP)
        errors = np.where(np.isfinite(trained.errors), trained.errors, np.inf)
        at_check = errors.argmin(axis=-1).reshape(n_settings, n_folds)
    fold_predictions = [
        held_out[np.arange(n_settings), f, at_check[:, f], : len(fold)]
        for f, fold in enumerate(problem.folds)
    ]
    predicted = np.concatenate(fold_predictions, axis=1).astype(np.float64)
    complete = fold_converged.all(axis=1)  # only these settings have predictions of all rows
    is_known = ~problem.is_censored[rows]

    def weigh(used: NDArray[np.bool_]) -> Floats:
        used = used & is_known
        if not complete.any():
            return np.full(n_settings, 1.0 / n_settings)
        weights: Floats = complete / complete.sum()
        if problem.options.selection == "greedy" and used.any():
            share = problem.row_weight[rows[used]] / problem.row_weight[rows[used]].sum()
            errors = predicted[complete][:, used] - problem.y[rows[used]]
            errors = (errors * np.sqrt(share)[:, None]).reshape(len(errors), -1)
            weights[complete] = greedy_selection(errors.T)
        if n_folds == 1 or problem.options.fold_members:
            return weights
        return np.bincount(allocate_members(weights, n_members), minlength=n_settings) / n_members

    fold_of_row = np.repeat(np.arange(n_folds), [len(fold) for fold in problem.folds])
    return SettingSelection(
        problem=problem,
        errors=trained.errors,
        predicted=predicted,
        converged=fold_converged,
        weights=weigh(np.ones(len(rows), dtype=bool)),
        weights_without=np.stack([weigh(fold_of_row != fold) for fold in range(n_folds)]),
        stops=[int(stop) for stop in stops],
    )


def _common_stops(
    problem: TrainingProblem, held_out: NDArray[np.float32]
) -> tuple[Indices, Indices]:
    """(setting,) checks at which settings stop by all folds, and (setting, fold) by the others.

    `held_out` is (setting, fold, check, held-out row, output). A setting stops before the last
    check only where that clearly lowers its error.
    """
    of_folds = []
    for f, fold in enumerate(problem.folds):
        errors = problem.errors(held_out[:, f, :, : len(fold)], fold).astype(np.float64)
        of_folds.append(np.einsum("r,scro->sc", problem.row_weight[fold], errors**2))
    squares = np.stack(of_folds, axis=1)  # (setting, fold, check)
    squares = np.where(np.isfinite(squares), squares, np.inf)
    last = squares.shape[-1] - 1

    def best_check(square: Floats) -> Indices:
        is_lower = square.min(axis=-1) < (1.0 - _LEAST_GAIN) ** 2 * square[..., -1]
        return np.where(is_lower, square.argmin(axis=-1), last)

    others = [np.delete(squares, f, axis=1).sum(axis=1) for f in range(squares.shape[1])]
    stops = best_check(squares.sum(axis=1))
    # the members may have more checks than the networks of the folds
    return np.where(stops == last, NO_STOP, stops), best_check(np.stack(others, axis=1))


def converged(trained: TrainedMembers) -> NDArray[np.bool_]:
    """(member,): False for members with an infinite or NaN loss before their first check.

    Their parameters are the initial ones, or not finite.
    """
    finite: NDArray[np.bool_] = np.asarray(np.isfinite(trained.errors).any(axis=-1))
    for value in (*trained.parameters.values(), trained.predicted[:, -1]):
        finite &= np.isfinite(value).reshape(len(value), -1).all(axis=1)
    n_diverged = int((~finite).sum())
    advice = "networks diverged: their loss is infinite or NaN. Use a smaller learning_rate."
    if n_diverged == len(finite):
        raise UnsuitableDataError(f"All {n_diverged} {advice}")
    if n_diverged:
        message = f"{n_diverged} of {len(finite)} {advice} They are excluded from the ensemble."
        warnings.warn(message, ConvergenceWarning, stacklevel=2)
    return finite


def include_scale(parameters: MemberParameters, scales: Floats) -> MemberParameters:
    """Return parameters of networks whose features are not multiplied by (member, feature) scales.

    The first layer and the frequencies are linear in the features, so they can include the scale.
    """
    included = dict(parameters)
    for name in ("linear_0", "linear_1", "frequency"):
        if name in included:
            factor = np.ones(included[name].shape[:2], np.float32)  # 1 for padded features
            factor[:, : scales.shape[1]] = scales
            included[name] = included[name] * factor[..., None]
    return included
