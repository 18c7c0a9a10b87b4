"""Batches of rows of a Parquet file: numbers as they are, other columns as text cells."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from twinned.app.tables.binary_files import cell_text
from twinned.app.tables.table import ReadOptions, Table, detect_column_formats

if TYPE_CHECKING:
    import numpy as np


def header_table(path: Path, names: list[str], first_row: int = 0, n_rows: int = 0) -> Table:
    """A table of names and row numbers, without cells."""
    lines = list(range(first_row + 1, first_row + n_rows + 1))
    return Table(path, names, [[] for _ in names], lines, "row")


def text_table(path: Path, batch: Any, first_row: int, reading: ReadOptions) -> Table:
    """The columns of a batch as text cells; rows count from `first_row` + 1."""
    columns = [[cell_text(value) for value in column.to_pylist()] for column in batch.columns]
    typed = frozenset(j for j, column in enumerate(batch.columns) if is_numeric(column.type))
    formats = detect_column_formats(columns, typed, reading, point_expected=False)
    names = list(batch.schema.names)
    lines = header_table(path, names, first_row, batch.num_rows).lines
    return Table(path, names, columns, lines, "row", formats, typed, [], reading)


def is_numeric(kind: Any) -> bool:
    """Whether a type of Arrow is that of integers, floating-point numbers or truth values."""
    from pyarrow import types

    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def numeric_values(column: Any) -> np.ndarray:
    """A numeric column as float64 of shape (n_rows,), missing values as NaN."""
    import numpy as np
    import pyarrow as pa

    values: np.ndarray = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float64)
