"""What comes in, as a table that the model can take; or a message that says what is wrong."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any, NamedTuple

MOST_ROWS = 1_000
MOST_BYTES = 1_000_000
_TRUTHS = {"true": 1.0, "false": 0.0}
_MISSING = {"", "na", "n/a", "nan", "null", "none"}


class Wrong(ValueError):
    """A request that cannot be answered: a status of HTTP and one sentence."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


class Field(NamedTuple):
    """A column of the model: a number, or one of some names."""

    name: str
    choices: list[Any] | None  # None for a number

    def read(self, value: Any, row: int, missing: bool) -> Any:
        """A value as the model takes it."""
        if self.choices is not None and (choice := self._choice(value)) is not None:
            return choice  # also one that is called "none"
        if value is None or (isinstance(value, str) and value.strip().lower() in _MISSING):
            if missing:
                return None
            raise Wrong(f"row {row}: {self.name!r} has no value, and the model needs one.")
        if self.choices is not None:
            some = ", ".join(map(str, self.choices[:8]))
            raise Wrong(f"row {row}: {self.name!r} must be one of {some}, not {_shown(value)}.")
        if isinstance(value, (bool, str)) and str(value).strip().lower() in _TRUTHS:
            return _TRUTHS[str(value).strip().lower()]
        if not isinstance(value, (int, float, str)):
            raise Wrong(f"row {row}: {self.name!r} must be a number, not {_shown(value)}.")
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number) or abs(number) > 1e300:
            raise Wrong(f"row {row}: {self.name!r} must be a number, not {_shown(value)}.")
        return number

    def _choice(self, value: Any) -> Any:
        """The known name that is meant, or None."""
        told = str(value).strip()
        for choice in self.choices or ():
            if value == choice or told == str(choice):
                return choice
        return None


def fields_of(twin: Any) -> list[Field]:
    """The columns that a fitted twin wants."""
    columns = twin._schema
    names = getattr(twin, "feature_names_in_", [f"x{i}" for i in range(columns.n_features)])
    return [
        Field(str(name), None if kind == "numeric" else list(known))
        for name, kind, known in zip(names, columns.kinds, columns.categories, strict=True)
    ]


def read_json(body: bytes) -> tuple[list[Any], float | None]:
    """The rows of {"rows": [...]}, and the confidence of intervals, where that is asked for."""
    try:
        told = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise Wrong('the body must be JSON: {"rows": [{column: value, …}, …]}.', 400) from None
    if not isinstance(told, dict) or not isinstance(told.get("rows"), list):
        raise Wrong('the body must be an object with a list "rows".')
    if others := sorted(set(told) - {"rows", "confidence"}):
        raise Wrong(f'the body may have "rows" and "confidence", but has {_shown(others[0])}.')
    return told["rows"], read_confidence(told.get("confidence"))


def read_confidence(value: Any) -> float | None:
    """A probability; None where there is none."""
    if value is None:
        return None
    try:
        level = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        level = math.nan
    if not 0 < level < 1:
        raise Wrong(f"confidence must lie between 0 and 1, but is {_shown(value)}.")
    return level


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def read_csv(body: bytes) -> list[Any]:
    """The rows of a CSV file with a header line."""
    try:
        text = body.decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except (UnicodeDecodeError, csv.Error) as error:
        raise Wrong(f"the body must be CSV in UTF-8: {error}.", 400) from None
    if not rows:
        raise Wrong("the table is empty; its first line should name the columns.")
    header, *lines = rows
    header = [name.strip() for name in header]
    if len(set(header)) < len(header):
        twice = next(name for name in header if header.count(name) > 1)
        raise Wrong(f"the header names {_shown(twice)} twice.")
    for place, line in enumerate(lines, 1):
        if len(line) != len(header):
            raise Wrong(f"row {place} has {len(line)} fields, but the header names {len(header)}.")
    return [dict(zip(header, line, strict=True)) for line in lines]


def checked(rows: list[Any], fields: list[Field], *, missing: bool) -> list[list[Any]]:
    """The values of each row in the model's order, each as the model takes it."""
    if not rows:
        raise Wrong("there are no rows.")
    if len(rows) > MOST_ROWS:
        raise Wrong(f"{len(rows):,} rows are too many; at most {MOST_ROWS:,} at once.", 413)
    found = []
    for place, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise Wrong(f"row {place} must be an object of columns, not {_shown(row)}.")
        for field in fields:
            if field.name not in row:
                wanted = [field.name for field in fields]
                raise Wrong(f"row {place} lacks {field.name!r}; the model has {_shown(wanted)}.")
        found.append([field.read(row[field.name], place, missing) for field in fields])
    return found


def as_table(values: list[list[Any]], fields: list[Field], *, named: bool) -> Any:
    """A table of checked rows."""
    import numpy as np
    import pandas as pd

    if all(field.choices is None for field in fields):
        return np.array(
            values, dtype=float
        )  # in the model's order, so it needs no names; None: NaN
    columns: dict[str, Any] = {}
    for field, column in zip(fields, zip(*values, strict=True), strict=True):
        if field.choices is None:
            columns[field.name] = np.array(column, dtype=float)
        else:
            columns[field.name] = pd.Categorical(column, categories=field.choices)
    table = pd.DataFrame(columns)
    return table if named else table.to_numpy()


def _shown(value: Any) -> str:
    """A value for a message, never long."""
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
