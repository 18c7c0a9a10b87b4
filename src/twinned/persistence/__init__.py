"""Save a fitted model to a file that holds no code, and load it without running any.

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

A `.twin` file is a zip: `twinned.json` (the header), `schema.json` (skops' description of the
model) and arrays. Loading passes through the rooms of this package in turn:

- `archive`: is it a zip of reasonable size, with sound checksums?
- `header`: do we know this format; which versions saved it?
- `schema`: is every type in it one of `trust`'s, with no code among them; are all trees sound?
- skops builds the objects;
- `fitted_checks`: do the parts fit together; the search trees of neighbors are regrown here.
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
from twinned.persistence import header as headers
from twinned.persistence.archive import HEADER, SCHEMA, Archive, pack, unpack, write_atomically
from twinned.persistence.fitted_checks import settle
from twinned.persistence.schema import Audit, canonical

__all__ = ["load", "read_header", "save"]


def save(model: Any, path: str | PathLike[str]) -> None:
    """Save a fitted model to a file that holds no code.

    The file appears whole or not at all; an older one at `path` stays until then.

    Parameters
    ----------
    model : fitted estimator
        A twin, or a regressor of scikit-learn. A function among its parameters is refused with a
        `TypeError` that names the parameter (numpy's ufuncs, such as `np.log`, are welcome), and
        so is a part of a type that `load` would not accept.
    path : str or PathLike
        Where to; by custom the name ends in `.twin`.
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
    write_atomically(path, _to_bytes(model))


def load(path: str | PathLike[str]) -> Any:
    """Load a model saved by `save`; nothing in the file is executed.

    Anything but a sound model raises `IntegrityError`. A model saved by another version of
    twinned or scikit-learn is loaded with a `VersionMismatchWarning`.
    """
    path = Path(path)
    data = path.read_bytes()
    with _refusing(f"{path} is not loaded"):
        archive = Archive(data)
        header = headers.read(archive)
    headers.warn_of_other_versions(header, str(path))
    with _refusing(f"{path} is not loaded"):
        return _from_bytes(data)


def read_header(path: str | PathLike[str]) -> dict[str, Any]:
    """What a model file says about itself; nothing of the model is built.

    Returns a dict with `format_version`, `versions`, `model` (the class) and `schema`
    (`n_features_in_`, `feature_names_in_`, `n_outputs`).
    """
    path = Path(path)
    data = path.read_bytes()
    with _refusing(f"{path} has no readable header"):
        return headers.read(Archive(data))


def _to_bytes(model: Any) -> bytes:
    import skops.io

    name = type(model).__name__
    try:
        dumped = skops.io.dumps(model)
    except RecursionError as error:
        raise TypeError(
            f"{name} cannot be saved: a part of it refers back to itself, as what "
            "set_fit_request and its like leave behind does."
        ) from error
    except Exception as error:  # whatever an unknown object raises when it is taken apart
        raise TypeError(f"{name} cannot be saved: {_first_line(error)}") from error
    parts = unpack(dumped)
    schema, arrays = canonical(json.loads(parts.pop(SCHEMA)), parts)
    data = pack(
        {
            HEADER: json.dumps(headers.describe(model), indent=2).encode(),
            SCHEMA: json.dumps(schema, separators=(",", ":")).encode(),
            **arrays,
        }
    )
    try:
        Audit(Archive(data), refusal=TypeError).run(schema)
    except (TypeError, IntegrityError) as error:
        raise type(error)(f"{name} cannot be saved: {error}.") from None
    # What cannot be loaded is not worth saving: find out now, while the model is still at hand.
    with _refusing(f"{name} cannot be saved"):
        _from_bytes(data)
    return data


def _from_bytes(data: bytes) -> Any:
    import skops.io

    archive = Archive(data)
    audit = Audit(archive)
    audit.run(archive.read_json(SCHEMA))
    with warnings.catch_warnings():
        # The header has been compared already, once for the whole file.
        warnings.simplefilter("ignore", InconsistentVersionWarning)
        model = skops.io.loads(data, trusted=sorted(audit.types))
    if not isinstance(model, BaseEstimator):
        raise IntegrityError(f"it holds a {type(model).__name__}, not a model")
    settle(model)
    headers.check_against(headers.read(archive), model)
    return model


@contextmanager
def _refusing(what: str) -> Iterator[None]:
    try:
        yield
    except IntegrityError as error:
        raise IntegrityError(f"{what}: {_first_line(error)}.") from None
    except Exception as error:  # zip, zlib, JSON, numpy, skops: damage may surface as anything
        reason = f"it is damaged ({type(error).__name__}: {_first_line(error)})"
        raise IntegrityError(f"{what}: {reason}.") from error


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given").rstrip(".")
