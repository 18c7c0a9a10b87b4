"""Adjustments: predicted differences attributed to the features in which a query differs.

Features are switched from the values of the anchor to those of the query, one after the other, and
the adjustment of a feature is the mean change of F over orders of switching. Up to seven features
it is the mean over all orders, the Shapley value; beyond, over fixed random orders and their
reverses. The changes of an order sum to F(query, anchor). Where the difference to explain is
another one, as that to the out-of-fold prediction of the anchor, the rest is divided among the
features in proportion to the size of their adjustments.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from math import factorial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.resources import row_blocks
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
    orders = np.array([order for each in drawn for order in (each, each[::-1])])
    rank = np.argsort(orders, axis=1)[:, None]  # (order, 1, feature)
    step = np.arange(d + 1)[:, None]  # how many features are switched
    changes = (1.0 * (step == rank + 1) - (step == rank)) / len(orders)  # (order, step, feature)
    coefficients = np.vstack([changes[:, 1:d].reshape(-1, d), changes[:, d].sum(axis=0)]).T
    return SwitchingPlan((rank < step[1:d]).reshape(-1, d), coefficients)


def attribute(
    predict_difference: Callable[[Floats, Floats], Floats],
    queries: Floats,
    anchors: Floats,
    totals: Floats,
) -> Floats:
    """(pair, feature, output): adjustments, which sum to the (pair, output) totals over features.

    `predict_difference` returns the (row, output) F of two matrices, row by row. `queries` and
    `anchors` are (pair, feature), with categories as codes. Where no adjustment has a size, the
    features that differ share the total equally; where none differs, all features do.
    """
    n_features = queries.shape[1]
    differences = predict_difference(queries, anchors)
    differs = (queries != anchors) & ~(np.isnan(queries) & np.isnan(anchors))
    differing = np.flatnonzero(differs.any(axis=1))
    result = np.zeros((len(queries), n_features, totals.shape[1]))
    step = max(1, _MIXTURES_PER_BLOCK // max(_MIXTURES_PER_PAIR, 2 * n_features))
    for block in row_blocks(len(differing), step):
        pairs = differing[block]
        plans = [switching_plan(int(d)) for d in differs[pairs].sum(axis=1)]
        counts = [len(plan.sets) for plan in plans]
        mixtures = np.repeat(anchors[pairs], counts, axis=0)
        second = mixtures.copy()
        ends = np.cumsum(counts)
        for i, plan, rows in zip(pairs, plans, np.split(mixtures, ends[:-1]), strict=True):
            rows[:, differs[i]] = np.where(plan.sets, queries[i, differs[i]], rows[:, differs[i]])
        values = predict_difference(mixtures, second) if len(mixtures) else differences[:0]
        for i, plan, of_sets in zip(pairs, plans, np.split(values, ends[:-1]), strict=True):
            known = np.vstack([of_sets, differences[i]])
            adjustments = plan.coefficients @ known
            is_rounding = np.abs(adjustments) <= _ROUNDING * np.abs(known).max(axis=0)
            result[i, differs[i]] = np.where(is_rounding, 0.0, adjustments)
    size = np.abs(result)
    equal_shares = differs | ~differs.any(axis=1, keepdims=True)
    size = np.where(size.sum(axis=1, keepdims=True) > 0, size, equal_shares[..., None])
    share = size / size.sum(axis=1, keepdims=True)
    return result + share * (totals - result.sum(axis=1))[:, None]
