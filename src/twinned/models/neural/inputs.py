"""Inputs of the networks: the validated table, and the features and factors of each network.

What a network that holds out a fold sees of its features does not depend on the rows that it
predicts: both the features of a wide table and their relevance are learned without these rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.censoring import TargetBounds, validate_bounds
from twinned.models.neural.parameters import TrainingOptions
from twinned.models.relevance import RelevanceCache, relevance_factors
from twinned.pairing.screening import distinct_features, relevant_features
from twinned.rows.neighbors import Indices, LearnedMetric
from twinned.rows.schema import Floats, TableSchema, mark_missing
from twinned.rows.validation import check_sample_weight, validate_target, validate_training_table

MAX_RELEVANT_FEATURES = 60
"""Number of features of a wide table that the settings without `all_features` use."""

FLOAT64 = np.dtype(np.float64)


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
    def known_rows(self) -> Indices:
        """Indices of the rows that may be anchors."""
        rows = np.arange(len(self.target))
        return rows if self.bounds is None else rows[~self.bounds.censored]

    @property
    def y(self) -> Floats:
        """(row, output)."""
        return self.target.reshape(len(self.target), -1)


def validate_rows(
    estimator, X, y, sample_weight=None, y_lower=None, y_upper=None, *, unlabelled=False
):
    """Return the `TrainingTable` of the arguments of `fit`; `unlabelled` allows NaN in y."""
    matrix, schema = validate_training_table(
        estimator, X, estimator.categorical_features, allow_nan=True, pair_dtype=FLOAT64
    )
    n_rows = len(matrix)
    weight = check_sample_weight(sample_weight, n_rows)
    bounds = None
    if y_lower is None and y_upper is None:
        target = validate_target(estimator, y, n_rows, multi_output=True, unlabelled=unlabelled)
    else:
        bounds = validate_bounds(estimator, y, y_lower, y_upper, n_rows, weight)
        target = bounds.limits()
    labelled = ~np.isnan(target.reshape(n_rows, -1)).any(axis=1)
    indices = np.flatnonzero(labelled if weight is None else labelled & (weight > 0))
    if len(indices) < 2:
        raise ValueError(f"y has {len(indices)} known values in {n_rows} rows; a twin needs two.")
    return TrainingTable(
        indices=indices,
        matrix=matrix[indices],
        target=target[indices],
        weight=None if weight is None else weight[indices],
        # rows of weight 0 are as if they were not there
        schema=mark_missing(schema, matrix if weight is None else matrix[weight > 0]),
        unlabelled=matrix[~labelled],
        n_rows=n_rows,
        bounds=None if bounds is None or not bounds.censored.any() else bounds.take(indices),
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


def selects_features(options: TrainingOptions, n_features: int) -> bool:
    """Whether some of so many features are dropped, by all networks or by some settings."""
    limit = options.max_features
    return limit is not None and n_features > min(limit, MAX_RELEVANT_FEATURES)


def select_inputs(
    options: TrainingOptions,
    table: TrainingTable,
    rows: WeightedRows,
    training: list[Indices],
    in_table: list[Indices],
    learned: LearnedMetric | None,
    learn: RelevanceCache,
) -> tuple[Indices, list[NetworkInputs]]:
    """The features selected on all rows, and the inputs of networks of each set of training rows.

    `training` are the sets as rows of `rows`, the last one of all, and `in_table` as rows of the
    table. `learned` is the metric of all rows and columns, where it is known; `learn` learns
    others.
    """
    features, of_sets = _select_columns(options, table, in_table)
    columns = [own for own, _ in of_sets]
    # for settings with few features, and with all
    masks = [np.stack([relevant, np.ones_like(relevant)]) for _, relevant in of_sets]
    relevance = [mask.astype(np.float64) for mask in masks]
    if options.uses_relevance:
        is_wide = not all(relevant.all() for _, relevant in of_sets)
        for kind in (0, 1) if is_wide else (1,):
            used = [own[mask[kind]] for own, mask in zip(columns, masks, strict=True)]
            factors = _learn_factors(rows, used, training, learned if kind else None, learn)
            for own, mask, factor in zip(relevance, masks, factors, strict=True):
                own[kind, mask[kind]] = factor
        if not is_wide:
            relevance = [own[[1, 1]] for own in relevance]
    each = zip(columns, masks, relevance, strict=True)
    return features, [NetworkInputs(own, mask.astype(float), factor) for own, mask, factor in each]


def _select_columns(
    options: TrainingOptions, table: TrainingTable, row_sets: list[Indices]
) -> tuple[Indices, list[tuple[Indices, NDArray[np.bool_]]]]:
    """The features selected on all rows; and of each set of rows, the encoded columns.

    With these comes whether each column is one of the most relevant ones.
    """
    schema, n_rows = table.schema, len(table.matrix)
    if not selects_features(options, schema.n_features):
        features = np.arange(schema.n_features)
        columns = schema.encoded_columns(features)
        return features, [(columns, np.ones(len(columns), dtype=bool))] * len(row_sets)

    def select(rows: Indices) -> tuple[Indices, tuple[Indices, NDArray[np.bool_]]]:
        weight = None if table.weight is None else table.weight[rows]
        features, relevant = _select_features(
            table.matrix[rows], table.y[rows], weight, options.max_features
        )
        columns = schema.encoded_columns(features)
        return features, (columns, np.isin(columns, schema.encoded_columns(relevant)))

    features, of_all = select(np.arange(n_rows))
    return features, [of_all if len(rows) == n_rows else select(rows)[1] for rows in row_sets]


def _select_features(
    matrix: Floats, y: Floats, weight: Floats | None, max_features: int | None
) -> tuple[Indices, Indices]:
    """At most `max_features` distinct features, and the most relevant ones of them."""
    if max_features is not None and matrix.shape[1] > max_features:
        features = relevant_features(matrix, y, max_features, weight)
    else:
        features = distinct_features(matrix)
        features = features if len(features) else np.arange(1)  # a network needs one
    relevant = relevant_features(matrix[:, features], y, MAX_RELEVANT_FEATURES, weight)
    return features, features[relevant]


def _learn_factors(
    rows: WeightedRows,
    columns: list[Indices],
    training: list[Indices],
    learned: LearnedMetric | None,
    learn: RelevanceCache,
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
        factors.append(relevance_factors(1.0 / metric.length_scales))
    return factors
