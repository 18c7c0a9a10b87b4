"""From a table to a problem: checked, scaled, with what is left out and who meets whom."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from twinned._neighbors import NeighborIndex
from twinned._table import Floats, Rows, TableSchema
from twinned._validation import (
    check_choice,
    check_integer,
    check_real,
    check_sample_weight,
    parse_memory_limit,
    validate_table,
    validate_target,
    validate_training_table,
)
from twinned.models.neural.ensemble import EFFORTS, SETTINGS, Effort, Setting, draw_folds, folds_for
from twinned.models.neural.network import ACTIVATIONS
from twinned.models.neural.published import RECIPES
from twinned.pairing.anchors import as_anchor_strategy
from twinned.pairing.pairs import as_pair_strategy
from twinned.pairing.weights import as_weight_strategy

_FLOAT64 = np.dtype(np.float64)


class Scale(NamedTuple):
    """Means and spreads that bring X and y to order one; constant columns stay as they are."""

    X_mean: Floats
    X_spread: Floats
    y_mean: Floats
    y_spread: Floats

    @classmethod
    def of(cls, points: Rows, y: Floats, weight: Floats, kind: str) -> Scale:
        share = (weight / weight.sum())[:, None]
        if kind == "signed_max":
            # the author's: X by its largest excess over the mean, y as it is
            mean = (share * points.numeric).sum(axis=0)
            most = (points.numeric - mean).max(axis=0, initial=0.0)
            zero, one = np.zeros(y.shape[1]), np.ones(y.shape[1])
            return cls(mean, _not_constant(most, mean), zero, one)

        def moments(values: Floats) -> tuple[Floats, Floats]:
            mean = (share * values).sum(axis=0)
            spread = np.sqrt((share * (values - mean) ** 2).sum(axis=0))
            return mean, _not_constant(spread, mean)

        return cls(*moments(points.numeric), *moments(y))

    def to_rows(self, points: Rows) -> Rows:
        scaled = (points.numeric - self.X_mean) / self.X_spread
        return Rows(scaled, points.one_hot, points.codes)


def _not_constant(spread: Floats, mean: Floats) -> Floats:
    return np.where(spread > 1e-12 * np.maximum(1.0, np.abs(mean)), spread, 1.0)


class Prepared(NamedTuple):
    """One problem, checked and scaled, before it is padded."""

    rows: NDArray[np.intp]  # of the table; those of weight zero are gone
    matrix: Floats  # encoded
    target: Floats  # as given, (n,) or (n, n_outputs)
    weight: Floats | None
    columns: TableSchema
    scale: Scale
    X: Floats  # scaled; after the `n_learned` to learn from come validation and unlabelled rows
    y: Floats
    row_weight: Floats
    n_learned: int
    place: NDArray[np.intp]  # where each row of `matrix` is in X
    folds: list[NDArray[np.intp]]  # what each fold leaves out
    seed: int
    partners: NDArray[np.int32] | None
    unlabelled: NDArray[np.intp]  # where they are in X
    n_table: int  # rows of the table that came


def effort_of(estimator: Any) -> Effort:
    """The word `effort`, with what the user set himself in its place."""
    check_choice("effort", estimator.effort, list(EFFORTS))
    effort = EFFORTS[estimator.effort]
    changes = {
        name: check_integer(name, getattr(estimator, name))
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
        name: check_real(name, getattr(estimator, name))
        for name in ("learning_rate", "dropout", "weight_decay")
        if getattr(estimator, name) is not None
    }
    if not isinstance(estimator.embedding, str):
        none = estimator.embedding is None
        fixed["frequency_scale"] = 0.0 if none else check_real("embedding", estimator.embedding)
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
    matrix, columns = validate_training_table(
        estimator, X, estimator.categorical_features, allow_nan=False, pair_dtype=_FLOAT64
    )
    n_table = len(matrix)
    loops = twin and _loop_weight(estimator) > 0
    target = validate_target(estimator, y, n_table, multi_output=True, unlabelled=loops)
    weight = check_sample_weight(sample_weight, n_table)
    labelled = ~np.isnan(target.reshape(n_table, -1)).any(axis=1)
    without_label = matrix[~labelled]
    rows = np.flatnonzero(labelled if weight is None else labelled & (weight > 0))
    if len(rows) < 2:
        raise ValueError(f"y has {len(rows)} known values in {n_table} rows; a twin needs two.")
    matrix, target = matrix[rows], target[rows]
    weight = None if weight is None else weight[rows]
    n = len(matrix)
    # a generator of our own: problems that share one seed then draw alike, in any number
    rng = np.random.RandomState(check_random_state(estimator.random_state).randint(2**31 - 1))
    seed = int(rng.randint(2**31 - 1))
    of_rows = np.ones(n) if weight is None else weight / weight.mean()
    known = target.reshape(n, -1)
    points = columns.to_rows(matrix)
    check_choice("recipe", estimator.recipe, list(RECIPES))
    check_choice("scaling", estimator.scaling, ["standard", "signed_max"])
    scale = Scale.of(points, known, of_rows, estimator.scaling)
    wide, place = scale.to_rows(points).features, np.arange(n)
    if estimator.recipe == "modern":
        wide, known, of_rows, place = _distinct_rows(wide, known, of_rows)
    n = len(wide)
    effort = effort_of(estimator)
    check_choice("selection", estimator.selection, ["greedy", "mean"])
    check_choice("activation", estimator.activation, list(ACTIVATIONS))
    check_choice("optimizer", estimator.optimizer, ["adamw", "adadelta"])
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
        val_matrix, _ = validate_table(
            estimator, X_val, columns, allow_nan=False, pair_dtype=_FLOAT64
        )
        val_y = validate_target(estimator, y_val, len(val_matrix), multi_output=target.ndim == 2)
        wide = np.concatenate([wide, scale.to_rows(columns.to_rows(val_matrix)).features])
        known = np.concatenate([known, val_y.reshape(len(val_y), -1)])
        of_rows = np.concatenate([of_rows, np.ones(len(val_y))])
        folds = [np.arange(n, len(wide))]
    unlabelled = len(wide) + np.arange(len(without_label))
    if len(unlabelled):
        wide = np.concatenate([wide, scale.to_rows(columns.to_rows(without_label)).features])
        known = np.concatenate([known, np.tile(scale.y_mean, (len(unlabelled), 1))])
        of_rows = np.concatenate([of_rows, np.zeros(len(unlabelled))])
    partners = None
    if twin:
        as_weight_strategy(estimator.weights)
        as_anchor_strategy(estimator.anchors).keep(len(matrix), np.random.RandomState(0))
        parse_memory_limit(estimator.memory_limit)
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
        unlabelled,
        n_table,
    )


def _loop_weight(estimator: Any) -> float:
    weight = check_real("loop_weight", estimator.loop_weight)
    if not 0 <= weight < np.inf:
        raise ValueError(f"loop_weight must not be negative, but is {estimator.loop_weight!r}.")
    return weight


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
    fraction = check_real("validation_fraction", value)
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
    first, second = strategy.draw(n, lambda metric: NeighborIndex(wide, metric), rng)
    if estimator.recipe == "modern":
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


def check_sizes(hidden_sizes: Any) -> tuple[int, ...]:
    """One or more layer widths."""
    try:
        sizes = tuple(check_integer("hidden_sizes", size) for size in hidden_sizes)
    except TypeError:
        raise TypeError(
            f"hidden_sizes must be widths such as (128, 128), not {hidden_sizes!r}."
        ) from None
    if not sizes:
        raise ValueError("hidden_sizes must name at least one layer, not ().")
    return sizes
