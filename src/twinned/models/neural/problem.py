"""A training problem: a table that is scaled and split into folds, with inputs of each network."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from twinned.batches.estimation import remove_deviations
from twinned.models.learned_metric import MetricCache
from twinned.models.measurement_errors import weigh_by_error
from twinned.models.neural.inputs import (
    MergedRows,
    NetworkInputs,
    Scale,
    select_inputs,
    selects_features,
)
from twinned.models.neural.parameters import NetworkOptions, resolve_options
from twinned.pairing.anchors import as_anchor_strategy, uses_learned_metric
from twinned.pairing.pairs import as_pair_strategy
from twinned.rows.folds import Folds, equal_features, row_folds
from twinned.rows.neighbors import LearnedMetric, NeighborIndex
from twinned.rows.schema import Floats, Indices, Rows, mark_missing
from twinned.rows.training import TargetBounds, TrainingRows, validate_training_rows
from twinned.rows.validation import draw_seed, validate_table, validate_target


def prepare_rows(rows: TrainingRows, batch_effect: str = "offset") -> TrainingRows:
    """The labelled rows of positive weight, without effects of batches, and unlabelled ones."""
    labelled = ~np.isnan(rows.outputs).any(axis=1)
    present = np.array(labelled if rows.weight is None else labelled & (rows.weight > 0))
    if (n := present.sum()) < 2:
        raise ValueError(f"y has {n} known values in {len(rows)} rows; a twin needs two.")
    # rows of weight 0 are as if they were not there
    schema = mark_missing(rows.schema, rows.of_positive_weight().matrix)
    prepared = replace(rows.take(present), schema=schema)
    prepared = weigh_by_error(remove_deviations(prepared, batch_effect, shrinks=False))
    return replace(
        prepared,
        unlabelled=rows.matrix[~labelled],
        bounds=prepared.bounds if prepared.censored.any() else None,
    )


@dataclass(frozen=True)
class TrainingProblem:
    """One training problem, before it is padded.

    The rows of `X`, `y` and `row_weight` are `n_train` training rows (equal ones merged), then
    validation rows, then unlabelled rows.
    """

    options: NetworkOptions
    table: TrainingRows
    scale: Scale
    selected: Indices  # features of the table that are inputs of the members
    columns: Indices  # of the encoded features, which X has
    X: Floats  # (row, column), scaled
    y: Floats  # (row, output), scaled
    row_weight: Floats  # (row,)
    merged_into: Indices  # (table row,): the row of X that each row of the table became
    folds: list[Indices]  # the held-out rows of each fold
    training: list[Indices]  # the training rows of each fold
    unlabelled: Indices  # rows of X
    partners: NDArray[np.int32] | None  # (row, partner), or None where all pairs may be drawn
    learned_metric: LearnedMetric | None  # of scaled features, where it is needed
    # of networks that hold out each fold, and of those that train on all rows; columns of X
    inputs: list[NetworkInputs]
    seed: int
    bounds: TargetBounds | None = None  # (row, output), scaled, where rows are censored
    # first rows, second rows and differences of pairs with pseudo-labels, scaled
    pseudo: tuple[Floats, Floats, Floats] | None = None

    def with_pseudo_labels(self, sides: list[tuple[Rows, Rows]], labels: list[Floats]) -> Self:
        """The problem with these pairs of scaled rows, and their differences in units of y."""
        first, second = (
            np.concatenate([rows.features for rows in side])[:, self.columns]
            for side in zip(*sides, strict=True)
        )
        return replace(self, pseudo=(first, second, np.concatenate(labels) / self.scale.y_spread))

    @property
    def n_train(self) -> int:
        """Number of training rows."""
        return int(self.merged_into.max()) + 1

    @property
    def is_censored(self) -> NDArray[np.bool_]:
        """(row,): whether y is not known."""
        if self.bounds is None:
            return np.zeros(len(self.y), dtype=bool)
        return self.bounds.censored[:, 0]

    def errors(self, predicted: Floats, rows: Indices) -> Floats:
        """(…, row, output): errors of predictions of rows; of censored ones, beyond the bounds."""
        if self.bounds is None:
            return predicted - self.y[rows]
        return self.bounds.take(rows).errors(predicted)

    @property
    def n_columns(self) -> int:
        """Maximum number of columns of X that a network uses."""
        return max(len(inputs.columns) for inputs in self.inputs)

    @property
    def is_wide(self) -> bool:
        """Whether some settings use fewer features than others."""
        return not all(inputs.used.all() for inputs in self.inputs)

    @property
    def n_pairs(self) -> int:
        """Number of pairs that training draws from, mirror images counted."""
        return self.n_train**2 if self.partners is None else self.partners.size


def build_problem(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    X_val: Any = None,
    y_val: Any = None,
    folds: Any = None,
    learn: Any = None,
    **arguments: Any,
) -> TrainingProblem:
    """Return the `TrainingProblem` of the arguments of `fit`, which are validated."""
    unlabelled = resolve_options(estimator).loop_weight > 0
    rows = validate_training_rows(
        estimator, X, y, **arguments, multi_output=True, unlabelled=unlabelled
    )
    return build_problem_of_rows(
        estimator, rows, X_val=X_val, y_val=y_val, folds=folds, learn=learn
    )


def build_problem_of_rows(
    estimator: Any,
    rows: TrainingRows,
    *,
    X_val: Any = None,
    y_val: Any = None,
    folds: Folds | None = None,
    learn: MetricCache | None = None,
) -> TrainingProblem:
    """Return the `TrainingProblem` of validated rows.

    `folds` are given ones of the rows of the table; None draws them. With `fold_members`, more than
    `n_folds` of them are joined. Problems that share `learn`, a `MetricCache`, learn the relevance
    of equal rows once.
    """
    options = resolve_options(estimator)
    table = prepare_rows(rows, getattr(estimator, "batch_effect", "offset")).with_folds(folds)
    if options.fold_members:
        table = table.join_folds(options.effort.n_folds)
    # its own generator: problems with the same seed draw the same numbers, in any number
    rng = np.random.RandomState(draw_seed(estimator.random_state))
    seed = int(rng.randint(2**31 - 1))
    if options.twin:
        # draws nothing that is used: an invalid strategy is refused before training
        as_anchor_strategy(estimator.anchors).store(len(table.known), np.random.RandomState(0))
    merged = MergedRows.of(table, learn or MetricCache())
    scale = merged.scale
    learned = _learn_metric(estimator, options, merged)
    partners = _partner_table(estimator.pairs, merged.X, rng, learned) if options.twin else None
    validation_X, validation_y = merged.X[:0], merged.y[:0]
    if X_val is None and y_val is None:
        folds = merged.folds or _draw_folds(options, merged, seed)
    else:
        validation_X, validation_y = scale_validation_rows(estimator, X_val, y_val, table, scale)
        folds = [(np.arange(len(merged.X)), len(merged.X) + np.arange(len(validation_X)))]
    selected, columns, inputs = select_inputs(options, merged, folds, learned)
    assert table.unlabelled is not None, "made by prepare_rows"
    all_X, all_y, row_weight = _append_rows(merged, validation_X, validation_y)
    return TrainingProblem(
        options=options,
        table=table,
        scale=scale,
        selected=selected,
        columns=columns,
        X=all_X[:, columns],
        y=scale.transform_y(all_y),
        row_weight=row_weight,
        merged_into=merged.merged_into,
        folds=[held_out for _, held_out in folds],
        training=[training for training, _ in folds],
        unlabelled=np.arange(len(merged.X) + len(validation_X), len(all_X)),
        partners=partners,
        learned_metric=learned,
        inputs=inputs,
        seed=seed,
        bounds=None if merged.bounds is None else _scale_bounds(merged.bounds, scale, all_y),
    )


def _append_rows(rows: MergedRows, X_val: Floats, y_val: Floats) -> tuple[Floats, Floats, Floats]:
    """X, y and weights of the merged rows, then of validation rows, then of unlabelled rows."""
    table, scale = rows.table, rows.scale
    assert table.unlabelled is not None, "made by prepare_rows"
    others = scale.transform(table.schema.to_rows(table.unlabelled)).features
    X = np.concatenate([rows.X, X_val, others])
    # the y of unlabelled rows has weight 0, and its value is arbitrary
    y = np.concatenate([rows.y, y_val, np.tile(scale.y_mean, (len(others), 1))])
    return X, y, np.concatenate([rows.weight, np.ones(len(X_val)), np.zeros(len(others))])


def _draw_folds(options: NetworkOptions, rows: MergedRows, seed: int) -> Folds:
    """Draw folds; a single one has the `validation_fraction`.

    Rows with equal features are held out together. Known and censored rows are drawn apart, so that
    all folds have known rows.
    """
    X, bounds = rows.X, rows.bounds
    n_folds = min(options.effort.n_folds, len(X))
    if n_folds > 1 and bounds is None:
        return row_folds(len(X), n_folds, seed, equal_features(X, n_folds))
    is_censored = np.zeros(len(X), dtype=bool) if bounds is None else bounds.censored
    held_out: list[Indices] = [np.empty(0, dtype=np.intp)] * n_folds
    for kind in (np.flatnonzero(~is_censored), np.flatnonzero(is_censored)):
        order = kind[np.random.RandomState(seed).permutation(len(kind))]
        if n_folds == 1:
            order = order[: round(options.validation_fraction * len(kind))]
        for fold, rows_of_kind in enumerate(np.array_split(order, n_folds)):
            held_out[fold] = np.append(held_out[fold], rows_of_kind)
    return [(np.setdiff1d(np.arange(len(X)), fold), fold) for fold in held_out]


def _scale_bounds(bounds: TargetBounds, scale: Scale, y: Floats) -> TargetBounds:
    """(row, 1) scaled bounds: those of the training rows, and y (row, 1) of the rows after them."""
    others = y[len(bounds.lower) :, 0]
    lower, upper = (np.append(bound, others)[:, None] for bound in bounds)
    return TargetBounds(scale.transform_y(lower), scale.transform_y(upper))


def _learn_metric(estimator, options, rows):
    """The learned metric of all features, where a strategy needs it or networks can use it."""
    strategies = (estimator.pairs, estimator.anchors, estimator.weights) if options.twin else ()
    n_features = rows.table.schema.n_features
    uses_all = options.uses_relevance and not selects_features(options, n_features)
    return rows.learn_metric() if uses_learned_metric(*strategies) or uses_all else None


def scale_validation_rows(estimator: Any, X_val: Any, y_val: Any, table: Any, scale: Any) -> Any:
    """Scaled features and y (row, output) of the validation set that was given to `fit`."""
    if X_val is None or y_val is None:
        missing = "X_val" if X_val is None else "y_val"
        raise ValueError(f"X_val and y_val must be given together, but {missing} is None.")
    matrix, _ = validate_table(estimator, X_val, table.schema, np.dtype(np.float64))
    y = validate_target(estimator, y_val, len(matrix), multi_output=table.y.ndim == 2)
    return scale.transform(table.schema.to_rows(matrix)).features, y.reshape(len(y), -1)


def _partner_table(pairs, X, rng, learned):
    """(row, partner) for random or nearest pairs; None where every pair may be drawn."""
    drawn = draw_pairs(pairs, X, rng, learned)
    if drawn is None:
        return None
    # both points of a pair may be the one that is drawn
    return tabulate_partners(np.concatenate(drawn), np.concatenate(drawn[::-1]), len(X))


def draw_pairs(pairs: Any, X: Any, rng: Any, learned: Any = None) -> Any:
    """(pair,) first and second rows of a strategy; None where every pair may be drawn."""
    pairs = "all" if isinstance(pairs, str) and pairs == "auto" else pairs
    strategy = as_pair_strategy(pairs, len(X), mirrored=True)
    if getattr(strategy, "both_orders", False):
        return None
    return strategy.draw(len(X), lambda metric: NeighborIndex(X, metric, learned=learned), rng)


def tabulate_partners(first: Indices, second: Indices, n_rows: int) -> NDArray[np.int32]:
    """(row, partner): the second rows of the pairs of each first row; its own where it has none.

    A row with fewer partners than others has each of them several times, equally often.

    >>> tabulate_partners(np.array([0, 0, 2]), np.array([1, 2, 0]), 3)
    array([[1, 2],
           [1, 1],
           [0, 0]], dtype=int32)
    """
    order = np.argsort(first, kind="stable")
    counts = np.bincount(first, minlength=n_rows)
    starts = np.cumsum(counts) - counts
    columns = np.arange(int(counts.max())) % np.maximum(counts, 1)[:, None]
    partners = second[order][np.minimum(starts[:, None] + columns, len(order) - 1)]
    return np.where(counts[:, None] > 0, partners, np.arange(n_rows)[:, None]).astype(np.int32)
