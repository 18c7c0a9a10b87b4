"""Inputs of an exported model, and the encoding of a table inside the graph.

A table whose columns are all numbers is one input `X`, a matrix (row, column) in the order of the
columns. A table with text has one input per column, named as the column and of shape (row, 1).
Numbers are float or double, text is string.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto, helper

from twinned.estimators.blending.model import FeaturePreparation
from twinned.export.model_parts import refuse
from twinned.export.onnx.graph import DOUBLE, ML_DOMAIN, Graph, Tensor, concatenate
from twinned.rows.schema import NUMERIC, ORDINAL, TableSchema

MATRIX = "X"  # name of the only input of a table of numbers
BATCH = "batch"  # name of the axis of rows


def add_inputs(
    graph: Graph, schema: TableSchema, names: list[str]
) -> tuple[list[ValueInfoProto], Tensor]:
    """Return the inputs of the graph, and the encoded table (row, feature)."""
    number = helper.np_dtype_to_tensor_dtype(np.dtype(graph.dtype))
    is_text = [_is_text(categories) for categories in schema.categories]
    for name, categories in zip(names, schema.categories, strict=True):
        _check_categories(name, categories, graph.dtype)
    if not any(is_text):
        info = helper.make_tensor_value_info(MATRIX, number, [BATCH, len(names)])
        return [info], encode_matrix(schema, Tensor(graph, MATRIX).cast(DOUBLE))
    elements = [TensorProto.STRING if text else number for text in is_text]
    infos = [
        helper.make_tensor_value_info(name, element, [BATCH, 1])
        for name, element in zip(names, elements, strict=True)
    ]
    columns = [_encode(schema, j, Tensor(graph, name)) for j, name in enumerate(names)]
    return infos, concatenate(columns)


def encode_matrix(schema: TableSchema, matrix: Tensor) -> Tensor:
    """Encode a matrix (row, feature) of numbers, some of which are categories."""
    if {*schema.kinds} <= {NUMERIC}:
        return matrix
    return concatenate([_encode(schema, j, matrix.columns([j])) for j in range(schema.n_features)])


def split_rows(schema: TableSchema, matrix: Tensor) -> Tensor:
    """Return numeric features, indicators and codes of encoded rows, as one matrix.

    The columns are those of `twinned.models.trees.anchor_masks.row_matrix`.
    """
    if not schema.categorical and not schema.marked:
        return matrix
    indicators = []
    for j in schema.categorical:
        codes = matrix.columns([j])
        one_hot = codes.equals(np.arange(schema.n_indicators[j], dtype=float))
        indicators.append(codes.is_nan().apply("Where", np.nan, one_hot))
    numeric, codes = matrix.columns(schema.numeric), matrix.columns(schema.categorical)
    marks = matrix.columns(schema.marked).is_nan().cast(DOUBLE)
    return concatenate([numeric, *indicators, marks, codes])


def add_preparation(preparation: FeaturePreparation, matrix: Tensor) -> Tensor:
    """Encoded rows (row, feature) → features of a member, as `FeaturePreparation.transform`."""
    if preparation.columns is not None:
        matrix = matrix.columns(preparation.columns)
    features = np.arange(preparation.n_features)
    is_unused = np.isin(features, preparation.empty)  # such as features that had no known value
    values = matrix.graph.add("Where", is_unused, 0.0, matrix)
    if preparation.kind == "encoded":
        return values
    categorical, n_categories = preparation.categorical, preparation.n_categories
    fill, largest = preparation.medians.copy(), np.full(preparation.n_features, np.inf)
    # a known category is below n, which is the code of a missing one; n + 1 that of a new one
    fill[categorical] = n_categories
    largest[categorical] = np.array(n_categories, dtype=float) - 1
    values = values.apply("Greater", largest).apply("Where", fill + 1.0, values)
    missing = matrix.is_nan()
    filled = missing.apply("Where", fill, values)
    marks = missing.cast(DOUBLE).columns(preparation.marked)
    if preparation.kind == "complete":
        return concatenate([filled, marks])
    numeric = filled.columns(np.setdiff1d(features, categorical))
    indicators = [
        filled.columns([j]).equals(np.arange(n + 1, dtype=float))
        for j, n in zip(categorical, n_categories, strict=True)
    ]
    dense = concatenate([numeric, marks, *indicators])
    return (dense - preparation.center) / preparation.spread


def add_category_index(categories: Sequence[Any] | NDArray[Any], values: Tensor) -> Tensor:
    """(row, 1) index of each value among categories (numbers); their count for any other value.

    They are compared in the type of the inputs.
    """
    dtype = np.dtype(values.graph.dtype)
    rounded = values.cast(helper.np_dtype_to_tensor_dtype(dtype))
    below_count = np.arange(len(categories), dtype=float)[:, None] - len(categories)
    is_same = rounded.equals(np.asarray(categories, dtype=dtype)[None])
    return is_same @ below_count + float(len(categories))


def _encode(schema: TableSchema, feature: int, values: Tensor) -> Tensor:
    """Codes of a categorical feature, or the values of a numeric one, (row, 1)."""
    kind, categories = schema.kinds[feature], schema.categories[feature]
    if kind == NUMERIC:
        return values.cast(DOUBLE)
    if _is_text(categories):
        # an empty text is a missing value
        codes = {"": np.nan} | {text: float(code) for code, text in enumerate(categories)}
        return values.apply(
            "LabelEncoder",
            domain=ML_DOMAIN,
            keys_strings=list(codes),
            values_floats=list(codes.values()),
            default_float=np.nan if kind == ORDINAL else float(len(categories)),
        ).cast(DOUBLE)
    values = values.cast(DOUBLE)
    code = add_category_index(categories, values)
    if kind == ORDINAL:
        code = code.apply("Equal", float(len(categories))).apply("Where", np.nan, code)
    return values.is_nan().apply("Where", np.nan, code)


def _is_text(categories: Sequence[Any]) -> bool:
    return any(isinstance(value, str) for value in categories)


def _check_categories(name: str, categories: Sequence[Any], dtype: str) -> None:
    """Refuse categories that no tensor of this type can hold."""
    way_out = "convert its values to text before the fit"
    if _is_text(categories):
        if not all(isinstance(value, str) for value in categories):
            refuse(f"column {name!r} has both text and numbers as categories", way_out)
    elif not all(isinstance(value, int | float) for value in categories):
        refuse(f"column {name!r} has categories that are neither text nor numbers", way_out)
    elif len(set(np.array(categories, dtype=dtype).tolist())) < len(categories):
        wider = 'use dtype="float64", or ' if dtype == "float32" else ""
        refuse(f"column {name!r} has categories that are equal in {dtype}", wider + way_out)
