"""Weighting anchors by how certain each is: the paper's negative result.

An ensemble of twins on each split. An anchor's estimate is the mean over the members; the anchors
are then averaged with equal weights, or weighted by

- *members*: the inverse variance over the members;
- *loops*: the inverse of the mean |F(x, a) + F(a, b) + F(b, x)| over several other anchors b;
- *distance*: the inverse distance of query and anchor, in the space that the networks see. This is
  no measure of uncertainty; it is the kind of weight that the paper found to help.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper.member_predictions import FittedTwin, errors
from paper.networks import fit_trials, training_settings
from paper.records import Trial
from twinned.neural import TwinNeuralRegressor
from twinned.pairing.differences import loop_sum
from twinned.rows.schema import Floats

VARIANTS = ("as_published", "modern")
N_MEMBERS = 8
N_LOOPS = 16  # through each pair of query and anchor
KINDS = ("members", "loops", "distance")
FLOOR = 0.1  # share of the mean uncertainty that is added to each: bounds the largest weight


def weight_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    settings = {"members": N_MEMBERS, "loops": N_LOOPS, **training_settings(variant)}
    return [Trial("weighted-anchors", variant, dataset, split, settings)]


def run_weights(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield test errors with equal weights and with each kind of weights."""
    for trial, model, (_, (X, y)) in fit_trials(batch, TwinNeuralRegressor):
        twin = FittedTwin(model)
        members = np.stack(list(twin.estimates(X)))
        estimates = members.mean(axis=0)
        uncertainty = {
            "members": members.var(axis=0, ddof=1),
            "loops": loop_inconsistency(model, estimates - twin.anchors_y, trial),
            "distance": twin.anchor_distances(X),
        }
        result = {"equal": float(errors(estimates.mean(axis=1), y, axis=0))}
        for kind in KINDS:
            predicted = weighted_mean(estimates, uncertainty[kind])
            result[kind] = float(errors(predicted, y, axis=0))
        yield trial, result


def weighted_mean(estimates: Floats, uncertainty: Floats) -> Floats:
    """(query,) means of (query, anchor) estimates, weighted by the inverse of the uncertainty.

    >>> weighted_mean(np.array([[0.0, 3.0]]), np.array([[1.0, 2.0]])).round(3)  # about 2 to 1
    array([1.045])
    """
    weights = 1.0 / (uncertainty + FLOOR * uncertainty.mean(axis=1, keepdims=True))
    return np.sum(weights * estimates, axis=1) / np.sum(weights, axis=1)


def loop_inconsistency(model: Any, differences: Floats, trial: Trial) -> Floats:
    """(query, anchor) mean |sum| of loops through both and a third point, an anchor.

    `differences` (query, anchor) are F(x, a); F(a, x) is taken to be their negative, which holds
    for a symmetric twin.
    """
    twin = FittedTwin(model)
    rng = np.random.RandomState(trial.split)
    n_anchors = differences.shape[1]
    thirds = rng.permutation(n_anchors)[: trial.settings["loops"]]
    # the same third points for all pairs: only their differences to all anchors are needed
    estimates = np.mean(list(twin.estimates(model.anchors_X_[thirds])), axis=0)
    anchor_to_third = -(estimates - twin.anchors_y)  # (third, anchor): F(a, b)
    total = np.zeros_like(differences)
    for third, own in zip(thirds, anchor_to_third, strict=True):
        total += np.abs(loop_sum(differences, own, -differences[:, [third]]))
    count = np.full(n_anchors, len(thirds))
    count[thirds] -= 1  # a loop through an anchor twice is always zero
    return total / np.maximum(count, 1)
