"""Weighted conformal prediction: intervals for rows of another distribution of features.

The scores of calibration rows are weighted by how much likelier each row is among the rows to
predict than among the calibration rows (Tibshirani, Barber, Candès and Ramdas 2019). The ratio of
likelihoods is estimated by logistic regression. The intervals hold where y depends on the features
in the same way in both, and where calibration rows of all kinds exist: where they do not, the ratio
is unknown, and intervals are infinite.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression

from twinned.rows.schema import Floats

MAX_RATIO = 20.0  # a larger ratio, and a smaller one than its inverse, is an extrapolation


def likelihood_ratio(known: Floats, target: Floats) -> Callable[[Floats], Floats]:
    """A function that returns the (row,) likelihood ratios of rows, target to known.

    `known` and `target` are (row, encoded feature); a missing value counts as the mean. Ratios are
    clipped to `MAX_RATIO` and its inverse.

    >>> rng = np.random.RandomState(0)
    >>> ratio = likelihood_ratio(rng.normal(size=(500, 1)), rng.normal(1, size=(500, 1)))
    >>> ratio(np.array([[0.5], [1.5]])).round(1)  # exactly exp(0) and exp(1)
    array([1. , 2.8])
    """
    transform = _standardization(known)

    def features(rows: Floats) -> Floats:
        return np.nan_to_num(transform(rows))

    both = np.concatenate([features(known), features(target)])
    belongs = np.repeat([0, 1], [len(known), len(target)])
    if both.shape[1] == 0:
        return lambda rows: np.ones(len(rows))
    regression = LogisticRegression(max_iter=1000).fit(both, belongs)
    prior = np.log(len(target) / len(known))
    limit = np.log(MAX_RATIO)

    def ratio(rows: Floats) -> Floats:
        log_ratio = regression.decision_function(features(rows)) - prior
        return np.exp(np.clip(log_ratio, -limit, limit))

    return ratio


def weighted_quantiles(
    scores: Floats, weights: Floats, own_weights: Floats, level: float
) -> Floats:
    """(query,): quantiles of sorted scores with weights, beside the unknown score of each query.

    That counts as infinite, with the query's own weight; so does the quantile where its weight is
    more than 1 − level of all.

    >>> scores, weights = np.arange(1.0, 20.0), np.ones(19)
    >>> weighted_quantiles(scores, weights, np.array([1.0, 5.0]), 0.9)
    array([18., inf])
    """
    sums = np.cumsum(weights)
    needed = level * (sums[-1] + own_weights)
    # the margin is for rounding, which must not skip a score
    rank = np.searchsorted(sums, needed * (1 - 1e-12))
    quantiles: Floats = np.append(scores, np.inf)[rank]
    return quantiles


def _standardization(known: Floats) -> Callable[[Floats], Floats]:
    """Features minus their mean, by their standard deviation; constant features are dropped."""
    missing = np.isnan(known)
    count = np.maximum(1, (~missing).sum(axis=0))
    mean = np.where(missing, 0.0, known).sum(axis=0) / count
    std = np.sqrt((np.where(missing, 0.0, known - mean) ** 2).sum(axis=0) / count)
    return lambda rows: (rows - mean)[:, std > 0] / std[std > 0]
