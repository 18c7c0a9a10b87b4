"""Reading of CSV files into DataFrames, with errors that name the line of the file.

`read_csv` splits a file into columns of text; `training_frame` and `prediction_frame` convert the
text to numeric and categorical features. The reader of pandas is not used because it does not
report the line of a value.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

# Spellings of a missing value, in any case.
MISSING = frozenset(("", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none"))
BOOLEANS = {"true": 1.0, "false": 0.0}
_SEPARATORS = (",", ";", "\t", "|")
# With fewer rows or categories, distinct texts are not taken for identifiers or dates.
_SMALL = 20
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?")
_DETECTION_LIMIT = re.compile(r"[<>≤≥]=?\s*[-+]?\d*[.,]?\d+([eE][-+]?\d+)?")
_MAX_LISTED = 20


@dataclass(frozen=True)
class CsvTable:
    """Text of a CSV file: `columns[j][row]`, and the line on which each row begins."""

    path: Path
    names: list[str]
    columns: list[list[str]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> list[str]:
        return self.columns[self.names.index(name)]

    def location(self, row: int, name: str) -> str:
        """Description of the position of a cell, for messages."""
        return f"{self.path}, line {self.lines[row]}, column {name!r}"

    def require(self, names: Iterable[str], required_by: str) -> None:
        """Raise a ValueError for columns that an option or a model requires, but are absent."""
        absent = [name for name in names if name not in self.names]
        if absent:
            raise ValueError(
                f"{self.path} has no column {join_names(absent)} ({required_by}); its columns "
                f"are {join_names(self.names)}."
            )


# --- reading ----------------------------------------------------------------------------------


def read_csv(path: Path, separator: str) -> CsvTable:
    """Split a CSV file into named columns of text; blank lines are skipped."""
    separator = parse_separator(separator)
    rows = _split(path, _read_text(path), separator)
    header = next(rows, None)
    if header is None:
        raise ValueError(f"{path} is empty; its first line should name the columns.")
    names = [name.strip() for name in header[1]]
    _check_header(path, names, separator)
    lines, records = [], []
    for line, record in rows:
        if len(record) != len(names):
            fields = f"{path}, line {line} has {len(record)} fields"
            raise ValueError(f"{fields}, but line {header[0]} names {len(names)} columns.")
        lines.append(line)
        records.append([cell.strip() for cell in record])
    if not records:
        raise ValueError(f"{path} has a header, but no rows.")
    return CsvTable(path, names, [list(column) for column in zip(*records, strict=True)], lines)


def _read_text(path: Path) -> str:
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give a CSV file.")
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}.")
    data = path.read_bytes()
    if data.startswith(b"PK\x03\x04"):
        raise ValueError(f"{path} is a spreadsheet or another zip; export the table as CSV first.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ValueError(
            f"{path}, line {line} is not UTF-8 text (byte 0x{data[error.start]:02x}); save the "
            "table as CSV in UTF-8."
        ) from None
    if "\0" in text:
        raise ValueError(f"{path} is not UTF-8 text; save the table as CSV in UTF-8.")
    return text


def _split(path: Path, text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line and the fields of each record that is not blank."""
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
            yield line, record


def parse_separator(separator: str) -> str:
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        raise ValueError(
            f"--separator must be one character such as ',' or ';', or tab, not {separator!r}."
        )
    return separator


def _check_header(path: Path, names: list[str], separator: str) -> None:
    others = [other for other in _SEPARATORS if other != separator and other in names[0]]
    if len(names) == 1 and others:
        shown = "tab" if others[0] == "\t" else repr(others[0])
        raise ValueError(
            f"{path} has the single column {quoted(names[0])}; it seems to be separated by "
            f"{shown}: give --separator {shown}."
        )
    repeated = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
    if repeated:
        shown = join_names(repeated)
        raise ValueError(f"{path} has several columns of the name {shown}; rename all but one.")


# --- numeric and categorical columns ----------------------------------------------------------


def training_frame(
    table: CsvTable, names: Sequence[str], categorical: Collection[str]
) -> pd.DataFrame:
    """Convert columns to a training set: numbers to float64, text to a pandas category."""
    import pandas as pd

    def convert(name: str) -> pd.Categorical | np.ndarray:
        if name not in categorical and not _is_categorical(table, name):
            return numeric_column(table, name)
        return pd.Categorical([None if is_missing(cell) else cell for cell in table.column(name)])

    return pd.DataFrame({name: convert(name) for name in names})


def prediction_frame(
    table: CsvTable, names: Sequence[str], categories: Sequence[Sequence[Any] | None]
) -> pd.DataFrame:
    """Convert columns to the features of a fitted model, in the order of `names`.

    `categories` has the known categories of each feature, None for a numeric one.
    """
    import pandas as pd

    return pd.DataFrame(
        {
            name: numeric_column(table, name)
            if known is None
            else _known_category_column(table, name, known)
            for name, known in zip(names, categories, strict=True)
        }
    )


def numeric_column(table: CsvTable, name: str, hint: str = "") -> np.ndarray:
    """Convert a column to float64 of shape (n_rows,), missing values to NaN.

    Text and infinity raise a ValueError that names the line and ends with `hint`.
    """
    import numpy as np

    column = table.column(name)
    if _is_boolean(column):
        return np.array([BOOLEANS.get(cell.lower(), np.nan) for cell in column])
    parsed = [parse_number(cell) for cell in column]
    text = [row for row, number in enumerate(parsed) if number is None]
    if text:
        # true and false alone would be a boolean column: report other text first
        row = next((row for row in text if column[row].lower() not in BOOLEANS), text[0])
        if _DETECTION_LIMIT.fullmatch(column[row]):
            hint = f", a limit; write a number for it, such as half the limit{hint}"
        raise ValueError(
            f"{table.location(row, name)}: {quoted(column[row])} is text in a numeric column"
            f"{_comma_hint(column[row])}{hint}."
        )
    numbers = np.array(parsed, dtype=np.float64)
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        cell = f"{table.location(row, name)}: {quoted(column[row])}"
        raise ValueError(f"{cell} is not a finite number.")
    return numbers


def target_column(table: CsvTable, name: str) -> np.ndarray:
    """Convert the target to float64 of shape (n_rows,); a missing value raises a ValueError."""
    import numpy as np

    target = numeric_column(table, name, "; the target must be a number in every row")
    if np.isnan(target).any():
        cell = table.location(int(np.isnan(target).argmax()), name)
        raise ValueError(f"{cell} has no value; remove the rows without a target.")
    return target


def first_missing(table: CsvTable, names: Iterable[str]) -> str | None:
    """Return the location of the first missing value, None if there is none."""
    columns = {name: table.column(name) for name in names}
    cells = ((row, name) for row in range(len(table)) for name in columns)
    missing = (table.location(row, name) for row, name in cells if is_missing(columns[name][row]))
    return next(missing, None)


def parse_number(cell: str) -> float | None:
    """Return the number in a cell, NaN for a missing value, None for text.

    >>> parse_number("1e3"), parse_number("NA"), parse_number("1_000"), parse_number("red")
    (1000.0, nan, None, None)
    """
    if is_missing(cell):
        return math.nan
    try:
        return None if "_" in cell else float(cell)
    except ValueError:
        return None


def is_missing(cell: str) -> bool:
    return cell.lower() in MISSING


def _is_categorical(table: CsvTable, name: str) -> bool:
    """Return whether a column holds text; raise a ValueError if that seems to be a mistake."""
    column = table.column(name)
    distinct = dict.fromkeys(cell for cell in column if not is_missing(cell))
    texts = [cell for cell in distinct if parse_number(cell) is None]
    if not texts or _is_boolean(column):
        return False
    option = shlex.quote(name)
    if (
        2 * len(texts) <= len(distinct)
        or all(_comma_hint(text) for text in texts)
        or (len(texts) < len(distinct) and all(map(_DETECTION_LIMIT.fullmatch, texts)))
    ):
        hint = f"; correct it, or make the column categorical with --categorical {option}"
        numeric_column(table, name, hint)  # raises the ValueError
    if len(distinct) == len(column) and len(column) > _SMALL:
        raise ValueError(
            f"{table.path}, column {name!r} has a different text in each of {len(column)} rows, "
            f"such as {quoted(texts[0])}: an identifier or a date is no feature. Exclude it with "
            f"--drop {option}."
        )
    if len(distinct) > _SMALL and all(map(_DATE.fullmatch, texts)):
        raise ValueError(
            f"{table.path}, column {name!r} holds dates, such as {quoted(texts[0])}; convert them "
            f"to numbers, such as days since the first, or exclude them with --drop {option}."
        )
    return True


def _is_boolean(column: Sequence[str]) -> bool:
    present = {cell.lower() for cell in column if not is_missing(cell)}
    return bool(present) and present <= BOOLEANS.keys()


def _comma_hint(cell: str) -> str:
    if cell.count(",") == 1 and parse_number(cell.replace(",", ".")) is not None:
        return " (numbers are written with a decimal point)"
    return ""


def _known_category_column(table: CsvTable, name: str, categories: Sequence[Any]) -> pd.Series:
    """Return the category of the model that each cell matches, else the text of the cell.

    A model fitted in Python may have categories that are numbers.
    """
    import pandas as pd

    by_text = {str(category): category for category in categories}
    by_number: dict[float | None, Any] = {
        float(category): category for category in categories if isinstance(category, int | float)
    }

    def match(cell: str) -> Any:
        other = None if is_missing(cell) else by_number.get(parse_number(cell), cell)
        return by_text.get(cell, other)

    return pd.Series([match(cell) for cell in table.column(name)], dtype=object)


# --- messages and output paths ----------------------------------------------------------------


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


def check_output_path(path: Path, inputs: Iterable[Path], option: str = "-o") -> Path:
    """Raise an error for an output path that cannot be written to, before any work is done.

    Returns the path with links resolved, so that the target of a link is replaced.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{option} {path} is a folder; give the name of a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{option} {path}: there is no folder {path.parent}; create it first."
        )
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {path} is not a regular file.")
    resolved = path.resolve()
    if any(resolved == source.resolve() for source in inputs):
        raise ValueError(f"{option} {path} would replace the input; give another name.")
    if not os.access(resolved.parent, os.W_OK):
        raise PermissionError(f"{option} {path}: the folder {path.parent} is not writable.")
    return resolved
