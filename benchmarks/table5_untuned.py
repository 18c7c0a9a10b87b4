"""Table T5 of the paper, untuned: a random forest and its twin on 100 of the first 200 rows.

The twin is as the author ran it (all pairs, not symmetrised, 100 trees), without the grid search.
Writes one row per data set and seed to `benchmarks/results/table5_untuned.csv` and the summary
beside the published figures to `table5_untuned.md`. Finished rows are not run again.

    python benchmarks/table5_untuned.py --published PATH/TO/published.csv

With `--max-features 0.33`, one of the three values of the author's grid, a third of the columns is
tried at each split; those results are kept apart (`table5_untuned_033.*`, and `_067` for YH alone).
They show how much of the distance to the published figures is the tuning.
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


def rmse(model, X, y, train, test):
    model.fit(X[train], y[train])
    return float(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2)))


def one_run(key, seed, max_features):
    X, y = load(key)
    X, y = X.to_numpy()[:200], y.to_numpy()[:200]
    train, test = forest_split(seed)
    forest = RandomForestRegressor(100, max_features=max_features, random_state=seed)
    plain = rmse(forest, X, y, train, test)
    start = time.perf_counter()
    twin = TwinRegressor(forest, pairs="all", symmetric=False)
    return key, seed, plain, rmse(twin, X, y, train, test), time.perf_counter() - start


def summary(rows, published, max_features):
    paper = pd.read_csv(published).query("table == 'T5'")
    paper = paper.pivot_table(index="dataset", columns="method", values="rmse")
    lines = [
        f"# Table T5, untuned, max_features = {max_features}",
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
    lines += [
        "",
        f"Twinned forest within 3 % of the published figure: {within} of {len(lines) - 7} sets.",
        "",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--published", type=Path, help="published.csv, for the summary")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--max-features", type=float, default=1.0)
    parser.add_argument("--datasets", nargs="*", default=list(KEYS))
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    features = arguments.max_features
    name = "table5_untuned" + ("" if features == 1 else f"_{round(100 * features):03d}")
    path = RESULTS / f"{name}.csv"
    done = set()
    if path.exists():
        done = {(row["dataset"], int(row["seed"])) for row in csv.DictReader(path.open())}
    else:
        path.write_text("dataset,seed,forest,twin,twin_seconds\n")
    todo = [(key, seed) for seed in PAPER_SEEDS for key in arguments.datasets]
    todo = [run for run in todo if run not in done]
    runs = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(
        delayed(one_run)(*run, features) for run in todo
    )
    for number, (key, seed, plain, twin, seconds) in enumerate(runs, 1):
        with path.open("a") as file:
            file.write(f"{key},{seed},{plain:.6g},{twin:.6g},{seconds:.3g}\n")
        print(f"{number}/{len(todo)} {key} seed {seed}: {plain:.4g} → {twin:.4g}", flush=True)
    if arguments.published:
        table = summary(pd.read_csv(path), arguments.published, features)
        path.with_suffix(".md").write_text(table)
        print(table)


if __name__ == "__main__":
    main()
