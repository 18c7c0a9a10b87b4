"""Wide tables: selection of important features, and of pair features.

A feature of a table becomes three columns of a pair, and every tree searches all of them. So of a
wide table, constant features, copies of other features and the least important ones are dropped.

Where y is nearly a sum of effects of many features, trees that see differences alone predict other
rows much better than trees that also see the features of both rows; elsewhere much worse
(`benchmarks/wide.py`). A short trial on held-out rows decides.
"""

from __future__ import annotations

import logging

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold, KFold

from twinned.models.resources import limit_threads
from twinned.models.sklearn import PairTrainingSet, round_pairs
from twinned.pairing.pairs import PairFeatures
from twinned.rows.scaling import StandardScaling, merge_equal_rows
from twinned.rows.schema import Floats, Indices

DUPLICATE_CORRELATION = 0.999
"""Two features are copies where both correlations, of values and of ranks, exceed this."""

# Small trees that see a third of the features at each split: a fifth of the seconds of fully grown
# ones, and the selections of two seeds agree as well as theirs. The seed is fixed: the same rows
# have the same features, whatever the random state of a twin is.
_TREES = ExtraTreesRegressor(100, min_weight_fraction_leaf=0.01, max_features=1 / 3, random_state=0)
# Of the trial with and without the features of both rows.
_N_FOLDS = 3  # of which one is held out
_TRIAL_ITERATIONS = 60
_LEAST_GAIN = 0.05  # by which differences alone must lower the error
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


def choose_pair_columns(
    base: BaseEstimator, training: PairTrainingSet, features: PairFeatures, n_jobs: int | None
) -> PairTrainingSet:
    """The training set, with the features of both rows held at 0 where these do not pay.

    A column that is constant in training is never split at, so the result predicts by differences
    alone. Estimators other than boosting of a single output keep all columns, and so do few rows.
    """
    n_concatenated, n_columns = features.n_concatenated, features.width
    is_boosting = isinstance(base, HistGradientBoostingRegressor)
    if not is_boosting or not 0 < n_concatenated < n_columns or len(training.y) < 10 * _N_FOLDS:
        return training
    round_pairs(base, training)
    every, differences = (held_out_error(base, training, k, n_jobs) for k in (0, n_concatenated))
    if not differences < (1.0 - _LEAST_GAIN) * every:
        return training
    _LOGGER.info("differences alone are used; relative error: %.2f", differences / every)
    return training.hold_constant(n_concatenated)


def held_out_error(
    base: BaseEstimator, training: PairTrainingSet, start: int, n_jobs: int | None
) -> float:
    """The mean absolute error of held-out rows, after a few iterations on pairs of the other ones.

    Each row is predicted by the mean over its pairs with known rows. This error varies less than
    the RMSE, which a few rows may decide. The columns of pairs from `start` on are used. NaN where
    there are no pairs of known rows, or none of a known row and another one.
    """
    is_known = _known_rows(training)
    first, second = is_known[training.first], is_known[training.second]
    train, test = np.flatnonzero(first & second), np.flatnonzero(first != second)
    if not len(train) or not len(test):
        return np.nan
    pairs = np.asarray(training.pairs)[:, start:]
    weight = training.fit_params.get("sample_weight")
    weight = None if weight is None else weight[train]
    trial = clone(base).set_params(max_iter=min(_TRIAL_ITERATIONS, base.max_iter), random_state=0)
    with limit_threads(n_jobs):
        trial.fit(pairs[train], training.target[train], sample_weight=weight)
        residual = trial.predict(pairs[test]) - training.target[test]
    is_second = first[test]
    rows = np.where(is_second, training.second[test], training.first[test])
    counts = np.bincount(rows)
    sums = np.bincount(rows, weights=np.where(is_second, -residual, residual))
    return float(np.mean(np.abs(sums[counts > 0]) / counts[counts > 0]))


def _known_rows(training: PairTrainingSet) -> NDArray[np.bool_]:
    """(row,) mask of the rows that are not held out; groups are not divided."""
    cv, groups = KFold(_N_FOLDS, shuffle=True, random_state=0), training.groups
    if groups is not None and len(np.unique(groups)) >= _N_FOLDS:
        cv = GroupKFold(_N_FOLDS)
    known_rows, _ = next(cv.split(training.y, groups=groups))
    return np.isin(np.arange(len(training.y)), known_rows)
