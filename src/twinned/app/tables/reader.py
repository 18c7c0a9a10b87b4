"""Tables of text cells from CSV, Excel and Parquet files, whose kind is detected by content.

The readers of pandas are not used because they do not report the line of a value.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from twinned.app.tables.spreadsheets import read_excel, read_parquet
from twinned.app.tables.table import ReadOptions, Table
from twinned.app.tables.text_files import table_from_text

_WILDCARDS = "*?["
# First bytes of files that are no table, in lower case.
_OTHERS = {
    b"\xd0\xcf\x11\xe0": "an .xls file of an old Excel; save it as .xlsx or CSV",
    b"\x1f\x8b": "compressed; decompress it first",
    b"%pdf": "a PDF; export the table as CSV",
    b"<!doctype html": "a web page; export the table as CSV",
    b"<html": "a web page; export the table as CSV",
}


def read_table(path: Path, options: ReadOptions | None = None, names: Iterable[str] = ()) -> Table:
    """Read a file into named columns of text; blank rows are skipped.

    The kind of the file is detected by its content, and so is what `options` do not specify. The
    sheet and the row with the names of the columns are found by the `names` of some of them.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a CSV, Excel or Parquet file.")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    options = replace(options or ReadOptions(), expected=frozenset(names))
    data = path.read_bytes()
    if is_model(data):
        raise ValueError(f"{path} is a saved model, not a table; use it with twinned predict.")
    first = data[:64].removeprefix(codecs.BOM_UTF8).lstrip().lower()
    for start, description in _OTHERS.items():
        if first.startswith(start):
            raise ValueError(f"{path} is {description}.")
    _check_options(options)
    if data.startswith(b"PK\x03\x04"):
        _refuse(options, path, "an Excel file", "separator", "encoding")
        return read_excel(path, data, options)
    if data.startswith(b"PAR1"):
        _refuse(options, path, "a Parquet file", "separator", "encoding", "sheet", "header-row")
        return read_parquet(path, data, options)
    _refuse(options, path, "a text file", "sheet")
    return table_from_text(path, data, options)


def is_model(data: bytes) -> bool:
    """Whether the first bytes of a file are those of a model saved by twinned."""
    return data.startswith(b"PK\x03\x04") and b"twinned.json" in data[:60]


def is_pattern(table: Path) -> bool:
    """Whether an argument is a folder or a pattern of files instead of a file."""
    return table.is_dir() if table.exists() else any(sign in str(table) for sign in _WILDCARDS)


def _check_options(options: ReadOptions) -> None:
    if options.decimal not in (None, ".", ","):
        raise ValueError(f"--decimal must be . or a comma, not {options.decimal!r}.")
    if options.thousands is not None and not re.fullmatch(r"[^\w+-]|_", options.thousands):
        allowed = "one character such as . or ' or a space"
        raise ValueError(f"--thousands must be {allowed}, not {options.thousands!r}.")
    if options.decimal and options.thousands == options.decimal:
        raise ValueError(f"--decimal and --thousands are both {options.decimal!r}.")


def _refuse(options: ReadOptions, path: Path, kind: str, *names: str) -> None:
    """Raise a ValueError for options that do not apply to a kind of file."""
    for name in names:
        if vars(options)[name.replace("-", "_")] is not None:
            raise ValueError(f"--{name} does not apply to {path}, which is {kind}.")


def reading_note(table: Table) -> Iterable[str]:
    """Yield one line that reports what was detected, if anything is not the default."""
    if not table.detected:
        return
    of_text = "--separator, --encoding, " if table.line_word == "line" else "--sheet, "
    options = f"{of_text}--header-row, --decimal and --thousands change it"
    yield f"{table.path} is read with {', '.join(table.detected)}; {options}."
