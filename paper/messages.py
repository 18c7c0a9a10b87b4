"""Lines on standard error of the command line of the reproduction."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """Print an error of the user's input as one line and exit with code 2."""
    try:
        yield
    except (ValueError, OSError) as error:
        print_line("error", str(error))
        raise typer.Exit(2) from None


def print_line(kind: str, message: str) -> None:
    """Print a message in one line."""
    print(f"paper: {kind}: {' '.join(message.split())}", file=sys.stderr)
