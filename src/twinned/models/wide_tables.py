"""Wide tables: selection of important features.

A feature of a table becomes three columns of a pair, and every tree searches all of them. So of a
wide table, constant features, copies of other features and the least important ones are dropped.
"""

import logging

import numpy as np
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor

from twinned.rows.scaling import StandardScaling, merge_equal_rows
from twinned.rows.schema import Floats, Indices

DUPLICATE_CORRELATION = 0.999
"""Two features are copies where both correlations, of values and of ranks, exceed this."""

# Small trees that see a third of the features at each split: a fifth of the seconds of fully grown
# ones, and the selections of two seeds agree as well as theirs. The seed is fixed: the same rows
# have the same features, whatever the random state of a twin is.
_TREES = ExtraTreesRegressor(100, min_weight_fraction_leaf=0.01, max_features=1 / 3, random_state=0)
_LOGGER = logging.getLogger("twinned")


def important_features(
    matrix: Floats, y: Floats, n_selected: int, weight: Floats | None = None
) -> Indices:
    """The indices of at most `n_selected` distinct features, by their importance for y.

    Importance is that of impurity in a small forest of extremely randomized trees. All features are
    returned where there are no more than `n_selected`.

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
        # so a weight is the same as a repetition, for trees that draw random numbers in each node
        merged, weight = merge_equal_rows(ranks, target, weight)
        target = target[:, 0] if target.shape[1] == 1 else target
        forest = clone(_TREES).fit(ranks[merged], target[merged], sample_weight=weight)
        order = np.argsort(-forest.feature_importances_, kind="stable")
        features = np.sort(features[order[:n_selected]])
    _LOGGER.info("the %d most important of %d features are used", len(features), n_features)
    return features


def distinct_features(matrix: Floats) -> Indices:
    """The indices of features that are neither constant nor a copy of an earlier one.

    The first one where all are constant, as a model needs one.

    >>> x = np.array([0.0, 1.0, 4.0, 9.0])
    >>> distinct_features(np.column_stack([x, np.ones(4), 2 - 3 * x, x**2]))
    array([0, 3])
    """
    values, ranks = (_standardize(columns) for columns in (matrix, _ranks(matrix)))
    missing = np.isnan(matrix)
    partly_missing = missing.any(axis=0) & ~missing.all(axis=0)
    varying = np.flatnonzero((ranks != 0).any(axis=0) | partly_missing)
    correlation = np.minimum(
        *(
            np.abs(columns[:, varying].T @ columns[:, varying]) / len(matrix)
            for columns in (values, ranks)
        )
    )
    copies = np.triu(correlation > DUPLICATE_CORRELATION, k=1)
    distinct = np.ones(len(varying), dtype=bool)
    for j in range(len(varying)):
        distinct[copies[j]] &= not distinct[j]  # a copy of a dropped feature is not dropped for it
    return varying[distinct] if len(varying) else np.arange(1)


def _ranks(matrix: Floats) -> Floats:
    """(row, feature): ranks among the distinct values, which no outlier stretches; NaN stays."""
    ranks: Floats = rankdata(matrix, method="dense", axis=0, nan_policy="omit")
    return ranks


def _standardize(values: Floats) -> Floats:
    """Columns of mean 0 and variance 1; constant columns and missing values are 0."""
    largest = np.abs(np.nan_to_num(values)).max(axis=0)
    values = values / np.where(largest > 0, largest, 1.0)  # or squares overflow
    return StandardScaling.fit(values).transform(values)
