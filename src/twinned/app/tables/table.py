"""Table of text cells, with the position of each row in its file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from twinned.app.tables.numbers import PLAIN, NumberFormat, detect_formats, parse_all

_SPREADSHEET_ERRORS = {"#value!", "#div/0!", "#ref!", "#name?", "#num!", "#null!", "#n/a"}
_DASHES = {"-", "--", "–", "—"}
# Spellings of a missing value, in any case.
MISSING = frozenset(
    {"", "?", "na", "n/a", "n.a.", "<na>", "nan", "-nan", "null", "none"}
    | _DASHES
    | _SPREADSHEET_ERRORS
)
_LONGEST_MISSING = max(map(len, MISSING))
_MAX_LISTED = 20


@dataclass(frozen=True)
class ReadOptions:
    """How to read a table; what is None is detected.

    `separator`, `encoding`, `decimal` and `thousands` are of text files, `decimal` and `thousands`
    also of text cells in spreadsheets, and `sheet` is the name or number of a sheet.
    """

    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    sheet: str | None = None


@dataclass(frozen=True)
class Table:
    """Text cells of a file: `columns[j][row]`, and the line or row of the file of each row.

    `typed` are the indices of the columns whose cells are numbers in the file, as in a spreadsheet.
    `detected` describes what was detected and is not the default, for a note.
    """

    path: Path
    names: list[str]
    columns: list[list[str]]
    lines: list[int]
    line_word: str = "line"
    formats: list[NumberFormat] = field(default_factory=list)
    typed: frozenset[int] = frozenset()
    detected: list[str] = field(default_factory=list)
    reading: ReadOptions = field(default_factory=ReadOptions)
    _numbers: dict[str, list[float | None]] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: j for j, name in enumerate(self.names)}

    @cached_property
    def first_of_equal_rows(self) -> list[int]:
        """The rows without those that equal an earlier row in all columns."""
        first: dict[tuple[str, ...], int] = {}
        for row, cells in enumerate(zip(*self.columns, strict=True)):
            first.setdefault(cells, row)
        return list(first.values())

    def column(self, name: str) -> list[str]:
        return self.columns[self._positions[name]]

    def plain_column(self, name: str) -> list[str]:
        """The cells of a column, numbers with a decimal point and no thousands separators."""
        number_format = self.number_format(name)
        return [number_format.plain(cell) for cell in self.column(name)]

    def number_format(self, name: str) -> NumberFormat:
        return self.formats[self._positions[name]]

    def numbers(self, name: str) -> list[float | None]:
        """The numbers in the cells of a column, NaN for missing values and None for text."""
        if name not in self._numbers:
            self._numbers[name] = _parse_column(self.column(name), self.number_format(name))
        return self._numbers[name]

    def take(self, rows: Sequence[int]) -> Table:
        """The table with these rows only."""
        columns = [[column[row] for row in rows] for column in self.columns]
        lines = [self.lines[row] for row in rows]
        return replace(self, columns=columns, lines=lines, _numbers={})

    def row_name(self, row: int) -> str:
        """The line or row of the file that holds a row, for messages and results."""
        return f"{self.line_word} {self.lines[row]}"

    def location(self, row: int, name: str) -> str:
        """Description of the position of a cell, for messages."""
        return f"{self.path}, {self.row_name(row)}, column {name!r}"

    def require(self, names: Iterable[str], required_by: str, hint: str = "") -> None:
        """Raise a ValueError for columns that an option or a model requires, but are absent."""
        absent = [name for name in names if name not in self._positions]
        if absent:
            by_fold = {name.casefold(): name for name in self.names}
            alike = [by_fold[name.casefold()] for name in absent if name.casefold() in by_fold]
            sheets = [f" This is {each}." for each in self.detected if each.startswith("sheet ")]
            raise ValueError(
                f"{self.path} has no column {join_names(absent)} ({required_by}); its columns "
                f"are {join_names(self.names)}."
                + (f" Did you mean {join_names(alike)}?" if alike else "")
                + "".join(f"{each} --sheet selects another." for each in sheets)
                + hint
            )


def is_missing(cell: str) -> bool:
    return len(cell) <= _LONGEST_MISSING and cell.lower() in MISSING


def parse_number(cell: str, number_format: NumberFormat = PLAIN) -> float | None:
    """Return the number in a cell, NaN for a missing value, None for text.

    >>> parse_number("1e3"), parse_number("NA"), parse_number("1_000"), parse_number("red")
    (1000.0, nan, None, None)
    """
    return math.nan if is_missing(cell) else number_format.parse(cell)


def _parse_column(column: Sequence[str], number_format: NumberFormat) -> list[float | None]:
    if not (number_format.thousands or number_format.sign):
        parsed = parse_all(column, number_format.decimal)
        if parsed is not None:
            return list(parsed)
    return [parse_number(cell, number_format) for cell in column]


def distinct_values(column: Sequence[str]) -> list[str]:
    """The different cells of a column that are not missing, in order."""
    return [cell for cell in dict.fromkeys(column) if not is_missing(cell)]


def detect_column_formats(
    columns: Sequence[Sequence[str]],
    typed: frozenset[int],
    reading: ReadOptions,
    *,
    point_expected: bool,
) -> list[NumberFormat]:
    """Return the notation of the numbers of each column, detected where it is not given."""
    return detect_formats(
        [distinct_values(column) for column in columns],
        typed=typed,
        point_expected=point_expected,
        decimal=reading.decimal,
        thousands=reading.thousands,
    )


def join_names(names: Sequence[str]) -> str:
    """Join quoted names for a message, at most 20 of them.

    >>> join_names(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(quoted(name) if name else "(no name)" for name in names[:_MAX_LISTED])
    more = len(names) - _MAX_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def quoted(cell: str) -> str:
    """Return a cell in quotes, shortened to 60 characters."""
    return repr(cell if len(cell) <= 60 else cell[:57] + "...")
