"""The ASGI application and its server: a web page, and the JSON and CSV endpoints.

The service is meant for one machine. It accepts only requests to local host names, so that a
foreign page cannot reach it by DNS rebinding, and bounds the size of a request, the time in which
it must arrive, and the time of its answer.
"""

from __future__ import annotations

import asyncio
import io
import json
import socket
from contextlib import suppress
from functools import lru_cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import uvicorn
from sklearn.base import BaseEstimator
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from twinned._compat import has_request_in_progress
from twinned._version import __version__
from twinned.app.serve.models import (
    BadRequest,
    Json,
    KnownRows,
    ParsedRequest,
    SolveRequest,
    openapi_description,
    refuse_value_errors,
    short_repr,
)
from twinned.app.serve.service import MicroBatcher, PredictionService, in_thread, in_turn
from twinned.app.tables.frames import copied_columns
from twinned.app.tables.reader import parse_table
from twinned.app.tables.table import ReadOptions, Table, to_csv

READ_SECONDS = 10.0
"""Seconds in which a client must send the head of a request, and its body."""
MAX_BODY_BYTES = 1_000_000
MAX_FILE_BYTES = 50_000_000
_MAX_CELLS = 5_000_000  # of an Excel file
_MAX_UNPACKED_BYTES = 200_000_000  # of the parts of an Excel file, which is a zip file
_READ_OPTIONS = ("decimal", "thousands", "sheet", "separator", "encoding", "missing")
WARNINGS_HEADER = "X-Twinned-Warnings"  # of a CSV response: a JSON list in ASCII
MAX_WARNINGS = 10  # in the header of a CSV response: proxies refuse long ones
LOCAL_HOSTS = ["127.0.0.1", "localhost", "[::1]"]
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
}


def make_app(model: BaseEstimator, name: str = "model") -> Starlette:
    """Return the ASGI application that serves a fitted twin.

    Parameters
    ----------
    model : fitted twin
        With one output; or a `LogTargetRegressor`.
    name : str, default="model"
        The title of the page.
    """
    service = PredictionService(model, name)
    endpoints = _Endpoints(service)
    openapi = _json_response(openapi_description(name, service.target, service.schema))
    return Starlette(
        routes=[
            Route("/", _render_page("page", service), methods=["GET"]),
            Route("/docs", _render_page("docs", service), methods=["GET"]),
            Route("/openapi.json", openapi, methods=["GET"]),
            Route("/about", _json_response(service.about()), methods=["GET"]),
            Route("/predict", endpoints.predict, methods=["POST"]),
            Route("/explain", endpoints.explain, methods=["POST"]),
            Route("/batch", endpoints.batch, methods=["POST"]),
            Route("/solve", endpoints.solve, methods=["POST"]),
        ],
        middleware=[
            Middleware(reject_ambiguous_length),
            Middleware(TrustedHostMiddleware, allowed_hosts=LOCAL_HOSTS),
        ],
        # the response to a client that has left is not sent
        exception_handlers=dict.fromkeys((BadRequest, ClientDisconnect, Exception), _answer_error),
    )


class _Endpoints:
    """One method per route that computes predictions."""

    def __init__(self, service: PredictionService) -> None:
        self.service, self.schema = service, service.schema
        self._batcher = MicroBatcher(service)
        self._extend = lru_cache(maxsize=2)(service.with_known)  # a page sends the same rows again

    async def _with_known(self, known: KnownRows) -> _Endpoints:
        """Those of the model with further known rows."""
        return _Endpoints(await in_thread(self._extend, known)) if known else self

    async def predict(self, request: Request) -> Response:
        parsed = self.schema.parse_rows(_parse_json(await _read_body(request)))
        own = await self._with_known(parsed.known)
        columns = await own.predict_columns([parsed])
        return _json_response(columns, warnings=own.schema.warnings(parsed.rows))

    async def explain(self, request: Request) -> Response:
        rows, _, known = self.schema.parse_rows(_parse_json(await _read_body(request)))
        own = await self._with_known(known)
        explained = await in_thread(own.service.explain, rows)
        content = {name: [each[name] for each in explained] for name in explained[0]}
        content["applicability"] = await in_thread(own.service.applicability, rows)
        return _json_response(content, warnings=own.schema.warnings(rows))

    async def solve(self, request: Request) -> Response:
        needed = 'the body must be JSON: {"target": ">= 60", "near": {name: value, …}, …}.'
        wanted = SolveRequest.parse(_parse_json(await _read_body(request), needed))
        near = self.service.known_case(wanted.near) if isinstance(wanted.near, int) else wanted.near
        content = {"rows": [near], **({"known": wanted.known} if wanted.known else {})}
        rows, _, known = self.schema.parse_rows(content)
        own = await self._with_known(known)
        proposals = await in_turn(own.service.solve, wanted, rows[0])
        notes = own.schema.warnings(rows)
        if not any(each["reached"] for each in proposals):
            notes.append("No row was found that reaches the target; these are the closest ones.")
        return _json_response({"proposals": proposals}, warnings=notes)

    async def batch(self, request: Request) -> Response:
        body, query = await _read_body(request, MAX_FILE_BYTES), request.query_params
        missing = frozenset(map(str.casefold, query.getlist("missing")))
        options: Json = {**query, "missing": missing}
        given: Json = {"confidence": options.pop("confidence", None)}
        if (known := options.pop("known", None)) is not None:
            needed = "the parameter known must be JSON: [{name: value, …}, …]."
            given["known"] = _parse_json(known.encode(), needed)
        table = await in_thread(_parse_file, body, options, self.schema.names)
        batches, notes = await in_thread(self.schema.parse_table, table, given)
        own = await self._with_known(batches[0].known)
        columns = await own.predict_columns(batches)
        text = await in_thread(self._to_csv, table, columns)
        all_rows = [row for each in batches for row in each.rows]
        notes += await in_thread(own.schema.warnings, all_rows)
        headers = {WARNINGS_HEADER: json.dumps(notes[:MAX_WARNINGS])} if notes else None
        return PlainTextResponse(text, headers=headers, media_type="text/csv; charset=utf-8")

    def _to_csv(self, table: Table, columns: Json) -> bytes:
        """Return the columns of a table and those of its predictions as CSV."""
        copied = copied_columns(table, self.schema.names, self.schema.categories)
        if taken := [name for name in columns if name in copied]:
            raise BadRequest(f"the table has a column {taken[0]!r}, as the result has; rename it.")
        return to_csv({**copied, **columns})

    async def predict_columns(self, batches: list[ParsedRequest]) -> Json:
        """Return the columns of predictions of the rows, which are computed batch by batch.

        With a confidence, rows are also classified as inside, at the edge or outside.
        """
        confidence = batches[0].confidence
        if confidence is not None:
            self.service.calibration(confidence)  # before the prediction, as it may be refused
        intervals = confidence is not None
        predictions = [await self._batcher.predict(each.rows, intervals) for each in batches]
        columns: Json = self.service.to_columns(np.concatenate(predictions), confidence)
        if intervals:
            rate = self.service.applicability
            classified = [await in_thread(rate, each.rows) for each in batches]
            columns["applicability"] = [one["label"] for some in classified for one in some]
        return columns


async def _read_body(request: Request, max_bytes: int = MAX_BODY_BYTES) -> bytes:
    parts, size = [], 0
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > max_bytes:
                    raise BadRequest(f"the body is larger than {max_bytes:,} bytes.", 413)
                parts.append(part)
    except TimeoutError:
        raise BadRequest(f"the body did not arrive within {READ_SECONDS:g} seconds.", 408) from None
    return b"".join(parts)


def _parse_json(
    body: bytes, needed: str = 'the body must be JSON: {"rows": [{name: value, …}, …]}.'
) -> object:
    def refuse_constant(text: str) -> None:
        raise ValueError(text)  # NaN and Infinity are not JSON

    try:
        return json.loads(body.decode("utf-8"), parse_constant=refuse_constant)
    except (ValueError, RecursionError):
        raise BadRequest(needed, 400) from None


def _json_response(content: Json, status: int = 200, warnings: list[str] | None = None) -> Response:
    if warnings:
        content = {**content, "warnings": warnings}
    # a rest of the body may still be under way
    headers = {"Connection": "close"} if status in (408, 413) else None
    text = json.dumps(content, allow_nan=False)
    return Response(text, status, headers, media_type="application/json")


async def _answer_error(request: Request, error: Exception) -> Response:
    """The response to a bad request, or to one with any other error, which the server logs."""
    if not isinstance(error, BadRequest):
        error = BadRequest("the service failed on this request; see its log.", 500)
    return _json_response({"error": str(error)}, error.status)


def _render_page(page: str, service: PredictionService) -> Response:
    """The response with a page, which contains its style and scripts."""

    def read(file: str, package: str = "twinned.app.serve") -> str:
        return files(package).joinpath(file).read_text("utf-8")

    text = read(f"{page}.html").replace("{{style}}", read("page.css", "twinned.app.report"))
    text = text.replace("{{script}}", read("elements.js") + read(f"{page}.js"))
    text = text.replace("{{version}}", __version__).replace("{{name}}", escape(service.name))
    return HTMLResponse(text.replace("{{target}}", escape(service.target)), headers=_PAGE_HEADERS)


def _parse_file(body: bytes, options: dict[str, Any], names: list[str]) -> Table:
    """Return a CSV or Excel file as a table; what `options` do not specify is detected.

    As by `twinned predict`, the sheet and the row of names are found by the `names` of features.
    """
    if unknown := [name for name in options if name not in _READ_OPTIONS]:
        known = ", ".join(("confidence", *_READ_OPTIONS, "known"))
        raise BadRequest(f"the parameter {short_repr(unknown[0])} is unknown; use {known}.")
    if body.startswith(b"PAR1"):
        raise BadRequest("a Parquet file is not accepted; send CSV, or use twinned predict.", 400)
    _check_unpacked_size(body)
    with refuse_value_errors():
        reading = ReadOptions(**options, expected=frozenset(names))
        return parse_table(Path("the table"), body, reading, _MAX_CELLS)


def _check_unpacked_size(body: bytes) -> None:
    """Reject a small Excel file of much content, as its reader would need too much memory."""
    size = 0
    # another file is no zip file, and a damaged one may raise anything; their readers report it
    with suppress(Exception), ZipFile(io.BytesIO(body)) as parts:
        size = sum(part.file_size for part in parts.infolist())
    if size > _MAX_UNPACKED_BYTES:
        raise BadRequest(f"the unpacked table has {size / 1e6:,.0f} MB; send a smaller one.", 413)


def open_listener(port: int, host: str = "127.0.0.1") -> socket.socket:
    """A listening socket; port 0 is any free one.

    A port can be used again directly after the service that used it has stopped.
    """
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise OSError(f"port {port} is taken; choose another with --port.") from error


def make_server(app: ASGIApp, read_seconds: float = READ_SECONDS) -> uvicorn.Server:
    """The uvicorn server of an application, which closes connections with incomplete heads.

    uvicorn limits the time between two requests, but not that in which a client sends the head of
    one. The time of the body is limited by the application.
    """

    class TimedProtocol(AutoHTTPProtocol):  # type: ignore[valid-type,misc]
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._start_timer(transport)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if not has_request_in_progress(self):
                self._start_timer(self.transport)
            elif self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _start_timer(self, transport: asyncio.Transport) -> None:
            if self._timer is None:  # of a connection that is closed by then, `abort` does nothing
                self._timer = asyncio.get_running_loop().call_later(read_seconds, transport.abort)

    return uvicorn.Server(uvicorn.Config(app, http=TimedProtocol, log_level="warning"))


def reject_ambiguous_length(app: ASGIApp) -> ASGIApp:
    """Middleware that rejects requests with both Transfer-Encoding and Content-Length.

    HTTP parsers differ in which of the two they follow, by which one request can hide another.
    """

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        names = {name.lower() for name, _ in scope.get("headers", ())}
        is_ambiguous = {b"transfer-encoding", b"content-length"} <= names
        response = Response("Invalid HTTP request received.", 400, {"Connection": "close"})
        await (response if is_ambiguous else app)(scope, receive, send)

    return call
