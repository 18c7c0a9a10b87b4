"""Predictions of an exported model by onnxruntime, and their difference from `predict`."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from twinned.exceptions import MissingExtraError, ignore_table_warnings
from twinned.export.onnx.assembly import unwrap
from twinned.export.onnx.inputs import MATRIX
from twinned.rows.schema import NUMERIC, Floats, TableSchema, column_list, to_numeric


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


def anchor_table(model: Any, dtype: Any = np.float64) -> pd.DataFrame | None:
    """The anchors of a model as a table, rounded to `dtype`; None where it has none."""
    scalers, twin, _ = unwrap(model)
    if scalers or not hasattr(twin, "anchors_X_"):
        return None
    schema: TableSchema = twin._schema
    names = list(getattr(twin, "feature_names_in_", range(schema.n_features)))
    columns = {}
    for name, kind, known, values in zip(
        names, schema.kinds, schema.categories, twin.anchors_X_.T, strict=True
    ):
        if kind == NUMERIC:
            columns[name] = pd.Series(values.astype(dtype).astype(np.float64))
        else:
            items = [None if np.isnan(code) else known[int(code)] for code in values]
            columns[name] = pd.Series(items, dtype=object)
    return pd.DataFrame(columns)


def largest_difference(model: Any, path: str | PathLike[str]) -> float | None:
    """Largest difference of means from `predict` at the anchors; None without anchors.

    In units of the standard deviation of the known values.
    """
    table = anchor_table(model)
    if table is None:
        return None
    expected = predict_table(model, table)
    found = predict_onnx(path, table)["mean"]
    return float(np.abs(found - expected).max() / target_spread(model))


def predict_table(model: Any, table: pd.DataFrame) -> Floats:
    """Predictions of a model for a table of its anchors."""
    with ignore_table_warnings():
        return np.asarray(model.predict(_like_fit(model, table)))


def target_spread(model: Any) -> float:
    """The standard deviation of the known values."""
    known = unwrap(model).model.anchors_y_
    known = np.exp(known) if unwrap(model).has_log_target else known
    return float(np.std(known)) or 1.0


def _like_fit(model: Any, table: pd.DataFrame) -> Any:
    """The table, or an array where the model was fitted to one."""
    return table if hasattr(model, "feature_names_in_") else table.to_numpy()
