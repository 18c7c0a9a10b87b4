"""Do the spread of anchors and the inconsistency of loops rank the errors of twinned forests?

The paper's twinned forests, of 100 rows with the settings of table 5 as published. Of the 100 test
rows, the rank correlation (Spearman) of the absolute error with the standard deviation over the
anchors (*spread*), and with the mean |F(x, a) + F(a, b) + F(b, x)| over 16 pairs of anchors
(*loops*).

    python -m benchmarks.intervals.loop_uncertainty             # five minutes of one core

Results: `benchmarks/results/loop_uncertainty.csv` and `.md`.
"""

import numpy as np
from scipy.stats import spearmanr
from sklearn.ensemble import RandomForestRegressor

from benchmarks import frame
from paper.data import forest_rows
from paper.loop_relabelling import searched_on_splits
from twinned import TwinRegressor
from twinned.datasets import KEYS

N_SPLITS, N_LOOPS = 5, 16
COLUMNS = ["dataset", "seed", "spread:.4g", "loops:.4g"]


def run_split(dataset, seed):
    train, (X, y) = forest_rows(dataset, seed)
    settings = searched_on_splits()[dataset, seed]
    forest = RandomForestRegressor(100, random_state=seed, **settings)
    twin = TwinRegressor(forest, pairs="all", symmetric=False, random_state=seed).fit(*train)
    predicted, spread = twin.predict(X, return_std=True)
    loops = twin.loop_inconsistency(X, n_loops=N_LOOPS)
    errors = np.abs(predicted - y)
    values = {"spread": spread, "loops": loops}
    return {name: spearmanr(own, errors).statistic for name, own in values.items()}


def summary(runs):
    means = runs.groupby("dataset")[["spread", "loops"]].mean()
    rows = [[key, *(f"{value:.2f}" for value in row)] for key, row in means.iterrows()]
    rows.append(["mean", *(f"**{value:.2f}**" for value in means.mean())])
    return [
        "# Spread of anchors and inconsistency of loops as measures of uncertainty",
        "",
        "Rank correlation with the absolute error of test rows, of the paper's twinned forests: "
        f"means over {runs['seed'].nunique()} splits. "
        "`python -m benchmarks.intervals.loop_uncertainty`.",
        "",
        *frame.markdown_table(["", "spread of anchors", "inconsistency of loops"], rows),
    ]


BENCHMARK = frame.Benchmark(
    "loop_uncertainty",
    __doc__,
    COLUMNS,
    run=run_split,
    summary=summary,
    trial=("dataset", "seed"),
    axes={"seed": N_SPLITS, "dataset": list(KEYS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
