"""The header of a model file: format, versions, class and features, readable without the model."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from twinned._version import __version__
from twinned.exceptions import VersionMismatchWarning
from twinned.persistence.archive import HEADER, ensure, from_json

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

FORMAT_VERSION = 2
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "pandas")
_OLD_FORMAT = (
    "load it with the version of twinned that wrote it, store it with joblib.dump, then use "
    "joblib.load and twinned.save with this one"
)


def make_header(model: BaseEstimator) -> dict[str, Any]:
    """Return the header of a model."""
    names = getattr(model, "feature_names_in_", None)
    return {
        "format_version": FORMAT_VERSION,
        "versions": _versions(),
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "schema": {
            "n_features_in_": getattr(model, "n_features_in_", None),
            "feature_names_in_": None if names is None else [str(name) for name in names],
        },
    }


def parse_header(members: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the header of a file, or raise where it is malformed or of another format."""
    header = from_json(members, HEADER)
    found: Any = header.get("format_version")
    is_newer = type(found) is int and found > FORMAT_VERSION
    advice = "update twinned" if is_newer else _OLD_FORMAT
    fault = f"its format version is {found!r:.60}, not {FORMAT_VERSION}; {advice}"
    ensure(type(found) is int and found == FORMAT_VERSION, fault)
    for name, kind in {"versions": dict, "model": str, "schema": dict}.items():
        ensure(isinstance(header.get(name), kind), f"its header has no {name}")
    return header


def warn_on_version_mismatch(header: dict[str, Any], path: str) -> None:
    """Warn where twinned has another version, or scikit-learn another minor version."""
    saved, installed = header["versions"], _versions()
    differing = [
        f"{name} {saved.get(name)!s:.60} (here {installed[name]})"
        for name, parts in (("twinned", None), ("scikit-learn", 2))
        if str(saved.get(name)).split(".")[:parts] != str(installed[name]).split(".")[:parts]
    ]
    if differing:
        warnings.warn(
            f"{path} was saved by {' and '.join(differing)}; its predictions may differ. "
            "Install those versions, or fit and save the model again.",
            VersionMismatchWarning,
            stacklevel=3,
        )


@cache
def _versions() -> dict[str, str]:
    installed = {library: version(library) for library in _LIBRARIES}
    return {"twinned": __version__, "python": platform.python_version(), **installed}
