"""Figure 2 with four times as many networks: does the red line meet the green one beyond 32?

Twins as published on the first splits: errors of ensembles of twins that have one random anchor
for each row each (*one anchor*, the red line), and all anchors (*all anchors*, the green line).

    python -m paper.larger_ensembles    # five minutes of a GPU

Results: `benchmarks/results/larger_ensembles.csv`.
"""

import time

from benchmarks import frame
from paper.networks import NEIGHBORS, run_twins
from paper.records import Trial
from twinned.datasets import KEYS

N_MEMBERS, N_SPLITS = 128, 2
COLUMNS = ["dataset", "seed", "size", "one_anchor:.6g", "all_anchors:.6g", "seconds:.3g"]


def run_splits(trials, jobs=1):
    """Yield each trial with a row for each size; the splits of a data set are one program."""
    for dataset in dict.fromkeys(dataset for dataset, _ in trials):
        settings = {"members": N_MEMBERS, "neighbors": NEIGHBORS[:1]}
        seeds = [seed for own, seed in trials if own == dataset]
        batch = [Trial("twin-networks", "as_published", dataset, seed, settings) for seed in seeds]
        start = time.perf_counter()
        for trial, result in run_twins(batch):
            rows = [
                {"size": int(size), "one_anchor": error, "all_anchors": result["members"][size]}
                for size, error in result["members_one_anchor"].items()
            ]
            yield (trial.dataset, trial.split), rows, time.perf_counter() - start
            start = time.perf_counter()


BENCHMARK = frame.Benchmark(
    "larger_ensembles",
    __doc__,
    COLUMNS,
    execute=run_splits,
    trial=("dataset", "seed"),
    axes={"dataset": list(KEYS), "seed": N_SPLITS},
)

if __name__ == "__main__":
    BENCHMARK.main()
