"""Inputs of the networks: their features and the factors of these, without the rows of each fold.

What a network that holds out a fold sees of its features does not depend on the rows that it
predicts: both the features of a wide table and their relevance are learned without these rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.learned_metric import MetricCache, metric_factors
from twinned.models.neural.parameters import MAX_RELEVANT_FEATURES, member_settings
from twinned.models.wide_tables import distinct_features, important_features
from twinned.rows.neighbors import Indices, LearnedMetric
from twinned.rows.schema import Floats, TableSchema


class WeightedRows(NamedTuple):
    """Scaled features (row, column), y (row, output) in its own units, weights (row,)."""

    X: Floats
    y: Floats
    weight: Floats

    def append(self, X: Floats, y: Floats, weight: float) -> WeightedRows:
        return WeightedRows(
            X=np.concatenate([self.X, X]),
            y=np.concatenate([self.y, y]),
            weight=np.concatenate([self.weight, np.full(len(X), weight)]),
        )

    def take(self, indices: Indices) -> WeightedRows:
        return WeightedRows(self.X[indices], self.y[indices], self.weight[indices])

    def select(self, columns: Indices) -> WeightedRows:
        return self._replace(X=self.X[:, columns])


class FeatureFactors(NamedTuple):
    """Factors of the columns of networks; 0 for those that are not used."""

    used: Floats  # (column,): 1 for those that are used
    relevance: Floats | None  # (column,); None where no network needs it


class NetworkInputs(NamedTuple):
    """The encoded columns of networks, and their factors in settings of few and of all features."""

    columns: Indices
    relevant: FeatureFactors
    every: FeatureFactors  # the same object where the table is not wide


class SelectedColumns(NamedTuple):
    """The encoded columns of networks, and whether each is one of the most relevant ones."""

    columns: Indices
    is_relevant: NDArray[np.bool_]


def selects_features(estimator: Any, schema: TableSchema) -> bool:
    """Whether features are dropped, by all networks or by those of some settings."""
    limit = estimator.max_features
    return limit is not None and schema.n_features > min(limit, MAX_RELEVANT_FEATURES)


def select_columns(
    estimator: Any,
    schema: TableSchema,
    matrix: Floats,
    y: Floats,
    weight: Floats | None,
    training: list[NDArray[np.intp]],
) -> tuple[Indices, list[SelectedColumns]]:
    """The features selected on all rows, and the columns selected on each set of training rows.

    `matrix` (row, feature) and `y` (row, output) are those of the table.
    """
    if not selects_features(estimator, schema):
        every = np.arange(schema.n_features)
        columns = schema.encoded_columns(every)
        own = SelectedColumns(columns, np.ones(len(columns), dtype=bool))
        return every, [own] * len(training)

    def select(rows: NDArray[np.intp]) -> tuple[Indices, SelectedColumns]:
        part = matrix[rows], y[rows], None if weight is None else weight[rows]
        features, relevant = _select_features(*part, estimator.max_features)
        columns = schema.encoded_columns(features)
        is_relevant = np.isin(columns, schema.encoded_columns(relevant))
        return features, SelectedColumns(columns, is_relevant)

    features, of_all = select(np.arange(len(matrix)))
    of_training = [of_all if len(rows) == len(matrix) else select(rows)[1] for rows in training]
    return features, of_training


def _select_features(
    matrix: Floats, y: Floats, weight: Floats | None, max_features: int
) -> tuple[Indices, Indices]:
    """At most `max_features` distinct features, and the most relevant ones of them."""
    if matrix.shape[1] > max_features:
        features = important_features(matrix, y, max_features, weight)
    else:
        features = distinct_features(matrix)
        features = features if len(features) else np.arange(1)  # a network needs one
    own = matrix[:, features]
    return features, features[important_features(own, y, MAX_RELEVANT_FEATURES, weight)]


def learn_inputs(
    estimator: Any,
    rows: WeightedRows,
    columns: list[SelectedColumns],
    training: list[NDArray[np.intp]],
    learned: LearnedMetric | None,
    learn: MetricCache,
) -> list[NetworkInputs]:
    """The inputs of networks that are trained on each of these sets of rows, the last one of all.

    `learned` is the metric of all rows and columns, where it is known; `learn` learns others.
    """
    is_wide = not all(own.is_relevant.all() for own in columns)
    every = [np.ones_like(own.is_relevant) for own in columns]
    factors = _learn_factors(estimator, rows, columns, every, training, learned, learn)
    relevant = factors
    if is_wide:
        masks = [own.is_relevant for own in columns]
        relevant = _learn_factors(estimator, rows, columns, masks, training, None, learn)
    each = zip(columns, relevant, factors, strict=True)
    return [NetworkInputs(own.columns, *both) for own, *both in each]


def _learn_factors(
    estimator: Any,
    rows: WeightedRows,
    columns: list[SelectedColumns],
    masks: list[NDArray[np.bool_]],
    training: list[NDArray[np.intp]],
    learned: LearnedMetric | None,
    learn: MetricCache,
) -> list[FeatureFactors]:
    """The factors of the columns in the masks, learned from each set of rows."""
    if not uses_relevance(estimator):
        return [FeatureFactors(mask.astype(np.float64), None) for mask in masks]
    used = [own.columns[mask] for own, mask in zip(columns, masks, strict=True)]
    if learned is None or len(used[-1]) < rows.X.shape[1]:
        learned = learn(*rows.take(training[-1]).select(used[-1]))
    factors = []
    for own, mask, indices in zip(used, masks, training, strict=True):
        metric, is_same = learned, np.array_equal(own, used[-1])
        if len(indices) < len(training[-1]):
            metric = learn(*rows.take(indices).select(own), learned if is_same else None)
        relevance = np.zeros(len(mask))
        relevance[mask] = metric_factors(1.0 / metric.length_scales)
        factors.append(FeatureFactors(mask.astype(np.float64), relevance))
    return factors


def uses_relevance(estimator: Any) -> bool:
    """Whether any setting of the networks scales features by their relevance."""
    return any(setting.relevance for setting in member_settings(estimator))
