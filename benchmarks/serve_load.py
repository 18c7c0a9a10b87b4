"""How many requests a second `twinned serve` answers: twins of 500 anchors, one row each.

The service runs in a process of its own; here requests leave at a fixed rate over kept-alive
connections on loopback, whether or not earlier ones were answered, so that waiting counts. A rate
holds where all are answered and 99 % of them within 100 ms.

    python benchmarks/serve_load.py     # eight minutes, on a quiet machine
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from twinned import TwinRegressor, save
from twinned.datasets import make_rcl

RESULTS = Path(__file__).parent / "results"
CONNECTIONS = 32


async def worker(port, queue, latencies, failures):
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
        asyncio.create_task(worker(port, queue, latencies, failures)) for _ in range(CONNECTIONS)
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


def twins():
    """Name → an unfitted twin."""
    grown = RandomForestRegressor(100, min_samples_leaf=2, n_jobs=1, random_state=0)
    pruned = RandomForestRegressor(100, min_samples_leaf=30, n_jobs=1, random_state=0)
    return {
        "forest, leaves of 2 pairs": TwinRegressor(grown, pairs=50, random_state=0),
        "forest, leaves of 30 pairs": TwinRegressor(pruned, pairs=50, random_state=0),
        "boosting, the default": TwinRegressor(random_state=0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rates", nargs="*", type=int, default=[100, 200, 300, 400, 500, 600])
    arguments = parser.parse_args()
    X, y = make_rcl(1000, random_state=0)
    rows = json.loads(X[500:600].to_json(orient="records"))
    bodies = [json.dumps({"rows": [row]}).encode() for row in rows]
    lines = [
        "# Requests a second",
        "",
        f"`python benchmarks/serve_load.py`: twins of the RCL circuit with 500 anchors, one row a "
        f"request, {arguments.seconds:g} s at each rate; generator and service share two cores.",
        "",
        "| twin | test RMSE | sent a second | answered a second | median | 99 % within | failed |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, twin in twins().items():
        twin.fit(X[:500], y[:500])
        error = np.sqrt(np.mean((twin.predict(X[600:]) - y[600:]) ** 2))
        for rate, sent, found, failed, took in held(twin, bodies, arguments):
            median, last = 1000 * np.percentile(found, [50, 99])
            lines.append(
                f"| {name} | {error:.3f} | {rate} | {sent / took:.0f} | {median:.1f} ms | "
                f"{last:.1f} ms | {failed} |"
            )
            print(lines[-1], flush=True)
    (RESULTS / "serve_load.md").write_text("\n".join([*lines, ""]))


def held(twin, bodies, arguments):
    """What came of each rate, up to the first that does not hold."""
    with tempfile.TemporaryDirectory() as folder:
        save(twin, Path(folder) / "m.twin")
        command = [sys.executable, "-u", "-m", "twinned.cli", "serve", f"{folder}/m.twin"]
        with subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, text=True) as run:
            try:
                port = int(run.stdout.readline().split()[0].rsplit(":", 1)[1])
                time.sleep(3)
                asyncio.run(load(port, bodies, 20, 5))  # compile
                for rate in arguments.rates:
                    sent, found, failed, took = asyncio.run(
                        load(port, bodies, rate, arguments.seconds)
                    )
                    yield rate, sent, found, failed, took
                    if np.percentile(found, 99) > 0.1:
                        break
            finally:
                run.terminate()


if __name__ == "__main__":
    main()
