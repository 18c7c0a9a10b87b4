"""The one index of nearest neighbours, shared by pairs and anchors.

Exact search by scikit-learn; the metric is the user's choice. Distances are measured on the
points as given, with indicators in place of names.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import nan_euclidean_distances
from sklearn.neighbors import NearestNeighbors

from twinned.columns import Floats

Indices = NDArray[np.intp]


class NeighbourIndex:
    """Answers who is nearest among a fixed set of points."""

    def __init__(self, wide: Floats, metric: str = "euclidean", n_jobs: int | None = None) -> None:
        _refuse_missing(wide, metric)
        self.metric = metric
        self._search = NearestNeighbors(metric=metric, n_jobs=n_jobs)
        try:
            self._search.fit(wide)
        except (TypeError, KeyError) as error:
            raise ValueError(f"metric={metric!r} cannot be used: {error}") from error

    def among(self, k: int, *, include_self: bool = False) -> Indices:
        """(n, k): each point's k nearest neighbours among the points themselves.

        A point is not its own neighbour unless `include_self`; a duplicate of it is one.

        >>> NeighbourIndex(np.array([[0.0], [1.0], [5.0]])).among(1)
        array([[1],
               [0],
               [1]])
        """
        if include_self:
            return self._search.kneighbors(self._search._fit_X, k, return_distance=False)
        return self._search.kneighbors(None, k, return_distance=False)

    def nearest(self, queries: Floats, k: int) -> tuple[Indices, Floats]:
        """(n_queries, k) indices and distances, nearest first."""
        _refuse_missing(queries, self.metric)
        distances, indices = self._search.kneighbors(queries, k)
        return indices, distances


def all_distances(queries: Floats, anchors: Floats, metric: str = "euclidean") -> Floats:
    """(n_queries, n_anchors), past missing values where the metric is the Euclidean one.

    >>> all_distances(np.array([[0.1, 0.0]]), np.array([[0.1, 0.0], [3.1, 4.0]]))
    array([[0., 5.]])
    """
    if metric != "euclidean":
        return pairwise_distances(queries, anchors, metric=metric)
    if np.isnan(queries).any() or np.isnan(anchors).any():
        return nan_euclidean_distances(queries, anchors)
    # scikit-learn's faster way, by inner products, gives 1e-8 where a point meets itself
    return cdist(queries, anchors)


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
