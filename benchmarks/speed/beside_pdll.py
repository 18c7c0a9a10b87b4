"""The default twin beside pdll 1.0.0's default: seconds, size of the model, test error.

Friedman's first function (10 features, of which five matter) with noise, 300 points to train on,
1,000 to predict; then 2,000 points for ours alone. Both use one thread: pdll's default uses all
cores, so its forest gets `n_jobs=1`. They are measured alone and while another process is busy on
every core. In each draw of the data, ours is fitted before and after pdll.

    python -m benchmarks.speed.beside_pdll          # 25 minutes
    python -m benchmarks.speed.beside_pdll --only-table

Results: `benchmarks/results/beside_pdll.csv` and `.md`.
"""

import os
import pickle
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext

from sklearn.datasets import make_friedman1
from sklearn.ensemble import ExtraTreesRegressor

from benchmarks import frame
from paper.data import rmse
from paper.model_size import saved_size
from twinned import TwinRegressor

N_CORES = len(os.sched_getaffinity(0))
MEASURES = ["fit_seconds:.4g", "fit_cpu_seconds:.4g", "predict_seconds:.4g", "bytes", "rmse:.6g"]
COLUMNS = ["setting", "seed", "model", *MEASURES]
NAMES = [measure.partition(":")[0] for measure in MEASURES]
ALONE, BUSY, MANY = "alone", "busy cores", "n = 2,000"


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


def measure(name, model, train, test, size):
    start, start_cpu = time.perf_counter(), time.process_time()
    model.fit(*train)
    wall, cpu = time.perf_counter() - start, time.process_time() - start_cpu
    start = time.perf_counter()
    predicted = model.predict(test[0])
    seconds = time.perf_counter() - start
    values = wall, cpu, seconds, size(model), rmse(predicted, test[1])
    return {"model": name, **dict(zip(NAMES, values, strict=True))}


def run_trial(setting, seed):
    (X, y), (X_new, _) = draw(100, 99)
    TwinRegressor(random_state=0).fit(X, y).predict(X_new)  # loads the compiled kernel
    points = draw(2000 if setting == MANY else 300, seed)
    with busy_cores() if setting == BUSY else nullcontext():
        rows = [measure("twinned", TwinRegressor(random_state=0), *points, saved_size)]
        if setting != MANY:
            from pdll import PairwiseDifferenceRegressor

            pdll = PairwiseDifferenceRegressor(ExtraTreesRegressor(n_jobs=1))
            rows.append(measure("pdll", pdll, *points, lambda model: len(pickle.dumps(model))))
            rows.append(measure("twinned", TwinRegressor(random_state=0), *points, saved_size))
    print(setting, seed, *rows, sep="\n", flush=True)
    return rows


def format_row(name, values):
    wall, cpu, predict, size, error = values
    return f"{name} | {wall:.1f} | {cpu:.1f} | {predict:.1f} | {size / 1e6:.2f} | {error:.3f}"


def summary(runs):
    """The table of medians over draws, and of the medians of the ratios."""
    means = runs.groupby(["setting", "seed", "model"])[NAMES].mean()  # before and after pdll
    rows, counts = [], []
    present = set(runs["setting"])
    for setting in (name for name in (ALONE, BUSY) if name in present):
        ours, theirs = (means.xs((setting, name), level=(0, 2)) for name in ("twinned", "pdll"))
        rows += [
            format_row(f"twinned, n = 300, {setting}", ours.median()),
            format_row(f"pdll, n = 300, {setting}", theirs.median()),
            [f"pdll / twinned, {setting}", *(f"**{v:.3g}**" for v in (theirs / ours).median())],
        ]
        ratios = (theirs / ours)["fit_cpu_seconds"]
        counts.append(f"{ratios.min():.3g} to {ratios.max():.3g} ({len(ratios)} draws, {setting})")
    if MANY in present:
        many = means.xs((MANY, "twinned"), level=(0, 2))
        rows.append(format_row("twinned, n = 2,000, alone", many.median()))
    header = " | fit, s | fit, CPU s | predict, s | saved, MB | test RMSE"
    return [
        "# Beside pdll 1.0.0",
        "",
        "Both at their defaults with one thread, the same data, 2 cores; medians over draws of "
        "Friedman's first function, 10 features; 1,000 points to predict. "
        "`python -m benchmarks.speed.beside_pdll`.",
        "",
        *frame.markdown_table(header, rows),
        "",
        f"Ratio of the processor seconds of a fit: {', '.join(counts)}. Wall seconds include "
        "waiting for other processes of the machine, which was shared.",
    ]


BENCHMARK = frame.Benchmark(
    "beside_pdll",
    __doc__,
    COLUMNS,
    run=run_trial,
    summary=summary,
    trial=("setting", "seed"),
    axes={"seed": 5, "setting": [ALONE, BUSY, MANY]},
    is_trial=lambda setting, seed: setting != MANY or seed == 0,
)

if __name__ == "__main__":
    BENCHMARK.main()
