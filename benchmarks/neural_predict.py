"""How close predicting with all anchors comes to the machine's own matrix products.

1,000 anchors, 10,000 queries, hidden layers of 128 and 128. Counted are the multiply-adds of the
second layer alone (2 × 2 orders × queries × anchors × 128 × 128 a member), beside the rate of a
product of two 1024 × 1024 float32 matrices. Each run is on one core and timed in processor seconds,
which other programs cannot lengthen; with `--cores 2` it is timed by the clock, the products taken
as often as they fit into the same time. Writes `benchmarks/results/neural_predict.md`.

    python benchmarks/neural_predict.py
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
N_ANCHORS, N_QUERIES, N_FEATURES, WIDTH = 1_000, 10_000, 8, 128
CASES = [(1, "silu"), (8, "silu"), (1, "relu"), (8, "relu")]


def product_rate(clock, seconds):
    """Floating-point operations a second of numpy's float32 product."""
    import numpy as np

    square = np.random.RandomState(0).uniform(size=(1024, 1024)).astype(np.float32)
    square @ square
    start, count = clock(), 0
    while clock() - start < seconds:
        square @ square
        count += 1
    return count * 2 * 1024**3 / (clock() - start)


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def fitted(n_members, activation):
    import numpy as np

    from twinned import TwinNeuralRegressor

    rng = np.random.RandomState(0)
    X = rng.normal(size=(N_ANCHORS, N_FEATURES))
    twin = TwinNeuralRegressor(
        (WIDTH, WIDTH),
        activation=activation,
        n_members=n_members,
        n_folds=1,
        selection="mean",
        max_steps=20,
        random_state=0,
    )
    return twin.fit(X, X[:, 0] + np.sin(X[:, 1])), rng.normal(size=(N_QUERIES, N_FEATURES))


def child(cores, n_members, activation, repeats):
    """Medians over repeats of: seconds, share of the products' rate; and memory gained."""
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-cores:]))
    clock = time.process_time if cores == 1 else time.perf_counter
    import numpy as np

    twin, queries = fitted(n_members, activation)
    before = megabytes()
    twin.predict(queries, return_std=True)  # compiles
    work = n_members * 2 * 2 * N_QUERIES * N_ANCHORS * WIDTH**2
    runs = []
    for _ in range(repeats):
        start = clock()
        twin.predict(queries, return_std=True)
        seconds = clock() - start
        rate = product_rate(clock, min(seconds, 5.0))
        runs.append((seconds, work / seconds / 1e9, rate / 1e9, work / seconds / rate))
    print(*np.median(runs, axis=0), megabytes() - before, before)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cores", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--child", nargs=2)
    arguments = parser.parse_args()
    if arguments.child:
        n_members, activation = arguments.child
        child(arguments.cores, int(n_members), activation, arguments.repeats)
        return
    lines = [
        "# Predicting with all anchors, beside the machine's own matrix products",
        "",
        f"{N_ANCHORS:,} anchors, {N_QUERIES:,} queries, hidden layers {WIDTH}–{WIDTH}, mean and "
        f"spread, `memory_limit` 512 MB, {arguments.cores} core(s), median of {arguments.repeats} "
        "runs, each beside a run of products. Counted are the second layer's multiply-adds only; "
        "activations, first layer, output layer and sums come on top of them. Made by `python "
        f"benchmarks/neural_predict.py --cores {arguments.cores}`.",
        "",
        "| members | activation | seconds | GFLOP/s | float32 products, GFLOP/s | share | "
        "peak memory after fit, MB | more while predicting, compiling included, MB |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for n_members, activation in CASES:
        command = [sys.executable, __file__, "--cores", str(arguments.cores)]
        command += ["--repeats", str(arguments.repeats), "--child", str(n_members), activation]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds, rate, products, share, gained, before = map(float, run.stdout.split()[-6:])
        lines.append(
            f"| {n_members} | {activation} | {seconds:.2f} | {rate:.0f} | {products:.0f} | "
            f"{100 * share:.0f} % | {before:.0f} | {gained:.0f} |"
        )
        print(lines[-1], flush=True)
    name = "neural_predict.md" if arguments.cores == 1 else f"neural_predict_{arguments.cores}.md"
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / name).write_text("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
