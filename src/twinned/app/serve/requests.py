"""Rows of requests as tables, and errors in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

from twinned.app.serve.inputs import Json
from twinned.app.tables.table import Table, cell_text

MAX_ROWS = 1_000


class BadRequest(ValueError):
    """A request that cannot be processed: an HTTP status and one sentence."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


def short_repr(value: object) -> str:
    """Return the repr of a value, cut to 80 characters."""
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


def parse_rows(body: bytes) -> tuple[list[Json], float | None]:
    """Return the rows and the confidence of the body of a request."""
    try:
        content = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        message = 'the body must be JSON: {"rows": [{name: value, …}, …]}.'
        raise BadRequest(message, 400) from None
    if not isinstance(content, dict):
        raise BadRequest("the body must be a JSON object with 'rows', 'confidence'.")
    if unknown := [name for name in content if name not in ("rows", "confidence")]:
        raise BadRequest(f"{short_repr(unknown[0])} is unknown; use 'rows', 'confidence'.")
    rows = content.get("rows")
    if not isinstance(rows, list) or not rows:
        raise BadRequest(f"'rows' must be a list of rows, not {short_repr(rows)}.")
    if len(rows) > MAX_ROWS:
        raise BadRequest(f"there are too many rows; send at most {MAX_ROWS:,}.", 413)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict):
            raise BadRequest(f"'rows', item {number} must be an object, not {short_repr(row)}.")
    value = content.get("confidence")
    if value is None or (isinstance(value, float) and 0 < value < 1):
        return rows, value
    raise BadRequest(f"'confidence' must be a number between 0 and 1, not {short_repr(value)}.")


def rows_table(rows: list[Json]) -> Table:
    """Return rows of JSON as the table that the commands read from a file of the same cells.

    Numbers have a decimal point, and null is a missing value. All rows must have the same names.
    """
    columns: dict[str, list[str]] = {name: [] for row in rows for name in row}
    for number, row in enumerate(rows, start=1):
        location = f"the request, row {number}"
        for name, cells in columns.items():
            if name not in row:
                raise BadRequest(f"{location} lacks {name!r}, which another row has.")
            value = row[name]
            if value is not None and not isinstance(value, str | int | float):
                wrong = f"must be a number or text, not {short_repr(value)}"
                raise BadRequest(f"{location}, column {name!r} {wrong}.")
            cells.append(cell_text(value))
    return Table(
        path=Path("the request"),
        names=list(columns),
        columns=list(columns.values()),
        lines=list(range(1, len(rows) + 1)),
        line_word="row",
        is_file=False,
    )
