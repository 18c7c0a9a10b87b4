"""The sign convention: F(a, b) = y(a) − y(b), first minus second.

No other module adds, subtracts or negates differences by itself.
"""

from __future__ import annotations

import numpy as np

from twinned.rows.schema import Floats


def difference(first: Floats, second: Floats) -> Floats:
    """y(a) − y(b), the target of F(a, b)."""
    return first - second


def both_orders(forward: Floats, backward: Floats) -> Floats:
    """(2, ...): F(a, b) and −F(b, a), two estimates of y(a) − y(b).

    Their mean is antisymmetric to the last bit.

    >>> both_orders(np.array([3.0]), np.array([-2.0])).mean(axis=0)
    array([2.5])
    """
    return np.stack([forward, -backward])


def estimate(predicted_difference: Floats, anchor_y: Floats) -> Floats:
    """y(x) = F(x, anchor) + y(anchor)."""
    return predicted_difference + anchor_y
