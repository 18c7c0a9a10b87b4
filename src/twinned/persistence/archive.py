"""The zip archive of a model file: read within limits, written reproducibly."""

import io
import json
import math
import os
import uuid
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from twinned.exceptions import IntegrityError

HEADER = "twinned.json"
SCHEMA = "schema.json"

# Arrays of tree nodes compress ten- or twentyfold, a constant array a thousandfold. A small file
# that claims to hold a large model is refused before it is decompressed.
_ALWAYS_ALLOWED_SIZE = 256 * 1024**2
_MAX_COMPRESSION_RATIO = 100
_COMPRESSION_METHODS = {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}
_TIMESTAMP = (1980, 1, 1, 0, 0, 0)
_NPY_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def ensure(condition: bool | np.bool_, fault: str) -> None:
    """Raise `IntegrityError` with this fault unless the condition is true."""
    if not condition:
        raise IntegrityError(fault)


class Archive:
    """The members of a model file; `data` is all of it, so what is checked is what is read."""

    def __init__(self, data: bytes) -> None:
        ensure(bool(data), "it is empty")
        ensure(data.startswith(b"PK"), "it is not a model file")
        self.data = data
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        entries = self._zip.infolist()
        self.names = frozenset(entry.filename for entry in entries)
        ensure(len(self.names) == len(entries), "two of its members have the same name")
        for name in (HEADER, SCHEMA):
            ensure(name in self.names, f"it has no {name}, so it was not written by twinned.save")
        known = {entry.compress_type for entry in entries} <= _COMPRESSION_METHODS
        ensure(known, "a member is compressed by a method that twinned.save never uses")
        size = sum(entry.file_size for entry in entries)
        fault = f"its {len(data):,} bytes would decompress to {size:,}, more than a model does"
        ensure(size <= max(_ALWAYS_ALLOWED_SIZE, _MAX_COMPRESSION_RATIO * len(data)), fault)

    def read_json(self, name: str) -> dict[str, Any]:
        """Return the JSON object of a member."""
        value = json.loads(self._zip.read(name))
        ensure(isinstance(value, dict), f"its {name} is not a JSON object")
        return value

    def read_array(self, name: str) -> np.ndarray:
        """Return the array of a `.npy` member, if its size is as its header claims.

        numpy would allocate the claimed memory before it notices that the content is missing.
        """
        stream = io.BytesIO(self._zip.read(name))
        version = np.lib.format.read_magic(stream)
        ensure(version in _NPY_HEADERS, f"{name} is an array of unknown format {version}")
        shape, _, dtype = _NPY_HEADERS[version](stream)
        n_bytes = math.prod(map(int, shape)) * dtype.itemsize
        ensure(
            not dtype.hasobject and n_bytes == len(stream.read()) and min(shape, default=0) >= 0,
            f"{name} is not the {dtype} array of shape {shape} that its header claims",
        )
        stream.seek(0)
        return np.load(stream, allow_pickle=False)


def from_zip(data: bytes) -> dict[str, bytes]:
    """Return all members of a zip from a trusted source."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def to_zip(members: dict[str, bytes]) -> bytes:
    """Return a zip that depends on the members alone, not on the time or the platform."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name, date_time=_TIMESTAMP)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file completely or not at all; an older one remains until then."""
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
