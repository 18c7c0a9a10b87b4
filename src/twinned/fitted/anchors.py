"""Anchors: the known rows from which queries are predicted, what is derived from them, and queries.

By the process of the learned metric, given the anchors, intervals are widened outside of them.
Missing values that no anchor has are replaced by those of near anchors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, Self

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.spatial.distance import cdist
from sklearn.utils import gen_batches

from twinned.batches.effects import BatchEffects
from twinned.fitted.applicability import ApplicabilityDomain, Mask
from twinned.models.learned_metric import learn_metric
from twinned.pairing.anchors import EqualRows
from twinned.rows.folds import Folds
from twinned.rows.neighbors import KERNELS, LEARNED, LearnedMetric, NeighborIndex
from twinned.rows.schema import Floats, Indices, Rows, TableSchema
from twinned.rows.training import TrainingRows

_N_VALUES = 30  # by which a row is completed; a prediction is their mean
_MAX_DONORS = 1000  # known rows whose values are used; of more, a fixed random subset
MAX_KNOWN = 1000  # known rows by which the process is conditioned
_JITTER = LEAST_VARIANCE = 1e-8  # in units of the amplitude
_ROWS_PER_BLOCK = 1000
# Variance of the slope of a trend beyond the known rows, for length scales of 1
# (`benchmarks/intervals/outside.py`).
TREND = 0.1


class RowScale(Protocol):
    """Scale of encoded rows, for a model that is fitted to scaled features."""

    def transform(self, rows: Rows) -> Rows: ...


@dataclass(frozen=True, eq=False)
class Queries:
    """Validated rows to predict, encoded block by block, as indicators take much memory."""

    schema: TableSchema
    scale: RowScale | None
    matrix: Floats  # (query, feature), with categories as codes
    # (query,): deviation of the batch, its standard error, the factor of the other errors, and a
    # number of the batch that equals that of other queries of the same batch; None without batches
    offset: Floats | None = None
    offset_std: Floats | None = None
    error_ratio: Floats | None = None
    batch: Indices | None = None

    def take(self, rows: slice | Indices) -> Rows:
        """Encoded rows, as the model sees them."""
        encoded = self.schema.to_rows(self.matrix[rows])
        return encoded if self.scale is None else self.scale.transform(encoded)

    def encode(self) -> Rows:
        """All rows, encoded."""
        return self.take(slice(None))

    @property
    def encoded_features(self) -> Floats:
        """(query, encoded feature), not scaled."""
        return self.schema.to_rows(self.matrix).features

    def with_deviations(self, batches: BatchEffects, codes: Indices) -> Queries:
        """These rows with the deviations of their batches; codes below 0 are unknown ones."""
        offset, offset_std = batches.of_rows(self.encoded_features, codes)
        ratio = batches.error_ratio(codes)
        return replace(self, offset=offset, offset_std=offset_std, error_ratio=ratio, batch=codes)

    def append(self, others: Queries) -> Queries:
        """These rows and, after them, others of the same model."""
        joined: dict[str, Any] = {"matrix": np.concatenate([self.matrix, others.matrix])}
        for name in ("offset", "offset_std", "error_ratio", "batch"):
            first, second = vars(self)[name], vars(others)[name]
            joined[name] = None if first is None else np.concatenate([first, second])
        return replace(self, **joined)

    def __len__(self) -> int:
        return len(self.matrix)


@dataclass(frozen=True, eq=False)
class Anchors(TrainingRows):
    """Known rows from which queries are predicted; what is derived from them is made once.

    `y` is without the deviations of batches, `groups` are codes of groups that are held out
    together, and `batch` are codes of batches. Anchors that were added are row −1 of the table.
    """

    scale: RowScale | None = None
    censored_X: Floats | None = None  # (row, feature): rows of the fit whose value is not known
    learned_metric: LearnedMetric | None = None  # where it has been learned already
    n_jobs: int | None = None  # of neighbor searches
    # neighbor indices by metric, as needed
    indices: dict[str, NeighborIndex] = field(default_factory=dict, init=False)

    @classmethod
    def of_rows(cls, rows: TrainingRows, **details: Any) -> Self:
        """Of known rows of a fit, with details of the anchors."""
        of_fit = ("bounds", "fold", "fold_training", "unlabelled", "effects", "common")
        return cls(**values_of(rows) | dict.fromkeys(of_fit) | details)

    def to_rows(self, y: Floats, batch: np.ndarray | None) -> TrainingRows:
        """The anchors as rows of a fit, with these values and labels of batches."""
        return replace(
            TrainingRows(**values_of(self)),
            y=y,
            batch=batch,
            deviation=None,
            table_rows=np.arange(len(self)),
            n_table_rows=len(self),
        )

    def __getstate__(self) -> dict[str, object]:
        # without what is derived, except the metric, whose fit takes time
        return vars(replace(self, learned_metric=self.known_metric)) | {"indices": {}}

    @cached_property
    def rows(self) -> Rows:
        """Encoded anchors, as the model sees them."""
        return Queries(self.schema, self.scale, self.matrix).encode()

    @cached_property
    def features(self) -> Floats:
        """(anchor, encoded feature)."""
        return self.rows.features

    @property
    def measured_features(self) -> Floats:
        """(row, encoded feature): the anchors and, after them, censored rows of the fit."""
        if self.censored_X is None:
            return self.features
        censored = Queries(self.schema, self.scale, self.censored_X).encode()
        return np.concatenate([self.features, censored.features])

    @cached_property
    def metric(self) -> LearnedMetric:
        """The learned metric, of the fit or else of the anchors, when it is first needed."""
        return self.learned_metric or learn_metric(self.features, self.y, self.weight)

    @property
    def known_metric(self) -> LearnedMetric | None:
        """The learned metric, if it has been learned."""
        return vars(self).get("metric", self.learned_metric)

    @cached_property
    def process(self) -> MetricProcess:
        """The Gaussian process of the learned metric, given the anchors."""
        return MetricProcess(self.features, self.metric, self.schema)

    @cached_property
    def domain(self) -> ApplicabilityDomain:
        """The applicability domain."""
        return ApplicabilityDomain(
            self.matrix, self.features, self.metric, self.y, self.schema.categorical, self.groups
        )

    @cached_property
    def always_known(self) -> Mask:
        """(feature,): whether every anchor has a value."""
        return np.all(~np.isnan(self.matrix), axis=0)

    @cached_property
    def imputer(self) -> NeighborImputer:
        """Values for rows that miss those of features that every anchor has."""
        return NeighborImputer(self)

    @cached_property
    def equal_rows(self) -> EqualRows:
        """The anchors that equal rows to predict."""
        return EqualRows(self.matrix)

    def index(self, metric: str) -> NeighborIndex:
        """The neighbor index for a metric."""
        if metric not in self.indices:
            learned = self.metric if metric == LEARNED else None
            self.indices[metric] = NeighborIndex(self.features, metric, self.n_jobs, learned)
        return self.indices[metric]


def values_of(rows: TrainingRows) -> dict[str, Any]:
    """The values of the fields of `TrainingRows`."""
    return {of.name: vars(rows)[of.name] for of in fields(TrainingRows)}


class NeighborImputer:
    """Values of rows that miss one which all anchors have, from anchors.

    Models have not seen such rows, and their ways to handle missing values are not measured by the
    calibration. Their prediction is the mean over values that the missing features take in the
    nearest anchors, by the distances of the other features in the learned metric. Where anchors
    miss values of a feature, too, it is left to the model.
    """

    def __init__(self, anchors: Anchors) -> None:
        donors = np.random.RandomState(0).permutation(len(anchors))[:_MAX_DONORS]
        self._anchors, self._matrix = anchors, anchors.matrix[donors]
        self._scaled = anchors.metric.transform(anchors.features[donors])
        self.n_values: int = min(_N_VALUES, len(donors))

    def complete(self, matrix: Floats, n: int) -> tuple[Floats, Indices]:
        """Rows with the values of the n nearest anchors, the nearest first, for an incomplete row.

        Also returned is the (row,) first of each.
        """
        anchors, missing = self._anchors, np.isnan(matrix) & self._anchors.always_known
        incomplete = np.flatnonzero(missing.any(axis=1))
        counts = np.ones(len(matrix), dtype=np.intp)
        counts[incomplete] = n
        completed, starts = np.repeat(matrix, counts, axis=0), np.cumsum(counts) - counts
        patterns, numbers = np.unique(missing[incomplete], axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            columns = anchors.schema.encoded_columns(np.flatnonzero(~pattern))
            index = NeighborIndex(self._scaled[:, columns]) if len(columns) else None
            rows_of_pattern = incomplete[numbers.ravel() == number]
            for block in gen_batches(len(rows_of_pattern), _ROWS_PER_BLOCK):
                rows, nearest = rows_of_pattern[block], np.arange(n)
                if index is not None:
                    encoded = Queries(anchors.schema, anchors.scale, matrix[rows]).encode()
                    scaled = anchors.metric.transform(encoded.features)
                    nearest = index.kneighbors(scaled[:, columns], n)[0]
                positions = starts[rows, None] + np.arange(n)
                values = np.where(pattern, self._matrix[nearest], completed[positions])
                completed[positions] = values
        return completed, starts


class MetricProcess:
    """A Gaussian process with the learned length scales and noise, given known rows.

    Covariances are in units of its amplitude. Of more than 1,000 known rows, a fixed random subset
    is used.
    """

    def __init__(self, known_rows: Floats, metric: LearnedMetric, schema: TableSchema) -> None:
        """Of encoded features (known row, encoded feature)."""
        self.metric: LearnedMetric = metric
        self.schema: TableSchema = schema
        self.n_known: int = len(known_rows)
        self.used: Indices = np.random.RandomState(0).permutation(len(known_rows))[:MAX_KNOWN]
        self.scaled: Floats = metric.in_length_scales(known_rows[self.used])
        self.low: Floats = np.fmin.reduce(known_rows)  # without missing values
        self.high: Floats = np.fmax.reduce(known_rows)
        covariance = _kernel(self.scaled, self.scaled)
        covariance[np.diag_indices_from(covariance)] += metric.noise + _JITTER
        self.factor: Floats = np.linalg.cholesky(covariance)

    def correlation(self, features: Floats) -> Floats:
        """(row, row): correlations of measurements of rows with these encoded features."""
        scaled = self.metric.in_length_scales(features)
        explained = solve_triangular(self.factor, _kernel(self.scaled, scaled), lower=True).T
        remaining = np.maximum(1.0 - np.sum(explained**2, axis=1), LEAST_VARIANCE)
        std = np.sqrt(remaining + self.metric.noise)
        covariance: Floats = _kernel(scaled, scaled) - explained @ explained.T
        correlation = covariance / std[:, None] / std
        np.fill_diagonal(correlation, 1.0)
        return correlation

    def std(self, features: Floats) -> Floats:
        """(row,): standard deviation of y at rows with these encoded features.

        A category that no known row has is as far from the others as these are from each other. A
        feature beyond the range of the known rows adds the variance of a trend, which grows with
        the square of the distance, as the process itself returns to its mean.
        """
        std, inverse = np.empty(len(features)), self.metric.length_scales**-2.0
        for rows in gen_batches(len(features), _ROWS_PER_BLOCK):
            new = np.zeros(len(features[rows]))
            for feature in self.schema.categorical:
                columns = self.schema.encoded_columns(np.array([feature]))
                is_new = features[rows][:, columns].sum(axis=1) == 0
                new += is_new * inverse[columns].mean()
            scaled = self.metric.in_length_scales(features[rows])
            covariance = _kernel(self.scaled, scaled, new)
            explained = solve_triangular(self.factor, covariance, lower=True)
            remaining = np.maximum(1.0 - np.sum(explained**2, axis=0), LEAST_VARIANCE)
            excess = features[rows] - np.clip(features[rows], self.low, self.high)
            trend = TREND * np.nan_to_num(excess / self.metric.length_scales) ** 2
            std[rows] = np.sqrt(remaining + self.metric.noise + trend.sum(axis=1))
        return std

    def amplitude(self, y: Floats) -> float:
        """The likeliest standard deviation of the process, by values of the known rows."""
        values = y[self.used] - y[self.used].mean()
        independent = solve_triangular(self.factor, values, lower=True)
        return max(float(np.sqrt(np.mean(independent**2))), 1e-290)

    def held_out_std(self, features: Floats, folds: Folds) -> Floats:
        """(row,): the same of the rows of folds, by the other rows; NaN of rows without a fold."""
        std = np.full(len(features), np.nan)
        for training, held_out in folds:
            others = MetricProcess(features[training], self.metric, self.schema)
            std[held_out] = others.std(features[held_out])
        return std

    def regression(self, y: Floats) -> Callable[[Floats], Floats]:
        """The mean of the process (row, output) as a function of encoded features.

        `y` are values (known row, output).
        """
        mean = y[self.used].mean(axis=0)
        dual = cho_solve((self.factor, True), y[self.used] - mean)
        scale = self.metric.in_length_scales
        return lambda features: _kernel(scale(features), self.scaled) @ dual + mean


def _kernel(first: Floats, second: Floats, further: Floats | float = 0.0) -> Floats:
    """(first, second): the correlation of the process at scaled rows.

    `further` (second,) is added to squares of distances.
    """
    return KERNELS["matern"](cdist(first, second, "sqeuclidean") + further)[0]
