"""All pairs of 2,000 points for LightGBM: binned block by block, beside their whole matrix.

Ten features, thirty of a pair, 100 trees on one thread; each way in a process of its own. The trees
are the same but for the sample of pairs by which LightGBM sets its bins.

    python benchmarks/pairs_in_blocks.py     # three minutes
"""

import argparse
import resource
import subprocess
import sys
import time
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
N_POINTS, N_FEATURES = 2_000, 10


def megabytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(way):
    import lightgbm
    import numpy as np

    import twinned.estimators.twin
    from twinned import TwinRegressor

    if way == "whole":
        twinned.estimators.twin.supports_blocks = lambda base: False
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(N_POINTS, N_FEATURES))
    y = X[:, 0] + np.sin(6 * X[:, 1]) * X[:, 2] + 0.1 * rng.normal(size=N_POINTS)
    learner = lightgbm.LGBMRegressor(n_estimators=100, n_jobs=1, verbose=-1)
    twin = TwinRegressor(learner, pairs="all", memory_limit=None)
    before, start = megabytes(), time.perf_counter()
    twin.fit(X, y)
    print(twin.n_pairs_, megabytes() - before, time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--child", choices=["whole", "blocks"])
    arguments = parser.parse_args()
    if arguments.child:
        return child(arguments.child)
    lines = [
        "# All pairs of 2,000 points, learned by LightGBM",
        "",
        "Made by `python benchmarks/pairs_in_blocks.py`: peak memory of `fit` beyond that before, "
        "100 trees, one thread.",
        "",
        "| pairs | | memory | seconds |",
        "|---|---|---|---|",
    ]
    for way in ("whole", "blocks"):
        told = subprocess.run(
            [sys.executable, __file__, "--child", way], capture_output=True, text=True, check=True
        )
        count, memory, seconds = map(float, told.stdout.split())
        lines.append(f"| {count:,.0f} | {way} | {memory:,.0f} MB | {seconds:.0f} |")
    text = "\n".join([*lines, ""])
    (RESULTS / "pairs_in_blocks.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
