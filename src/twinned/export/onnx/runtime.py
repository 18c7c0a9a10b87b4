"""Predictions of an exported model by onnxruntime."""

from __future__ import annotations

from os import PathLike
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from twinned.estimators.methods import TwinMethods
from twinned.exceptions import ignore_table_warnings, require_extra
from twinned.export.onnx.inputs import MATRIX
from twinned.export.onnx.models import unwrap_model
from twinned.rows.columns import to_numeric
from twinned.rows.schema import NUMERIC, Floats, column_list

_NUMBER_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64}


def predict_onnx(path: str | PathLike[str], X: object) -> dict[str, Floats]:
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


def _feeds(inputs, X):
    """The inputs of an exported model for the rows of a table."""
    columns, names = column_list(X)
    if [info.name for info in inputs] == [MATRIX]:
        numbers = [to_numeric(column, name) for column, name in zip(columns, names, strict=True)]
        return {MATRIX: np.column_stack(numbers).astype(_NUMBER_TYPES[inputs[0].type])}
    feeds = {}
    for info, column, name in zip(inputs, columns, names, strict=True):
        if info.type == "tensor(string)":
            text = ["" if pd.isna(item) else str(item) for item in list(column)]
            feeds[info.name] = np.array(text, dtype=object)[:, None]
        else:
            feeds[info.name] = to_numeric(column, name).astype(_NUMBER_TYPES[info.type])[:, None]
    return feeds


def largest_difference(model: BaseEstimator, path: str | PathLike[str]) -> float | None:
    """Largest difference of means from `predict` at the anchors; None without anchors.

    In units of the standard deviation of the known values.
    """
    scalers, twin, target = unwrap_model(model)
    if scalers or not isinstance(twin, TwinMethods):
        return None
    twins = twin.targets_ or [twin]
    table = anchor_table(twins[0])
    with ignore_table_warnings():
        predicted = np.asarray(model.predict(table))
    spread = np.array([np.std(target.invert(one_target.anchors_y_)) or 1.0 for one_target in twins])
    return float((np.abs(predict_onnx(path, table)["mean"] - predicted) / spread).max())


def anchor_table(twin: TwinMethods) -> Any:
    """The anchors of a twin as a table; an array where it was fitted to one."""
    schema, names = twin.schema_, vars(twin).get("feature_names_in_")
    table = pd.DataFrame(twin.anchors_X_.copy(), columns=names)
    for j, (kind, categories) in enumerate(zip(schema.kinds, schema.categories, strict=True)):
        if kind != NUMERIC:
            codes = twin.anchors_X_[:, j]
            items = [None if np.isnan(code) else categories[int(code)] for code in codes]
            table.isetitem(j, np.array(items, dtype=object))
    return table.to_numpy() if names is None else table
