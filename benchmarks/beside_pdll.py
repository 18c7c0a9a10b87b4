"""The default twin beside pdll 1.0.0's default, in one run: seconds, size of the model, test error.

Friedman's first function (10 features, of which five matter) with noise, 300 points to train on,
1,000 to predict, three draws of the data; then 2,000 points for ours alone.

    python -m benchmarks.beside_pdll          # writes benchmarks/results/beside_pdll.md
"""

import os
import pickle
import time

import numpy as np
from pdll import PairwiseDifferenceRegressor
from sklearn.datasets import make_friedman1

from paper import harness
from paper.data import rmse
from paper.model_size import saved_size
from twinned import TwinRegressor

N_DRAWS = 3


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


def main():
    # compilation happens once; its seconds are reported separately
    start = time.perf_counter()
    (X, y), (X_new, _) = draw(300, 99)
    TwinRegressor(random_state=0).fit(X, y).predict(X_new)
    first = time.perf_counter() - start
    ours, theirs = [], []
    for seed in range(N_DRAWS):
        points = draw(300, seed)
        ours.append(measure(TwinRegressor(random_state=0), *points, saved_size))
        pdll = PairwiseDifferenceRegressor()
        theirs.append(measure(pdll, *points, lambda model: len(pickle.dumps(model))))
        print(seed, ours[-1], theirs[-1], flush=True)
    many = measure(TwinRegressor(random_state=0), *draw(2000, 0), saved_size)
    ours_mean, theirs_mean = np.mean(ours, axis=0), np.mean(theirs, axis=0)
    rows = [
        format_row("twinned, n = 300", ours_mean),
        format_row("pdll, n = 300", theirs_mean),
        ["pdll / twinned", *(f"**{value:.3g}**" for value in theirs_mean / ours_mean)],
        format_row("twinned, n = 2,000", many),
    ]
    header = " | fit, s | fit, CPU s | predict, s | saved, MB | test RMSE"
    lines = [
        "# Beside pdll 1.0.0",
        "",
        f"Both at their defaults, the same data, one run, {os.cpu_count()} cores; mean over "
        f"{N_DRAWS} draws of Friedman's first function, 10 features; 1,000 points to predict. "
        "`python -m benchmarks.beside_pdll`.",
        "",
        *harness.markdown_table(header, rows),
        "",
        f"The first fit and prediction of a process took {first:.1f} s, compilation included.",
    ]
    harness.write_markdown(harness.RESULTS / "beside_pdll.md", lines)


if __name__ == "__main__":
    main()
