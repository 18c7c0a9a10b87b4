"""The service: a page, an OpenAPI description, and three questions that can be posted.

It is meant for one machine. It listens on loopback, answers only to local names, so that a page
from elsewhere cannot reach it through a name of its own, and bounds the size of what comes in.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
from importlib.resources import files
from typing import Any

from twinned._version import __version__
from twinned.serve.requests import (
    MOST_BYTES,
    MOST_ROWS,
    Wrong,
    read_confidence,
    read_csv,
    read_json,
)
from twinned.serve.service import Answers, Told

WORKERS = min(2, os.cpu_count() or 1)  # at once: trees are read without holding other threads up
LOCAL = ["127.0.0.1", "localhost", "[::1]"]
_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def make_app(model: Any, name: str = "model") -> Any:
    """The ASGI application around a fitted twin."""
    from starlette.applications import Starlette
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.requests import Request
    from starlette.responses import HTMLResponse, PlainTextResponse, Response
    from starlette.routing import Route

    answers = Answers(model, name)
    together = Together(answers)
    page = _page(answers)
    described = json.dumps(describe(answers)).encode()

    def as_json(told: Any, status: int = 200) -> Response:
        return Response(json.dumps(told), status, media_type="application/json")

    async def body_of(request: Request) -> bytes:
        parts, size = [], 0
        async for part in request.stream():
            size += len(part)
            if size > MOST_BYTES:
                raise Wrong(f"the body is larger than {MOST_BYTES:,} bytes.", 413)
            parts.append(part)
        return b"".join(parts)

    async def told_of(values: list[Any], confidence: float | None) -> dict[str, list[float]]:
        answers.check_confidence(confidence)
        told = await together.predict(values, intervals=confidence is not None)
        return answers.shown(told, confidence)

    async def predict(request: Request) -> Response:
        try:
            rows, confidence = read_json(await body_of(request))
            return as_json(await told_of(answers.checked(rows), confidence))
        except Wrong as wrong:
            return as_json({"error": str(wrong)}, wrong.status)

    async def explain(request: Request) -> Response:
        try:
            rows, _ = read_json(await body_of(request))
            return as_json(await asyncio.to_thread(answers.explain, rows))
        except Wrong as wrong:
            return as_json({"error": str(wrong)}, wrong.status)

    async def batch(request: Request) -> Response:
        try:
            confidence = read_confidence(request.query_params.get("confidence"))
            rows = read_csv(await body_of(request))
            told = await told_of(answers.checked(rows), confidence)
        except Wrong as wrong:
            return as_json({"error": str(wrong)}, wrong.status)
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*rows[0], *told])
        for row, *values in zip(rows, *told.values(), strict=True):
            writer.writerow([*row.values(), *map(repr, values)])
        return PlainTextResponse(out.getvalue(), media_type="text/csv; charset=utf-8")

    async def show_page(request: Request) -> Response:
        return HTMLResponse(page, headers={"Content-Security-Policy": _POLICY})

    async def show_description(request: Request) -> Response:
        return Response(described, media_type="application/json")

    async def about(request: Request) -> Response:
        return as_json(answers.about())

    return Starlette(
        routes=[
            Route("/", show_page),
            Route("/openapi.json", show_description),
            Route("/about", about),
            Route("/predict", predict, methods=["POST"]),
            Route("/explain", explain, methods=["POST"]),
            Route("/batch", batch, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=LOCAL)],
    )


class Together:
    """Predicts what waits at the same time in one go: a tree then serves many rows at once.

    While the model works, in one or two threads, further requests gather; nobody waits for others
    to come.
    """

    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._at_work, self._tasks = 0, set[asyncio.Task[None]]()
        self._waiting: list[tuple[list[list[Any]], bool, asyncio.Future[Any]]] = []

    async def predict(self, values: list[list[Any]], intervals: bool) -> Told:
        """What the model says of checked rows, with what `intervals` need or without."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((values, intervals, future))
        if self._at_work < WORKERS:
            self._at_work += 1
            task = asyncio.create_task(self._work())
            self._tasks.add(task)  # else it might be swept up before it is done
            task.add_done_callback(self._tasks.discard)
        told: Told = await future
        return told

    async def _work(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            if not await self._answer(batch):
                # something is wrong with one of them: each alone, so that the others are answered
                for one in batch:
                    await self._answer([one], last=True)
        self._at_work -= 1  # at once: who comes now must find a free worker, or start one

    async def _answer(self, batch: list[Any], last: bool = False) -> bool:
        """Answer all of a batch, or nobody; `last` tells those who asked what is wrong."""
        every = [row for values, _, _ in batch for row in values]
        intervals = any(asked for _, asked, _ in batch)
        try:
            told = await asyncio.to_thread(self._answers.predict, every, intervals)
        except Exception as error:
            future = batch[0][2]
            if last and not future.done():
                future.set_exception(error)
            return False
        start = 0
        for values, _, future in batch:
            rows = slice(start, start + len(values))
            start += len(values)
            if not future.done():  # who asked may have gone
                future.set_result(told.take(rows))
        return True


def _page(answers: Answers) -> str:
    from html import escape

    folder = files("twinned.serve")
    style = files("twinned.report").joinpath("page.css").read_text("utf-8")
    page = folder.joinpath("page.html").read_text("utf-8")
    script = folder.joinpath("page.js").read_text("utf-8")
    return (
        page.replace("{{style}}", style)
        .replace("{{script}}", script)
        .replace("{{name}}", escape(answers.name))
        .replace("{{version}}", __version__)
    )


def describe(answers: Answers) -> dict[str, Any]:
    """The OpenAPI description of the service around this model."""
    properties = {
        field.name: {"type": "number"}
        if field.choices is None
        else {"enum": [str(c) for c in field.choices]}
        for field in answers.fields
    }
    row = {"type": "object", "properties": properties, "required": list(properties)}
    level = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
    rows = {"type": "array", "items": row, "minItems": 1, "maxItems": MOST_ROWS}
    asked = {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "properties": {"rows": rows, "confidence": level},
                    "required": ["rows"],
                    "additionalProperties": False,
                }
            }
        },
    }
    names = ("prediction", "std", "low", "high")
    numbers = {name: {"type": "array", "items": {"type": "number"}} for name in names}
    wrong = {
        "description": "What is wrong, in one sentence.",
        "content": {
            "application/json": {
                "schema": {"type": "object", "properties": {"error": {"type": "string"}}}
            }
        },
    }
    problems = {str(status): wrong for status in (400, 413, 422)}

    def told(schema: dict[str, Any], kind: str = "application/json") -> dict[str, Any]:
        return {"200": {"description": "The answer.", "content": {kind: {"schema": schema}}}}

    table = {"text/csv": {"schema": {"type": "string"}}}
    return {
        "openapi": "3.1.0",
        "info": {"title": f"twinned: {answers.name}", "version": __version__},
        "paths": {
            "/about": {
                "get": {
                    "summary": "The model's columns",
                    "responses": told({"type": "object"}),
                }
            },
            "/predict": {
                "post": {
                    "summary": "Predictions and raw standard deviations, row by row; with a "
                    "confidence also the ends of intervals, where the model keeps scores",
                    "requestBody": asked,
                    "responses": told({"type": "object", "properties": numbers}) | problems,
                }
            },
            "/explain": {
                "post": {
                    "summary": "The comparable known cases of each row",
                    "requestBody": asked,
                    "responses": told({"type": "object"}) | problems,
                }
            },
            "/batch": {
                "post": {
                    "summary": "A CSV table with a header line, answered with more columns",
                    "parameters": [{"name": "confidence", "in": "query", "schema": level}],
                    "requestBody": {"required": True, "content": table},
                    "responses": told({"type": "string"}, "text/csv") | problems,
                }
            },
        },
    }
