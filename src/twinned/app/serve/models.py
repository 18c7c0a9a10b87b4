"""Requests as pydantic models, and their rows as tables."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, ClassVar, TypeVar

import pydantic
from pydantic import BaseModel, Field, ValidationError
from pydantic_core import ErrorDetails

from twinned.app.serve.inputs import Json
from twinned.app.tables.header import cell_text
from twinned.app.tables.numbers import PLAIN
from twinned.app.tables.table import Table, TableError, join_names
from twinned.exceptions import MissingExtraError

MAX_ROWS = 1_000
MAX_KNOWN_ROWS = 10
MAX_PROPOSALS = _MAX_CONSTRAINTS = 20
_LOGGER = logging.getLogger("twinned")

# In a message: quoted names and cells, which stay as they are, and dashes of an option.
_OPTION = re.compile(r"""('[^']*'|"[^"]*")|--(?=[a-z])""")

Number = Annotated[float, Field(allow_inf_nan=False)]
Confidence = Annotated[Number, Field(gt=0, lt=1)]
Model = TypeVar("Model", bound=BaseModel)


class BadRequest(ValueError):
    """A request that cannot be processed: an HTTP status and one sentence."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def refuse_value_errors() -> Iterator[None]:
    """Report what a table or the model rejects, for instance a value too large, in one line.

    Options of the command line that a message names are parameters of `/batch`.
    """
    try:
        yield
    except BadRequest:
        raise
    except (ValueError, TypeError, MissingExtraError) as error:
        _LOGGER.debug("A request was rejected.", exc_info=True)
        message = str(error).splitlines()[0] if isinstance(error, TableError) else str(error)
        text = _OPTION.sub(lambda match: match[1] or "the parameter ", message)
        raise BadRequest(" ".join(text.split())[:300]) from error


def short_repr(value: object) -> str:
    """Return the repr of a value, cut to 80 characters."""
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


class TableRequest(BaseModel):
    """The parameters of a request for a table: with a confidence, intervals and applicability."""

    model_config: ClassVar[pydantic.ConfigDict] = pydantic.ConfigDict(extra="forbid")
    confidence: Confidence | None = None
    known: Annotated[list[Json], Field(max_length=MAX_KNOWN_ROWS)] = []


class RowsRequest(TableRequest):
    """Rows to predict or explain; with a confidence, also intervals and applicability."""

    rows: Annotated[list[Json], Field(min_length=1, max_length=MAX_ROWS)]


class SolveRequest(BaseModel):
    """The row to be changed, or the number of a known case, from 0; and the wanted target: a
    number, ">= 60", "<= 5", "40..60", "max" or "min". `bounds` are [lowest, highest] by column,
    `constraints` such as "a + b + c = 100".

    With a confidence, the prediction interval must be as wanted, not only the prediction.
    """

    model_config: ClassVar[pydantic.ConfigDict] = pydantic.ConfigDict(extra="forbid")
    target: Number | str
    near: Json | Annotated[int, Field(ge=0, strict=True)]
    fixed: list[str] = []
    bounds: dict[str, tuple[Number | None, Number | None]] = {}
    constraints: Annotated[list[str], Field(max_length=_MAX_CONSTRAINTS)] = []
    n: Annotated[int, Field(ge=1, le=MAX_PROPOSALS)] = 5
    confidence: Confidence | None = None
    known: Annotated[list[Json], Field(max_length=MAX_KNOWN_ROWS)] = []


def parse_request(model: type[Model], content: object) -> Model:
    """Return the body of a request as a model; raise `BadRequest` where it is not one."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        raise _to_bad_request(model, error.errors()[0]) from None


def _to_bad_request(model: type[BaseModel], error: ErrorDetails) -> BadRequest:
    """Return an error of pydantic as one sentence."""
    location, kind, message = error["loc"], error["type"], error["msg"]
    fields = join_names(list(model.model_fields))
    if not location:
        return BadRequest(f"the body must be a JSON object with {fields}.")
    name = repr(location[0])
    if kind == "missing" and len(location) == 1:
        return BadRequest(f"{name} is needed.")
    if kind == "extra_forbidden":
        return BadRequest(f"{short_repr(location[0])} is unknown; use {fields}.")
    if kind == "too_long":
        listed = "known rows" if location[0] == "known" else location[0]
        most = error["ctx"]["max_length"]
        return BadRequest(f"there are too many {listed}; send at most {most:,}.", 413)
    if len(location) == 2 and isinstance(location[1], int):
        name += f", item {location[1] + 1}"
    reason = f"{message[0].lower()}{message[1:]}, not {short_repr(error['input'])}"
    return BadRequest(f"{name}: {reason}.")


def rows_table(rows: list[Json], title: str = "the request") -> Table:
    """Return rows of JSON as the table that the commands read from a file of the same cells.

    Numbers have a decimal point, and null is a missing value. All rows must have the same names.
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    for number, row in enumerate(rows, start=1):
        if absent := [name for name in names if name not in row]:
            raise BadRequest(f"{title}, row {number} lacks {absent[0]!r}, which another row has.")
    columns = [
        [
            _cell(row[name], f"{title}, row {number}, column {name!r}")
            for number, row in enumerate(rows, start=1)
        ]
        for name in names
    ]
    return Table(
        path=Path(title),
        names=names,
        columns=columns,
        lines=list(range(1, len(rows) + 1)),
        line_word="row",
        formats=[PLAIN] * len(names),
        is_file=False,
    )


def _cell(value: object, location: str) -> str:
    """Return a number, text, truth value or null as the text of a cell."""
    if value is not None and not isinstance(value, str | int | float):
        raise BadRequest(f"{location} must be a number or text, not {short_repr(value)}.")
    text = cell_text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise BadRequest(f"{location}: {short_repr(value)} is no text.") from None
    return text
