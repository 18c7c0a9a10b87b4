"""JSON records of finished trials.

A *trial* is a study in one variant, on one data set and split, with its settings. Its identity is
a digest of all of these, so a changed setting makes a new trial. A record holds the trial, its
result, the versions of the libraries and the seconds it took.

While a study runs, each record is a small file of its own, written atomically. `pack` gathers them
into one compressed file per study and variant, which is what is committed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from paper.harness import write_file
from twinned._version import __version__

LIBRARIES = ("numpy", "scipy", "scikit-learn", "jax")
# The fields of a record that may differ between two runs of one trial.
VOLATILE_FIELDS = ("seconds", "host", "versions")

Record = dict[str, Any]


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
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Records:
    """The records of a folder, packed or not; a store of `paper.harness.run_pending`.

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
        }
        path = self._unpacked(trial.study, trial.variant) / f"{trial.identity}.json"
        write_file(path, json.dumps(record, sort_keys=True).encode())

    def read(self, study: str, variant: str) -> list[Record]:
        """Return all records of a study in one variant, by data set, split and settings."""
        found = {record["identity"]: record for record in self._read_pack(study, variant)}
        for path in sorted(self._unpacked(study, variant).glob("*.json")):
            record = json.loads(path.read_bytes())
            found[record["identity"]] = record
        return sorted(found.values(), key=_sort_key)

    def pack(self, study: str, variant: str) -> Path | None:
        """Gather all records into one compressed file, then remove the small ones it holds."""
        records = self.read(study, variant)
        if not records:
            return None
        path = self._pack(study, variant)
        lines = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
        # without a time stamp: the same records give the same bytes
        write_file(path, gzip.compress(lines.encode(), mtime=0))
        # another process may have written more records meanwhile: those stay
        for record in records:
            (self._unpacked(study, variant) / f"{record['identity']}.json").unlink(True)
        return path

    def _read_pack(self, study: str, variant: str) -> Iterator[Record]:
        path = self._pack(study, variant)
        if path.exists():
            for line in gzip.decompress(path.read_bytes()).decode().splitlines():
                yield json.loads(line)

    def _pack(self, study: str, variant: str) -> Path:
        return self.folder / f"{study}-{variant}.jsonl.gz"

    def _unpacked(self, study: str, variant: str) -> Path:
        return self.folder / "running" / f"{study}-{variant}"


def reproducible_part(record: Record) -> Record:
    """Return a record without the fields that differ between machines or days."""
    return {name: value for name, value in record.items() if name not in VOLATILE_FIELDS}


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
