"""Anchor weights learned on held-out rows.

The paper finds no weights that improve predictions, and `benchmarks/anchors/anchor_weights.py`
finds none of these that does. Learned weights protect against anchors that are added later with
wrong labels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats
from twinned.rows.validation import check_choice, check_real, count_rows, validate_target


class FixedWeights(BaseEstimator):
    """One weight per anchor, the same for all queries.

    Parameters
    ----------
    weights : array of shape (n_anchors,)
        In the order of `anchors_X_`, for a twin that uses all its anchors. They can be learned
        with `learn_weights`.
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
        To be set with `twin.with_strategies(weights=…)`; no refit is needed.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from benchmarks.anchors.learned_weights import learn_weights
    >>> from twinned import TwinRegressor
    >>> from twinned.datasets import make_tf
    >>> X, y = (part.to_numpy() for part in make_tf(60, random_state=0))
    >>> twin = TwinRegressor(DecisionTreeRegressor(max_depth=5)).fit(X[:30], y[:30])
    >>> richer = twin.add_anchors(X[30:31], y[30:31] + 5)  # a label that is wrong
    >>> learned = learn_weights(richer, X[31:], y[31:])
    >>> bool(learned.weights[-1] < 0.1 * np.median(learned.weights))
    True
    """
    if not hasattr(twin, "predict_anchors"):
        raise TypeError(f"twin must be a fitted twin regressor, not {twin!r}.")
    check_is_fitted(twin)
    check_choice("by", by, ["variance", "least squares"])
    strength = check_real("shrinkage", shrinkage)
    if strength < 0:
        raise ValueError(f"shrinkage must not be negative, but is {shrinkage!r}.")
    if twin.fitted_.nearest is not None:
        raise ValueError(f"Fixed weights need anchors='all', not {twin.anchors!r}.")
    if twin.anchors_y_.ndim != 1:
        n_outputs = twin.anchors_y_.shape[1]
        raise ValueError(f"Weights need a single output, but the twin has {n_outputs}.")
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
