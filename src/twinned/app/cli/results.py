"""Files and printed tables of results."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from twinned.app.cli.messages import print_result
from twinned.app.cli.options import SavedModelOptions
from twinned.app.prediction import Columns
from twinned.app.tables.table import combine_columns, to_csv
from twinned.exceptions import install_extra, require_extra
from twinned.persistence.archive import write_atomically
from twinned.rows.formatting import number_text

Facts = dict[str, Any]  # what is printed, by name
_PLAIN_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,14})(\.[0-9]+)?")


def write_table(path: Path, columns: Mapping[str, Sequence[object]], digits: int) -> None:
    """Write a CSV or Excel file, completely or not at all, numbers with that many digits."""
    to_bytes = _to_excel if _is_excel(path) else to_csv
    write_atomically(path, to_bytes(columns, digits))


def output_result(
    options: SavedModelOptions,
    path: Path | None,
    copied: Mapping[str, Sequence[str]],
    columns: Columns,
    facts: Mapping[str, object],
    summary: str,
) -> None:
    """Write a result to the resolved path of -o, or print it as CSV or JSON."""
    output = None if path is None else str(options.output)
    table = options.table and str(options.table)  # None without the row of `twinned solve`
    facts = {"model": str(options.model), "table": table, **facts, "output": output}
    values = {name: column.tolist() for name, column in columns.items()}
    if path is not None:
        cells: Mapping[str, Sequence[object]] = copied
        if _is_excel(path):
            cells = {name: numbers_of_text(column) for name, column in copied.items()}
        write_table(path, combine_columns(cells, values), options.digits)
        print_result(facts, f"{summary} in {output}", options.as_json)
    elif options.as_json:
        facts |= {"copied_columns": copied} if copied else {}
        for name, column in values.items():  # JSON has no infinite numbers
            facts[name] = [None if x in (math.inf, -math.inf) or x != x else x for x in column]
        print_result(facts, "", as_json=True)
    else:
        content = to_csv(combine_columns(copied, values), options.digits)
        typer.echo(content.decode(), nl=False)


def _is_excel(path: Path) -> bool:
    return path.suffix.lower() == ".xlsx"


def numbers_of_text(column: Sequence[str]) -> Sequence[object]:
    """Return the numbers of a column of text where all its cells are plain numbers or empty.

    >>> [numbers_of_text(column) for column in (["2.50", "", "-7"], ["2.5", "1E5"], ["007"])]
    [[2.5, None, -7.0], ['2.5', '1E5'], ['007']]
    """
    if not all(cell == "" or _PLAIN_NUMBER.fullmatch(cell) for cell in column):
        return column
    return [float(cell) if cell else None for cell in column]


def _to_excel(columns: Mapping[str, Sequence[object]], digits: int) -> bytes:
    """Return a workbook of one sheet whose header stays visible."""
    with require_extra(f"Excel files need openpyxl: {install_extra('excel')}; or write CSV."):
        from openpyxl import Workbook
        from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
        from openpyxl.styles import Font

    def to_cell(value: object) -> object:
        if isinstance(value, float):  # None for a number that Excel cannot hold
            return float(number_text(value, digits)) if math.isfinite(value) else None
        return ILLEGAL_CHARACTERS_RE.sub("", value) if isinstance(value, str) else value

    workbook = Workbook()
    sheet = workbook.active
    sheet.title, sheet.freeze_panes = "result", "B2"
    for row in (columns, *zip(*columns.values(), strict=True)):
        sheet.append([to_cell(value) for value in row])
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    for cell in (cell for row in sheet.iter_rows() for cell in row):
        if cell.data_type in ("f", "e"):  # texts such as "=1+1" and "#N/A" stay as they are
            cell.data_type = "s"
    stream = io.BytesIO()
    workbook.save(stream)
    return stream.getvalue()
