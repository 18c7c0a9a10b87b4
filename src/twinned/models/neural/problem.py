"""A training problem: a table that is scaled and split into folds, with the inputs of each network.

What a network that holds out a fold sees of its features does not depend on the rows that it
predicts: both the features of a wide table and their relevance are learned without these rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from twinned.batches.estimation import remove_deviations
from twinned.models.imputation import finite_bounds
from twinned.models.learned_metric import MetricCache, metric_factors
from twinned.models.measurement_errors import weigh_by_error
from twinned.models.neural.parameters import NetworkOptions, resolve_options
from twinned.models.wide_tables import distinct_features, important_features
from twinned.pairing.anchors import as_anchor_strategy, uses_learned_metric
from twinned.pairing.pairs import as_pair_strategy
from twinned.rows.folds import Folds, distinct_rows, equal_features, row_folds
from twinned.rows.neighbors import LearnedMetric, NeighborIndex
from twinned.rows.schema import Floats, Indices, Rows, known_medians, mark_missing
from twinned.rows.training import TargetBounds, TrainingRows, validate_training_rows
from twinned.rows.validation import draw_seed, validate_table, validate_target

MAX_RELEVANT_FEATURES = 60
"""Number of features of a wide table that the settings without `all_features` use."""


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


class NetworkInputs(NamedTuple):
    """The encoded columns of networks, and the factors of these.

    The factors of settings with the most relevant features of a wide table come first, those of
    settings with all features second.
    """

    columns: Indices
    used: Floats  # (2, column): 1, or 0 for those that are not used
    relevance: Floats  # (2, column): their learned relevance; `used` where no setting needs it


def selects_features(options: NetworkOptions, n_features: int) -> bool:
    """Whether some of so many features are dropped, by all networks or by some settings."""
    limit = options.max_features
    return limit is not None and n_features > min(limit, MAX_RELEVANT_FEATURES)


def select_inputs(
    options: NetworkOptions, rows: MergedRows, folds: Folds, learned: LearnedMetric | None
) -> tuple[Indices, Indices, list[NetworkInputs]]:
    """The selected features, and the columns and inputs of the networks of each fold and of all.

    Features are those selected on all rows. Columns are those that any network uses, and inputs
    refer to them. `learned` is the metric of all rows and columns, where it is known. Where the
    networks of a single fold are the members, all have the same features.
    """
    fold_rows = [training for training, _ in folds]
    all_rows = np.arange(len(rows.X))

    def select(training: Indices) -> tuple[Indices, Indices, NDArray[np.bool_]]:
        return _select_columns(options, rows.table, np.isin(rows.merged_into, training))

    of_all = select(all_rows)
    selections = [select(training) for training in fold_rows] if len(folds) > 1 else [of_all]
    inputs = []
    for _, columns, is_relevant in (*selections, of_all):
        used = np.stack([is_relevant, np.ones_like(is_relevant)]).astype(np.float64)
        inputs.append(NetworkInputs(columns, used, used.copy()))
    if options.uses_relevance:
        for kind in (0, 1):
            columns_used = [of_fold.columns[of_fold.used[kind] > 0] for of_fold in inputs]
            factors = _learn_factors(rows, columns_used, [*fold_rows, all_rows], learned)
            for of_fold, factor in zip(inputs, factors, strict=True):
                of_fold.relevance[kind, of_fold.used[kind] > 0] = factor
    all_columns = np.unique(np.concatenate([of_fold.columns for of_fold in inputs]))
    inputs = [
        NetworkInputs(np.searchsorted(all_columns, columns), used, relevance)
        for columns, used, relevance in inputs
    ]
    return of_all[0], all_columns, inputs


def _select_columns(
    options: NetworkOptions, table: TrainingRows, rows: NDArray[np.bool_]
) -> tuple[Indices, Indices, NDArray[np.bool_]]:
    """The features selected on some rows, their encoded columns, and which are most relevant.

    At most `max_features` distinct features are selected.
    """
    schema, most = table.schema, options.max_features
    features = relevant = np.arange(schema.n_features)
    if most is not None and selects_features(options, len(features)):
        training = table.take(rows)
        if len(features) > most:
            features = important_features(training.matrix, training.outputs, most, training.weight)
        else:
            features = distinct_features(training.matrix)
        among_selected = important_features(
            training.matrix[:, features], training.outputs, MAX_RELEVANT_FEATURES, training.weight
        )
        relevant = features[among_selected]
    columns = schema.encoded_columns(features)
    return features, columns, np.isin(columns, schema.encoded_columns(relevant))


def _learn_factors(
    rows: MergedRows, columns: list[Indices], training: list[Indices], learned: LearnedMetric | None
) -> list[Floats]:
    """(column,) factors of the columns of each set of training rows, learned from these rows."""
    if learned is None or len(columns[-1]) < rows.X.shape[1]:
        learned = rows.learn_metric(training[-1], columns[-1])
    factors = []
    for fold_columns, fold_rows in zip(columns, training, strict=True):
        metric = learned
        if len(fold_rows) < len(training[-1]):
            similar = learned if np.array_equal(fold_columns, columns[-1]) else None
            metric = rows.learn_metric(fold_rows, fold_columns, similar)
        factors.append(metric_factors(1.0 / metric.length_scales))
    return factors


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
    def fit(cls, rows: Rows, y: Floats, weight: Floats) -> Scale:
        share = (weight / weight.sum())[:, None]
        fill = known_medians(rows.numeric)

        def moments(values: Floats) -> tuple[Floats, Floats]:
            mean = (share * values).sum(axis=0)
            spread = np.sqrt((share * (values - mean) ** 2).sum(axis=0))
            return mean, one_if_constant(spread, mean)

        X_mean, X_spread = moments(np.where(np.isnan(rows.numeric), fill, rows.numeric))
        y_mean, y_spread = moments(y)
        return cls(X_mean, X_spread, y_mean, y_spread, fill)

    def transform(self, rows: Rows) -> Rows:
        """Fill missing values and scale the numeric features."""
        numeric = np.where(np.isnan(rows.numeric), self.X_fill, rows.numeric)
        one_hot = np.where(np.isnan(rows.one_hot), 0.0, rows.one_hot)
        return Rows((numeric - self.X_mean) / self.X_spread, one_hot, rows.codes)

    def transform_y(self, y: Floats) -> Floats:
        return (y - self.y_mean) / self.y_spread

    def inverse_transform_y(self, y: Floats) -> Floats:
        return y * self.y_spread + self.y_mean


def one_if_constant(spread: Floats, mean: Floats) -> Floats:
    """The spread of columns, and 1 for columns that are constant to rounding."""
    return np.where(spread > 1e-12 * np.abs(mean), spread, 1.0)


class MergedRows(NamedTuple):
    """The scaled training rows, equal ones of a fold merged into one with the sum of their weights.

    So a repeated row is the same as a weight, to the last bit; and no row is both trained on and
    held out, which would favor members that memorize.
    """

    table: TrainingRows
    scale: Scale
    X: Floats  # (row, column), scaled
    y: Floats  # (row, output)
    weight: Floats  # (row,)
    merged_into: Indices  # (table row,)
    bounds: TargetBounds | None  # (row,), finite
    folds: Folds | None  # where they are given
    learn: MetricCache

    @classmethod
    def of(cls, table: TrainingRows, learn: MetricCache) -> MergedRows:
        weight = np.ones(len(table)) if table.weight is None else table.weight / table.weight.mean()
        rows, y, bounds = table.rows, table.outputs, table.bounds
        scale = Scale.fit(rows, y, weight)
        X = scale.transform(rows).features
        bounds = None if bounds is None else finite_bounds(rows.features, bounds, weight)
        keys = [X, y, *(bounds or ()), *([] if table.fold is None else [table.fold])]
        keys += [] if table.fold_training is None else [table.fold_training.T]
        first, merged_into = distinct_rows(np.column_stack(keys))
        total = np.bincount(merged_into, weights=weight)
        bounds = None if bounds is None else bounds.take(first)
        folds = None if table.fold is None else table.take(first).folds
        return cls(
            table=table,
            scale=scale,
            X=X[first],
            y=y[first],
            weight=total / total.mean(),
            merged_into=merged_into,
            bounds=bounds,
            folds=folds,
            learn=learn,
        )

    def learn_metric(
        self, rows: Any = slice(None), columns: Any = slice(None), similar: Any = None
    ) -> Any:
        """The metric of some rows and columns."""
        X, y, weight = self.X[rows][:, columns], self.y[rows], self.weight[rows]
        return self.learn(X, y, weight, similar=similar)


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
