"""What comes in, as a table that the model can take; or a message that says what is wrong."""

from __future__ import annotations

import csv
import io
import json
import math
from typing import Any, NamedTuple

MOST_ROWS = 1_000
MOST_BYTES = 1_000_000
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
        if value is None or (isinstance(value, str) and value.strip().lower() in _MISSING):
            if missing:
                return None
            raise Wrong(f"row {row}: {self.name!r} has no value, and the model needs one.")
        if self.choices is not None:
            return self._choice(value, row)
        if isinstance(value, bool) or not isinstance(value, (int, float, str)):
            raise Wrong(f"row {row}: {self.name!r} must be a number, not {_shown(value)}.")
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number) or abs(number) > 1e300:
            raise Wrong(f"row {row}: {self.name!r} must be a number, not {_shown(value)}.")
        return number

    def _choice(self, value: Any, row: int) -> Any:
        for choice in self.choices or ():
            if value == choice or str(value) == str(choice):
                return choice
        some = ", ".join(map(str, (self.choices or [])[:8]))
        raise Wrong(f"row {row}: {self.name!r} must be one of {some}, not {_shown(value)}.")


def fields_of(twin: Any) -> list[Field]:
    """The columns that a fitted twin wants."""
    columns = twin._columns
    names = getattr(twin, "feature_names_in_", [f"x{i}" for i in range(columns.n_features)])
    return [
        Field(str(name), None if kind == "number" else list(known))
        for name, kind, known in zip(names, columns.kinds, columns.categories, strict=True)
    ]


def read_json(body: bytes) -> list[Any]:
    """The rows of {"rows": [...]}."""
    try:
        told = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise Wrong('the body must be JSON: {"rows": [{column: value, …}, …]}.', 400) from None
    if not isinstance(told, dict) or not isinstance(told.get("rows"), list):
        raise Wrong('the body must be an object with a list "rows".')
    if set(told) != {"rows"}:
        other = sorted(set(told) - {"rows"})[0]
        raise Wrong(f'the body may have "rows" only, but has {_shown(other)}.')
    return told["rows"]


def _no_constant(text: str) -> Any:
    raise ValueError(text)


def read_csv(body: bytes) -> list[Any]:
    """The rows of a CSV file with a header line."""
    try:
        text = body.decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if any(row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise Wrong(f"the body must be CSV in UTF-8: {error}.", 400) from None
    if not rows:
        raise Wrong("the table is empty; its first line should name the columns.")
    header, *lines = rows
    header = [name.strip() for name in header]
    for place, line in enumerate(lines, 1):
        if len(line) != len(header):
            raise Wrong(f"row {place} has {len(line)} fields, but the header names {len(header)}.")
    return [dict(zip(header, line, strict=True)) for line in lines]


def as_table(rows: list[Any], fields: list[Field], *, missing: bool, named: bool) -> Any:
    """A table of the model's own columns, checked cell by cell."""
    import numpy as np
    import pandas as pd

    if not rows:
        raise Wrong("there are no rows.")
    if len(rows) > MOST_ROWS:
        raise Wrong(f"{len(rows):,} rows are too many; at most {MOST_ROWS:,} at once.", 413)
    wanted = [field.name for field in fields]
    for place, row in enumerate(rows, 1):
        if not isinstance(row, dict):
            raise Wrong(f"row {place} must be an object of columns, not {_shown(row)}.")
        absent = [name for name in wanted if name not in row]
        if absent:
            raise Wrong(f"row {place} lacks {_shown(absent[0])}; the model has {_shown(wanted)}.")
    read = {
        field.name: [field.read(row[field.name], i, missing) for i, row in enumerate(rows, 1)]
        for field in fields
    }
    columns: dict[str, Any] = {}
    for field in fields:
        if field.choices is None:
            columns[field.name] = np.array(
                [np.nan if value is None else value for value in read[field.name]], dtype=float
            )
        else:
            columns[field.name] = pd.Categorical(read[field.name], categories=field.choices)
    table = pd.DataFrame(columns)
    return table if named else table.to_numpy()


def _shown(value: Any) -> str:
    """A value for a message, never long."""
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
