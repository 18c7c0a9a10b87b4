"""The zip around a model: read within bounds, written the same way every time."""

import io
import json
import os
import uuid
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from twinned.exceptions import IntegrityError

HEADER = "twinned.json"
SCHEMA = "schema.json"

# Node arrays shrink ten- or twentyfold, a constant array a thousandfold; a small file that
# claims to be a large model is refused before it is unpacked.
_FREE_SIZE = 256 * 1024**2
_HIGHEST_RATIO = 100
_ONE_MOMENT = (1980, 1, 1, 0, 0, 0)


class Archive:
    """The members of a model file. `data` is the whole file, so what is checked is what is read."""

    def __init__(self, data: bytes) -> None:
        if not data:
            raise IntegrityError("it is empty")
        if not data.startswith(b"PK"):
            raise IntegrityError("it is no model file, but something else")
        self._zip = zipfile.ZipFile(io.BytesIO(data))
        entries = self._zip.infolist()
        self.names = frozenset(entry.filename for entry in entries)
        if len(self.names) < len(entries):
            raise IntegrityError("two of its members have the same name")
        for needed in (HEADER, SCHEMA):
            if needed not in self.names:
                raise IntegrityError(f"it has no {needed}, so it was not written by twinned.save")
        if any(e.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for e in entries):
            raise IntegrityError("a member is compressed in a way that twinned.save never uses")
        unpacked = sum(entry.file_size for entry in entries)
        if unpacked > max(_FREE_SIZE, _HIGHEST_RATIO * len(data)):
            raise IntegrityError(
                f"its {len(data):,} bytes would unpack to {unpacked:,}, more than a model does"
            )

    def read(self, name: str) -> bytes:
        """One member, its checksum verified."""
        return self._zip.read(name)

    def read_json(self, name: str) -> dict[str, Any]:
        value = json.loads(self.read(name))
        if not isinstance(value, dict):
            raise IntegrityError(f"its {name} is not a JSON object")
        return value

    def read_array(self, name: str) -> np.ndarray:
        """The array of a `.npy` member.

        Its size is compared with what its header claims first: numpy reserves the memory that
        a header asks for before it finds out that the rest is missing.
        """
        content = self.read(name)
        stream = io.BytesIO(content)
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(stream)
        else:
            raise IntegrityError(f"{name} is an array of unknown format {version}")
        n_bytes = dtype.itemsize
        for length in shape:
            n_bytes *= int(length)
        if dtype.hasobject or n_bytes != len(content) - stream.tell() or min(shape, default=0) < 0:
            raise IntegrityError(
                f"{name} is not the {dtype} array of shape {shape} it claims to be"
            )
        return np.load(io.BytesIO(content), allow_pickle=False)


def unpack(data: bytes) -> dict[str, bytes]:
    """All members of a zip that we made ourselves."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(members: dict[str, bytes]) -> bytes:
    """Make a zip whose bytes depend on the members alone, not on the time or the platform."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            entry = zipfile.ZipInfo(name, date_time=_ONE_MOMENT)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def write_atomically(path: Path, data: bytes) -> None:
    """The file appears whole or not at all; an older one stays until then."""
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
