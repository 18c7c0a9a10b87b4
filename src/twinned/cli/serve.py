"""`twinned serve`: a saved twin as a local page and JSON service."""

from __future__ import annotations

import socket
from typing import Annotated

import typer

from twinned.cli._errors import one_clear_line
from twinned.cli.options import SavedModel
from twinned.cli.predict import load_twin
from twinned.exceptions import MissingExtraError


def serve_command(
    model: SavedModel,
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Where to listen; 0: any free.")
    ] = 8000,
) -> None:
    """Serve a saved twin on this machine: a form, predictions, comparables, and JSON.

    The service listens on 127.0.0.1 only. Its description for machines is /openapi.json.

    For example:

        twinned serve houses.twin

        curl -s localhost:8000/about
    """
    with one_clear_line():
        try:
            import uvicorn

            from twinned.serve import make_app
        except ImportError:
            raise MissingExtraError(
                "serve needs uvicorn and starlette: pip install 'twinned[serve]'."
            ) from None
        app = make_app(load_twin(model), model.name)
        listening = socket.socket()
        try:
            listening.bind(("127.0.0.1", port))
        except OSError:
            raise OSError(f"port {port} is taken; name another with --port.") from None
        place = f"http://127.0.0.1:{listening.getsockname()[1]}"
        typer.echo(f"{place} serves {model.name}; stop it with Ctrl-C.")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
