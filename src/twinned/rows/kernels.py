"""Correlations of Gaussian processes: functions of distances, and the similarity of counts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances

from twinned.rows.schema import Floats


def _rbf(squares: Floats) -> tuple[Floats, Floats]:
    """exp(−r²/2) and its derivative with respect to r², from r²."""
    value = np.exp(-0.5 * squares)
    return value, -0.5 * value


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Matérn 5/2 and its derivative with respect to r², from r²."""
    # in place: allocating large arrays takes longer than computing them
    slope = 5.0 * squares
    np.sqrt(slope, out=slope)
    value = np.exp(-slope)
    slope += 1.0
    slope *= value
    value *= squares
    value *= 5.0 / 3.0
    value += slope
    slope *= -5.0 / 6.0
    return value, slope


NARROW_FEATURES = 20  # of a table; beyond, distances are those of a matrix product
KERNELS: dict[str, Callable[[Floats], tuple[Floats, Floats]]] = {"rbf": _rbf, "matern": _matern}


def kernel_of_rows(kernel: str, first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """(first row, second row): correlation of scaled rows, and its derivative by r²."""
    if first.shape[1] > NARROW_FEATURES:  # by a matrix product, ten times as fast for 1,000
        return KERNELS[kernel](euclidean_distances(first, second, squared=True))
    return KERNELS[kernel](cdist(first, second, "sqeuclidean"))


def tanimoto_similarity(first: Floats, second: Floats) -> Floats:
    """(first row, second row): sum of the smaller counts divided by that of the larger ones.

    Rows without any count are equal.

    >>> tanimoto_similarity(np.array([[2.0, 1.0, 0.0]]), np.array([[1.0, 1.0, 2.0]]))
    array([[0.4]])
    """
    total = first.sum(axis=1)[:, None] + second.sum(axis=1)
    # molecules have few of all fragments; |a − b| is the larger count less the smaller one
    distance = manhattan_distances(csr_array(first), csr_array(second))
    return np.divide(total - distance, total + distance, out=np.ones_like(total), where=total > 0)


def mixed_correlation(similarity: Floats | None, correlation: Floats, share: float) -> Floats:
    """The weighted mean of the similarity of counts, if any, and that of other features."""
    return correlation if similarity is None else share * similarity + (1.0 - share) * correlation
