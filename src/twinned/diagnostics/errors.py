"""Out-of-fold errors of a model and of the members of a blend, in units of the target."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from twinned._neighbors import Indices
from twinned._table import Floats
from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.blending.results import rmse_and_error

BLEND, MEAN = "blend", "mean of y"


class ErrorSummary(NamedTuple):
    """Errors of the held-out rows of a model; `median` is the median absolute error."""

    rmse: float
    rmse_se: float
    mae: float
    median: float
    r2: float
    mean_rmse: float  # of always predicting the mean


def summarize_errors(y: Floats, predicted: Floats, fold: Indices) -> ErrorSummary:
    """Return the errors of (n,) out-of-fold predictions.

    >>> y, fold = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0, 1, 0, 1])
    >>> errors = summarize_errors(y, y + [1.0, -1.0, 0.0, 0.0], fold)
    >>> errors.mae, errors.median, round(errors.r2, 2)
    (0.5, 0.5, 0.6)
    """
    rmse, error = rmse_and_error(predicted, y, None)
    absolute = np.abs(predicted - y)
    return ErrorSummary(
        rmse=rmse,
        rmse_se=error,
        mae=float(absolute.mean()),
        median=float(np.median(absolute)),
        r2=float(1 - np.sum((predicted - y) ** 2) / np.sum((y - y.mean()) ** 2)),
        mean_rmse=rmse_and_error(predict_mean(y, fold), y, None)[0],
    )


def predict_mean(y: Floats, fold: Indices) -> Floats:
    """Return (n,) the mean of y in the other folds.

    >>> predict_mean(np.array([1.0, 2.0, 6.0]), np.array([0, 1, 1]))
    array([4., 1., 1.])
    """
    predicted = np.empty_like(y)
    for number in np.unique(fold):
        predicted[fold == number] = y[fold != number].mean()
    return predicted


def comparison_table(
    blend: AutoTwinRegressor, recommended: AutoTwinRegressor, log_target: bool
) -> pd.DataFrame:
    """Return the errors of all members, of a recommended blend and of the mean, the best first.

    The columns are `model`, `rmse`, `rmse_se`, `weight` in the recommended model, NaN where it has
    no meaning, `fit_seconds`, and `recommended`. The errors are in units of the target.
    """
    table, own = blend.out_of_fold(), recommended.out_of_fold()
    back = np.exp if log_target else np.asarray
    y, fold = back(own["y"].to_numpy()), own["fold"].to_numpy()
    weights = dict(zip(recommended.member_names_, recommended.member_weights_, strict=True))
    seconds = blend.leaderboard_.set_index("member")["fit_seconds"]
    single = len(weights) == 1
    rows = []
    for name in blend.member_names_:
        errors = rmse_and_error(back(table[name].to_numpy()), y, None)
        weight = float(weights.get(name, 0.0))
        rows.append((name, *errors, weight, float(seconds[name]), single and name in weights))
    if not single:
        errors = rmse_and_error(back(own["prediction"].to_numpy()), y, None)
        total = sum(float(seconds[name]) for name in weights)
        rows.append((BLEND, *errors, np.nan, total, True))
    rows.append((MEAN, *rmse_and_error(predict_mean(y, fold), y, None), np.nan, 0.0, False))
    names = ["model", "rmse", "rmse_se", "weight", "fit_seconds", "recommended"]
    return pd.DataFrame(rows, columns=names).sort_values("rmse", kind="stable", ignore_index=True)
