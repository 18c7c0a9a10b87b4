"""Excel and Parquet files as text cells, with the columns whose cells are numbers."""

from __future__ import annotations

import datetime
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from twinned.app.tables.table import join_names
from twinned.exceptions import MissingExtraError


class Cells(NamedTuple):
    """A header and rows of text cells, the number of each row, and the columns of numbers."""

    names: list[str]
    rows: list[list[str]]
    numbers: list[int]
    typed: frozenset[int]
    detected: list[str]


def read_excel(path: Path, data: bytes, sheet: str | None, max_cells: float = math.inf) -> Cells:
    """Read a sheet of an .xlsx file, by default the first that is not empty."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise MissingExtraError(
            f"{path} is an Excel file, which needs openpyxl: pip install 'twinned[excel]'; or save "
            "the sheet as CSV."
        ) from error
    try:
        workbook = load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except Exception as error:  # a damaged or another zip may raise anything
        raise ValueError(f"{path} cannot be read as an Excel file: {error}.") from None
    sheets = {each.title: each for each in workbook.worksheets}
    title = _select_sheet(path, list(sheets), sheet)
    wanted = sheets if title is None else {title: sheets[title]}
    found = {name: _sheet_rows(path, each, max_cells) for name, each in wanted.items()}
    filled = [name for name, own in found.items() if own]
    title = next(iter(filled), next(iter(wanted)))
    rows = found[title]
    detected = []
    if len(filled) > 1:
        detected = [f"sheet {title!r} (others: {join_names(filled[1:])})"]
    if not rows:
        raise ValueError(
            f"{path}, sheet {title!r} is empty; its first row should name the columns."
        )
    if n_titles := _count_titles(rows):
        detected.append(f"the names of columns in row {rows[n_titles][0]}")
        rows = rows[n_titles:]
    width = max(len(row) for _, row in rows)
    full = [row + [None] * (width - len(row)) for _, row in rows]
    names = [cell_text(value) for value in full[0]]
    return _to_cells(names, full[1:], [number for number, _ in rows[1:]], detected)


def read_parquet(path: Path, data: bytes) -> Cells:
    """Read a Parquet file; rows count from 1."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError(
            f"{path} is a Parquet file, which needs pyarrow: pip install 'twinned[parquet]'; or "
            "save the table as CSV."
        ) from error
    try:
        # without threads, which may abort a process that exits with an error
        table = parquet.ParquetFile(io.BytesIO(data)).read(use_threads=False)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{path} cannot be read as a Parquet file: {reason}.") from None
    columns = [column.to_pylist() for column in table.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return _to_cells(list(table.column_names), rows, list(range(1, len(rows) + 1)), [])


def _select_sheet(path: Path, titles: list[str], sheet: str | None) -> str | None:
    """Return the title of the sheet with a name or number, None where none is given."""
    if sheet is None or sheet in titles:
        return sheet
    if sheet.isdecimal() and 1 <= int(sheet) <= len(titles):
        return titles[int(sheet) - 1]
    raise ValueError(
        f"{path} has no sheet {sheet!r} (--sheet); its sheets are {join_names(titles)}."
    )


def _sheet_rows(path: Path, sheet: Any, max_cells: float) -> list[tuple[int, list[Any]]]:
    """Return the numbers and values of the rows that are not blank."""
    sheet.reset_dimensions()  # a format of the last cell would make a million wide rows
    rows, n_cells = [], 0
    for number, values in enumerate(sheet.iter_rows(values_only=True), start=1):
        n_cells += len(values)  # those before the last one of a row count, too
        if n_cells > max_cells:
            raise ValueError(f"{path} has more than {max_cells:,} cells; use a smaller table.")
        filled = [j for j, value in enumerate(values) if value not in (None, "")]
        if filled:
            rows.append((number, list(values[: filled[-1] + 1])))
    return rows


def _count_titles(rows: list[tuple[int, list[Any]]]) -> int:
    """Return the number of rows of one cell above the first row of a table of several columns."""
    sizes = [sum(value is not None for value in row) for _, row in rows]
    return next((i for i, size in enumerate(sizes) if size > 1), 0)


def _to_cells(
    names: list[str], rows: list[list[Any]], numbers: list[int], detected: list[str]
) -> Cells:
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True)
    typed = [j for j, column in enumerate(columns) if any(map(_is_number, column))]
    text = [[cell_text(value) for value in row] for row in rows]
    return Cells([name.strip() for name in names], text, numbers, frozenset(typed), detected)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def cell_text(value: Any) -> str:
    """The text of a cell with a value of any type."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        midnight = value.time() == datetime.time()
        return value.date().isoformat() if midnight else value.isoformat(sep=" ")
    if isinstance(value, float):  # repr is the shortest text that parses to the same number
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value).strip()
