"""Coverage of intervals for new batches whose offset or noise is unlike that of the known ones.

Generated functions, eight known batches of 20 rows each, whose offsets have a standard deviation of
`SPREAD` and errors one of `NOISE`, both in units of that of y. A new batch has an offset of 0, 1, 3
or 30 times this spread, or one spread and five times or a fifth of the noise. Of it 1, 3 or 10 rows
are known, and 100 others are predicted, by the blend of `real_batches`. Intervals are of 90 %.

Appends to `benchmarks/results/new_batches.csv` and writes `new_batches.md` beside it.

    python -m benchmarks.batches.new_batches
    python -m benchmarks.batches.new_batches --draws 2 --datasets piston
    python -m benchmarks.batches.new_batches --only-table --page     # also in docs/batches.md
"""

import os
import time
import warnings

import numpy as np

from benchmarks import frame
from benchmarks.accuracy.tables import GENERATED
from benchmarks.batches.batches import PAGE
from benchmarks.batches.real_batches import KNOWN, Blend

SPREAD, NOISE = 0.5, 0.15
N_BATCHES, N_ROWS, N_TEST = 8, 20, 100
# kind of the new batch → (offset in spreads of the known ones, factor of the noise)
KINDS = {
    "offset 0": (0.0, 1.0),
    "offset 1": (1.0, 1.0),
    "offset 3": (3.0, 1.0),
    "offset 30": (30.0, 1.0),
    "noise × 5": (1.0, 5.0),
    "noise / 5": (1.0, 0.2),
}
COLUMNS = ["dataset", "draw", "kind", "known", "rmse:.4g", "coverage:.4f", "seconds:.3g"]
TRIAL = ("dataset", "draw")


def measure(dataset, draw):
    """Return a result for each kind of new batch and number of known rows."""
    rng = np.random.RandomState(draw)
    n_train, n_new = N_BATCHES * N_ROWS, max(KNOWN) + N_TEST
    X, y = GENERATED[dataset](n_train + n_new, rng)
    X, y = np.asarray(X, float), (y - y.mean()) / y.std()
    batch = np.arange(n_train) % N_BATCHES
    offsets = SPREAD * rng.normal(size=N_BATCHES)
    y[:n_train] += offsets[batch] + NOISE * rng.normal(size=n_train)
    error, sign = NOISE * rng.normal(size=n_new), rng.choice([-1.0, 1.0])
    start, results = time.process_time(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        blend = Blend(draw).fit(X[:n_train], y[:n_train], batch.astype(str))
        for kind, (offset, factor) in KINDS.items():
            new_y = y[n_train:] + sign * offset * SPREAD + factor * error
            for n_known in KNOWN:
                rows = X[n_train:][:n_known], new_y[:n_known], np.full(n_known, "new")
                test, true = X[n_train:][max(KNOWN) :], new_y[max(KNOWN) :]
                predicted, interval = blend.predict_new(rows, test, np.full(N_TEST, "new"))
                covered = (interval[:, 0] <= true) & (true <= interval[:, 1])
                rmse = np.sqrt(np.mean((predicted - true) ** 2))
                result = {"kind": kind, "known": n_known, "rmse": rmse, "coverage": covered.mean()}
                results.append(result)
    seconds = time.process_time() - start
    return [result | {"seconds": seconds} for result in results]


def summary(runs):
    """Return the lines of the Markdown file."""
    lines = [
        "# New batches unlike the known ones",
        "",
        "Made by `python -m benchmarks.batches.new_batches`.",
        "",
        f"{runs['dataset'].nunique()} generated functions, "
        f"number of draws of each: {runs['draw'].nunique()}.",
        "",
    ]
    table = runs.pivot_table(index="kind", columns="known", values="coverage").reindex(list(KINDS))
    rows = [[kind, *(f"{100 * v:.0f}" for v in values)] for kind, values in table.iterrows()]
    header = ["coverage of 90 % intervals, %", *(f"m = {known}" for known in table)]
    return [*lines, *frame.markdown_table(header, rows)]


BENCHMARK = frame.Benchmark(
    "new_batches",
    __doc__,
    COLUMNS,
    TRIAL,
    run=measure,
    summary=summary,
    axes={"draw": 10, "dataset": list(GENERATED)},
    block=(PAGE, "new-batches"),
)

if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    BENCHMARK.main()
