"""Out-of-fold errors in units of the target: summaries, ratios of two models, and a leaderboard."""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.blending.weights import ratio_of_rmse, rmse_and_error
from twinned.fitted.target import TargetTransform
from twinned.rows.formatting import ResultTable, format_interval, format_significant, split_unit
from twinned.rows.schema import Floats

Numbers = dict[str, Any]  # what JSON holds: strings, numbers, and lists and dicts of them

BLEND, MEAN = "blend", "mean of y"
LOCAL = ", local weights"  # of known cases; after the name of a single member
_CONFIDENCE = 0.95  # of the interval of a ratio


def rmse(predictions: Floats, y: Floats) -> float:
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((predictions - y) ** 2)))


class Ratio(NamedTuple):
    """Ratio of the RMSE of two models, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def interval(self) -> list[float]:
        return [self.low, self.high]

    def __str__(self) -> str:
        return format_interval(*self, show=lambda number, digits: f"{number:.{digits}f}")


def rmse_ratio(predicted: Floats, other: Floats, y: Floats) -> Ratio:
    """Return the RMSE of one model divided by that of another, with a paired bootstrap interval."""
    ratio = ratio_of_rmse(predicted - y, other - y, confidence=_CONFIDENCE)
    return Ratio(ratio["ratio"], ratio["lower"], ratio["upper"])


def format_percent(share: float) -> str:
    """Return a share as a rounded percentage without a sign.

    >>> format_percent(-0.034), format_percent(0.212), format_percent(0.0)
    ('3.4 %', '21 %', '0 %')
    """
    size = abs(100 * share)
    if size < 0.05:
        return "0 %"
    return f"{size:.1f} %" if size < 10 else f"{size:.0f} %"


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

    def describe(self, target: str) -> dict[str, str]:
        """Return the errors as text by their names; they have the unit in brackets after `target`.

        Errors of a target in % are in percentage points.
        """
        _, unit = split_unit(target)
        # a difference of shares is no share of the value
        unit = " percentage points" if unit == " %" else unit
        shown = {
            key: format_significant(value, 2 if key.endswith("_se") else 3).replace("-", "−")
            for key, value in self._asdict().items()
        }
        bias = f"{shown['bias']} ± {shown['bias_se']}{unit}"
        return {
            "half of the rows within": f"± {shown['median']}{unit}",
            "90 % of the rows within": f"± {shown['quantile90']}{unit}",
            "largest error": f"{shown['largest']}{unit}",
            "mean error (bias)": bias if abs(self.bias) > 2 * self.bias_se else "no clear bias",
            "mean absolute error (MAE)": f"{shown['mae']} ± {shown['mae_se']}{unit}",
            "root mean square error (RMSE)": f"{shown['rmse']} ± {shown['rmse_se']}{unit}",
            "RMSE of always predicting the mean": f"{shown['mean_rmse']}{unit}",
            "R²": f"{self.r2:.3f} ± {shown['r2_se']}".replace("-", "−"),
        }


def summarize_errors(y: Floats, predicted: Floats, mean: Floats | None = None) -> ErrorSummary:
    """Return the errors of (n,) out-of-fold predictions, and of (n,) means of other values.

    >>> y = np.array([1.0, 2.0, 3.0, 4.0])
    >>> errors = summarize_errors(y, y + [1.0, -1.0, 0.0, 0.0])
    >>> errors.mae, errors.median, round(errors.r2, 2)
    (0.5, 0.5, 0.6)
    """
    rmse, rmse_se = rmse_and_error(predicted, y, None)
    residual = predicted - y
    absolute = np.abs(residual)
    variance = np.var(y)
    return ErrorSummary(
        rmse=float(rmse),
        rmse_se=float(rmse_se),
        mae=float(absolute.mean()),
        mae_se=float(absolute.std() / np.sqrt(len(y))),
        median=float(np.median(absolute)),
        quantile90=float(np.quantile(absolute, 0.9)),
        largest=float(absolute.max()),
        bias=float(residual.mean()),
        bias_se=float(residual.std() / np.sqrt(len(y))),
        r2=float(1 - np.mean(residual**2) / variance),
        r2_se=float(2 * rmse * rmse_se / variance),  # of the error, for this variance of y
        mean_rmse=float(rmse_and_error(predict_mean(y) if mean is None else mean, y, None)[0]),
    )


def predict_mean(y: Floats) -> Floats:
    """Return (n,) the mean of all other values, which does not depend on folds.

    >>> predict_mean(np.array([1.0, 2.0, 6.0]))
    array([4. , 3.5, 1.5])
    """
    return np.asarray((y.sum() - y) / (len(y) - 1))


def fold_means(blend: AutoTwinRegressor, y: Floats) -> Floats:
    """Return (held-out row,) the means of the other values, or of the training rows of folds.

    `y` are values of all anchors. Where not all are held out, the mean of the training rows of a
    fold is that of earlier rows, which the others do not know.
    """
    means, held_out = np.full(len(y), np.nan), blend.out_of_fold().index
    for training, rows in blend.folds_:
        means[rows] = y[training].mean()
    return predict_mean(y) if len(held_out) == len(y) else means[held_out]


def comparison_table(
    blend: AutoTwinRegressor,
    recommended: AutoTwinRegressor,
    transform: TargetTransform,
) -> pd.DataFrame:
    """Return the errors of all members, of a recommended blend and of the mean, the best first.

    The columns are `model`, `rmse`, `rmse_se`, `weight` in the
    recommended model, NaN where it has no meaning, `fit_seconds`, and `recommended`. The errors are
    in units of the target.
    """
    of_members, of_recommended = blend.out_of_fold(), recommended.out_of_fold()
    fitted_y = of_recommended["y"].to_numpy()
    y = transform.invert(fitted_y)
    weights = dict(zip(recommended.member_names_, recommended.member_weights_, strict=True))
    fit_seconds = blend.leaderboard_.set_index("member")["fit_seconds"].to_dict()
    predictions = {
        name: transform.invert_mean(of_members[name].to_numpy(), fitted_y)
        for name in blend.member_names_
    }
    best = recommended.member_names_[0]
    if len(weights) > 1 or recommended.local_power_:
        best = BLEND if len(weights) > 1 else f"{best}{LOCAL}"
        predictions[best] = transform.invert_mean(of_recommended["prediction"].to_numpy(), fitted_y)
        fit_seconds[best] = sum(fit_seconds[name] for name in weights)
    predictions[MEAN] = fold_means(blend, transform.invert(blend.fitted_.known_y))
    errors = np.array([rmse_and_error(predicted, y, None) for predicted in predictions.values()])
    weights = dict.fromkeys(blend.member_names_, 0.0) | weights
    board = pd.DataFrame(
        {
            "model": [*predictions],
            "rmse": errors[:, 0],
            "rmse_se": errors[:, 1],
            "weight": [weights.get(name, np.nan) for name in predictions],
            "fit_seconds": [fit_seconds.get(name, 0.0) for name in predictions],
            "recommended": [name == best for name in predictions],
        }
    ).sort_values("rmse", kind="stable", ignore_index=True)
    return ResultTable(board)
