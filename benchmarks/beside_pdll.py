"""The default twin beside pdll 1.0.0's default, in one run: seconds, size of the model, test error.

Friedman's first function (10 features, of which five matter) with noise, 300 points to learn
from, 1,000 to predict, three draws of the data; then 2,000 points for ours alone.

    python benchmarks/beside_pdll.py          # writes benchmarks/results/beside_pdll.md
"""

import os
import pickle
import tempfile
import time
from pathlib import Path

import numpy as np
from pdll import PairwiseDifferenceRegressor
from sklearn.datasets import make_friedman1

import twinned
from twinned import TwinRegressor

RESULTS = Path(__file__).parent / "results"
N_DRAWS = 3


def draw(n, seed):
    X, y = make_friedman1(n + 1000, n_features=10, noise=1.0, random_state=seed)
    return (X[:n], y[:n]), (X[n:], y[n:])


def measure(model, learn, test, size):
    times = [time.perf_counter(), time.process_time()]
    model.fit(*learn)
    wall, cpu = time.perf_counter() - times[0], time.process_time() - times[1]
    start = time.perf_counter()
    predicted = np.ravel(model.predict(test[0]))
    error = np.sqrt(np.mean((predicted - test[1]) ** 2))
    return wall, cpu, time.perf_counter() - start, size(model), error


def size_of_ours(model):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.twin"
        twinned.save(model, path)
        return path.stat().st_size


def main():
    # compiled code is made once; its seconds are told apart
    start = time.perf_counter()
    (X, y), (X_new, _) = draw(300, 99)
    TwinRegressor(random_state=0).fit(X, y).predict(X_new)
    first = time.perf_counter() - start
    ours, theirs = [], []
    for seed in range(N_DRAWS):
        learn, test = draw(300, seed)
        ours.append(measure(TwinRegressor(random_state=0), learn, test, size_of_ours))
        theirs.append(
            measure(
                PairwiseDifferenceRegressor(), learn, test, lambda model: len(pickle.dumps(model))
            )
        )
        print(seed, ours[-1], theirs[-1], flush=True)
    many = measure(TwinRegressor(random_state=0), *draw(2000, 0), size_of_ours)
    ours_mean, theirs_mean = np.mean(ours, axis=0), np.mean(theirs, axis=0)
    ratio = theirs_mean / ours_mean

    def row(name, values):
        wall, cpu, predict, size, error = values
        return (
            f"| {name} | {wall:.1f} | {cpu:.1f} | {predict:.1f} | {size / 1e6:.2f} | {error:.3f} |"
        )

    text = "\n".join(
        [
            "# Beside pdll 1.0.0",
            "",
            f"Both at their defaults, the same data, one run, {os.cpu_count()} cores; mean over "
            f"{N_DRAWS} draws of Friedman's first function, 10 features; 1,000 points to predict. "
            "`python benchmarks/beside_pdll.py`.",
            "",
            "| | fit, s | fit, CPU s | predict, s | saved, MB | test RMSE |",
            "|---|---|---|---|---|---|",
            row("twinned, n = 300", ours_mean),
            row("pdll, n = 300", theirs_mean),
            "| pdll / twinned | " + " | ".join(f"**{value:.3g}**" for value in ratio) + " |",
            row("twinned, n = 2,000", many),
            "",
            f"The first fit and prediction of a process took {first:.1f} s, what is compiled "
            "included.",
            "",
        ]
    )
    (RESULTS / "beside_pdll.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
