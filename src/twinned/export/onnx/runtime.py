"""Predictions of an exported model by onnxruntime, and what float32 inputs would change."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from twinned.estimators.base import BaseTwin
from twinned.exceptions import MissingExtraError, ignore_table_warnings
from twinned.export.model_parts import read_scaler, read_schema
from twinned.export.onnx.inputs import MATRIX
from twinned.export.onnx.models import split_model
from twinned.rows.schema import NUMERIC, Floats, column_list, to_numeric

# The largest rounding of a feature that float32 inputs may have, in standard deviations. Where one
# feature is rounded by up to 1e-6, at most 0.04 % of the predictions of networks change by more
# than 1e-5 standard deviations of y (rows of CS, RCL and YH, `effort="fast"`); up to 0.75 % do with
# 1.5e-6, and 2.7 % with 2e-6.
LARGEST_ROUNDING = 1e-6
# Predictions of at most this share of the stored rows may change by more than that.
_CHANGED_ROWS, _LARGEST_CHANGE = 1e-3, 1e-5  # in standard deviations of y
_MAX_ROWS = 500


def predict_onnx(path: str | PathLike[str], X: Any) -> dict[str, Floats]:
    """Predict the rows of a table by an exported model; the columns are in the order of the fit.

    Returns
    -------
    dict of ndarray
        The outputs by name.
    """
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            "predict_onnx needs onnxruntime: pip install onnxruntime."
        ) from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, _feeds(session.get_inputs(), X)), strict=True))


def _feeds(inputs: list[Any], X: Any) -> dict[str, NDArray[Any]]:
    """The inputs of an exported model for the rows of a table."""
    values, names = column_list(X)
    if [each.name for each in inputs] == [MATRIX]:
        columns = [to_numeric(value, name) for value, name in zip(values, names, strict=True)]
        return {MATRIX: np.column_stack(columns).astype(_number_type(inputs[0]))}
    feeds = {}
    for each, value, name in zip(inputs, values, names, strict=True):
        if each.type == "tensor(string)":
            text = ["" if pd.isna(item) else str(item) for item in list(value)]
            feeds[each.name] = np.array(text, dtype=object)[:, None]
        else:
            feeds[each.name] = to_numeric(value, name).astype(_number_type(each))[:, None]
    return feeds


def _number_type(each: Any) -> type[np.floating[Any]]:
    """The type of an input of numbers."""
    return np.float64 if each.type == "tensor(double)" else np.float32


def anchor_table(model: BaseEstimator, dtype: type[np.floating[Any]] = np.float64) -> Any:
    """The anchors of a model as a table, rounded to `dtype`; None where it has none.

    An array where the model was fitted to one.
    """
    scalers, twin, _ = split_model(model)
    if scalers or not isinstance(twin, BaseTwin):
        return None
    schema = read_schema(twin)
    names = getattr(twin, "feature_names_in_", None)
    columns = {}
    for j, (kind, categories) in enumerate(zip(schema.kinds, schema.categories, strict=True)):
        values, name = twin.anchors_X_[:, j], j if names is None else names[j]
        if kind == NUMERIC:
            columns[name] = pd.Series(values.astype(dtype).astype(np.float64))
        else:
            items = [None if np.isnan(code) else categories[int(code)] for code in values]
            columns[name] = pd.Series(items, dtype=object)
    table = pd.DataFrame(columns)
    return table.to_numpy() if names is None else table


def largest_difference(model: BaseEstimator, path: str | PathLike[str]) -> float | None:
    """Largest difference of means from `predict` at the anchors; None without anchors.

    In units of the standard deviation of the known values.
    """
    table = anchor_table(model)
    if table is None:
        return None
    change = np.abs(predict_onnx(path, table)["mean"] - _predict_table(model, table))
    return float(change.max() / _target_spread(model))


def _predict_table(model: BaseEstimator, table: Any) -> Floats:
    """Predictions of a model for a table of its anchors."""
    with ignore_table_warnings():
        return np.asarray(model.predict(table))


def _target_spread(model: BaseEstimator) -> float:
    """The standard deviation of the known values."""
    _, twin, has_log_target = split_model(model)
    y = np.exp(twin.anchors_y_) if has_log_target else twin.anchors_y_
    return float(np.std(y)) or 1.0


# --- float32 inputs -------------------------------------------------------------------------------


def choose_dtype(model: BaseEstimator) -> str:
    """The type of the inputs: float32, or float64 where that would change too much.

    Rounding may be small and yet move differences of rows across the thresholds of trees: those of
    features with few decimals are often equal to a threshold.
    """
    return "float64" if rounded_features(model) or changes_predictions(model) else "float32"


def changes_predictions(model: BaseEstimator) -> bool:
    """Whether rounding the stored rows to float32 changes their predictions."""
    exact, rounded = anchor_table(model), anchor_table(model, np.float32)
    if exact is None:
        return False
    predicted = [_predict_table(model, table[:_MAX_ROWS]) for table in (exact, rounded)]
    change = np.abs(predicted[1] - predicted[0])
    return bool(np.mean(change > _LARGEST_CHANGE * _target_spread(model)) > _CHANGED_ROWS)


def rounded_features(model: BaseEstimator) -> list[str]:
    """Names of the numeric features that float32 rounds by more than `LARGEST_ROUNDING`.

    Rounding is that of the stored rows. Networks that predict y itself store none; of their
    features the largest rounding within two standard deviations of the mean is taken.
    """
    parts = split_model(model)
    schema = read_schema(parts.model)
    numeric = [j for j, kind in enumerate(schema.kinds) if kind == NUMERIC]
    if isinstance(parts.model, BaseTwin):
        rows = _before_scalers(parts.scalers, parts.model.anchors_X_)[:, numeric]
        changes = _relative_rounding(rows)
    else:
        scale = parts.model.plain_networks().scale
        ends = np.zeros((2, schema.n_features))
        ends[:, numeric] = scale.X_mean + np.array([[-2.0], [2.0]]) * scale.X_spread
        changes = _largest_rounding(_before_scalers(parts.scalers, ends)[:, numeric])
    names = parts.feature_names
    return [names[numeric[i]] for i in np.flatnonzero(changes > LARGEST_ROUNDING)]


def _relative_rounding(rows: Floats) -> Floats:
    """(feature,) largest change of rows by rounding to float32, in standard deviations.

    >>> rows = np.array([[2021.0, 0.9951, 0.25], [2022.0, 0.9953, np.nan], [2023.0, 0.9958, 0.5]])
    >>> _relative_rounding(rows) > 1e-6
    array([False,  True, False])
    """
    with np.errstate(over="ignore"):
        change = np.abs(rows.astype(np.float32) - rows)
    is_known = ~np.isnan(rows)
    count = np.maximum(is_known.sum(axis=0), 1)
    centered = np.where(is_known, rows - np.where(is_known, rows, 0.0).sum(axis=0) / count, 0.0)
    spread = np.sqrt((centered**2).sum(axis=0) / count)
    # the mean of equal values may differ from them in the last digit
    largest = np.where(is_known, np.abs(rows), 0.0).max(axis=0, initial=0.0)
    spread[spread <= 10 * np.finfo(np.float64).eps * largest] = 0.0
    return _ratio(np.where(is_known, change, 0.0).max(axis=0, initial=0.0), spread)


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


def _before_scalers(scalers: list[BaseEstimator], X: Floats) -> Floats:
    """Rows as they are before the scalers of a pipeline.

    They are copied first, as a scaler with `copy=False` writes to its input.
    """
    X = X.copy()
    for scaler in reversed(scalers):
        if read_scaler(scaler):
            X = scaler.inverse_transform(X)
    return np.asarray(X, dtype=np.float64)
