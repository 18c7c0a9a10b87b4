"""The members of an ensemble: hyperparameters, folds, weights.

An ensemble has a few *settings* (learning rate, dropout, weight decay, embedding), each trained
once for every *fold* of the training rows, which that member holds out. So each setting has an
out-of-fold prediction of every training row, and these predictions determine the weights of the
settings.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned._table import Floats


class Setting(NamedTuple):
    """The hyperparameters of a member."""

    learning_rate: float
    dropout: float
    weight_decay: float
    frequency_scale: float  # of the periodic embedding; 0 without embedding


# Smooth and noisy targets need different networks, and no single setting is best on all. These
# were ordered by forward selection among 16, on the out-of-fold error of the training rows of the
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
    """The sizes that the parameter `effort` sets together."""

    n_members: int
    max_steps: int
    batch_size: int  # pairs per step, both orders of each
    n_folds: int
    n_checks: int  # number of times that the error of held-out rows is computed
    # anchors for that error: few are enough, and each costs as much as a training pair
    check_anchors: int


EFFORTS = {
    "fast": Effort(6, 1000, 128, 2, 10, 16),
    "balanced": Effort(15, 3200, 128, 5, 10, 32),
    "thorough": Effort(40, 6000, 256, 5, 20, 64),
}


def largest_n_folds(n_members: int, most: int) -> int:
    """Return the largest number of folds up to `most` that divides `n_members`.

    >>> largest_n_folds(20, 5), largest_n_folds(6, 5), largest_n_folds(7, 5)
    (5, 3, 1)
    """
    return next(n for n in range(min(most, n_members), 0, -1) if n_members % n == 0)


def draw_folds(n_rows: int, n_folds: int, fraction: float, seed: int) -> list[NDArray[np.intp]]:
    """Draw the held-out rows of each fold, in random order; a single fold has a `fraction`."""
    order = np.random.RandomState(seed).permutation(n_rows)
    if n_folds > 1:
        return list(np.array_split(order, n_folds))
    return [order[: round(fraction * n_rows)]]


def select_settings(predictions: Floats, y: Floats, weight: Floats, rounds: int = 20) -> Floats:
    """Return (setting,) weights that sum to one, by greedy selection with replacement.

    `predictions` (setting, row, output) are out of fold. Each round counts the setting once more
    that lowers the error of the mean most; the counts after the best round are returned.

    >>> y = np.zeros((3, 1))
    >>> good, bad = np.full((3, 1), 0.1), np.full((3, 1), 5.0)
    >>> select_settings(np.stack([good, bad]), y, np.ones(3))
    array([1., 0.])
    """
    error = (predictions - y) * np.sqrt(weight / weight.sum())[:, None]
    flat = error.reshape(len(error), -1)
    gram = flat @ flat.T
    counts = np.zeros(len(gram))
    best, selected = np.inf, counts
    for _ in range(rounds):
        trials = counts + np.eye(len(gram))
        trials /= trials.sum(axis=1, keepdims=True)
        errors = np.einsum("ts,sr,tr->t", trials, gram, trials)
        counts[np.argmin(errors)] += 1
        if errors.min() < best * (1 - 1e-9):
            best, selected = errors.min(), counts.copy()
    return selected / selected.sum()
