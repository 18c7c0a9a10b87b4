"""Anchor weights: strategies, and weights learned from data.

The paper finds no weights that improve predictions; `benchmarks/anchor_weights.py` measures the
strategies here. Learned weights protect against anchors that are added later with wrong labels.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from twinned.pairing.anchors import as_anchor_strategy
from twinned.rows.neighbors import LearnedMetric
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_choice, check_real, count_rows, validate_target

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


class FixedWeights(BaseEstimator):
    """One weight per anchor, the same for all queries.

    Parameters
    ----------
    weights : array of shape (n_anchors,)
        In the order of `anchors_X_`, for a twin that uses all its anchors. They can be learned
        with `twinned.learn_weights`.
    """

    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def __call__(self, distances: Any, estimates: Floats, anchor_indices: Indices) -> Floats:
        """(query, anchor) weights.

        >>> FixedWeights([1.0, 3.0])(None, None, np.array([[1, 0]]))
        array([[3., 1.]])
        """
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.shape != anchor_indices.shape[1:]:
            raise ValueError(
                f"FixedWeights has weights of shape {weights.shape} for {anchor_indices.shape[1]} "
                "anchors; weights belong to the fit that they were learned for."
            )
        return weights[anchor_indices]


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


def learn_weights(
    twin: Any, X: Any, y: Any, *, by: str = "variance", shrinkage: float = 0.1
) -> FixedWeights:
    """Learn anchor weights from held-out rows.

    Parameters
    ----------
    twin : estimator
        A fitted twin that uses all its anchors.
    X : table or array of shape (n, n_features)
        Rows that were not used in `fit`.
    y : array of shape (n,)
        Their target values.
    by : {"variance", "least squares"}, default="variance"
        The inverse of each anchor's mean squared error on these rows, or nonnegative least squares.
    shrinkage : float, default=0.1
        Strength of the penalty that draws least squares to equal weights.

    Returns
    -------
    FixedWeights
        To be set with `twin.set_params(weights=…)`; no refit is needed.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from twinned import TwinRegressor, learn_weights
    >>> from twinned.datasets import make_tf
    >>> X, y = (part.to_numpy() for part in make_tf(60, random_state=0))
    >>> twin = TwinRegressor(DecisionTreeRegressor(max_depth=5)).fit(X[:30], y[:30])
    >>> richer = twin.add_anchors(X[30:31], y[30:31] + 5)  # a label that is wrong
    >>> found = learn_weights(richer, X[31:], y[31:])
    >>> bool(found.weights[-1] < 0.1 * np.median(found.weights))
    True
    """
    if not hasattr(twin, "predict_anchors"):
        raise TypeError(f"twin must be a fitted twin regressor, not {twin!r}.")
    check_is_fitted(twin)
    check_choice("by", by, ["variance", "least squares"])
    strength = check_real("shrinkage", shrinkage)
    if strength < 0:
        raise ValueError(f"shrinkage must not be negative, but is {shrinkage!r}.")
    if as_anchor_strategy(twin.anchors).nearest(len(twin.anchors_X_)) is not None:
        raise ValueError(f"Fixed weights need anchors='all', not {twin.anchors!r}.")
    known = twin.anchors_y_
    if known.ndim != 1:
        raise ValueError(f"Weights need a single output, but the twin has {known.shape[1]}.")
    if twin.anchor_weights_ is not None:
        raise ValueError(
            "The twin was fitted with sample_weight, which already weights its anchors."
        )
    values = validate_target(twin, y, count_rows(X), multi_output=False)
    _, estimates = twin.predict_anchors(X)
    if by == "variance":
        return FixedWeights(inverse_variance(estimates, values))
    return FixedWeights(least_squares(estimates, values, strength))


def inverse_variance(estimates: Floats, y: Floats) -> Floats:
    """(anchor,) inverse mean squared errors of `estimates` (row, anchor).

    >>> inverse_variance(np.array([[1.0, 3.0], [1.0, -1.0]]), np.zeros(2))
    array([1. , 0.2])
    """
    square = np.mean((estimates - y[:, None]) ** 2, axis=0)
    # bounded, so that an anchor without errors does not get all the weight
    floor = 1e-6 * float(square.mean())
    return 1.0 / np.maximum(square, floor) if floor > 0 else np.ones_like(square)


def least_squares(estimates: Floats, y: Floats, shrinkage: float) -> Floats:
    """(anchor,) nonnegative weights that sum to one: least squares with a penalty to equal weights.

    The sum is enforced by a large penalty and then normalized.
    """
    n_rows, n_anchors = estimates.shape
    errors = estimates - y[:, None]  # with weights that sum to one, the residual is w·errors
    size = float(np.sqrt(np.mean(errors**2))) or 1.0
    penalty = np.sqrt(shrinkage * n_rows * n_anchors) * size
    sum_penalty = 1e3 * np.sqrt(n_rows) * size * n_anchors
    A = np.concatenate([errors, penalty * np.eye(n_anchors), np.full((1, n_anchors), sum_penalty)])
    b = np.concatenate([np.zeros(n_rows), np.full(n_anchors, penalty / n_anchors), [sum_penalty]])
    weights, _ = nnls(A, b)
    return np.asarray(weights / weights.sum(), dtype=np.float64)
