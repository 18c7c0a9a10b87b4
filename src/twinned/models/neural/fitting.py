"""Fitting of ensembles: train the members of all problems together, and select their settings.

An ensemble has a few *settings* (learning rate, dropout, weight decay, embedding, scale of the
features). Each is trained once for every *fold* of the training rows, which that network holds out.
So each setting has an out-of-fold prediction of every training row, and these predictions determine
how many of the final members, which are trained on all rows, have each setting.

In a blend, the networks that hold out a fold are members, too. Where errors are mostly noise,
settings that are behind after a fifth of few steps are stopped; elsewhere, those that are behind on
the first fold are not trained on the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from twinned.models.neural.device import on_device, platform
from twinned.models.neural.network import Shape, round_up
from twinned.models.neural.parameters import Setting, settings_of_wide_table
from twinned.models.neural.problem import TrainingProblem
from twinned.models.neural.selection import (
    TrainedEnsemble,
    TrainedMembers,
    converged,
    select_settings,
)
from twinned.models.neural.training import TrainingConfig
from twinned.models.neural.training_run import EnsembleMember, TrainingRun, stack_problems
from twinned.rows.schema import Floats, Indices

# Other points of its batch that each point is paired with. In the same processor time, more points
# with fewer partners each have a lower out-of-fold error (`benchmarks/results/neural_partners.md`).
N_PARTNERS = 2
_TRIAL_FOLDS = 2  # by which the better half of the settings is chosen
# Error of held-out rows in standard deviations of y: from here on, they are mostly noise, and more
# steps change next to nothing.
_MUCH_NOISE = 0.15
# Of the error of noisy targets in the last two fifths of few steps, with which more may help. The
# learning rate falls to zero there, which alone lowers the error by a few percent.
_LEAST_FALL = 0.1
# In the second half of all steps; with less, half of them suffice.
_LEAST_FALL_OF_HALF = 0.05
# Of the networks that hold out a fold, where errors are mostly noise, and elsewhere: there, those
# that are trained on all rows have smaller errors.
_FOLD_WEIGHT, _FOLD_WEIGHT_OF_LITTLE_NOISE = 0.5, 0.2


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
    settings = list(options.settings)
    if group[0].is_wide:
        settings = settings_of_wide_table(settings)
    if n_folds == 1:
        settings = [settings[i % len(settings)] for i in range(options.effort.n_members)]
    config = training_config(group, settings)
    n_trained = len(settings) * n_folds
    settings, fold_members, of_folds, max_steps, fold_weight = _train_on_folds(
        config, group, settings
    )
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
            of_fold_members = fold_weight * selection.of_fold_members()
            weights = np.append(of_fold_members, (1.0 - fold_weight) * weights)
        ensembles.append(selection.make_ensemble(config.shape, final_members, trained, weights))
    return ensembles


class FoldTraining(NamedTuple):
    """The networks that hold out a fold, and the steps that the other members take."""

    settings: list[Setting]  # those that were trained
    members: list[EnsembleMember]  # of all these settings and folds
    trained: list[TrainedMembers]  # of each problem
    max_steps: int  # of the members that train on all rows
    weight: float = _FOLD_WEIGHT  # of these networks, where they are members

    def with_other_folds(self, indices: Indices, others: FoldTraining) -> FoldTraining:
        """The networks of some settings that hold out the first fold, and those of the others."""
        members = [self.members[i] for i in indices] + others.members
        order = np.argsort([member.number for member in members])  # setting by setting

        def join(of_first: NDArray[Any], of_others: NDArray[Any]) -> NDArray[Any]:
            return np.concatenate([of_first[indices], of_others])[order]

        trained = jax.tree.map(join, self.trained[0], others.trained[0])
        return others._replace(members=[members[i] for i in order], trained=[trained])


def _train_on_folds(
    config: TrainingConfig, group: list[TrainingProblem], settings: list[Setting]
) -> FoldTraining:
    """Train networks that hold out a fold, and decide the steps of the members.

    With `fold_members`, a trial of few steps and folds comes first. Where errors are mostly noise,
    the better half of the settings is trained, with few steps; where they are not, or still fall,
    all settings are on the first fold, with all steps, and their better half on the other folds,
    with half of the steps where the others lowered the error little.
    """
    options, n_folds = group[0].options, len(group[0].folds)
    fold_steps, max_steps = options.steps(config.shape.n_features)

    def train(
        indices: Iterable[int], folds: Iterable[int], steps: int, *, trial: bool = False
    ) -> FoldTraining:
        chosen = [settings[i] for i in indices]
        members = [
            EnsembleMember(settings[i], fold, i * n_folds + fold) for i in indices for fold in folds
        ]
        trained = _train_members(config, group, [members] * len(group), steps, trial=trial)
        return FoldTraining(chosen, members, trained, max_steps)

    every, all_folds = range(len(settings)), range(n_folds)
    if n_folds == 1 or not options.fold_members:
        return train(every, all_folds, max_steps if n_folds == 1 else fold_steps)
    trial = train(every, all_folds[:_TRIAL_FOLDS], fold_steps, trial=True)
    better, error = _best_settings(group[0], trial.trained[0].errors[:, -1])
    if error >= _MUCH_NOISE:
        short = train(better, all_folds, fold_steps)
        errors = [_best_settings(group[0], e, n_folds)[1] for e in short.trained[0].errors.T]
        still_falls = errors[-1] < (1.0 - _LEAST_FALL) * errors[-1 - 2 * len(errors) // 5]
        if errors[-1] >= _MUCH_NOISE and not still_falls:
            return short._replace(max_steps=fold_steps)
    first = train(every, all_folds[:1], max_steps)
    errors = [_best_settings(group[0], e, 1)[1] for e in first.trained[0].errors.T]
    if errors[-1] > (1.0 - _LEAST_FALL_OF_HALF) * errors[(len(errors) - 1) // 2]:
        max_steps //= 2
    better, _ = _best_settings(group[0], first.trained[0].errors[:, -1], 1)
    others = train(better, all_folds[1:], max_steps)
    return first.with_other_folds(better, others._replace(weight=_FOLD_WEIGHT_OF_LITTLE_NOISE))


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
