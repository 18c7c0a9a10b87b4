"""What a row of a request has: features of the model, and dates whose parts are features."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any, NamedTuple

from twinned.app.serve.errors import BadRequest, short_repr
from twinned.app.tables import BOOLEANS, PARTS, find_no_date, is_missing, parse_dates

_MAX_ABSOLUTE_VALUE = 1e300
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


class InputFeature(NamedTuple):
    """A feature of the model, which is a column of the request."""

    name: str
    categories: list[Any] | None  # None for a numeric feature
    ordered: bool = False  # whose categories are levels, so that a new one has no meaning

    @property
    def feature_names(self) -> list[str]:
        return [self.name]

    @property
    def labels(self) -> list[str] | None:
        """The categories as text."""
        return None if self.categories is None else [str(value) for value in self.categories]

    def parse_value(self, value: Any, row: str, allow_missing: bool) -> Any:
        """Return `value` as a number or a category, or None where it is missing.

        A category that is not known is returned as text, as `predict` takes it.
        """
        if self.categories is not None and (category := self._find_category(value)) is not None:
            return category  # before missing values, as a category may be named "none"
        if value is None or (isinstance(value, str) and is_missing(value.strip())):
            if allow_missing:
                return None
            raise BadRequest(f"{row}: {self.name!r} has no value, and the model needs one.")
        if self.categories is not None:
            text = str(value).strip()
            if isinstance(value, str | int | float) and not self.ordered and _is_unicode(text):
                return text
            allowed = ", ".join(map(str, self.categories[:8]))
            raise BadRequest(
                f"{row}: {self.name!r} must be one of {allowed}, not {short_repr(value)}."
            )
        if isinstance(value, bool | str) and (text := str(value).strip().lower()) in BOOLEANS:
            return BOOLEANS[text]
        number = to_number(value)
        if not abs(number) <= _MAX_ABSOLUTE_VALUE:  # true of NaN as well
            shown = short_repr(value)
            advice = "; write a decimal point" if "," in shown else ""
            raise BadRequest(f"{row}: {self.name!r} must be a number, not {shown}{advice}.")
        return number

    def unknown(self, values: Iterable[Any]) -> list[str]:
        """Return the different categories of parsed values that are not known."""
        if self.categories is None:
            return []
        known = {*self.categories, None}
        return [value for value in dict.fromkeys(values) if value not in known]

    def _find_category(self, value: Any) -> Any:
        """Return the category that equals `value`, directly or as text, or None."""
        text = str(value).strip()
        return next((c for c in self.categories or () if value == c or text == str(c)), None)


class InputDate(NamedTuple):
    """A date of the request, whose parts are features of the model."""

    name: str
    features: dict[str, str]  # the feature of each part

    @property
    def has_time(self) -> bool:
        return "hour" in self.features

    @property
    def feature_names(self) -> list[str]:
        return list(self.features.values())

    def add_parts(self, rows: list[dict[str, Any]], names: list[str], allow_missing: bool) -> None:
        """Add the features to rows that have the date instead; all rows have one notation."""
        dated = [
            (row_name, row, str(row[self.name] or "").strip())
            for row_name, row in zip(names, rows, strict=True)
            if self.name in row and not row.keys() >= set(self.feature_names)
        ]
        first_row: dict[str, str] = {}
        for row_name, _, cell in dated:
            if not is_missing(cell):
                first_row.setdefault(cell, row_name)
            elif not allow_missing:
                raise BadRequest(
                    f"{row_name}: {self.name!r} has no value, and the model needs one."
                )
        by_cell = dict(zip(first_row, self._parse(first_row), strict=True))
        for _, row, cell in dated:
            for part, feature in self.features.items():
                row[feature] = PARTS[part](by_cell[cell]) if cell in by_cell else None

    def _parse(self, first_row: dict[str, str]) -> list[datetime]:
        """Return the dates of cells, each with the name of its first row for messages."""
        cells = list(first_row)
        try:
            dates = parse_dates(cells) if cells else []
        except ValueError as error:
            raise BadRequest(f"{self.name!r}: {error}; write 2024-01-31.") from None
        if dates is not None:
            return dates
        wrong = find_no_date(cells)
        if wrong is None:
            raise BadRequest(f"{self.name!r} has dates of several notations; write 2024-01-31.")
        raise BadRequest(
            f"{first_row[wrong]}: {self.name!r} must be a date such as 2024-01-31, not "
            f"{short_repr(wrong)}."
        )


def to_number(value: Any) -> float:
    """A number, or a text that is one in JSON, CSV and spreadsheets alike; NaN for all others."""
    if isinstance(value, str) and not _NUMBER.fullmatch(value.strip()):
        return math.nan
    try:
        return float(value) if isinstance(value, int | float | str) else math.nan
    except OverflowError:
        return math.nan


def _is_unicode(text: str) -> bool:
    """Return whether a text has no half of a surrogate pair, which JSON can escape."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
