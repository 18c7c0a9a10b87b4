"""One finished run, one record: it is there whole, or not at all.

A *run* is a config: a study in one flavour, on one data set and split, with its
settings. Its identity is a digest of all that, so that a finished run is found again, and a changed
config is a new run. A record holds the config, what came out, which versions of what made it, and
how long it took.

While a study runs, each record is a small file of its own, written beside its place and then
moved there: whatever is killed, no half record is left. `pack` gathers them into one compressed
file for each study and flavour, which is what is committed.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from twinned._version import __version__

LIBRARIES = ("numpy", "scipy", "scikit-learn", "jax")
# Of a record, what may differ between two runs of one config.
PASSING = ("seconds", "host", "versions")


@dataclass(frozen=True)
class Run:
    """What is run. `settings` are numbers, texts and lists of them."""

    study: str
    flavour: str
    dataset: str
    split: int
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def identity(self) -> str:
        """Sixteen hexadecimal digits that stand for the whole config.

        >>> Run("T2", "modern", "YH", 0).identity == Run("T2", "modern", "YH", 0, {}).identity
        True
        >>> Run("T2", "modern", "YH", 0).identity == Run("T2", "modern", "YH", 1).identity
        False
        """
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Records:
    """The records of a folder, packed or not.

    Parameters
    ----------
    folder : path
        Made where it is missing.
    """

    def __init__(self, folder: Any) -> None:
        self.folder = Path(folder)

    def done(self, study: str, flavour: str) -> set[str]:
        """The identities of the runs that are finished."""
        return {record["identity"] for record in self.read(study, flavour)}

    def write(self, run: Run, result: dict[str, Any], seconds: float) -> Path:
        """Keep what a run came to."""
        record = {
            "identity": run.identity,
            "config": asdict(run),
            "result": result,
            "seconds": round(seconds, 3),
            "versions": versions(),
            "host": platform.node(),
        }
        place = self._loose(run.study, run.flavour) / f"{run.identity}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_whole(place, json.dumps(record, sort_keys=True).encode())
        return place

    def read(self, study: str, flavour: str) -> list[dict[str, Any]]:
        """All records of a study in one flavour, by data set, split and settings."""
        found = {record["identity"]: record for record in self._packed(study, flavour)}
        loose = self._loose(study, flavour)
        for place in sorted(loose.glob("*.json")) if loose.is_dir() else ():
            record = json.loads(place.read_bytes())
            found[record["identity"]] = record
        return sorted(found.values(), key=_order)

    def pack(self, study: str, flavour: str) -> Path | None:
        """Gather all records into one compressed file, then remove the small ones it holds."""
        records = self.read(study, flavour)
        if not records:
            return None
        place = self._pack(study, flavour)
        lines = "".join(json.dumps(record, sort_keys=True) + "\n" for record in records)
        # without a time in its head: the same records are the same bytes
        write_whole(place, gzip.compress(lines.encode(), mtime=0))
        # another process may have written more meanwhile: those stay
        for record in records:
            (self._loose(study, flavour) / f"{record['identity']}.json").unlink(True)
        return place

    def _packed(self, study: str, flavour: str) -> Iterator[dict[str, Any]]:
        place = self._pack(study, flavour)
        if place.exists():
            for line in gzip.decompress(place.read_bytes()).decode().splitlines():
                yield json.loads(line)

    def _pack(self, study: str, flavour: str) -> Path:
        return self.folder / f"{study}-{flavour}.jsonl.gz"

    def _loose(self, study: str, flavour: str) -> Path:
        return self.folder / "running" / f"{study}-{flavour}"


def write_whole(place: Path, content: bytes) -> None:
    """A file that others see whole or not at all, also when this process is killed."""
    place.parent.mkdir(parents=True, exist_ok=True)
    beside = place.with_name(f".{place.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(place)


def lasting(record: dict[str, Any]) -> dict[str, Any]:
    """A record without what may differ from one machine or day to the next."""
    return {name: value for name, value in record.items() if name not in PASSING}


def versions() -> dict[str, str]:
    """What made a record."""
    found = {"twinned": __version__, "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            found[library] = "absent"
    return found


def _order(record: dict[str, Any]) -> tuple[Any, ...]:
    config = record["config"]
    return config["dataset"], config["split"], json.dumps(config["settings"], sort_keys=True)
