"""Out-of-fold errors of a model and of the members of a blend, in units of the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd

from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.blending.results import LEADERBOARD_FORMATS, rmse_and_error
from twinned.rows.formatting import ResultTable, format_significant, split_unit
from twinned.rows.schema import Floats

BLEND, MEAN = "blend", "mean of y"


class ErrorSummary(NamedTuple):
    """Errors of the held-out rows of a model; `_se` are standard errors."""

    rmse: float
    rmse_se: float
    mae: float
    mae_se: float
    median: float  # absolute error
    quantile90: float  # of the absolute errors
    largest: float  # absolute error
    bias: float  # mean of predicted minus known values
    bias_se: float
    r2: float
    r2_se: float
    mean_rmse: float  # of always predicting the mean of the other rows

    def describe(self, target: str) -> str:
        """Return the errors in words; a unit in brackets at the end of `target` is used.

        Errors of a target in % are in percentage points.
        """
        name, unit = split_unit(target)
        if unit == " %":  # of a difference, which is no share of the value
            unit = " percentage points"
        shown = {key: format_significant(value) for key, value in self._asdict().items()}
        error = {
            key: format_significant(value, 2)
            for key, value in self._asdict().items()
            if key.endswith("_se")
        }
        if self.rmse >= self.mean_rmse:
            return (
                f"No model predicts {name} better than always its mean (RMSE {shown['mean_rmse']}"
                f"{unit}; here {shown['rmse']}{unit})."
            )
        side = "high" if self.bias > 0 else "low"
        bias = "no clear bias"
        if abs(self.bias) > 2 * self.bias_se:
            bias = f"too {side} by {format_significant(abs(self.bias))}{unit} on average"
        return (
            f"Predictions of {name} are typically off by ± {shown['median']}{unit}: half of the "
            "held-out rows have a smaller error (the median). The root mean square error (RMSE), "
            "by which models are compared and in which large errors count more, is "
            f"{shown['rmse']} ± {error['rmse_se']}{unit}; that of always predicting the mean is "
            f"{shown['mean_rmse']}. Mean absolute error (MAE) {shown['mae']} ± {error['mae_se']}, "
            f"R² {self.r2:.3f} ± {error['r2_se']}. Residuals: 90 % are within ± "
            f"{shown['quantile90']}{unit}, the largest is {shown['largest']}{unit}, {bias}."
        )


def summarize_errors(y: Floats, predicted: Floats) -> ErrorSummary:
    """Return the errors of (n,) out-of-fold predictions.

    >>> y = np.array([1.0, 2.0, 3.0, 4.0])
    >>> errors = summarize_errors(y, y + [1.0, -1.0, 0.0, 0.0])
    >>> errors.mae, errors.median, round(errors.r2, 2)
    (0.5, 0.5, 0.6)
    """
    rmse, error = rmse_and_error(predicted, y, None)
    residual = predicted - y
    absolute, root_n, variance = np.abs(residual), np.sqrt(len(y)), float(np.var(y))
    return ErrorSummary(
        rmse=rmse,
        rmse_se=error,
        mae=float(absolute.mean()),
        mae_se=float(absolute.std() / root_n),
        median=float(np.median(absolute)),
        quantile90=float(np.quantile(absolute, 0.9)),
        largest=float(absolute.max()),
        bias=float(residual.mean()),
        bias_se=float(residual.std() / root_n),
        r2=float(1 - np.mean(residual**2) / variance),
        r2_se=float(2 * rmse * error / variance),  # of the error, for this variance of y
        mean_rmse=rmse_and_error(predict_mean(y), y, None)[0],
    )


def predict_mean(y: Floats) -> Floats:
    """Return (n,) the mean of all other values, which does not depend on folds.

    >>> predict_mean(np.array([1.0, 2.0, 6.0]))
    array([4. , 3.5, 1.5])
    """
    return np.asarray((y.sum() - y) / (len(y) - 1))


class Comparison(NamedTuple):
    """Out-of-fold predictions of a model that is no member, in units of y, and its seconds."""

    prediction: Floats  # (row,)
    fit_seconds: float


def comparison_table(
    blend: AutoTwinRegressor,
    recommended: AutoTwinRegressor,
    log_target: bool,
    others: Mapping[str, Comparison],
) -> pd.DataFrame:
    """Return the errors of all members, of a recommended blend and of the mean, the best first.

    `others` are further models on the same folds, by name. The columns are `model`, `rmse`,
    `rmse_se`, `weight` in the recommended model, NaN where it has no meaning, `fit_seconds`, and
    `recommended`. The errors are in units of the target.
    """
    table, own = blend.out_of_fold(), recommended.out_of_fold()
    back = np.exp if log_target else np.asarray
    y = back(own["y"].to_numpy())
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
    for name, other in others.items():
        errors = rmse_and_error(other.prediction, y, None)
        rows.append((name, *errors, np.nan, other.fit_seconds, False))
    rows.append((MEAN, *rmse_and_error(predict_mean(y), y, None), np.nan, 0.0, False))
    names = ["model", "rmse", "rmse_se", "weight", "fit_seconds", "recommended"]
    board = pd.DataFrame(rows, columns=names)
    board = board.sort_values("rmse", kind="stable", ignore_index=True)
    return ResultTable.create(board, LEADERBOARD_FORMATS)
