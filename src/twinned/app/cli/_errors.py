"""Messages of the command line: one line on stderr, and exit code 2 for bad input."""

import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from twinned.exceptions import MissingExtraError

# Warnings for developers, which a user of the command line cannot act on.
_DEVELOPER_WARNINGS = (DeprecationWarning, PendingDeprecationWarning, FutureWarning)

_debug = False


def set_debug(enabled: bool) -> None:
    """Set whether `exit_on_bad_input` also prints tracebacks, as with `--debug`."""
    global _debug
    _debug = enabled


@contextmanager
def exit_on_bad_input() -> Iterator[None]:
    """Turn an error into one line on stderr and exit code 2, after a traceback with `--debug`."""
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output has closed it: no error of the input
    except (ValueError, TypeError, OSError, MissingExtraError) as error:
        if _debug:
            traceback.print_exception(error)
        message = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.filename and error.strerror:
            message = f"{error.filename}: {error.strerror}."
        print_message("error", message)
        raise typer.Exit(2) from None


@contextmanager
def print_warnings() -> Iterator[None]:
    """Print each distinct warning in one line on stderr, after the work."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            yield
        finally:
            shown = [each for each in caught if not issubclass(each.category, _DEVELOPER_WARNINGS)]
            for message in dict.fromkeys(str(each.message) for each in shown):
                print_message("warning", message)


def print_message(kind: str, message: str) -> None:
    """Print `twinned: <kind>: <message>` in one line on stderr."""
    print(f"twinned: {kind}: {printable(' '.join(message.split()))}", file=sys.stderr)


def printable(text: str) -> str:
    r"""Text without control characters, which a terminal would execute, except line breaks.

    >>> printable("a\x1b[31mb")
    'a\\x1b[31mb'
    """
    return "".join(
        each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text
    )


def print_usage_error(error: Exception) -> None:
    """Print a `usage_error_type` in one line, or the help that it holds for an empty call."""
    if type(error).__name__ == "NoArgsIsHelpError":
        print(str(error), file=sys.stderr)
        return
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "twinned"
    message = error.format_message().rstrip(".")  # type: ignore[attr-defined]
    print_message("error", f"{message}. Try {command} --help.")
