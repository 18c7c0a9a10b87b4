"""Refusal of what cannot be exported."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

_PREFIX = "The model cannot be exported to ONNX: "


class RefusedError(TypeError):
    """A model or a part of it cannot be exported."""


def refuse(reason: str, way_out: str) -> NoReturn:
    """Raise an error with the reason and a way out."""
    raise RefusedError(f"{_PREFIX}{reason}; {way_out}.")


@contextmanager
def refusals_of(part: str) -> Iterator[None]:
    """Context in which refusals name a part of the model."""
    try:
        yield
    except RefusedError as error:
        reason = str(error).removeprefix(_PREFIX)
        raise RefusedError(f"{_PREFIX}{part}: {reason}") from None
