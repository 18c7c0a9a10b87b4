"""The sign convention F(a, b) = y(a) − y(b), loops of differences, and the mean of estimates.

No other module adds, subtracts or negates differences by itself.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from twinned.rows.schema import Floats, Indices


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


def combine(
    estimates: Floats, member_weights: Floats, weights: Floats | None
) -> tuple[Floats, Floats]:
    """Weighted mean and standard deviation of the estimates of all anchors by all members.

    `estimates` is (member, query, anchor, output), `member_weights` (member,) sum to one, and
    `weights` is (query, anchor), or None for equal weights. Both results are (query, output).

    >>> combine(np.array([[[[1.0], [3.0]]]]), np.ones(1), None)
    (array([[2.]]), array([[1.]]))
    >>> combine(np.array([[[[1.0], [3.0]]]]), np.ones(1), np.array([[3.0, 1.0]]))[0]
    array([[1.5]])
    """
    n_anchors = estimates.shape[2]
    if weights is None:
        share = np.full((1, n_anchors, 1), 1.0 / n_anchors)
    else:
        share = (weights / weights.sum(axis=1, keepdims=True))[..., None]
    # member by member, so that no temporary array is larger than one member's estimates
    members = list(zip(member_weights, estimates, strict=True))
    mean: Floats = np.zeros_like(estimates[0, :, 0])
    variance = mean
    for weight, values in members:
        mean = mean + weight * (share * values).sum(axis=1)
    for weight, values in members:
        variance = variance + weight * (share * (values - mean[:, None]) ** 2).sum(axis=1)
    return mean, np.sqrt(variance)


def check_anchor_weights(weights: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Validate (query, anchor) weights and scale the largest of each query to one."""
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != shape:
        raise ValueError(f"weights returned shape {weights.shape} for anchors of shape {shape}.")
    bad = weights[~(np.isfinite(weights) & (weights >= 0))]
    if bad.size:
        raise ValueError(f"weights must be finite and not negative, but hold {bad[0]}.")
    # only ratios count, so that neither their sum nor their product with others can overflow
    largest = weights.max(axis=1, keepdims=True)
    if (largest <= 0).any():
        row = int(np.argmax(largest[:, 0] <= 0))
        raise ValueError(f"weights of query {row} are all 0; at least one must be positive.")
    return weights / largest


def loop_sum(first_second: Floats, second_third: Floats, third_first: Floats) -> Floats:
    """F(i, j) + F(j, k) + F(k, i), which is zero for a consistent model.

    >>> float(loop_sum(np.float64(2.0), np.float64(-3.0), np.float64(1.0)))
    0.0
    """
    return first_second + second_third + third_first


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
