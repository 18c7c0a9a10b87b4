"""Table T5 of the paper, untuned: a random forest and its twin on 100 of the first 200 rows.

The twin is as the author ran it (all pairs, not symmetric, 100 trees), without the grid search.
Results: `benchmarks/results/table5_untuned.csv` and `.md`.

    python -m benchmarks.table5_untuned

With `--max-features 0.33`, one of the three values of the author's grid, a third of the columns is
tried at each split; those results have files of their own (`table5_untuned_033.*`, and `_067` for
YH alone). They show how much of the distance to the published figures is due to the tuning.
"""

import time
from functools import partial

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from paper import harness
from paper.comparison import published_rmse
from paper.data import forest_rows, rmse
from twinned import TwinRegressor
from twinned.datasets import KEYS, PAPER_SEEDS

COLUMNS = ["dataset", "seed", "forest:.6g", "twin:.6g", "twin_seconds:.3g"]


def run_seed(dataset, seed, max_features):
    train, (X, y) = forest_rows(dataset, seed)
    forest = RandomForestRegressor(100, max_features=max_features, random_state=seed)
    plain = rmse(forest.fit(*train).predict(X), y)
    start = time.perf_counter()
    twin = TwinRegressor(forest, pairs="all", symmetric=False).fit(*train)
    error = rmse(twin.predict(X), y)
    return {"forest": plain, "twin": error, "twin_seconds": time.perf_counter() - start}


def summary(runs, max_features):
    paper, rows, n_near = published_rmse("T5"), [], 0
    for key, own in runs.groupby("dataset"):
        cells = [key]
        for ours, theirs in (("forest", "rf"), ("twin", "twinned_rf")):
            mean, error = own[ours].mean(), own[ours].std(ddof=0) / np.sqrt(len(own))
            ratio = mean / paper.loc[key, theirs]
            cells += [f"{mean:.4f} ({error:.4f})", f"{paper.loc[key, theirs]:.4f}", f"{ratio:.3f}"]
        n_near += abs(ratio - 1) <= 0.03
        rows.append(cells)
    header = ["", "forest", "published", "ratio", "twinned forest", "published", "ratio"]
    return [
        f"# Table T5, untuned, max_features = {max_features}",
        "",
        "Mean test RMSE over 25 seeds; first 200 rows, split 50/50; 100 trees; the twin has all "
        "pairs and is not symmetric.",
        "Standard error of ours in brackets. The paper's forests were tuned by grid search.",
        "",
        *harness.markdown_table(header, rows),
        "",
        f"Twinned forest within 3 % of the published figure: {n_near} of {len(rows)} sets.",
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__, jobs=2, max_features=1.0, datasets=list(KEYS), only_table=False
    )
    share = arguments.max_features
    suffix = "" if share == 1 else f"_{round(100 * share):03d}"
    path = harness.RESULTS / f"table5_untuned{suffix}.csv"
    table = harness.ResultTable(path, ("dataset", "seed"), COLUMNS)
    trials = [(key, seed) for seed in PAPER_SEEDS for key in arguments.datasets]
    harness.run_benchmark(table, trials, partial(run_seed, max_features=share), arguments)
    harness.write_markdown(path.with_suffix(".md"), summary(table.read(), share))


if __name__ == "__main__":
    main()
