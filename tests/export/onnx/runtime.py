"""Predictions of an exported model by onnxruntime."""

from __future__ import annotations

from os import PathLike

import numpy as np
import pandas as pd

from twinned.exceptions import require_extra
from twinned.export.onnx.inputs import MATRIX
from twinned.rows.columns import to_numeric
from twinned.rows.schema import Floats, column_list

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
