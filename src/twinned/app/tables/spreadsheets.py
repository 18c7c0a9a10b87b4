"""Excel and Parquet files as rows of values."""

from __future__ import annotations

import io
from pathlib import Path

from twinned.app.tables.table import join_names
from twinned.exceptions import install_extra, require_extra

SheetRow = tuple[int, list[object]]  # row of the file, and values


def read_excel(path: Path, data: bytes, sheet: str | None) -> dict[str, list[SheetRow]]:
    """Return the rows that are not blank of each sheet of an .xlsx file, or of the wanted sheet."""
    with require_extra(f"Excel files need openpyxl: {install_extra('excel')}; or save as CSV."):
        import openpyxl  # noqa: F401
    import pandas as pd  # here, as it is slow to import

    try:
        frames = pd.read_excel(
            io.BytesIO(data), sheet_name=None, header=None, dtype=object, na_filter=False
        )
    except Exception as error:  # a damaged or another zip may raise anything
        raise ValueError(f"{path} cannot be read as an Excel file: {error}.") from None
    titles = list(map(str, frames))
    if sheet is not None and sheet not in titles:
        if not (sheet.isdecimal() and 1 <= int(sheet) <= len(titles)):
            listed = join_names(titles)
            raise ValueError(f"{path} has no sheet {sheet!r} (--sheet); its sheets are {listed}.")
        sheet = titles[int(sheet) - 1]
    sheets = {}
    for title in titles if sheet is None else [sheet]:
        values = frames[title].map(lambda value: value.strip() if isinstance(value, str) else value)
        rows = enumerate(values.to_numpy(object).tolist(), start=1)
        sheets[title] = [(number, row) for number, row in rows if any(x != "" for x in row)]
    return {title: rows for title, rows in sheets.items() if rows}


def read_parquet(path: Path, data: bytes) -> list[SheetRow]:
    """Return the names of the columns of a Parquet file as row 0, and its rows from 1."""
    with require_extra(f"Parquet files need pyarrow: {install_extra('parquet')}; or use CSV."):
        from pyarrow import parquet
    try:
        # without threads, which may abort a process that exits with an error
        table = parquet.ParquetFile(io.BytesIO(data)).read(use_threads=False)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{path} cannot be read as a Parquet file: {reason}.") from None
    columns = (column.to_pylist() for column in table.columns)
    return [
        (0, list(table.column_names)),
        *((number, list(row)) for number, row in enumerate(zip(*columns, strict=True), start=1)),
    ]
