"""The ASGI application and its server: a web page, and the JSON endpoints.

The service is meant for one machine. It accepts only requests to local host names, so that a
foreign page cannot reach it by DNS rebinding, and bounds the size of a request and the time of its
answer.
"""

import json
import logging
import socket
from html import escape
from importlib.resources import files

import uvicorn
from sklearn.base import BaseEstimator
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from twinned._version import __version__
from twinned.app.prediction import FeatureRows, TablePredictor
from twinned.app.serve.requests import BadRequest, Json, parse_rows, rows_table
from twinned.app.serve.service import PredictionService, in_thread
from twinned.exceptions import MissingExtraError

MAX_CONNECTIONS = 1_000  # at a time; further requests get the status 503
MAX_BODY_BYTES = 1_000_000
_LOGGER = logging.getLogger("twinned")
_REFUSALS = (ValueError, TypeError, MissingExtraError)
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
        With one output; or a `TransformedTargetTwin`.
    name : str, default="model"
        The title of the page.
    """
    service = PredictionService(model, name)

    async def read(request: Request) -> tuple[FeatureRows, float | None]:
        """Return the rows of a request as the model takes them, and its confidence."""
        body = bytearray()
        async for part in request.stream():
            body += part
            if len(body) > MAX_BODY_BYTES:
                raise BadRequest(f"the body is larger than {MAX_BODY_BYTES:,} bytes.", 413)
        rows, confidence = parse_rows(bytes(body))
        return await in_thread(service.read, rows_table(rows)), confidence

    async def predict(request: Request) -> Response:
        rows, confidence = await read(request)
        columns = await in_thread(service.predict, rows, confidence)
        return _json_response(columns, warnings=rows.notes)

    async def explain(request: Request) -> Response:
        rows, _ = await read(request)
        return _json_response(await in_thread(service.explain, rows), warnings=rows.notes)

    return Starlette(
        routes=[
            Route("/", _render_page(service.predictor), methods=["GET"]),
            Route("/about", _json_response(service.about()), methods=["GET"]),
            Route("/predict", predict, methods=["POST"]),
            Route("/explain", explain, methods=["POST"]),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=LOCAL_HOSTS)],
        # the response to a client that has left is not sent
        exception_handlers=dict.fromkeys((*_REFUSALS, ClientDisconnect, Exception), _answer_error),
    )


def _json_response(content: Json, status: int = 200, warnings: list[str] | None = None) -> Response:
    if warnings:
        content = {**content, "warnings": warnings}
    # a rest of the body may still be under way
    headers = {"Connection": "close"} if status == 413 else None
    try:
        text = json.dumps(content, allow_nan=False)
    except ValueError:
        raise BadRequest("a prediction is not a finite number.") from None
    return Response(text, status, headers, media_type="application/json")


async def _answer_error(request: Request, error: Exception) -> Response:
    """The response to a bad request, or to one with any other error, which the server logs."""
    if isinstance(error, BadRequest):
        return _json_response({"error": str(error)}, error.status)
    if isinstance(error, _REFUSALS):  # of the table or the model, such as a value too large
        _LOGGER.debug("A request was rejected.", exc_info=error)
        return _json_response({"error": " ".join(str(error).split())[:300]}, 422)
    return _json_response({"error": "the service failed on this request; see its log."}, 500)


def _render_page(predictor: TablePredictor) -> Response:
    """The response with the page, which contains its style and scripts."""

    def read(file: str, package: str = "twinned.app.serve") -> str:
        return files(package).joinpath(file).read_text("utf-8")

    shared = "twinned.app.report"
    text = read("page.html").replace("{{style}}", read("page.css", shared))
    text = text.replace("{{script}}", read("elements.js", shared) + read("page.js"))
    text = text.replace("{{version}}", __version__).replace("{{name}}", escape(predictor.name))
    return HTMLResponse(text.replace("{{target}}", escape(predictor.target)), headers=_PAGE_HEADERS)


def open_listener(port: int, host: str = "127.0.0.1") -> socket.socket:
    """A listening socket; port 0 is any free one.

    A port can be used again directly after the service that used it has stopped.
    """
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise OSError(f"port {port} is taken; choose another with --port.") from error


def make_server(app: ASGIApp) -> uvicorn.Server:
    """The uvicorn server of an application."""
    config = uvicorn.Config(app, log_level="warning", limit_concurrency=MAX_CONNECTIONS)
    return uvicorn.Server(config)
