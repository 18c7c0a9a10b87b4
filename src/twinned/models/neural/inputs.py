"""The inputs of networks: scaled rows, equal ones merged, and the features that each network uses.

What a network that holds out a fold sees of its features does not depend on the rows that it
predicts: both the features of a wide table and their relevance are learned without these rows.
"""

from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from twinned.models.censored_values import finite_bounds
from twinned.models.learned_metric import MetricCache, metric_factors
from twinned.models.neural.parameters import NetworkOptions
from twinned.models.wide_tables import distinct_features, important_features
from twinned.rows.folds import Folds, distinct_rows
from twinned.rows.neighbors import LearnedMetric
from twinned.rows.schema import Floats, Indices, Rows, known_medians
from twinned.rows.training import TargetBounds, TrainingRows

MAX_RELEVANT_FEATURES = 60
"""Number of features of a wide table that the settings without `all_features` use."""


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
    def fit(cls, rows: Rows, y: Floats, weight: Floats) -> Self:
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
    def of(cls, table: TrainingRows, learn: MetricCache) -> Self:
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


class NetworkInputs(NamedTuple):
    """The encoded columns of networks, and the factors of these.

    The factors of settings with the most relevant features of a wide table come first, those of
    settings with all features second.
    """

    columns: Indices
    used: Floats  # (2, column): 1, or 0 for those that are not used
    relevance: Floats  # (2, column): their learned relevance; `used` where no setting needs it

    def among(self, n_columns: int) -> Self:
        """The same inputs with all of so many columns, of which the others are not used."""
        used, relevance = np.zeros((2, 2, n_columns))
        used[:, self.columns], relevance[:, self.columns] = self.used, self.relevance
        return type(self)(np.arange(n_columns), used, relevance)


def selects_features(options: NetworkOptions, n_features: int) -> bool:
    """Whether some of so many features are dropped, by all networks or by some settings."""
    limit = options.max_features
    return limit is not None and n_features > min(limit, MAX_RELEVANT_FEATURES)


def select_inputs(
    options: NetworkOptions, rows: MergedRows, folds: Folds, learned: LearnedMetric | None
) -> tuple[Indices, Indices, list[NetworkInputs]]:
    """The selected features, and the columns and inputs of the networks of each fold and of all.

    Features are those selected on all rows; with `fold_members`, those of any network, and all
    have the same columns. Columns are those that any network uses, and inputs refer to them.
    `learned` is the metric of all rows and columns, where it is known. Where the networks of a
    single fold are the members, all have the same features.
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
    if not options.fold_members:
        return of_all[0], all_columns, inputs
    features = np.unique(np.concatenate([features for features, *_ in (*selections, of_all)]))
    return features, all_columns, [of_fold.among(len(all_columns)) for of_fold in inputs]


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
