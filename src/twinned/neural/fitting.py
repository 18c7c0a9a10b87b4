"""From tables to trained members: prepare problems, pad them to one shape, train, choose.

Everything with a shape that the compiled program sees is rounded up to a few sizes, so that folds,
grid searches and data sets of about one size share one program.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from twinned._validation import (
    check_choice,
    check_count,
    check_number,
    check_target,
    check_weights,
    open_table,
    open_training_table,
    parse_memory,
)
from twinned.anchors import as_anchor_strategy, as_weight_strategy
from twinned.columns import Columns, Floats, Points
from twinned.neighbours import NeighbourIndex
from twinned.neural.ensemble import (
    EFFORTS,
    SETTINGS,
    Effort,
    Setting,
    choose,
    draw_folds,
    folds_for,
)
from twinned.neural.inference import out_of_fold, round_up
from twinned.neural.network import ACTIVATIONS, Shape
from twinned.neural.training import Member, Plan, Problem, advance, start
from twinned.pairs import as_pair_strategy

N_CHECKS = 20
PARTNERS = 4  # how many others of its batch each point meets
_FLOAT64 = np.dtype(np.float64)


class Scale(NamedTuple):
    """Means and spreads that bring X and y to order one; constant columns stay as they are."""

    X_mean: Floats
    X_spread: Floats
    y_mean: Floats
    y_spread: Floats

    @classmethod
    def of(cls, points: Points, y: Floats, weight: Floats) -> Scale:
        share = (weight / weight.sum())[:, None]

        def moments(values: Floats) -> tuple[Floats, Floats]:
            mean = (share * values).sum(axis=0)
            spread = np.sqrt((share * (values - mean) ** 2).sum(axis=0))
            return mean, np.where(spread > 1e-12 * np.maximum(1.0, np.abs(mean)), spread, 1.0)

        return cls(*moments(points.numeric), *moments(y))

    def points(self, points: Points) -> Points:
        scaled = (points.numeric - self.X_mean) / self.X_spread
        return Points(scaled, points.hot, points.codes)


class Prepared(NamedTuple):
    """One problem, checked and scaled, before it is padded."""

    rows: NDArray[np.intp]  # of the table; those of weight zero are gone
    matrix: Floats  # encoded
    target: Floats  # as given, (n,) or (n, n_outputs)
    weight: Floats | None
    columns: Columns
    scale: Scale
    X: Floats  # scaled and distinct; validation rows follow the `n_learned` to learn from
    y: Floats
    row_weight: Floats
    n_learned: int
    place: NDArray[np.intp]  # where each row of `matrix` is in X
    folds: list[NDArray[np.intp]]  # what each fold leaves out
    seed: int
    partners: NDArray[np.int32] | None


class Fitted(NamedTuple):
    """What one problem's training came to."""

    parameters: dict[str, NDArray[np.float32]]  # leading axis: members that count
    embedded: NDArray[np.float32]
    weights: Floats
    curve: Floats  # (member, check) in units of y, all members
    n_members: int
    n_pairs: int  # that could be drawn, mirror images counted
    out_of_fold: Floats | None


def effort_of(estimator: Any) -> Effort:
    """The word `effort`, with what the user set himself in its place."""
    check_choice("effort", estimator.effort, list(EFFORTS))
    effort = EFFORTS[estimator.effort]
    changes = {
        name: check_count(name, getattr(estimator, name))
        for name in ("n_members", "max_steps", "batch_size", "n_folds")
        if getattr(estimator, name) is not None
    }
    effort = effort._replace(**changes)
    if estimator.n_folds is None:
        effort = effort._replace(n_folds=folds_for(effort.n_members, effort.n_folds))
    if effort.n_members % effort.n_folds:
        raise ValueError(
            f"n_members={effort.n_members} cannot be shared evenly by n_folds={effort.n_folds}."
        )
    return effort


def settings_of(estimator: Any, n_settings: int) -> list[Setting]:
    """The members' hyperparameters: those given, and the ensemble's own for those left at None."""
    fixed = {
        name: check_number(name, getattr(estimator, name))
        for name in ("learning_rate", "dropout", "weight_decay")
        if getattr(estimator, name) is not None
    }
    if not isinstance(estimator.embedding, str):
        none = estimator.embedding is None
        fixed["frequency_scale"] = 0.0 if none else check_number("embedding", estimator.embedding)
    else:
        check_choice("embedding", estimator.embedding, ["auto"], ", a number or None")
    chosen = [SETTINGS[i % len(SETTINGS)]._replace(**fixed) for i in range(n_settings)]
    for setting in chosen:
        if not (setting.learning_rate > 0 and 0 <= setting.dropout < 1):
            raise ValueError(
                f"learning_rate must be positive and dropout in [0, 1), not {setting[:2]}."
            )
        if not (setting.weight_decay >= 0 and setting.frequency_scale >= 0):
            raise ValueError(
                f"weight_decay and embedding must not be negative, but are {setting[2:]}."
            )
    return chosen


def prepare(
    estimator: Any, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any, twin: bool
) -> Prepared:
    """Check at the door, scale, and decide what is left out and who meets whom."""
    matrix, columns = open_training_table(
        estimator, X, estimator.categorical_features, allow_nan=False, pair_dtype=_FLOAT64
    )
    target = check_target(estimator, y, len(matrix), multi_output=True)
    weight = check_weights(sample_weight, len(matrix))
    rows = np.arange(len(matrix)) if weight is None else np.flatnonzero(weight)
    matrix, target = matrix[rows], target[rows]
    weight = None if weight is None else weight[rows]
    n = len(matrix)
    # a generator of our own: problems that share one seed then draw alike, in any number
    rng = np.random.RandomState(check_random_state(estimator.random_state).randint(2**31 - 1))
    seed = int(rng.randint(2**31 - 1))
    of_rows = np.ones(n) if weight is None else weight / weight.mean()
    known = target.reshape(n, -1)
    points = columns.points(matrix)
    scale = Scale.of(points, known, of_rows)
    wide, known, of_rows, place = _distinct_rows(scale.points(points).wide, known, of_rows)
    n = len(wide)
    effort = effort_of(estimator)
    check_choice("selection", estimator.selection, ["greedy", "mean"])
    check_choice("activation", estimator.activation, list(ACTIVATIONS))
    check_choice("optimiser", estimator.optimiser, ["adamw", "adadelta"])
    check_choice("device", estimator.device, ["auto", "cpu", "gpu"])
    check_sizes(estimator.hidden_sizes)
    settings_of(estimator, 1)
    if X_val is None and y_val is None:
        n_folds = min(effort.n_folds, n)
        folds = draw_folds(n, n_folds, _fraction(estimator.validation_fraction), seed)
    else:
        if X_val is None or y_val is None:
            missing = "X_val" if X_val is None else "y_val"
            raise ValueError(f"X_val and y_val belong together, but {missing} is None.")
        val_matrix, _ = open_table(estimator, X_val, columns, allow_nan=False, pair_dtype=_FLOAT64)
        val_y = check_target(estimator, y_val, len(val_matrix), multi_output=target.ndim == 2)
        wide = np.concatenate([wide, scale.points(columns.points(val_matrix)).wide])
        known = np.concatenate([known, val_y.reshape(len(val_y), -1)])
        of_rows = np.concatenate([of_rows, np.ones(len(val_y))])
        folds = [np.arange(n, len(wide))]
    partners = None
    if twin:
        as_weight_strategy(estimator.weights)
        as_anchor_strategy(estimator.anchors).keep(len(matrix), np.random.RandomState(0))
        parse_memory(estimator.memory_limit)
        partners = _partner_table(estimator, wide[:n], rng)
    return Prepared(
        rows,
        matrix,
        target,
        weight,
        columns,
        scale,
        wide,
        (known - scale.y_mean) / scale.y_spread,
        of_rows,
        n,
        place,
        folds,
        seed,
        partners,
    )


def _distinct_rows(
    X: Floats, y: Floats, weight: Floats
) -> tuple[Floats, Floats, Floats, NDArray[np.intp]]:
    """Equal rows as one that weighs their sum, in an order that depends on the values alone.

    The last result tells where each row went.

    So a repeated row is the same as a weight, to the last bit; and no row is both learned from and
    left out, which would flatter the members that memorise.
    """
    both, place = np.unique(np.column_stack([X, y]), axis=0, return_inverse=True)
    place = place.ravel()
    total = np.bincount(place, weights=weight)
    return both[:, : X.shape[1]], both[:, X.shape[1] :], total / total.mean(), place


def _fraction(value: Any) -> float:
    fraction = check_number("validation_fraction", value)
    if not 0 <= fraction < 1:
        raise ValueError(f"validation_fraction must be in [0, 1), not {value!r}.")
    return fraction


def _partner_table(estimator: Any, wide: Floats, rng: Any) -> NDArray[np.int32] | None:
    """(row, partner) for random or nearest pairs; None where every pair may be drawn."""
    n = len(wide)
    pairs = "all" if isinstance(estimator.pairs, str) and estimator.pairs == "auto" else None
    strategy = as_pair_strategy(pairs or estimator.pairs, n, None, mirrored=True)
    if getattr(strategy, "both_orders", False):
        return None
    first, second = strategy.draw(n, lambda metric: NeighbourIndex(wide, metric), rng)
    # both points of a pair may be the one that is drawn
    first, second = np.concatenate([first, second]), np.concatenate([second, first])
    order = np.argsort(first, kind="stable")
    counts = np.bincount(first, minlength=n)
    starts = np.cumsum(counts) - counts
    width = int(counts.max())
    # a point with fewer partners meets them in turn, so each counts the same for it
    places = np.arange(width) % np.maximum(counts, 1)[:, None]
    table = second[order][np.minimum(starts[:, None] + places, len(order) - 1)]
    return np.where(counts[:, None] > 0, table, np.arange(n)[:, None]).astype(np.int32)


def fit_prepared(estimator: Any, problems: list[Prepared], twin: bool) -> list[Fitted]:
    """Train all problems at once, those of one padded width together."""
    results: list[Fitted | None] = [None] * len(problems)
    groups: dict[Any, list[int]] = {}
    for i, problem in enumerate(problems):
        kind = (
            round_up(problem.X.shape[1], 4),
            problem.y.shape[1],
            len(problem.folds),
            None if problem.partners is None else problem.partners.shape[1],
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
    shape = Shape(
        round_up(group[0].X.shape[1], 4),
        group[0].y.shape[1],
        check_sizes(estimator.hidden_sizes),
        check_count("n_frequencies", estimator.n_frequencies, 0),
        estimator.activation,
        twin,
    )
    table = group[0].partners is not None
    points = max(2, effort.batch_size // PARTNERS) if twin else effort.batch_size
    plan = Plan(shape, points, PARTNERS if twin else 1, table, estimator.optimiser)
    problems, members = _stack(group, settings, shape.n_features)
    n_checks = min(N_CHECKS, effort.max_steps)
    steps = -(-effort.max_steps // n_checks)
    schedule = jnp.array([steps, steps * n_checks], jnp.int32)
    with on_device(estimator.device):
        state = start(plan, problems, members)
        curve = []
        for check in _with_progress(n_checks, estimator.progress, len(group) * len(settings)):
            state, error = advance(plan, problems, members, state, jnp.int32(check), schedule)
            curve.append(error)
        left_out = np.asarray(out_of_fold(plan, problems, members, state.best))
        parameters = jax.tree.map(np.asarray, state.best)
    curves = np.stack([np.asarray(error) for error in curve], axis=-1)
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


def _stack(
    group: list[Prepared], settings: list[Setting], n_features: int
) -> tuple[Problem, Member]:
    """All problems of a group in arrays of one shape, padded with rows that nobody draws."""
    n_rows = round_up(max(len(problem.X) for problem in group), 64)
    n_left = round_up(max(len(fold) for problem in group for fold in problem.folds), 32)

    def padded(values: Any, *shape: int, dtype: Any = np.float32) -> NDArray[Any]:
        out = np.zeros(shape, dtype=dtype)
        out[tuple(slice(size) for size in np.shape(values))] = values
        return out

    def stacked(of: Any, dtype: Any) -> Any:
        return jnp.asarray(np.stack([of(problem) for problem in group]).astype(dtype))

    n_outputs = group[0].y.shape[1]
    width = 1 if group[0].partners is None else group[0].partners.shape[1]
    problems = Problem(
        X=stacked(lambda p: padded(p.X, n_rows, n_features), np.float32),
        y=stacked(lambda p: padded(p.y, n_rows, n_outputs), np.float32),
        weight=stacked(lambda p: padded(p.row_weight, n_rows), np.float32),
        n_features=stacked(lambda p: np.int32(p.X.shape[1]), np.int32),
        partners=stacked(
            lambda p: padded(
                np.zeros((1, 1)) if p.partners is None else p.partners,
                1 if p.partners is None else n_rows,
                width,
                dtype=np.int32,
            ),
            np.int32,
        ),
    )

    def member(problem: Prepared, number: int, setting: Setting, fold: NDArray[np.intp]) -> Member:
        learned = np.setdiff1d(np.arange(problem.n_learned), fold)
        learns = np.zeros(n_rows, dtype=np.float32)
        learns[learned] = 1.0
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
    members = Member(*(jnp.asarray(np.stack(field)) for field in zip(*rows, strict=True)))
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
        unseen = np.empty_like(problem.y)
        unseen[rows] = np.tensordot(of_settings, predicted, axes=1)
        unseen = (unseen * problem.scale.y_spread + problem.scale.y_mean)[problem.place]
    return Fitted(
        {name: value[kept] for name, value in parameters.items()},
        embedded[kept].astype(np.float32),
        weights[kept],
        curve * np.sqrt(np.mean(problem.scale.y_spread**2)),
        len(weights),
        problem.n_learned**2 if problem.partners is None else problem.partners.size,
        unseen,
    )


def check_sizes(hidden_sizes: Any) -> tuple[int, ...]:
    """One or more layer widths."""
    try:
        sizes = tuple(check_count("hidden_sizes", size) for size in hidden_sizes)
    except TypeError:
        raise TypeError(
            f"hidden_sizes must be widths such as (128, 128), not {hidden_sizes!r}."
        ) from None
    if not sizes:
        raise ValueError("hidden_sizes must name at least one layer, not ().")
    return sizes


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


def _with_progress(n_checks: int, wanted: Any, n_settings: int) -> Iterator[int]:
    if not wanted:
        yield from range(n_checks)
        return
    from rich.progress import track

    yield from track(range(n_checks), description=f"training {n_settings} settings")
