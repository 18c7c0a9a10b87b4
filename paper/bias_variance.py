"""Bias, variance and covariance of ensembles of estimates, as in the paper's appendix."""

from __future__ import annotations

import numpy as np

from twinned.rows.schema import Floats


def bias_variance_covariance(estimates: Floats, truth: Floats) -> dict[str, float]:
    """Return bias², variance and covariance of (training set, estimate, query) estimates.

    Means over queries; `truth` is (query,). The mean squared error of an ensemble of M estimates
    is bias² + variance / M + (1 − 1/M) covariance (Ueda and Nakano).

    >>> rng = np.random.RandomState(0)
    >>> estimates, truth = rng.normal(size=(25, 4, 3)), np.zeros(3)
    >>> parts = bias_variance_covariance(estimates, truth)
    >>> error = np.mean((estimates.mean(axis=1) - truth) ** 2)
    >>> formula = parts["bias"] + parts["variance"] / 4 + 0.75 * parts["covariance"]
    >>> bool(abs(error - formula) < 1e-12)
    True
    """
    size = estimates.shape[1]
    centered = estimates - estimates.mean(axis=0)
    variance = float(np.mean(centered**2))
    # the sum over all pairs of estimates, less each with itself
    total = float(np.mean(centered.sum(axis=1) ** 2))
    covariance = (total - size * variance) / (size * (size - 1)) if size > 1 else 0.0
    bias = float(np.mean((estimates.mean(axis=(0, 1)) - truth) ** 2))
    return {"bias": bias, "variance": variance, "covariance": covariance, "size": size}
