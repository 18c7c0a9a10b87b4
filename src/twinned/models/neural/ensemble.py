"""Who the members are, what each leaves out, and how much each counts.

An ensemble is a few *settings* (learning rate, dropout, decay, embedding), each trained once for
every *fold* of the training rows, which that member leaves out. So each setting has a prediction
for every training row by a network that never saw it, and those out-of-fold predictions choose the
settings.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


class Setting(NamedTuple):
    """The hyperparameters of a member."""

    learning_rate: float
    dropout: float
    weight_decay: float
    frequency_scale: float  # 0 where features are not embedded


# Smooth and noisy targets want different networks, and no single setting is best on all. These
# were ordered by forward choice among 16, on the out-of-fold error of the training rows of the
# paper's splits 0 to 3: the first n are the best n.
SETTINGS = (
    Setting(8e-3, 0.0, 0.0, 0.1),
    Setting(8e-3, 0.1, 0.1, 0.0),
    Setting(8e-3, 0.05, 0.03, 0.6),
    Setting(3e-3, 0.0, 0.1, 0.1),
    Setting(2e-2, 0.0, 0.0, 0.1),
    Setting(2e-2, 0.1, 0.03, 0.0),
    Setting(8e-3, 0.0, 0.0, 0.3),
    Setting(8e-3, 0.02, 0.0, 0.0),
)


class Effort(NamedTuple):
    """What one word sets together."""

    n_members: int
    max_steps: int
    batch_size: int  # pairs a step, both orders of each
    n_folds: int
    n_checks: int  # how often the error of left-out rows is taken, to keep the best weights
    # which that error is taken from: few settle it, and each costs as much as a training pair
    check_anchors: int


EFFORTS = {
    "fast": Effort(6, 1000, 128, 2, 10, 16),
    "balanced": Effort(15, 3200, 128, 5, 10, 32),
    "thorough": Effort(40, 6000, 256, 5, 20, 64),
}


def folds_for(n_members: int, most: int) -> int:
    """How many folds, at most `most`, share `n_members` evenly; 1 is a single validation set.

    >>> folds_for(20, 5), folds_for(6, 5), folds_for(7, 5)
    (5, 3, 1)
    """
    return next(n for n in range(min(most, n_members), 0, -1) if n_members % n == 0)


def draw_folds(n_rows: int, n_folds: int, fraction: float, seed: int) -> list[NDArray[np.intp]]:
    """The rows that each fold leaves out, in random order; with one, a `fraction` of all."""
    order = np.random.RandomState(seed).permutation(n_rows)
    if n_folds > 1:
        return list(np.array_split(order, n_folds))
    return [order[: round(fraction * n_rows)]]


def choose(predictions: Floats, y: Floats, weight: Floats, rounds: int = 20) -> Floats:
    """(setting,) weights that sum to one: greedy choice with replacement.

    `predictions` (setting, row, output) of rows that were left out. In each round the setting that
    lowers the error of the mean most is counted once more; the best round is kept.

    >>> y = np.zeros((3, 1))
    >>> good, bad = np.full((3, 1), 0.1), np.full((3, 1), 5.0)
    >>> choose(np.stack([good, bad]), y, np.ones(3))
    array([1., 0.])
    """
    error = (predictions - y) * np.sqrt(weight / weight.sum())[:, None]
    flat = error.reshape(len(error), -1)
    gram = flat @ flat.T
    counts = np.zeros(len(gram))
    best, chosen = np.inf, counts
    for _ in range(rounds):
        trials = counts + np.eye(len(gram))
        trials /= trials.sum(axis=1, keepdims=True)
        errors = np.einsum("ts,sr,tr->t", trials, gram, trials)
        counts[np.argmin(errors)] += 1
        if errors.min() < best * (1 - 1e-9):
            best, chosen = errors.min(), counts.copy()
    return chosen / chosen.sum()
