"""Tables of CSV, Excel and Parquet files, whose kind, notation and header are detected.

The readers of pandas are not used for text because they do not report the line of a value.
"""

import codecs
import csv
import io
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Annotated

from twinned.app.tables.numbers import (
    PLAIN,
    NumberFormat,
    detect_formats,
    distinct_values,
    remove_sign,
    split_limit,
)
from twinned.app.tables.table import Table, cell_text, join_names, quoted
from twinned.exceptions import install_extra, require_extra

Rows = Sequence[tuple[int, Sequence[object]]]  # line or row of the file, and cells

_SEPARATORS = (",", ";", "\t", "|", " ")
_SEPARATOR_NAMES = {"\t": "tab", " ": "space"}
_NAMED_SEPARATORS = {"tab": "\t", "\\t": "\t", "space": " "}
_SEPARATED_RECORDS = 50  # by which the separator is detected
_HEADER_ROWS = 20  # in which the names of the columns are searched


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a table; what is None is detected.

    `separator` and `encoding` are of text files, `decimal` and `thousands` also of text cells in
    spreadsheets, and `sheet` is the name or number of a sheet. `header_row` is the line or row with
    the names of the columns. `missing` are further spellings of a missing value, in any case.
    """

    # with what stands for a value in the help of a command
    separator: Annotated[str | None, "CHAR"] = None
    decimal: Annotated[str | None, ".|,"] = None
    thousands: Annotated[str | None, "CHAR"] = None
    encoding: Annotated[str | None, "NAME"] = None
    sheet: Annotated[str | None, "SHEET"] = None
    header_row: Annotated[int | None, "N"] = None
    missing: Annotated[list[str] | None, "TEXT"] = None

    @property
    def notation(self) -> NumberFormat | None:
        """The notation of numbers, None where it is detected; a ValueError for other signs."""
        if self.decimal not in (None, ".", ","):
            raise ValueError(f"--decimal must be . or a comma, not {self.decimal!r}.")
        if self.thousands is not None and not re.fullmatch(r"[^\w+-]|_", self.thousands):
            allowed = "one character such as . or ' or a space"
            raise ValueError(f"--thousands must be {allowed}, not {self.thousands!r}.")
        if self.decimal and self.thousands == self.decimal:
            raise ValueError(f"--decimal and --thousands are both {self.decimal!r}.")
        if self.decimal is None and self.thousands is None:
            return None
        decimal = self.decimal or ("," if self.thousands == "." else ".")
        return NumberFormat(decimal, self.thousands or "")


@dataclass
class _Content:
    """The rows of each sheet of a file; `detected` describes how it is written, for a note."""

    sheets: Mapping[str, Rows]
    detected: list[str] = field(default_factory=list)
    row_word: str = "row"
    point_expected: bool = False


def read_table(path: Path, options: ReadOptions | None = None, names: Iterable[str] = ()) -> Table:
    """Read a file into named columns of text; blank rows are skipped.

    The kind of the file is detected by its content, and so is what `options` do not specify. The
    sheet and the row with the names of the columns are found by the `names` of some of them.
    """
    options = options or ReadOptions()
    content = _read_content(path, path.read_bytes(), options)
    if not content.sheets:
        raise ValueError(f"{path} is empty; its first line or row should name the columns.")
    title, position = _find_header(path, content.sheets, options.header_row, frozenset(names))
    if others := [other for other in content.sheets if other != title]:
        content.detected.append(f"sheet {title!r} (others: {join_names(others)})")
    (line, header), rows = content.sheets[title][position], content.sheets[title][position + 1 :]
    header_line = f"{content.row_word} {line}"
    if position:
        content.detected.append(f"the names of columns in {header_line}")
    names_in_file = list(map(cell_text, header))
    rows = _check_rows(path, rows, names_in_file, header_line, content.row_word)
    columns = list(zip(*(cells for _, cells in rows), strict=True))
    used = [j for j, name in enumerate(names_in_file) if name or any(map(cell_text, columns[j]))]
    table = Table(
        path=path,
        names=[names_in_file[j] for j in used],
        columns=[],
        lines=[line for line, _ in rows],
        line_word=content.row_word,
        detected=content.detected,
    )
    missing = frozenset(map(str.casefold, options.missing or ()))
    cells = [_clean_column(columns[j], missing) for j in used]
    notation = options.notation or _detect_notation(table, cells, content.point_expected)
    if notation != PLAIN:
        cells = [
            [notation.plain(cell) if isinstance(cell, str) else cell for cell in column]
            for column in cells
        ]
    return replace(table, columns=[list(map(cell_text, column)) for column in cells])


def _read_content(path: Path, data: bytes, options: ReadOptions) -> _Content:
    """Return the rows of a file of any kind; a ValueError for one that is no table."""
    if is_model(data):
        raise ValueError(f"{path} is a saved model, not a table; use it with twinned predict.")
    if data.startswith(b"PK\x03\x04"):
        return _Content(_read_excel(path, data, options.sheet))
    if data.startswith(b"PAR1"):
        return _Content({"": _read_parquet(path, data)})
    text, encoding = _decode_text(path, data, options.encoding)
    records, separator = _split_records(path, text, options.separator)
    content = _Content({"": records} if records else {}, [], "line", separator != ";")
    if options.encoding is None and encoding != "utf-8":
        content.detected.append(f"encoding {encoding}")
    if options.separator is None and separator != ",":
        content.detected.append(f"separator {_SEPARATOR_NAMES.get(separator, separator)}")
    return content


def is_model(data: bytes) -> bool:
    """Whether the first bytes of a file are those of a model saved by twinned."""
    return data.startswith(b"PK\x03\x04") and b"twinned.json" in data[:60]


def _find_header(
    path: Path, sheets: Mapping[str, Rows], wanted: int | None, expected: Collection[str]
) -> tuple[str, int]:
    """Return the sheet and the position of the row with the names of the columns.

    It has the most expected names, and of several such rows the most cells, as a cover sheet has
    few. Without any, it is the first row of several cells, as those of one cell are titles.
    """
    ratings = {}
    for title, rows in sheets.items():
        for position, (number, row) in enumerate(rows if wanted else rows[:_HEADER_ROWS]):
            if wanted in (None, number):
                names = list(filter(None, map(cell_text, row)))
                found = sum(name in expected for name in names)
                ratings[title, position] = found, len(names) if found else min(len(names), 2)
    if not ratings:
        raise ValueError(f"--header-row {wanted}: {path} has no such row, or it is empty.")
    return max(ratings, key=lambda place: ratings[place])


def _check_rows(path: Path, rows: Rows, names: list[str], header_line: str, word: str) -> Rows:
    """Return rows below a header without blank ones at the end.

    A ValueError for rows of another length, and for repeated names or numbers instead of names.
    """
    for line, row in rows:
        if len(row) != len(names):
            fields = f"{path}, {word} {line} has {len(row)} fields"
            raise ValueError(f"{fields}, but {header_line} names {len(names)} columns.")
    filled = [position for position, (_, row) in enumerate(rows) if any(map(cell_text, row))]
    if not filled:
        raise ValueError(f"{path} has a header, but no rows.")
    if repeated := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
        shown = join_names(repeated)
        raise ValueError(f"{path} has several columns of the name {shown}; rename all but one.")
    if all(re.fullmatch(r"[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?", name) for name in names):
        numbers = f"holds numbers such as {quoted(names[0])}, not the names of the columns"
        raise ValueError(f"{path}, {header_line} {numbers}; add a header.")
    return rows[: filled[-1] + 1]


def _clean_column(column: Sequence[object], missing: Collection[str]) -> list[object]:
    """Return the cells of a column, those with a missing value empty, and no signs of units."""
    if missing:
        column = ["" if cell_text(cell).casefold() in missing else cell for cell in column]
    texts = [cell for cell in column if isinstance(cell, str)]
    return list(remove_sign(texts) if len(texts) == len(column) else column)


def _detect_notation(
    table: Table, columns: list[list[object]], point_expected: bool
) -> NumberFormat:
    """Return the notation of numbers in cells of text; a ValueError for an ambiguous one."""
    texts = [[cell for cell in column if isinstance(cell, str)] for column in columns]
    notation, *others = detect_formats(map(distinct_values, texts), point_expected)
    table.detected.extend(notation.describe())
    places = ((name, row) for row in range(len(table)) for name in table.names) if others else ()
    for name, row in places:
        cell = columns[table.names.index(name)][row]
        number = split_limit(cell)[1] if isinstance(cell, str) else ""
        first, second = notation.parse(number), others[0].parse(number)
        if first is not None and second is not None and first != second:
            sign, cell = others[0].thousands, quoted(str(cell))
            meanings = f"{min(first, second, key=abs):g} or {max(first, second, key=abs):g}"
            give = f"give --decimal '{sign}' or --thousands '{sign}'"
            raise ValueError(f"{table.location(row, name)}: {cell} is {meanings}; {give}.")
    return notation


def reading_note(table: Table) -> Iterable[str]:
    """Yield one line that reports what was detected, if anything is not the default."""
    if not table.detected:
        return
    of_text = "--separator, --encoding, " if table.line_word == "line" else "--sheet, "
    options = f"{of_text}--header-row, --decimal and --thousands change it"
    yield f"{table.path} is read with {', '.join(table.detected)}; {options}."


# --- text files: encoding and separator are detected ---------------------------------------------


def _decode_text(path: Path, data: bytes, encoding: str | None) -> tuple[str, str]:
    """Return the text of a file and its encoding, detected where it is None."""
    detected = encoding or _detect_encoding(path, data)
    try:
        return data.decode(detected).removeprefix("\ufeff"), detected
    except LookupError:
        known = "utf-8, latin-1, cp1252 or utf-16"
        raise ValueError(f"--encoding {encoding} is unknown; use {known}.") from None
    except UnicodeError as error:
        raise ValueError(f"{path} is not {detected} text ({error}); correct --encoding.") from None


def _detect_encoding(path: Path, data: bytes) -> str:
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in data:
        raise ValueError(f"{path} is no text, Excel (.xlsx) or Parquet file; save it as CSV.")
    for encoding in ("utf-8", "cp1252"):
        with suppress(UnicodeError):
            data.decode(encoding)
            return encoding
    return "latin-1"  # which has a character for each byte


def _split_records(path: Path, text: str, separator: str | None) -> tuple[Rows, str]:
    """Return the first line and the fields of each record that is not blank, and the separator."""
    separator = _detect_separator(text) if separator is None else _parse_separator(separator)
    return list(_records(path, text, separator)), separator


def _parse_separator(separator: str) -> str:
    separator = _NAMED_SEPARATORS.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        allowed = "one character such as ',' or ';', or tab or space"
        raise ValueError(f"--separator must be {allowed}, not {separator!r}.")
    return separator


def _records(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    if separator == " ":
        lines = enumerate(text.splitlines(), start=1)
        yield from ((number, line.split()) for number, line in lines if line.strip())
        return
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1  # a quoted field may span several lines
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
            for _, record in islice(_records(Path(), text, separator), _SEPARATED_RECORDS):
                counts.append(len(record))
        consistent = len(set(counts)) == 1
        # blanks separate fields only where nothing else does, and in all lines alike
        if separator == " " and (most[1] > 1 or not consistent or len(counts) < 2):
            continue
        if counts and counts[0] > 1 and (consistent, counts[0]) > most:
            best, most = separator, (consistent, counts[0])
    return best


# --- Excel and Parquet files ---------------------------------------------------------------------


def _read_excel(path: Path, data: bytes, sheet: str | None) -> dict[str, Rows]:
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


def _read_parquet(path: Path, data: bytes) -> Rows:
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
