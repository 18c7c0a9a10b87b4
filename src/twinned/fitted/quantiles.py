"""Conformal quantiles of scores, and weighted ones for rows of another distribution.

In weighted conformal prediction, the scores of calibration rows are weighted by how much likelier
each row is among the rows to predict than among the calibration rows (Tibshirani, Barber, Candès
and Ramdas 2019). The ratio of likelihoods is estimated by logistic regression. The intervals hold
where y depends on the features in the same way in both, and where calibration rows of all kinds
exist: where they do not, the ratio is unknown, and intervals are infinite.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from twinned.rows.schema import Floats
from twinned.rows.validation import check_real

MAX_RATIO = 20.0  # a larger ratio, and a smaller one than its inverse, is an extrapolation
_CONFIDENCES = (0.5, 0.8, 0.9, 0.95, 0.99)


def quantile_rank(confidence: float, n: int) -> int:
    """Rank of the conformal quantile among n scores, counted from the largest, which is 1.

    >>> quantile_rank(0.9, 9), quantile_rank(0.9, 19), quantile_rank(0.5, 99)
    (1, 2, 50)
    """
    # as in split conformal prediction; the margin is for rounding
    return min(max(1, int((1.0 - confidence) * (n + 1) + 1e-9)), n)


def check_confidence(confidence: object, n: int) -> float:
    """Validate a confidence that n scores can guarantee."""
    level = check_real("confidence", confidence)
    if not 0 < level < 1:
        raise ValueError(f"confidence must be between 0 and 1, but is {confidence!r}.")
    if not _suffices(level, n):
        needed = int(np.ceil(1.0 / (1.0 - level) - 1e-9)) - 1
        raise ValueError(
            f"confidence={level:g} needs at least {needed} calibration rows; there are {n}."
        )
    return level


def half_widths(scores: Floats, scales: Floats) -> dict[str, list[float]]:
    """Return the half widths of intervals of the held-out rows, by confidence.

    `scores` and `scales` are (row,) scores and error scales. A confidence that needs more rows is
    not included.

    >>> half_widths(np.arange(1.0, 10.0), np.full(9, 2.0))["typical half width"]
    [10.0, 16.0, 18.0]
    """
    n, ordered = len(scores), np.sort(scores)
    levels = [level for level in _CONFIDENCES if _suffices(level, n)]
    factors = [float(ordered[-quantile_rank(level, n)]) for level in levels]
    names = ["typical half width", "smallest", "largest"]
    widths = np.outer([np.median(scales), scales.min(), scales.max()], factors).tolist()
    return {"confidence": levels, **dict(zip(names, widths, strict=True))}


def _suffices(level: float, n: int) -> bool:
    """Whether n scores can guarantee a confidence."""
    return (1.0 - level) * (n + 1) + 1e-9 >= 1


def weighted_quantiles(
    scores: Floats, weights: Floats, query_weights: Floats, level: float
) -> Floats:
    """(query,): quantiles of sorted scores with weights, beside the unknown score of each query.

    That counts as infinite, with the weight of the query; so does the quantile where its weight is
    more than 1 − level of all.

    >>> scores, weights = np.arange(1.0, 20.0), np.ones(19)
    >>> weighted_quantiles(scores, weights, np.array([1.0, 5.0]), 0.9)
    array([18., inf])
    """
    sums = np.cumsum(weights)
    needed = level * (sums[-1] + query_weights)
    # the margin is for rounding, which must not skip a score
    rank = np.searchsorted(sums, needed * (1 - 1e-12))
    return np.append(scores, np.inf)[rank]


def likelihood_ratio(known: Floats, target: Floats) -> Callable[[Floats], Floats]:
    """A function that returns the (row,) likelihood ratios of rows, target to known.

    `known` and `target` are (row, encoded feature); a missing value counts as the mean, and
    features that are constant among the known rows are not used. Ratios are clipped to `MAX_RATIO`
    and its inverse.

    >>> rng = np.random.RandomState(0)
    >>> ratio = likelihood_ratio(rng.normal(size=(500, 1)), rng.normal(1, size=(500, 1)))
    >>> ratio(np.array([[0.5], [1.5]])).round(1)  # exactly exp(0) and exp(1)
    array([1. , 2.8])
    """
    with np.errstate(invalid="ignore"):  # a feature without values
        scaler = StandardScaler().fit(known)
        varying = scaler.var_ > 0
    if not varying.any():
        return lambda rows: np.ones(len(rows))

    def features(rows: Floats) -> Floats:
        return np.nan_to_num(scaler.transform(rows)[:, varying])

    both = features(np.concatenate([known, target]))
    is_target = np.repeat([0, 1], [len(known), len(target)])
    regression = LogisticRegression(max_iter=1000).fit(both, is_target)
    prior, limit = np.log(len(target) / len(known)), np.log(MAX_RATIO)

    def ratio(rows: Floats) -> Floats:
        log_ratio = regression.decision_function(features(rows)) - prior
        return np.exp(np.clip(log_ratio, -limit, limit))

    return ratio
