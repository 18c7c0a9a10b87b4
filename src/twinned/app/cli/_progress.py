"""Progress of the commands that take long, on stderr where that is a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from itertools import count


@contextmanager
def progress_bar(total: int | None = None) -> Iterator[Callable[[str], None]]:
    """Show a bar of `total` steps, or a spinner; yield a function that begins the next step."""
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        # not `Progress(disable=True)`, which prints an empty line before rich 14.3
        yield lambda step: None
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
    from rich.console import Console

    with redirect_stdout(sys.stderr):
        if Console(stderr=True).is_terminal:
            with progress_bar() as begin_step:
                yield begin_step
        else:
            yield lambda step: print(step, flush=True)
