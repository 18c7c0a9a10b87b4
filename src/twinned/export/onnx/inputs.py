"""Inputs of an exported model, and the encoding of a table inside the graph.

A table whose columns are all numbers is one input `X`, a matrix (row, column) in the order of the
columns. A table with text has one input per column, named as the column and of shape (row, 1).
Numbers are float or double, text is string.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto, helper

from twinned.estimators.blending.model import FeaturePreparation
from twinned.export.model_parts import refuse
from twinned.export.onnx.graph import DOUBLE, ML_DOMAIN, Graph, Tensor, concatenate
from twinned.rows.schema import NUMERIC, ORDINAL, TableSchema

MATRIX = "X"  # name of the only input of a table of numbers
BATCH = "batch"  # name of the axis of rows


class Column(NamedTuple):
    """A column of the table that a model was fitted to."""

    name: str
    kind: str  # numeric, categorical or ordinal
    categories: list[Any]

    @property
    def is_text(self) -> bool:
        return any(isinstance(value, str) for value in self.categories)


def _columns(schema: TableSchema, names: Iterable[str]) -> list[Column]:
    return [
        Column(name, kind, categories)
        for name, kind, categories in zip(names, schema.kinds, schema.categories, strict=True)
    ]


def add_inputs(
    graph: Graph, schema: TableSchema, names: list[str]
) -> tuple[list[ValueInfoProto], Tensor]:
    """Return the inputs of the graph, and the encoded table (row, feature)."""
    columns = _columns(schema, names)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(graph.dtype))
    if not any(column.is_text for column in columns):
        info = helper.make_tensor_value_info(MATRIX, number, [BATCH, len(columns)])
        return [info], _encode_columns(columns, Tensor(graph, MATRIX).cast(DOUBLE))
    infos, encoded = [], []
    for column in columns:
        element = TensorProto.STRING if column.is_text else number
        infos.append(helper.make_tensor_value_info(column.name, element, [BATCH, 1]))
        encoded.append(_encode(column, Tensor(graph, column.name)))
    return infos, concatenate(encoded)


def encode_matrix(schema: TableSchema, matrix: Tensor) -> Tensor:
    """Encode a matrix (row, feature) of numbers, some of which are categories."""
    return _encode_columns(_columns(schema, map(str, range(schema.n_features))), matrix)


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


def _encode_columns(columns: list[Column], matrix: Tensor) -> Tensor:
    if all(column.kind == NUMERIC for column in columns):
        return matrix
    return concatenate([_encode(column, matrix.columns([j])) for j, column in enumerate(columns)])


def _encode(column: Column, values: Tensor) -> Tensor:
    """Codes of a categorical feature, or the values of a numeric one, (row, 1)."""
    if column.kind == NUMERIC:
        return values.cast(DOUBLE)
    _check_categories(column, values.graph.dtype)
    if column.is_text:
        return _codes_of_text(column, values)
    values = values.cast(DOUBLE)
    code = add_category_index(column.categories, values)
    if column.kind == ORDINAL:
        code = code.apply("Equal", float(len(column.categories))).apply("Where", np.nan, code)
    return values.is_nan().apply("Where", np.nan, code)


def _codes_of_text(column: Column, values: Tensor) -> Tensor:
    """Codes of a feature of text (row, 1); an empty text is a missing value."""
    codes: dict[str, float] = {text: float(code) for code, text in enumerate(column.categories)}
    codes.setdefault("", np.nan)
    return values.apply(
        "LabelEncoder",
        domain=ML_DOMAIN,
        keys_strings=list(codes),
        values_floats=list(codes.values()),
        default_float=np.nan if column.kind == ORDINAL else float(len(column.categories)),
    ).cast(DOUBLE)


def _check_categories(column: Column, dtype: str) -> None:
    """Refuse categories that no tensor of this type can hold."""
    categories, way_out = column.categories, "convert its values to text before the fit"
    name = f"column {column.name!r} has"
    if column.is_text:
        if not all(isinstance(value, str) for value in categories):
            refuse(f"{name} both text and numbers as categories", way_out)
        return
    if not all(isinstance(value, int | float) for value in categories):
        refuse(f"{name} categories that are neither text nor numbers", way_out)
    if len(set(np.array(categories, dtype=dtype).tolist())) < len(categories):
        wider = 'use dtype="float64", or ' if dtype == "float32" else ""
        refuse(f"{name} categories that are equal in {dtype}", wider + way_out)
