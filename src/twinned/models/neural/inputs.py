"""Inputs of the networks: their features and the factors of these, without the rows of each fold.

What a network that holds out a fold sees of its features does not depend on the rows that it
predicts: both the features of a wide table and their relevance are learned without these rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned._neighbors import Indices, LearnedMetric
from twinned._table import Floats, TableSchema
from twinned.models.neural.parameters import member_settings
from twinned.models.relevance import learn_relevance, relevance_factors
from twinned.pairing.screening import relevant_features


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


class NetworkInputs(NamedTuple):
    """The encoded columns that a network uses, and their factors where it scales features."""

    columns: Indices
    relevance: Floats | None  # None where no network needs it


def select_columns(
    schema: TableSchema,
    matrix: Floats,
    y: Floats,
    weight: Floats | None,
    max_features: int | None,
    training: list[NDArray[np.intp]],
) -> tuple[Indices, list[Indices]]:
    """The features selected on all rows, and the columns selected on each set of training rows.

    `matrix` (row, feature) and `y` (row, output) are those of the table.
    """
    every = np.arange(schema.n_features)
    if max_features is None or len(every) <= max_features:
        return every, [schema.encoded_columns(every)] * len(training)

    def select(rows: NDArray[np.intp]) -> Indices:
        own = None if weight is None else weight[rows]
        return relevant_features(matrix[rows], y[rows], max_features, own)

    selected = select(np.arange(len(matrix)))
    of_training = [selected if len(rows) == len(matrix) else select(rows) for rows in training]
    return selected, [schema.encoded_columns(features) for features in of_training]


def learn_inputs(
    estimator: Any,
    rows: WeightedRows,
    columns: list[Indices],
    training: list[NDArray[np.intp]],
    learned: LearnedMetric | None,
) -> list[NetworkInputs]:
    """The inputs of networks that are trained on each of these sets of rows, the last one of all.

    `learned` is the metric of all rows and columns, where it is known.
    """
    if not uses_relevance(estimator):
        return [NetworkInputs(own, None) for own in columns]
    of_all = columns[-1]
    if learned is None or len(of_all) < rows.X.shape[1]:
        learned = _learn(rows.take(training[-1]), of_all, None)
    inputs = []
    for own, used in zip(columns, training, strict=True):
        metric, is_same = learned, np.array_equal(own, of_all)
        if len(used) < len(training[-1]):
            metric = _learn(rows.take(used), own, learned if is_same else None)
        inputs.append(NetworkInputs(own, relevance_factors(1.0 / metric.length_scales)))
    return inputs


def uses_relevance(estimator: Any) -> bool:
    """Whether any setting of the networks scales features by their relevance."""
    return any(setting.relevance for setting in member_settings(estimator))


def _learn(rows: WeightedRows, columns: Indices, similar: LearnedMetric | None) -> LearnedMetric:
    return learn_relevance(rows.X[:, columns], rows.y, rows.weight, similar=similar)
