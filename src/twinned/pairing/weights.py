"""Anchor weights: strategies, and the combination of estimates.

The paper finds no weights that improve predictions; `benchmarks/anchor_weights.py` measures the
strategies here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from twinned.rows.neighbors import Indices, LearnedMetric
from twinned.rows.schema import Floats
from twinned.rows.validation import check_choice

WeightStrategy = Callable[[Floats, Floats, Indices], Floats]


class UniformWeights(BaseEstimator):
    """Equal weights."""

    def __call__(self, distances: Any, estimates: Floats, anchor_indices: Indices) -> Floats:
        return np.ones(anchor_indices.shape)


class DistanceWeights(BaseEstimator):
    """Inverse distances; an anchor at distance zero gets all the weight.

    An anchor whose distance is undefined (no feature in common) gets weight zero, unless all
    distances of the query are undefined: then the weights are equal.
    """

    def __call__(self, distances: Floats, estimates: Floats, anchor_indices: Indices) -> Floats:
        """(query, anchor) weights.

        >>> DistanceWeights()(np.array([[0.5, 2.0], [0.0, 3.0]]), None, None)
        array([[2. , 0.5],
               [1. , 0. ]])
        """
        undefined = np.isnan(distances)
        all_undefined = undefined.all(axis=1, keepdims=True)
        distances = np.where(undefined, np.where(all_undefined, 1.0, np.inf), distances)
        exact = distances == 0
        nearest = distances.min(axis=1, keepdims=True)
        # in units of the nearest distance where its inverse would overflow: only ratios count
        unit = np.where(nearest > 1e-300, 1.0, nearest)
        inverse = np.divide(unit, distances, out=np.zeros_like(distances), where=~exact)
        return np.where(exact.any(axis=1, keepdims=True), exact.astype(np.float64), inverse)


class GPWeights(BaseEstimator):
    """Inverse variance of y at the query, given the anchor alone, by a Gaussian process.

    The process is the one that the learned metric comes from (see `feature_relevance_`); the paper
    suggests its uncertainty as a weight. In units of its amplitude, the variance is
    `1 + noise − k(r)² / (1 + noise)`, where r is the distance in length scales.
    """

    def bind(self, metric: LearnedMetric) -> WeightStrategy:
        """The strategy for distances in length scales, with the noise of a fitted process."""
        return partial(_inverse_process_variance, noise=metric.noise)


def _inverse_process_variance(
    distances: Floats, estimates: Any, anchor_indices: Any, *, noise: float
) -> Floats:
    """(query, anchor) inverse variances of y at the query, given the anchor.

    >>> _inverse_process_variance(np.array([[0.0, 99.0]]), None, None, noise=0.5)
    array([[1.2       , 0.66666667]])
    """
    root = np.sqrt(5.0) * distances
    correlation = (1.0 + root + root**2 / 3.0) * np.exp(-root)
    return 1.0 / (1.0 + noise - correlation**2 / (1.0 + noise))


def as_weight_strategy(weights: Any) -> WeightStrategy | GPWeights:
    """The strategy of the parameter `weights`."""
    if isinstance(weights, GPWeights) or (callable(weights) and not isinstance(weights, type)):
        return weights
    check_choice("weights", weights, ["uniform", "distance"], " or a strategy")
    return UniformWeights() if weights == "uniform" else DistanceWeights()


def check_anchor_weights(weights: Any, shape: tuple[int, ...]) -> Floats:
    """Validate (query, anchor) weights and scale the largest of each query to one."""
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != shape:
        raise ValueError(f"weights returned shape {weights.shape} for anchors of shape {shape}.")
    bad = weights[~(np.isfinite(weights) & (weights >= 0))]
    if bad.size:
        raise ValueError(f"weights must be finite and not negative, but hold {bad[0]}.")
    # only ratios count, so that neither their sum nor their product with others can overflow
    largest = weights.max(axis=1, keepdims=True)
    if (largest <= 0).any():
        row = int(np.argmax(largest[:, 0] <= 0))
        raise ValueError(f"weights of query {row} are all 0; at least one must be positive.")
    return weights / largest


def combine(
    estimates: Floats, member_weights: Floats, weights: Floats | None
) -> tuple[Floats, Floats]:
    """Weighted mean and standard deviation of the estimates of all anchors by all members.

    `estimates` is (member, query, anchor, output), `member_weights` (member,) sum to one, and
    `weights` is (query, anchor), or None for equal weights. Both results are (query, output).

    >>> combine(np.array([[[[1.0], [3.0]]]]), np.ones(1), None)
    (array([[2.]]), array([[1.]]))
    >>> combine(np.array([[[[1.0], [3.0]]]]), np.ones(1), np.array([[3.0, 1.0]]))[0]
    array([[1.5]])
    """
    n_anchors = estimates.shape[2]
    if weights is None:
        share = np.full((1, n_anchors, 1), 1.0 / n_anchors)
    else:
        share = (weights / weights.sum(axis=1, keepdims=True))[..., None]
    # member by member, so that no temporary array is larger than one member's estimates
    means = [(share * own).sum(axis=1) for own in estimates]
    mean = sum(weight * own for weight, own in zip(member_weights, means, strict=True))
    variance = sum(
        weight * (share * (own - mean[:, None]) ** 2).sum(axis=1)
        for weight, own in zip(member_weights, estimates, strict=True)
    )
    return mean, np.sqrt(variance)
