"""Files of results: tables as CSV or Excel, by the suffix of the file."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from twinned.app.cli.options import check_output_path
from twinned.exceptions import MissingExtraError

_NOT_WRITTEN = (".xls", ".ods", ".parquet", ".json", ".pdf")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")


def check_result_path(path: Path, inputs: Iterable[Path]) -> Path:
    """Return the resolved path of a table to write; a ValueError for files that are not written."""
    if path.suffix.lower() in _NOT_WRITTEN:
        raise ValueError(f"-o {path}: a {path.suffix} file cannot be written; use .csv or .xlsx.")
    return check_output_path(path, inputs)


def table_content(
    path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]], digits: int
) -> bytes:
    """Return the content of a table file, numbers with that many significant digits."""
    if is_excel(path):
        return _to_excel(path, header, ([_rounded(x, digits) for x in row] for row in rows))
    return to_csv(header, rows, digits).encode()


def is_excel(path: Path) -> bool:
    return path.suffix.lower() == ".xlsx"


def numbers_of_text(column: Sequence[str]) -> Sequence[Any]:
    """Return the numbers of a column of text where all its cells are plain numbers or empty.

    >>> [numbers_of_text(column) for column in (["2.50", "", "-7"], ["2.5", "1E5"], ["007"])]
    [[2.5, None, -7.0], ['2.5', '1E5'], ['007']]
    """
    if not all(cell == "" or _NUMBER.fullmatch(cell) for cell in column):
        return column
    return [float(cell) if cell else None for cell in column]


def to_csv(header: Sequence[str], rows: Iterable[Sequence[Any]], digits: int) -> str:
    """Return the text of a CSV file.

    >>> print(to_csv(["a", "b"], [[1 / 3, "x, y"]], digits=3), end="")
    a,b
    0.333,"x, y"
    """
    from twinned.rows.formatting import number_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow([number_text(x, digits) if isinstance(x, float) else x for x in row])
    return text.getvalue()


def _rounded(cell: Any, digits: int) -> Any:
    """Return a number with that many significant digits, None for one that Excel cannot hold."""
    from twinned.rows.formatting import number_text

    if not isinstance(cell, float):
        return cell
    return float(number_text(cell, digits)) if math.isfinite(cell) else None


def _to_excel(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    """Return a workbook of one sheet whose header stays visible."""
    try:
        from openpyxl import Workbook
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
        from openpyxl.styles import Font
    except ImportError as error:
        raise MissingExtraError(
            f"{path} needs openpyxl: pip install 'twinned[excel]'; or write a .csv file."
        ) from error
    workbook = Workbook()
    sheet = workbook.active
    sheet.title = "result"
    for row in (header, *rows):  # control characters cannot be stored
        texts = (ILLEGAL_CHARACTERS_RE.sub("", x) if isinstance(x, str) else x for x in row)
        sheet.append(list(texts))
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    sheet.freeze_panes = "B2"
    for row in sheet.iter_rows():
        for cell in row:
            if cell.data_type in ("f", "e"):  # texts such as "=1+1" and "#N/A" stay as they are
                cell.data_type = "s"
    stream = io.BytesIO()
    workbook.save(stream)
    return stream.getvalue()
