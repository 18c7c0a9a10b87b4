"""Training time of a random forest and of its twin, by the number of rows.

The paper states that forests, and twinned forests still more, scale poorly with the number of rows.
Processor seconds of one core, 100 trees with the defaults of scikit-learn, random rows of the data
set with the most rows; the twin has all pairs.

    python -m benchmarks.speed.forest_times                      # ten minutes
    python -m benchmarks.speed.forest_times --only-table

Results: `benchmarks/results/forest_times.csv` and `.md`.
"""

import time

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from benchmarks import frame
from paper.data import load_arrays
from twinned import TwinRegressor

COLUMNS = ["kind", "rows", "seed", "cpu_seconds:.4g"]
TWIN_ROWS = (25, 50, 100, 200, 400)
ROWS = {"forest": (*TWIN_ROWS, 800, 1600, 3200), "twinned forest": TWIN_ROWS}
SEEDS = (0, 1)
DATASET = "RCL"


def fit(kind, n_rows, seed):
    X, y = load_arrays(DATASET)
    rows = np.random.RandomState(seed).permutation(len(y))[:n_rows]
    model = RandomForestRegressor(random_state=seed)
    if kind != "forest":
        model = TwinRegressor(model, pairs="all", symmetric=False, random_state=seed)
    start = time.process_time()
    model.fit(X[rows], y[rows])
    return {"cpu_seconds": time.process_time() - start}


def exponent(means):
    """Return b of a power law, seconds ~ rows ** b, for the three largest numbers of rows."""
    own = means.dropna()[-3:]
    return np.polyfit(np.log(own.index), np.log(own), 1)[0]


def summary(runs):
    means = runs.pivot_table(index="rows", columns="kind", values="cpu_seconds")
    rows = [
        [f"{n:,}", *("" if np.isnan(own[kind]) else f"{own[kind]:.3g}" for kind in ROWS)]
        for n, own in means.iterrows()
    ]
    return [
        "# Training time of forests",
        "",
        f"Processor seconds to fit 100 trees to random rows of {DATASET}, means of {len(SEEDS)} "
        "seeds, on a shared machine; the twin has all pairs. Made by "
        "`python -m benchmarks.speed.forest_times`.",
        "",
        *frame.markdown_table(["rows", *ROWS], rows),
        "",
        "Between the last three numbers of rows the seconds grow as that number to the power of "
        f"{exponent(means['forest']):.1f} for the forest and "
        f"{exponent(means['twinned forest']):.1f} for the twinned forest. Up to a few hundred rows "
        "a forest takes the time that each tree needs for itself.",
    ]


BENCHMARK = frame.Benchmark(
    "forest_times",
    __doc__,
    COLUMNS,
    run=fit,
    summary=summary,
    trial=("kind", "rows", "seed"),
    trials=[(kind, n_rows, seed) for kind in ROWS for n_rows in ROWS[kind] for seed in SEEDS],
)

if __name__ == "__main__":
    BENCHMARK.main()
