"""Training on many rows: peak memory, and the time of a step by the number of rows.

20 features, `NearestAnchors(32)`, 16 random partners a point (`pairs=16`), `effort="fast"`. Memory
is the peak of a whole process that imports, makes its data and fits. A step is timed in processor
seconds of one core, as the difference between a long and a short stretch, so that checks cancel;
sizes take turns. Writes `benchmarks/results/neural_many_rows.md`.

    python -m benchmarks.speed.neural_many_rows
"""

import time

import numpy as np

from benchmarks import frame
from benchmarks.speed.measurement import peak_megabytes, training_loops, use_cores

SIZES = (1_000, 10_000, 100_000)
N_FEATURES, SHORT, LONG = 20, 100, 600


def make_data(n_rows):
    X = np.random.RandomState(0).normal(size=(n_rows, N_FEATURES))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3]


def make_twin(**changes):
    from twinned import NearestAnchors, TwinNeuralRegressor

    return TwinNeuralRegressor(
        effort="fast", pairs=16, anchors=NearestAnchors(32), random_state=0, **changes
    )


def measure_fit(n_rows):
    """Return the peak memory in MB of a process that fits, and the seconds of the fit."""
    X, y = make_data(n_rows)
    start = time.perf_counter()
    make_twin().fit(X, y)
    return peak_megabytes(), time.perf_counter() - start


def step_seconds(repeats):
    """(repeat, size) seconds of a step."""
    from twinned import NeuralTraining

    estimator = make_twin(n_members=1, training=NeuralTraining(n_folds=1))
    loops = [training_loops(estimator, *make_data(n_rows), (SHORT, LONG)) for n_rows in SIZES]
    seconds = []
    for check in range(repeats + 1):
        turn = []
        for short_and_long in loops:
            times = []
            for loop in short_and_long:
                start = time.process_time()
                loop.advance(check)
                times.append(time.process_time() - start)
            turn.append((times[1] - times[0]) / (LONG - SHORT))
        seconds.append(turn)
    return np.array(seconds[1:])  # the first turn warms up


def main():
    arguments = frame.parse_arguments(__doc__, repeats=9)
    fits = [frame.run_in_subprocess(measure_fit, n_rows) for n_rows in SIZES]
    print(*fits, sep="\n", flush=True)
    use_cores(1)
    milliseconds = 1e3 * step_seconds(arguments.repeats)
    rows = []
    for n_rows, (peak, seconds), column in zip(SIZES, fits, milliseconds.T, strict=True):
        low, median, high = np.percentile(column, [25, 50, 75])
        rows.append(
            f"{n_rows:,} | {peak:.0f} | {seconds:.0f} | {median:.2f} | {low:.2f} to {high:.2f}"
        )
    header = "rows | peak memory, MB | seconds to fit | ms a step | quartiles"
    lines = [
        "# Training on many rows",
        "",
        f'{N_FEATURES} features, `NearestAnchors(32)`, `pairs=16`, `effort="fast"`. Peak resident '
        "memory of the whole process, imports and data included; seconds of the fit by the clock "
        "of a shared machine; a step of one member on one core, median and quartiles of "
        f"{arguments.repeats} turns, processor time. Made by `python -m "
        "benchmarks.speed.neural_many_rows`.",
        "",
        *frame.markdown_table(header, rows),
    ]
    frame.write_markdown(frame.RESULTS / "neural_many_rows.md", lines)


if __name__ == "__main__":
    main()
