"""Fitting of ensembles: stack the problems, train all members together, weigh the members."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from twinned._table import Floats
from twinned.models.neural.batch import stack_problems
from twinned.models.neural.device import on_device, platform
from twinned.models.neural.dispatch import TrainingRun, map_members
from twinned.models.neural.ensemble import Effort, Setting, select_settings
from twinned.models.neural.inference import MemberParameters, predict_held_out
from twinned.models.neural.network import Shape
from twinned.models.neural.padding import round_up
from twinned.models.neural.parameters import (
    check_hidden_sizes,
    loop_weight,
    member_settings,
    resolve_effort,
    resolve_n_frequencies,
)
from twinned.models.neural.problem import TrainingProblem
from twinned.models.neural.published import resolve_schedule, steps_per_epoch, train_as_published
from twinned.models.neural.published_loss import PublishedConfig
from twinned.models.neural.training import MemberArrays, ProblemArrays, TrainingConfig

N_PARTNERS = 4  # other points of its batch that each point is paired with

ShowProgress = Callable[[range], Iterable[int]]


class TrainedEnsemble(NamedTuple):
    """The trained networks of one problem; members without weight are dropped."""

    shape: Shape
    parameters: MemberParameters
    gates: NDArray[np.float32]  # (member,): 1 with periodic embedding, 0 without
    weights: Floats  # (member,), sum to one
    learning_curve: Floats  # (member, check) in units of y, of all members
    n_members: int  # that were trained
    out_of_fold: Floats | None  # (table row, output) in units of y


class _TrainedMembers(NamedTuple):
    """The trained networks of one problem, and their predictions; leading axis member."""

    parameters: MemberParameters
    errors: NDArray[np.float32]  # (member, check), of held-out rows
    held_out: NDArray[np.float32]  # (member, held-out row, output): their predictions


def fit_problems(
    estimator: Any, problems: list[TrainingProblem], twin: bool
) -> list[TrainedEnsemble]:
    """Train all problems, those that share a compiled program together."""
    groups: dict[Any, list[int]] = {}
    for i, problem in enumerate(problems):
        kind = (
            round_up(problem.X.shape[1], 4),
            problem.y.shape[1],
            len(problem.folds),
            problem.partners is None,
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
    n_folds = len(group[0].folds)
    settings = member_settings(estimator, max(1, resolve_effort(estimator).n_members // n_folds))
    config = training_config(estimator, group, settings, twin)
    problems, members = stack_problems(
        group, settings, config.shape.n_features, loop_weight(estimator, twin)
    )
    show_progress = partial(
        _show_progress,
        verbose=estimator.verbose,
        n_networks=len(group) * len(settings) * n_folds,
    )
    train = _train if estimator.recipe == "modern" else _train_published
    with on_device(estimator.device):
        parameters, errors = train(estimator, config, group, problems, members, show_progress)
        held_out = map_members(
            config, partial(predict_held_out, config), problems, members, parameters
        )

    def ensemble(i: int, problem: TrainingProblem) -> TrainedEnsemble:
        own = {name: value[i] for name, value in parameters.items()}
        members = _TrainedMembers(own, errors[i], held_out[i])
        return _weigh_members(config.shape, problem, settings, members, estimator.selection)

    return [ensemble(i, problem) for i, problem in enumerate(group)]


def training_config(
    estimator: Any, group: list[TrainingProblem], settings: list[Setting], twin: bool
) -> TrainingConfig:
    """Return the program for problems of one width; parts that no setting needs are omitted."""
    effort = resolve_effort(estimator)
    n_features = round_up(group[0].X.shape[1], 4)
    has_embedding = any(setting.frequency_scale > 0 for setting in settings)
    shape = Shape(
        n_features=n_features,
        n_outputs=group[0].y.shape[1],
        hidden_sizes=check_hidden_sizes(estimator.hidden_sizes),
        n_frequencies=resolve_n_frequencies(estimator, n_features) if has_embedding else 0,
        activation=estimator.activation,
        twin=twin,
    )
    with on_device(estimator.device):
        one_member = platform() == "cpu"
    return TrainingConfig(
        shape=shape,
        batch_points=max(2, effort.batch_size // N_PARTNERS) if twin else effort.batch_size,
        n_partners=N_PARTNERS if twin else 1,
        partner_table=group[0].partners is not None,
        optimizer=estimator.optimizer,
        loops=loop_weight(estimator, twin) > 0,
        dropout=any(setting.dropout > 0 for setting in settings),
        check_anchors=effort.check_anchors,
        one_member=one_member,
    )


def _train(
    estimator: Any,
    config: TrainingConfig,
    group: list[TrainingProblem],
    problems: ProblemArrays,
    members: MemberArrays,
    show_progress: ShowProgress,
) -> tuple[Any, NDArray[Any]]:
    """Return each member's best parameters, and (problem, member, check) errors."""
    effort: Effort = resolve_effort(estimator)
    n_checks = min(effort.n_checks, effort.max_steps)
    steps = -(-effort.max_steps // n_checks)
    run = TrainingRun(config, problems, members, (steps, steps * n_checks))
    errors = [run.advance(check) for check in show_progress(range(n_checks))]
    return run.best, np.stack(errors, axis=-1)


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


def _weigh_members(
    shape: Shape,
    problem: TrainingProblem,
    settings: list[Setting],
    trained: _TrainedMembers,
    selection: str,
) -> TrainedEnsemble:
    """Weigh the settings by their out-of-fold predictions, and drop members without weight."""
    n_settings, n_folds = len(settings), len(problem.folds)
    converged = _converged(trained).reshape(n_settings, n_folds)
    held_out = trained.held_out.reshape(n_settings, n_folds, *trained.held_out.shape[1:])
    predicted = np.concatenate(
        [held_out[:, f, : len(fold)] for f, fold in enumerate(problem.folds)], axis=1
    ).astype(np.float64)
    rows = np.concatenate(problem.folds)
    of_settings = np.full(n_settings, 1.0 / n_settings)
    complete = converged.all(axis=1)  # only these settings have predictions of all rows
    if selection == "greedy" and len(rows) and complete.any():
        of_settings = np.zeros(n_settings)
        of_settings[complete] = select_settings(
            predicted[complete], problem.y[rows], problem.row_weight[rows]
        )
    weights = np.repeat(of_settings / n_folds, n_folds)
    if not converged.all():
        weights = weights * converged.ravel()
        weights /= weights.sum()
    used = np.flatnonzero(weights)
    out_of_fold = None
    if n_folds > 1:
        by_row = np.repeat(converged, [len(fold) for fold in problem.folds], axis=1)
        mean = _mean_over_settings(predicted, of_settings, by_row)
        out_of_fold = _in_table_order(problem, rows, mean)
    gates = np.repeat([float(setting.frequency_scale > 0) for setting in settings], n_folds)
    return TrainedEnsemble(
        shape=shape,
        parameters={name: value[used] for name, value in trained.parameters.items()},
        gates=gates[used].astype(np.float32),
        weights=weights[used],
        learning_curve=trained.errors * np.sqrt(np.mean(problem.scale.y_spread**2)),
        n_members=len(weights),
        out_of_fold=out_of_fold,
    )


def _converged(trained: _TrainedMembers) -> NDArray[np.bool_]:
    """(member,): False for members with an infinite or NaN loss before their first check.

    Their parameters are the initial ones, or not finite.
    """
    converged: NDArray[np.bool_] = np.asarray(np.isfinite(trained.errors).any(axis=-1))
    for value in (*trained.parameters.values(), trained.held_out):
        converged &= np.isfinite(value).reshape(len(value), -1).all(axis=1)
    n_diverged = int((~converged).sum())
    if n_diverged == len(converged):
        raise ValueError(
            f"All {n_diverged} networks diverged: their loss is infinite or NaN. Use a smaller "
            "learning_rate."
        )
    if n_diverged:
        warnings.warn(
            f"{n_diverged} of {len(converged)} networks diverged (their loss is infinite or NaN) "
            "and are excluded from the ensemble; use a smaller learning_rate.",
            ConvergenceWarning,
            stacklevel=2,
        )
    return converged


def _mean_over_settings(
    predicted: Floats, of_settings: Floats, converged: NDArray[np.bool_]
) -> Floats:
    """(row, output): weighted mean of (setting, row, output) over the settings that converged.

    NaN for rows that no network with a weight predicts.
    """
    if converged.all():
        return np.tensordot(of_settings, predicted, axes=1)
    weight = (of_settings[:, None] * converged)[..., None]
    with np.errstate(invalid="ignore"):  # 0 / 0
        return np.where(weight > 0, weight * predicted, 0.0).sum(axis=0) / weight.sum(axis=0)


def _in_table_order(problem: TrainingProblem, rows: NDArray[np.intp], predicted: Floats) -> Floats:
    """(table row, output) in units of y; NaN for rows without a label or a weight.

    `predicted` (row, output) belongs to the training rows `rows`, of which equal ones are merged.
    """
    scaled = np.full_like(problem.y, np.nan)
    scaled[rows] = predicted
    table = np.full((problem.table.n_rows, scaled.shape[1]), np.nan)
    unscaled = problem.scale.inverse_transform_y(scaled)
    table[problem.table.indices] = unscaled[problem.merged_into]
    return table


def _show_progress(checks: range, verbose: Any, n_networks: int) -> Iterator[int]:
    if not verbose:
        yield from checks
        return
    from rich.progress import track

    yield from track(checks, description=f"training {n_networks} networks")
