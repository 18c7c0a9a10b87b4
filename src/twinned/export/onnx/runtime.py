"""Predictions of an exported model by onnxruntime, and what float32 inputs would change."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from twinned.estimators.base import BaseTwin
from twinned.exceptions import ignore_table_warnings, require_extra
from twinned.export.model_parts import read_feature_names, read_scaler, read_schema
from twinned.export.onnx.inputs import MATRIX
from twinned.export.onnx.models import unwrap_model
from twinned.rows.schema import NUMERIC, Floats, column_list, to_numeric

# The largest rounding of a feature that float32 inputs may have, in standard deviations. Where one
# feature is rounded by up to 1e-6, at most 0.04 % of the predictions of networks change by more
# than 1e-5 standard deviations of y (rows of CS, RCL and YH, `effort="fast"`); up to 0.75 % do with
# 1.5e-6, and 2.7 % with 2e-6.
LARGEST_ROUNDING = 1e-6
# Predictions of at most this share of the stored rows may change by more than that.
_CHANGED_ROWS, _LARGEST_CHANGE = 1e-3, 1e-5  # in standard deviations of y
_MAX_ROWS = 500
_NUMBER_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64}
_DEVIATIONS = np.sqrt(3.0) * np.linspace(-1.0, 1.0, 199)  # whose standard deviation is one


def predict_onnx(path: str | PathLike[str], X: Any) -> dict[str, Floats]:
    """Predict the rows of a table by an exported model; the columns are in the order of the fit.

    Returns
    -------
    dict of ndarray
        The outputs by name.
    """
    with require_extra("predict_onnx needs pip install onnxruntime."):
        import onnxruntime
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
        return {MATRIX: np.column_stack(columns).astype(_NUMBER_TYPES[inputs[0].type])}
    feeds = {}
    for each, value, name in zip(inputs, values, names, strict=True):
        if each.type == "tensor(string)":
            text = ["" if pd.isna(item) else str(item) for item in list(value)]
            feeds[each.name] = np.array(text, dtype=object)[:, None]
        else:
            feeds[each.name] = to_numeric(value, name).astype(_NUMBER_TYPES[each.type])[:, None]
    return feeds


def anchor_table(model: BaseEstimator, dtype: type[np.floating[Any]] = np.float64) -> Any:
    """The anchors of a model as a table, rounded to `dtype`; None where it has none.

    An array where the model was fitted to one.
    """
    scalers, twin, _ = unwrap_model(model)
    if scalers or not isinstance(twin, BaseTwin):
        return None
    schema, names = read_schema(twin), getattr(twin, "feature_names_in_", None)
    rows = _anchor_rows(twin)
    table = pd.DataFrame(rows.astype(dtype).astype(np.float64), columns=names)
    for j, (kind, categories) in enumerate(zip(schema.kinds, schema.categories, strict=True)):
        if kind != NUMERIC:
            items = [None if np.isnan(code) else categories[int(code)] for code in rows[:, j]]
            table.isetitem(j, np.array(items, dtype=object))
    return table.to_numpy() if names is None else table


def largest_difference(model: BaseEstimator, path: str | PathLike[str]) -> float | None:
    """Largest difference of means from `predict` at the anchors; None without anchors.

    In units of the standard deviation of the known values.
    """
    if (table := anchor_table(model)) is None:
        return None
    change = np.abs(predict_onnx(path, table)["mean"] - _predict_table(model, table))
    return float((change / _target_spread(model)).max())


def _predict_table(model: BaseEstimator, table: Any) -> Floats:
    """Predictions of a model for a table of its anchors."""
    with ignore_table_warnings():
        return np.asarray(model.predict(table))


def _anchor_rows(twin: BaseTwin) -> Floats:
    """(anchor, feature): the anchors of a twin, or those of the first of several targets."""
    return np.asarray((twin.targets_ or [twin])[0].anchors_X_)


def _target_spread(model: BaseEstimator) -> Floats:
    """(target,): the standard deviation of the known values."""
    _, twin, target = unwrap_model(model)
    models = twin.targets_ or [twin]
    return np.array([float(np.std(target.invert(each.anchors_y_))) or 1.0 for each in models])


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

    Rounding is that of the stored rows. Networks that predict y itself store none, but mean and
    standard deviation, with which rows are made.
    """
    scalers, twin, _ = unwrap_model(model)
    schema = read_schema(twin)
    if isinstance(twin, BaseTwin):
        rows = _anchor_rows(twin).copy()  # a scaler with `copy=False` writes to its input
    else:
        scale = twin.plain_networks().scale
        rows = np.zeros((len(_DEVIATIONS), schema.n_features))
        rows[:, schema.numeric] = scale.X_mean + _DEVIATIONS[:, None] * scale.X_spread
    for scaler in reversed(scalers):
        if read_scaler(scaler):
            rows = np.asarray(scaler.inverse_transform(rows), dtype=np.float64)
    changes, names = relative_rounding(rows[:, schema.numeric]), read_feature_names(twin)
    return [names[schema.numeric[i]] for i in np.flatnonzero(changes > LARGEST_ROUNDING)]


def relative_rounding(rows: Floats) -> Floats:
    """(feature,) largest change of rows by rounding to float32, in standard deviations.

    It is 0 for constant features, unless float32 cannot hold them.

    >>> rows = np.array([[2021.0, 0.9951, 0.25], [2022.0, 0.9953, np.nan], [2023.0, 0.9958, 0.5]])
    >>> relative_rounding(rows) > 1e-6
    array([False,  True, False])
    """
    known = np.ma.array(rows, mask=np.isnan(rows))
    with np.errstate(over="ignore"):
        change = np.abs(known - rows.astype(np.float32)).max(axis=0).filled(0.0)
    spread = known.std(axis=0).filled(0.0)
    # the mean of equal values may differ from them in the last digit
    is_constant = spread <= 10 * np.finfo(np.float64).eps * np.abs(known).max(axis=0).filled(0.0)
    constant = np.where(np.isinf(change), np.inf, 0.0)
    return np.divide(change, spread, out=constant, where=~is_constant)
