"""Notation of numbers: decimal sign, thousands separator, signs of units, detection limits."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

_SPACES = " \u00a0\u2009\u202f"  # space, and those that typography puts between thousands
_APOSTROPHES = "'’"
# A sign before or after a number, which is removed if all cells of the column have it.
_SIGNS = "%$€£¥"
_LIMIT = re.compile(r"([<>≤≥])=?\s*(.*\d.*)")
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
    """Notation of the numbers of a column.

    `thousands` is empty or the separator, where any space stands for all kinds of spaces. `sign` is
    a currency or percent sign that each cell has. `ambiguous` is the sign that may be decimal or
    separate thousands, empty where the notation is known.
    """

    decimal: str = "."
    thousands: str = ""
    sign: str = ""
    ambiguous: str = ""

    @cached_property
    def _grouped(self) -> re.Pattern[str]:
        groups = _GROUPED % _any_of(self.thousands)
        return re.compile(rf"[-+]?{groups}(?:{re.escape(self.decimal)}\d*)?")

    def parse(self, cell: str) -> float | None:
        """Return the number in a cell that is not missing, None for text.

        >>> NumberFormat(",", ".").parse("1.234,5"), NumberFormat().parse("1e3")
        (1234.5, 1000.0)
        >>> NumberFormat().parse("1_000"), NumberFormat(thousands=",").parse("1,5")
        (None, None)
        """
        text = self._plain(cell)
        try:
            return None if text is None or "_" in text else float(text)
        except ValueError:
            return None

    def plain(self, cell: str) -> str:
        """Return a number or limit with a decimal point and no thousands separators.

        Any other cell, and a number with a sign such as %, is returned as it is.

        >>> NumberFormat(",", ".").plain("1.234,50"), NumberFormat(",").plain("<0,5")
        ('1234.50', '<0.5')
        """
        _, number = split_limit(cell)
        plain = None if self.sign or self.parse(number) is None else self._plain(number)
        return cell if plain is None else cell.removesuffix(number) + plain

    def _plain(self, cell: str) -> str | None:
        text = cell.replace("−", "-").replace(self.sign, "").strip() if self.sign else cell
        if self.thousands and self._grouped.fullmatch(text):
            text = re.sub(_any_of(self.thousands), "", text)
        if self.decimal != ".":
            if "." in text:
                return None
            text = text.replace(self.decimal, ".", 1)
        return text.replace("−", "-")


PLAIN = NumberFormat()


def is_missing(cell: str) -> bool:
    return len(cell) <= _LONGEST_MISSING and cell.lower() in MISSING


def is_number(cell: str) -> bool:
    """Whether a cell is a number or a limit in any notation.

    >>> is_number("1.234,5"), is_number("<0,10"), is_number("5 %"), is_number("mg/L")
    (True, True, True, False)
    """
    text = split_limit(cell)[1].strip(_SIGNS + " ")
    is_any = any(notation.parse(text) is not None for notation in _NOTATIONS)
    return is_any and not text.isalpha()  # as inf


def distinct_values(column: Iterable[str]) -> list[str]:
    """The different cells of a column that are not missing, in order."""
    return [cell for cell in dict.fromkeys(column) if not is_missing(cell)]


def parse_all(cells: Sequence[str], decimal: str) -> list[float] | None:
    """Return the numbers in all cells, fast, None where any is no number without thousands."""
    joined = "".join(cells)
    if "_" in joined or (decimal != "." and "." in joined):
        return None
    try:
        return [float(cell.replace(decimal, ".")) for cell in cells]
    except ValueError:
        return None


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
    match = _LIMIT.fullmatch(cell)
    if not match:
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


# --- detection --------------------------------------------------------------------------------

# Notations in the order of preference, where several give the same numbers.
_NOTATIONS = [
    NumberFormat(decimal, thousands)
    for thousands in ("", ",", ".", " ", "'")
    for decimal in ".,"
    if decimal != thousands
]
_SAMPLE = 1000  # different cells of a column, by which its notation is detected


@dataclass(frozen=True)
class _Readings:
    """Notations of a column, one for each way to read its numbers; none for a column of text.

    `decimals` are the decimal signs that its cells may have: one where they show it.
    """

    formats: list[NumberFormat]
    decimals: set[str]


def _read_numbers(cells: Sequence[str]) -> _Readings:
    """Return the notations in which most cells are numbers, if half of them are."""
    if parse_all(cells, ".") is not None:  # which is fast
        with_point = [cell for cell in cells if "." in cell]
        if any(NumberFormat(",", ".").parse(cell) is None for cell in with_point):
            return _Readings([PLAIN], {"."})
    # integers, which have no sign, come last
    sample = sorted((split_limit(cell)[1] for cell in cells), key=str.isdigit)[:_SAMPLE]
    sign = next((sign for sign in _SIGNS if sample and all(sign in cell for cell in sample)), "")
    possible = [
        replace(notation, sign=sign)
        for notation in _NOTATIONS
        if not notation.thousands or re.search(_any_of(notation.thousands), "".join(sample))
    ]
    by_format = {notation: [notation.parse(cell) for cell in sample] for notation in possible}
    least_text = min(numbers.count(None) for numbers in by_format.values())
    if 2 * least_text > len(sample) or not sample:
        return _Readings([], set())
    best = {found: tuple(x) for found, x in by_format.items() if x.count(None) == least_text}
    first = next(iter(best.values()))
    distinct: dict[tuple[float | None, ...], NumberFormat] = {}
    for number_format, numbers in best.items():
        if all((x is None) == (y is None) for x, y in zip(numbers, first, strict=True)):
            distinct.setdefault(numbers, number_format)
    return _Readings(list(distinct.values()), {number_format.decimal for number_format in best})


def detect_formats(
    columns: Sequence[Sequence[str]],
    decimal: str | None = None,
    thousands: str | None = None,
    typed: Collection[int] = (),
    point_expected: bool = True,
) -> list[NumberFormat]:
    """Return the notation of the numbers of each column.

    Parameters
    ----------
    columns : sequence of sequences of str
        The cells of each column.
    decimal, thousands : str, default=None
        The notation of all columns, instead of detecting it.
    typed : collection of int
        Columns whose numbers are known to have a decimal point.
    point_expected : bool
        Whether 1.234 is a number with three decimals where no cell of the table shows the decimal
        sign. It is ambiguous otherwise, as in files that are separated by semicolons.
    """
    cells_of = [[] if j in typed else distinct_values(cells) for j, cells in enumerate(columns)]
    readings = [_read_numbers(cells) for cells in cells_of]
    if decimal is not None or thousands is not None:
        decimal = decimal or ("," if thousands == "." else ".")
        signs = [column.formats[0].sign if column.formats else "" for column in readings]
        formats = [NumberFormat(decimal, thousands or "", sign) for sign in signs]
        return [PLAIN if j in typed else notation for j, notation in enumerate(formats)]
    shown = [column.decimals for column in readings if len(column.decimals) == 1]
    decimals = set[str]().union(*shown)
    return [_choose(column.formats, decimals, point_expected) for column in readings]


def _choose(formats: list[NumberFormat], decimals: set[str], point_expected: bool) -> NumberFormat:
    """Return the notation of a column, by the decimal signs that are shown in the table."""
    if len(formats) < 2:
        return formats[0] if formats else PLAIN
    as_shown = [number_format for number_format in formats if {number_format.decimal} == decimals]
    if as_shown:
        return as_shown[0]
    first, second = formats[:2]
    if point_expected and (first.decimal, first.thousands) == (".", ""):
        return first
    return NumberFormat(sign=first.sign, ambiguous=second.thousands)


def describe_formats(names: Iterable[str], formats: Iterable[NumberFormat]) -> list[str]:
    """Describe the notations other than plain numbers with a decimal point, for a note."""
    by_format: dict[NumberFormat, list[str]] = {}
    for name, notation in zip(names, formats, strict=True):
        if notation != PLAIN and not notation.ambiguous:
            by_format.setdefault(notation, []).append(name)
    described = []
    for notation, columns in by_format.items():
        texts = ["decimal comma"] if notation.decimal == "," else []
        texts += [f"thousands separated by {notation.thousands!r}"] if notation.thousands else []
        texts += [f"numbers without {notation.sign!r}"] if notation.sign else []
        shown = ", ".join(map(repr, columns[:3])) + (", …" if len(columns) > 3 else "")
        described.append(f"{' and '.join(texts)} ({shown})")
    return described
