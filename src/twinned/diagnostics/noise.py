"""Noise of the target: an estimate from nearest neighbors, the gamma test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from twinned.diagnostics.cross_validation import check_diagnosable
from twinned.diagnostics.data_checks.findings import CheckedTable
from twinned.diagnostics.result import CheckResult, Numbers, format_percent
from twinned.rows.neighbors import NeighborIndex
from twinned.rows.schema import Floats
from twinned.rows.validation import count_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_N_NEIGHBORS = 10


def noise_estimate(X: Any, y: Any, error: float, *, model: str = "") -> CheckResult:
    """Estimate by a gamma test how much of the error is noise of y that no model removes.

    Where rows are few or features many, neighbors differ by more than noise, and the estimate is
    too high.

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        All rows.
    y : array of shape (n,)
        Their values.
    error : float
        Out-of-fold RMSE of a model of these rows.
    model : str, default=""
        The name of that model.

    Returns
    -------
    CheckResult
        `numbers["noise"]` is the standard deviation of the noise.
    """
    table = CheckedTable.encode(X, check_diagnosable(y, count_rows(X)))
    noise = gamma_test(table.features, table.y)
    share = (noise / error) ** 2 if error > 0 else 0.0
    if share > 1:
        summary = "No estimate: neighboring rows differ by more than the error of the model."
    elif share < 0.1:
        summary = "Little noise: a better model or more labels can lower the error much."
    elif share < 0.8:
        summary = f"Up to about {format_percent(share)} of the squared error is noise."
    else:
        summary = (
            "The error is about as large as the differences between neighboring rows: most of it "
            "is noise, or the rows are too far from each other to show it."
        )
    numbers = {"noise": noise, "rmse": error, "share": float(share)}
    return CheckResult("noise", "How noisy are the values?", summary, numbers, _draw_noise, model)


def gamma_test(features: Floats, y: Floats) -> float:
    """Return the standard deviation of the noise in y; 0 where no noise is seen.

    Half the mean squared difference of y between a row and its k-th neighbor falls with their
    squared distance; its intercept at distance 0 is the variance of the noise.

    >>> rng = np.random.RandomState(0)
    >>> x = rng.uniform(size=(2000, 2))
    >>> noise = gamma_test(x, x[:, 0] + 0.1 * rng.normal(size=2000))
    >>> bool(0.08 < noise < 0.12)
    True
    """
    k = min(_N_NEIGHBORS, len(y) - 1)
    neighbors = NeighborIndex(features).kneighbors_self(k)
    distances = np.sum((features[neighbors] - features[:, None]) ** 2, axis=2).mean(axis=0)
    halves = (0.5 * (y[neighbors] - y[:, None]) ** 2).mean(axis=0)
    if np.ptp(distances) == 0:
        return float(np.sqrt(halves.mean()))
    intercept = np.polyfit(distances, halves, 1)[1]
    return float(np.sqrt(max(intercept, 0.0)))


def _draw_noise(axes: Axes, numbers: Numbers) -> None:
    axes.barh(["noise", "RMSE"], [numbers["noise"], numbers["rmse"]])
