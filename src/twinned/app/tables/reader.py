"""Tables of text cells from CSV, Excel and Parquet files, whose kind is detected by content.

The readers of pandas are not used because they do not report the line of a value.
"""

from __future__ import annotations

import codecs
import csv
import datetime
import io
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate, islice
from pathlib import Path
from typing import TYPE_CHECKING

from twinned.app.tables.numbers import describe_formats, detect_formats, is_missing, is_number
from twinned.app.tables.table import ReadOptions, Table, join_names, quoted
from twinned.exceptions import install_extra, require_extra

if TYPE_CHECKING:
    from openpyxl.worksheet.worksheet import Worksheet

    from twinned.app.tables.numbers import NumberFormat

Record = tuple[int, list[str]]  # line or row of the file, and cells
SheetRow = tuple[int, list[object]]  # row of the file, and values
Rows = Sequence[tuple[int, Sequence[object]]]  # of either kind

_SEPARATORS = (",", ";", "\t", "|", " ")
_SEPARATOR_NAMES = {"\t": "tab", " ": "space"}
_NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
_ENCODINGS = ["utf_16", "utf_32", "utf_16_le", "utf_16_be", "cp1252"]
_SAMPLE = 50  # records by which the separator is detected
_WILDCARDS = "*?["
_HEADER_ROWS = 20  # in which the names of the columns are searched
_ROWS_BELOW = 5  # a name, which show whether it names a column of numbers
_UNIT = re.compile(r"\W*(?:units?|einheit(?:en)?)\W*", re.I)  # in a row of units
_WITHOUT_VALUE = re.compile(  # a formula; an empty text is a value
    rb'<c r="(\w+)"(?![^>]*t="str")[^>]*><f[^>]*?(?:/>|>[^<]*</f>)(?:<v ?/>|<v></v>)?</c>'
)
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
    return parse_table(path, path.read_bytes(), options)


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
        return _read_excel(path, data, options, max_cells)
    if data.startswith(b"PAR1"):
        _refuse(options, path, "a Parquet file", "separator", "encoding", "sheet", "header-row")
        return _read_parquet(path, data, options)
    _refuse(options, path, "a text file", "sheet")
    return table_from_text(path, data, options)


def is_model(data: bytes) -> bool:
    """Whether the first bytes of a file are those of a model saved by twinned."""
    return data.startswith(b"PK\x03\x04") and b"twinned.json" in data[:60]


def check_argument_order(model: Path, table: Path, command: str) -> None:
    """Raise a ValueError where the table is given as the model and the model as the table."""
    given_as_table, given_as_model = first_bytes(table), first_bytes(model)
    if is_model(given_as_table) and not is_model(given_as_model):
        call = f"twinned {command} {table} {model}"
        raise ValueError(f"{table} is a model and {model} is not; the model comes first: {call}.")


def is_pattern(table: Path) -> bool:
    """Whether an argument is a folder or a pattern of files instead of a file."""
    return table.is_dir() if table.exists() else any(sign in str(table) for sign in _WILDCARDS)


def first_bytes(path: Path) -> bytes:
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(64)


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


# --- text -------------------------------------------------------------------------------------


def table_from_text(path: Path, data: bytes, options: ReadOptions) -> Table:
    """Split the bytes of a text file into named columns of text."""
    text, encoding = decode_text(path, data, options.encoding)
    rows, separator = split_records(path, text, options.separator)
    if not rows:
        raise ValueError(f"{path} is empty; its first line should name the columns.")
    detected: list[str] = []
    if options.encoding is None and encoding != "utf-8":
        detected.append(f"encoding {encoding}")
    if options.separator is None and separator != ",":
        detected.append(f"separator {_SEPARATOR_NAMES.get(separator, separator)}")
    reading = replace(options, separator=separator, encoding=encoding)
    _, position = _find_header(path, {"": rows}, options)
    return _make_table(path, rows, position, reading, detected)


def decode_text(path: Path, data: bytes, encoding: str | None) -> tuple[str, str]:
    """Return the text of a file and its encoding, detected where it is None."""
    detected = encoding or _detect_encoding(data)
    if detected is None:
        raise ValueError(f"{path} is no text, Excel or Parquet file; save the table as CSV.")
    try:
        return data.decode(detected).removeprefix("\ufeff"), detected
    except LookupError:
        known = "utf-8, latin-1, cp1252 or utf-16"
        raise ValueError(f"--encoding {encoding} is unknown; use {known}.") from None
    except UnicodeError as error:
        raise ValueError(f"{path} is not {encoding} text ({error}); correct --encoding.") from None


def _detect_encoding(data: bytes) -> str | None:
    """Return the name of an encoding, None for data that are no text."""
    if b"\0" not in data:
        with suppress(UnicodeError):
            data.decode()
            return "utf-8"
    from charset_normalizer import from_bytes  # after UTF-8, which most files are in

    match = from_bytes(data, cp_isolation=_ENCODINGS, threshold=1.0).best()
    if match is None or "Basic Latin" not in match.alphabets or "\0" in str(match):
        return None if b"\0" in data else "latin-1"  # which has a character for each byte
    return match.encoding.replace("_", "-")


def parse_separator(separator: str) -> str:
    separator = _NAMED_SEPARATORS.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        allowed = "one character such as ',' or ';', or tab or space"
        raise ValueError(f"--separator must be {allowed}, not {separator!r}.")
    return separator


def split_records(path: Path, text: str, separator: str | None) -> tuple[list[Record], str]:
    """Return the first line and the fields of each record that is not blank, and the separator."""
    skipped = 0
    declared = re.match(r"sep=(.)\r?\n", text)  # the first line of some exports of Excel
    if declared:
        text, skipped = text[declared.end() :], 1
        separator = declared[1] if separator is None else separator
    separator = _detect_separator(text) if separator is None else parse_separator(separator)
    return list(_records(path, text, separator, skipped)), separator


def _records(path: Path, text: str, separator: str, skipped: int = 0) -> Iterator[Record]:
    if separator == " ":
        lines = enumerate(text.splitlines(), start=1 + skipped)
        yield from ((number, line.split()) for number, line in lines if line.strip())
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1 + skipped  # a quoted field may span several lines
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(f"{path}, line {line} cannot be read as CSV: {error}.") from None
        if any(cell.strip() for cell in record) or len(record) > 1:
            yield line, [cell.strip() for cell in record]


def _detect_separator(text: str) -> str:
    """Return the separator that splits the first records into the same number of fields."""
    best, most = ",", (False, 1)
    for separator in _SEPARATORS:
        counts = []
        with suppress(ValueError):  # a record that cannot be split ends the sample
            for _, record in islice(_records(Path(), text, separator), _SAMPLE):
                counts.append(len(record))
        consistent = len(set(counts)) == 1
        # blanks separate fields only where nothing else does, and in all lines alike
        if separator == " " and (most[1] > 1 or not consistent or len(counts) < 2):
            continue
        if counts and counts[0] > 1 and (consistent, counts[0]) > most:
            best, most = separator, (consistent, counts[0])
    return best


# --- Excel and Parquet ------------------------------------------------------------------------


def _read_excel(path: Path, data: bytes, options: ReadOptions, max_cells: float) -> Table:
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
    rows_of = {title: _sheet_rows(path, sheets[title], max_cells) for title in wanted}
    filled = {title: rows for title, rows in rows_of.items() if rows}
    if not filled:
        raise ValueError(f"{path} is empty; the first row of a sheet must name the columns.")
    title, position = _find_header(path, filled, options)
    others = join_names([name for name in filled if name != title])
    detected = [f"sheet {title!r} (others: {others})"] if others else []
    table = _typed_table(path, filled[title], position, options, detected)
    names = dict(zip(table.file_positions, table.names, strict=True))
    for cell in map(bytes.decode, _WITHOUT_VALUE.findall(reader.archive.read(sheet_files[title]))):
        row, column = coordinate_to_tuple(cell)
        if row >= table.lines[0] and column - 1 in names:
            table.formulas[names[column - 1], row] = f"{title}!{cell}"
    return table


def _read_parquet(path: Path, data: bytes, options: ReadOptions) -> Table:
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


def _sheet_rows(path: Path, sheet: Worksheet, max_cells: float) -> list[SheetRow]:
    """Return the numbers and values of the rows that are not blank, of equal length."""
    sheet.reset_dimensions()  # a format of the last cell would make a million wide rows
    rows, n_cells = [], 0
    try:
        for number, values in enumerate(sheet.iter_rows(values_only=True), start=1):
            n_cells += len(values)  # those before the last one of a row count, too
            if n_cells > max_cells:
                break
            filled = [j for j, value in enumerate(values) if value not in (None, "")]
            if filled:
                rows.append((number, list(values[: filled[-1] + 1])))
    except Exception as error:  # a damaged part may raise anything
        raise ValueError(f"{path}, sheet {sheet.title!r} cannot be read: {error}.") from None
    if n_cells > max_cells:
        raise ValueError(f"{path} has more than {max_cells:,} cells; use a smaller table.")
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
    return _make_table(path, cells, header, reading, detected, notations)


def cell_text(value: object) -> str:
    """The text of a cell with a value of any type."""
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        midnight = value.time() == datetime.time()
        return value.date().isoformat() if midnight else value.isoformat(sep=" ")
    if isinstance(value, float):  # repr is the shortest text that parses to the same number
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value).strip()


# --- all kinds --------------------------------------------------------------------------------


def _find_header(path: Path, sheets: Mapping[str, Rows], options: ReadOptions) -> tuple[str, int]:
    """Return the sheet and the position of the row with the names of the columns.

    It has the most expected names, of several such rows one of more than two cells, as those of a
    cover sheet have, or above numbers. Without any, it is the first row of several cells, as those
    of one cell are titles.
    """
    wanted, ratings = options.header_row, {}
    for title, rows in sheets.items():
        for i, (number, row) in enumerate(rows if wanted else rows[:_HEADER_ROWS]):
            if wanted in (None, number):
                texts = list(map(cell_text, row))
                names = _merge_names([cell_text(x) for x in rows[i - 1][1]] if i else [], texts)
                expected = [
                    j for j, x in enumerate(texts) if x and {x, names[j]} & options.expected
                ]
                below = [values for _, values in rows[i + 1 : i + 1 + _ROWS_BELOW]]
                cells = [
                    cell_text(x) for j in expected for values in below for x in values[j : j + 1]
                ]
                kinds = [is_number(cell) for cell in cells if not is_missing(cell)]
                width = min(sum(map(bool, texts)), 3 if expected else 2)
                ratings[title, i] = len(expected), width, sum(kinds) > max(1, len(kinds) / 2)
    if not ratings:
        raise ValueError(f"--header-row {wanted}: {path} has no such row, or it is empty.")
    return max(ratings, key=lambda position: ratings[position])


def _merge_names(upper: list[str], lower: list[str]) -> list[str]:
    """Return the names of columns in two rows: the lower ones, else the upper ones.

    Equal names begin with that of their group, which stands above the first column of it. An upper
    row of one cell is a title.

    >>> _merge_names(["id", "before", "", "after", ""], ["", "lead", "zinc", "lead", "pH"])
    ['id', 'before lead', 'zinc', 'after lead', 'pH']
    """
    if len(upper) != len(lower) or sum(map(bool, upper)) < 2:
        return lower
    names = [low or up for up, low in zip(upper, lower, strict=True)]
    groups: Iterator[str] = accumulate(upper, lambda group, cell: cell or group)
    merged, counts = zip(groups, names, strict=True), Counter(names)
    return [f"{group} {name}" if name and counts[name] > 1 else name for group, name in merged]


def _split_units(names: list[str], rows: list[Record], reading: ReadOptions) -> list[str]:
    """Remove the first rows if they hold further names of columns or units, and describe them.

    They are texts in columns of numbers, and not found there again: names where a column has none,
    or where all are repeated, and none is an expected one; else units, of which there are several.
    A column without other cells may have a unit, too.
    """
    (line, first), *others = rows[:_SAMPLE]
    filled = [j for j, cell in enumerate(first) if not (is_missing(cell) or _UNIT.fullmatch(cell))]
    cells = {j: [row[j] for _, row in others if not is_missing(row[j])] for j in filled}
    numeric = [j for j in filled if 2 * sum(map(is_number, cells[j])) > len(cells[j])]
    repeated = [j for j in numeric if names.count(names[j]) > 1]
    are_names = any(not names[j] for j in numeric) or 0 < len(repeated) == len(numeric)
    are_names = are_names and not any(names[j] in reading.expected for j in filled)
    is_case = any(is_number(first[j]) or first[j] in cells[j] for j in filled)
    if is_case or not (are_names or 1 < sum(map(bool, cells.values())) == len(numeric)):
        return []
    del rows[0]
    word = "row" if reading.separator is None else "line"
    if not are_names:
        return [f"units of columns in {word} {line}"]
    names[:] = _merge_names(names, first)
    further = f"further names of columns in {word} {line}"
    return [further, *_split_units(names, rows, reading)]


def check_names(path: Path, names: list[str], line: str) -> None:
    """Raise a ValueError for a header with repeated names, or with numbers instead of names."""
    if repeated := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
        shown = join_names(repeated)
        raise ValueError(f"{path} has several columns of the name {shown}; rename all but one.")
    if all(re.fullmatch(r"[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?", name) for name in names):
        numbers = f"holds numbers such as {quoted(names[0])}, not the names of the columns"
        raise ValueError(f"{path}, {line} {numbers}; add a header.")


def _make_table(
    path: Path,
    records: list[Record],
    header: int,
    reading: ReadOptions,
    detected: list[str],
    typed: Mapping[int, NumberFormat] | None = None,
) -> Table:
    """Return a table without blank rows at the end and blank columns without a name.

    `header` is the position of the record of names, and `typed` are the columns whose cells are
    numbers in the file, with the notation of text among them. Only a text file is read with a
    separator.
    """
    word = "row" if reading.separator is None else "line"
    first, names, rows = f"{word} {records[header][0]}", records[header][1], records[header + 1 :]
    if header:
        detected.append(f"the names of columns in {first}")
        names = _merge_names(records[header - 1][1], names)
    if wrong := {line: len(row) for line, row in rows if len(row) != len(names)}:
        (line, n_fields), *others = wrong.items()
        also = f" (also {word}s {', '.join(str(n) for n, _ in others[:_SAMPLE])})" if others else ""
        fields = f"{path}, {word} {line} has {n_fields} fields{also}"
        raise ValueError(f"{fields}, but {first} names {len(names)} columns.")
    if reading.missing:
        rows = [(n, ["" if x.casefold() in reading.missing else x for x in row]) for n, row in rows]
    while rows and not any(rows[-1][1]):
        rows.pop()
    if not rows:
        raise ValueError(f"{path} has a header, but no rows.")
    detected += _split_units(names, rows, reading)
    check_names(path, names, first)
    columns = [list(column) for column in zip(*(row for _, row in rows), strict=True)]
    used = [j for j, name in enumerate(names) if name or any(columns[j])]
    names, columns = [names[j] for j in used], [columns[j] for j in used]
    typed = {new: typed[j] for new, j in enumerate(used) if typed and j in typed}
    point_expected = reading.separator not in (None, ";")
    formats = detect_formats(columns, reading.decimal, reading.thousands, typed, point_expected)
    in_file = [typed.get(j, notation) for j, notation in enumerate(formats)]
    if reading.decimal is None and reading.thousands is None:
        detected = [*detected, *describe_formats(names, in_file)]
    formats = [notation if notation.ambiguous else formats[j] for j, notation in enumerate(in_file)]
    lines = [line for line, _ in rows]
    return Table(
        path=path,
        names=names,
        columns=columns,
        lines=lines,
        line_word=word,
        formats=formats,
        detected=detected,
        file_positions=used,
    )


def reading_note(table: Table) -> Iterable[str]:
    """Yield one line that reports what was detected, if anything is not the default."""
    if not table.detected:
        return
    of_text = "--separator, --encoding, " if table.line_word == "line" else "--sheet, "
    options = f"{of_text}--header-row, --decimal and --thousands change it"
    yield f"{table.path} is read with {', '.join(table.detected)}; {options}."
