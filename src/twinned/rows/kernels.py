"""Correlations of Gaussian processes as functions of distances."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from twinned.rows.schema import Floats


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
