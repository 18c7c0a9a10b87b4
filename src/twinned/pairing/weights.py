"""Weights of anchors, learned from points that the twin did not learn from.

Not all anchors are equally good company. What each says of left-out points tells. An anchor that
came later (`add_anchors`) with a wrong label misleads everybody; one that was learned from less so,
as the twin has learned that label, too. Whether weights help is another matter: the paper found
none that do, and `benchmarks/anchor_weights.py` looks again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from twinned._neighbors import Indices
from twinned._table import Floats
from twinned._validation import check_choice, check_real, count_rows, validate_target
from twinned.pairing.anchors import as_anchor_strategy

WeightStrategy = Callable[[Floats, Floats, Indices], Floats]


class UniformWeights(BaseEstimator):
    """Every anchor counts the same."""

    def __call__(self, distances: Any, estimates: Floats, anchor_indices: Indices) -> Floats:
        return np.ones(anchor_indices.shape)


class DistanceWeights(BaseEstimator):
    """An anchor counts by the inverse of its distance; one that is hit exactly counts alone.

    An anchor whose distance is not known (no column in common) counts nothing, unless that is so
    for all: then they count the same.
    """

    def __call__(self, distances: Floats, estimates: Floats, anchor_indices: Indices) -> Floats:
        """(n_queries, n_anchors).

        >>> DistanceWeights()(np.array([[0.5, 2.0], [0.0, 3.0]]), None, None)
        array([[2. , 0.5],
               [1. , 0. ]])
        """
        lost = np.isnan(distances).all(axis=1, keepdims=True)
        distances = np.where(np.isnan(distances), np.where(lost, 1.0, np.inf), distances)
        hit = distances == 0
        nearest = distances.min(axis=1, keepdims=True)
        # by the nearest where it is so near that an inverse would overflow: only ratios count
        unit = np.where(nearest > 1e-300, 1.0, nearest)
        inverse = np.divide(unit, distances, out=np.zeros_like(distances), where=~hit)
        return np.where(hit.any(axis=1, keepdims=True), hit.astype(np.float64), inverse)


class FixedWeights(BaseEstimator):
    """Each anchor counts by a weight of its own, whoever is predicted.

    Parameters
    ----------
    weights : array of shape (n_anchors,)
        In the order of `anchors_X_`, for a twin that predicts from all its anchors;
        `twinned.learn_weights` finds some.
    """

    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def __call__(self, distances: Any, estimates: Floats, anchor_indices: Indices) -> Floats:
        """(n_queries, n_anchors).

        >>> FixedWeights([1.0, 3.0])(None, None, np.array([[1, 0]]))
        array([[3., 1.]])
        """
        weights = np.asarray(self.weights, dtype=np.float64)
        if weights.shape != anchor_indices.shape[1:]:
            raise ValueError(
                f"FixedWeights has weights of shape {weights.shape} for {anchor_indices.shape[1]} "
                "anchors; they belong to the fit that they were found for."
            )
        return weights[anchor_indices]


def as_weight_strategy(weights: Any) -> WeightStrategy:
    """What the parameter `weights` means."""
    if callable(weights) and not isinstance(weights, type):
        return weights
    check_choice("weights", weights, ["uniform", "distance"], " or a strategy")
    return UniformWeights() if weights == "uniform" else DistanceWeights()


def check_anchor_weights(weights: Any, shape: tuple[int, ...]) -> Floats:
    """(n_queries, n_anchors): finite, not negative, and something left in every row."""
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != shape:
        raise ValueError(f"weights returned shape {weights.shape} for anchors of shape {shape}.")
    if not np.isfinite(weights).all() or (weights < 0).any():
        bad = weights[~np.isfinite(weights) | (weights < 0)][0]
        raise ValueError(f"weights must be finite and not negative, but hold {bad}.")
    # only ratios count, so that neither their sum nor their product with others can overflow
    largest = weights.max(axis=1, keepdims=True)
    if (largest <= 0).any():
        row = int(np.argmax(largest[:, 0] <= 0))
        raise ValueError(f"weights of query {row} are all 0; at least one anchor must count.")
    return weights / largest


def combine(estimates: Floats, weights: Floats | None) -> tuple[Floats, Floats]:
    """The weighted mean of the anchors' estimates, and their weighted spread about it.

    `estimates` (n_queries, n_anchors, n_outputs), `weights` (n_queries, n_anchors) or None where
    all count the same; both results (n_queries, n_outputs).

    >>> combine(np.array([[[1.0], [3.0]]]), None)
    (array([[2.]]), array([[1.]]))
    >>> combine(np.array([[[1.0], [3.0]]]), np.array([[3.0, 1.0]]))[0]
    array([[1.5]])
    """
    if weights is None:
        return estimates.mean(axis=1), estimates.std(axis=1)
    share = (weights / weights.sum(axis=1, keepdims=True))[..., None]
    mean = (share * estimates).sum(axis=1)
    return mean, np.sqrt((share * (estimates - mean[:, None]) ** 2).sum(axis=1))


def learn_weights(
    twin: Any, X: Any, y: Any, *, by: str = "variance", shrinkage: float = 0.1
) -> FixedWeights:
    """Weights of a twin's anchors from points that it did not learn from.

    Parameters
    ----------
    twin : estimator
        A fitted twin that predicts from all its anchors.
    X : table or array of shape (n, n_features)
        Rows that were left out of `fit`.
    y : array of shape (n,)
        Their values.
    by : {"variance", "least squares"}, default="variance"
        The inverse of each anchor's mean square error on those points; or the weights whose mean
        is nearest to y, none negative.
    shrinkage : float, default=0.1
        How strongly least squares is drawn to equal weights; 0 is not at all.

    Returns
    -------
    FixedWeights
        To be set as `twin.set_params(weights=…)`; nothing has to be fitted again.

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
        raise TypeError(f"twin must be a twin, not {twin!r}.")
    check_is_fitted(twin)
    check_choice("by", by, ["variance", "least squares"])
    strength = check_real("shrinkage", shrinkage)
    if not 0 <= strength < np.inf:
        raise ValueError(f"shrinkage must not be negative, but is {shrinkage!r}.")
    if as_anchor_strategy(twin.anchors).nearest(len(twin.anchors_X_)) is not None:
        raise ValueError(f"Each query has other anchors: weights need all, not {twin.anchors!r}.")
    if twin.anchors_y_.ndim != 1:
        raise ValueError(f"Weights need one output, but the twin has {twin.anchors_y_.shape[1]}.")
    if twin._anchor_weight is not None:
        raise ValueError("The twin has weights of its rows already (sample_weight).")
    values = validate_target(twin, y, count_rows(X), multi_output=False)
    _, estimates = twin.predict_anchors(X)
    if by == "variance":
        return FixedWeights(inverse_variance(estimates, values))
    return FixedWeights(least_squares(estimates, values, strength))


def inverse_variance(estimates: Floats, y: Floats) -> Floats:
    """(anchor,) from `estimates` (point, anchor): 1 / the mean square error of each anchor.

    >>> inverse_variance(np.array([[1.0, 3.0], [1.0, -1.0]]), np.zeros(2))
    array([1. , 0.2])
    """
    square = np.mean((estimates - y[:, None]) ** 2, axis=0)
    # an anchor that is never wrong counts much, not all
    floor = 1e-6 * float(square.mean())
    return 1.0 / np.maximum(square, floor) if floor > 0 else np.ones_like(square)


def least_squares(estimates: Floats, y: Floats, shrinkage: float) -> Floats:
    """(anchor,) weights that sum to one, none negative: Σ(Σw·e − y)² + drawn to equal ones.

    The sum is held at one by a strong penalty, and then made so.
    """
    n_points, n_anchors = estimates.shape
    errors = estimates - y[:, None]  # with weights that sum to one, what is left of y is w·errors
    size = float(np.sqrt(np.mean(errors**2))) or 1.0
    pull = np.sqrt(shrinkage * n_points * n_anchors) * size
    hold = 1e3 * np.sqrt(n_points) * size * n_anchors
    A = np.concatenate([errors, pull * np.eye(n_anchors), np.full((1, n_anchors), hold)])
    b = np.concatenate([np.zeros(n_points), np.full(n_anchors, pull / n_anchors), [hold]])
    weights, _ = nnls(A, b)
    return np.asarray(weights / weights.sum(), dtype=np.float64)
