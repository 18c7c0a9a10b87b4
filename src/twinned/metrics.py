"""Metrics of predictive distributions, of models that have `predict_quantiles` and `log_density`.

Each takes a fitted model, rows and their values, and is a mean over the rows and, for a model of
several targets, over the targets; further arguments are `sample_weight`, and `batch`, `of` and
`y_std` as of `predict_quantiles`. `log_likelihood` and `neg_crps` are scorers: give them as
`scoring` to `cross_val_score`, as larger is better.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Unpack

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import MetadataRequest

from twinned.estimators.methods import PredictionMethods
from twinned.fitted.prediction import PredictionOptions
from twinned.rows.schema import Floats

_N_LEVELS = 200  # of the quantiles by which the CRPS is computed


def log_likelihood(
    model: PredictionMethods,
    X: ArrayLike,
    y: Floats,
    sample_weight: Floats | None = None,
    **options: Unpack[PredictionOptions],
) -> float:
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
    density = model.log_density(X, np.asarray(y), **options)
    return _mean(density, sample_weight)


def crps(
    model: PredictionMethods,
    X: ArrayLike,
    y: Floats,
    sample_weight: Floats | None = None,
    **options: Unpack[PredictionOptions],
) -> float:
    """Mean continuous ranked probability score, in units of y; smaller is better.

    It is the mean absolute error where the distribution is a single value.
    """
    levels = (np.arange(_N_LEVELS) + 0.5) / _N_LEVELS
    quantiles = np.asarray(model.predict_quantiles(X, levels, **options))
    if np.shape(y) != quantiles.shape[:-1]:
        raise ValueError(f"y has the shape {np.shape(y)}; predictions have {quantiles.shape[:-1]}.")
    errors = np.asarray(y)[..., None] - quantiles
    return 2 * _mean(errors * (levels - (errors < 0)), sample_weight)


def neg_crps(
    model: PredictionMethods,
    X: ArrayLike,
    y: Floats,
    sample_weight: Floats | None = None,
    **options: Unpack[PredictionOptions],
) -> float:
    """The negative CRPS."""
    return -crps(model, X, y, sample_weight, **options)


def make_scorer(metric: Callable[..., float], *arguments: str) -> Callable[..., float]:
    """A scorer to which the metadata routing of scikit-learn passes arguments of a metric.

    >>> scorer = make_scorer(neg_crps, "batch", "sample_weight")
    """
    scorer = partial(metric)
    request = MetadataRequest(owner=scorer)
    for name in arguments:
        request.score.add_request(param=name, alias=True)
    scorer.get_metadata_routing = partial(copy.deepcopy, request)  # type: ignore[attr-defined]
    return scorer


def _mean(values: Floats, sample_weight: Floats | None) -> float:
    """The weighted mean over rows (row, …), of equal weights of what a row has."""
    return float(np.average(values.reshape(len(values), -1).mean(axis=1), weights=sample_weight))
