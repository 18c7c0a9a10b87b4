"""Whether inputs of type float32 would round features, or change predictions, too much."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from twinned.export.onnx.assembly import unwrap
from twinned.export.onnx.runtime import anchor_table, predict_table, target_spread
from twinned.rows.schema import NUMERIC, Floats

# The largest rounding of a feature that float32 inputs may have, in standard deviations. Where one
# feature is rounded by up to 1e-6, at most 0.04 % of the predictions of networks change by more
# than 1e-5 standard deviations of y (rows of CS, RCL and YH, `effort="fast"`); up to 0.75 % do with
# 1.5e-6, and 2.7 % with 2e-6.
LARGEST_ROUNDING = 1e-6
# Predictions of at most this share of the stored rows may change by more than that.
_CHANGED_ROWS, _LARGEST_CHANGE = 1e-3, 1e-5  # in standard deviations of y
_MAX_ROWS = 500
_SCALERS = (MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler)


def choose_dtype(model: Any) -> str:
    """The type of the inputs: float32, or float64 where that would change too much.

    Rounding may be small and yet move differences of rows across the thresholds of trees: those of
    features with few decimals are often equal to a threshold.
    """
    return "float64" if rounded_features(model) or changes_predictions(model) else "float32"


def changes_predictions(model: Any) -> bool:
    """Whether rounding the stored rows to float32 changes their predictions."""
    exact, rounded = anchor_table(model), anchor_table(model, np.float32)
    if exact is None or rounded is None:
        return False
    exact, rounded = exact[:_MAX_ROWS], rounded[:_MAX_ROWS]
    change = np.abs(predict_table(model, rounded) - predict_table(model, exact))
    return bool(np.mean(change > _LARGEST_CHANGE * target_spread(model)) > _CHANGED_ROWS)


def rounded_features(model: Any) -> list[str]:
    """Names of the numeric features that float32 rounds by more than `LARGEST_ROUNDING`.

    Rounding is that of the stored rows. Networks that predict y itself store none; of their
    features the largest rounding within two standard deviations of the mean is taken.
    """
    scalers, fitted, _ = unwrap(model)
    schema = fitted._schema
    numeric = [j for j, kind in enumerate(schema.kinds) if kind == NUMERIC]
    if hasattr(fitted, "anchors_X_"):
        rows = _before_scalers(scalers, fitted.anchors_X_)[:, numeric]
        changes = _relative_rounding(rows)
    else:
        from twinned.models.neural.difference_model import PlainNetworks

        scale = fitted._networks(PlainNetworks).scale
        ends = np.zeros((2, schema.n_features))
        ends[:, numeric] = scale.X_mean + np.array([[-2.0], [2.0]]) * scale.X_spread
        changes = _largest_rounding(_before_scalers(scalers, ends)[:, numeric])
    names = getattr(fitted, "feature_names_in_", range(schema.n_features))
    large = np.flatnonzero(changes > LARGEST_ROUNDING)
    return [str(names[numeric[i]]) for i in large]


def _relative_rounding(rows: Floats) -> Floats:
    """(feature,) largest change of rows by rounding to float32, in standard deviations.

    >>> rows = np.array([[2021.0, 0.9951, 0.25], [2022.0, 0.9953, np.nan], [2023.0, 0.9958, 0.5]])
    >>> _relative_rounding(rows) > 1e-6
    array([False,  True, False])
    """
    with np.errstate(over="ignore"):
        change = np.abs(rows.astype(np.float32) - rows)
    known = ~np.isnan(rows)
    count = np.maximum(known.sum(axis=0), 1)
    centered = np.where(known, rows - np.where(known, rows, 0.0).sum(axis=0) / count, 0.0)
    spread = np.sqrt((centered**2).sum(axis=0) / count)
    # the mean of equal values may differ from them in the last digit
    largest = np.where(known, np.abs(rows), 0.0).max(axis=0, initial=0.0)
    spread[spread <= 10 * np.finfo(np.float64).eps * largest] = 0.0
    return _ratio(np.where(known, change, 0.0).max(axis=0, initial=0.0), spread)


def _largest_rounding(ends: Floats) -> Floats:
    """(feature,) half the distance of float32 numbers at the ends of an interval of 4 spreads.

    >>> _largest_rounding(np.array([[-2.0, 0.991], [2.0, 0.999]])).round(8)
    array([1.20e-07, 1.49e-05])
    """
    with np.errstate(over="ignore", invalid="ignore"):
        gap = np.spacing(np.abs(ends).max(axis=0).astype(np.float32)).astype(np.float64)
    return _ratio(np.nan_to_num(gap, nan=np.inf) / 2, np.abs(ends[1] - ends[0]) / 4)


def _ratio(change: Floats, spread: Floats) -> Floats:
    """Change by spread; 0 for constant features, unless float32 cannot hold them.

    >>> _ratio(np.array([1e-7, 1e-7, np.inf]), np.array([1.0, 0.0, 0.0]))
    array([1.e-07, 0.e+00,    inf])
    """
    constant = np.where(np.isinf(change), np.inf, 0.0)
    return np.divide(change, spread, out=constant, where=spread > 0)


def _before_scalers(scalers: list[Any], X: NDArray[np.float64]) -> Floats:
    """Rows as they are before the scalers of a pipeline.

    They are copied first, as a scaler with `copy=False` writes to its input.
    """
    X = X.copy()
    for scaler in reversed(scalers):
        if isinstance(scaler, _SCALERS):
            X = scaler.inverse_transform(X)
    return np.asarray(X, dtype=np.float64)
