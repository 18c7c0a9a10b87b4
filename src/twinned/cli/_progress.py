"""Progress bar of the commands that take long."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int) -> Iterator[Callable[[str], None]]:
    """Show a bar on stderr if it is a terminal; yield a function that begins the next step."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=total)
        started = False

        def begin_step(description: str) -> None:
            nonlocal started
            progress.update(task, advance=int(started), description=description)
            started = True

        yield begin_step
