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

A `.twin` file is a zip of `twinned.json` (the header), `schema.json` (skops' description of the
model) and arrays. Loading is done in five steps:

1. `archive` checks that the file is a zip of reasonable size with correct checksums;
2. `header` checks the format and compares the versions;
3. `schema` checks that all types are in `allowed_types` and all trees are valid (`tree_checks`);
4. skops builds the objects;
5. `fitted_checks` and `twin_checks` check that the parts fit together; search trees of neighbors
   are rebuilt.
"""

import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import InconsistentVersionWarning, NotFittedError
from sklearn.utils.validation import check_is_fitted

from twinned.exceptions import IntegrityError
from twinned.persistence.archive import HEADER, SCHEMA, Archive, from_zip, to_zip, write_atomically
from twinned.persistence.fitted_checks import verify_and_rebuild
from twinned.persistence.header import (
    check_header_describes,
    make_header,
    parse_header,
    warn_on_version_mismatch,
)
from twinned.persistence.schema import SchemaValidator, canonicalize_schema

__all__ = ["load", "read_header", "save"]


def save(model: BaseEstimator, path: str | PathLike[str]) -> None:
    """Save a fitted model to a file that holds no code.

    The file is written completely or not at all; an older one at `path` remains until then.

    Parameters
    ----------
    model : fitted estimator
        A twin, or a regressor of scikit-learn. A function among its parameters is refused with a
        `TypeError` that names the parameter (numpy's ufuncs, such as `np.log`, are allowed), and
        so is an object of a type that `load` would not accept.
    path : str or PathLike
        The file; its name usually ends in `.twin`.
    """
    path = Path(path)
    if not isinstance(model, BaseEstimator):
        raise TypeError(f"only a fitted estimator can be saved, not {model!r}.")
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise NotFittedError(
            f"{type(model).__name__} is not fitted, so there is nothing to save; call fit first."
        ) from None
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; create it, then save again.")
    try:
        data = _to_bytes(model)
    except (TypeError, IntegrityError) as error:
        raise type(error)(_name_member(model, error)) from None
    write_atomically(path, data)


def load(path: str | PathLike[str]) -> Any:
    """Load a model saved by `save`, without executing anything in the file.

    A file that is not a valid model raises `IntegrityError`. A model saved by another version of
    twinned or scikit-learn is loaded with a `VersionMismatchWarning`.
    """
    data = Path(path).read_bytes()
    with _any_error_as_integrity_error(f"{path} is not loaded"):
        archive = Archive(data)
        header = parse_header(archive)
    warn_on_version_mismatch(header, str(path))
    with _any_error_as_integrity_error(f"{path} is not loaded"):
        validator = SchemaValidator(archive)
        validator.validate(archive.read_json(SCHEMA))
        return _build_model(archive, validator.types)


def read_header(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the header of a model file without building the model.

    Returns
    -------
    dict
        With `format_version`, `versions`, `model` (the class) and `schema` (`n_features_in_`,
        `feature_names_in_`, `n_outputs`).
    """
    data = Path(path).read_bytes()
    with _any_error_as_integrity_error(f"{path} has no readable header"):
        return parse_header(Archive(data))


def _to_bytes(model: BaseEstimator) -> bytes:
    import skops.io

    name = type(model).__name__
    try:
        dumped = skops.io.dumps(model)
    except RecursionError as error:
        raise TypeError(
            f"{name} cannot be saved: a part of it refers back to itself, as after "
            "set_fit_request and similar methods."
        ) from error
    except Exception as error:  # an object of an unknown type may raise anything
        raise TypeError(f"{name} cannot be saved: {_first_line(error)}") from error
    members = from_zip(dumped)
    schema, arrays = canonicalize_schema(json.loads(members.pop(SCHEMA)), members)
    data = to_zip(
        {
            HEADER: json.dumps(make_header(model), indent=2).encode(),
            SCHEMA: json.dumps(schema, separators=(",", ":")).encode(),
            **arrays,
        }
    )
    archive = Archive(data)
    validator = SchemaValidator(archive, type_error=TypeError)
    try:
        validator.validate(schema)
    except (TypeError, IntegrityError) as error:
        raise type(error)(f"{name} cannot be saved: {error}.") from None
    # A model that cannot be loaded must fail now, while it is still in memory.
    with _any_error_as_integrity_error(f"{name} cannot be saved"):
        _build_model(archive, validator.types)
    return data


def _name_member(model: BaseEstimator, error: Exception) -> str:
    """Return why a model cannot be saved; of a blend, with the name of the member."""
    blend = getattr(model, "regressor_", model)
    for name, member in getattr(blend, "members_", {}).items():
        try:
            _to_bytes(member)
        except (TypeError, IntegrityError) as reason:
            return (
                f"{type(model).__name__} cannot be saved because of its member {name!r}: "
                f"{_first_line(reason)}. Fit it without this member, or use pickle or joblib."
            )
    return str(error)


def _build_model(archive: Archive, types: set[str]) -> BaseEstimator:
    """Build the model of a file whose schema was validated and has these types."""
    import skops.io

    with warnings.catch_warnings():
        # The versions in the header have been compared, once for the whole file.
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = skops.io.loads(archive.data, trusted=sorted(types))
    if not isinstance(model, BaseEstimator):
        raise IntegrityError(f"it holds a {type(model).__name__}, not a model")
    verify_and_rebuild(model)
    check_header_describes(parse_header(archive), model)
    return model


@contextmanager
def _any_error_as_integrity_error(prefix: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise IntegrityError(f"{prefix}: {_first_line(error)}.") from None
    except Exception as error:  # zip, zlib, JSON, numpy, skops: damage may raise anything
        reason = f"it is damaged ({type(error).__name__}: {_first_line(error)})"
        raise IntegrityError(f"{prefix}: {reason}.") from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given").rstrip(".")
