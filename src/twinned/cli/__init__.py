"""The command line, `twinned`: one file per command.

Libraries that take long to import are imported inside the commands, so that help is quick.
"""

import os
import sys
from importlib import import_module
from typing import Annotated

import typer

from twinned._version import __version__
from twinned.cli._errors import say
from twinned.cli.advise import advise_command
from twinned.cli.fit import fit_command
from twinned.cli.predict import predict_command
from twinned.cli.serve import serve_command

# Threads of boosting that wait for each other by spinning take far longer on a busy machine, and no
# less on a quiet one. It counts if it is set before scikit-learn is loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

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

    Ask whether a table should be twinned, learn from it, then predict the rows of another:

        twinned advise houses.csv --target price --report advice.html

        twinned fit houses.csv --target price -o houses.twin

        twinned predict houses.twin new.csv --interval 0.9 -o prices.csv

    Each command has its own help, such as twinned fit --help.
    """


app.command("advise", no_args_is_help=True)(advise_command)
app.command("fit", no_args_is_help=True)(fit_command)
app.command("predict", no_args_is_help=True)(predict_command)
app.command("serve", no_args_is_help=True)(serve_command)


def _hand_on(name: str, help_line: str) -> None:
    """A command with commands of its own, in the file of that name.

    Handed on rather than mounted: mounting would import pandas for every `twinned --help`.
    """

    def command(context: typer.Context) -> None:
        own = import_module(f"twinned.cli.{name}").app
        code = own(args=context.args, prog_name=f"twinned {name}", standalone_mode=False)
        raise typer.Exit(code or 0)

    app.command(
        name,
        help=help_line,
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(command)


_hand_on("datasets", "List, fetch and show the data sets of the paper.")


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
