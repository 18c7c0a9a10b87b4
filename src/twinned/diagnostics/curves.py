"""Learning curve of a regressor: the error of held-out rows by the number of labelled rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import sem
from sklearn import model_selection
from sklearn.base import BaseEstimator

from twinned.diagnostics.errors import Numbers, format_percent
from twinned.exceptions import TableWarning
from twinned.rows.folds import Folds
from twinned.rows.schema import Floats, Indices

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer

_TRAIN_SHARES = (0.25, 0.5, 0.75, 1.0)
_SCORING = "neg_root_mean_squared_error"
_LEAST_ERROR = 1e-3  # of a learning curve, relative to the largest: an error may be 0


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Parameters
    ----------
    key : str
        The name of the check, such as "learning".
    title : str
        The heading of its plot.
    summary : str
        One sentence.
    numbers : dict
        The numbers behind the summary; they can be written as JSON.
    model : str, default=""
        The name of the model to which the numbers belong; empty where they belong to the data.
    """

    key: str
    title: str
    summary: str
    numbers: Numbers
    model: str = ""

    def __str__(self) -> str:
        model = f" ({self.model})" if self.model else ""
        return f"{self.title}{model} {self.summary}"


def draw_curve(axes: Axes, numbers: Numbers, **options: Any) -> ErrorbarContainer:
    """Draw RMSE with standard errors against `numbers["x"]`, on a logarithmic scale.

    Returns the container of the error bars; `options` are those of `Axes.errorbar`.
    """
    style = {"marker": "o", "capsize": 3, **options}
    bars = axes.errorbar(numbers["x"], numbers["rmse"], numbers["standard_error"], **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=numbers["x_label"], ylabel="RMSE of held-out rows")
    return bars


def learning_curve(
    estimator: BaseEstimator,
    X: ArrayLike,
    y: Floats,
    folds: Folds,
    groups: Indices | None = None,
    name: str = "",
) -> CheckResult:
    """Compute the error with a quarter, half, three quarters and all of the training rows of folds.

    Rows of one of the (row,) groups are added together, and `name` is that of the regressor. Of the
    numbers, `"doubled"` is the expected ratio of errors with twice as many labels, if the error
    goes on falling as a power of their number as it does from half of the rows on, at most 1;
    `"interval"` has the ratios of powers two standard errors of the folds lower and higher.
    """
    n_training_rows = min(len(training) for training, _ in folds)
    sizes = [max(4, round(share * n_training_rows)) for share in _TRAIN_SHARES]
    rng = np.random.RandomState(0)
    ordered = [(_order_by_groups(rng.permutation(rows), groups), others) for rows, others in folds]
    with warnings.catch_warnings(action="ignore", category=TableWarning):
        sizes, _, scores = model_selection.learning_curve(
            estimator, X, y, train_sizes=sizes, cv=ordered, scoring=_SCORING, error_score="raise"
        )
    errors = -scores.T  # (fold, size)
    powers = [_power(sizes, errors_of_fold) for errors_of_fold in errors]
    power, error = float(np.mean(powers)), float(sem(powers))
    doubled = 2.0 ** min(power, 0.0)
    low, high = 2.0 ** (power - 2 * error), 2.0 ** (power + 2 * error)
    trend = "falls" if doubled < 0.95 and high < 1 else "level" if low >= 0.9 else "unclear"
    by = f"{format_percent(1 - doubled)} ({format_percent(1 - high)} to {format_percent(1 - low)})"
    summary = {
        "falls": f"Twice as many labels would lower the error by about {by}.",
        "level": "More labels would change little; better features or less noise might help.",
        "unclear": "Whether more labels would help is not clear: the folds differ too much.",
    }[trend]
    numbers = {
        "x": sizes.tolist(),
        "rmse": np.mean(errors, axis=0).tolist(),
        "standard_error": sem(errors, axis=0).tolist(),
        "x_label": "labelled rows",
        "trend": trend,
        "doubled": doubled,
        "interval": [low, high],
    }
    return CheckResult("learning", "Would more labels help?", summary, numbers, name)


def _order_by_groups(rows: Indices, groups: Indices | None) -> Indices:
    """Return rows with those of one group next to each other, the groups in random order."""
    if groups is None:
        return rows
    _, codes = np.unique(groups[rows], return_inverse=True)
    order = np.random.RandomState(0).permutation(codes.max() + 1)
    return rows[np.argsort(order[codes], kind="stable")]


def _power(sizes: Floats, errors: Floats) -> float:
    """Return the slope of log error against log size, from half of the largest size on.

    >>> round(_power(np.array([1.0, 2.0, 4.0]), np.array([9.0, 2.0, 1.0])), 6)
    -1.0
    """
    used = sizes >= 0.49 * sizes[-1]  # sizes are rounded
    sizes, errors = sizes[used], np.maximum(errors[used], _LEAST_ERROR * errors.max())
    if np.ptp(sizes) == 0 or errors.max() == 0:
        return 0.0
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])
