"""From a CSV file to a DataFrame, with the line of whatever is refused; and safely back to disk.

`read_cells` opens the file and splits it into text; `table_to_fit` and `table_to_predict` make
numbers and names of the text. pandas' own reader is not used, because a refusal has to name the
line of the file, which it does not keep.
"""

from __future__ import annotations

import csv
import io
import math
import os
import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

MISSING = frozenset(
    ("", "na", "n/a", "#n/a", "<na>", "nan", "-nan", "null", "none")  # in any case
)
TRUTHS = {"true": 1.0, "false": 0.0}
_SEPARATORS = (",", ";", "\t", "|")
_FEW_ROWS = 20  # in a small table every text may differ without being an identifier
_DATE = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([ T].*)?")
_LIMIT = re.compile(r"[<>≤≥]=?\s*[-+]?\d*[.,]?\d+([eE][-+]?\d+)?")  # of detection, mostly
_MOST_LISTED = 20


@dataclass(frozen=True)
class Cells:
    """A CSV file as text: `columns[j][row]`, and the line of the file each row began on."""

    path: Path
    names: list[str]
    columns: list[list[str]]
    lines: list[int]

    def __len__(self) -> int:
        return len(self.lines)

    def column(self, name: str) -> list[str]:
        return self.columns[self.names.index(name)]

    def at(self, row: int, name: str) -> str:
        """Where a cell is, for messages."""
        return f"{self.path}, line {self.lines[row]}, column {name!r}"

    def demand(self, names: Iterable[str], what: str) -> None:
        """Refuse names that the file does not have; `what` says who asked for them."""
        absent = [name for name in names if name not in self.names]
        if absent:
            raise ValueError(
                f"{self.path} has no column {listed(absent)} ({what}); its columns are "
                f"{listed(self.names)}."
            )


# --- opening ----------------------------------------------------------------------------------


def read_cells(path: Path, separator: str) -> Cells:
    """Open a CSV file and split it into named columns of text; blank lines are skipped."""
    separator = _one_character(separator)
    rows = _split(path, _read_text(path), separator)
    header = next(rows, None)
    if header is None:
        raise ValueError(f"{path} is empty; its first line should name the columns.")
    names = [name.strip() for name in header[1]]
    _check_header(path, names, separator)
    lines, records = [], []
    for line, record in rows:
        if len(record) != len(names):
            raise ValueError(
                f"{path}, line {line} has {len(record)} fields, but line {header[0]} names "
                f"{len(names)} columns."
            )
        lines.append(line)
        records.append([cell.strip() for cell in record])
    if not records:
        raise ValueError(f"{path} has names of columns, but no rows under them.")
    return Cells(path, names, [list(column) for column in zip(*records, strict=True)], lines)


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


def _split(path: Path, text: str, separator: str) -> Any:
    """Yield (first line, fields) of each record that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    while True:
        line = reader.line_num + 1  # a quoted field may go over several lines
        try:
            record = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(f"{path}, line {line} cannot be read as CSV: {error}.") from None
        if any(cell.strip() for cell in record) or len(record) > 1:
            yield line, record


def _one_character(separator: str) -> str:
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator)
    if len(separator) != 1 or separator in '"\r\n':
        raise ValueError(
            f"--separator must be one character such as ',' or ';', or tab, not {separator!r}."
        )
    return separator


def _check_header(path: Path, names: list[str], separator: str) -> None:
    if len(names) == 1:
        (name,) = names
        for other in _SEPARATORS:
            if other != separator and other in name:
                shown = "tab" if other == "\t" else repr(other)
                raise ValueError(
                    f"{path} has the single column {shortened(name)}; it seems to be separated by "
                    f"{shown}: give --separator {shown}."
                )
    repeated = [name for name in dict.fromkeys(names) if name and names.count(name) > 1]
    if repeated:
        raise ValueError(
            f"{path} has several columns of the name {listed(repeated)}; rename all but one."
        )


# --- numbers and names ------------------------------------------------------------------------


def table_to_fit(cells: Cells, names: Sequence[str], categorical: Collection[str]) -> pd.DataFrame:
    """A table to learn from: numbers are float64, text is a pandas category."""
    import pandas as pd

    return pd.DataFrame(
        {
            name: _as_names(cells, name)
            if name in categorical or _is_text(cells, name)
            else read_numbers(cells, name)
            for name in names
        }
    )


def table_to_predict(
    cells: Cells, names: Sequence[str], known: Sequence[Sequence[Any] | None]
) -> pd.DataFrame:
    """A table like the one a model was fitted on, in the model's order of columns.

    `known` has the categories of each column that has any, and None for a column of numbers.
    """
    import pandas as pd

    return pd.DataFrame(
        {
            name: read_numbers(cells, name)
            if categories is None
            else _as_known_names(cells, name, categories)
            for name, categories in zip(names, known, strict=True)
        }
    )


def read_numbers(cells: Cells, name: str, way_out: str = "") -> np.ndarray:
    """(n,) float64, missing as NaN; text is refused with its line, and so is infinity."""
    import numpy as np

    column = cells.column(name)
    if _all_truths(column):
        return np.array([TRUTHS.get(cell.lower(), np.nan) for cell in column])
    parsed = [as_number(cell) for cell in column]
    text = [row for row, number in enumerate(parsed) if number is None]
    if text:
        # true and false alone would have been numbers, so they are not the first to blame
        row = next((row for row in text if column[row].lower() not in TRUTHS), text[0])
        if _LIMIT.fullmatch(column[row]):
            way_out = f", a limit; write a number for it, such as half the limit{way_out}"
        raise ValueError(
            f"{cells.at(row, name)}: {shortened(column[row])} is text in a number column"
            f"{_comma_hint(column[row])}{way_out}."
        )
    numbers = np.array(parsed, dtype=np.float64)
    if np.isinf(numbers).any():
        row = int(np.isinf(numbers).argmax())
        raise ValueError(f"{cells.at(row, name)}: {shortened(column[row])} is not a finite number.")
    return numbers


def read_target(cells: Cells, name: str) -> np.ndarray:
    """(n,) float64, every value known."""
    import numpy as np

    target = read_numbers(cells, name, "; the target must be a number in every row")
    if np.isnan(target).any():
        row = int(np.argmax(np.isnan(target)))
        raise ValueError(
            f"{cells.at(row, name)} has no value; leave out the rows whose target is not known."
        )
    return target


def first_missing(cells: Cells, names: Iterable[str]) -> str | None:
    """Where the first missing value is, for messages; None where every cell has one."""
    columns = {name: cells.column(name) for name in names}
    for row in range(len(cells)):
        for name, column in columns.items():
            if is_missing(column[row]):
                return cells.at(row, name)
    return None


def as_number(cell: str) -> float | None:
    """A number, NaN for a missing one, None for text.

    >>> as_number("1e3"), as_number("NA"), as_number("1_000"), as_number("red")
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


def _is_text(cells: Cells, name: str) -> bool:
    """Whether a column holds names; refused where it seems to be meant otherwise."""
    column = cells.column(name)
    distinct = dict.fromkeys(cell for cell in column if not is_missing(cell))
    texts = [cell for cell in distinct if as_number(cell) is None]
    if not texts or _all_truths(column):
        return False
    option = shlex.quote(name)
    offer = f"mend it, or take the column as names with --categorical {option}"
    if (
        2 * len(texts) <= len(distinct)
        or all(_comma_hint(text) for text in texts)
        or (len(texts) < len(distinct) and all(_LIMIT.fullmatch(text) for text in texts))
    ):
        read_numbers(cells, name, f"; {offer}")  # refuses
    if len(distinct) == len(column) and len(column) > _FEW_ROWS:
        raise ValueError(
            f"{cells.path}, column {name!r} has another text in each of its {len(column)} rows, "
            f"such as {shortened(texts[0])}: an identifier or a date teaches nothing. Leave it out "
            f"with --drop {option}."
        )
    if len(distinct) > _FEW_ROWS and all(_DATE.fullmatch(text) for text in texts):
        raise ValueError(
            f"{cells.path}, column {name!r} holds dates, such as {shortened(texts[0])}; turn them "
            f"into numbers, such as days since the first, or leave them out with --drop {option}."
        )
    return True


def _all_truths(column: Sequence[str]) -> bool:
    present = {cell.lower() for cell in column if not is_missing(cell)}
    return bool(present) and present <= TRUTHS.keys()


def _comma_hint(cell: str) -> str:
    if cell.count(",") == 1 and as_number(cell.replace(",", ".")) is not None:
        return " (numbers are written with a decimal point)"
    return ""


def _as_names(cells: Cells, name: str) -> pd.Categorical:
    import pandas as pd

    return pd.Categorical([None if is_missing(cell) else cell for cell in cells.column(name)])


def _as_known_names(cells: Cells, name: str, categories: Sequence[Any]) -> pd.Series:
    """The model's own categories where a cell spells one, else the text of the cell.

    A model fitted in Python may have categories that are numbers.
    """
    import pandas as pd

    by_text = {str(category): category for category in categories}
    by_number = {
        float(category): category for category in categories if isinstance(category, int | float)
    }
    values: list[Any] = []
    for cell in cells.column(name):
        if is_missing(cell) and cell not in by_text:
            values.append(None)
        else:
            number = as_number(cell)
            spelled = cell if number is None else by_number.get(number, cell)
            values.append(by_text.get(cell, spelled))
    return pd.Series(values, dtype=object)


# --- messages and writing ---------------------------------------------------------------------


def listed(names: Sequence[str]) -> str:
    """Names for a message, not all of them where they are many.

    >>> listed(["a", "b"])
    "'a', 'b'"
    """
    shown = ", ".join(shortened(name) if name else "(no name)" for name in names[:_MOST_LISTED])
    more = len(names) - _MOST_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def shortened(cell: str) -> str:
    """A cell as it is shown in a message: quoted, and not longer than a line bears."""
    return repr(cell if len(cell) <= 60 else cell[:57] + "...")


def check_output(path: Path, inputs: Iterable[Path], option: str = "-o") -> Path:
    """Refuse, before any work is done, a place that could not be written to afterwards.

    Returns the path with links resolved, so that what a link points to is replaced.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{option} {path} is a folder; give the name of a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{option} {path}: there is no folder {path.parent}; create it first."
        )
    if path.exists() and not path.is_file():
        raise ValueError(f"{option} {path} is not a file that could be replaced.")
    resolved = path.resolve()
    if any(resolved == source.resolve() for source in inputs):
        raise ValueError(f"{option} {path} would replace the input; give another name.")
    if not os.access(resolved.parent, os.W_OK):
        raise PermissionError(f"{option} {path}: the folder {path.parent} may not be written to.")
    return resolved
