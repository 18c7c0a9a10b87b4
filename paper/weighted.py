"""Weighting anchors by how certain each is: the paper's negative result.

An ensemble of twins on each split. What an anchor says of a query is the members' mean; the anchors
are then averaged with equal weights, or weighted by

- *members*: the inverse variance over the members;
- *loops*: the inverse of the mean |F(x, a) + F(a, b) + F(b, x)| over some other anchors b;
- *distance*: the inverse distance of query and anchor, in the space that the networks see. This is
  no uncertainty; it stands beside them as the kind of weight that the paper found to help.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper.networks import (
    errors,
    extent,
    member_estimates,
    query_distances,
    trained,
)
from paper.records import Run
from twinned._table import Floats

FLAVOURS = ("as_published", "modern")
N_MEMBERS, QUICK_MEMBERS = 8, 2
N_LOOPS = 16  # closed through each pair of query and anchor
WAYS = ("members", "loops", "distance")
FLOOR = 0.1  # of the mean: below it no anchor counts as more certain still


def expand_weighted(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    members = QUICK_MEMBERS if quick else N_MEMBERS
    settings = {"members": members, "loops": N_LOOPS, **extent(flavour, quick)}
    return [Run("weighted-anchors", flavour, dataset, split, settings)]


def execute_weighted(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Test error with equal weights, and with each kind of weights."""
    for run, model, (_, (X, y)) in trained(batch, twin=True):
        told = np.stack(list(member_estimates(model, X)))
        estimates = told.mean(axis=0)
        doubts = {
            "members": told.var(axis=0, ddof=1),
            "loops": loop_doubts(model, estimates - model.anchors_y_, run),
            "distance": query_distances(model, X),
        }
        found = {"equal": float(errors(estimates.mean(axis=1), y, axis=0))}
        for way in WAYS:
            found[way] = float(errors(weighted(estimates, doubts[way]), y, axis=0))
        yield run, found


def weighted(estimates: Floats, doubts: Floats) -> Floats:
    """(query,): anchors weighted by the inverse of their doubts (query, anchor).

    >>> weighted(np.array([[0.0, 3.0]]), np.array([[1.0, 2.0]])).round(3)  # about 2 to 1
    array([1.045])
    """
    weights = 1.0 / (doubts + FLOOR * doubts.mean(axis=1, keepdims=True))
    return np.sum(weights * estimates, axis=1) / np.sum(weights, axis=1)


def loop_doubts(model: Any, differences: Floats, run: Run) -> Floats:
    """(query, anchor): how far loops through both and a third point, an anchor, are from closing.

    `differences` (query, anchor) are F(x, a); they stand for F(a, x) too, as the twin's own do.
    """
    from twinned.pairing.loops import loop_sum

    rng = np.random.RandomState(run.split)
    n_anchors = differences.shape[1]
    thirds = rng.permutation(n_anchors)[: run.settings["loops"]]
    # the same third points for all: their differences to all anchors are few
    told = np.mean(list(member_estimates(model, model.anchors_X_[thirds])), axis=0)
    across = -(told - model.anchors_y_)  # (third, anchor): F(a, b)
    total = np.zeros_like(differences)
    for third, own in zip(thirds, across, strict=True):
        total += np.abs(loop_sum(differences, own, -differences[:, [third]]))
    count = np.full(n_anchors, len(thirds))
    count[thirds] -= 1  # a loop over an anchor and itself is closed, and says nothing
    return total / np.maximum(count, 1)
