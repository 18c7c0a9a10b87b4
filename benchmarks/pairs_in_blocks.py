"""All pairs of 2,000 points for LightGBM: binned block by block, beside their whole matrix.

Ten features, thirty of a pair, 100 trees on one thread; each in a process of its own. The trees are
the same except for the sample of pairs by which LightGBM sets its bins. Writes
`benchmarks/results/pairs_in_blocks.md`.

    python -m benchmarks.pairs_in_blocks     # three minutes
"""

import time

import numpy as np

from benchmarks.measurement import peak_megabytes
from paper import harness

N_POINTS, N_FEATURES = 2_000, 10


def measure_fit(kind):
    """Return the number of pairs, the memory in MB that `fit` adds, and its seconds."""
    import lightgbm

    import twinned.estimators.twin
    from twinned import TwinRegressor

    if kind == "whole":
        twinned.estimators.twin.supports_blocks = lambda base: False
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(N_POINTS, N_FEATURES))
    y = X[:, 0] + np.sin(6 * X[:, 1]) * X[:, 2] + 0.1 * rng.normal(size=N_POINTS)
    boosting = lightgbm.LGBMRegressor(n_estimators=100, n_jobs=1, verbose=-1)
    twin = TwinRegressor(boosting, pairs="all", memory_limit=None)
    before, start = peak_megabytes(), time.perf_counter()
    twin.fit(X, y)
    return twin.n_pairs_, peak_megabytes() - before, time.perf_counter() - start


def main():
    harness.parse_arguments(__doc__)
    rows = []
    for kind in ("whole", "blocks"):
        count, memory, seconds = harness.run_in_subprocess(measure_fit, kind)
        rows.append(f"{count:,.0f} | {kind} | {memory:,.0f} MB | {seconds:.0f}")
    lines = [
        "# All pairs of 2,000 points, fitted by LightGBM",
        "",
        "Made by `python -m benchmarks.pairs_in_blocks`: peak memory of `fit` beyond that before, "
        "100 trees, one thread.",
        "",
        *harness.markdown_table(["pairs", "", "memory", "seconds"], rows),
    ]
    harness.write_markdown(harness.RESULTS / "pairs_in_blocks.md", lines)


if __name__ == "__main__":
    main()
