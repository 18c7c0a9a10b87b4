"""Which boosted trees `TwinRegressor()` should be: candidates, compared inside the training rows.

For each data set and seed, the 80 % that the paper's split leaves to learn from are split once
more, 80/20; the test rows are never touched. A candidate is written as the settings of
`HistGradientBoostingRegressor` (`leaf` is max_leaf_nodes, `msl` min_samples_leaf in units of n
points, `mf` max_features, `bins` max_bins) with a budget of pairs; `half` learns each pair in one
order only. Plain learners (`plain-…`) run beside them. Time budget: a fit of 300 points × 10
features in the seconds that pdll 1.0.0 needs, divided by 30: about three on two cores.

    python benchmarks/tree_default.py --jobs 16      # a quarter of an hour of 16 cores
    python benchmarks/tree_default.py --only-table

Writes `benchmarks/results/tree_default.csv` and `.md`.
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import (
    ExtraTreesRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)

from twinned import HalfPairs, TwinRegressor
from twinned.datasets import KEYS, load, paper_split

RESULTS = Path(__file__).parent / "results"
HEADER = ["dataset", "seed", "candidate", "rmse", "fit_seconds", "predict_seconds"]
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


def model(candidate, n):
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


def one_run(key, seed, candidate):
    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    train, validation, _ = paper_split(len(y), seed)
    rows = np.random.RandomState(seed + 1000).permutation(np.concatenate([train, validation]))
    learn, check = np.split(rows, [int(0.8 * len(rows))])
    start = time.perf_counter()
    fitted = model(candidate, len(learn)).fit(X[learn], y[learn])
    middle = time.perf_counter()
    error = float(np.sqrt(np.mean((fitted.predict(X[check]) - y[check]) ** 2)))
    return key, seed, candidate, error, middle - start, time.perf_counter() - middle


def table(path):
    runs = pd.read_csv(path)
    means = runs.pivot_table(index="candidate", columns="dataset", values="rmse")
    seconds = runs.groupby("candidate")[["fit_seconds", "predict_seconds"]].mean()
    ratio = means / means.loc["plain-boosting"]
    mean = np.exp(np.log(ratio).mean(axis=1)).sort_values()
    forests = means.loc[["plain-extra-trees", "plain-forest"]].min()
    lines = [
        "# Candidates for the default tree twin",
        "",
        "RMSE of rows inside the training rows of the paper's splits (seeds "
        f"{', '.join(map(str, sorted(runs['seed'].unique())))}), divided by that of plain "
        "histogram gradient boosting; `benchmarks/tree_default.py`. Seconds are means over the "
        "nine sets, on one core.",
        "",
        "| | " + " | ".join(ratio.columns) + " | geometric mean | below both forests | fit, s |",
        "|---" * (len(ratio.columns) + 4) + "|",
    ]
    for name in mean.index:
        cells = [f"{ratio.loc[name, key]:.3f}" for key in ratio.columns]
        below = int((means.loc[name] < forests).sum())
        lines.append(
            f"| `{name}` | " + " | ".join(cells) + f" | **{mean[name]:.3f}** | {below} | "
            f"{seconds.loc[name, 'fit_seconds']:.1f} |"
        )
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--candidates", nargs="*", default=CANDIDATES)
    parser.add_argument("--only-table", action="store_true")
    arguments = parser.parse_args()
    path = RESULTS / "tree_default.csv"
    if not path.exists():
        path.write_text(",".join(HEADER) + "\n")
    done = {
        (row["dataset"], int(row["seed"]), row["candidate"]) for row in csv.DictReader(path.open())
    }
    todo = [
        (key, seed, candidate)
        for candidate in arguments.candidates
        for seed in range(arguments.seeds)
        for key in KEYS
        if (key, seed, candidate) not in done and not arguments.only_table
    ]
    runs = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(
        delayed(one_run)(*run) for run in todo
    )
    for key, seed, candidate, *numbers in runs:
        with path.open("a", newline="") as file:
            csv.writer(file).writerow([key, seed, candidate, *(f"{n:.6g}" for n in numbers)])
        print(f"{key} {seed} {candidate}: {numbers[0]:.4g}", flush=True)
    text = table(path)
    path.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
