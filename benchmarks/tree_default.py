"""Candidates for the boosted trees of `TwinRegressor()`, compared inside the training rows.

For each data set and seed, the 80 % of training rows of the paper's split are split once more,
80/20; the test rows are never used. A candidate is written as the settings of
`HistGradientBoostingRegressor` (`leaf` is max_leaf_nodes, `msl` min_samples_leaf in units of n
points, `mf` max_features, `bins` max_bins) with a budget of pairs; `half` has each pair in one
order only. Plain regressors (`plain-…`) run beside them. Time budget: a fit of 300 points × 10
features in the seconds that pdll 1.0.0 needs, divided by 30: about three on two cores.

    python -m benchmarks.tree_default --jobs 16      # a quarter of an hour of 16 cores
    python -m benchmarks.tree_default --only-table

Results: `benchmarks/results/tree_default.csv` and `.md`.
"""

import time

import numpy as np
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)

from paper import harness
from paper.data import rmse, training_and_test_rows
from twinned import HalfPairs, TwinRegressor
from twinned.datasets import KEYS

COLUMNS = [
    "dataset", "seed", "candidate", "rmse:.6g", "fit_seconds:.6g", "predict_seconds:.6g"
]  # fmt: skip
CANDIDATES = [
    "plain-extra-trees",
    "plain-forest",
    "plain-boosting",
    "iter=300,lr=.2,msl=.25,leaf=63,half=1,pairs=1e5",
    "iter=300,lr=.2,msl=.25,leaf=63,half=1,pairs=5e4",
    "iter=300,lr=.2,msl=.25,leaf=63,half=1,pairs=2e5",
    "iter=300,lr=.2,msl=.25,leaf=63,pairs=2e5",
    "iter=300,lr=.2,msl=.1,leaf=63,half=1,pairs=1e5",
    "iter=300,lr=.2,msl=.25,mf=.5,leaf=63,half=1,pairs=1e5",
    "iter=500,lr=.2,msl=.25,leaf=31,half=1,pairs=1e5",
    "iter=500,lr=.2,msl=.25,leaf=63,half=1,pairs=1e5",
    "iter=200,lr=.3,msl=.25,leaf=63,half=1,pairs=1e5",
    "iter=300,lr=.2,msl=.25,leaf=31,half=1,pairs=1e5",
    "iter=300,lr=.3,msl=.25,leaf=31,half=1,pairs=1e5",
    "iter=500,lr=.2,msl=.25,leaf=31,bins=127,half=1,pairs=1e5",
    "iter=500,lr=.2,msl=.25,leaf=31,bins=63,half=1,pairs=1e5",
]
PLAIN = {
    "plain-extra-trees": ExtraTreesRegressor(300, random_state=0),
    "plain-forest": RandomForestRegressor(300, random_state=0),
    "plain-boosting": HistGradientBoostingRegressor(early_stopping=False, random_state=0),
}


def make_model(candidate, n):
    if candidate in PLAIN:
        return PLAIN[candidate]
    given = {
        name: float(value) for name, _, value in (p.partition("=") for p in candidate.split(","))
    }
    boosting = HistGradientBoostingRegressor(
        max_iter=int(given["iter"]),
        learning_rate=given["lr"],
        max_leaf_nodes=int(given["leaf"]),
        max_features=given.get("mf", 1.0),
        min_samples_leaf=max(1, int(given["msl"] * n)),
        max_bins=int(given.get("bins", 255)),
        early_stopping=False,
    )
    budget = int(given["pairs"])
    if "half" in given:
        pairs = HalfPairs(budget)
    else:
        pairs = "all" if n * n <= budget else budget // (2 * n)
    return TwinRegressor(boosting, pairs=pairs, memory_limit="4GB", random_state=0)


def run_candidate(dataset, seed, candidate):
    (X, y), _ = training_and_test_rows(dataset, seed)
    rows = np.random.RandomState(seed + 1000).permutation(len(y))
    train, check = np.split(rows, [int(0.8 * len(rows))])
    start = time.perf_counter()
    fitted = make_model(candidate, len(train)).fit(X[train], y[train])
    middle = time.perf_counter()
    error = rmse(fitted.predict(X[check]), y[check])
    end = time.perf_counter()
    return {"rmse": error, "fit_seconds": middle - start, "predict_seconds": end - middle}


def summary(runs):
    means = runs.pivot_table(index="candidate", columns="dataset", values="rmse")
    seconds = runs.groupby("candidate")["fit_seconds"].mean()
    ratio = means / means.loc["plain-boosting"]
    overall = np.exp(np.log(ratio).mean(axis=1)).sort_values()
    forests = means.loc[["plain-extra-trees", "plain-forest"]].min()
    rows = []
    for name in overall.index:
        cells = " | ".join(f"{value:.3f}" for value in ratio.loc[name])
        below = (means.loc[name] < forests).sum()
        rows.append(f"`{name}` | {cells} | **{overall[name]:.3f}** | {below} | {seconds[name]:.1f}")
    header = ["", *ratio.columns, "geometric mean", "below both forests", "fit, s"]
    return [
        "# Candidates for the default tree twin",
        "",
        "RMSE of rows inside the training rows of the paper's splits (seeds "
        f"{', '.join(map(str, sorted(runs['seed'].unique())))}), divided by that of plain "
        "histogram gradient boosting; `python -m benchmarks.tree_default`. Seconds are means over "
        "the nine sets, on one core.",
        "",
        *harness.markdown_table(header, rows),
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__, jobs=2, seeds=2, candidates=CANDIDATES, only_table=False
    )
    path = harness.RESULTS / "tree_default.csv"
    table = harness.ResultTable(path, ("dataset", "seed", "candidate"), COLUMNS)
    trials = [
        (key, seed, candidate)
        for candidate in arguments.candidates
        for seed in range(arguments.seeds)
        for key in KEYS
    ]
    harness.run_benchmark(table, trials, run_candidate, arguments)
    harness.write_markdown(path.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
