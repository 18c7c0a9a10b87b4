"""Which anchors, their weights, and from estimates to one prediction."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from sklearn.base import BaseEstimator

from twinned._neighbors import Indices, check_metric
from twinned._validation import check_choice, check_integer


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
        k = check_integer("anchors (k)", self.k)
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
        n = check_integer("anchors (n)", self.n)
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


def check_kept(rows: Any, n_points: int) -> Indices:
    """What an anchor strategy keeps: rows that exist, and at least one."""
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise ValueError(f"an anchor strategy must keep some row numbers, not {rows!r}.")
    if rows.min() < 0 or rows.max() >= n_points:
        raise ValueError(f"an anchor strategy kept rows {rows!r} of {n_points} points.")
    return rows
