"""JSON records of finished trials.

A *trial* is a study in one variant, on one data set and split, with its settings. Its identity is
a digest of all of these, so a changed setting makes a new trial. A record holds the trial, its
result, the seconds it took, and its origin: device, versions of the libraries, date and commit.
A record that was converted from a file of an earlier format names it as `imported_from`; what the
file does not state is "unknown", and date and commit are those of the commit that added the file.

While a study runs, each record is a small file of its own, written atomically. `pack` gathers them
into one compressed file per study and variant, which is what is committed. Several processes may
run and pack the same study.

A damaged file is named in a warning, and the records of the others are used.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
import subprocess
import sys
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.frame import ROOT, lock_folder, write_file
from twinned._version import __version__

RECORDS = ROOT / "paper" / "results"  # the committed ones
LIBRARIES = ("numpy", "scipy", "scikit-learn", "jax")
# Variant → its name on pages and in pictures.
LABELS = {"as_published": "as published", "modern": "our training", "as_written": "as written"}
NOT_RECORDED = "not recorded"  # the origin of records of earlier versions
# The studies that use the processor even where JAX has an accelerator.
ON_PROCESSOR = ("neighbors", "forests", "semi-supervised-forests", "iterated-loops", "storage")

Record = dict[str, Any]


class DamagedRecordWarning(UserWarning):
    """A file of records cannot be read; its trials count as not run."""


@dataclass(frozen=True)
class Trial:
    """One unit of work. `settings` are numbers, texts and lists of them."""

    study: str
    variant: str
    dataset: str
    split: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Sixteen hexadecimal digits of a digest of all fields.

        >>> Trial("T2", "modern", "YH", 0).identity == Trial("T2", "modern", "YH", 0, {}).identity
        True
        >>> Trial("T2", "modern", "YH", 0).identity == Trial("T2", "modern", "YH", 1).identity
        False
        """
        text = json.dumps(vars(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Records:
    """The records of a folder, packed or not; a store of `benchmarks.frame.run_pending`.

    Parameters
    ----------
    folder : path
        Created with the first record.
    """

    def __init__(self, folder: Any) -> None:
        self.folder = Path(folder)

    def pending(self, trials: Sequence[Trial]) -> list[Trial]:
        """Return the trials that have no record."""
        groups = {(trial.study, trial.variant) for trial in trials}
        finished = set().union(*(self.finished(*group) for group in groups))
        return [trial for trial in trials if trial.identity not in finished]

    def finished(self, study: str, variant: str) -> set[str]:
        """Return the identities of the trials that have a record."""
        return {record["identity"] for record in self.read(study, variant)}

    def write(self, trial: Trial, result: dict[str, Any], seconds: float) -> None:
        """Write the record of one trial."""
        record = {
            "identity": trial.identity,
            "config": asdict(trial),
            "result": result,
            "seconds": round(seconds, 3),
            "versions": library_versions(),
            "host": platform.node(),
            "device": device_name(trial.study),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": current_commit(),
        }
        path = self._unpacked(trial.study, trial.variant) / f"{trial.identity}.json"
        write_file(path, json.dumps(record, sort_keys=True).encode())

    def read(self, study: str, variant: str) -> list[Record]:
        """Return all records of a study in one variant, by data set, split and settings."""
        return self._read(study, variant)[0]

    def pack(self, study: str, variant: str) -> Path | None:
        """Gather all records into one compressed file, then remove the small ones it holds.

        A damaged pack is not replaced, as the result would lack some of its records.
        """
        with lock_folder(self.folder):
            records, damaged = self._read(study, variant)
            if not records or damaged:
                return None
            path = self._pack(study, variant)
            lines = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
            # without a time stamp: the same records give the same bytes
            write_file(path, gzip.compress(lines.encode(), mtime=0))
            # another process may have written more records meanwhile: those stay
            for record in records:
                (self._unpacked(study, variant) / f"{record['identity']}.json").unlink(True)
            return path

    def _read(self, study: str, variant: str) -> tuple[list[Record], bool]:
        """All records, sorted, and whether the pack is damaged."""
        # in this order: a small file that another process removes meanwhile is in the pack by then
        unpacked = list(self._read_unpacked(study, variant))
        packed, damaged = self._read_pack(study, variant)
        found = {record["identity"]: record for record in [*packed, *unpacked]}
        return sorted(found.values(), key=_sort_key), damaged

    def _read_unpacked(self, study: str, variant: str) -> Iterator[Record]:
        for path in sorted(self._unpacked(study, variant).glob("*.json")):
            try:
                yield _parse(path.read_bytes())
            except FileNotFoundError:
                continue  # packed by another process
            except ValueError as error:
                _warn_damaged(path, error, "remove it to run its trial again")

    def _read_pack(self, study: str, variant: str) -> tuple[list[Record], bool]:
        """The readable records of a pack, and whether it is damaged."""
        path, records = self._pack(study, variant), []
        try:
            content = _decompress(path.read_bytes())
        except FileNotFoundError:
            return [], False
        damage = None if content.complete else ValueError("the compressed data are damaged")
        for line in content.text.splitlines():
            try:
                records.append(_parse(line))
            except ValueError as error:
                damage = damage or error
        if damage is not None:
            advice = (
                f"{len(records)} records could be read; restore it from version control, or "
                "remove it to run its trials again"
            )
            _warn_damaged(path, damage, advice)
        return records, damage is not None

    def _pack(self, study: str, variant: str) -> Path:
        return self.folder / f"{study}-{variant}.jsonl.gz"

    def _unpacked(self, study: str, variant: str) -> Path:
        return self.folder / "running" / f"{study}-{variant}"


class _Content(NamedTuple):
    """What could be decompressed of a file."""

    text: bytes
    complete: bool


def _decompress(data: bytes) -> _Content:
    """The content of a gzip file, up to where it is damaged."""
    stream, text = zlib.decompressobj(wbits=31), b""
    try:
        for start in range(0, len(data), 1024):  # in pieces: what precedes the damage is returned
            text += stream.decompress(data[start : start + 1024])
    except zlib.error:
        return _Content(text, False)
    return _Content(text, stream.eof)


def _parse(text: bytes) -> Record:
    """The record of a line or file; raises `ValueError` where it is none."""
    record = json.loads(text)
    try:
        config = {name: record["config"][name] for name in Trial.__dataclass_fields__}
        valid = Trial(**config).identity == record["identity"] and "result" in record
    except (KeyError, TypeError) as error:
        raise ValueError(f"it is no record: {type(error).__name__} {error}") from None
    if not valid:
        raise ValueError("its identity is not that of its trial")
    return dict(record)


def _warn_damaged(path: Path, error: Exception, advice: str) -> None:
    message = f"{path} is damaged ({error}): {advice}."
    warnings.warn(message, DamagedRecordWarning, stacklevel=2)


def origin(record: Record) -> dict[str, str]:
    """Return device, date (the day) and commit of a record; "not recorded" where it lacks them."""
    found = {name: str(record.get(name, NOT_RECORDED)) for name in ("device", "date", "commit")}
    return found | {"date": found["date"].split("T")[0]}


def device_name(study: str) -> str:
    """Return the accelerator of JAX, where it has one and the study uses it; else the processor."""
    jax = sys.modules.get("jax")  # not imported here: forests do without
    if study not in ON_PROCESSOR and jax is not None and jax.default_backend() != "cpu":
        return str(jax.devices()[0].device_kind)
    information = Path("/proc/cpuinfo")
    text = information.read_text("utf-8") if information.exists() else ""
    models = [line.split(":", 1)[1].strip() for line in text.splitlines() if "model name" in line]
    return f"{os.cpu_count()} × {models[0] if models else platform.machine()}"


@cache
def current_commit() -> str:
    """Return the commit of the clone, with "+" where files have been changed since."""
    try:
        commit = _git("rev-parse", "--short=12", "HEAD")
        return commit + "+" * bool(_git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*arguments: str) -> str:
    call = ["git", "-C", str(ROOT), *arguments]
    return subprocess.run(call, capture_output=True, text=True, check=True).stdout.strip()


@cache
def library_versions() -> dict[str, str]:
    """Return the versions of twinned, Python and the libraries that compute."""
    found = {"twinned": __version__, "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "absent"
    return found


def _sort_key(record: Record) -> tuple[Any, ...]:
    config = record["config"]
    return config["dataset"], config["split"], json.dumps(config["settings"], sort_keys=True)
