"""Comparison of a twin with its base estimator and other baselines, paired on held-out rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from twinned._neighbors import Indices
from twinned._table import Floats
from twinned.diagnostics.cross_validation import CrossValidation, cross_validate_models, rmse
from twinned.diagnostics.result import CheckResult, Numbers, format_percent
from twinned.estimators.base import BaseTwin

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HELPS, HURTS, UNCLEAR = "helps", "does not help", "no clear difference"
_N_BOOTSTRAP = 2_000
_CONFIDENCE = 0.95
_MIN_GROUPS = 5
_MIN_CHANGE = 0.005  # a ratio closer to 1 is no difference, however narrow its interval


class Ratio(NamedTuple):
    """Ratio of the RMSE of two models, with the ends of its 95 % interval."""

    value: float
    low: float
    high: float


def compare(
    X: Any, y: Any, twin: BaseTwin | None = None, *, cross_validation: CrossValidation | None = None
) -> CheckResult:
    """Compare a twin with its base estimator, k-NN and ridge regression.

    The base estimator is fitted to plain rows with the settings that it has in the twin.

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        All rows.
    y : array of shape (n,)
        Their values.
    twin : unfitted twin, default=None
        None is `TwinRegressor()`.
    cross_validation : CrossValidation, default=None
        Out-of-fold predictions, where they are computed already.

    Returns
    -------
    CheckResult
        `numbers["conclusion"]` is "helps", "does not help" or "no clear difference": the first two
        where the 95 % interval of the ratio of the two errors lies on one side of 1, and the ratio
        differs from 1 by at least half a percent. The interval is a paired bootstrap over held-out
        rows, or groups of them. `numbers["estimators"]` are the compared estimators with their
        settings.
    """
    cv = cross_validation or cross_validate_models(X, y, twin)
    errors = {name: rmse(values, cv.y) for name, values in cv.predictions.items()}
    ratios = {
        name: rmse_ratio(cv.predictions["twin"], values, cv.y, cv.groups)
        for name, values in cv.predictions.items()
        if name != "twin"
    }
    ratio = ratios["base estimator"]
    conclusion = _conclude(ratio)
    best = min(errors, key=errors.__getitem__)
    summary = _summarize(conclusion, ratio)
    if best not in ("twin", "base estimator"):
        summary += f" The lowest error is that of the {best} model."
    numbers = {
        "rmse": {**errors, "mean of y": float(np.std(cv.y))},
        "conclusion": conclusion,
        "ratio": ratio.value,
        "interval": [ratio.low, ratio.high],
        "best": best,
        "n_rows": len(cv.y),
        "ratios": {name: list(own) for name, own in ratios.items()},
        "estimators": cv.descriptions,
    }
    return CheckResult("comparison", "Does twinning help?", summary, numbers, _draw)


def _conclude(ratio: Ratio) -> str:
    if abs(ratio.value - 1) <= _MIN_CHANGE:
        return UNCLEAR
    return HELPS if ratio.high < 1 else HURTS if ratio.low > 1 else UNCLEAR


def _summarize(conclusion: str, ratio: Ratio) -> str:
    change = format_percent(ratio.value - 1)
    return {
        HELPS: f"Twinning helps: the error of the twin is {change} lower than that of its base "
        "estimator on plain rows.",
        HURTS: f"Twinning does not help: the error of the twin is {change} higher than that of "
        "its base estimator on plain rows.",
        UNCLEAR: "Twinning makes no clear difference: the errors of the twin and of its base "
        f"estimator on plain rows differ by {change}.",
    }[conclusion]


def rmse_ratio(
    predictions: Floats, other: Floats, y: Floats, groups: Indices | None = None
) -> Ratio:
    """Return the RMSE of one model divided by that of another, with a paired bootstrap interval.

    Rows are resampled, or whole groups of them where `groups` (n,) are given. With fewer than five
    groups the interval is unbounded.
    """
    squares = np.column_stack([(predictions - y) ** 2, (other - y) ** 2])
    squares = np.maximum(squares, 1e-300)
    value = float(np.sqrt(squares[:, 0].mean() / squares[:, 1].mean()))
    if groups is not None:
        _, codes = np.unique(groups, return_inverse=True)
        squares = np.column_stack([np.bincount(codes, weights=column) for column in squares.T])
        if len(squares) < _MIN_GROUPS:
            return Ratio(value, 0.0, float("inf"))
    rng = np.random.RandomState(0)
    n = len(squares)
    ratios = []
    for _ in range(0, _N_BOOTSTRAP, 100):  # in blocks: the counts of all at once would be large
        counts = rng.multinomial(n, np.full(n, 1.0 / n), size=100)
        sums = counts @ squares
        ratios.append(np.sqrt(sums[:, 0] / sums[:, 1]))
    tail = 50 * (1 - _CONFIDENCE)
    low, high = np.percentile(np.concatenate(ratios), [tail, 100 - tail])
    return Ratio(value, float(low), float(high))


def _draw(axes: Axes, numbers: Numbers) -> None:
    names = sorted(numbers["rmse"], key=numbers["rmse"].get, reverse=True)
    axes.barh(names, [numbers["rmse"][name] for name in names])
    axes.set_xlabel("RMSE of held-out rows")
