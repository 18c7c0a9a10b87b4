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


KERNELS: dict[str, Callable[[Floats], tuple[Floats, Floats]]] = {"rbf": _rbf, "matern": _matern}
