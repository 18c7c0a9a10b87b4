"""Requests per second of `twinned serve`: twins of 500 anchors, one row each.

The service runs in a process of its own; requests are sent at a fixed rate over persistent
connections on loopback, whether or not earlier ones have a response, so that waiting counts. A rate
is sustained where every request succeeds and 99 % of them within 100 ms. Writes
`benchmarks/results/serve_load.md`.

    python -m benchmarks.service.serve_load     # eight minutes, on a quiet machine
"""

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from benchmarks import frame
from paper.data import rmse
from twinned import TwinRegressor, save
from twinned.datasets import make_rcl

CONNECTIONS = 32


async def send_requests(port, queue, latencies, failures):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (job := await queue.get()) is not None:
        due, body = job
        writer.write(
            b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        if b" 200 " in head.split(b"\r\n", 1)[0]:
            latencies.append(time.perf_counter() - due)
        else:
            failures.append(head)
    writer.close()


async def load(port, bodies, rate, seconds):
    queue, latencies, failures = asyncio.Queue(), [], []
    workers = [
        asyncio.create_task(send_requests(port, queue, latencies, failures))
        for _ in range(CONNECTIONS)
    ]
    start, sent = time.perf_counter(), 0
    while (now := time.perf_counter() - start) < seconds:
        while sent < now * rate:
            queue.put_nowait((start + sent / rate, bodies[sent % len(bodies)]))
            sent += 1
        await asyncio.sleep(0.002)
    for _ in workers:
        queue.put_nowait(None)
    await asyncio.gather(*workers)
    took = time.perf_counter() - start
    return sent, np.array(latencies), len(failures), took


def make_twins():
    """Return name → an unfitted twin."""
    grown = RandomForestRegressor(100, min_samples_leaf=2, n_jobs=1, random_state=0)
    pruned = RandomForestRegressor(100, min_samples_leaf=30, n_jobs=1, random_state=0)
    return {
        "forest, leaves of 2 pairs": TwinRegressor(grown, pairs=50, random_state=0),
        "forest, leaves of 30 pairs": TwinRegressor(pruned, pairs=50, random_state=0),
        "boosting, the default": TwinRegressor(random_state=0),
    }


@contextmanager
def serve(model):
    """Serve a model in a process of its own; yield its port and the number of the process."""
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "m.twin")
        command = [sys.executable, "-u", "-m", "twinned.app.cli", "serve", f"{folder}/m.twin"]
        with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as run:
            try:
                yield int(run.stdout.readline().split()[0].rsplit(":", 1)[1]), run.pid
            finally:
                run.terminate()


def measure_rates(twin, bodies, rates, seconds):
    """Yield the results of each rate, up to the first that is not sustained."""
    with serve(twin) as (port, _):
        time.sleep(3)
        asyncio.run(load(port, bodies, 20, 5))  # compile
        for rate in rates:
            n_sent, latencies, n_failed, took = asyncio.run(load(port, bodies, rate, seconds))
            yield rate, n_sent / took, latencies, n_failed
            if np.percentile(latencies, 99) > 0.1:
                break


def main():
    arguments = frame.parse_arguments(__doc__, seconds=30.0, rates=[100, 200, 300, 400, 500, 600])
    X, y = make_rcl(1000, random_state=0)
    bodies = [
        json.dumps({"rows": [row]}).encode()
        for row in json.loads(X[500:600].to_json(orient="records"))
    ]
    rows = []
    for name, twin in make_twins().items():
        twin.fit(X[:500], y[:500])
        error = rmse(twin.predict(X[600:]), y[600:])
        results = measure_rates(twin, bodies, arguments.rates, arguments.seconds)
        for rate, completed, latencies, n_failed in results:
            median, last = 1000 * np.percentile(latencies, [50, 99])
            rows.append(
                f"{name} | {error:.3f} | {rate} | {completed:.0f} | {median:.1f} ms | "
                f"{last:.1f} ms | {n_failed}"
            )
            print(rows[-1], flush=True)
    header = "twin | test RMSE | sent a second | completed a second | median | 99 % within | failed"
    lines = [
        "# Requests a second",
        "",
        "`python -m benchmarks.service.serve_load`: twins of the RCL circuit with 500 "
        "anchors, one row a "
        f"request, {arguments.seconds:g} s at each rate; generator and service share two cores.",
        "",
        *frame.markdown_table(header, rows),
    ]
    frame.write_markdown(frame.RESULTS / "serve_load.md", lines)


if __name__ == "__main__":
    main()
