"""Adjustments: predicted differences attributed to the features in which a query differs.

Features are switched from the values of the anchor to those of the query, one after the other, and
the adjustment of a feature is the mean change of F over orders of switching. Up to seven features
it is the mean over all orders, the Shapley value; beyond, over fixed random orders and their
reverses. The changes of an order sum to F(query, anchor), and so do the adjustments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import factorial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.rows.schema import Floats

MAX_EXACT = 7  # features whose orders are all taken
_MIXTURES_PER_PAIR = 2**MAX_EXACT  # about as many for more features
_MIXTURES_PER_BLOCK = 32_768
_ROUNDING = 1e-13  # a smaller adjustment, relative to the largest difference, is none


class SwitchingPlan(NamedTuple):
    """Sets of switched features whose differences give the adjustments of d features.

    The adjustments are `coefficients` (d, set + 1) times the differences of the sets and that of
    all features, which comes last. No switched feature is no difference.
    """

    sets: NDArray[np.bool_]  # (set, d)
    coefficients: Floats


@lru_cache(maxsize=64)
def switching_plan(d: int) -> SwitchingPlan:
    """The plan for d features that differ.

    >>> switching_plan(2).sets
    array([[ True, False],
           [False,  True]])
    >>> switching_plan(2).coefficients
    array([[ 0.5, -0.5,  0.5],
           [-0.5,  0.5,  0.5]])
    """
    return _all_orders(d) if d <= MAX_EXACT else _random_orders(d)


def _all_orders(d: int) -> SwitchingPlan:
    """Shapley values: each set counts by the share of orders that begin with its features."""
    sets = (np.arange(1, 2**d)[:, None] >> np.arange(d)) % 2 == 1
    size = sets.sum(axis=1)
    share = [factorial(s) * factorial(d - 1 - s) / factorial(d) for s in range(d)] + [0.0]
    gains, losses = np.array([share[s - 1] for s in size]), np.array([share[s] for s in size])
    return SwitchingPlan(sets[:-1], np.where(sets, gains[:, None], -losses[:, None]).T)


def _random_orders(d: int) -> SwitchingPlan:
    """Changes along fixed random orders and their reverses."""
    rng = np.random.RandomState(0)
    drawn = [rng.permutation(d) for _ in range(max(1, _MIXTURES_PER_PAIR // (2 * (d - 1))))]
    orders = [order for each in drawn for order in (each, each[::-1])]
    sets = np.zeros((len(orders) * (d - 1), d), dtype=bool)
    coefficients = np.zeros((d, len(sets) + 1))
    for i, order in enumerate(orders):
        start = i * (d - 1)
        for k, feature in enumerate(order):
            sets[start + k : start + d - 1, feature] = True
            coefficients[feature, start + k if k < d - 1 else -1] += 1.0 / len(orders)
            if k > 0:
                coefficients[feature, start + k - 1] -= 1.0 / len(orders)
    return SwitchingPlan(sets, coefficients)


def attribute(
    predict_difference: Callable[[Floats, Floats], Floats],
    queries: Floats,
    anchors: Floats,
    differences: Floats,
) -> Floats:
    """(pair, feature, output): adjustments, which sum to the differences over features.

    `predict_difference` returns the (row, output) F of two matrices, row by row. `queries` and
    `anchors` are (pair, feature), with categories as codes, and `differences` (pair, output) F of
    them. Where no feature differs and a twin that is not symmetric has a difference all the same,
    the features share it equally.
    """
    n_features = queries.shape[1]
    differs = (queries != anchors) & ~(np.isnan(queries) & np.isnan(anchors))
    result = np.zeros((*queries.shape, differences.shape[1]))
    step = max(1, _MIXTURES_PER_BLOCK // max(_MIXTURES_PER_PAIR, 2 * n_features))
    for start in range(0, len(queries), step):
        pairs = range(start, min(start + step, len(queries)))
        plans = [switching_plan(int(differs[i].sum())) if differs[i].any() else None for i in pairs]
        mixtures = [
            _mix(queries[i], anchors[i], differs[i], plan)
            for i, plan in zip(pairs, plans, strict=True)
            if plan is not None
        ]
        counts = [0 if plan is None else len(plan.sets) for plan in plans]
        values: Floats = np.empty((0, differences.shape[1]))
        if sum(counts):
            second = np.repeat(anchors[pairs.start : pairs.stop], counts, axis=0)
            values = predict_difference(np.concatenate(mixtures), second)
        own_values = np.split(values, np.cumsum(counts)[:-1])
        for i, plan, own in zip(pairs, plans, own_values, strict=True):
            if plan is None:
                result[i] = differences[i] / n_features
            else:
                result[i, differs[i]] = _sum_up(plan, np.vstack([own, differences[i]]))
    return result


def _sum_up(plan: SwitchingPlan, values: Floats) -> Floats:
    """(d, output): the adjustments from (set + 1, output) differences, without rounding errors."""
    found = plan.coefficients @ values
    return np.where(np.abs(found) > _ROUNDING * np.abs(values).max(axis=0), found, 0.0)


def _mix(query: Floats, anchor: Floats, differs: NDArray[np.bool_], plan: SwitchingPlan) -> Floats:
    """(set, feature): the anchor with the features of each set as in the query."""
    mixtures = np.tile(anchor, (len(plan.sets), 1))
    mixtures[:, differs] = np.where(plan.sets, query[differs], anchor[differs])
    return mixtures


def from_logarithm(adjustments: Floats, known: Floats, estimates: Floats) -> Floats:
    """(pair, feature) adjustments of y from those of its logarithm.

    They sum to estimate − known value, (pair,) each: those of the logarithm are multiplied by the
    logarithmic mean of the two.

    >>> from_logarithm(np.log([[2.0, 2.0]]), np.array([1.0]), np.array([4.0]))
    array([[1.5, 1.5]])
    """
    ratio = estimates / known
    logarithm = np.log(ratio)
    close = np.abs(logarithm) < 1e-9
    mean = np.where(close, known, (estimates - known) / np.where(close, 1.0, logarithm))
    return adjustments * mean[:, None]


def scale_to(adjustments: Floats, totals: Floats) -> Floats:
    """(pair, feature) adjustments that sum to other (pair,) totals.

    What is missing is divided in proportion to the size of the adjustments, and equally where all
    of them are zero.

    >>> scale_to(np.array([[3.0, -1.0, 0.0]]), np.array([4.0]))
    array([[ 4.5, -0.5,  0. ]])
    """
    size = np.abs(adjustments)
    total = size.sum(axis=1, keepdims=True)
    share = np.where(total > 0, size / np.where(total > 0, total, 1.0), 1.0 / size.shape[1])
    return adjustments + share * (totals - adjustments.sum(axis=1))[:, None]
