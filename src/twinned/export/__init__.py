"""Export of fitted models: chosen anchors and members, and C for microcontrollers."""

from importlib import import_module
from typing import Any

_MODULES = {
    "thin": "thinning",
    "thin_members": "thinning",
    "to_c": "c",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
