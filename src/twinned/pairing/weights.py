"""Anchor weights: strategies, and weights by least squares.

The paper finds no weights that improve predictions; `benchmarks/anchor_weights.py` measures the
strategies here.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from scipy.optimize import nnls
from sklearn.base import BaseEstimator

from twinned.rows.neighbors import LearnedMetric
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_choice

WeightStrategy = Callable[[Floats, Floats, Indices], Floats]


class UniformWeights(BaseEstimator):
    """Equal weights."""

    def __call__(self, distances: Floats, estimates: Floats, anchor_indices: Indices) -> Floats:
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
    distances: Floats, estimates: Floats, anchor_indices: Indices, *, noise: float
) -> Floats:
    """(query, anchor) inverse variances of y at the query, given the anchor.

    >>> _inverse_process_variance(np.array([[0.0, 99.0]]), None, None, noise=0.5)
    array([[1.2       , 0.66666667]])
    """
    root = np.sqrt(5.0) * distances
    correlation = (1.0 + root + root**2 / 3.0) * np.exp(-root)
    return 1.0 / (1.0 + noise - correlation**2 / (1.0 + noise))


def as_weight_strategy(weights: object) -> WeightStrategy | GPWeights:
    """The strategy of the parameter `weights`."""
    if isinstance(weights, GPWeights) or (callable(weights) and not isinstance(weights, type)):
        return weights
    check_choice("weights", weights, ["uniform", "distance"], " or a strategy")
    return UniformWeights() if weights == "uniform" else DistanceWeights()


def simplex_least_squares(errors: Floats) -> Floats:
    """(model,) weights, not negative and of sum one, with the smallest squared error.

    `errors` are (row, model): those of anchors, members or other models whose weighted mean
    predicts. A penalty p·‖w − 1/n‖² that draws the weights to equal ones is the same as the
    further rows √p · I, as ‖w − 1/n‖² and ‖w‖² differ by a constant where the weights sum to one.

    For a direction w on the simplex with squared error q, the smallest value over t of
    ‖t E w‖² + (1 − t)² is q / (1 + q), which grows with q. So the nonnegative least squares
    solution of [E; 1] u = [0; 1] has the direction of the optimum.

    >>> simplex_least_squares(np.array([[1.0, -3.0], [1.0, -3.0]]))
    array([0.75, 0.25])
    """
    squares = (errors**2).sum(axis=0)
    unit = np.sqrt(squares.min())
    if not unit > 0:
        return np.eye(len(squares))[np.argmin(squares)]
    factor = np.linalg.qr(errors / unit, mode="r")
    system = np.vstack([factor, np.ones(errors.shape[1])])
    solution, _ = nnls(system, np.append(np.zeros(len(factor)), 1.0))
    return solution / solution.sum()
