"""Reading of a table from a CSV, Excel or Parquet file."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable
from pathlib import Path

from twinned.app.tables.binary_files import Cells, read_excel, read_parquet
from twinned.app.tables.numbers import describe_formats
from twinned.app.tables.table import ReadOptions, Table, detect_column_formats
from twinned.app.tables.text_files import check_names, decode, split_records

_SEPARATOR_NAMES = {"\t": "tab", " ": "space"}
_WILDCARDS = "*?["
# First bytes of files that are no table, in lower case.
_OTHERS = {
    b"\xd0\xcf\x11\xe0": "an .xls file of an old Excel; save it as .xlsx or CSV",
    b"\x1f\x8b": "compressed; decompress it first",
    b"%pdf": "a PDF; export the table as CSV",
    b"<!doctype html": "a web page; export the table as CSV",
    b"<html": "a web page; export the table as CSV",
}


def read_table(path: Path, options: ReadOptions | None = None) -> Table:
    """Read a file into named columns of text; blank rows are skipped.

    The kind of the file is detected by its content, and so is what `options` do not specify.
    """
    return parse_table(path, _read_bytes(path), options or ReadOptions())


def parse_table(
    path: Path, data: bytes, options: ReadOptions, max_cells: float = math.inf
) -> Table:
    """As `read_table`, from the bytes of a file; the path is only for messages.

    An Excel file with more than `max_cells` is an error.
    """
    if is_model(data):
        raise ValueError(f"{path} is a saved model, not a table; use it with twinned predict.")
    first = data[:64].removeprefix(codecs.BOM_UTF8).lstrip().lower()
    for start, description in _OTHERS.items():
        if first.startswith(start):
            raise ValueError(f"{path} is {description}.")
    _check_options(options)
    if data.startswith(b"PK\x03\x04"):
        _refuse(options, path, "an Excel file", "separator", "encoding")
        return _from_cells(path, read_excel(path, data, options.sheet, max_cells), options)
    if data.startswith(b"PAR1"):
        _refuse(options, path, "a Parquet file", "separator", "encoding", "sheet")
        return _from_cells(path, read_parquet(path, data), options)
    _refuse(options, path, "a text file", "sheet")
    return table_from_text(path, data, options)


def is_model(data: bytes) -> bool:
    """Whether the first bytes of a file are those of a model saved by twinned."""
    return data.startswith(b"PK\x03\x04") and b"twinned.json" in data[:60]


def check_argument_order(model: Path, table: Path, command: str) -> None:
    """Raise a ValueError where the table is given as the model and the model as the table."""
    given_as_table, given_as_model = _first_bytes(table), _first_bytes(model)
    if is_model(given_as_table) and not is_model(given_as_model):
        raise ValueError(
            f"{table} is a model and {model} is not; the model comes first: "
            f"twinned {command} {table} {model}."
        )


def is_pattern(table: Path) -> bool:
    """Whether an argument is a folder or a pattern of files instead of a file."""
    if table.exists():
        return table.is_dir()
    return any(each in str(table) for each in _WILDCARDS)


def _first_bytes(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(64)


def _read_bytes(path: Path) -> bytes:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a CSV, Excel or Parquet file.")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    return path.read_bytes()


def _check_options(options: ReadOptions) -> None:
    if options.decimal not in (None, ".", ","):
        raise ValueError(f"--decimal must be . or a comma, not {options.decimal!r}.")
    if options.thousands is not None and (
        len(options.thousands) > 1 or options.thousands.isalnum() or options.thousands in "+-"
    ):
        raise ValueError(
            f"--thousands must be one character such as . or ' or a space, not "
            f"{options.thousands!r}."
        )
    if options.thousands and options.thousands == (options.decimal or ""):
        raise ValueError(f"--decimal and --thousands are both {options.decimal!r}.")


def _refuse(options: ReadOptions, path: Path, kind: str, *names: str) -> None:
    """Raise a ValueError for options that do not apply to a kind of file."""
    for name in names:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} does not apply to {path}, which is {kind}.")


def table_from_text(path: Path, data: bytes, options: ReadOptions) -> Table:
    """Split the bytes of a text file into named columns of text."""
    text, encoding = decode(path, data, options.encoding)
    records, separator = split_records(path, text, options.separator)
    header = next(records, None)
    if header is None:
        raise ValueError(f"{path} is empty; its first line should name the columns.")
    names = header[1]
    check_names(path, names, f"line {header[0]}")
    lines, rows = [], []
    for line, record in records:
        if len(record) != len(names):
            fields = f"{path}, line {line} has {len(record)} fields"
            raise ValueError(f"{fields}, but line {header[0]} names {len(names)} columns.")
        lines.append(line)
        rows.append(record)
    detected = []
    if options.encoding is None and encoding not in ("utf-8", "utf-8-sig"):
        detected.append(f"encoding {encoding}")
    if options.separator is None and separator != ",":
        detected.append(f"separator {_SEPARATOR_NAMES.get(separator, separator)}")
    reading = ReadOptions(separator, options.decimal, options.thousands, encoding)
    cells = Cells(names, rows, lines, frozenset(), detected)
    return _make_table(path, cells, reading, "line", point_expected=separator != ";")


def _from_cells(path: Path, cells: Cells, options: ReadOptions) -> Table:
    check_names(path, cells.names, "the first row")
    return _make_table(path, cells, options, "row", point_expected=False)


def _make_table(
    path: Path, cells: Cells, reading: ReadOptions, line_word: str, *, point_expected: bool
) -> Table:
    """Return a table without blank rows at the end and blank columns without a name."""
    rows = list(cells.rows)
    while rows and not any(rows[-1]):
        rows.pop()
    if not rows:
        raise ValueError(f"{path} has a header, but no rows.")
    columns = [list(column) for column in zip(*rows, strict=True)]
    used = [j for j, name in enumerate(cells.names) if name or any(columns[j])]
    names = [cells.names[j] for j in used]
    columns = [columns[j] for j in used]
    typed = frozenset(new for new, j in enumerate(used) if j in cells.typed)
    formats = detect_column_formats(columns, typed, reading, point_expected=point_expected)
    detected = list(cells.detected)
    if reading.decimal is None and reading.thousands is None:
        detected += describe_formats(names, formats)
    lines = cells.numbers[: len(rows)]
    return Table(path, names, columns, lines, line_word, formats, typed, detected, reading)


def reading_note(table: Table) -> Iterable[str]:
    """Yield one line that reports what was detected, if anything is not the default."""
    if not table.detected:
        return
    of_text = "--separator, --encoding, " if table.line_word == "line" else "--sheet, "
    options = f"{of_text}--decimal and --thousands change it"
    yield f"{table.path} is read with {', '.join(table.detected)}; {options}."
