"""Which anchors, their weights, and from estimates to one prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from twinned._validation import check_choice, check_count
from twinned.columns import Floats
from twinned.neighbours import Indices, check_metric

WeightStrategy = Callable[[Floats, Floats, Indices], Floats]


class AnchorStrategy(Protocol):
    """What `anchors` may be: which training points are kept, and which serve a query."""

    def keep(self, n_points: int, rng: np.random.RandomState) -> Indices: ...

    def nearest(self, n_anchors: int) -> tuple[int, str] | None: ...


class AllAnchors(BaseEstimator):
    """Every training point is an anchor of every query."""

    def keep(self, n_points: int, rng: Any) -> Indices:
        return np.arange(n_points)

    def nearest(self, n_anchors: int) -> None:
        return None


class NearestAnchors(BaseEstimator):
    """Each query is predicted from its `k` nearest anchors.

    Parameters
    ----------
    k : int
        How many anchors.
    metric : str, default="euclidean"
        Any metric name that scikit-learn's `NearestNeighbors` takes.
    """

    def __init__(self, k: int, metric: str = "euclidean") -> None:
        self.k = k
        self.metric = metric

    def keep(self, n_points: int, rng: Any) -> Indices:
        self.nearest(n_points)
        return np.arange(n_points)

    def nearest(self, n_anchors: int) -> tuple[int, str]:
        k = check_count("anchors (k)", self.k)
        if k > n_anchors:
            raise ValueError(
                f"anchors=NearestAnchors({k}) asks for more anchors than there are ({n_anchors}, "
                f"from n_samples = {n_anchors}); use a smaller k or anchors='all'."
            )
        return k, check_metric(self.metric)


class RandomAnchors(BaseEstimator):
    """`n` training points, drawn once at fit; only those are stored.

    Parameters
    ----------
    n : int
        How many anchors.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    def keep(self, n_points: int, rng: np.random.RandomState) -> Indices:
        n = check_count("anchors (n)", self.n)
        if n > n_points:
            raise ValueError(
                f"anchors=RandomAnchors({n}) asks for more anchors than there are training points "
                f"({n_points}); use a smaller n or anchors='all'."
            )
        return np.sort(rng.choice(n_points, size=n, replace=False))

    def nearest(self, n_anchors: int) -> None:
        return None


def as_anchor_strategy(anchors: Any) -> AnchorStrategy:
    """What the parameter `anchors` means."""
    if hasattr(anchors, "keep") and hasattr(anchors, "nearest") and not isinstance(anchors, type):
        return anchors
    check_choice("anchors", anchors, ["all"], " or a strategy such as NearestAnchors(16)")
    return AllAnchors()


# --- weights ----------------------------------------------------------------------------------


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


def check_kept(rows: Any, n_points: int) -> Indices:
    """What an anchor strategy keeps: rows that exist, and at least one."""
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise ValueError(f"an anchor strategy must keep some row numbers, not {rows!r}.")
    if rows.min() < 0 or rows.max() >= n_points:
        raise ValueError(f"an anchor strategy kept rows {rows!r} of {n_points} points.")
    return rows


# --- estimates → one prediction -----------------------------------------------------------------


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
