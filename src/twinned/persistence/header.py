"""What a model file says about itself, before anything in it is built."""

import platform
import warnings
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from twinned._version import __version__
from twinned.exceptions import IntegrityError, VersionMismatchWarning
from twinned.persistence.archive import HEADER, Archive

FORMAT_VERSION = 1
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "pandas", "skops")


def describe(model: Any) -> dict[str, Any]:
    """The header of a model: format, versions, class and feature schema."""
    return {
        "format_version": FORMAT_VERSION,
        "versions": _versions(),
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "schema": _feature_schema(model),
    }


def read(archive: Archive) -> dict[str, Any]:
    """The header of a file; refused where it is malformed or of a format yet unknown."""
    header = archive.read_json(HEADER)
    found = header.get("format_version")
    if type(found) is not int or found < 1:
        raise IntegrityError(f"its format version is {found!r}")
    if found > FORMAT_VERSION:
        raise IntegrityError(
            f"its format version is {found} and this twinned {__version__} knows up to "
            f"{FORMAT_VERSION}; update twinned"
        )
    fields = {"versions": dict, "model": str, "schema": dict}
    for name, kind in fields.items():
        if not isinstance(header.get(name), kind):
            raise IntegrityError(f"its header has no {name}")
    return header


def warn_of_other_versions(header: dict[str, Any], path: str) -> None:
    """Warn where twinned differs, or scikit-learn in more than its last number."""
    saved, here = header["versions"], _versions()
    differing = [
        f"{name} {saved.get(name)} (here {here[name]})"
        for name, parts in (("twinned", None), ("scikit-learn", 2))
        if str(saved.get(name)).split(".")[:parts] != str(here[name]).split(".")[:parts]
    ]
    if differing:
        warnings.warn(
            f"{path} was saved by {' and '.join(differing)}; its predictions may differ. "
            "Install those versions, or fit and save the model again.",
            VersionMismatchWarning,
            stacklevel=3,
        )


def check_against(header: dict[str, Any], model: Any) -> None:
    """Refuse a model that is not the one its header announces."""
    built = describe(model)
    for field in ("model", "schema"):
        if header[field] != built[field]:
            raise IntegrityError(f"its header announces {header[field]}, it holds {built[field]}")


def _versions() -> dict[str, str | None]:
    return {
        "twinned": __version__,
        "python": platform.python_version(),
        **{name: _installed(name) for name in _LIBRARIES},
    }


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _feature_schema(model: Any) -> dict[str, Any]:
    names = getattr(model, "feature_names_in_", None)
    n_features = getattr(model, "n_features_in_", None)
    return {
        "n_features_in_": None if n_features is None else int(n_features),
        "feature_names_in_": None if names is None else [str(name) for name in names],
        "n_outputs": _n_outputs(model),
    }


def _n_outputs(model: Any) -> int | None:
    if (n_outputs := getattr(model, "n_outputs_", None)) is not None:
        return int(n_outputs)
    targets = getattr(model, "anchors_y_", None)
    if isinstance(targets, np.ndarray):
        return 1 if targets.ndim == 1 else targets.shape[1]
    return None
