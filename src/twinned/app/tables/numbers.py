"""Notation of numbers: decimal sign, thousands separator, signs of units, detection limits."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

_SPACES = " \u00a0\u2009\u202f"  # space, and those that typography puts between thousands
_APOSTROPHES = "'’"
# A sign before or after a number, which is removed if all cells of the column have it.
_SIGNS = "%$€£¥"
_LIMIT_SIGNS = "<>≤≥"
_LIMIT = re.compile(rf"([{_LIMIT_SIGNS}])=?\s*(.*\d.*)")
_GROUPED = r"[1-9]\d{0,2}(?:%s\d{3})+"
_UNIT = re.compile(r"[-+−]?\d+(?:[.,]\d+)?\s*([A-Za-zµμΩ°][^\d\s]{0,9})")

_SPREADSHEET_ERRORS = {"#value!", "#div/0!", "#ref!", "#name?", "#num!", "#null!", "#n/a"}
_DASHES = {"-", "--", "–", "—"}
_WORDS = {"", "?", "na", "n/a", "n.a.", "<na>", "nan", "-nan", "null", "none"}
# Spellings of a missing value, in any case.
MISSING = frozenset(_WORDS | _DASHES | _SPREADSHEET_ERRORS)
_LONGEST_MISSING = max(map(len, MISSING))


@dataclass(frozen=True)
class NumberFormat:
    """Notation of the numbers of a table.

    `thousands` is empty or the separator, where any space stands for all kinds of spaces.
    """

    decimal: str = "."
    thousands: str = ""

    @cached_property
    def _grouped(self) -> re.Pattern[str]:
        groups = _GROUPED % _any_of(self.thousands)
        return re.compile(rf"[-+−]?{groups}(?:{re.escape(self.decimal)}\d*)?")

    def parse(self, cell: str) -> float | None:
        """Return the number in a cell that is not missing, None for text.

        >>> NumberFormat(",", ".").parse("1.234,5"), NumberFormat().parse("1e3")
        (1234.5, 1000.0)
        >>> NumberFormat().parse("1_000"), NumberFormat(thousands=",").parse("1,5")
        (None, None)
        """
        text = self._with_point(cell)
        return None if text is None else _to_float(text)

    def plain(self, cell: str) -> str:
        """Return a number or limit with a decimal point and no thousands separators.

        Any other cell is returned as it is.

        >>> NumberFormat(",", ".").plain("1.234,50"), NumberFormat(",").plain("<0,5")
        ('1234.50', '<0.5')
        """
        _, number = split_limit(cell)
        plain = self._with_point(number)
        if plain is None or _to_float(plain) is None:
            return cell
        return cell.removesuffix(number) + plain

    def _with_point(self, cell: str) -> str | None:
        if self.thousands and self._grouped.fullmatch(cell):
            cell = re.sub(_any_of(self.thousands), "", cell)
        if self.decimal != ".":
            if "." in cell:
                return None
            cell = cell.replace(self.decimal, ".", 1)
        return cell.replace("−", "-")

    def describe(self) -> list[str]:
        """Return what differs from plain numbers with a decimal point, for a note."""
        separated = [f"thousands separated by {self.thousands!r}"] if self.thousands else []
        return (["decimal comma"] if self.decimal == "," else []) + separated


PLAIN = NumberFormat()
# In the order of preference, where several give the same numbers.
_NOTATIONS = [
    NumberFormat(decimal, thousands)
    for thousands in ("", ",", ".", " ", "'")
    for decimal in ".,"
    if decimal != thousands
]
_SAMPLE = 500  # different cells of a column, by which the notation is detected


def _to_float(text: str) -> float | None:
    try:
        return None if "_" in text else float(text)
    except ValueError:
        return None


def is_missing(cell: str) -> bool:
    return len(cell) <= _LONGEST_MISSING and cell.lower() in MISSING


def is_number(cell: str) -> bool:
    """Whether a cell is a number or a limit in any notation.

    >>> is_number("1.234,5"), is_number("<0,10"), is_number("mg/L")
    (True, True, False)
    """
    text = split_limit(cell)[1]
    return any(notation.parse(text) is not None for notation in _NOTATIONS)


def distinct_values(column: Iterable[str]) -> list[str]:
    """The different cells of a column that are not missing, in order."""
    return [cell for cell in dict.fromkeys(column) if not is_missing(cell)]


def _any_of(separator: str) -> str:
    """Pattern of a thousands separator and those that look like it."""
    for alike in (_SPACES, _APOSTROPHES):
        if separator in alike:
            return f"[{alike}]"
    return re.escape(separator)


def split_limit(cell: str) -> tuple[float, str]:
    """Return −1 for a value below a limit, 1 above, 0 for any other cell, and the rest of it.

    >>> split_limit("<= 5"), split_limit(">100"), split_limit("7")
    ((-1.0, '5'), (1.0, '100'), (0.0, '7'))
    """
    match = _LIMIT.fullmatch(cell) if cell[:1] in _LIMIT_SIGNS else None
    if match is None:
        return 0.0, cell
    return (-1.0 if match[1] in "<≤" else 1.0), match[2]


def common_unit(cells: Sequence[str]) -> str:
    """Return the unit that follows a number in each of at least two cells, else nothing.

    >>> common_unit(["12.5 mg", "3mg"]), common_unit(["12 mg", "3 g"])
    ('mg', '')
    """
    matches = [_UNIT.fullmatch(cell) for cell in cells]
    units = {match[1] if match else "" for match in matches}
    return units.pop() if len(matches) > 1 and len(units) == 1 else ""


def remove_sign(column: list[str]) -> list[str]:
    """Return the cells without the currency or percent sign that all numbers of a column have.

    >>> remove_sign(["$1,200", "", "$7"]), remove_sign(["5 %", "7"])
    (['1,200', '', '7'], ['5 %', '7'])
    """
    present = distinct_values(column)
    for sign in _SIGNS if present else "":
        if all(sign in cell and is_number(cell.replace(sign, "").strip()) for cell in present):
            return [cell.replace(sign, "").strip() for cell in column]
    return column


def detect_formats(
    columns: Iterable[Sequence[str]], point_expected: bool = True
) -> list[NumberFormat]:
    """Return the notation in which most cells are numbers; several, if their numbers differ.

    Parameters
    ----------
    columns : iterable of sequences of str
        The different cells of each column. Those of which less than half are numbers do not count.
    point_expected : bool
        Whether 1.234 is a number with three decimals where no cell shows the decimal sign.
        Otherwise it may have a separator of thousands, as in files separated by semicolons.
    """
    numbers: dict[NumberFormat, list[float | None]] = {notation: [] for notation in _NOTATIONS}
    for cells in columns:
        # integers, which have no sign, come last
        sample = sorted((split_limit(cell)[1] for cell in cells), key=str.isdigit)[:_SAMPLE]
        parsed = {notation: list(map(notation.parse, sample)) for notation in _NOTATIONS}
        if 2 * min(map(_count_texts, parsed.values())) <= len(sample):
            for notation in _NOTATIONS:
                numbers[notation] += parsed[notation]
    fewest = min(map(_count_texts, numbers.values()))
    best = [notation for notation in _NOTATIONS if _count_texts(numbers[notation]) == fewest]
    if best[0] == PLAIN and point_expected:
        return [PLAIN]
    return best[:1] + [x for x in best[1:] if _differ(numbers[best[0]], numbers[x])]


def _count_texts(numbers: list[float | None]) -> int:
    return numbers.count(None)


def _differ(first: list[float | None], second: list[float | None]) -> bool:
    """Whether any cell is a number in two notations, but not the same one."""
    pairs = zip(first, second, strict=True)
    return any(x != y for x, y in pairs if x is not None and y is not None)
