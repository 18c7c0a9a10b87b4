"""Excel and Parquet files as rows of values."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

from twinned.app.tables.header import build_table, cell_text, find_header
from twinned.app.tables.numbers import detect_formats, is_number
from twinned.app.tables.table import ReadOptions, Table, join_names
from twinned.exceptions import install_extra, require_extra

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

SheetRow = tuple[int, list[object]]  # row of the file, and values
_WITHOUT_VALUE = re.compile(  # a formula; an empty text is a value
    rb'<c r="(\w+)"(?![^>]*t="str")[^>]*><f[^>]*?(?:/>|>[^<]*</f>)(?:<v ?/>|<v></v>)?</c>'
)


def read_excel(path: Path, data: bytes, options: ReadOptions) -> Table:
    """Read a sheet of an .xlsx file, by default that with the expected names."""
    with require_extra(f"Excel files need openpyxl: {install_extra('excel')}; or save as CSV."):
        from openpyxl.reader.excel import ExcelReader
        from openpyxl.utils.cell import coordinate_to_tuple
    try:
        reader = ExcelReader(io.BytesIO(data), read_only=True, data_only=True)
        reader.read()
        sheet_files = {sheet.name: part.target for sheet, part in reader.parser.find_sheets()}
    except Exception as error:  # a damaged or another zip may raise anything
        raise ValueError(f"{path} cannot be read as an Excel file: {error}.") from None
    sheets = {sheet.title: sheet for sheet in reader.wb.worksheets}
    if not sheets:
        raise ValueError(f"{path} has no sheet of cells that can be read; save the table as CSV.")
    wanted = _select_sheets(path, list(sheets), options.sheet)
    rows_of = {title: _sheet_rows(path, sheets[title]) for title in wanted}
    filled = {title: rows for title, rows in rows_of.items() if rows}
    if not filled:
        raise ValueError(f"{path} is empty; the first row of a sheet must name the columns.")
    title, position = find_header(path, filled, options)
    others = join_names([name for name in filled if name != title])
    detected = [f"sheet {title!r} (others: {others})"] if others else []
    table = _typed_table(path, filled[title], position, options, detected)
    names = dict(zip(table.file_positions, table.names, strict=True))
    for cell in map(bytes.decode, _WITHOUT_VALUE.findall(reader.archive.read(sheet_files[title]))):
        row, column = coordinate_to_tuple(cell)
        if row >= table.lines[0] and column - 1 in names:
            table.formulas[names[column - 1], row] = f"{title}!{cell}"
    return table


def read_parquet(path: Path, data: bytes, options: ReadOptions) -> Table:
    """Read a Parquet file; rows count from 1."""
    with require_extra(f"Parquet files need pyarrow: {install_extra('parquet')}; or use CSV."):
        from pyarrow import parquet
    try:
        # without threads, which may abort a process that exits with an error
        table = parquet.ParquetFile(io.BytesIO(data)).read(use_threads=False)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{path} cannot be read as a Parquet file: {reason}.") from None
    columns = (column.to_pylist() for column in table.columns)
    rows = enumerate(([*row] for row in zip(*columns, strict=True)), start=1)
    return _typed_table(path, [(0, list(table.column_names)), *rows], 0, options, [])


def _select_sheets(path: Path, titles: list[str], sheet: str | None) -> list[str]:
    """Return the title of the sheet with a name or number, all where none is given."""
    if sheet is None or sheet in titles:
        return titles if sheet is None else [sheet]
    if sheet.isdecimal() and 1 <= int(sheet) <= len(titles):
        return [titles[int(sheet) - 1]]
    sheets = join_names(titles)
    raise ValueError(f"{path} has no sheet {sheet!r} (--sheet); its sheets are {sheets}.")


def _sheet_rows(path: Path, sheet: Worksheet) -> list[SheetRow]:
    """Return the numbers and values of the rows that are not blank, of equal length."""
    sheet.reset_dimensions()  # a format of the last cell would make a million wide rows
    rows = []
    try:
        for number, values in enumerate(sheet.iter_rows(values_only=True), start=1):
            filled = [j for j, value in enumerate(values) if value not in (None, "")]
            if filled:
                rows.append((number, list(values[: filled[-1] + 1])))
    except Exception as error:  # a damaged part may raise anything
        raise ValueError(f"{path}, sheet {sheet.title!r} cannot be read: {error}.") from None
    width = max((len(row) for _, row in rows), default=0)
    return [(number, row + [None] * (width - len(row))) for number, row in rows]


def _typed_table(
    path: Path, rows: list[SheetRow], header: int, reading: ReadOptions, detected: list[str]
) -> Table:
    """Return the table of rows of values of any type, below that at the position `header`."""
    values = [row for _, row in rows[header + 1 :]]
    columns = list(zip(*values, strict=True))
    typed = [j for j, column in enumerate(columns) if {int, float} & set(map(type, column))]
    texts = [[x for x in columns[j] if isinstance(x, str) and is_number(x)] for j in typed]
    formats = detect_formats(texts, reading.decimal, reading.thousands)
    notations = dict(zip(typed, formats, strict=True))
    for j, notation in notations.items():
        for row in values:
            if isinstance(text := row[j], str):  # among numbers, which have a decimal point
                row[j] = notation.plain(text.strip())
    cells = [(number, [cell_text(value) for value in row]) for number, row in rows]
    return build_table(path, cells, header, reading, detected, notations)
