"""Processes that write results at the same time, or that are killed while they write.

They are started as `python -m tests.paper.processes task folder …`. A fork of the process of the
tests could wait forever for a lock that a thread of another test had at that moment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.frame import ROOT, ResultTable, in_parallel, run_pending
from paper.records import Records, Trial
from paper.studies import Study, list_trials, run_study


def start(task: str, *arguments: object) -> subprocess.Popen[bytes]:
    """Start a task of this module in a process of its own."""
    command = [sys.executable, "-m", "tests.paper.processes", task, *map(str, arguments)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # no threads of BLAS where it forks
    return subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True)


def run(task: str, *arguments: object) -> int:
    """Run a task of this module in a process of its own; return its exit code."""
    with start(task, *arguments) as process:
        try:
            return process.wait(timeout=200)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # with the processes that it forked
            raise


def _in_processes(n: int, work: Callable[[int], None]) -> list[int]:
    """Call `work(number)` in n forked processes; return their exit codes."""
    children = []
    for number in range(n):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(number)
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        children.append(child)
    return [os.waitpid(child, 0)[1] for child in children]


def write_records(folder: str, n_runners: str, repetitions: str) -> None:
    """Several runners of one study, which pack after every third record."""
    trials = [Trial("T9", "modern", "YH", split) for split in range(12)]
    for repetition in range(int(repetitions)):
        own = Path(folder, str(repetition))

        def work(number: int, own: Path = own) -> None:
            records = Records(own)
            shifted = trials[number:] + trials[:number]
            for count, trial in enumerate(shifted):
                if records.pending([trial]):
                    records.write(trial, {"rmse": trial.split}, 0.0)
                if count % 3 == 0:
                    records.pack("T9", "modern")
            records.pack("T9", "modern")

        assert _in_processes(int(n_runners), work) == [0] * int(n_runners)
        found = [record["result"]["rmse"] for record in Records(own).read("T9", "modern")]
        assert found == list(range(12))
        assert not list((own / "running").rglob("*.json"))


def write_rows(folder: str, n_runners: str) -> None:
    """Several runners that write the same 25 rows of a table."""
    table = ResultTable(Path(folder, "t.csv"), ("dataset",), ["dataset", "rmse"])

    def work(number: int) -> None:
        for i in range(25):
            table.write((f"set {i}",), {"rmse": 1.0}, 0.0)

    assert _in_processes(int(n_runners), work) == [0] * int(n_runners)
    assert sorted(table.read()["dataset"]) == sorted(f"set {i}" for i in range(25))


BENCHMARK_TRIALS = [(f"set {i}", "twin") for i in range(2000)]


def make_table(folder: Path) -> ResultTable:
    columns = ["dataset", "model", "seed", "rmse:.6g", "seconds:.3g"]
    return ResultTable(folder / "results" / "table.csv", ("dataset", "model"), columns)


def run_trial(dataset: str, model: str) -> list[dict[str, Any]]:
    return [{"seed": seed, "rmse": (seed + 1) / 3, "seconds": 0.5} for seed in (0, 1)]


def run_benchmark(folder: str) -> None:
    run_pending(BENCHMARK_TRIALS, make_table(Path(folder)), in_parallel(run_trial))


def toy_study(folder: Path) -> Study:
    """Trials of a few milliseconds that log when they start and whether they have a record."""

    def trials(variant: str, dataset: str, split: int) -> list[Trial]:
        return [Trial("toy", variant, dataset, split, {"power": power}) for power in (1, 2)]

    def execute(batch: Any) -> Any:
        for trial in batch:
            repeated = list(folder.rglob(f"{trial.identity}.json")) != []
            with (folder / "started.txt").open("a") as file:
                file.write(f"{trial.identity} {repeated}\n")
            rng = np.random.RandomState(trial.split)
            time.sleep(0.002)
            yield trial, {"value": float(np.sum(rng.normal(size=50) ** trial.settings["power"]))}

    return Study("toy", ("modern",), trials, execute, together=True)


def all_trials(study: Study) -> list[Trial]:
    return list_trials(study, "modern", ["A", "B", "C"], range(25))


def run_toy_study(folder: str) -> None:
    study = toy_study(Path(folder))
    run_study(study, all_trials(study), Records(Path(folder)))


def reproducible_part(record):
    """Return a record without the fields that differ between machines or days."""
    volatile = ("seconds", "host", "versions", "device", "date", "commit")
    return {name: value for name, value in record.items() if name not in volatile}


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
