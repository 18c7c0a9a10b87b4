"""Refusal of what cannot be exported."""

from __future__ import annotations

from typing import NoReturn


def refuse(reason: str, way_out: str) -> NoReturn:
    """Raise a `TypeError` with the reason and a way out."""
    raise TypeError(f"The model cannot be exported to ONNX: {reason}; {way_out}.")
