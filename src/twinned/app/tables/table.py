"""Table of text cells, with the position of each row in its file."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from twinned.app.tables.numbers import is_missing

if TYPE_CHECKING:
    from twinned.app.tables.columns import ParsedColumn


@dataclass(frozen=True)
class Table:
    """Text cells of a file: `columns[j][row]`, and the line or row of the file of each row.

    Numbers have a decimal point. `detected` describes how the file is written, where that is not
    the default, for a note. `is_file` is false for rows that are in no file. `parsed` has the
    columns whose numbers have been parsed.
    """

    path: Path
    names: list[str]
    columns: list[list[str]]
    lines: list[int]
    line_word: str = "line"
    detected: list[str] = field(default_factory=list)
    is_file: bool = True
    parsed: dict[str, ParsedColumn] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.lines)

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {name: j for j, name in enumerate(self.names)}

    def column(self, name: str) -> list[str]:
        """The cells of a column."""
        return self.columns[self._positions[name]]

    def take(self, rows: Sequence[int]) -> Table:
        """The table with these rows only."""
        columns = [[column[row] for row in rows] for column in self.columns]
        return replace(self, columns=columns, lines=[self.lines[row] for row in rows], parsed={})

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


def cell_text(value: object) -> str:
    """The text of a cell with a value of any type."""
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return ""
    if isinstance(value, datetime):
        midnight = value.time() == time()
        return value.date().isoformat() if midnight else value.isoformat(sep=" ")
    if isinstance(value, float):  # repr is the shortest text that parses to the same number
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


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
