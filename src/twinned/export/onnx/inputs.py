"""Inputs of an exported model, and the encoding of a table inside the graph.

A table whose columns are all numbers is one input `X`, a matrix (row, column) in the order of the
columns. A table with text has one input per column, named as the column and of shape (row, 1).
Numbers are float or double, text is string.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto, ValueInfoProto, helper

from twinned.export.onnx.graph import DOUBLE, FLOAT, ML_DOMAIN, Graph, Tensor
from twinned.export.onnx.refusal import refuse
from twinned.rows.schema import CATEGORICAL, NUMERIC, ORDINAL, TableSchema

MATRIX = "X"  # name of the only input of a table of numbers
BATCH = "batch"  # name of the axis of rows
NUMBER_TYPES = {"float32": FLOAT, "float64": DOUBLE}


class Column(NamedTuple):
    """A column of the table that a model was fitted to."""

    name: str
    kind: str  # numeric, categorical or ordinal
    categories: list[Any]

    @property
    def is_text(self) -> bool:
        return any(isinstance(value, str) for value in self.categories)


def table_columns(model: Any, dtype: str) -> list[Column]:
    """Return the columns of the table that a model was fitted to, for inputs of this type."""
    schema: TableSchema = model._schema
    names = getattr(model, "feature_names_in_", range(schema.n_features))
    columns = [
        Column(str(name), kind, known)
        for name, kind, known in zip(names, schema.kinds, schema.categories, strict=True)
    ]
    for column in columns:
        _check_categories(column, dtype)
    return columns


def add_inputs(
    graph: Graph, columns: list[Column], dtype: str
) -> tuple[list[ValueInfoProto], Tensor]:
    """Return the inputs of the graph, and the encoded table (row, feature)."""
    number = NUMBER_TYPES[dtype]
    if not any(column.is_text for column in columns):
        shape: list[str | int | None] = [BATCH, len(columns)]
        matrix = graph.cast(MATRIX, DOUBLE)
        info = helper.make_tensor_value_info(MATRIX, number, shape)
        return [info], _encode_columns(graph, columns, matrix, dtype)
    infos, encoded = [], []
    for column in columns:
        kind = TensorProto.STRING if column.is_text else number
        infos.append(helper.make_tensor_value_info(column.name, kind, [BATCH, 1]))
        if column.is_text:
            encoded.append(_codes_of_text(graph, column))
        else:
            encoded.append(_encode(graph, column, graph.cast(column.name, DOUBLE), dtype))
    return infos, graph.concatenate(encoded)


def encode_matrix(graph: Graph, schema: TableSchema, matrix: Tensor) -> Tensor:
    """Encode a matrix (row, feature) of numbers, some of which are categories.

    These are compared in float32, in which the codes of the categories of a blend are exact.
    """
    parts = zip(schema.kinds, schema.categories, strict=True)
    columns = [Column(str(j), kind, known) for j, (kind, known) in enumerate(parts)]
    return _encode_columns(graph, columns, matrix, "float32")


def split_rows(graph: Graph, schema: TableSchema, matrix: Tensor) -> Tensor:
    """Return numeric features, indicators and codes of encoded rows, as one matrix.

    The columns are those of `twinned.models.trees.anchor_masks.row_matrix`.
    """
    if not schema.categorical and not schema.marked:
        return matrix
    parts = [graph.columns(matrix, schema.numeric)] if schema.numeric else []
    for j in schema.categorical:
        codes = graph.columns(matrix, [j])
        if schema.n_indicators[j]:
            is_own = graph.add("Equal", codes, np.arange(schema.n_indicators[j], dtype=float))
            parts.append(_where_known(graph, codes, graph.cast(is_own, DOUBLE)))
    if schema.marked:
        missing = graph.add("IsNaN", graph.columns(matrix, schema.marked))
        parts.append(graph.cast(missing, DOUBLE))
    if schema.categorical:
        parts.append(graph.columns(matrix, schema.categorical))
    return graph.concatenate(parts)


def _encode_columns(graph: Graph, columns: list[Column], matrix: Tensor, dtype: str) -> Tensor:
    if all(column.kind == NUMERIC for column in columns):
        return matrix
    values = [graph.columns(matrix, [j]) for j in range(len(columns))]
    pairs = zip(columns, values, strict=True)
    return graph.concatenate([_encode(graph, *pair, dtype) for pair in pairs])


def _encode(graph: Graph, column: Column, values: Tensor, dtype: str) -> Tensor:
    """Codes of a categorical feature of numbers (row, 1); a numeric one is returned as it is."""
    if column.kind == NUMERIC:
        return values
    code = add_category_index(graph, column.categories, values, dtype)
    if column.kind == ORDINAL:
        is_new = graph.add("Equal", code, float(len(column.categories)))
        code = graph.add("Where", is_new, np.nan, code)
    return _where_known(graph, values, code)


def add_category_index(
    graph: Graph, known: Sequence[Any] | NDArray[Any], values: Tensor, dtype: str = "float32"
) -> Tensor:
    """(row, 1) index of each value among known numbers; their count for any other value.

    They are compared in the type of the inputs.
    """
    numbers = np.asarray(known, dtype=dtype)[None]
    own = graph.cast(values, NUMBER_TYPES[dtype])
    is_own = graph.cast(graph.add("Equal", own, numbers), DOUBLE)
    below_count = np.arange(len(known), dtype=float)[:, None] - len(known)
    return graph.add("Add", graph.add("MatMul", is_own, below_count), float(len(known)))


def _codes_of_text(graph: Graph, column: Column) -> Tensor:
    """Codes of a feature of text (row, 1); an empty text is a missing value."""
    known: dict[str, float] = {text: float(code) for code, text in enumerate(column.categories)}
    known.setdefault("", np.nan)
    new_code = np.nan if column.kind == ORDINAL else float(len(column.categories))
    codes = graph.add(
        "LabelEncoder",
        column.name,
        domain=ML_DOMAIN,
        keys_strings=list(known),
        values_floats=list(known.values()),
        default_float=new_code,
    )
    return graph.cast(codes, DOUBLE)


def _where_known(graph: Graph, values: Tensor, results: Tensor) -> Tensor:
    """Results where values are known, else NaN."""
    return graph.add("Where", graph.add("IsNaN", values), np.nan, results)


def _check_categories(column: Column, dtype: str) -> None:
    """Refuse categories that no tensor of this type can hold."""
    if column.kind == NUMERIC:
        return
    known = column.categories
    if column.is_text and not all(isinstance(value, str) for value in known):
        refuse(
            f"column {column.name!r} has both text and numbers as categories",
            "convert its values to text before the fit",
        )
    if column.is_text or column.kind not in (CATEGORICAL, ORDINAL):
        return
    if not all(isinstance(value, int | float) for value in known):
        refuse(
            f"column {column.name!r} has categories that are neither text nor numbers",
            "convert its values to text before the fit",
        )
    if len(set(np.array(known, dtype=dtype).tolist())) < len(known):
        wider = 'use dtype="float64", or ' if dtype == "float32" else ""
        refuse(
            f"column {column.name!r} has categories that are equal in {dtype}",
            f"{wider}convert its values to text before the fit",
        )
