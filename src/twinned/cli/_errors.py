"""How the command line says what is wrong: one line on stderr, and exit code 2."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from twinned.exceptions import MissingExtraError


@contextmanager
def one_clear_line() -> Iterator[None]:
    """Turn a refusal of what the user gave into one line on stderr and exit code 2.

    Put it around what opens the user's files and options; a bug elsewhere keeps its traceback.
    """
    try:
        yield
    except BrokenPipeError:
        raise  # the reader of our output has left, which is no fault of the input
    except (ValueError, TypeError, OSError, MissingExtraError) as error:
        say("error", _message(error))
        raise typer.Exit(2) from None


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Say each distinct warning in one line on stderr, once the work is done."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            yield
        finally:
            messages = [str(each.message) for each in caught if _is_for_users(each.category)]
            for message in dict.fromkeys(messages):
                say("warning", message)


def say(kind: str, message: str) -> None:
    """One line on stderr: `twinned: <kind>: <message>`."""
    print(f"twinned: {kind}: {' '.join(message.split())}", file=sys.stderr)


def _is_for_users(category: type[Warning]) -> bool:
    return not issubclass(category, (DeprecationWarning, PendingDeprecationWarning, FutureWarning))


def _message(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}."
    return str(error) or type(error).__name__
