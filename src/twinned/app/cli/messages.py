"""Output of the commands: messages and progress on stderr, results and tables on stdout.

Bad input is one line on stderr, and exit code 2.
"""

from __future__ import annotations

import io
import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import typer

from twinned.exceptions import MissingBatchWarning, UnknownBatchWarning

if TYPE_CHECKING:
    from rich.table import Table

# Warnings for developers, which a user of the command line cannot act on.
# Commands print their own line on missing and new batches, which names the option.
_DEVELOPER_WARNINGS = (
    DeprecationWarning,
    PendingDeprecationWarning,
    FutureWarning,
    MissingBatchWarning,
    UnknownBatchWarning,
)


def print_error(error: Exception) -> None:
    """Print an error in one line on stderr."""
    message = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.filename and error.strerror:
        message = f"{error.filename}: {error.strerror}."
    print_message("error", message)


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print each distinct warning in one line on stderr, after the work."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            yield
        finally:
            shown = [
                warning
                for warning in caught
                if not issubclass(warning.category, _DEVELOPER_WARNINGS)
            ]
            for message in dict.fromkeys(str(warning.message) for warning in shown):
                print_message("warning", message)


def print_message(kind: str, message: str) -> None:
    """Print `twinned: <kind>: <message>` in one line on stderr."""
    print(f"twinned: {kind}: {printable(' '.join(message.split()))}", file=sys.stderr)


def print_notes(notes: Iterable[str]) -> None:
    """Print a line on stderr for each note."""
    for note in notes:
        print_message("note", note)


def print_result(facts: object, text: str, as_json: bool) -> None:
    """Print facts as JSON, or text without control characters."""
    typer.echo(json.dumps(facts, ensure_ascii=False) if as_json else printable(text))


def counted(number: int, noun: str) -> str:
    """Return a number with its noun.

    >>> counted(1, "row"), counted(1200, "row")
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def printable(text: str) -> str:
    r"""Text without control characters, which a terminal would execute, except line breaks.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(
        character if character.isprintable() or character in "\n\t" else ascii(character)[1:-1]
        for character in text
    )


def print_usage_error(error: Exception) -> None:
    """Print a `usage_error_type` in one line, or the help that it holds for an empty call."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(str(error), file=sys.stderr)
        return
    context = error.ctx  # type: ignore[attr-defined]
    command = context.command_path if context else "twinned"
    message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    print_message("error", f"{message}. Try {command} --help.")


# --- tables and progress ----------------------------------------------------------------------


def make_table(*columns: str, left: int = 1) -> Table:
    """Return a table without lines, whose first `left` columns are aligned left, others right."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="")
    for j, name in enumerate(columns):
        table.add_column(name, justify="left" if j < left else "right", no_wrap=True)
    return table


def table_lines(table: Table) -> list[str]:
    """Return the lines of a table, as wide as it is.

    >>> table = make_table("member", "seconds")
    >>> table.add_row("ridge", "1.0")
    >>> table_lines(table)
    ['member  seconds', 'ridge       1.0']
    """
    from rich.console import Console

    console = Console(file=io.StringIO(), width=100_000, color_system=None, markup=False)
    with console.capture() as captured:
        console.print(table, highlight=False, emoji=False)
    return [line.rstrip() for line in captured.get().splitlines()]


@contextmanager
def progress_bar(
    total: int | None = None, otherwise: Callable[[str], None] = lambda step: None
) -> Iterator[Callable[[str], None]]:
    """Show a bar of `total` steps, or a spinner; yield a function that begins the next step.

    Without a terminal, that is the function `otherwise`.
    """
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        # not `Progress(disable=True)`, which prints an empty line before rich 14.3
        yield otherwise
        return
    spinner = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    columns = spinner if total is None else Progress.get_default_columns()
    with Progress(*columns, console=console, transient=True) as progress:
        task, steps = progress.add_task("", total=total), count()
        yield lambda step: progress.update(task, completed=next(steps), description=step)


@contextmanager
def progress_lines() -> Iterator[Callable[[str], None]]:
    """Show a spinner, and above it what a fit prints; without a terminal, lines on stderr.

    Yields a function that begins the next step.
    """
    with redirect_stdout(sys.stderr), progress_bar(None, partial(print, flush=True)) as begin_step:
        yield begin_step
