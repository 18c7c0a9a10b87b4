"""Predictions of many partitions on a Dask cluster, continued after an interruption.

A partition is finished if the file of its predictions exists, which appears completely or not at
all. `_predictions.json` in the folder states the model and the options, which must be the same when
a command is started again.
"""

from __future__ import annotations

import gc
import hashlib
import json
import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

from twinned.app.cli.partition_tasks import Finished, Job, predict_partition
from twinned.app.cli.partitions import Partition, Plan
from twinned.exceptions import MissingExtraError
from twinned.persistence.archive import write_atomically

MANIFEST = "_predictions.json"
_CONNECT_SECONDS = 10
_PARTITIONS_PER_THREAD = 2  # submitted at once: one is predicted, and one waits


def prepare_output(folder: Path, job: Job, plan: Plan) -> list[Partition]:
    """Create or check the folder of the results; return the partitions that are not finished."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"-o {folder} is a file; give a folder for the predictions of partitions.")
    if any(folder.resolve() == path.parent for path in plan.files):
        raise ValueError(f"-o {folder} holds the input; give another folder.")
    folder.mkdir(exist_ok=True)
    manifest = {
        "model": hashlib.sha256(job.model_path.read_bytes()).hexdigest(),
        "columns": json.loads(json.dumps(asdict(job.wanted))),  # lists, as in the file
        "files": {str(path): _file_state(path) for path in plan.files},
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


def _file_state(path: Path) -> list[int]:
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _check_manifest(path: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise a ValueError where finished predictions are those of something else."""
    for key, meaning in (("model", "another model"), ("columns", "other options")):
        if before.get(key) != now[key]:
            raise ValueError(
                f"-o {path.parent} holds predictions with {meaning}; give a new folder."
            )
    for name, state in before["files"].items():
        if now["files"].setdefault(name, state) != state:
            raise ValueError(
                f"{name} has changed since its predictions; give a new folder with -o."
            )


@contextmanager
def connect(scheduler: str | None, n_workers: int | None) -> Iterator[Any]:
    """A client of the scheduler at this address, or of a new cluster of processes."""
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingExtraError(
            "partitions are predicted with Dask: pip install 'twinned[dask]'."
        ) from error
    with _silence("distributed"):
        if scheduler is None:
            with (
                LocalCluster(
                    n_workers=n_workers,
                    threads_per_worker=1,
                    dashboard_address="127.0.0.1:0",
                    silence_logs=logging.CRITICAL,
                ) as cluster,
                Client(cluster) as client,
            ):
                yield client
            return
        with _open_client(scheduler) as client:
            try:
                client.wait_for_workers(1, timeout=_CONNECT_SECONDS)
            except TimeoutError:
                raise ValueError(f"--scheduler {scheduler} has no workers; start some.") from None
            yield client


def _open_client(scheduler: str) -> Any:
    """A client of the scheduler at this address; a ValueError where it cannot be reached."""
    from distributed import Client

    try:
        return Client(scheduler, timeout=_CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
    # A client of an unknown kind of address is not closed before it is deleted. Later, that could
    # happen while Dask starts another one and holds a lock that closing waits for.
    gc.collect()
    raise ValueError(f"--scheduler {scheduler} cannot be reached: {reason}.")


@contextmanager
def _silence(library: str) -> Iterator[None]:
    """Context in which loggers of a library log nothing: errors are reported in one line."""
    names = [library, *logging.root.manager.loggerDict]
    loggers = [logging.getLogger(name) for name in names if name.split(".")[0] == library]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def predict_partitions(
    client: Any,
    model: Any,
    job: Job,
    partitions: list[Partition],
    report: Callable[[Partition, Finished], None],
) -> None:
    """Predict partitions; few of them are submitted at a time, and the model once.

    The model is the result of a task, not scattered data, so that it is computed again where the
    workers that held it die.
    """
    import cloudpickle
    from distributed import as_completed

    sent = client.submit(pickle.loads, cloudpickle.dumps(model), pure=False)
    n_threads = sum(client.nthreads().values())
    waiting = iter(partitions)
    submitted: dict[Any, Partition] = {}
    running = as_completed()

    def submit(count: int) -> None:
        for partition in islice(waiting, count):
            future = client.submit(predict_partition, sent, job, partition, pure=False)
            submitted[future.key] = partition
            running.add(future)

    submit(_PARTITIONS_PER_THREAD * n_threads)
    for future in running:
        partition = submitted.pop(future.key)
        report(partition, _result(future, partition))
        submit(1)


def _result(future: Any, partition: Partition) -> Finished:
    """The result of a task; a worker or scheduler that dies is a ValueError of one line."""
    from concurrent.futures import CancelledError

    from distributed.scheduler import KilledWorker

    again = "finished partitions remain, start the command again"
    try:
        found: Finished = future.result()
    except (KilledWorker, MemoryError):
        raise ValueError(
            f"{partition.path}: workers died while they predicted {partition.output}, "
            f"probably for lack of memory; {again} with more memory for each worker."
        ) from None
    except CancelledError:
        raise ValueError(f"the scheduler cannot be reached any more; {again}.") from None
    return found
