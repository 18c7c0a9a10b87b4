"""A soak of `twinned serve`: good, bad, slow and aborted requests at 200 a second.

The service runs in a process of its own. Of 20 requests, 14 are good, 3 are bad, 1 is sent slowly,
1 is aborted after a part of it, and 1 client leaves before the response. Every ten seconds, the
memory, file descriptors and threads of the service are printed. It fails where a good request has
no correct response, where memory has grown by more than 5 % since the first minute, or where file
descriptors or threads have grown.

    python -m benchmarks.service.serve_soak --minutes 30
    python -m benchmarks.service.serve_soak --minutes 2 --rate 400     # times at another rate
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks import frame
from twinned import TwinRegressor, save
from twinned.datasets import make_rcl

KINDS = ["good"] * 14 + ["bad"] * 3 + ["slow", "aborted", "left"]
BAD_BODIES = [b"", b"{", b'{"rows": [{}]}', b'{"rows": [{"x": 1_0}]}', b"\xff" * 100]
WARM_UP_SECONDS = 60.0
SAMPLE_SECONDS = 10.0
MAX_GROWTH = 0.05
SLACK = 40  # connections and pool threads that are open by chance when a sample is taken


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


def request(body):
    head = f"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def read_response(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def send(port, kind, body, expected):
    """Send one request of a kind; returns what came of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        data = request(body)
        if kind in ("aborted", "left"):
            writer.write(data[: len(data) // 2] if kind == "aborted" else data)
            await writer.drain()
            return "sent"
        if kind == "slow":
            for part in (data[:20], data[20:60], data[60:]):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0.5)
        else:
            writer.write(data)
            await writer.drain()
        status, content = await asyncio.wait_for(read_response(reader), 30)
        if kind == "bad":
            return "refused" if 400 <= status < 500 else f"status {status}"
        if status != 200:
            return f"status {status}"
        predicted = json.loads(content)["prediction"]
        return "right" if np.allclose(predicted, expected, rtol=1e-9) else "wrong"
    except (OSError, asyncio.IncompleteReadError, TimeoutError, IndexError) as error:
        return type(error).__name__
    finally:
        writer.close()


class Resources:
    """Memory in MB, file descriptors and threads of a process."""

    def __init__(self, pid):
        self._folder = Path(f"/proc/{pid}")

    def sample(self):
        status = (self._folder / "status").read_text()
        fields = dict(line.split(":", 1) for line in status.splitlines())
        memory = int(fields["VmRSS"].split()[0]) / 1000
        return memory, len(os.listdir(self._folder / "fd")), int(fields["Threads"])


async def soak(port, pid, cases, rate, seconds):
    resources, samples = Resources(pid), []
    outcomes, latencies, tasks = Counter(), [], set()

    async def one(number):
        kind = KINDS[number % len(KINDS)]
        body, expected = cases[number % len(cases)]
        if kind == "bad":
            body = BAD_BODIES[number % len(BAD_BODIES)]
        start = time.perf_counter()
        outcome = await send(port, kind, body, expected)
        outcomes[kind, outcome] += 1
        if kind == "good":
            latencies.append(time.perf_counter() - start)

    start, sent = time.perf_counter(), 0
    while (now := time.perf_counter() - start) < seconds:
        while sent < now * rate:
            task = asyncio.create_task(one(sent))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            sent += 1
        if now >= len(samples) * SAMPLE_SECONDS:
            samples.append((now, *resources.sample()))
            print(
                "{:6.0f} s  {:7.1f} MB  {:4d} files  {:3d} threads".format(*samples[-1]), flush=True
            )
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    return outcomes, np.array(latencies), samples


def find_faults(outcomes, samples):
    """What contradicts a service that can run for ever."""
    accepted = {"good": {"right"}, "slow": {"right"}, "bad": {"refused"}}
    faults = [
        f"{count} {kind} requests: {outcome}"
        for (kind, outcome), count in outcomes.items()
        if outcome not in accepted.get(kind, {outcome})
    ]
    later = np.array([sample for sample in samples if sample[0] >= WARM_UP_SECONDS])
    if len(later) < 2:
        return [*faults, "too short to compare resources"]
    _, memory, files, threads = later.T
    if memory.max() > (1 + MAX_GROWTH) * memory[0]:
        faults.append(f"memory grew from {memory[0]:.1f} to {memory.max():.1f} MB")
    for name, values in (("files", files), ("threads", threads)):
        half = len(values) // 2
        if values[half:].min() > values[:half].max() + SLACK:
            faults.append(
                f"{name} grew from {values[:half].max():.0f} to {values[half:].min():.0f}"
            )
    return faults


def main():
    arguments = frame.parse_arguments(__doc__, minutes=30.0, rate=200)
    X, y = make_rcl(300, random_state=0)
    twin = TwinRegressor(random_state=0).fit(X[:200], y[:200])
    bodies = [json.dumps({"rows": [row]}).encode() for row in X[200:].to_dict("records")]
    cases = [
        (body, [float(value)]) for body, value in zip(bodies, twin.predict(X[200:]), strict=True)
    ]
    with serve(twin) as (port, process):
        outcomes, latencies, samples = asyncio.run(
            soak(port, process, cases, arguments.rate, 60 * arguments.minutes)
        )
    for (kind, outcome), count in sorted(outcomes.items()):
        print(f"{kind:8} {outcome:20} {count}")
    shown = 1000 * np.percentile(latencies, [50, 99, 99.9])
    print("good requests: median {:.1f} ms, 99 % {:.1f} ms, 99.9 % {:.1f} ms".format(*shown))
    if faults := find_faults(outcomes, samples):
        sys.exit("; ".join(faults))


if __name__ == "__main__":
    main()
