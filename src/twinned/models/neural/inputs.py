"""Inputs of the networks: the validated table, and the features and factors of each network.

What a network that holds out a fold sees of its features does not depend on the rows that it
predicts: both the features of a wide table and their relevance are learned without these rows.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.learned_metric import MetricCache, metric_factors
from twinned.models.neural.parameters import NetworkOptions
from twinned.models.wide_tables import distinct_features, important_features
from twinned.rows.neighbors import Indices, LearnedMetric
from twinned.rows.schema import Floats, mark_missing
from twinned.rows.training import TrainingRows, validate_training_rows

MAX_RELEVANT_FEATURES = 60
"""Number of features of a wide table that the settings without `all_features` use."""

FLOAT64 = np.dtype(np.float64)


def make_training_rows(
    estimator, X, y, sample_weight=None, y_lower=None, y_upper=None, unlabelled=False
):
    """Return the `TrainingRows` of the arguments of `fit`; `unlabelled` allows NaN in y."""
    given = validate_training_rows(
        estimator,
        X,
        y,
        sample_weight,
        None,
        y_lower,
        y_upper,
        pair_dtype=FLOAT64,
        multi_output=True,
        unlabelled=unlabelled,
    )
    labelled = ~np.isnan(given.outputs).any(axis=1)
    present = np.array(labelled if given.weight is None else labelled & (given.weight > 0))
    if present.sum() < 2:
        raise ValueError(
            f"y has {present.sum()} known values in {len(given)} rows; a twin needs two."
        )
    rows = given.take(present)
    return replace(
        rows,
        # rows of weight 0 are as if they were not there
        schema=mark_missing(given.schema, given.of_positive_weight().matrix),
        unlabelled=given.matrix[~labelled],
        bounds=rows.bounds if rows.censored.any() else None,
    )


class WeightedRows(NamedTuple):
    """Scaled features (row, column), y (row, output) in its own units, weights (row,)."""

    X: Floats
    y: Floats
    weight: Floats

    def append(self, X: Floats, y: Floats, weight: float) -> WeightedRows:
        added = (X, y, np.full(len(X), weight))
        return WeightedRows(*(np.concatenate(parts) for parts in zip(self, added, strict=True)))

    def take(self, rows: Indices, columns: Indices) -> WeightedRows:
        return WeightedRows(self.X[rows][:, columns], self.y[rows], self.weight[rows])


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
    options: NetworkOptions,
    table: TrainingRows,
    rows: WeightedRows,
    merged_into: Indices,
    folds: list[Indices],
    learned: LearnedMetric | None,
    learn: MetricCache,
) -> tuple[Indices, list[NetworkInputs]]:
    """The features selected on all rows, and the inputs of the networks of each fold and of all.

    `learned` is the metric of all rows and columns, where it is known; `learn` learns others.
    Where the networks of a single fold are themselves the members, all have the same features.
    """
    every, in_table = np.arange(merged_into.max() + 1), np.arange(len(merged_into))
    training = [*(np.setdiff1d(every, fold) for fold in folds), every]
    of_all = _select_columns(options, table, in_table)
    selections = [of_all] * len(training)
    if len(folds) > 1:
        row_sets = [in_table[np.isin(merged_into, own)] for own in training[:-1]]
        selections = [*(_select_columns(options, table, own) for own in row_sets), of_all]
    inputs = []
    for _, columns, is_relevant in selections:
        used = np.stack([is_relevant, np.ones_like(is_relevant)]).astype(np.float64)
        inputs.append(NetworkInputs(columns, used, used.copy()))
    if options.uses_relevance:
        for kind in (0, 1):
            columns_used = [own.columns[own.used[kind] > 0] for own in inputs]
            factors = _learn_factors(rows, columns_used, training, learned, learn)
            for own, factor in zip(inputs, factors, strict=True):
                own.relevance[kind, own.used[kind] > 0] = factor
    return of_all[0], inputs


def _select_columns(
    options: NetworkOptions, table: TrainingRows, rows: Indices
) -> tuple[Indices, Indices, NDArray[np.bool_]]:
    """The features selected on some rows, their encoded columns, and which are most relevant.

    At most `max_features` distinct features are selected.
    """
    schema, most = table.schema, options.max_features
    features = relevant = np.arange(schema.n_features)
    if most is not None and selects_features(options, len(features)):
        matrix, y = table.matrix[rows], table.outputs[rows]
        weight = None if table.weight is None else table.weight[rows]
        if len(features) > most:
            features = important_features(matrix, y, most, weight)
        else:
            features = distinct_features(matrix)
            features = features if len(features) else np.arange(1)  # a network needs one
        most_relevant = important_features(matrix[:, features], y, MAX_RELEVANT_FEATURES, weight)
        relevant = features[most_relevant]
    columns = schema.encoded_columns(features)
    return features, columns, np.isin(columns, schema.encoded_columns(relevant))


def _learn_factors(
    rows: WeightedRows,
    columns: list[Indices],
    training: list[Indices],
    learned: LearnedMetric | None,
    learn: MetricCache,
) -> list[Floats]:
    """(column,) factors of the columns of each set of training rows, learned from these rows."""
    if learned is None or len(columns[-1]) < rows.X.shape[1]:
        learned = learn(*rows.take(training[-1], columns[-1]))
    factors = []
    for own, indices in zip(columns, training, strict=True):
        metric = learned
        if len(indices) < len(training[-1]):
            similar = learned if np.array_equal(own, columns[-1]) else None
            metric = learn(*rows.take(indices, own), similar)
        factors.append(metric_factors(1.0 / metric.length_scales))
    return factors
