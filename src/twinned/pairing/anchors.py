"""Anchor strategies: which training rows are stored, and which are used for a query."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from twinned.rows.neighbors import check_metric
from twinned.rows.schema import Indices
from twinned.rows.validation import check_choice, check_integer


@runtime_checkable
class AnchorStrategy(Protocol):
    """Contract of anchor strategies.

    `store` draws the training rows that are stored as anchors. `nearest` returns the number of
    nearest anchors used for a query and their metric, or None where all are used.
    """

    def store(self, n_rows: int, rng: np.random.RandomState) -> Indices: ...

    def nearest(self, n_anchors: int) -> tuple[int, str] | None: ...


class AllAnchors(BaseEstimator):
    """All training rows are anchors of every query."""

    def store(self, n_rows: int, rng: np.random.RandomState) -> Indices:
        return np.arange(n_rows)

    def nearest(self, n_anchors: int) -> None:
        return None


class NearestAnchors(BaseEstimator):
    """Each query is predicted from its `k` nearest anchors.

    Parameters
    ----------
    k : int
        Number of anchors.
    metric : str, default="euclidean"
        Name of a metric of scikit-learn's `NearestNeighbors`, or `"learned"`: Euclidean on
        features that are scaled by learned length scales (see the user guide).
    """

    def __init__(self, k: int, metric: str = "euclidean") -> None:
        self.k = k
        self.metric = metric

    def store(self, n_rows: int, rng: np.random.RandomState) -> Indices:
        self.nearest(n_rows)
        return np.arange(n_rows)

    def nearest(self, n_anchors: int) -> tuple[int, str]:
        k = check_integer("anchors (k)", self.k)
        if k > n_anchors:
            raise ValueError(
                f"k={k} exceeds the {n_anchors} anchors (n_samples = {n_anchors}); use k <= "
                f"{n_anchors} or anchors='all'."
            )
        return k, check_metric(self.metric)


class RandomAnchors(BaseEstimator):
    """`n` training rows, drawn once in `fit`; only those are stored.

    Parameters
    ----------
    n : int
        Number of anchors.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    def store(self, n_rows: int, rng: np.random.RandomState) -> Indices:
        n = check_integer("anchors (n)", self.n)
        if n > n_rows:
            raise ValueError(
                f"n={n} of RandomAnchors exceeds the {n_rows} training rows; use n <= {n_rows} or "
                "anchors='all'."
            )
        return np.sort(rng.choice(n_rows, size=n, replace=False))

    def nearest(self, n_anchors: int) -> None:
        return None


def as_anchor_strategy(anchors: object) -> AnchorStrategy:
    """The strategy of the parameter `anchors`."""
    if isinstance(anchors, AnchorStrategy) and not isinstance(anchors, type):
        return anchors
    check_choice("anchors", anchors, ["all"], " or a strategy such as NearestAnchors(16)")
    return AllAnchors()


def check_stored(rows: ArrayLike, n_rows: int) -> Indices:
    """Validate the rows that an anchor strategy stores: at least one valid index."""
    rows = np.asarray(rows)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise ValueError(
            f"an anchor strategy must store at least one integer row index, not {rows!r}."
        )
    if rows.min() < 0 or rows.max() >= n_rows:
        raise ValueError(f"an anchor strategy stored rows {rows!r} of {n_rows} rows.")
    return rows
