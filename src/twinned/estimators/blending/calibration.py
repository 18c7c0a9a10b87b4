"""Prediction intervals of a blend, from the out-of-fold predictions of its members."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned.estimators.blending.plan import MemberResult
from twinned.estimators.blending.rows import SharedRows
from twinned.fitted.conformal import CrossCalibrated
from twinned.rows.schema import Floats


def calibrate_blend(
    blend: Any, results: list[MemberResult], shared: SharedRows, seed: int
) -> Floats:
    """Store prediction intervals in the blend; return the (row,) scores of its errors."""
    predictions = np.column_stack([result.prediction for result in results])
    mean, folds = blend.out_of_fold_prediction_, shared.folds
    spread = spread_around(mean, predictions[shared.merged_into], blend._spread_weights)
    calibrated = CrossCalibrated(
        [blend] * len(folds),
        blend,
        blend.anchors_X_,
        blend.anchors_y_,
        folds,
        random_state=seed,
        predicted=[(mean[held_out], spread[held_out]) for _, held_out in folds],
    )
    calibrated.store_in(blend)
    scores = np.empty(len(mean))
    scores[np.concatenate([rows for _, rows in folds])] = calibrated.scores
    return scores


def spread_around(mean: Floats, predictions: Floats, weights: Floats) -> Floats:
    """(row,): weighted standard deviation of (row, member) predictions around the blend.

    >>> spread_around(np.zeros(2), np.array([[1.0, -1.0], [0.0, 2.0]]), np.array([0.5, 0.5]))
    array([1.        , 1.41421356])
    """
    if predictions.shape[1] == 1:
        return np.zeros(len(mean))  # without rounding errors, of which none may be a scale
    spread: Floats = np.sqrt((predictions - mean[:, None]) ** 2 @ weights)
    return spread
