"""Screening of features: the distinct and relevant ones of a wide table.

A feature of a table becomes three columns of a pair, and every tree searches all of them. Of a wide
table, constant features, copies of other features and the least relevant ones are dropped.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.ensemble import ExtraTreesRegressor

from twinned.rows.schema import Floats

DUPLICATE_CORRELATION = 0.999
"""Two features are copies where both correlations, of values and of ranks, exceed this."""

# Small trees that see a third of the features at each split: a fifth of the seconds of fully grown
# ones, and the selections of two seeds agree as well as theirs.
_N_TREES = 100
_LEAST_LEAF = 0.01  # share of the weight of all rows
_FEATURES_PER_SPLIT = 1 / 3
_LOGGER = logging.getLogger("twinned")


def relevant_features(
    matrix: Floats, y: Floats, n_selected: int, weight: Floats | None = None
) -> NDArray[np.intp]:
    """The indices of at most `n_selected` distinct features, by their relevance to y.

    Relevance is the impurity importance in a small forest of extremely randomized trees. All
    features are returned where there are no more than `n_selected`.

    Parameters
    ----------
    matrix : array of shape (n_rows, n_features)
        Encoded features; codes of categories count as numbers, and NaN is a missing value.
    y : array of shape (n_rows,) or (n_rows, n_outputs)
        Target values.
    n_selected : int
        Maximum number of features.
    weight : array of shape (n_rows,), default=None
        Sample weights.

    Returns
    -------
    indices : array of shape (n_selected,) or less
        In increasing order.
    """
    n_features = matrix.shape[1]
    if n_features <= n_selected:
        return np.arange(n_features)
    features = distinct_features(matrix)
    if len(features) > n_selected:
        ranks = _ranks(matrix[:, features])
        target = _standardize(y.reshape(len(y), -1))
        first, weight = _merge_equal_rows(ranks, target, weight)
        target = target[:, 0] if target.shape[1] == 1 else target
        # fixed seed: the same rows have the same features, whatever the random state of a twin is
        forest = ExtraTreesRegressor(
            _N_TREES,
            min_weight_fraction_leaf=_LEAST_LEAF,
            max_features=_FEATURES_PER_SPLIT,
            random_state=0,
        )
        forest.fit(ranks[first], target[first], sample_weight=weight)
        order = np.argsort(-forest.feature_importances_, kind="stable")
        features = np.sort(features[order[:n_selected]])
    if len(features) == 0:
        features = np.arange(1)  # all are constant, and a model needs one
    _LOGGER.info(
        "%d of %d features are used; the others are constant, copies, or the least relevant ones",
        len(features),
        n_features,
    )
    return features


def distinct_features(matrix: Floats) -> NDArray[np.intp]:
    """The indices of features that are neither constant nor a copy of an earlier one.

    >>> x = np.array([0.0, 1.0, 4.0, 9.0])
    >>> distinct_features(np.column_stack([x, np.ones(4), 2 - 3 * x, x**2]))
    array([0, 3])
    """
    values, ranks = (_standardize(part) for part in (matrix, _ranks(matrix)))
    missing = np.isnan(matrix)
    partly_missing = missing.any(axis=0) & ~missing.all(axis=0)
    varying = np.flatnonzero((ranks != 0).any(axis=0) | partly_missing)
    correlation = np.minimum(
        *(np.abs(part[:, varying].T @ part[:, varying]) / len(matrix) for part in (values, ranks))
    )
    copies = np.triu(correlation > DUPLICATE_CORRELATION, k=1)
    distinct = np.ones(len(varying), dtype=bool)
    for j in range(len(varying)):
        distinct[copies[j]] &= not distinct[j]  # a copy of a dropped feature is not dropped for it
    return varying[distinct]


def _merge_equal_rows(
    ranks: Floats, target: Floats, weight: Floats | None
) -> tuple[NDArray[np.intp], Floats]:
    """The first of each set of equal rows, and the sum of their weights.

    So a weight is the same as a repetition, for trees that draw random numbers in each node.
    """
    keys = np.column_stack([np.nan_to_num(ranks, nan=-1.0), target])
    _, first, merged_into = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return first, np.bincount(merged_into.ravel(), weights=weight).astype(np.float64)


def _ranks(matrix: Floats) -> Floats:
    """(row, feature): ranks among the distinct values, which no outlier stretches; NaN stays."""
    ranks: Floats = rankdata(matrix, method="dense", axis=0, nan_policy="omit")
    return ranks


def _standardize(values: Floats) -> Floats:
    """Columns of mean 0 and variance 1; constant columns and missing values are 0."""
    known = ~np.isnan(values)
    filled = np.where(known, values, 0.0)
    largest = np.abs(filled).max(axis=0)
    filled = filled / np.where(largest > 0, largest, 1.0)  # or squares overflow
    mean = filled.sum(axis=0) / np.maximum(1, known.sum(axis=0))
    centered = np.where(known, filled - mean, 0.0)
    spread = centered.std(axis=0)
    return np.where(spread > 1e-12, centered / np.where(spread > 1e-12, spread, 1.0), 0.0)
