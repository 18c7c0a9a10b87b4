"""The archive of a model file: a zip of JSON and arrays, read within limits.

Its header has the format, the versions, the class and the features, readable without the model.
"""

from __future__ import annotations

import io
import json
import math
import os
import platform
import uuid
import warnings
import zipfile
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from twinned._version import __version__
from twinned.exceptions import IntegrityError, VersionMismatchWarning

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

FORMAT_VERSION = 5
FIT_AGAIN = "fit and save the model again with these versions of twinned and scikit-learn"
_LIBRARIES = ("numpy", "scipy", "scikit-learn", "pandas")

JsonObject = dict[str, Any]
Arrays = dict[str, np.ndarray]

HEADER = "twinned.json"
MODEL = "model.json"
ARRAY_TYPES = ("<f8", "<f4", "<i8", "<i4", "<u4", "|u1", "|b1")

# Arrays of tree nodes compress ten- or twentyfold, a constant array a thousandfold. A small file
# that claims to hold a large model is refused before it is decompressed.
_ALWAYS_ALLOWED_SIZE = 64 * 1024**2
_MAX_COMPRESSION_RATIO = 100
# What a model derives from its arrays: indicators of categories, or the covariance of a process.
# A process of 5,000 rows and three features needs 2,000 times the size of its file.
_MAX_DERIVED_RATIO, _MAX_DERIVED_SIZE = 5_000, 800_000_000
_MAX_MEMBERS = 20_000
_MAX_JSON_SIZE = 4 * 1024**2
_COMPRESSION_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_COMPRESSION_LEVEL = 1  # a tenth larger than by the default, in a third of the time


def ensure(condition: bool | np.bool_, fault: str) -> None:
    """Raise `IntegrityError` with this fault unless the condition is true."""
    if not condition:
        raise IntegrityError(fault)


def read_zip(data: bytes) -> dict[str, bytes]:
    """Return the members of a zip, after checks of what it claims to hold."""
    ensure(data.startswith(b"PK"), "it is not a model file")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = archive.infolist()
        names = {entry.filename for entry in entries}
        ensure(len(names) == len(entries), "two of its members have the same name")
        ensure(len(names) <= _MAX_MEMBERS, f"it has more than {_MAX_MEMBERS:,} members")
        ensure(HEADER in names, f"it has no {HEADER}, so it was not written by twinned.save")
        methods = {entry.compress_type for entry in entries}
        ensure(methods <= _COMPRESSION_METHODS, "a member is compressed by an unknown method")
        size = sum(entry.file_size for entry in entries)
        fault = f"its {len(data):,} bytes would decompress to {size:,}, more than a model does"
        ensure(size <= max(_ALWAYS_ALLOWED_SIZE, _MAX_COMPRESSION_RATIO * len(data)), fault)
        # unlike `ZipFile.read`, this decompresses no more than a member claims to have
        return {entry.filename: archive.open(entry).read(entry.file_size) for entry in entries}


def derived_limit(size: int) -> int:
    """Return how many bytes the model of a file of this size may derive from its arrays."""
    return max(_ALWAYS_ALLOWED_SIZE, min(_MAX_DERIVED_RATIO * size, _MAX_DERIVED_SIZE))


def write_zip(members: Mapping[str, bytes]) -> bytes:
    """Return a zip that depends on the members alone, not on the time or the platform."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name)  # of 1980
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content, compresslevel=_COMPRESSION_LEVEL)
    return buffer.getvalue()


def to_json(value: object) -> bytes:
    """Return compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def from_json(members: Mapping[str, bytes], name: str) -> JsonObject:
    """Return the JSON object of a member."""
    ensure(name in members, f"it has no {name}")
    size = len(members[name])
    ensure(size <= _MAX_JSON_SIZE, f"its {name} has {size:,} bytes")
    value = json.loads(members[name])
    ensure(isinstance(value, dict), f"its {name} is not a JSON object")
    return value


def to_npy(array: np.ndarray) -> bytes:
    """Return an array in numpy's format; the order of its axes in memory is preserved."""
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()


def from_npy(content: bytes, name: str) -> np.ndarray:
    """Return the array of a `.npy` member, if its size and type are as its header claims."""
    stream = io.BytesIO(content)
    ensure(np.lib.format.read_magic(stream) == (1, 0), f"{name} is of an unknown format")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(stream)
    n_bytes = math.prod(map(int, shape)) * dtype.itemsize
    is_allowed = dtype.str in ARRAY_TYPES and len(shape) <= 3 and min(shape, default=0) >= 0
    fits = is_allowed and n_bytes == len(content) - stream.tell()
    ensure(fits, f"{name} is not the {dtype} array of shape {shape} that its header claims")
    flat = np.frombuffer(content, dtype, offset=stream.tell()).copy()
    return flat.reshape(shape, order="F" if fortran_order else "C")


def make_header(model: BaseEstimator) -> JsonObject:
    """Return the header of a model."""
    n_features, names = feature_attributes(model)
    names = None if names is None else [str(name) for name in names]
    return {
        "format_version": FORMAT_VERSION,
        "versions": _versions(),
        "model": f"{type(model).__module__}.{type(model).__qualname__}",
        "schema": {"n_features_in_": n_features, "feature_names_in_": names},
    }


def parse_header(members: Mapping[str, bytes]) -> JsonObject:
    """Return the header of a file, or raise where it is malformed or of another format."""
    header = from_json(members, HEADER)
    number = header.get("format_version")
    is_newer = isinstance(number, int) and number > FORMAT_VERSION
    advice = "update twinned" if is_newer else FIT_AGAIN
    fault = f"its format version is {number!r:.60}, not {FORMAT_VERSION}; {advice}"
    ensure(type(number) is int and number == FORMAT_VERSION, fault)
    for name, kind in {"versions": dict, "model": str, "schema": dict}.items():
        ensure(isinstance(header.get(name), kind), f"its header has no {name}")
    return header


def warn_on_version_mismatch(header: JsonObject, path: str) -> None:
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


def feature_attributes(model: BaseEstimator) -> tuple[int | None, Any]:
    """Return the number of features of a fitted estimator and their names, None where unknown."""
    return getattr(model, "n_features_in_", None), getattr(model, "feature_names_in_", None)


def write_atomically(path: str | PathLike[str], data: bytes) -> None:
    """Write a file completely or not at all; an older one remains until then."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; give the name of a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {path.parent}; create it first.")
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
