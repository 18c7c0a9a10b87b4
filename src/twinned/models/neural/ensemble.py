"""The members of an ensemble: settings, folds, and how many members each setting has.

An ensemble has a few *settings* (learning rate, dropout, weight decay, embedding, scale of the
features). Each is trained once for every *fold* of the training rows, which that network holds out.
So each setting has an out-of-fold prediction of every training row, and these predictions determine
how many of the final members, which are trained on all rows, have each setting.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.models.greedy_selection import greedy_selection
from twinned.rows.folds import row_folds
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats


class Setting(NamedTuple):
    """The hyperparameters of a member."""

    learning_rate: float
    dropout: float
    weight_decay: float
    frequency_scale: float  # of the periodic embedding; 0 without embedding
    relevance: bool = False  # whether each feature is divided by its learned length scale
    all_features: bool = False  # of a wide table; else the most relevant ones


# Smooth and noisy targets need different networks, and no single setting is best on all. These
# were ordered by forward selection among 22, on rows held out of the training rows of the paper's
# splits 0 and 1 and on eleven other data sets (`benchmarks/neural_settings.py`): the first n are a
# good set of n.
SETTINGS = (
    Setting(2e-2, 0.0, 0.0, 0.1, relevance=True),
    Setting(8e-3, 0.0, 0.0, 0.3),
    Setting(8e-3, 0.1, 0.1, 0.0, relevance=True),
    Setting(3e-3, 0.0, 0.1, 0.1, relevance=True),
    Setting(8e-3, 0.0, 0.0, 0.3, relevance=True),
    Setting(8e-3, 0.05, 0.03, 0.6),
    Setting(2e-2, 0.0, 0.0, 0.1),
    Setting(8e-3, 0.05, 0.03, 0.6, relevance=True),
)


def settings_of_wide_table(settings: list[Setting]) -> list[Setting]:
    """Return settings of a wide table: with its most relevant features, and with all of them.

    Where many features have a small effect, all are needed; where most have none, networks of few
    features are much better (`benchmarks/wide.py`). Settings that scale features by relevance use
    all; those with dropout, which is best on most tables, are tried with few features, too.
    """
    few = [setting for setting in settings if setting.relevance and setting.dropout > 0]
    return [own._replace(all_features=own.relevance) for own in settings] + few


NO_STOP = 10**6  # a check that no training reaches


class Effort(NamedTuple):
    """The sizes that the parameter `effort` sets together."""

    n_members: int  # trained on all rows
    max_steps: int
    batch_size: int  # pairs per step, both orders of each
    n_folds: int
    fold_steps: int  # of the networks that hold out a fold
    n_settings: int
    n_checks: int  # number of times that the held-out rows are predicted
    # anchors for these predictions: few are enough, and each costs as much as a training pair
    check_anchors: int
    # of the steps, where features are many: such networks need fewer to fit their rows
    wide_share: float = 1.0


EFFORTS = {
    "fast": Effort(3, 1000, 96, 2, 400, 3, 5, 32, wide_share=0.6),
    "balanced": Effort(7, 3200, 96, 5, 800, 6, 5, 48),
    # the division of steps between folds and members: `benchmarks/neural_folds.py`
    "thorough": Effort(14, 6000, 192, 5, 4500, 8, 10, 96),
}


def draw_folds(
    n_rows: int, n_folds: int, fraction: float, seed: int, groups: Indices | None = None
) -> list[Indices]:
    """Draw the held-out rows of each fold, in random order; a single fold has a `fraction`.

    Rows of a group (row,) are held out together.
    """
    order = np.random.RandomState(seed).permutation(n_rows)
    if n_folds == 1:
        return [order[: round(fraction * n_rows)]]
    if groups is not None:
        return [held_out for _, held_out in row_folds(n_rows, n_folds, seed, groups)]
    return list(np.array_split(order, n_folds))


def select_settings(predictions: Floats, y: Floats, weight: Floats) -> Floats:
    """Return (setting,) weights that sum to one, by greedy selection with replacement.

    `predictions` (setting, row, output) are out of fold.

    >>> y = np.zeros((3, 1))
    >>> good, bad = np.full((3, 1), 0.1), np.full((3, 1), 5.0)
    >>> select_settings(np.stack([good, bad]), y, np.ones(3))
    array([1., 0.])
    """
    errors = (predictions - y) * np.sqrt(weight / weight.sum())[:, None]
    flat = errors.reshape(len(errors), -1).T
    return greedy_selection(flat, max_rounds=20, least_gain=1e-9, stop_early=False)


def allocate_members(weights: Floats, n_members: int) -> NDArray[np.intp]:
    """Return the (member,) settings of members in proportion to (setting,) weights.

    >>> allocate_members(np.array([0.55, 0.0, 0.45]), 4)
    array([0, 0, 2, 2])
    """
    quota = weights * n_members
    counts = np.floor(quota).astype(np.intp)
    largest_remainders = np.argsort(counts - quota, kind="stable")
    counts[largest_remainders[: n_members - counts.sum()]] += 1
    return np.repeat(np.arange(len(weights)), counts)
