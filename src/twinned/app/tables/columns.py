"""Conversion of a column to numbers, categories or date parts, with errors that name the cell."""

import math
import re
import shlex
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from twinned.app.tables.numbers import (
    PLAIN,
    common_unit,
    distinct_values,
    is_missing,
    is_number,
    split_limit,
)
from twinned.app.tables.table import Table, join_names, quoted
from twinned.estimators.molecules import MoleculeFeatures
from twinned.rows.training import TargetBounds

BOOLEANS = {"true": 1.0, "false": 0.0}
_DATE_LIKE = re.compile(
    r"(?:\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}|\d{1,2}[ .-]+[A-Za-z]{3,9}[ .,-]+\d{2,4}"
    r"|[A-Za-z]{3,9} \d{1,2}, \d{4}|\d{4}-\d{2}|\d{8})(?:[ T]\s*\d{1,2}:\d{2}.*)?"
)
_DAYS_FIRST = ("%d.%m.%Y", "%d.%m.%y", "%d-%m-%Y", "%d/%m/%Y", "%d/%m/%y")
_MONTHS_FIRST = ("%m/%d/%Y", "%m/%d/%y", "%m-%d-%Y")
_NAMED = ("%d %b %Y", "%d-%b-%Y", "%d-%b-%y", "%d %B %Y", "%b %d, %Y", "%B %d, %Y")
_DATES = ("%Y/%m/%d", "%Y.%m.%d", "%Y-%m", *_DAYS_FIRST, *_MONTHS_FIRST, *_NAMED)
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p")
EPOCH = datetime(1970, 1, 1)
_YEARS = range(1900, 2101)
_LARGEST = 1.7e38  # of which differences are finite in single precision, as trees have them
_MAX_EXAMINED = 50  # cells that are tried one by one for a message

# Parts of a date that are features, with the text of a feature's name.
PARTS: dict[str, Callable[[datetime], float]] = {
    "days": lambda date: (date - EPOCH).total_seconds() / 86400,
    "month": lambda date: float(date.month),
    "weekday": lambda date: float(date.isoweekday()),
    "hour": lambda date: date.hour + date.minute / 60,
}


@dataclass(frozen=True)
class ParsedColumn:
    """The cells of a column as numbers.

    Parameters
    ----------
    values : ndarray of shape (n_rows,)
        NaN for missing values and text; half of a limit that the true value is below, if that is
        positive, else the limit.
    sides : ndarray of shape (n_rows,)
        −1 for values below a limit, 1 above and 0 elsewhere.
    n_numbers, n_limits : int
        Different cells that are numbers, and limits.
    texts : list of str
        Different cells that are neither; none of a column of true and false.
    """

    values: np.ndarray
    sides: np.ndarray
    n_numbers: int
    n_limits: int
    texts: list[str]

    @property
    def is_numeric(self) -> bool:
        """Whether all cells are numbers or limits; limits alone are categories."""
        return not self.texts and (self.n_numbers > 0 or self.n_limits == 0)

    @property
    def has_wrong_text(self) -> bool:
        """Whether texts seem to be mistakes, units or another notation in a column of numbers."""
        if self.n_numbers and len(self.texts) <= self.n_numbers + self.n_limits:
            return True
        if common_unit(self.texts):
            return True
        return bool(self.texts) and all(map(is_number, self.texts))


def parse_column(table: Table, name: str) -> ParsedColumn:
    """Return the cells of a column as numbers; true and false are 1 and 0 where all are."""
    if name in table.parsed:
        return table.parsed[name]
    column = table.column(name)
    parsed = {cell: parse_number(cell) for cell in dict.fromkeys(column)}
    texts = [cell for cell, number in parsed.items() if number is None]
    if texts and {cell.lower() for cell in distinct_values(column)} <= BOOLEANS.keys():
        parsed |= {cell: (BOOLEANS[cell.lower()], 0.0) for cell in texts}
        texts = []
    numbers = [parsed[cell] or (math.nan, 0.0) for cell in column]
    values, sides = np.array(numbers, dtype=np.float64).T
    n_limits = sum(number is not None and number[1] != 0 for number in parsed.values())
    n_numbers = len(distinct_values(parsed)) - len(texts) - n_limits
    table.parsed[name] = ParsedColumn(values, sides, n_numbers, n_limits, texts)
    return table.parsed[name]


def parse_number(cell: str) -> tuple[float, float] | None:
    """Return the value of a cell and 0, or −1 below a limit and 1 above; None for text.

    >>> parse_number("1e3"), parse_number("NA"), parse_number("1_000"), parse_number("red")
    ((1000.0, 0.0), (nan, 0.0), None, None)
    >>> parse_number("<5"), parse_number(">100"), parse_number("<-4")
    ((2.5, -1.0), (100.0, 1.0), (-4.0, -1.0))
    """
    if is_missing(cell):
        return math.nan, 0.0
    side, rest = split_limit(cell)
    number = PLAIN.parse(rest)
    if number is None:
        return None
    return (number / 2 if side < 0 and number > 0 else number), side


def molecule_columns(table: Table, name: str) -> tuple[dict[str, np.ndarray], list[str]]:
    """Features of the molecules of a column of SMILES, NaN in rows without one, and notes.

    The notes are on salts and repeated molecules. A ValueError names cells that are no SMILES.
    """
    cells = [None if is_missing(cell) else cell for cell in table.column(name)]
    molecules = MoleculeFeatures(on_error="missing")
    features = molecules.fit_transform(cells)
    wrong = [row for row in molecules.invalid_ if cells[row] is not None]
    if wrong:
        first = f"{table.location(wrong[0], name)}: {quoted(str(cells[wrong[0]]))} is no SMILES"
        others = f", nor are {len(wrong) - 1} further cells" if len(wrong) > 1 else ""
        raise ValueError(f"{first}{others}; correct it, or leave the cell empty.")
    unusual = {
        "molecules of several components, such as salts": molecules.salts_,
        "molecules that an earlier row has, too": molecules.duplicates_[:, 0],
    }
    notes = [
        f"{table.location(rows[0], name)}: the first of {len(rows)} {what}."
        for what, rows in unusual.items()
        if len(rows)
    ]
    return {str(feature): values.to_numpy() for feature, values in features.items()}, notes


def numeric_column(table: Table, name: str, hint: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Convert a column to float64 of shape (n_rows,), missing values to NaN.

    Also returns −1 in the rows of values below a limit, 1 above and 0 elsewhere. Text and numbers
    that are too large raise a ValueError that names the cell and, for text, ends with `hint`.
    """
    parsed = parse_column(table, name)
    if parsed.texts:
        reason = _describe_texts(table, parsed.texts, name)
        raise ValueError(f"{reason}{hint if table.is_file else ''}.")
    values = parsed.values
    if (is_too_large := np.abs(values) > _LARGEST).any():
        row = int(is_too_large.argmax())
        reason = f"is not a finite number of at most {_LARGEST:g}"
        raise ValueError(f"{table.location(row, name)}: '{values[row]}' {reason}.")
    return values, parsed.sides


def _describe_texts(table: Table, texts: Sequence[str], name: str) -> str:
    """Describe where cells of a numeric column are no numbers, and why."""
    # true and false alone would be a boolean column: report other text first
    cell, *others = sorted(texts, key=lambda text: text.lower() in BOOLEANS)
    location = table.location(table.column(name).index(cell), name)
    reason = f"{location}: {quoted(cell)} is text in a numeric column"
    reason += f", as are {join_names(others)}" if others else ""
    if unit := common_unit([cell, cell]):
        return f"{reason}; write numbers without the unit {unit!r}"
    if not table.is_file:
        return f"{reason}; write a number such as 1.5"
    return f"{reason}; see --decimal and --thousands" if is_number(cell) else reason


def target_column(table: Table, name: str) -> TargetBounds:
    """Convert the target to bounds of its values; the table has no row without a value."""
    hint = "; the target must be a number or a limit such as <5 in every row"
    parsed = parse_column(table, name)
    if len(parsed.texts) > 1 and not parsed.has_wrong_text:
        texts = f"column {name!r} holds text such as {join_names(parsed.texts[:2])}"
        raise ValueError(f"{table.path}, {texts}; the --target must be a column of numbers.")
    values, sides = numeric_column(table, name, hint)
    limits = np.where((sides < 0) & (values > 0), 2 * values, values)  # see `parse_number`
    return TargetBounds(np.where(sides < 0, -np.inf, limits), np.where(sides > 0, np.inf, limits))


def is_categorical(table: Table, name: str) -> bool:
    """Return whether a column holds text; raise a ValueError if that seems to be a mistake."""
    parsed = parse_column(table, name)
    if not parsed.is_numeric and parsed.has_wrong_text:
        missing = f"--missing {shlex.quote(parsed.texts[0])} if it means a missing value"
        option = f"make the column categorical with --categorical {shlex.quote(name)}"
        numeric_column(table, name, f"; correct it, give {missing}, or {option}")  # raises
    return not parsed.is_numeric


def category_column(table: Table, name: str) -> pd.Categorical:
    """Convert a column to a pandas category, missing values to NaN."""
    return pd.Categorical([None if is_missing(cell) else cell for cell in table.column(name)])


def known_category_column(table: Table, name: str, categories: Sequence[object]) -> pd.Series:
    """Return the category of the model that each cell matches, else the text of the cell.

    A model fitted in Python may have categories that are numbers.
    """
    by_text = {str(category): category for category in categories}
    by_number: dict[object, object] = {
        category: category for category in categories if isinstance(category, int | float)
    }

    def match(cell: str, number: float) -> object:
        if is_missing(cell) and cell not in by_text:
            return None
        return by_text.get(cell, by_number.get(number, cell))

    values = parse_column(table, name).values
    return pd.Series(list(map(match, table.column(name), values)), dtype=object)


# --- dates ------------------------------------------------------------------------------------


def date_columns(table: Table, name: str, parts: Collection[str]) -> dict[str, np.ndarray]:
    """Convert a column of dates to float64 arrays of its `parts`, missing dates to NaN."""
    column = table.column(name)
    distinct = distinct_values(column)
    readings = read_dates(distinct) if distinct else [[]]
    if not readings:
        examined = distinct[:_MAX_EXAMINED]
        wrong = next((cell for cell in examined if not read_dates([cell])), examined[-1])
        reason = f"{quoted(wrong)} is no date in the notation of the others, such as 2024-01-31"
        raise ValueError(f"{table.location(column.index(wrong), name)}: {reason}.")
    if any(reading != readings[0] for reading in readings):
        either = f"{distinct[0]!r} may have the day or the month first; write 2024-01-31"
        raise ValueError(f"{table.path}, column {name!r}: {either}.")
    by_cell = dict(zip(distinct, readings[0], strict=True))
    return {
        part: np.array([PARTS[part](by_cell[c]) if c in by_cell else math.nan for c in column])
        for part in parts
    }


def read_dates(cells: Sequence[str]) -> list[list[datetime]]:
    """Return the dates of the cells in each notation that fits all of them.

    >>> read_dates(["31.01.2024", "01.02.2024"])
    [[datetime.datetime(2024, 1, 31, 0, 0), datetime.datetime(2024, 2, 1, 0, 0)]]
    """
    if not cells or not all(map(_DATE_LIKE.fullmatch, cells)):
        return []
    readings = [_parse_all(cells, None)]
    if readings[0] is None:
        readings = [_parse_all(cells, date + time) for date in _DATES for time in _TIMES]
    return [dates for dates in readings if dates is not None]


def _parse_all(cells: Sequence[str], notation: str | None) -> list[datetime] | None:
    """Return the dates in a notation of `strptime`, by default that of ISO 8601."""

    def parse(cell: str) -> datetime:
        return datetime.strptime(cell, notation) if notation else datetime.fromisoformat(cell)

    try:
        dates = [parse(cell) for cell in cells]
    except ValueError:
        return None
    if any(date.year not in _YEARS for date in dates):
        return None
    return [date.astimezone(UTC).replace(tzinfo=None) if date.tzinfo else date for date in dates]
