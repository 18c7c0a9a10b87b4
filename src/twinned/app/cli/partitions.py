"""`twinned predict` of many files: partitions, predicted on a Dask cluster.

A partition is a range of row groups of a Parquet file, or of bytes of a text file that ends with a
record. The partitions depend on the files alone, so that a second run of a command has the same. A
partition is finished if the file of its predictions exists, which appears completely or not at
all. `_predictions.json` in the folder states the model and the options, which must be the same when
a command is started again.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import os
import pickle
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from twinned.app.cli.options import PredictOptions, ResultColumns
from twinned.app.cli.prediction import Columns, LoadedTwin, plain_values, rows_outside
from twinned.app.tables import reader
from twinned.app.tables.numbers import NumberFormat
from twinned.app.tables.table import ReadOptions, Table, join_names, to_csv
from twinned.exceptions import require_extra
from twinned.persistence.archive import write_atomically

if TYPE_CHECKING:
    from distributed import Client, Future
    from pyarrow import DataType

TEXT, PARQUET = "csv", "parquet"
MANIFEST = "_predictions.json"
ROWS_PER_PARTITION = 100_000  # of Parquet files, unless a row group has more
BYTES_PER_PARTITION = 8 * 2**20  # of text, which takes about ten times as much as Python objects
ROWS_PER_BATCH = 65_536  # of Parquet files, predicted at once
CONNECT_SECONDS = 10
_HEAD_BYTES = 2**16  # of each text file, to compare its header
_PARTITIONS_PER_THREAD = 2  # submitted at once: one is predicted, and one waits
_AGAIN = "finished partitions remain, start the command again"


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


@dataclass
class Plan:
    """Partitions of files of one kind, the wanted columns of the result, and how text is read.

    `folder` is that of the results.
    `formats` are the notations of numbers by column, detected in the first partition. `ignored` are
    the columns of the first file that are not used.
    """

    kind: str
    files: list[Path]
    folder: Path
    wanted: PredictOptions
    reading: ReadOptions
    partitions: list[Partition] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    formats: dict[str, NumberFormat] = field(default_factory=dict)
    detected: list[str] = field(default_factory=list)


# --- partitions of files ----------------------------------------------------------------------


def find_files(pattern: Path) -> list[Path]:
    """The files of a pattern, a folder or a single name, sorted."""
    if pattern.is_dir():
        paths = [each for each in pattern.iterdir() if each.suffix.lower() in (".csv", ".parquet")]
    elif reader.is_pattern(pattern):
        paths = list(Path(pattern.anchor or ".").glob(str(pattern.relative_to(pattern.anchor))))
    else:
        paths = [pattern]
    files = sorted(each.resolve() for each in paths if each.is_file())
    if not files:
        raise FileNotFoundError(f"there is no file {pattern}; give CSV or Parquet files.")
    return files


def make_plan(pattern: Path, folder: Path, loaded: LoadedTwin, options: PredictOptions) -> Plan:
    """Split files into partitions; raise a ValueError for columns that are absent or differ."""
    files = find_files(pattern)
    kinds = {path: _file_kind(path) for path in files}
    kind = kinds[files[0]]
    for path, other in kinds.items():
        if other != kind:
            raise ValueError(f"{path} is a {other} file, but {files[0]} is a {kind} file.")
    if options.header_row is not None:
        raise ValueError("--header-row does not apply to several files, which begin with names.")
    plan = Plan(kind, files, folder.resolve(), options, options.reading)
    outputs = dict(zip(files, _output_stems(files), strict=True))
    (_add_parquet if kind == PARQUET else _add_text)(plan, outputs, loaded)
    return plan


def _file_kind(path: Path) -> str:
    start = reader.first_bytes(path)
    if start.startswith(b"PAR1"):
        return PARQUET
    if start.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"%PDF", b"\x1f\x8b")):
        raise ValueError(f"{path} is neither a CSV nor a Parquet file, of which partitions are.")
    return TEXT


def _output_stems(files: list[Path]) -> list[str]:
    """Names of the outputs without number and suffix: those of the files in their folders."""
    common = os.path.commonpath([path.parent for path in files])
    stems = ["_".join(path.relative_to(common).with_suffix("").parts) for path in files]
    if repeated := [stem for stem in dict.fromkeys(stems) if stems.count(stem) > 1]:
        raise ValueError(f"several files would have the output {join_names(repeated)}; rename one.")
    return stems


def _used_columns(table: Table, loaded: LoadedTwin, wanted: ResultColumns) -> list[str]:
    table.require(wanted.copied, "--keep")
    _, sources = loaded.select(table)
    return list(dict.fromkeys([*sources, *wanted.copied]))


def _add_parquet(plan: Plan, outputs: dict[Path, str], loaded: LoadedTwin) -> None:
    """Add the partitions of Parquet files to a plan."""
    types: dict[str, tuple[DataType, Path]] = {}  # of each column, and the first file of it
    for path, output in outputs.items():
        with reader.open_parquet(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
        used = _used_columns(reader.header_table(path, schema.names), loaded, plan.wanted)
        plan.ignored = plan.ignored or [name for name in schema.names if name not in used]
        for name in used:
            kind = schema.field(name).type
            if not metadata.num_rows or str(kind) == "null":  # no values
                continue
            expected, first = types.setdefault(name, (kind, path))
            if reader.is_numeric(kind) != reader.is_numeric(expected):
                other = f"but {expected} in {first}; write the same types"
                raise ValueError(f"{path}, column {name!r} is of type {kind}, {other}.")
        sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        plan.partitions += _group_rows(path, output, sizes)


def _group_rows(path: Path, output: str, sizes: list[int]) -> Iterator[Partition]:
    """Yield partitions of consecutive row groups; a file without rows has one of none."""
    parts: list[list[int]] = [[]]
    for i, size in enumerate(sizes):
        if parts[-1] and sum(sizes[j] for j in parts[-1]) + size > ROWS_PER_PARTITION:
            parts.append([])
        parts[-1].append(i)
    for number, groups in enumerate(parts):
        first_row = sum(sizes[: groups[0]]) if groups else 0
        yield Partition(path, f"{output}-{number:05}.parquet", first_row, tuple(groups))


def _add_text(plan: Plan, outputs: dict[Path, str], loaded: LoadedTwin) -> None:
    """Add the partitions of text files to a plan, and how the first of them is read."""
    first: Table | None = None
    for path, output in outputs.items():
        parts = list(split_text(path, output))
        plan.partitions += parts
        data = read_bytes(parts[0])
        if not _has_rows(data):
            continue
        if first is None:
            first = reader.table_from_text(path, data, plan.reading)
            used = _used_columns(first, loaded, plan.wanted)
            plan.ignored = [name for name in first.names if name not in used]
            plan.reading, plan.detected = first.reading, first.detected
            plan.formats = dict(zip(first.names, first.formats, strict=True))
        else:
            end = _last_record_end(data[:_HEAD_BYTES]) if len(data) > _HEAD_BYTES else 0
            table = reader.table_from_text(path, data[: end or None], plan.reading)
            _used_columns(table, loaded, plan.wanted)
    if first is None:
        raise ValueError(f"{plan.files[0]} has no rows, and neither has another file.")


def read_bytes(partition: Partition) -> bytes:
    """The bytes of a partition of a text file, after the header of the file."""
    with partition.path.open("rb") as file:
        file.seek(partition.start)
        return partition.header + file.read(partition.stop - partition.start)


def _has_rows(data: bytes) -> bool:
    """Whether text has more than a header."""
    return bool(data.partition(b"\n")[2].strip())


def split_text(path: Path, output: str) -> Iterator[Partition]:
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


# --- the folder of results --------------------------------------------------------------------


def prepare_output(model: Path, plan: Plan) -> list[Partition]:
    """Create or check the folder of the results; return the partitions that are not finished."""
    folder = plan.folder
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"-o {folder} is a file; give a folder for the predictions of partitions.")
    if any(folder == path.parent for path in plan.files):
        raise ValueError(f"-o {folder} holds the input; give another folder.")
    folder.mkdir(exist_ok=True)
    states = {str(path): path.stat() for path in plan.files}
    names = [*(each.name for each in fields(ResultColumns)), "digits", "batch", "known"]
    manifest = {
        "model": hashlib.sha256(model.read_bytes()).hexdigest(),
        "columns": json.loads(json.dumps({x: vars(plan.wanted)[x] for x in names}, default=str)),
        "files": {path: [state.st_size, state.st_mtime_ns] for path, state in states.items()},
    }
    path = folder / MANIFEST
    if path.exists():
        _check_manifest(path, json.loads(path.read_text()), manifest)
        for unfinished in folder.glob(".*.part"):  # of a command that was killed
            unfinished.unlink(missing_ok=True)
    elif any(folder.iterdir()):
        raise ValueError(f"-o {folder} is not empty and holds no predictions; give a new folder.")
    write_atomically(path, json.dumps(manifest, indent=1).encode())
    return [each for each in plan.partitions if not (folder / each.output).exists()]


def _check_manifest(path: Path, before: dict, now: dict) -> None:
    """Raise a ValueError where finished predictions are those of something else."""
    for key, meaning in (("model", "another model"), ("columns", "other options")):
        if before.get(key) != now[key]:
            raise ValueError(f"-o {path.parent} has predictions with {meaning}; give a new folder.")
    for name, state in before["files"].items():
        if now["files"].setdefault(name, state) != state:
            raise ValueError(f"{name} has changed since its predictions; give a new folder.")


# --- tasks of workers -------------------------------------------------------------------------


@dataclass(frozen=True)
class Finished:
    """A written partition: its rows, those outside of the known rows, and (kind, text) messages."""

    n_rows: int
    n_outside: int
    messages: list[tuple[str, str]]


def predict_partition(loaded: LoadedTwin, plan: Plan, partition: Partition) -> Finished:
    """Predict a partition and write the result, completely or not at all."""
    target = plan.folder / partition.output
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        predict = _predict_parquet if plan.kind == PARQUET else _predict_text
        columns, notes, content = predict(loaded, plan, partition)
    try:
        write_atomically(target, content)
    except OSError as error:  # which may name the temporary file, or none
        raise OSError(error.errno, error.strerror, str(target)) from None
    n_outside = rows_outside(columns)
    messages = [("note", note) for note in notes]
    shown = [each for each in caught if issubclass(each.category, UserWarning)]
    messages += [("warning", str(each.message)) for each in shown]
    return Finished(len(next(iter(columns.values()))), n_outside, messages)


Predicted = tuple[Columns, list[str], bytes]  # columns, notes, and the content of the file


def _predict_text(loaded: LoadedTwin, plan: Plan, partition: Partition) -> Predicted:
    data, wanted = read_bytes(partition), plan.wanted
    notes: list[str] = []
    if _has_rows(data):
        table = reader.table_from_text(partition.path, data, plan.reading)
        detected = zip(table.names, table.formats, strict=True)
        formats = [plan.formats.get(name, its_format) for name, its_format in detected]
        lines = [line + partition.first_row for line in table.lines]
        table = replace(table, formats=formats, lines=lines)
        X, notes = loaded.read(table)
        columns = loaded.predict_columns(X, wanted, loaded.read_batch(table))
        copied = {name: table.column(name) for name in wanted.copied}
    else:
        columns, copied = loaded.empty_columns(wanted), {name: [] for name in wanted.copied}
    return columns, notes, to_csv({**copied, **plain_values(columns)}, wanted.digits)


def _predict_parquet(loaded: LoadedTwin, plan: Plan, partition: Partition) -> Predicted:
    import pyarrow as pa
    from pyarrow import parquet

    parts, keep = [loaded.empty_columns(plan.wanted)], list(plan.wanted.copied)
    notes: list[str] = []
    row, groups = partition.first_row, list(partition.row_groups)
    with reader.open_parquet(partition.path) as file:
        header = reader.header_table(partition.path, file.schema_arrow.names)
        names, _ = loaded.select(header)
        kinds = zip(names, loaded.categories, strict=True)
        numeric = [name for name, categories in kinds if categories is None]
        copied = [pa.Table.from_batches([], file.schema_arrow).select(keep)]
        used = _used_columns(header, loaded, plan.wanted)
        for batch in file.iter_batches(ROWS_PER_BATCH, row_groups=groups, columns=used):
            table = reader.batch_table(partition.path, batch, row, plan.reading, numeric)
            X, batch_notes = loaded.read(table)
            parts.append(loaded.predict_columns(X, plan.wanted, loaded.read_batch(table)))
            copied.append(pa.Table.from_batches([batch]).select(keep))
            notes += batch_notes
            row += batch.num_rows
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    result = dict(zip(keep, pa.concat_tables(copied).columns, strict=True))
    for name, values in columns.items():
        result[name] = pa.array(values, pa.string() if values.dtype.kind == "O" else None)
    stream = pa.BufferOutputStream()
    parquet.write_table(pa.table(result), stream)
    return columns, notes, stream.getvalue().to_pybytes()


# --- the cluster ------------------------------------------------------------------------------


@contextmanager
def connect(scheduler: str | None, n_workers: int | None) -> Iterator[Client]:
    """A client of the scheduler at this address, or of a new cluster of processes."""
    with require_extra("partitions are predicted with Dask: pip install 'twinned[dask]'."):
        from distributed import Client, LocalCluster
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # Dask logs much; errors are reported in one line
    try:
        if scheduler is None:
            quiet = {"dashboard_address": "127.0.0.1:0", "silence_logs": logging.CRITICAL}
            cluster = LocalCluster(n_workers=n_workers, threads_per_worker=1, **quiet)
            with cluster, Client(cluster) as client:
                yield client
            return
        with _open_client(scheduler) as client:
            try:
                client.wait_for_workers(1, timeout=CONNECT_SECONDS)
            except TimeoutError:
                raise ValueError(f"--scheduler {scheduler} has no workers; start some.") from None
            yield client
    finally:
        logging.disable(disabled)


def _open_client(scheduler: str) -> Client:
    """A client of the scheduler at this address; a ValueError where it cannot be reached."""
    from distributed import Client

    try:
        return Client(scheduler, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
    # A client of an unknown kind of address is not closed before it is deleted. Later, that could
    # happen while Dask starts another one and holds a lock that closing waits for.
    gc.collect()
    raise ValueError(f"--scheduler {scheduler} cannot be reached: {reason}.")


def predict_partitions(
    client: Client, loaded: LoadedTwin, plan: Plan, partitions: Sequence[Partition]
) -> Iterator[tuple[Partition, Finished]]:
    """Predict partitions, and yield each when it is written.

    Few of them are submitted at a time, and the model once. It is the result of a task, not
    scattered data, so that it is computed again where the workers that held it die.
    """
    import cloudpickle
    from distributed import as_completed

    sent = client.submit(pickle.loads, cloudpickle.dumps(loaded), pure=False)
    common = replace(plan, partitions=[])
    n_threads = sum(client.nthreads().values())
    waiting = iter(partitions)
    submitted: dict[object, Partition] = {}
    running = as_completed()

    def submit(count: int) -> None:
        for partition in islice(waiting, count):
            future = client.submit(predict_partition, sent, common, partition, pure=False)
            submitted[future.key] = partition
            running.add(future)

    submit(_PARTITIONS_PER_THREAD * n_threads)
    for future in running:
        partition = submitted.pop(future.key)
        yield partition, _result(future, partition)
        submit(1)


def _result(future: Future, partition: Partition) -> Finished:
    """The result of a task; a worker or scheduler that dies is a ValueError of one line."""
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    try:
        return future.result()
    except (KilledWorker, MemoryError):
        died = f"{partition.path}: workers died, probably for lack of memory"
        raise ValueError(f"{died}; {_AGAIN} with more memory for each worker.") from None
    except CancelledError:
        raise ValueError(f"the scheduler cannot be reached any more; {_AGAIN}.") from None
