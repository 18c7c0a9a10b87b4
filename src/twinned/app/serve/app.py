"""The ASGI application: a web page, its OpenAPI description, and the JSON and CSV endpoints.

The service is meant for one machine. It accepts only requests to local host names, so that a
foreign page cannot reach it by DNS rebinding, and bounds the size of a request and the time in
which it must arrive.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
from html import escape
from importlib.resources import files
from typing import Any

from sklearn.base import BaseEstimator
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from twinned._version import __version__
from twinned.app.serve.batching import MicroBatcher
from twinned.app.serve.errors import BadRequest
from twinned.app.serve.openapi import WARNINGS_HEADER, openapi_description
from twinned.app.serve.requests import (
    MAX_BODY_BYTES,
    parse_confidence,
    parse_json_body,
    parse_table_body,
)
from twinned.app.serve.server import READ_SECONDS, RejectAmbiguousLength
from twinned.app.serve.service import PredictionService
from twinned.rows.formatting import number_text

MAX_WARNINGS = 10  # in the header of a CSV response
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
        With one output; or a `TransformedTargetRegressor` around a twin, with log and exp.
    name : str, default="model"
        The title of the page.
    """
    endpoints = _Endpoints(PredictionService(model, name))
    return Starlette(
        routes=[
            Route("/", endpoints.page),
            Route("/openapi.json", endpoints.openapi),
            Route("/about", endpoints.about),
            Route("/predict", endpoints.predict, methods=["POST"]),
            Route("/explain", endpoints.explain, methods=["POST"]),
            Route("/batch", endpoints.batch, methods=["POST"]),
        ],
        middleware=[
            Middleware(RejectAmbiguousLength),
            Middleware(TrustedHostMiddleware, allowed_hosts=LOCAL_HOSTS),
        ],
        exception_handlers={BadRequest: _error_response, ClientDisconnect: _no_response},
    )


class _Endpoints:
    """One method per route of the application."""

    def __init__(self, service: PredictionService) -> None:
        self._service = service
        self._batcher = MicroBatcher(service)
        self._page = _render_page(service.name)
        self._openapi = json.dumps(openapi_description(service.name, service.schema))

    async def page(self, request: Request) -> Response:
        return HTMLResponse(self._page, headers=_PAGE_HEADERS)

    async def openapi(self, request: Request) -> Response:
        return Response(self._openapi, media_type="application/json")

    async def about(self, request: Request) -> Response:
        return _json_response(self._service.about())

    async def predict(self, request: Request) -> Response:
        rows, confidence = parse_json_body(await _read_body(request))
        parsed = self._service.schema.parse_rows(rows)
        columns, warnings = await self._predict_columns(parsed, confidence)
        return _json_response({**columns, **({"warnings": warnings} if warnings else {})})

    async def explain(self, request: Request) -> Response:
        rows, _ = parse_json_body(await _read_body(request))
        parsed = self._service.schema.parse_rows(rows)
        comparables = await asyncio.to_thread(self._service.explain, parsed)
        applicability = await asyncio.to_thread(self._service.applicability, parsed)
        share = [sum(one["weight"] for one in own) for own in comparables]
        content = {"comparables": comparables, "share": share, "applicability": applicability}
        warnings = self._service.schema.warnings(parsed)
        return _json_response({**content, **({"warnings": warnings} if warnings else {})})

    async def batch(self, request: Request) -> Response:
        confidence = parse_confidence(request.query_params.get("confidence"))
        schema = self._service.schema
        table = await asyncio.to_thread(parse_table_body, await _read_body(request))
        parsed, notes = await asyncio.to_thread(schema.parse_table, table)
        columns, warnings = await self._predict_columns(parsed, confidence)
        warnings = notes + warnings
        copied = schema.copied_columns(table)
        if taken := [name for name in columns if name in copied]:
            raise BadRequest(f"the table has a column {taken[0]!r}, as the result has; rename it.")
        texts = [
            [one if isinstance(one, str) else number_text(one) for one in values]
            for values in columns.values()
        ]
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*copied, *columns])
        writer.writerows(zip(*copied.values(), *texts, strict=True))
        # proxies refuse long headers
        headers = {WARNINGS_HEADER: json.dumps(warnings[:MAX_WARNINGS])} if warnings else None
        return PlainTextResponse(
            text.getvalue(), headers=headers, media_type="text/csv; charset=utf-8"
        )

    async def _predict_columns(
        self, parsed: list[list[Any]], confidence: float | None
    ) -> tuple[dict[str, list[Any]], list[str]]:
        """Return the columns of predictions of parsed rows, and warnings.

        With a confidence, rows are also classified as inside, at the edge or outside.
        """
        self._service.check_intervals_available(confidence)
        predictions = await self._batcher.predict(parsed, intervals=confidence is not None)
        columns: dict[str, list[Any]] = {**self._service.to_columns(predictions, confidence)}
        if confidence is not None:
            classified = await asyncio.to_thread(self._service.applicability, parsed)
            columns["applicability"] = [one["label"] for one in classified]
        return columns, self._service.schema.warnings(parsed)


async def _read_body(request: Request) -> bytes:
    parts, size = [], 0
    try:
        async with asyncio.timeout(READ_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MAX_BODY_BYTES:
                    raise BadRequest(f"the body is larger than {MAX_BODY_BYTES:,} bytes.", 413)
                parts.append(part)
    except TimeoutError:
        message = f"the body did not arrive within {READ_SECONDS:g} seconds."
        raise BadRequest(message, 408) from None
    return b"".join(parts)


def _json_response(content: dict[str, Any], status: int = 200) -> Response:
    text = json.dumps(content, allow_nan=False)
    # a rest of the body may still be under way
    headers = {"Connection": "close"} if status in (408, 413) else None
    return Response(text, status, headers, media_type="application/json")


async def _error_response(request: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    return _json_response({"error": str(error)}, error.status)


async def _no_response(request: Request, error: Exception) -> Response:
    """The response to a client that has left; it is not sent."""
    return Response(status_code=400)


def _render_page(name: str) -> str:
    def read(package: str, file: str) -> str:
        return files(package).joinpath(file).read_text("utf-8")

    page = read("twinned.app.serve", "page.html")
    page = page.replace("{{style}}", read("twinned.app.report", "page.css"))
    page = page.replace("{{script}}", read("twinned.app.serve", "page.js"))
    return page.replace("{{name}}", escape(name)).replace("{{version}}", __version__)
