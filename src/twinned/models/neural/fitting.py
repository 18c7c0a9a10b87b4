"""Fitting of ensembles: train the members of all problems together, and select their settings.

An ensemble has a few *settings* (learning rate, dropout, weight decay, embedding, scale of the
features). Each is trained once for every *fold* of the training rows, which that network holds out.
So each setting has an out-of-fold prediction of every training row, and these predictions determine
how many of the final members, which are trained on all rows, have each setting.

In a blend, the networks that hold out a fold are members, too. Settings that are behind after a
fifth of few steps are stopped; where errors are not mostly noise, the others begin again, with more
steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from twinned.exceptions import UnsuitableDataError
from twinned.models.greedy_selection import greedy_selection
from twinned.models.neural.device import on_device, platform
from twinned.models.neural.inference import MemberParameters, TrainedNetworks
from twinned.models.neural.network import Shape, round_up
from twinned.models.neural.parameters import Setting, settings_of_wide_table
from twinned.models.neural.problem import TrainingProblem
from twinned.models.neural.training import TrainingConfig
from twinned.models.neural.training_run import NO_STOP, EnsembleMember, TrainingRun, stack_problems
from twinned.pairing.anchors import clearly_lowest
from twinned.rows.schema import Floats, Indices

# Other points of its batch that each point is paired with. In the same processor time, more points
# with fewer partners each have a lower out-of-fold error (`benchmarks/neural_partners.py`).
N_PARTNERS = 2
# A setting stops early if that lowers the error of its out-of-fold predictions by this share.
_LEAST_GAIN = 0.05
_TRIAL_FOLDS = 3  # by which the better half of the settings is chosen
# Error of held-out rows in standard deviations of y: from here on, they are mostly noise, and more
# steps change next to nothing.
_MUCH_NOISE = 0.2
_LEAST_FALL = 0.05  # of the error in the last two fifths of the steps, with which more may help


class TrainedEnsemble(NamedTuple):
    """The trained networks of one problem; members without weight are dropped."""

    networks: TrainedNetworks
    weights: Floats  # (member,), sum to one
    learning_curve: Floats  # (network that holds out rows, check) in units of y
    n_members: int  # with those that diverged
    out_of_fold: Floats | None = None  # (table row, output) in units of y
    n_nearest: int | None = None  # anchors of a query, where `anchors` is "auto"; None for all
    members: Sequence[EnsembleMember] = ()  # how those with a weight were trained
    selection: Any = None  # the `SettingSelection`, where there is one


class TrainedMembers(NamedTuple):
    """The trained networks of one problem, and their predictions; leading axis member."""

    parameters: MemberParameters
    errors: NDArray[np.float32]  # (member, check), of held-out rows
    # (member, check, held-out row, 1 + number of nearest anchors, output)
    predicted: NDArray[np.float32]

    def followed_by(self, other: TrainedMembers) -> TrainedMembers:
        """These members and then others, without errors and predictions."""
        parameters = {
            name: np.concatenate([value, other.parameters[name]])
            for name, value in self.parameters.items()
        }
        return self._replace(parameters=parameters)


def fit_problems(problems: list[TrainingProblem]) -> list[TrainedEnsemble]:
    """Train all problems, those that share a compiled program together."""
    groups: dict[tuple, list[int]] = {}
    for i, problem in enumerate(problems):
        program = (
            problem.options,
            round_up(problem.n_columns, 4),
            problem.y.shape[1],
            len(problem.folds),
            problem.partners is None,
            problem.is_wide,
            problem.bounds is None,
            problem.options.fold_members and i,  # each alone, as its errors determine the steps
        )
        groups.setdefault(program, []).append(i)
    results: dict[int, TrainedEnsemble] = {}
    for indices in groups.values():
        results.update(zip(indices, _fit_group([problems[i] for i in indices]), strict=True))
    return [results[i] for i in range(len(problems))]


def _fit_group(group: list[TrainingProblem]) -> list[TrainedEnsemble]:
    """Select settings by networks that hold out a fold; then train members on all rows.

    With a single validation set, the networks that hold out rows are the members.
    """
    options, n_folds = group[0].options, len(group[0].folds)
    n_members = options.effort.n_members
    settings = list(options.settings)
    if group[0].is_wide:
        settings = settings_of_wide_table(settings)
    if n_folds == 1:
        settings = [settings[i % len(settings)] for i in range(n_members)]
    config = training_config(group, settings)
    fold_steps, max_steps = options.steps(config.shape.n_features)
    fold_members = [
        EnsembleMember(setting, fold, number)
        for number, (setting, fold) in enumerate(product(settings, range(n_folds)))
    ]
    fold_steps = max_steps if n_folds == 1 else fold_steps
    n_trained = len(fold_members)
    if options.fold_members and n_folds > 1:
        in_trial = [member for member in fold_members if member.fold in range(_TRIAL_FOLDS)]
        trial = _train_members(config, group, [in_trial], fold_steps, trial=True)[0]
        kept, noise = _best_settings(group[0], trial.errors[:, -1])
        settings = [settings[i] for i in kept]
        fold_members = [fold_members[i * n_folds + fold] for i in kept for fold in range(n_folds)]
        fold_steps = fold_steps if noise >= _MUCH_NOISE else max_steps
    of_folds = _train_members(config, group, [fold_members] * len(group), fold_steps)
    if options.fold_members and n_folds > 1 and fold_steps < max_steps:
        errors = [_best_settings(group[0], e, n_folds)[1] for e in of_folds[0].errors.T]
        still_falls = errors[-1] < (1.0 - _LEAST_FALL) * errors[-1 - 2 * len(errors) // 5]
        if errors[-1] < _MUCH_NOISE or still_falls:
            of_folds = _train_members(config, group, [fold_members], max_steps)
        else:
            max_steps = fold_steps
    selections = [
        select_settings(problem, len(settings), trained)
        for problem, trained in zip(group, of_folds, strict=True)
    ]
    if n_folds == 1:
        return [
            selection.make_ensemble(
                config.shape, fold_members, trained, selection.of_fold_members()
            )
            for selection, trained in zip(selections, of_folds, strict=True)
        ]
    members = [selection.final_members(settings, n_trained) for selection in selections]
    of_all = _train_members(config, group, members, max_steps)
    ensembles = []
    for selection, final_members, trained, of_fold in zip(
        selections, members, of_all, of_folds, strict=True
    ):
        finite = converged(trained)
        weights = finite / finite.sum()
        if options.fold_members:
            final_members = fold_members + final_members
            trained = of_fold.followed_by(trained)
            weights = 0.5 * np.append(selection.of_fold_members(), weights)
        ensembles.append(selection.make_ensemble(config.shape, final_members, trained, weights))
    return ensembles


def train_again(problem: TrainingProblem, ensemble: TrainedEnsemble) -> TrainedEnsemble:
    """Train members of the same settings and numbers of steps again, on a changed problem.

    The out-of-fold predictions remain those by which the settings were selected.
    """
    members = list(ensemble.members)
    config = training_config([problem], [member.setting for member in members])
    _, max_steps = problem.options.steps(config.shape.n_features)
    (trained,) = _train_members(config, [problem], [members], max_steps)
    weights = ensemble.weights * converged(trained)
    weights /= weights.sum()
    return ensemble.selection.make_ensemble(config.shape, members, trained, weights)


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


# --- training -------------------------------------------------------------------------------------


def training_config(group: list[TrainingProblem], settings: list[Setting]) -> TrainingConfig:
    """Return the program for problems of one width; parts that no setting needs are omitted."""
    options = group[0].options
    n_features, batch_size = round_up(group[0].n_columns, 4), options.effort.batch_size
    has_embedding = any(setting.frequency_scale > 0 for setting in settings)
    shape = Shape(
        n_features=n_features,
        n_outputs=group[0].y.shape[1],
        hidden_sizes=options.hidden_sizes,
        n_frequencies=options.frequencies_per_feature(n_features) if has_embedding else 0,
        activation=options.activation,
        twin=options.twin,
    )
    with on_device(options.device, options.n_jobs):
        one_member = platform() == "cpu"
    return TrainingConfig(
        shape=shape,
        batch_points=max(2, batch_size // N_PARTNERS) if options.twin else batch_size,
        n_partners=N_PARTNERS if options.twin else 1,
        partner_table=group[0].partners is not None,
        loops=options.loop_weight > 0,
        censored=group[0].bounds is not None,
        dropout=any(setting.dropout > 0 for setting in settings),
        check_anchors=options.effort.check_anchors,
        n_nearest=options.n_nearest,
        one_member=one_member,
    )


def _train_members(
    config: TrainingConfig,
    group: list[TrainingProblem],
    members: list[list[EnsembleMember]],
    max_steps: int,
    *,
    trial: bool = False,
) -> list[TrainedMembers]:
    """Train the members of all problems, and predict the rows that they hold out.

    A trial ends after a fifth of the steps.
    """
    options = group[0].options
    problems, arrays = stack_problems(group, members, config.shape.n_features)
    n_checks = min(options.effort.n_checks, max_steps)
    steps = -(-max_steps // n_checks)
    with on_device(options.device, options.n_jobs):
        run = TrainingRun(config, problems, arrays, (steps, steps * n_checks), options.n_jobs)
        last_check = max(member.last_check for of_problem in members for member in of_problem)
        n_trained = -(-n_checks // 5) if trial else min(n_checks, last_check + 1)
        show = show_progress(range(n_trained), options.verbose, arrays.key.size)
        checks = [run.advance(check) for check in show]
        parameters = run.best
    errors = np.stack([check.error for check in checks], axis=2)
    predicted = np.stack([check.predicted for check in checks], axis=2)
    return [
        TrainedMembers(
            parameters={name: value[i] for name, value in parameters.items()},
            errors=errors[i],
            predicted=predicted[i],
        )
        for i in range(len(group))
    ]


def _best_settings(
    problem: TrainingProblem, errors: Floats, n_folds: int = _TRIAL_FOLDS
) -> tuple[Indices, float]:
    """Indices of the better half of the settings, and the least error in deviations of y.

    `errors` (setting and fold,) are those of the held-out rows of the first folds.
    """
    sizes = [problem.row_weight[fold].sum() for fold in problem.folds[:n_folds]]
    squares = np.where(np.isfinite(errors), errors, np.inf).astype(np.float64) ** 2
    of_settings = np.average(squares.reshape(-1, len(sizes)), axis=1, weights=sizes)
    best = of_settings.argsort(kind="stable")[: -(-len(of_settings) // 2)]
    return np.sort(best), float(np.sqrt(of_settings.min()))


def show_progress(checks: range, verbose: int, n_networks: int) -> Iterable[int]:
    """The checks of a training, with a progress bar where it is `verbose`."""
    if not verbose:
        return checks
    from rich.progress import track

    return track(checks, description=f"training {n_networks} networks")


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


# --- selection of settings ------------------------------------------------------------------------


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
    choice: int = 0  # of the predictions; after the first, one of the numbers of nearest anchors

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
        gates = np.array([member.setting.frequency_scale > 0 for member in members], np.float32)
        networks = TrainedNetworks(shape, include_scale(trained.parameters, scales), gates)
        return TrainedEnsemble(
            networks=networks.take(used),
            weights=weights[used],
            learning_curve=self.errors * np.sqrt(np.mean(problem.scale.y_spread**2)),
            n_members=len(weights),
            members=[members[i] for i in used],
            selection=self,
            out_of_fold=self.out_of_fold() if len(problem.folds) > 1 else None,
            n_nearest=(None, *problem.options.n_nearest)[self.choice],
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
    """Weigh the settings by predictions from all anchors or, where clearly better, the nearest."""
    selections = [weigh_settings(problem, n_settings, trained)]
    if len(problem.folds) > 1 and selections[0].converged.all():
        for choice in range(1, 1 + len(problem.options.n_nearest)):
            selections.append(weigh_settings(problem, n_settings, trained, choice))
    rows = problem.table.take(problem.table.known)
    rows = rows if rows.fold is None else rows.take(rows.held_out)
    errors = [rows.outputs - selection.out_of_fold()[rows.table_rows] for selection in selections]
    return selections[clearly_lowest(errors, rows.matrix, rows.weight)]


def weigh_settings(
    problem: TrainingProblem, n_settings: int, trained: TrainedMembers, choice: int = 0
) -> SettingSelection:
    """Weigh the settings: by greedy selection on the predictions of held-out rows, or equally.

    With a single fold, each network stops at the least error of its own held-out rows. With
    several, all networks of a setting stop at one check, chosen for each by the rows that others
    hold out, so that its predictions do not depend on the rows that it predicts. A `choice` after
    the first is one of the numbers of nearest anchors.
    """
    n_folds, rows = len(problem.folds), np.concatenate(problem.folds)
    n_members = problem.options.effort.n_members
    fold_converged = converged(trained).reshape(n_settings, n_folds)
    # (setting, fold, check, held-out row, output)
    held_out = trained.predicted[..., choice, :]
    held_out = held_out.reshape(n_settings, n_folds, *held_out.shape[1:])
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
        choice=choice,
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
