"""Dates written as text: recognition, and their parts as numeric features."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

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
_MAX_EXAMINED = 50  # cells that are tried one by one for a message

# Parts of a date that are features, with the text of a feature's name.
PARTS: dict[str, Callable[[datetime], float]] = {
    "days": lambda date: (date - EPOCH).total_seconds() / 86400,
    "month": lambda date: float(date.month),
    "weekday": lambda date: float(date.isoweekday()),
    "hour": lambda date: date.hour + date.minute / 60,
}


def parse_dates(cells: Sequence[str]) -> list[datetime] | None:
    """Return the dates that all cells hold, None if any of them holds no date of the same notation.

    A ValueError is raised where day and month cannot be distinguished.

    >>> parse_dates(["31.01.2024", "01.02.2024"])
    [datetime.datetime(2024, 1, 31, 0, 0), datetime.datetime(2024, 2, 1, 0, 0)]
    """
    readings = _readings(cells)
    if len(readings) > 1 and any(reading != readings[0] for reading in readings):
        raise ValueError(f"{cells[0]!r} may have the day or the month first")
    return readings[0] if readings else None


def are_dates(cells: Sequence[str]) -> bool:
    """Whether all cells hold dates of the same notation, and there are any."""
    return bool(_readings(cells))


def find_no_date(cells: Sequence[str]) -> str | None:
    """Return the first cell that holds no date of any notation, for a message; else None.

    >>> find_no_date(["2024-01-31", "soon"])
    'soon'
    """
    return next((cell for cell in cells[:_MAX_EXAMINED] if not are_dates([cell])), None)


def _readings(cells: Sequence[str]) -> list[list[datetime]]:
    """Return the dates of the cells in each notation that fits all of them."""
    if not cells or not all(map(_DATE_LIKE.fullmatch, cells)):
        return []
    found = [_parse_all(cells, None)]
    if found[0] is None:
        found = [_parse_all(cells, date + time) for date in _DATES for time in _TIMES]
    return [dates for dates in found if dates is not None]


def _parse_all(cells: Sequence[str], notation: str | None) -> list[datetime] | None:
    """Return the dates in a notation of `strptime`, by default that of ISO 8601."""
    dates = []
    try:
        for cell in cells:
            if notation is None:
                date = datetime.fromisoformat(cell)
            else:
                date = datetime.strptime(cell, notation)
            if date.year not in _YEARS:
                return None
            dates.append(date if date.tzinfo is None else date.astimezone(UTC).replace(tzinfo=None))
    except ValueError:
        return None
    return dates
