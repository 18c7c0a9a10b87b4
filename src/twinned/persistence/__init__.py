"""Saving and loading of fitted models, in files that hold no code.

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> from sklearn.linear_model import Ridge
>>> model = Ridge().fit([[0.0], [1.0]], [0.0, 1.0])
>>> with TemporaryDirectory() as folder:
...     save(model, Path(folder) / "model.twin")
...     read_header(Path(folder) / "model.twin")["model"]
...     load(Path(folder) / "model.twin")
'sklearn.linear_model._ridge.Ridge'
Ridge()

A `.twin` file is a zip of `twinned.json` (the header), `model.json` (the description of the model)
and arrays. Loading is done in four steps:

1. `archive` checks the size of the zip before it is decompressed, and its checksums;
2. it checks the format in the header and compares the versions;
3. `values` decodes the description, and verifies the state of each estimator by `schema.txt`;
4. estimators are built from it (`sklearn_kinds`, `twinned_kinds`).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from twinned.exceptions import IntegrityError
from twinned.persistence import archive
from twinned.persistence.archive import HEADER, MODEL, JsonObject, make_header, parse_header

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

__all__ = ["load", "read_header", "save"]


def save(model: object, path: str | PathLike[str]) -> None:
    """Save a fitted model to a file that holds no code.

    The file is written completely or not at all; an older one at `path` remains until then.

    Parameters
    ----------
    model : fitted estimator
        An estimator of twinned, or one of the regressors of scikit-learn in the guide on saving.
        What a file cannot hold is refused with a `TypeError` that names the parameter or part.
    path : str or PathLike
        The file; its name usually ends in `.twin`.
    """
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(model)
    archive.write_atomically(path, _to_bytes(model))


def load(path: str | PathLike[str]) -> Any:
    """Load a model saved by `save`, without executing anything in the file.

    A file that is not a valid model raises `IntegrityError`. A model saved by another version of
    twinned or scikit-learn is loaded with a `VersionMismatchWarning`. `predict` of a loaded model
    raises where a prediction is not finite, except after a logarithm or another transformed target.

    Parameters
    ----------
    path : str or PathLike
        The file.
    """
    members, header = _read(path, "is not loaded")
    archive.warn_on_version_mismatch(header, str(path))
    with _any_error_as_integrity_error(f"{path} is not loaded"):
        model = _build_model(members, Path(path).stat().st_size)
    return model


def read_header(path: str | PathLike[str]) -> JsonObject:
    """Return the header of a model file without building the model.

    Returns
    -------
    dict
        With `format_version`, `versions`, `model` (the class) and `schema` (`n_features_in_`,
        `feature_names_in_`).
    """
    return _read(path, "has no readable header")[1]


def _read(path: str | PathLike[str], fault: str) -> tuple[dict[str, bytes], JsonObject]:
    """Return the members of a file and its header, after checks of its format."""
    data = Path(path).read_bytes()
    with _any_error_as_integrity_error(f"{path} {fault}"):
        members = archive.read_zip(data)
        header = parse_header(members)
    return members, header


def _to_bytes(model: BaseEstimator) -> bytes:
    values = _import_kinds()
    arrays: archive.Arrays = {}
    fault = f"{type(model).__name__} cannot be saved"
    try:
        description = values.encode_value(model, values.At("model", arrays), fitted=True)
    except TypeError as error:
        raise TypeError(f"{fault}: {_first_line(error)}.") from None
    members = {HEADER: archive.to_json(make_header(model)), MODEL: archive.to_json(description)}
    members |= {f"{path}.npy": archive.to_npy(array) for path, array in arrays.items()}
    data = archive.write_zip(members)
    # A model that cannot be loaded must fail now, while it is still in memory.
    with _any_error_as_integrity_error(fault):
        _build_model(members, len(data))
    return data


def _build_model(members: Mapping[str, bytes], size: int) -> BaseEstimator:
    """Build the model of a file of this size from verified values."""
    others = [name for name in members if name not in (HEADER, MODEL)]
    arrays = {name.removesuffix(".npy"): archive.from_npy(members[name], name) for name in others}
    values = _import_kinds()
    at = values.At("model", arrays, free=[archive.derived_limit(size)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of parameters that were used in `fit`
        description = archive.from_json(members, MODEL)
        model: BaseEstimator = values.decode_value(description, at, fitted=True)
    values.verify(model, "part regressor", at)
    unused = min(arrays, default="")
    archive.ensure(not arrays, f"it holds {unused!r:.60}, which the model does not use")
    header = parse_header(members)
    same = header == {**make_header(model), "versions": header["versions"]}
    archive.ensure(same, "its header describes another model")
    return model


def _import_kinds() -> ModuleType:
    """Import scikit-learn and all kinds of estimators; return the module that encodes values."""
    from twinned.persistence import twinned_kinds, values  # noqa: F401

    return values


@contextmanager
def _any_error_as_integrity_error(prefix: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise IntegrityError(f"{prefix}: {_first_line(error)}.") from None
    except Exception as error:  # zip, zlib, JSON, numpy, scikit-learn: damage may raise anything
        reason = f"it is damaged ({type(error).__name__}: {_first_line(error)})"
        raise IntegrityError(f"{prefix}: {reason}.") from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given")[:1000].rstrip(".")
