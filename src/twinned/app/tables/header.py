"""The row with the names of the columns, and the table of the rows below it."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from twinned.app.tables.numbers import describe_formats, detect_formats, is_missing, is_number
from twinned.app.tables.table import ReadOptions, Table, join_names, quoted

if TYPE_CHECKING:
    from twinned.app.tables.numbers import NumberFormat

Record = tuple[int, list[str]]  # line or row of the file, and cells
Rows = Sequence[tuple[int, Sequence[object]]]  # of either kind

_HEADER_ROWS = 20  # in which the names of the columns are searched
_ROWS_BELOW = 5  # a name, which show whether it names a column of numbers
_MAX_LISTED = 50  # lines in a message


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


def find_header(path: Path, sheets: Mapping[str, Rows], options: ReadOptions) -> tuple[str, int]:
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
                expected = [j for j, text in enumerate(texts) if text in options.expected]
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


def check_names(path: Path, names: list[str], line: str) -> None:
    """Raise a ValueError for a header with repeated names, or with numbers instead of names."""
    if repeated := [name for name in dict.fromkeys(names) if name and names.count(name) > 1]:
        shown = join_names(repeated)
        raise ValueError(f"{path} has several columns of the name {shown}; rename all but one.")
    if all(re.fullmatch(r"[-+]?\d+([.,]\d+)?([eE][-+]?\d+)?", name) for name in names):
        numbers = f"holds numbers such as {quoted(names[0])}, not the names of the columns"
        raise ValueError(f"{path}, {line} {numbers}; add a header.")


def build_table(
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
    if wrong := {line: len(row) for line, row in rows if len(row) != len(names)}:
        (line, n_fields), *others = wrong.items()
        also = (
            f" (also {word}s {', '.join(str(n) for n, _ in others[:_MAX_LISTED])})"
            if others
            else ""
        )
        fields = f"{path}, {word} {line} has {n_fields} fields{also}"
        raise ValueError(f"{fields}, but {first} names {len(names)} columns.")
    if reading.missing:
        rows = [(n, ["" if x.casefold() in reading.missing else x for x in row]) for n, row in rows]
    while rows and not any(rows[-1][1]):
        rows.pop()
    if not rows:
        raise ValueError(f"{path} has a header, but no rows.")
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
