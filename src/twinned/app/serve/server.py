"""The server of the application: its socket, time limits of requests, and ambiguous requests."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Any

import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from twinned._compat import has_request_in_progress

READ_SECONDS = 10.0
"""Seconds in which a client must send the head of a request, and its body."""


def open_listener(port: int, host: str = "127.0.0.1") -> socket.socket:
    """A listening socket; port 0 is any free one.

    A port can be used again directly after the service that used it has stopped.
    """
    listener = socket.socket()
    if os.name == "posix":  # on Windows, the option would allow two services on one port
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise OSError(f"port {port} is taken; choose another with --port.") from error
    return listener


def make_server(app: ASGIApp, read_seconds: float = READ_SECONDS) -> uvicorn.Server:
    """The uvicorn server of an application, which closes connections that send no request."""
    config = uvicorn.Config(app, log_level="warning")
    config.load()
    config.http_protocol_class = limit_read_time(config.http_protocol_class, read_seconds)
    return uvicorn.Server(config)


def limit_read_time(base: Any, seconds: float) -> type[asyncio.Protocol]:
    """A subclass of uvicorn's HTTP protocol that closes connections with incomplete heads.

    uvicorn limits the time between two requests, but not that in which a client sends the head of
    one. The time of the body is limited by the application.
    """

    class TimedProtocol(base):
        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._start_timer(transport)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if has_request_in_progress(self):
                self._cancel_timer()
            elif self._timer is None:
                self._start_timer(self.transport)

        def _start_timer(self, transport: asyncio.Transport) -> None:
            # of a connection that is closed by then, `abort` does nothing
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(seconds, transport.abort)

        def _cancel_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return TimedProtocol


class RejectAmbiguousLength:
    """Middleware that rejects requests with both Transfer-Encoding and Content-Length.

    HTTP parsers differ in which of the two they follow, by which one request can hide another.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        names = {name.lower() for name, _ in scope.get("headers", ())}
        if {b"transfer-encoding", b"content-length"} <= names:
            response = Response("Invalid HTTP request received.", 400, {"Connection": "close"})
            await response(scope, receive, send)
            return
        await self._app(scope, receive, send)
