"""The one index of nearest neighbors, shared by pairs and anchors.

Exact search by scikit-learn; the metric is the user's choice. Distances are measured on the
points as given, with indicators in place of names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors

from twinned._table import Floats

Indices = NDArray[np.intp]


class NeighborIndex:
    """Answers who is nearest among a fixed set of points."""

    def __init__(self, wide: Floats, metric: str = "euclidean", n_jobs: int | None = None) -> None:
        _refuse_missing(wide, metric)
        self.metric = metric
        self._wide = wide
        self._origin = _origin(wide) if metric in _MOVABLE else np.zeros(wide.shape[1])
        self._search = NearestNeighbors(metric=metric, n_jobs=n_jobs)
        try:
            self._search.fit(wide - self._origin)
        except (TypeError, KeyError) as error:
            raise ValueError(f"metric={metric!r} cannot be used: {error}") from error

    def kneighbors_self(self, k: int, *, include_self: bool = False) -> Indices:
        """(n, k): each point's k nearest neighbors among the points themselves.

        A point is not its own neighbor unless `include_self`; a duplicate of it is one.

        >>> NeighborIndex(np.array([[0.0], [1.0], [5.0]])).kneighbors_self(1)
        array([[1],
               [0],
               [1]])
        """
        others = k - 1 if include_self else k
        nearest = np.empty((len(self._wide), 0), dtype=np.intp)
        if others:
            nearest = self._search.kneighbors(None, others, return_distance=False)
        if include_self:
            # the point itself comes first, even where it has a duplicate
            nearest = np.column_stack([np.arange(len(nearest)), nearest])
        return nearest

    def kneighbors(self, queries: Floats, k: int) -> tuple[Indices, Floats]:
        """(n_queries, k) indices and distances, nearest first."""
        _refuse_missing(queries, self.metric)
        distances, indices = self._search.kneighbors(queries - self._origin, k)
        if self.metric == "euclidean":
            # exact: the search by inner products gives 1e-8 where a point meets itself
            squares = np.zeros_like(distances)
            for column in range(queries.shape[1]):
                squares += (queries[:, column, None] - self._wide[indices, column]) ** 2
            distances = np.sqrt(squares)
        return indices, distances


def distance_matrix(queries: Floats, anchors: Floats, metric: str = "euclidean") -> Floats:
    """(n_queries, n_anchors), past missing values where the metric is the Euclidean one.

    >>> distance_matrix(np.array([[0.1, 0.0]]), np.array([[0.1, 0.0], [3.1, 4.0]]))
    array([[0., 5.]])
    """
    if metric != "euclidean":
        return pairwise_distances(queries, anchors, metric=metric)
    # not scikit-learn's faster way, by inner products, which gives 1e-8 where a point meets itself
    distances = cdist(queries, anchors)
    if np.isnan(distances).any():
        unknown = np.isnan(distances).any(axis=1)
        distances[unknown] = _distances_past_missing(queries[unknown], anchors)
    return distances


def _distances_past_missing(queries: Floats, anchors: Floats) -> Floats:
    """Euclidean over the columns that both have, scaled up to all; NaN where they share none."""
    squares = np.zeros((len(queries), len(anchors)))
    shared = np.zeros_like(squares)
    for column in range(queries.shape[1]):
        gap = queries[:, column, None] - anchors[None, :, column]
        known = ~np.isnan(gap)
        squares += np.where(known, gap, 0.0) ** 2
        shared += known
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(squares * (queries.shape[1] / shared))


# Metrics that see only differences, so that the origin is free.
_MOVABLE = {"euclidean", "l2", "sqeuclidean", "manhattan", "l1", "cityblock", "chebyshev"} | {
    "minkowski",
    "nan_euclidean",
}


def _origin(wide: Floats) -> Floats:
    """An origin near the data, for columns that lie far from zero: years, prices, identifiers.

    The brute-force search works by inner products, which lose the differences of such a column.
    Subtracting one of its own values is exact where all are within a factor of two.
    """
    with np.errstate(invalid="ignore"):
        low, high = np.nanmin(np.abs(wide), axis=0), np.nanmax(np.abs(wide), axis=0)
        one_sign = (wide > 0).all(axis=0) | (wide < 0).all(axis=0)
    return np.where(one_sign & (high <= 2 * low), wide[0], 0.0)


def check_metric(metric: Any) -> str:
    """A metric is named: a function could not be saved with the model."""
    if not isinstance(metric, str):
        raise TypeError(f"metric must be a name such as 'euclidean', not {metric!r}.")
    return metric


def _refuse_missing(wide: Floats, metric: str) -> None:
    if metric != "nan_euclidean" and np.isnan(wide).any():
        raise ValueError(
            f"metric={metric!r} knows no distance to a missing value (Input contains NaN); use "
            "metric='nan_euclidean'."
        )
