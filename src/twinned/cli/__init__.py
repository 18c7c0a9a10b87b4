"""The command line, `twinned`: one file per command.

Libraries that take long to import are imported inside the commands, so that help is quick.
"""

import sys
from typing import Annotated

import typer

from twinned._version import __version__
from twinned.cli._errors import say
from twinned.cli.fit import fit_command
from twinned.cli.predict import predict_command

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a bug shows its plain traceback
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"twinned {__version__}")
        raise typer.Exit


@app.callback()
def _twinned(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Twinned regression: learn differences between points, predict from anchors.

    Learn from a table, then predict the rows of another:

        twinned fit houses.csv --target price -o houses.twin

        twinned predict houses.twin new.csv --std -o prices.csv

    Each command has its own help, such as twinned fit --help.
    """


app.command("fit", no_args_is_help=True)(fit_command)
app.command("predict", no_args_is_help=True)(predict_command)


@app.command(
    "datasets",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _datasets(context: typer.Context) -> None:
    """List, fetch and show the data sets of the paper."""
    # Handed on rather than mounted: mounting would import pandas for every `twinned --help`.
    from twinned.cli.datasets import app as datasets

    code = datasets(args=context.args, prog_name="twinned datasets", standalone_mode=False)
    raise typer.Exit(code or 0)


@app.command(
    "reproduce",
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
)
def _reproduce(context: typer.Context) -> None:
    """Run the paper's tables and figures, and set ours beside what it printed."""
    from twinned.cli.reproduce import app as reproduce

    code = reproduce(args=context.args, prog_name="twinned reproduce", standalone_mode=False)
    raise typer.Exit(code or 0)


# What a wrong call raises: click's own class, or that of the copy that newer typers bring along.
_WrongCall: type[Exception] = typer.BadParameter.__bases__[0]


def main() -> None:
    """The entry point of the command `twinned`; a wrong call, too, is told in one line."""
    try:
        sys.exit(app(prog_name="twinned", standalone_mode=False))
    except _WrongCall as error:
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            print(str(error), file=sys.stderr)
        else:
            command = context.command_path if context else "twinned"
            say("error", f"{error.format_message()} Try {command} --help.")  # type: ignore[attr-defined]
        sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        say("error", "interrupted.")
        sys.exit(130)
