"""`twinned serve`: a saved model as a local web page and JSON service."""

from __future__ import annotations

from typing import Annotated

import typer

from twinned.app.cli._errors import exit_on_bad_input, printable
from twinned.app.cli.options import KeyFile, SavedModel
from twinned.app.cli.prediction import load_twin
from twinned.exceptions import MissingExtraError


def serve_command(
    model: SavedModel,
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port; 0 is any free one.")
    ] = 8000,
    key_file: KeyFile = None,
) -> None:
    """Serve a saved twin on this machine: a form, predictions, comparables, and JSON.

    The service listens on 127.0.0.1 only. /openapi.json describes its interface.

    For example:

        twinned serve houses.twin

        curl -s localhost:8000/about
    """
    with exit_on_bad_input():
        try:
            from twinned.app.serve.app import make_app, make_server, open_listener
        except ImportError as error:
            raise MissingExtraError(
                "serve needs uvicorn, starlette and pydantic: pip install 'twinned[serve]'."
            ) from error
        app = make_app(load_twin(model, key_file), model.name)
        listener = open_listener(port)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    typer.echo(f"{url} serves {printable(model.name)}; stop it with Ctrl-C.")
    make_server(app).run(sockets=[listener])
