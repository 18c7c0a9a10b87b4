"""Fitting of ensembles: stack the problems, train all members together, weigh the members."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from twinned.models.neural.batch import Member, fold_members, stack_problems
from twinned.models.neural.device import on_device, platform
from twinned.models.neural.dispatch import TrainingRun, map_members
from twinned.models.neural.ensemble import Setting
from twinned.models.neural.inference import MemberParameters, predict_held_out
from twinned.models.neural.network import Shape
from twinned.models.neural.padding import round_up
from twinned.models.neural.parameters import (
    check_hidden_sizes,
    loop_weight,
    member_settings,
    refits_members,
    resolve_effort,
    resolve_n_frequencies,
    training_steps,
)
from twinned.models.neural.problem import TrainingProblem
from twinned.models.neural.published import resolve_schedule, steps_per_epoch, train_as_published
from twinned.models.neural.published_loss import PublishedConfig
from twinned.models.neural.selection import Selection, TrainedMembers, converged, select
from twinned.models.neural.training import MemberArrays, ProblemArrays, TrainingConfig
from twinned.rows.schema import Floats

# Other points of its batch that each point is paired with. In the same processor time, more points
# with fewer partners each have a lower out-of-fold error (`benchmarks/neural_partners.py`).
N_PARTNERS = 2

ShowProgress = Callable[[range], Iterable[int]]


class TrainedEnsemble(NamedTuple):
    """The trained networks of one problem; members without weight are dropped."""

    shape: Shape
    parameters: MemberParameters
    gates: NDArray[np.float32]  # (member,): 1 with periodic embedding, 0 without
    weights: Floats  # (member,), sum to one
    learning_curve: Floats  # (network that holds out rows, check) in units of y
    n_members: int  # with those that diverged
    out_of_fold: Floats | None  # (table row, output) in units of y


def fit_problems(
    estimator: Any, problems: list[TrainingProblem], twin: bool
) -> list[TrainedEnsemble]:
    """Train all problems, those that share a compiled program together."""
    groups: dict[Any, list[int]] = {}
    for i, problem in enumerate(problems):
        kind = (
            round_up(problem.n_columns, 4),
            problem.y.shape[1],
            len(problem.folds),
            problem.partners is None,
            problem.is_wide,
            problem.bounds is None,
            # the length of an epoch of the paper depends on the size of the problem
            None if estimator.recipe == "modern" else problem.n_train,
        )
        groups.setdefault(kind, []).append(i)
    results: dict[int, TrainedEnsemble] = {}
    for indices in groups.values():
        fitted = _fit_group(estimator, [problems[i] for i in indices], twin)
        results.update(zip(indices, fitted, strict=True))
    return [results[i] for i in range(len(problems))]


def _fit_group(estimator: Any, group: list[TrainingProblem], twin: bool) -> list[TrainedEnsemble]:
    """Select settings by networks that hold out a fold; then train members on all rows.

    With a single validation set, and in the paper's own training, the networks that hold out rows
    are the members.
    """
    effort, n_folds = resolve_effort(estimator), len(group[0].folds)
    settings = member_settings(estimator, group[0].is_wide)
    refits = refits_members(estimator, n_folds)
    if not refits:
        n_settings = max(1, effort.n_members // n_folds)
        settings = [settings[i % len(settings)] for i in range(n_settings)]
    config = training_config(estimator, group, settings, twin)
    train = partial(_train_members, estimator, config, group)
    fold_steps, max_steps = training_steps(estimator, config.shape.n_features)
    of_folds = [fold_members(problem, settings) for problem in group]
    trained = train(of_folds, fold_steps if refits else max_steps)
    selections = [
        select(problem, len(settings), own, estimator.selection, stop_together=refits)
        for problem, own in zip(group, trained, strict=True)
    ]
    if not refits:
        weights = [selection.of_fold_members() for selection in selections]
        return _ensembles(config, group, of_folds, trained, weights, selections)
    selections = [selection.allocate(effort.n_members) for selection in selections]
    first_number = len(settings) * n_folds
    members = [
        [
            Member(settings[setting], None, first_number + i, selection.stops[setting])
            for i, setting in enumerate(selection.settings_of_members(effort.n_members))
        ]
        for selection in selections
    ]
    final = train(members, max_steps)
    finite = [converged(own) for own in final]
    weights = [each / each.sum() for each in finite]
    curves = [
        own._replace(errors=of_fold.errors) for own, of_fold in zip(final, trained, strict=True)
    ]
    return _ensembles(config, group, members, curves, weights, selections)


def _ensembles(
    config: TrainingConfig,
    group: list[TrainingProblem],
    members: list[list[Member]],
    trained: list[TrainedMembers],
    weights: list[Floats],
    selections: list[Selection],
) -> list[TrainedEnsemble]:
    """Return the ensemble of each problem, without the members that have no weight."""

    def ensemble(
        problem: TrainingProblem,
        members: list[Member],
        trained: TrainedMembers,
        weights: Floats,
        selection: Selection,
    ) -> TrainedEnsemble:
        used = np.flatnonzero(weights)
        own = {name: value[used] for name, value in trained.parameters.items()}
        scales = np.stack([members[i].feature_scale(problem) for i in used])
        return TrainedEnsemble(
            shape=config.shape,
            parameters=_include_scale(own, scales),
            gates=np.array([members[i].setting.frequency_scale > 0 for i in used], np.float32),
            weights=weights[used],
            learning_curve=trained.errors * np.sqrt(np.mean(problem.scale.y_spread**2)),
            n_members=len(weights),
            out_of_fold=selection.out_of_fold() if len(problem.folds) > 1 else None,
        )

    each = zip(group, members, trained, weights, selections, strict=True)
    return [ensemble(*one) for one in each]


def _include_scale(parameters: MemberParameters, scales: Floats) -> MemberParameters:
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


def training_config(
    estimator: Any, group: list[TrainingProblem], settings: list[Setting], twin: bool
) -> TrainingConfig:
    """Return the program for problems of one width; parts that no setting needs are omitted."""
    effort = resolve_effort(estimator)
    n_features = round_up(group[0].n_columns, 4)
    has_embedding = any(setting.frequency_scale > 0 for setting in settings)
    shape = Shape(
        n_features=n_features,
        n_outputs=group[0].y.shape[1],
        hidden_sizes=check_hidden_sizes(estimator.hidden_sizes),
        n_frequencies=resolve_n_frequencies(estimator, n_features) if has_embedding else 0,
        activation=estimator.activation,
        twin=twin,
    )
    with on_device(estimator.device, estimator.n_jobs):
        one_member = platform() == "cpu"
    return TrainingConfig(
        shape=shape,
        batch_points=max(2, effort.batch_size // N_PARTNERS) if twin else effort.batch_size,
        n_partners=N_PARTNERS if twin else 1,
        partner_table=group[0].partners is not None,
        optimizer=estimator.optimizer,
        loops=loop_weight(estimator, twin) > 0,
        censored=group[0].bounds is not None,
        dropout=any(setting.dropout > 0 for setting in settings),
        check_anchors=effort.check_anchors,
        one_member=one_member,
    )


def _train_members(
    estimator: Any,
    config: TrainingConfig,
    group: list[TrainingProblem],
    members: list[list[Member]],
    max_steps: int,
) -> list[TrainedMembers]:
    """Train the members of all problems, and predict the rows that they hold out."""
    problems, arrays = stack_problems(
        group, members, config.shape.n_features, loop_weight(estimator, config.shape.twin)
    )
    n_networks = sum(len(own) for own in members)
    show_progress = partial(_show_progress, verbose=estimator.verbose, n_networks=n_networks)
    with on_device(estimator.device, estimator.n_jobs):
        if estimator.recipe == "modern":
            n_checks = min(resolve_effort(estimator).n_checks, max_steps)
            steps = -(-max_steps // n_checks)
            schedule = (steps, steps * n_checks)
            run = TrainingRun(config, problems, arrays, schedule, estimator.n_jobs)
            checks = [run.advance(check) for check in show_progress(range(n_checks))]
            parameters = run.best
            errors = np.stack([check.error for check in checks], axis=2)
            predicted = np.stack([check.predicted for check in checks], axis=2)
        else:
            parameters, errors = _train_published(
                estimator, config, group, problems, arrays, show_progress
            )
            program = partial(predict_held_out, config)
            predicted = map_members(
                config, program, problems, arrays, parameters, n_jobs=estimator.n_jobs
            )[:, :, None]
    return [
        TrainedMembers(
            {name: np.asarray(value[i]) for name, value in parameters.items()},
            errors[i],
            predicted[i],
        )
        for i in range(len(group))
    ]


def _train_published(
    estimator: Any,
    config: TrainingConfig,
    group: list[TrainingProblem],
    problems: ProblemArrays,
    members: MemberArrays,
    show_progress: ShowProgress,
) -> tuple[Any, NDArray[Any]]:
    """Return each member's last parameters, and (problem, member, epoch) errors."""
    schedule = resolve_schedule(estimator, config.shape.twin)
    batch_size = resolve_effort(estimator).batch_size
    published = PublishedConfig(
        shape=config.shape,
        batch_size=batch_size,
        triples=schedule.triples,
        partner_table=config.partner_table,
        loops=config.loops,
        optimizer=config.optimizer,
    )
    n_train = group[0].n_train - int(np.sum(group[0].folds[0] < group[0].n_train))
    steps = steps_per_epoch(n_train, batch_size, config.shape.twin)
    problems, members = jax.device_put((problems, members))
    return train_as_published(published, schedule, problems, members, steps, show_progress)


def _show_progress(checks: range, verbose: Any, n_networks: int) -> Iterator[int]:
    if not verbose:
        yield from checks
        return
    from rich.progress import track

    yield from track(checks, description=f"training {n_networks} networks")
