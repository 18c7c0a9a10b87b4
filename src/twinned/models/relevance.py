"""Learned relevance of features: the length scales of a Gaussian process, and the learned metric.

A feature with a short length scale changes y within a short distance, so it is relevant; one with
a very long length scale is not. Distances after each feature is divided by its length scale compare
features of any unit, and ignore those that do not matter.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned._neighbors import LEARNED, LearnedMetric
from twinned._table import Floats, TableSchema
from twinned.models.gaussian_process import fit_gaussian_process
from twinned.pairing.weights import GPWeights

MAX_ROWS = 500  # of which the length scales are learned
# Of a relevance whose mean square is 1: what looks irrelevant in few rows still counts a little.
_LEAST_RELEVANCE = 0.02


def learn_relevance(
    features: Floats, y: Floats, sample_weight: Floats | None = None, *, max_rows: int = MAX_ROWS
) -> LearnedMetric:
    """Learn the relevance of features by a Gaussian process (Matérn 5/2).

    Parameters
    ----------
    features : ndarray of shape (n, n_encoded)
        Numeric features and indicators of categories; a missing value counts as the mean.
    y : ndarray of shape (n,) or (n, n_outputs)
        Target values; several outputs share the relevance.
    sample_weight : ndarray of shape (n,), default=None
        Weights of the rows.
    max_rows : int, default=500
        Number of rows of which the length scales are learned; of more rows, a fixed random subset.

    Returns
    -------
    LearnedMetric

    Examples
    --------
    >>> rng = np.random.RandomState(0)
    >>> X = rng.uniform(size=(80, 3)) * [1.0, 1000.0, 1.0]  # the third does not matter
    >>> metric = learn_relevance(X, np.sin(4 * X[:, 0]) + 0.001 * X[:, 1])
    >>> bool(metric.relevance[0] > metric.relevance[1] > metric.relevance[2])
    True
    """
    features = np.asarray(features, dtype=np.float64)
    known = ~np.isnan(features)
    center = np.where(known, features, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    filled = np.where(known, features, center)
    spread = np.where(filled.max(axis=0) > filled.min(axis=0), filled.std(axis=0), 0.0)
    process = fit_gaussian_process(
        filled, y, sample_weight=sample_weight, max_rows=max_rows, random_state=0
    )
    varying = spread > 0
    inverse = spread / process.length_scales  # per standard deviation; 0 for constant features
    length = 1.0 / np.sqrt(np.mean(inverse[varying] ** 2)) if inverse.any() else 1.0
    relevance = np.where(varying, np.maximum(length * inverse, _LEAST_RELEVANCE), 0.0)
    scale = np.divide(relevance, spread, out=np.zeros_like(spread), where=varying)
    return LearnedMetric(center, scale, relevance, float(length), process.noise)


def relevance_of_features(metric: LearnedMetric, schema: TableSchema) -> Floats:
    """(feature,) relevance of the features of a table, which sums to 1.

    The relevance of a categorical feature is the root of the sum of squares over its indicators.

    >>> schema = TableSchema(["categorical", "numeric"], [["a", "b"], []], [2, 0])
    >>> part = np.array([1.0, 1.2, 1.6])  # the numeric feature is encoded first
    >>> relevance_of_features(LearnedMetric(part, part, part, 1.0, 0.0), schema)
    array([0.66666667, 0.33333333])
    """
    relevance = np.empty(schema.n_features)
    n_numeric = len(schema.numeric)
    relevance[schema.numeric] = metric.relevance[:n_numeric]
    start = n_numeric
    for j in schema.categorical:
        end = start + schema.n_indicators[j]
        relevance[j] = np.sqrt(np.sum(metric.relevance[start:end] ** 2))
        start = end
    total = relevance.sum()
    return relevance / total if total > 0 else np.full(len(relevance), 1.0 / len(relevance))


def uses_learned_metric(*strategies: Any) -> bool:
    """Whether any of these strategies for pairs, anchors or weights needs the learned metric."""
    return any(
        isinstance(strategy, GPWeights)
        or (isinstance(metric := getattr(strategy, "metric", None), str) and metric == LEARNED)
        for strategy in strategies
    )
