"""Training on many rows: peak memory, and whether a step takes longer the more rows there are.

20 features, `NearestAnchors(32)`, 16 random partners a point (`pairs=16`), `effort="fast"`. Memory
is the peak of a whole process that imports, makes its data and fits. A step is timed in processor
seconds of one core, as the difference between a long and a short stretch, so that checks cancel;
sizes take turns. Writes `benchmarks/results/neural_many_rows.md`.

    python benchmarks/neural_many_rows.py
"""

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
SIZES = (1_000, 10_000, 100_000)
N_FEATURES, SHORT, LONG = 20, 100, 600


def data(n_rows):
    X = np.random.RandomState(0).normal(size=(n_rows, N_FEATURES))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3]


def twin(**changes):
    from twinned import NearestAnchors, TwinNeuralRegressor

    return TwinNeuralRegressor(
        effort="fast", pairs=16, anchors=NearestAnchors(32), random_state=0, **changes
    )


def child(n_rows):
    """Peak memory in MB of a fit, and its seconds."""
    X, y = data(n_rows)
    start = time.perf_counter()
    twin().fit(X, y)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(peak, time.perf_counter() - start)


def runs(n_rows):
    """A short and a long stretch of one member, each a function to call."""
    from twinned.models.neural.batch import stack_problems
    from twinned.models.neural.dispatch import TrainingRun
    from twinned.models.neural.fitting import training_config
    from twinned.models.neural.parameters import member_settings
    from twinned.models.neural.problem import build_problem

    estimator = twin(n_members=1, n_folds=1)
    problem = build_problem(estimator, *data(n_rows), twin=True)
    settings = member_settings(estimator, 1)
    config = training_config(estimator, [problem], settings, twin=True)
    problems, members = stack_problems([problem], settings, config.shape.n_features, 0.0)
    return [TrainingRun(config, problems, members, (steps, 10**6)) for steps in (SHORT, LONG)]


def step_seconds(repeats):
    """(repeat, size) seconds of a step."""
    of_sizes = [runs(n_rows) for n_rows in SIZES]
    seconds = []
    for check in range(repeats + 1):
        turn = []
        for pair in of_sizes:
            times = []
            for run in pair:
                start = time.process_time()
                run.advance(check)
                times.append(time.process_time() - start)
            turn.append((times[1] - times[0]) / (LONG - SHORT))
        seconds.append(turn)
    return np.array(seconds[1:])  # the first turn warms up


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", type=int)
    parser.add_argument("--repeats", type=int, default=9)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child)
        return
    memory = {}
    for n_rows in SIZES:
        command = [sys.executable, __file__, "--child", str(n_rows)]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        memory[n_rows] = [float(value) for value in run.stdout.split()[-2:]]
        print(n_rows, *memory[n_rows], flush=True)
    os.sched_setaffinity(0, set(sorted(os.sched_getaffinity(0))[-1:]))
    seconds = 1e3 * step_seconds(arguments.repeats)
    lines = [
        "# Training on many rows",
        "",
        f'{N_FEATURES} features, `NearestAnchors(32)`, `pairs=16`, `effort="fast"`. Peak resident '
        "memory of the whole process, imports and data included; seconds of the fit by the clock "
        "of a shared machine; a step of one member on one core, median and quartiles of "
        f"{arguments.repeats} turns, processor time. Made by `python "
        "benchmarks/neural_many_rows.py`.",
        "",
        "| rows | peak memory, MB | seconds to fit | ms a step | quartiles |",
        "|---|---|---|---|---|",
    ]
    for n_rows, column in zip(SIZES, seconds.T, strict=True):
        low, median, high = np.percentile(column, [25, 50, 75])
        peak, clock = memory[n_rows]
        lines.append(
            f"| {n_rows:,} | {peak:.0f} | {clock:.0f} | {median:.2f} | {low:.2f} to {high:.2f} |"
        )
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "neural_many_rows.md").write_text("\n".join([*lines, ""]))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
