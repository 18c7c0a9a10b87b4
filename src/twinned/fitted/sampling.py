"""Joint distribution of several predictions: correlations of their errors, and normal draws.

The correlation of the errors of two rows is the mean of three. The first is that of the estimates
of anchors and members: each anchor with each member is one function of the features, and rows are
correlated where the functions deviate from their mean alike. The second is that of a Gaussian
process with the learned length scales and noise, given the anchors: rows are correlated that are
near to each other, in units of what matters, and far from the anchors. The third is independence.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from scipy.spatial.distance import cdist
from scipy.special import ndtr
from sklearn.utils import gen_batches

from twinned.rows.folds import Folds
from twinned.rows.kernels import KERNELS
from twinned.rows.neighbors import LearnedMetric
from twinned.rows.schema import Floats, Indices, TableSchema

MAX_ROWS = 5000  # whose correlation matrix is computed
# Root mean square error of held-out rows in units of the spread of the anchors' estimates, roughly:
# it depends on the table and grows with the number of rows.
SPREAD_FACTOR = 2.0
MAX_KNOWN = 1000  # known rows by which the process is conditioned
_JITTER = LEAST_VARIANCE = 1e-8  # in units of the amplitude
_ROWS_PER_BLOCK = 1000
# Variance of the slope of a trend beyond the known rows, for length scales of 1
# (`benchmarks/intervals/outside.py`).
TREND = 0.1


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

    def explained(self, scaled: Floats) -> Floats:
        """(row, known row) of rows in length scales, whose inner products are explained."""
        return solve_triangular(self.factor, _kernel(self.scaled, scaled), lower=True).T

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


class ErrorFeatures(NamedTuple):
    """What the correlations of the errors of rows are computed from."""

    deviations: Floats  # (row, function), of the estimates, of norm 1, or 0 where all are equal
    scaled: Floats  # (row, encoded feature), in length scales
    explained: Floats  # (row, known row), whose inner products are explained by the known rows
    variance: Floats  # (row,), of a measurement, in units of the amplitude of the process

    @classmethod
    def of(cls, deviations: Floats, features: Floats, process: MetricProcess) -> ErrorFeatures:
        """The features of rows, from (row, function) deviations and encoded features."""
        norm = np.linalg.norm(deviations, axis=1, keepdims=True)
        unit = np.divide(deviations, norm, out=np.zeros_like(deviations), where=norm > 0)
        scaled = process.metric.in_length_scales(features)
        explained = process.explained(scaled)
        remaining = np.maximum(1.0 - np.sum(explained**2, axis=1), _JITTER)
        return cls(unit, scaled, explained, remaining + process.metric.noise)

    def process_correlation(self) -> Floats:
        """(row, row): correlations of measurements of the rows, by the process alone."""
        root = np.sqrt(self.variance)
        covariance = _kernel(self.scaled, self.scaled) - self.explained @ self.explained.T
        correlation: Floats = covariance / root[:, None] / root
        np.fill_diagonal(correlation, 1.0)
        return correlation

    def correlation(self) -> Floats:
        """(row, row): correlations of the errors of one measurement of each row."""
        mean = (self.deviations @ self.deviations.T + self.process_correlation()) / 3.0
        np.fill_diagonal(mean, 1.0)
        return mean

    def paired_correlation(self, other: ErrorFeatures) -> Floats:
        """(row,): correlation of the errors of each row and the same or only row of `other`."""
        squares = np.sum((self.scaled - other.scaled) ** 2, axis=1)
        covariance = KERNELS["matern"](squares)[0] - np.sum(self.explained * other.explained, 1)
        by_process = covariance / np.sqrt(self.variance * other.variance)
        mean: Floats = (np.sum(self.deviations * other.deviations, axis=1) + by_process) / 3.0
        return mean


class JointPrediction(NamedTuple):
    """Normal distribution of y at several rows."""

    mean: Floats  # (row,)
    std: Floats  # (row,)
    correlation: Floats  # (row, row)

    def sample(self, n_samples: int, rng: np.random.RandomState) -> Floats:
        """(sample, row): joint draws.

        >>> joint = JointPrediction(np.zeros(2), np.array([1.0, 2.0]), np.ones((2, 2)))
        >>> first, second = joint.sample(5, np.random.RandomState(0)).T
        >>> bool(np.allclose(second, 2 * first, atol=1e-3))
        True
        """
        jitter = _JITTER * np.eye(len(self.mean))
        factor = np.linalg.cholesky(self.correlation + jitter) * self.std[:, None]
        normal: Floats = rng.standard_normal((n_samples, len(self.mean)))
        return self.mean + normal @ factor.T


def probability_positive(mean: Floats, std: Floats) -> Floats:
    """Probability that a normal variable is positive; where std is 0, one half counts for 0.

    >>> probability_positive(np.array([0.0, 0.0, 2.0]), np.array([1.0, 0.0, 0.0]))
    array([0.5, 0.5, 1. ])
    """
    certain = np.where(mean > 0, np.inf, np.where(mean < 0, -np.inf, 0.0))
    probability: Floats = ndtr(np.divide(mean, std, out=certain, where=std > 0))
    return probability


def _kernel(first: Floats, second: Floats, further: Floats | float = 0.0) -> Floats:
    """(first, second): the correlation of the process at scaled rows.

    `further` (second,) is added to squares of distances.
    """
    return KERNELS["matern"](cdist(first, second, "sqeuclidean") + further)[0]
