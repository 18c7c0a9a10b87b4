"""The default twin beside pdll 1.0.0's default, in one run: seconds, size of the model, test error.

Friedman's first function (10 features, of which five matter) with noise, 300 points to train on,
1,000 to predict, three draws of the data; then 2,000 points for ours alone. Both use one thread,
and are measured alone and while another process is busy on every core.

    python -m benchmarks.beside_pdll          # writes benchmarks/results/beside_pdll.md
"""

import os
import pickle
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext

import numpy as np
from pdll import PairwiseDifferenceRegressor
from sklearn.datasets import make_friedman1

from paper import harness
from paper.data import rmse
from paper.model_size import saved_size
from twinned import TwinRegressor

N_CORES = len(os.sched_getaffinity(0))


@contextmanager
def busy_cores():
    """Context in which another process is busy on every core."""
    command = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(command) for _ in range(N_CORES)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def draw(n, seed):
    X, y = make_friedman1(n + 1000, n_features=10, noise=1.0, random_state=seed)
    return (X[:n], y[:n]), (X[n:], y[n:])


def measure(model, train, test, size):
    start, start_cpu = time.perf_counter(), time.process_time()
    model.fit(*train)
    wall, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    start = time.perf_counter()
    predicted = model.predict(test[0])
    seconds = time.perf_counter() - start
    return wall, cpu, seconds, size(model), rmse(predicted, test[1])


def format_row(name, values):
    wall, cpu, predict, size, error = values
    return f"{name} | {wall:.1f} | {cpu:.1f} | {predict:.1f} | {size / 1e6:.2f} | {error:.3f}"


def compare(draws):
    """Mean values of ours and of pdll's over draws of 300 points."""
    ours, theirs = [], []
    for seed in range(draws):
        points = draw(300, seed)
        ours.append(measure(TwinRegressor(random_state=0), *points, saved_size))
        pdll = PairwiseDifferenceRegressor()
        theirs.append(measure(pdll, *points, lambda model: len(pickle.dumps(model))))
        print(seed, ours[-1], theirs[-1], flush=True)
    return np.mean(ours, axis=0), np.mean(theirs, axis=0)


def main():
    arguments = harness.parse_arguments(__doc__, draws=3)
    # compilation happens once; its seconds are reported separately
    start = time.perf_counter()
    (X, y), (X_new, _) = draw(300, 99)
    TwinRegressor(random_state=0).fit(X, y).predict(X_new)
    first = time.perf_counter() - start
    rows = []
    for name, context in (("alone", nullcontext()), ("busy cores", busy_cores())):
        with context:
            ours, theirs = compare(arguments.draws)
        rows += [
            format_row(f"twinned, n = 300, {name}", ours),
            format_row(f"pdll, n = 300, {name}", theirs),
            [f"pdll / twinned, {name}", *(f"**{value:.3g}**" for value in theirs / ours)],
        ]
    many = measure(TwinRegressor(random_state=0), *draw(2000, 0), saved_size)
    rows.append(format_row("twinned, n = 2,000, alone", many))
    header = " | fit, s | fit, CPU s | predict, s | saved, MB | test RMSE"
    lines = [
        "# Beside pdll 1.0.0",
        "",
        f"Both at their defaults, one thread, the same data, one run, {N_CORES} cores; mean over "
        f"{arguments.draws} draws of Friedman's first function, 10 features; 1,000 points to "
        "predict. "
        "`python -m benchmarks.beside_pdll`.",
        "",
        *harness.markdown_table(header, rows),
        "",
        f"The first fit and prediction of a process took {first:.1f} s, compilation included.",
    ]
    harness.write_markdown(harness.RESULTS / "beside_pdll.md", lines)


if __name__ == "__main__":
    main()
