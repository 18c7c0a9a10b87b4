"""Partitions of CSV and Parquet files: row groups, or ranges of bytes that end with a record.

A plan depends on the files alone, so that a second run of a command finds the same partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twinned.app.cli.prediction import ModelFeatures
from twinned.app.tables import ReadOptions, Table, is_pattern, join_names, table_from_text
from twinned.app.tables.arrow import header_table, is_numeric
from twinned.app.tables.numbers import NumberFormat
from twinned.exceptions import MissingExtraError

TEXT, PARQUET = "csv", "parquet"
ROWS_PER_PARTITION = 100_000  # of Parquet files, unless a row group has more
BYTES_PER_PARTITION = 8 * 2**20  # of text, which takes about ten times as much as Python objects
_HEAD_BYTES = 2**16  # of each text file, to compare its header


@dataclass(frozen=True)
class Partition:
    """A part of a file: the row groups of a Parquet file, or a range of bytes of a text file.

    `first_row` is the number of rows of the file before it, of a text file that of lines, and
    `header` the first bytes of a text file, which name its columns.
    """

    path: Path
    output: str  # name of the file of its predictions
    first_row: int = 0
    row_groups: tuple[int, ...] = ()
    start: int = 0
    stop: int = 0
    header: bytes = b""


@dataclass(frozen=True)
class Plan:
    """Partitions of files of one kind, and how text files are read.

    `formats` are the notations of numbers by column, detected in the first partition. `ignored` are
    the columns of the first file that are not used.
    """

    kind: str
    files: list[Path]
    partitions: list[Partition]
    reading: ReadOptions
    ignored: list[str]
    formats: dict[str, NumberFormat] = field(default_factory=dict)
    detected: list[str] = field(default_factory=list)


def find_files(pattern: Path) -> list[Path]:
    """The files of a pattern, a folder or a single name, sorted."""
    if pattern.is_dir():
        found = [each for each in pattern.iterdir() if each.suffix.lower() in (".csv", ".parquet")]
    elif is_pattern(pattern):
        found = list(Path(pattern.anchor or ".").glob(str(pattern.relative_to(pattern.anchor))))
    else:
        found = [pattern]
    files = sorted(each.resolve() for each in found if each.is_file())
    if not files:
        raise FileNotFoundError(f"there is no file {pattern}; give CSV or Parquet files.")
    return files


def make_plan(
    files: list[Path], features: ModelFeatures, keep: Sequence[str], reading: ReadOptions
) -> Plan:
    """Split files into partitions; raise a ValueError for columns that are absent or differ."""
    kinds = {path: _file_kind(path) for path in files}
    first = files[0]
    for path, kind in kinds.items():
        if kind != kinds[first]:
            raise ValueError(f"{path} is a {kind} file, but {first} is a {kinds[first]} file.")
    outputs = _output_stems(files)
    if kinds[first] == PARQUET:
        return _plan_parquet(files, outputs, features, keep, reading)
    return _plan_text(files, outputs, features, keep, reading)


# --- Parquet ----------------------------------------------------------------------------------


def open_parquet(path: Path) -> Any:
    """Open a Parquet file; only its footer is read."""
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtraError(
            f"{path} is a Parquet file, which needs pyarrow: pip install 'twinned[parquet]'."
        ) from error
    try:
        return parquet.ParquetFile(path)
    except Exception as error:
        reason = next(iter(str(error).splitlines()), "")
        raise ValueError(f"{path} cannot be read as a Parquet file: {reason}.") from None


def _plan_parquet(
    files: list[Path],
    outputs: list[str],
    features: ModelFeatures,
    keep: Sequence[str],
    reading: ReadOptions,
) -> Plan:
    partitions: list[Partition] = []
    types: dict[str, Any] = {}
    ignored: list[str] = []
    first = files[0]  # that has rows: without any, the types of columns mean nothing
    for path, output in zip(files, outputs, strict=True):
        with open_parquet(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
            used = _used_columns(header_table(path, schema.names), features, keep)
            if not ignored:
                ignored = [name for name in schema.names if name not in used]
            if not types and metadata.num_rows:
                types = {name: schema.field(name).type for name in used}
                first = path
            for name, expected in types.items() if metadata.num_rows else ():
                _check_type(path, name, schema.field(name).type, first, expected)
            sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        partitions += _group_rows(path, output, sizes)
    return Plan(PARQUET, files, partitions, reading, ignored)


def _group_rows(path: Path, output: str, sizes: list[int]) -> Iterator[Partition]:
    """Yield partitions of consecutive row groups; a file without rows has one of none."""
    groups: list[int] = []
    first_row = n_rows = number = 0
    for i, size in enumerate(sizes):
        if groups and n_rows + size > ROWS_PER_PARTITION:
            yield Partition(path, f"{output}-{number:05}.parquet", first_row, tuple(groups))
            groups, first_row, n_rows, number = [], first_row + n_rows, 0, number + 1
        groups.append(i)
        n_rows += size
    if groups or not sizes:
        yield Partition(path, f"{output}-{number:05}.parquet", first_row, tuple(groups))


def _check_type(path: Path, name: str, found: Any, first: Path, expected: Any) -> None:
    absent = str(found) == "null" or str(expected) == "null"  # all values are missing
    if not absent and is_numeric(found) != is_numeric(expected):
        raise ValueError(
            f"{path}, column {name!r} is of type {found}, but of type {expected} in {first}; write "
            "all files with the same types."
        )


# --- text -------------------------------------------------------------------------------------


def _plan_text(
    files: list[Path],
    outputs: list[str],
    features: ModelFeatures,
    keep: Sequence[str],
    reading: ReadOptions,
) -> Plan:
    partitions: list[Partition] = []
    first: Table | None = None
    for path, output in zip(files, outputs, strict=True):
        own = list(_split_text(path, output))
        partitions += own
        data = read_bytes(own[0])
        if not has_rows(data):
            continue
        if first is None:
            first = table_from_text(path, data, reading)
            reading = first.reading
            _used_columns(first, features, keep)
        else:
            head = data[:_HEAD_BYTES]
            head = head[: _last_record_end(head)] if len(head) < len(data) else head
            _used_columns(table_from_text(path, head or data, reading), features, keep)
    if first is None:
        raise ValueError(f"{files[0]} has no rows, and neither has another file.")
    used = _used_columns(first, features, keep)
    return Plan(
        TEXT,
        files,
        partitions,
        reading,
        [name for name in first.names if name not in used],
        dict(zip(first.names, first.formats, strict=True)),
        first.detected,
    )


def read_bytes(partition: Partition) -> bytes:
    """The bytes of a partition of a text file, after the header of the file."""
    with partition.path.open("rb") as file:
        file.seek(partition.start)
        return partition.header + file.read(partition.stop - partition.start)


def has_rows(data: bytes) -> bool:
    """Whether text has more than a header."""
    _, _, rows = data.partition(b"\n")
    return bool(rows.strip())


def _split_text(path: Path, output: str) -> Iterator[Partition]:
    """Yield ranges of bytes that end with a line break outside of quotes."""
    header, start, n_lines, number = b"", 0, 0, 0
    with path.open("rb") as file:
        block = file.read(BYTES_PER_PARTITION)
        splittable = b"\0" not in block[:4096]  # else UTF-16, whose line breaks are no bytes
        while True:
            more = file.read(BYTES_PER_PARTITION)
            cut = _last_record_end(block) if more and splittable else 0
            if more and not cut:
                block += more
                continue
            end = start + (cut if more else len(block))
            name = f"{output}-{number:05}.csv"
            yield Partition(path, name, n_lines, start=start, stop=end, header=header)
            if not more:
                return
            header = header or _header_bytes(block)
            n_lines += block.count(b"\n", 0, cut) - (header.count(b"\n") if number == 0 else 0)
            block, start, number = block[cut:] + more, end, number + 1


def _last_record_end(block: bytes) -> int:
    """The end of the last complete record, 0 if there is none; it begins outside of quotes."""
    end = block.rfind(b"\n") + 1
    while end and block.count(b'"', 0, end) % 2:
        end = block.rfind(b"\n", 0, end - 1) + 1
    return end


def _header_bytes(block: bytes) -> bytes:
    """The first record, with a line `sep=…` before it."""
    end = block.index(b"\n") + 1
    if block.startswith(b"sep="):
        end = block.index(b"\n", end) + 1
    while block.count(b'"', 0, end) % 2:
        end = block.index(b"\n", end) + 1
    return block[:end]


# --- both -------------------------------------------------------------------------------------


def _used_columns(table: Table, features: ModelFeatures, keep: Sequence[str]) -> list[str]:
    table.require(keep, "--keep")
    _, sources = features.select(table)
    return list(dict.fromkeys([*sources, *keep]))


def _file_kind(path: Path) -> str:
    with path.open("rb") as file:
        start = file.read(4)
    if start == b"PAR1":
        return PARQUET
    if start in (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"%PDF") or start.startswith(b"\x1f\x8b"):
        raise ValueError(f"{path} is neither a CSV nor a Parquet file, of which partitions are.")
    return TEXT


def _output_stems(files: list[Path]) -> list[str]:
    """Names of the outputs without number and suffix: those of the files in their folders."""
    common = files[0].parent
    while any(common not in path.parents for path in files):
        common = common.parent
    stems = ["_".join(path.relative_to(common).with_suffix("").parts) for path in files]
    repeated = [stem for stem in dict.fromkeys(stems) if stems.count(stem) > 1]
    if repeated:
        raise ValueError(f"several files would have the output {join_names(repeated)}; rename one.")
    return stems
