"""Table T5 of the paper, untuned: a random forest and its twin on 100 of the first 200 rows.

The twin is as the author ran it (all pairs, not symmetrised, 100 trees), without the grid search.
Writes one row per data set and seed to `benchmarks/results/table5_untuned.csv` and the summary
beside the published figures to `table5_untuned.md`. Finished rows are not run again.

    python benchmarks/table5_untuned.py --published PATH/TO/published.csv
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import RandomForestRegressor

from twinned import TwinRegressor
from twinned.datasets import KEYS, PAPER_SEEDS, forest_split, load

RESULTS = Path(__file__).parent / "results"
ROWS = RESULTS / "table5_untuned.csv"


def rmse(model, X, y, train, test):
    model.fit(X[train], y[train])
    return float(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)))


def one_run(key, seed):
    X, y = load(key)
    X, y = X.to_numpy()[:200], y.to_numpy()[:200]
    train, test = forest_split(seed)
    forest = RandomForestRegressor(100, random_state=seed)
    plain = rmse(forest, X, y, train, test)
    start = time.perf_counter()
    twin = TwinRegressor(forest, pairs="all", symmetric=False)
    return key, seed, plain, rmse(twin, X, y, train, test), time.perf_counter() - start


def summary(rows, published):
    paper = pd.read_csv(published).query("table == 'T5'")
    paper = paper.pivot_table(index="dataset", columns="method", values="rmse")
    lines = [
        "# Table T5, untuned",
        "",
        "Mean test RMSE over 25 seeds; first 200 rows, split 50/50; 100 trees; the twin has all "
        "pairs and is not symmetrised.",
        "Standard error of ours in brackets. The paper's forests were tuned by grid search.",
        "",
        "| | forest | published | ratio | twinned forest | published | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    within = 0
    for key, group in rows.groupby("dataset"):
        cells = [key]
        for ours, theirs in (("forest", "rf"), ("twin", "twinned_rf")):
            mean, error = group[ours].mean(), group[ours].std(ddof=0) / np.sqrt(len(group))
            ratio = mean / paper.loc[key, theirs]
            cells += [f"{mean:.4f} ({error:.4f})", f"{paper.loc[key, theirs]:.4f}", f"{ratio:.3f}"]
        within += abs(ratio - 1) <= 0.03
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", f"Twinned forest within 3 % of the published figure: {within} of 9 sets.", ""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--published", type=Path, help="published.csv, for the summary")
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    done = set()
    if ROWS.exists():
        done = {(row["dataset"], int(row["seed"])) for row in csv.DictReader(ROWS.open())}
    else:
        ROWS.write_text("dataset,seed,forest,twin,twin_seconds\n")
    todo = [(key, seed) for seed in PAPER_SEEDS for key in KEYS if (key, seed) not in done]
    runs = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(
        delayed(one_run)(*run) for run in todo
    )
    for number, (key, seed, plain, twin, seconds) in enumerate(runs, 1):
        with ROWS.open("a") as file:
            file.write(f"{key},{seed},{plain:.6g},{twin:.6g},{seconds:.3g}\n")
        print(f"{number}/{len(todo)} {key} seed {seed}: {plain:.4g} → {twin:.4g}", flush=True)
    if arguments.published:
        table = summary(pd.read_csv(ROWS), arguments.published)
        (RESULTS / "table5_untuned.md").write_text(table)
        print(table)


if __name__ == "__main__":
    main()
