"""Choice between all pair features and differences alone, for wide tables.

Where y is nearly a sum of effects of many features, trees that see differences alone predict other
rows much better than trees that also see the features of both rows; elsewhere much worse
(`benchmarks/wide.py`). A short trial on held-out rows decides.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GroupKFold, KFold

from twinned.models.sklearn import PairTrainingSet
from twinned.models.threads import limit_threads
from twinned.pairing.features import PairFeatures
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

_N_FOLDS = 3  # of which one is held out
_TRIAL_ITERATIONS = 60
_LEAST_GAIN = 0.05  # by which differences alone must lower the error
_LOGGER = logging.getLogger("twinned")


def choose_pair_columns(
    base: Any, training: PairTrainingSet, features: PairFeatures, n_jobs: int | None
) -> PairTrainingSet:
    """The training set, with the features of both rows held at 0 where these do not pay.

    A column that is constant in training is never split at, so the result predicts by differences
    alone. Estimators other than boosting of a single output keep all columns, and so do few rows.
    """
    n_concatenated, n_columns = features.n_concatenated, features.width
    is_boosting = isinstance(base, HistGradientBoostingRegressor)
    if not is_boosting or not 0 < n_concatenated < n_columns or len(training.y) < 10 * _N_FOLDS:
        return training
    is_known = _known_rows(training)
    columns = [np.arange(n_columns), np.arange(n_concatenated, n_columns)]
    every, differences = (held_out_error(base, training, is_known, own, n_jobs) for own in columns)
    if not differences < (1.0 - _LEAST_GAIN) * every:
        return training
    _LOGGER.info(
        "differences alone are used: their error on held-out rows is %.2f of that of all pair "
        "features",
        differences / every,
    )
    return training.hold_constant(n_concatenated)


def held_out_error(
    base: Any,
    training: PairTrainingSet,
    is_known: NDArray[np.bool_],
    columns: Indices,
    n_jobs: int | None,
) -> float:
    """The error of the other rows, predicted after a few iterations on pairs of the known ones.

    NaN where there are no pairs of known rows, or none of a known row and another one.
    """
    first, second = is_known[training.first], is_known[training.second]
    train, test = np.flatnonzero(first & second), np.flatnonzero(first != second)
    if not len(train) or not len(test):
        return np.nan
    pairs = np.asarray(training.pairs)[:, columns]
    weight = training.fit_params.get("sample_weight")
    trial = clone(base).set_params(max_iter=min(_TRIAL_ITERATIONS, base.max_iter), random_state=0)
    with limit_threads(n_jobs):
        trial.fit(
            pairs[train],
            training.target[train],
            sample_weight=None if weight is None else weight[train],
        )
        residual = trial.predict(pairs[test]) - training.target[test]
    return _error_of_rows(residual, training.first[test], training.second[test], is_known)


def _known_rows(training: PairTrainingSet) -> NDArray[np.bool_]:
    """(row,) mask of the rows that are not held out; groups are not divided."""
    cv, groups = KFold(_N_FOLDS, shuffle=True, random_state=0), training.groups
    if groups is not None and len(np.unique(groups)) >= _N_FOLDS:
        cv = GroupKFold(_N_FOLDS)
    known, _ = next(cv.split(training.y, groups=groups))
    mask = np.zeros(len(training.y), dtype=bool)
    mask[known] = True
    return mask


def _error_of_rows(
    residual: Floats, first: Indices, second: Indices, is_known: NDArray[np.bool_]
) -> float:
    """The mean absolute error of held-out rows, each predicted by the mean over its pairs.

    It varies less than the RMSE, which a few rows may decide.

    >>> known = np.array([True, True, False])
    >>> first, second = np.array([2, 0]), np.array([0, 2])  # row 2 first, then second
    >>> _error_of_rows(np.array([3.0, -1.0]), first, second, known)
    2.0
    """
    is_first = ~is_known[first]
    rows = np.where(is_first, first, second)
    counts = np.bincount(rows)
    sums = np.bincount(rows, weights=np.where(is_first, residual, -residual))
    return float(np.mean(np.abs(sums[counts > 0]) / counts[counts > 0]))
