"""`twinned serve`: serve a saved twin on this machine."""

import warnings
from typing import Annotated

import typer

from twinned.app.cli.messages import printable
from twinned.app.cli.options import SavedModel
from twinned.exceptions import install_extra, require_extra


def serve_command(
    model: SavedModel,
    port: Annotated[
        int, typer.Option("--port", "-p", min=0, max=65535, help="Port; 0 is any free one.")
    ] = 8000,
) -> None:
    """Serve a saved twin on this machine: a form, predictions, comparables, and JSON.

    The service listens on 127.0.0.1 only.

    For example:

        twinned serve houses.twin

        curl -s localhost:8000/about
    """
    from twinned.app.cli.saved_model import load_predictor

    with require_extra(f"serve needs further libraries: {install_extra('serve')}."):
        from twinned.app.serve.app import make_app, make_server, open_listener
    service = make_app(load_predictor(model).model, model.name)
    listener = open_listener(port)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    typer.echo(f"{url} serves {printable(model.name)}; stop it with Ctrl-C.")
    warnings.simplefilter("ignore", UserWarning)  # the responses have those of predictions
    make_server(service).run(sockets=[listener])
