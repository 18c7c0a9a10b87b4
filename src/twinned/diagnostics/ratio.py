"""Ratio of the errors of two models on the same held-out rows, with its interval."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twinned.estimators.blending.weights import ratio_of_rmse
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

_CONFIDENCE = 0.95
_MIN_GROUPS = 5


class Ratio(NamedTuple):
    """Ratio of the RMSE of two models, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def rmse_ratio(
    predictions: Floats, other: Floats, y: Floats, groups: Indices | None = None
) -> Ratio:
    """Return the RMSE of one model divided by that of another, with a paired bootstrap interval.

    Rows are resampled, or whole groups of them where `groups` (n,) are given. With fewer than five
    groups the interval is unbounded.
    """
    codes = None if groups is None else np.unique(groups, return_inverse=True)[1]
    found = ratio_of_rmse(predictions - y, other - y, groups=codes, confidence=_CONFIDENCE)
    if codes is not None and codes.max() + 1 < _MIN_GROUPS:
        return Ratio(found["ratio"], 0.0, float("inf"))
    return Ratio(found["ratio"], found["lower"], found["upper"])
