"""The row with the names of the columns, and the table of the rows below it."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
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
_UNIT = re.compile(r"\W*(?:units?|einheit(?:en)?)\W*", re.I)  # in a row of units
_SAMPLE = 50  # rows by which units are detected


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
