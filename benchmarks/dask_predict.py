"""Rate and memory of `twinned predict` of Parquet files on a Dask cluster of this computer.

A default tree twin with 500 anchors and 10 features predicts 20 million rows with workers of 2 GB.
For each number of workers: seconds, rows per second, the peak resident memory of the largest
worker, and whether the results equal `predict`. With `--kill`, a worker is killed in mid-run; with
`--restart`, the whole command, which is started again: that no finished partition is written again
is checked, and the rate means nothing. Writes `benchmarks/results/dask_predict.md`.

    python -m benchmarks.dask_predict                             # two workers
    python -m benchmarks.dask_predict --threads 8                 # on 16 cores
    python -m benchmarks.dask_predict --workers 1 4
    python -m benchmarks.dask_predict --rows 200000 --kill --restart
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from benchmarks.measurement import peak_megabytes
from paper import harness
from twinned import TwinRegressor, load, save

N_ANCHORS, N_FEATURES = 500, 10
N_FILES, ROWS_PER_GROUP = 20, 100_000
CHECKED_ROWS = 500  # of each partition
NAMES = [f"x{j}" for j in range(N_FEATURES)]


def make_rows(n_rows, seed):
    return np.random.default_rng(seed).uniform(size=(n_rows, N_FEATURES))


def write_inputs(folder, n_rows):
    """Write the model and files of rows; a file that exists is not written again."""
    (folder / "data").mkdir(exist_ok=True)
    if not (folder / "model.twin").exists():
        import pandas as pd

        X = make_rows(N_ANCHORS, 0)
        y = X[:, 0] + np.sin(6 * X[:, 1]) + X[:, 2] * X[:, 3]
        twin = TwinRegressor(random_state=0).fit(pd.DataFrame(X, columns=NAMES), y)
        save(twin, folder / "model.twin")
    for number in range(N_FILES):
        path = folder / "data" / f"{number:04}.parquet"
        if not path.exists():
            rows = make_rows(n_rows // N_FILES, number + 1)
            table = pa.table(list(rows.T), names=NAMES)
            parquet.write_table(table, path, row_group_size=ROWS_PER_GROUP)


def start_command(folder, output, address):
    command = [sys.executable, "-m", "twinned.app.cli", "predict", "model.twin", "data/*.parquet"]
    command += ["-o", str(output), "--scheduler", address, "--json"]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)


def wait_for_partitions(output, count):
    while len(list(output.glob("*.parquet"))) < count:
        time.sleep(0.05)


def is_identical(folder, output):
    """Whether the first rows of each file of results equal `predict` of the same rows."""
    twin = load(folder / "model.twin")
    for path in sorted((folder / "data").glob("*.parquet")):
        rows = parquet.read_table(path).to_pandas()
        parts = sorted(output.glob(f"{path.stem}-*.parquet"))
        found = [parquet.read_table(part)["prediction"].to_numpy() for part in parts]
        start = 0
        for values in found:
            checked = slice(start, start + min(CHECKED_ROWS, len(values)))
            if not np.array_equal(twin.predict(rows[checked]), values[:CHECKED_ROWS]):
                return False
            start += len(values)
        if start != len(rows):
            return False
    return True


def measure(folder, n_workers, n_threads, *, kill, restart):
    from distributed import Client, LocalCluster

    output = folder / f"predictions-{n_workers}-{int(time.time())}"
    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=n_threads,
            memory_limit="2GB",
            dashboard_address="127.0.0.1:0",
            silence_logs=50,
        ) as cluster,
        Client(cluster) as client,
    ):
        start = time.perf_counter()
        command = start_command(folder, output, cluster.scheduler_address)
        if kill:
            wait_for_partitions(output, 1)
            os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        if restart:
            wait_for_partitions(output, 2)
            command.kill()
            command.wait()
            before = {path: path.stat().st_mtime_ns for path in output.glob("*.parquet")}
            command = start_command(folder, output, cluster.scheduler_address)
        printed, _ = command.communicate()
        seconds = time.perf_counter() - start
        if command.returncode:
            raise RuntimeError("the command failed")
        print(printed, end="")
        if restart and any(path.stat().st_mtime_ns != time_ for path, time_ in before.items()):
            raise RuntimeError("a finished partition was written again")
        peak = max(client.run(peak_megabytes).values())
    return seconds, peak, is_identical(folder, output)


def main():
    arguments = harness.parse_arguments(
        __doc__, rows=20_000_000, workers=[2], threads=1, kill=False, restart=False, folder=""
    )
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(arguments.folder or temporary)
        write_inputs(folder, arguments.rows)
        for n_workers in arguments.workers:
            seconds, peak, identical = measure(
                folder,
                n_workers,
                arguments.threads,
                kill=arguments.kill,
                restart=arguments.restart,
            )
            is_whole = not arguments.kill and not arguments.restart
            rate = f"{arguments.rows / seconds:,.0f}" if is_whole else "—"
            rows.append([f"{n_workers}", f"{seconds:.0f}", rate, f"{peak:.0f}"])
            rows[-1].append("yes" if identical else "no")
            print(*rows[-1], flush=True)
    interrupted = " a killed worker," * arguments.kill + " a killed command," * arguments.restart
    header = "workers | seconds | rows per second | peak of a worker, MB | identical to predict"
    lines = [
        f"# `twinned predict` of {arguments.rows:,} rows on a Dask cluster of one computer",
        "",
        f"A default tree twin, {N_ANCHORS} anchors, {N_FEATURES} features, Parquet files, workers "
        f"of 2 GB, threads of each: {arguments.threads},{interrupted} start of the command "
        "included.",
        "",
        *harness.markdown_table(header, rows),
    ]
    harness.write_markdown(harness.RESULTS / "dask_predict.md", lines)


if __name__ == "__main__":
    main()
