"""From problems to trained members: pad to one shape, train together, choose.

Everything with a shape that the compiled program sees is rounded up to a few sizes, so that folds,
grid searches and data sets of about one size share one program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from numpy.typing import NDArray

from twinned._table import Floats
from twinned._validation import check_integer
from twinned.models.neural.dispatch import Run, run_once
from twinned.models.neural.ensemble import Effort, Setting, choose
from twinned.models.neural.inference import out_of_fold, round_up
from twinned.models.neural.network import Shape, platform
from twinned.models.neural.problem import Prepared, check_sizes, effort_of, settings_of
from twinned.models.neural.published import PublishedPlan, course_of, steps_per_epoch
from twinned.models.neural.published import train as train_as_published
from twinned.models.neural.training import Member, Plan, Problem

PARTNERS = 4  # how many others of its batch each point meets


class Fitted(NamedTuple):
    """What one problem's training came to."""

    parameters: dict[str, NDArray[np.float32]]  # leading axis: members that count
    embedded: NDArray[np.float32]
    weights: Floats
    curve: Floats  # (member, check) in units of y, all members
    n_members: int
    n_pairs: int  # that could be drawn, mirror images counted
    out_of_fold: Floats | None


def fit_prepared(estimator: Any, problems: list[Prepared], twin: bool) -> list[Fitted]:
    """Train all problems at once, those of one padded width together."""
    results: list[Fitted | None] = [None] * len(problems)
    groups: dict[Any, list[int]] = {}
    for i, problem in enumerate(problems):
        kind = (
            round_up(problem.X.shape[1], 4),
            problem.y.shape[1],
            len(problem.folds),
            problem.partners is None,
            # an epoch of the paper is as long as the problem is large
            None if estimator.recipe == "modern" else problem.n_learned,
        )
        groups.setdefault(kind, []).append(i)
    for members in groups.values():
        for i, fitted in zip(
            members, _fit_group(estimator, [problems[i] for i in members], twin), strict=True
        ):
            results[i] = fitted
    return [fitted for fitted in results if fitted is not None]


def _fit_group(estimator: Any, group: list[Prepared], twin: bool) -> list[Fitted]:
    effort = effort_of(estimator)
    n_folds = len(group[0].folds)
    n_settings = max(1, effort.n_members // n_folds)
    settings = settings_of(estimator, n_settings)
    plan = plan_of(estimator, group, settings, twin)
    shape, table = plan.shape, plan.partner_table
    show = partial(
        _with_progress, wanted=estimator.progress, n_networks=len(group) * len(settings) * n_folds
    )
    with on_device(estimator.device):
        problems, members = stack(group, settings, shape.n_features, _loop_weight(estimator, twin))
        if estimator.recipe == "modern":
            parameters, curves = _train(plan, problems, members, effort, show)
        else:
            course = course_of(estimator, twin)
            fold = group[0].folds[0]
            n_rows = group[0].n_learned - int(np.sum(fold < group[0].n_learned))
            published = PublishedPlan(
                shape, effort.batch_size, course.triples, table, plan.loops, plan.optimizer
            )
            steps = steps_per_epoch(n_rows, effort.batch_size, twin)
            problems, members = jax.device_put((problems, members))
            parameters, curves = train_as_published(
                published, course, problems, members, steps, show
            )
        left_out = run_once(plan, partial(out_of_fold, plan), problems, members, parameters)
    return [
        _choose_members(
            problem,
            settings,
            {name: value[i] for name, value in parameters.items()},
            curves[i],
            left_out[i],
            estimator.selection,
        )
        for i, problem in enumerate(group)
    ]


def plan_of(estimator: Any, group: list[Prepared], settings: list[Setting], twin: bool) -> Plan:
    """The program for problems of one width; what no setting wants is left out of it."""
    effort = effort_of(estimator)
    embedded = any(setting.frequency_scale > 0 for setting in settings)
    n_frequencies = check_integer("n_frequencies", estimator.n_frequencies, 0)
    shape = Shape(
        round_up(group[0].X.shape[1], 4),
        group[0].y.shape[1],
        check_sizes(estimator.hidden_sizes),
        n_frequencies if embedded else 0,
        estimator.activation,
        twin,
    )
    return Plan(
        shape,
        max(2, effort.batch_size // PARTNERS) if twin else effort.batch_size,
        PARTNERS if twin else 1,
        group[0].partners is not None,
        estimator.optimizer,
        _loop_weight(estimator, twin) > 0,
        any(setting.dropout > 0 for setting in settings),
        effort.check_anchors,
        in_turn=_platform_of(estimator.device) == "cpu",
    )


def _platform_of(device: Any) -> str:
    with on_device(device):
        return platform()


def _loop_weight(estimator: Any, twin: bool) -> float:
    return float(estimator.loop_weight) if twin else 0.0


def _train(
    plan: Plan, problems: Problem, members: Member, effort: Effort, show: Any
) -> tuple[Any, NDArray[Any]]:
    """Each member's best weights, and (problem, member, check) errors."""
    n_checks = min(effort.n_checks, effort.max_steps)
    steps = -(-effort.max_steps // n_checks)
    run = Run(plan, problems, members, (steps, steps * n_checks))
    curve = [run.advance(check) for check in show(range(n_checks))]
    return run.best, np.stack(curve, axis=-1)


def stack(
    group: list[Prepared], settings: list[Setting], n_features: int, loop_weight: float
) -> tuple[Problem, Member]:
    """All problems of a group in arrays of one shape, padded with rows that nobody draws."""
    n_rows = round_up(max(len(problem.X) for problem in group), 64)
    n_left = round_up(max(len(fold) for problem in group for fold in problem.folds), 32)

    def padded(values: Any, *shape: int, dtype: Any = np.float32) -> NDArray[Any]:
        out = np.zeros(shape, dtype=dtype)
        out[tuple(slice(size) for size in np.shape(values))] = values
        return out

    def stacked(of: Any, dtype: Any) -> Any:
        return np.stack([of(problem) for problem in group]).astype(dtype)

    n_outputs = group[0].y.shape[1]
    tables = [np.zeros((1, 1)) if p.partners is None else p.partners for p in group]
    width = max(table.shape[1] for table in tables)
    n_tabled = 1 if group[0].partners is None else n_rows
    problems = Problem(
        X=stacked(lambda p: padded(p.X, n_rows, n_features), np.float32),
        y=stacked(lambda p: padded(p.y, n_rows, n_outputs), np.float32),
        weight=stacked(lambda p: padded(p.row_weight, n_rows), np.float32),
        n_features=stacked(lambda p: np.int32(p.X.shape[1]), np.int32),
        partners=np.stack([padded(table, n_tabled, width, dtype=np.int32) for table in tables]),
        n_partners=np.array([table.shape[1] for table in tables], np.uint32),
    )

    def member(problem: Prepared, number: int, setting: Setting, fold: NDArray[np.intp]) -> Member:
        learned = np.setdiff1d(np.arange(problem.n_learned), fold)
        learns = np.zeros(n_rows, dtype=np.float32)
        learns[learned] = 1.0
        pool = np.zeros(1, dtype=np.int32)
        if loop_weight > 0:
            pool = padded(np.append(learned, problem.unlabelled), n_rows, dtype=np.int32)
        return Member(
            key=np.uint32((problem.seed + 7919 * number) % 2**32),
            rows=padded(learned, n_rows, dtype=np.int32),
            n_rows=np.int32(len(learned)),
            learns=learns,
            left_out=padded(fold, n_left, dtype=np.int32),
            n_left_out=np.int32(len(fold)),
            learning_rate=np.float32(setting.learning_rate),
            dropout=np.float32(setting.dropout),
            weight_decay=np.float32(setting.weight_decay),
            embedded=np.float32(setting.frequency_scale > 0),
            frequency_scale=np.float32(setting.frequency_scale),
            loop_weight=np.float32(loop_weight),
            pool=pool,
            n_pool=np.int32(len(learned) + len(problem.unlabelled)),
        )

    rows = []
    for problem in group:
        own = [
            member(problem, number, setting, fold)
            for number, (setting, fold) in enumerate(
                (setting, fold) for setting in settings for fold in problem.folds
            )
        ]
        rows.append([np.stack(field) for field in zip(*own, strict=True)])
    members = Member(*(np.stack(field) for field in zip(*rows, strict=True)))
    return problems, members


def _choose_members(
    problem: Prepared,
    settings: list[Setting],
    parameters: dict[str, NDArray[np.float32]],
    curve: Floats,
    left_out: NDArray[np.float32],
    selection: str,
) -> Fitted:
    """Weigh the settings by their predictions of left-out rows, and drop members without weight."""
    n_folds, rows = len(problem.folds), np.concatenate(problem.folds)
    by_setting = left_out.reshape(len(settings), n_folds, *left_out.shape[1:])
    predicted = np.concatenate(
        [by_setting[:, f, : len(fold)] for f, fold in enumerate(problem.folds)], axis=1
    ).astype(np.float64)
    if selection == "greedy" and len(rows):
        of_settings = choose(predicted, problem.y[rows], problem.row_weight[rows])
    else:
        of_settings = np.full(len(settings), 1.0 / len(settings))
    weights = np.repeat(of_settings / n_folds, n_folds)
    kept = np.flatnonzero(weights)
    embedded = np.repeat([float(s.frequency_scale > 0) for s in settings], n_folds)
    unseen = None
    if n_folds > 1:
        unseen = np.full_like(problem.y, np.nan)  # and so it stays where there is no label
        unseen[rows] = np.tensordot(of_settings, predicted, axes=1)
        unseen = (unseen * problem.scale.y_spread + problem.scale.y_mean)[problem.place]
        everyone = np.full((problem.n_table, unseen.shape[1]), np.nan)
        everyone[problem.rows] = unseen
        unseen = everyone
    return Fitted(
        {name: value[kept] for name, value in parameters.items()},
        embedded[kept].astype(np.float32),
        weights[kept],
        curve * np.sqrt(np.mean(problem.scale.y_spread**2)),
        len(weights),
        problem.n_learned**2 if problem.partners is None else problem.partners.size,
        unseen,
    )


@contextlib.contextmanager
def on_device(device: Any) -> Iterator[None]:
    """Compute on the device that JAX prefers ("auto"), or on the first "cpu" or "gpu"."""
    if device == "auto":
        yield
        return
    try:
        chosen = jax.devices(device)[0]
    except RuntimeError:
        raise ValueError(f"device={device!r} is not there; JAX sees {jax.devices()}.") from None
    with jax.default_device(chosen):
        yield


def _with_progress(checks: range, wanted: Any, n_networks: int) -> Iterator[int]:
    if not wanted:
        yield from checks
        return
    from rich.progress import track

    yield from track(checks, description=f"training {n_networks} networks")
