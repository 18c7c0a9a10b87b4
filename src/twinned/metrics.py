"""Metrics of predictive distributions, of models that have `predict_quantiles` and `log_density`.

Each takes a fitted model, rows and their values, and is a mean over the rows and, for a model of
several targets, over the targets. `log_likelihood` and `neg_crps` are scorers: give them as
`scoring` to `cross_val_score`, as larger is better.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned.rows.schema import Floats

_N_LEVELS = 200  # of the quantiles by which the CRPS is computed


def log_likelihood(model: Any, X: Any, y: Floats) -> float:
    """Mean logarithm of the predictive density at the values y.

    >>> from twinned import AutoTwinRegressor
    >>> from twinned.metrics import crps, log_likelihood
    >>> X = np.random.RandomState(0).uniform(size=(60, 1))
    >>> y = 2 * X[:, 0] + np.random.RandomState(1).normal(size=60)
    >>> model = AutoTwinRegressor(members=["ridge"]).fit(X[:40], y[:40])
    >>> bool(-1.7 < log_likelihood(model, X[40:], y[40:]) < -1.2)  # -1.42 with the true density
    True
    >>> bool(0.4 < crps(model, X[40:], y[40:]) < 0.7)
    True
    """
    return float(np.mean(model.log_density(X, np.asarray(y))))


def crps(model: Any, X: Any, y: Floats) -> float:
    """Mean continuous ranked probability score, in units of y; smaller is better.

    It is the mean absolute error where the distribution is a single value.
    """
    levels = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
    quantiles = np.asarray(model.predict_quantiles(X, levels))
    if np.shape(y) != quantiles.shape[:-1]:
        raise ValueError(f"y has the shape {np.shape(y)}; predictions have {quantiles.shape[:-1]}.")
    errors = np.asarray(y)[..., None] - quantiles
    return float(2 * np.mean(errors * (levels - (errors < 0))))


def neg_crps(model: object, X: object, y: Floats) -> float:
    """The negative CRPS."""
    return -crps(model, X, y)
