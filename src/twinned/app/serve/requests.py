"""Parsing of the bodies of requests, which are JSON or a table, and of their options."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from twinned.app.serve.errors import BadRequest, short_repr, value_error_as_bad_request
from twinned.app.serve.inputs import to_number
from twinned.app.tables import ReadOptions, Table, parse_table
from twinned.exceptions import MissingExtraError

MAX_BODY_BYTES = 1_000_000
_MAX_CELLS = 1_000_000  # of an Excel file
_MAX_UNPACKED_BYTES = 10_000_000  # of the parts of an Excel file, which is a zip file


def parse_json_body(body: bytes) -> tuple[list[Any], float | None]:
    """Return the rows of {"rows": [...]}, and the confidence of intervals or None."""
    try:
        content = json.loads(body.decode("utf-8"), parse_constant=_reject_constant)
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise BadRequest('the body must be JSON: {"rows": [{name: value, …}, …]}.', 400) from None
    if not isinstance(content, dict) or not isinstance(content.get("rows"), list):
        raise BadRequest('the body must be an object with a list "rows".')
    if unknown := sorted(set(content) - {"rows", "confidence"}):
        raise BadRequest(f'{short_repr(unknown[0])} is unknown; use "rows" and "confidence".')
    return content["rows"], parse_confidence(content.get("confidence"))


def parse_confidence(value: Any) -> float | None:
    """Return the confidence as a number, or None where the request has none."""
    if value is None:
        return None
    confidence = math.nan if isinstance(value, bool) else to_number(value)
    if not 0 < confidence < 1:
        raise BadRequest(f"confidence must lie between 0 and 1, but is {short_repr(value)}.")
    return confidence


def parse_table_body(body: bytes) -> Table:
    """Return a CSV or Excel file as a table; its encoding and notation of numbers are detected."""
    if body.startswith(b"PAR1"):
        raise BadRequest("a Parquet file is not accepted; send CSV, or use twinned predict.", 400)
    _check_unpacked_size(body)
    try:
        with value_error_as_bad_request():
            return parse_table(Path("the table"), body, ReadOptions(), _MAX_CELLS)
    except MissingExtraError as error:
        raise BadRequest(str(error), 400) from None


def _check_unpacked_size(body: bytes) -> None:
    """Reject a small Excel file of much content, as its reader would need too much memory."""
    if not body.startswith(b"PK\x03\x04"):
        return
    try:
        with ZipFile(io.BytesIO(body)) as parts:
            size = sum(part.file_size for part in parts.infolist())
    except Exception:  # a damaged file may raise anything; its reader reports it
        return
    if size > _MAX_UNPACKED_BYTES:
        raise BadRequest(
            f"the table has {size / 1e6:,.0f} MB when it is unpacked; send a smaller one.", 413
        )


def _reject_constant(text: str) -> Any:
    raise ValueError(text)  # NaN and Infinity are not JSON
