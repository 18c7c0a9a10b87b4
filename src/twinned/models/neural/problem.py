"""A training problem: a table that is validated, scaled, and split into folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from twinned.models.censoring import TargetBounds, validate_bounds
from twinned.models.imputation import finite_bounds
from twinned.models.learned_metric import MetricCache, uses_learned_metric
from twinned.models.neural.ensemble import draw_folds
from twinned.models.neural.inputs import (
    NetworkInputs,
    WeightedRows,
    learn_inputs,
    select_columns,
    selects_features,
    uses_relevance,
)
from twinned.models.neural.parameters import (
    check_parameters,
    loop_weight,
    refits_members,
    resolve_effort,
)
from twinned.pairing.anchors import as_anchor_strategy
from twinned.pairing.pairs import as_pair_strategy
from twinned.pairing.splits import equal_features
from twinned.rows.neighbors import Indices, LearnedMetric, NeighborIndex
from twinned.rows.schema import Floats, Rows, TableSchema, known_medians, mark_missing
from twinned.rows.validation import (
    check_sample_weight,
    validate_table,
    validate_target,
    validate_training_table,
)

_FLOAT64 = np.dtype(np.float64)


class Scale(NamedTuple):
    """Means and standard deviations that scale X and y; constant columns are only centered.

    A missing number is replaced by the median of its feature, and a missing category has the
    indicator of no category.
    """

    X_mean: Floats
    X_spread: Floats
    y_mean: Floats
    y_spread: Floats
    X_fill: Floats

    @classmethod
    def fit(cls, rows: Rows, y: Floats, weight: Floats, scaling: str) -> Scale:
        share = (weight / weight.sum())[:, None]
        fill = known_medians(rows.numeric)
        numeric = np.where(np.isnan(rows.numeric), fill, rows.numeric)
        if scaling == "signed_max":
            # the author's: X by its largest excess over the mean, y as it is
            mean = (share * numeric).sum(axis=0)
            excess = (numeric - mean).max(axis=0, initial=0.0)
            zero, one = np.zeros(y.shape[1]), np.ones(y.shape[1])
            return cls(mean, _not_constant(excess, mean), zero, one, fill)

        def moments(values: Floats) -> tuple[Floats, Floats]:
            mean = (share * values).sum(axis=0)
            spread = np.sqrt((share * (values - mean) ** 2).sum(axis=0))
            return mean, _not_constant(spread, mean)

        return cls(*moments(numeric), *moments(y), fill)

    def transform(self, rows: Rows) -> Rows:
        """Fill missing values and scale the numeric features."""
        numeric = np.where(np.isnan(rows.numeric), self.X_fill, rows.numeric)
        one_hot = np.where(np.isnan(rows.one_hot), 0.0, rows.one_hot)
        return Rows((numeric - self.X_mean) / self.X_spread, one_hot, rows.codes)

    def transform_y(self, y: Floats) -> Floats:
        return (y - self.y_mean) / self.y_spread

    def inverse_transform_y(self, y: Floats) -> Floats:
        return y * self.y_spread + self.y_mean


def _not_constant(spread: Floats, mean: Floats) -> Floats:
    return np.where(spread > 1e-12 * np.maximum(1.0, np.abs(mean)), spread, 1.0)


@dataclass(frozen=True)
class TrainingTable:
    """The validated table: rows with a label and a positive weight, and unlabelled rows."""

    indices: Indices  # (row,) of the rows below in the table that was given
    matrix: Floats  # (row, feature), encoded
    target: Floats  # as given, (row,) or (row, output)
    weight: Floats | None  # (row,)
    schema: TableSchema
    unlabelled: Floats  # (unlabelled row, feature), encoded
    n_rows: int  # of the table that was given
    bounds: TargetBounds | None = None  # (row,); `target` of a censored row is its limit

    @property
    def known(self) -> Indices:
        """Indices of the rows that may be anchors."""
        every = np.arange(len(self.target))
        return every if self.bounds is None else every[~self.bounds.censored]

    @property
    def y(self) -> Floats:
        """(row, output)."""
        return self.target.reshape(len(self.target), -1)


@dataclass(frozen=True)
class TrainingProblem:
    """One training problem, before it is padded.

    The rows of `X`, `y` and `row_weight` are `n_train` training rows (equal ones merged), then
    validation rows, then unlabelled rows.
    """

    table: TrainingTable
    scale: Scale
    selected: Indices  # features of the table that are inputs of the members
    X: Floats  # (row, column), scaled
    y: Floats  # (row, output), scaled
    row_weight: Floats  # (row,)
    n_train: int
    merged_into: Indices  # (table row,): the row of X that each row of the table became
    folds: list[NDArray[np.intp]]  # the held-out rows of each fold
    unlabelled: Indices  # rows of X
    partners: NDArray[np.int32] | None  # (row, partner), or None where all pairs may be drawn
    learned_metric: LearnedMetric | None  # of scaled features, where it is needed
    # of networks that hold out each fold, and of those that train on all rows; columns of X
    inputs: list[NetworkInputs]
    seed: int
    bounds: TargetBounds | None = None  # (row, output), scaled, where rows are censored

    @property
    def is_censored(self) -> NDArray[np.bool_]:
        """(row,): whether y is not known."""
        if self.bounds is None:
            return np.zeros(len(self.y), dtype=bool)
        return self.bounds.censored[:, 0]

    def errors(self, predicted: NDArray[Any], rows: Indices) -> NDArray[Any]:
        """(…, row, output): errors of predictions of rows; of censored ones, beyond the bounds."""
        if self.bounds is None:
            errors: NDArray[Any] = predicted - self.y[rows]
            return errors
        return self.bounds.take(rows).errors(predicted)

    @property
    def n_columns(self) -> int:
        """Maximum number of columns of X that a network uses."""
        return max(len(own.columns) for own in self.inputs)

    @property
    def is_wide(self) -> bool:
        """Whether some settings use fewer features than others."""
        return self.inputs[-1].every is not self.inputs[-1].relevant

    @property
    def n_pairs(self) -> int:
        """Number of pairs that training draws from, mirror images counted."""
        return self.n_train**2 if self.partners is None else self.partners.size


def build_problem(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    X_val: Any = None,
    y_val: Any = None,
    y_lower: Any = None,
    y_upper: Any = None,
    *,
    twin: bool,
    fold_of_row: Indices | None = None,
    learn: MetricCache | None = None,
) -> TrainingProblem:
    """Validate parameters and data, scale the data, draw folds and tabulate partners.

    `fold_of_row` (table row,) numbers given folds from 0; None draws them. Problems that share
    `learn` learn the relevance of equal rows once.
    """
    learn = learn or MetricCache()
    check_parameters(estimator, twin)
    bounds = None if y_lower is None and y_upper is None else (y_lower, y_upper)
    table = _validate_data(estimator, X, y, sample_weight, bounds, loop_weight(estimator, twin) > 0)
    # its own generator: problems with the same seed draw the same numbers, in any number
    rng = np.random.RandomState(check_random_state(estimator.random_state).randint(2**31 - 1))
    seed = int(rng.randint(2**31 - 1))
    if twin:
        # draws nothing that is used: an invalid strategy is refused before training
        as_anchor_strategy(estimator.anchors).store(len(table.known), np.random.RandomState(0))
    fold = None if fold_of_row is None else fold_of_row[table.indices]
    scale, rows, merged_bounds, merged_into = _scale_rows(estimator, table, fold)
    n_train = len(rows.X)
    learned = _learn_metric(estimator, rows, table, twin, learn)
    partners = _partner_table(estimator, rows.X, rng, learned) if twin else None
    if fold is not None:
        folds = _given_folds(fold, merged_into)
    elif X_val is None and y_val is None:
        n_folds = min(resolve_effort(estimator).n_folds, n_train)
        groups = equal_features(rows.X, n_folds) if estimator.recipe == "modern" else None
        fraction = estimator.validation_fraction
        folds = _draw_folds(n_train, n_folds, fraction, seed, groups, merged_bounds)
    else:
        rows = rows.append(*_validation_rows(estimator, X_val, y_val, table, scale), weight=1.0)
        folds = [np.arange(n_train, len(rows.X))]
    selected, inputs = _select_inputs(estimator, table, rows, merged_into, folds, learned, learn)
    used = np.unique(np.concatenate([own.columns for own in inputs]))
    inputs = [own._replace(columns=np.searchsorted(used, own.columns)) for own in inputs]
    unlabelled = len(rows.X) + np.arange(len(table.unlabelled))
    if len(unlabelled):
        # their y has weight 0; its value is arbitrary
        features = scale.transform(table.schema.to_rows(table.unlabelled)).features
        rows = rows.append(features, np.tile(scale.y_mean, (len(unlabelled), 1)), weight=0.0)
    y_scaled = scale.transform_y(rows.y)
    return TrainingProblem(
        table=table,
        scale=scale,
        selected=selected,
        X=rows.X[:, used],
        y=y_scaled,
        row_weight=rows.weight,
        n_train=n_train,
        merged_into=merged_into,
        folds=folds,
        unlabelled=unlabelled,
        partners=partners,
        learned_metric=learned,
        inputs=inputs,
        seed=seed,
        bounds=None if merged_bounds is None else _scale_bounds(merged_bounds, scale, y_scaled),
    )


def _validate_data(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any,
    given_bounds: tuple[Any, Any] | None,
    allow_unlabelled: bool,
) -> TrainingTable:
    matrix, schema = validate_training_table(
        estimator, X, estimator.categorical_features, allow_nan=True, pair_dtype=_FLOAT64
    )
    n_rows = len(matrix)
    weight = check_sample_weight(sample_weight, n_rows)
    bounds = None
    if given_bounds is None:
        target = validate_target(
            estimator, y, n_rows, multi_output=True, unlabelled=allow_unlabelled
        )
    else:
        if estimator.recipe != "modern":
            raise ValueError(f"y_lower and y_upper need recipe='modern', not {estimator.recipe!r}.")
        bounds = validate_bounds(estimator, y, *given_bounds, n_rows, weight)
        target = bounds.limits()
    labelled = ~np.isnan(target.reshape(n_rows, -1)).any(axis=1)
    indices = np.flatnonzero(labelled if weight is None else labelled & (weight > 0))
    if len(indices) < 2:
        raise ValueError(f"y has {len(indices)} known values in {n_rows} rows; a twin needs two.")
    # rows of weight 0 are as if they were not there
    schema = mark_missing(schema, matrix if weight is None else matrix[weight > 0])
    return TrainingTable(
        indices=indices,
        matrix=matrix[indices],
        target=target[indices],
        weight=None if weight is None else weight[indices],
        schema=schema,
        unlabelled=matrix[~labelled],
        n_rows=n_rows,
        bounds=None if bounds is None or not bounds.censored.any() else bounds.take(indices),
    )


def _scale_rows(
    estimator: Any, table: TrainingTable, fold: Indices | None
) -> tuple[Scale, WeightedRows, TargetBounds | None, Indices]:
    """Scale the training rows; merge equal ones, except in the paper's own training."""
    n_rows = len(table.matrix)
    weight = np.ones(n_rows) if table.weight is None else table.weight / table.weight.mean()
    rows = table.schema.to_rows(table.matrix)
    scale = Scale.fit(rows, table.y, weight, estimator.scaling)
    scaled = WeightedRows(scale.transform(rows).features, table.y, weight)
    if estimator.recipe != "modern":
        return scale, scaled, None, np.arange(n_rows)
    fold = np.zeros(n_rows, dtype=np.intp) if fold is None else fold
    if table.bounds is None:
        merged, merged_into = _merge_equal_rows(scaled, fold)
        return scale, merged, None, merged_into
    bounds = finite_bounds(rows.features, table.bounds, weight)
    with_bounds = scaled._replace(y=np.column_stack([table.y, *bounds]))
    merged, merged_into = _merge_equal_rows(with_bounds, fold)
    y, lower, upper = merged.y.T
    return scale, merged._replace(y=y[:, None]), TargetBounds(lower, upper), merged_into


def _draw_folds(
    n_rows: int,
    n_folds: int,
    fraction: float,
    seed: int,
    groups: Indices | None,
    bounds: TargetBounds | None,
) -> list[NDArray[np.intp]]:
    """Folds of the rows; known and censored rows are drawn apart, so that all have known rows."""
    if bounds is None:
        return draw_folds(n_rows, n_folds, fraction, seed, groups)
    parts = []
    for rows in (np.flatnonzero(~bounds.censored), np.flatnonzero(bounds.censored)):
        folds = draw_folds(len(rows), n_folds, fraction, seed)
        parts.append([rows[fold] for fold in folds])
    return [np.concatenate(both) for both in zip(*parts, strict=True)]


def _scale_bounds(bounds: TargetBounds, scale: Scale, y: Floats) -> TargetBounds:
    """(row, 1) scaled bounds: those of the training rows, and scaled y of the rows after them."""
    lower, upper = y.copy(), y.copy()
    lower[: len(bounds.lower)] = scale.transform_y(bounds.lower[:, None])
    upper[: len(bounds.upper)] = scale.transform_y(bounds.upper[:, None])
    return TargetBounds(lower, upper)


def _learn_metric(
    estimator: Any, rows: WeightedRows, table: TrainingTable, twin: bool, learn: MetricCache
) -> LearnedMetric | None:
    """The learned metric of all features, where a strategy needs it or networks can use it."""
    strategies = (estimator.pairs, estimator.anchors, estimator.weights) if twin else ()
    is_complete = not selects_features(estimator, table.schema)
    if uses_learned_metric(*strategies) or (uses_relevance(estimator) and is_complete):
        return learn(*rows)
    return None


def _select_inputs(
    estimator: Any,
    table: TrainingTable,
    rows: WeightedRows,
    merged_into: Indices,
    folds: list[NDArray[np.intp]],
    learned: LearnedMetric | None,
    learn: MetricCache,
) -> tuple[Indices, list[NetworkInputs]]:
    """The features selected on all rows, and the inputs of the networks of each fold and of all.

    Where the networks of the folds are themselves the members, all have the same features.
    """
    n_train = merged_into.max() + 1
    every = np.arange(n_train)
    training = [*(np.setdiff1d(every, fold) for fold in folds), every]
    in_table = [np.flatnonzero(np.isin(merged_into, own)) for own in training]
    if not refits_members(estimator, len(folds)):
        in_table = [np.arange(len(table.matrix))] * len(training)
    selected, columns = select_columns(
        estimator, table.schema, table.matrix, table.y, table.weight, in_table
    )
    return selected, learn_inputs(estimator, rows, columns, training, learned, learn)


def _merge_equal_rows(rows: WeightedRows, fold: Floats | Indices) -> tuple[WeightedRows, Indices]:
    """Merge equal rows of a fold into one with the sum of their weights, ordered by their values.

    Also returns the row that each one became. So a repeated row is the same as a weight, to the
    last bit; and no row is both trained on and held out, which would favor members that memorize.
    """
    X, y, weight = rows
    distinct, merged_into = np.unique(np.column_stack([X, y, fold]), axis=0, return_inverse=True)
    merged_into = merged_into.ravel()
    total = np.bincount(merged_into, weights=weight)
    n_features = X.shape[1]
    merged = WeightedRows(
        distinct[:, :n_features], distinct[:, n_features:-1], total / total.mean()
    )
    return merged, merged_into


def _given_folds(fold_of_row: Indices, merged_into: Indices) -> list[NDArray[np.intp]]:
    """The held-out rows of each fold; equal rows that were merged are in the fold of the last."""
    fold = np.empty(merged_into.max() + 1, dtype=np.intp)
    fold[merged_into] = fold_of_row
    return [np.flatnonzero(fold == number) for number in np.unique(fold)]


def _validation_rows(
    estimator: Any, X_val: Any, y_val: Any, table: TrainingTable, scale: Scale
) -> tuple[Floats, Floats]:
    """Scaled features and y of the validation set that was given to `fit`."""
    if X_val is None or y_val is None:
        missing = "X_val" if X_val is None else "y_val"
        raise ValueError(f"X_val and y_val must be given together, but {missing} is None.")
    matrix, _ = validate_table(estimator, X_val, table.schema, allow_nan=True, pair_dtype=_FLOAT64)
    y = validate_target(estimator, y_val, len(matrix), multi_output=table.target.ndim == 2)
    features = scale.transform(table.schema.to_rows(matrix)).features
    return features, y.reshape(len(y), -1)


def _partner_table(
    estimator: Any, X: Floats, rng: Any, learned: LearnedMetric | None
) -> NDArray[np.int32] | None:
    """(row, partner) for random or nearest pairs; None where every pair may be drawn."""
    n = len(X)
    pairs = estimator.pairs
    if isinstance(pairs, str) and pairs == "auto":
        pairs = "all"
    strategy = as_pair_strategy(pairs, n, None, mirrored=True)
    if getattr(strategy, "both_orders", False):
        return None
    first, second = strategy.draw(n, lambda metric: NeighborIndex(X, metric, learned=learned), rng)
    if estimator.recipe == "modern":
        # both points of a pair may be the one that is drawn
        first, second = np.concatenate([first, second]), np.concatenate([second, first])
    order = np.argsort(first, kind="stable")
    counts = np.bincount(first, minlength=n)
    starts = np.cumsum(counts) - counts
    # a point with fewer partners has each of them several times, equally often
    columns = np.arange(int(counts.max())) % np.maximum(counts, 1)[:, None]
    table = second[order][np.minimum(starts[:, None] + columns, len(order) - 1)]
    return np.where(counts[:, None] > 0, table, np.arange(n)[:, None]).astype(np.int32)
