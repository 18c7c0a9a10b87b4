"""Table of text cells, with the position of each row in its file."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path

from twinned.app.tables.numbers import PLAIN, NumberFormat, is_missing, parse_all


@dataclass(frozen=True)
class ReadOptions:
    """How to read a table; what is None is detected.

    `separator`, `encoding`, `decimal` and `thousands` are of text files, `decimal` and `thousands`
    also of text cells in spreadsheets, and `sheet` is the name or number of a sheet. `header_row`
    is the line or row with the names of the columns, by default that with the most of the
    `expected` names. `missing` are further spellings of a missing value, in lower case.
    """

    separator: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    encoding: str | None = None
    sheet: str | None = None
    header_row: int | None = None
    missing: frozenset[str] = frozenset()
    expected: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Table:
    """Text cells of a file: `columns[j][row]`, and the line or row of the file of each row.

    `detected` describes what was detected and is not the default, for a note. `file_positions` are
    those of the columns in the file, and `formulas` the cells without stored values, such as
    Data!D5, by column and row. `parsed` has the numbers of columns that have been parsed.
    `is_file` is false for rows that are in no file, whose notation cannot be set.
    """

    path: Path
    names: list[str]
    columns: list[list[str]]
    lines: list[int]
    line_word: str = "line"
    formats: list[NumberFormat] = field(default_factory=list)
    detected: list[str] = field(default_factory=list)
    file_positions: list[int] = field(default_factory=list)
    formulas: dict[tuple[str, int], str] = field(default_factory=dict)
    parsed: dict[str, list[float | None]] = field(default_factory=dict, repr=False)
    is_file: bool = True

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
        """The cells of a column; a ValueError if any is a formula without a stored value."""
        if cells := [cell for (of, _), cell in self.formulas.items() if of == name]:
            shown = f"has formulas without stored values ({join_names(cells, 5)})"
            raise ValueError(f"{self.path}, column {name!r} {shown}; save it in Excel.")
        return self.columns[self._positions[name]]

    def number_format(self, name: str) -> NumberFormat:
        return self.formats[self._positions[name]]

    def numbers(self, name: str) -> list[float | None]:
        """The numbers in the cells of a column, NaN for missing values and None for text."""
        if name not in self.parsed:
            column, number_format = self.column(name), self.number_format(name)
            plain = not (number_format.thousands or number_format.sign)
            numbers = parse_all(column, number_format.decimal) if plain else None
            parse = partial(parse_number, number_format=number_format)
            self.parsed[name] = list(map(parse, column) if numbers is None else numbers)
        return self.parsed[name]

    def take(self, rows: Sequence[int]) -> Table:
        """The table with these rows only."""
        columns = [[column[row] for row in rows] for column in self.columns]
        lines = [self.lines[row] for row in rows]
        left = {*self.lines}.difference(lines)
        formulas = {key: cell for key, cell in self.formulas.items() if key[1] not in left}
        return replace(self, columns=columns, lines=lines, formulas=formulas, parsed={})

    def row_names(self, label: str | None = None) -> list[str]:
        """The names of the rows in a column; by default the lines or rows of the file.

        A row without a name has that of its line as well.
        """
        names = [f"{self.line_word} {line}" for line in self.lines]
        cells = names if label is None else self.column(label)
        return [name if is_missing(cell) else cell for name, cell in zip(names, cells, strict=True)]

    def location(self, row: int, name: str) -> str:
        """Description of the position of a cell, for messages."""
        return f"{self.path}, {self.line_word} {self.lines[row]}, column {name!r}"

    def require(self, names: Iterable[str], required_by: str, hint: str = "") -> None:
        """Raise a ValueError for columns that an option or a model requires, but are absent."""
        if absent := [name for name in names if name not in self._positions]:
            from twinned.rows.formatting import split_unit

            by_fold = {split_unit(name)[0].casefold(): name for name in self.names}
            by_fold |= {name.casefold(): name for name in self.names}
            alike = [by_fold[name.casefold()] for name in absent if name.casefold() in by_fold]
            sheets = [f" This is {text}." for text in self.detected if text.startswith("sheet ")]
            raise ValueError(
                f"{self.path} has no column {join_names(absent)} ({required_by}); its columns "
                f"are {join_names(self.names)}."
                + (f" Did you mean {join_names(alike)}?" if alike else "")
                + "".join(f"{sheet} Select another with --sheet." for sheet in sheets)
                + hint
            )


def parse_number(cell: str, number_format: NumberFormat = PLAIN) -> float | None:
    """Return the number in a cell, NaN for a missing value, None for text.

    >>> parse_number("1e3"), parse_number("NA"), parse_number("1_000"), parse_number("red")
    (1000.0, nan, None, None)
    """
    return math.nan if is_missing(cell) else number_format.parse(cell)


def combine_columns(
    copied: Mapping[str, Sequence[object]], results: Mapping[str, Sequence[object]]
) -> dict[str, Sequence[object]]:
    """Return columns of a table and of results, which have `_` after a name that the table has.

    >>> combine_columns({"prediction": [1]}, {"prediction": [2], "std": [3]})
    {'prediction': [1], 'prediction_': [2], 'std': [3]}
    """
    columns = dict(copied)
    for name, values in results.items():
        while name in columns:
            name += "_"
        columns[name] = values
    return columns


def to_csv(columns: Mapping[str, Sequence[object]], digits: int = 6) -> bytes:
    """Return the content of a CSV file, numbers with that many significant digits.

    >>> print(to_csv({"a": [1 / 3], "b": ["x, y"]}, digits=3).decode(), end="")
    a,b
    0.333,"x, y"
    """
    from twinned.rows.formatting import number_text

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([number_text(x, digits) if isinstance(x, float) else x for x in row])
    return text.getvalue().encode()


def join_names(names: Sequence[str], most: int = 20) -> str:
    """Join quoted names for a message, at most 20 of them by default.

    >>> join_names(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(quoted(name) if name else "(no name)" for name in names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if more > 0 else shown


def quoted(cell: str) -> str:
    """Return a cell in quotes, shortened to 60 characters."""
    return repr(cell if len(cell) <= 60 else cell[:57] + "...")
