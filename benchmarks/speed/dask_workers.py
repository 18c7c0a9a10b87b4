"""Rows per second of `predict` of a Dask array, by the number of workers.

A default tree twin with 500 anchors and 10 features; workers have one thread. Each number of
workers is measured twice, in turns. Writes `benchmarks/results/dask_workers.md`.

    python -m benchmarks.speed.dask_workers     # 16 cores: three minutes
"""

import time

import numpy as np

from benchmarks import frame
from twinned import TwinRegressor

N_ANCHORS, N_FEATURES, N_CHUNKS = 500, 10, 64


def make_rows(n_rows, seed):
    return np.random.default_rng(seed).uniform(size=(n_rows, N_FEATURES))


def measure(twin, rows, n_workers, expected):
    """Return the rows per second, and whether the first results equal `predict`."""
    import dask.array as da
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            memory_limit="2GB",
            dashboard_address=None,
        ) as cluster,
        Client(cluster),
    ):
        first = da.from_array(rows[: 16 * n_workers], chunks=(16, -1))
        twin.predict(first).compute()  # workers import the library
        start = time.perf_counter()
        predicted = twin.predict(da.from_array(rows, chunks=(len(rows) // N_CHUNKS, -1))).compute()
        rate = len(rows) / (time.perf_counter() - start)
    return rate, np.array_equal(predicted[: len(expected)], expected)


def main():
    arguments = frame.parse_arguments(__doc__, rows=64_000, workers=[1, 4, 8])
    X = make_rows(N_ANCHORS, 0)
    y = X[:, 0] + np.sin(6 * X[:, 1]) + X[:, 2] * X[:, 3]
    twin = TwinRegressor(random_state=0).fit(X, y)
    rows = make_rows(arguments.rows, 1)
    expected = twin.predict(rows[: arguments.rows // 8])
    runs = {n_workers: [] for n_workers in arguments.workers}
    for n_workers in arguments.workers * 2:
        runs[n_workers].append(measure(twin, rows, n_workers, expected))
        print(n_workers, *runs[n_workers][-1], flush=True)
    rates = {n_workers: np.mean([rate for rate, _ in own]) for n_workers, own in runs.items()}
    lines = [
        f"# `predict` of a Dask array of {arguments.rows:,} rows",
        "",
        f"A default tree twin, {N_ANCHORS} anchors, {N_FEATURES} features; workers of one thread.",
        "",
        *frame.markdown_table(
            "workers | rows per second, two runs | ratio to the first | equal to predict",
            [
                f"{n_workers} | {', '.join(f'{rate:,.0f}' for rate, _ in own)} | "
                f"{rates[n_workers] / rates[arguments.workers[0]]:.2f} | "
                f"{'yes' if all(equal for _, equal in own) else 'no'}"
                for n_workers, own in runs.items()
            ],
        ),
    ]
    frame.write_markdown(frame.RESULTS / "dask_workers.md", lines)


if __name__ == "__main__":
    main()
