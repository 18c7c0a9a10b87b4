"""Baselines that a twin is compared with: its base estimator on plain rows, k-NN and ridge."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags

from twinned._neighbors import Indices
from twinned._table import Floats
from twinned._validation import validate_training_table
from twinned.estimators.base import BaseTwin
from twinned.estimators.twin import TwinRegressor

# Rows in a leaf where the default estimator is fitted to plain rows; in a twin a leaf counts pairs.
# Of 2, 5, 10, 20 and 40 rows, 10 have the lowest mean error on the paper's nine data sets; of 2 to
# 14, 4 have the lowest with only 32 training rows.
_MIN_SAMPLES_LEAF, _MAX_LEAF_SHARE = 10, 1 / 8


def plain_estimator(
    twin: BaseTwin, fitted: BaseTwin, n_rows: int, random_state: int
) -> BaseEstimator:
    """Return the base estimator of a twin, unfitted and with the same settings, for plain rows.

    `fitted` is a fitted clone of the twin; its `estimator_` has the settings of the default
    estimator. `random_state` seeds an estimator that has no seed.
    """
    if not isinstance(twin, TwinRegressor):
        return plain_network(twin)
    if twin.estimator is None:
        leaf = max(2, min(_MIN_SAMPLES_LEAF, int(_MAX_LEAF_SHARE * n_rows)))
        estimator = clone(fitted.estimator_).set_params(min_samples_leaf=leaf, random_state=None)
    else:
        estimator = clone(twin.estimator)
    seeds = {k: random_state for k, v in estimator.get_params().items() if _is_unset_seed(k, v)}
    return estimator.set_params(**seeds)


def _is_unset_seed(name: str, value: object) -> bool:
    return name.endswith("random_state") and value is None


def plain_network(twin: BaseTwin) -> BaseEstimator:
    """Return the `NeuralRegressor` with the settings of a `TwinNeuralRegressor`."""
    from twinned.neural import NeuralRegressor

    names = NeuralRegressor().get_params()
    return NeuralRegressor(**{k: v for k, v in twin.get_params().items() if k in names})


def ridge() -> Pipeline:
    """Return ridge regression on standardized features."""
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))


def nearest_neighbors(n_rows: int, groups: Indices | None) -> GridSearchCV:
    """Return k-NN on standardized features; k is chosen by cross-validation of the training set."""
    pipeline = make_pipeline(StandardScaler(), KNeighborsRegressor(weights="distance"))
    sizes = [k for k in (1, 2, 4, 8, 16, 32) if k <= n_rows // 2]
    n_groups = 0 if groups is None else len(np.unique(groups))
    cv = None
    if n_groups > 1:
        cv = list(GroupKFold(min(5, n_groups)).split(np.arange(n_rows), groups=groups))
    grid = {"kneighborsregressor__n_neighbors": sizes}
    return GridSearchCV(pipeline, grid, scoring="neg_root_mean_squared_error", cv=cv)


def encode_features(X: Any, categorical_features: Any = "from_dtype") -> Floats:
    """Return a table as (n, n_features) numbers, with indicators of categories as in twins."""
    matrix, schema = validate_training_table(
        TwinRegressor(), X, categorical_features, allow_nan=True, pair_dtype=np.dtype(np.float64)
    )
    return schema.to_rows(matrix).features


def features_for(estimator: BaseEstimator, features: Floats, train: Indices) -> Floats:
    """Return features with zeros for missing values where an estimator does not accept them.

    Features without any known value in the training rows are zero for every estimator.
    """
    if not get_tags(estimator).input_tags.allow_nan:
        return np.nan_to_num(features, nan=0.0)
    return np.where(np.isnan(features[train]).all(axis=0), 0.0, features)


def describe(estimator: BaseEstimator) -> str:
    """Return an estimator on one line, with all settings that are not defaults.

    >>> describe(KNeighborsRegressor(n_neighbors=3))
    'KNeighborsRegressor(n_neighbors=3)'
    """
    with config_context(print_changed_only=True):
        return " ".join(estimator.__repr__(N_CHAR_MAX=10**6).split())
