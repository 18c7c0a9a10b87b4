"""The base estimator of a twin on plain rows, with which `twinned fit` compares the twin."""

from __future__ import annotations

from sklearn import config_context
from sklearn.base import BaseEstimator, clone

from twinned.estimators.base import BaseTwin
from twinned.estimators.twin import TwinRegressor
from twinned.models.base_estimator import set_unset_seeds

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
        return _plain_network(twin)
    if twin.estimator is None:
        leaf = max(2, min(_MIN_SAMPLES_LEAF, int(_MAX_LEAF_SHARE * n_rows)))
        estimator = clone(fitted.estimator_).set_params(min_samples_leaf=leaf, random_state=None)
    else:
        estimator = clone(twin.estimator)
    return set_unset_seeds(estimator, lambda: random_state)


def _plain_network(twin: BaseTwin) -> BaseEstimator:
    """Return the `NeuralRegressor` with the settings of a `TwinNeuralRegressor`."""
    from twinned.neural import NeuralRegressor

    names = NeuralRegressor().get_params()
    return NeuralRegressor(**{k: v for k, v in twin.get_params().items() if k in names})


def describe(estimator: BaseEstimator) -> str:
    """Return an estimator on one line, with all settings that are not defaults.

    >>> from sklearn.neighbors import KNeighborsRegressor
    >>> describe(KNeighborsRegressor(n_neighbors=3))
    'KNeighborsRegressor(n_neighbors=3)'
    """
    with config_context(print_changed_only=True):
        return " ".join(estimator.__repr__(N_CHAR_MAX=10**6).split())
