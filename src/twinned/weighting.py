"""Weights of anchors, learned from points that the twin did not learn from.

Not all anchors are equally good company. What each says of left-out points tells. An anchor that
came later (`add_anchors`) with a wrong label misleads everybody; one that was learned from less so,
as the twin has learned that label, too. Whether weights help is another matter: the paper found
none that do, and `benchmarks/anchor_weights.py` looks again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import nnls
from sklearn.utils.validation import check_is_fitted

from twinned._validation import check_choice, check_number, check_target, count_rows
from twinned.anchors import FixedWeights, as_anchor_strategy
from twinned.base import BaseTwin
from twinned.columns import Floats


def learn_weights(
    twin: Any, X: Any, y: Any, *, by: str = "variance", shrinkage: float = 0.1
) -> FixedWeights:
    """Weights of a twin's anchors from points that it did not learn from.

    Parameters
    ----------
    twin : estimator
        A fitted twin that predicts from all its anchors.
    X : table or array of shape (n, n_features)
        Points that were left out of `fit`.
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
    if not isinstance(twin, BaseTwin):
        raise TypeError(f"twin must be a twin, not {twin!r}.")
    check_is_fitted(twin)
    check_choice("by", by, ["variance", "least squares"])
    strength = check_number("shrinkage", shrinkage)
    if not 0 <= strength < np.inf:
        raise ValueError(f"shrinkage must not be negative, but is {shrinkage!r}.")
    if as_anchor_strategy(twin.anchors).nearest(len(twin.anchors_X_)) is not None:
        raise ValueError(f"Each query has other anchors: weights need all, not {twin.anchors!r}.")
    if twin.anchors_y_.ndim != 1:
        raise ValueError(f"Weights need one output, but the twin has {twin.anchors_y_.shape[1]}.")
    if twin._anchor_weight is not None:
        raise ValueError("The twin has weights of its rows already (sample_weight).")
    values = check_target(twin, y, count_rows(X), multi_output=False)
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
