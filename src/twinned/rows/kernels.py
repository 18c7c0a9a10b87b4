"""Correlations of Gaussian processes as functions of distances, and factors of their matrices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import lapack
from scipy.spatial.distance import cdist
from sklearn.metrics.pairwise import euclidean_distances

from twinned.rows.schema import Floats

_FEW_FEATURES = 20  # of which squared distances are not computed by a matrix product


def _rbf(squares: Floats) -> tuple[Floats, Floats]:
    """exp(−r²/2) and its derivative with respect to r², from r²."""
    value = np.exp(-0.5 * squares)
    return value, -0.5 * value


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Matérn 5/2 and its derivative with respect to r², from r²."""
    root = np.sqrt(5.0 * squares)
    decay = np.exp(-root)
    slope = decay * (1.0 + root)
    return slope + decay * squares * (5.0 / 3.0), slope * (-5.0 / 6.0)


KERNELS: dict[str, Callable[[Floats], tuple[Floats, Floats]]] = {"rbf": _rbf, "matern": _matern}


def kernel_of_rows(kernel: str, first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """(first row, second row): correlation of scaled rows, and its derivative by r²."""
    if first.shape[1] > _FEW_FEATURES:  # by a matrix product, ten times as fast for 1,000
        return KERNELS[kernel](euclidean_distances(first, second, squared=True))
    return KERNELS[kernel](cdist(first, second, "sqeuclidean"))


def factorize(correlation: Floats, diagonal: Floats) -> Floats:
    """Lower Cholesky factor of the correlation with the noise added to its diagonal, in place.

    Where rounding makes it indefinite, the least power of ten from 1e-12 that helps is added.
    """
    for jitter in (0.0, *(10.0**power for power in range(-12, 1))):
        np.fill_diagonal(correlation, 1.0 + diagonal + jitter)
        factor, failed = lapack.dpotrf(correlation, lower=True, clean=True)
        if not failed:
            return factor
    raise np.linalg.LinAlgError("The covariance of the rows is not positive definite.")
