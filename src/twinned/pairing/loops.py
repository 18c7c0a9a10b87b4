"""Loops of three rows, around which true differences sum to zero."""

from __future__ import annotations

import numpy as np

from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats


def draw_loops(
    n_queries: int, n_anchors: int, n_loops: int, rng: np.random.RandomState
) -> tuple[Indices, Indices]:
    """Draw two distinct anchors for each loop through each query; both (query, loop).

    With a single anchor, both are that one: the loop query → anchor → anchor → query.
    """
    second = rng.randint(0, n_anchors, size=(n_queries, n_loops))
    if n_anchors == 1:
        return second, second
    other = rng.randint(0, n_anchors - 1, size=(n_queries, n_loops))
    return second, other + (other >= second)


def loop_sum(first_second: Floats, second_third: Floats, third_first: Floats) -> Floats:
    """F(i, j) + F(j, k) + F(k, i), which is zero for a consistent model.

    >>> float(loop_sum(np.float64(2.0), np.float64(-3.0), np.float64(1.0)))
    0.0
    """
    return first_second + second_third + third_first
