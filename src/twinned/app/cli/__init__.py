"""Command line `twinned`, with one module per command.

The module of a command has its options and its help, and imports heavy libraries when the command
is called, so that `--help` is fast.
"""

import gc
import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated

import typer
from typer.core import TyperGroup

from twinned._version import __version__
from twinned.app.cli import datasets, messages
from twinned.app.cli.advise import AdviseOptions, advise_command
from twinned.app.cli.explain import ExplainOptions, explain_command
from twinned.app.cli.export import ExportOptions, export_command
from twinned.app.cli.fit import FitOptions, fit_command
from twinned.app.cli.options import flag_option, make_command
from twinned.app.cli.predict import PredictOptions, predict_command
from twinned.app.cli.query import QueryOptions, query_command
from twinned.app.cli.serve import serve_command
from twinned.app.cli.solve import SolveOptions, solve_command
from twinned.exceptions import MissingExtraError


class _CommandGroup(TyperGroup):
    """The commands, with the global option `--debug` before or after the name of a command.

    An error is reported as bad input, with exit code 2, after a traceback with `--debug`.
    """

    def parse_args(self, ctx, args):
        others = [argument for argument in args if argument != "--debug"]
        return super().parse_args(ctx, ["--debug", *others] if len(others) < len(args) else args)

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            raise  # the reader of our output has closed it: no error of the input
        except (ValueError, TypeError, OSError, MissingExtraError) as error:
            if ctx.params["debug"]:
                traceback.print_exception(error)
            messages.print_error(error)
            raise typer.Exit(2) from None


app: typer.Typer = typer.Typer(
    cls=_CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a bug shows a plain traceback
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"twinned {__version__}")
        raise typer.Exit


@app.callback()
def _twinned(
    version: Annotated[
        bool,
        flag_option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
    debug: Annotated[
        bool, flag_option("--debug", help="Also print the traceback of an error, in any command.")
    ] = False,
) -> None:
    """Twinned regression: learn differences between points, predict from anchors.

    Check whether twinning helps on a table, fit a model, then predict the rows of another table:

        twinned advise houses.csv --target price --report advice.html

        twinned fit houses.csv --target price -o houses.twin

        twinned predict houses.twin new.csv --interval 0.9 -o prices.csv

        twinned explain houses.twin new.csv --rows 2

    Each command has its own help, such as twinned fit --help.
    """


_COMMANDS: dict[type, Callable[..., None]] = {
    AdviseOptions: advise_command,
    FitOptions: fit_command,
    PredictOptions: predict_command,
    ExplainOptions: explain_command,
    QueryOptions: query_command,
    SolveOptions: solve_command,
    ExportOptions: export_command,
}
for _options, _run in _COMMANDS.items():
    app.command(no_args_is_help=True)(make_command(_options, _run))
app.command("serve", no_args_is_help=True)(serve_command)


app.add_typer(
    datasets.app, name="datasets", short_help="List and fetch the data sets of the paper."
)


def main() -> None:
    """Run the command `twinned`; a wrong call is reported in one line, with exit code 2."""
    # OpenMP threads that spin while they wait slow down a busy machine and gain nothing on an idle
    # one. The variable takes effect because scikit-learn is imported later, inside the commands.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # A search for garbage after each 700 new objects takes a tenth of the time of imports.
    gc.set_threshold(50_000)
    try:
        sys.exit(app(prog_name="twinned", standalone_mode=False))
    except (typer.Abort, KeyboardInterrupt):
        messages.print_message("error", "interrupted.")
        sys.exit(130)
    except Exception as error:
        from twinned._compat import usage_error_type  # which imports NumPy

        if not isinstance(error, usage_error_type()):
            raise
        messages.print_usage_error(error)
        sys.exit(2)
