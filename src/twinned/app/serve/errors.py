"""Errors of requests: an HTTP status and one sentence."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_LOGGER = logging.getLogger("twinned")


class BadRequest(ValueError):
    """A request that cannot be processed: an HTTP status and one sentence."""

    def __init__(self, message: str, status: int = 422) -> None:
        super().__init__(message)
        self.status = status


@contextmanager
def value_error_as_bad_request() -> Iterator[None]:
    """Report what a table or the model rejects, for instance a value too large, in one line."""
    try:
        yield
    except ValueError as error:
        _LOGGER.debug("A request was rejected.", exc_info=True)
        raise BadRequest(" ".join(str(error).split())[:300]) from error


def short_repr(value: Any) -> str:
    """Return the repr of a value, cut to 80 characters."""
    text = repr(value[:60]) if isinstance(value, str) else repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"
