"""Export of fitted models to files that run without Python, and thinning of anchors.

Names are loaded when they are first used: each format needs its own libraries.
"""

from importlib import import_module
from typing import Any

_MODULES = {
    "to_onnx": "onnx",
    "thin": "thinning",
    "to_c": "c",
}

__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'twinned.export' has no attribute {name!r}")
    return getattr(import_module(f"twinned.export.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
