"""Accuracy of the default tree twin beside tree ensembles, on the paper's nine sets and 25 splits.

Each split trains on its 80 % (train and validation rows together) and is tested once on its 20 %.
Appends to `benchmarks/results/accuracy_trees.csv`, one row a split; finished rows are not run
again.
CatBoost's rows are those of `accuracy_neural.csv`, which has the same splits.

    python benchmarks/accuracy_trees.py --models forest extra-trees lightgbm xgboost boosting
    python benchmarks/accuracy_trees.py --models twin twin-lightgbm
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from twinned.datasets import KEYS, PAPER_SEEDS, load, paper_split

RESULTS = Path(__file__).parent / "results"
HEADER = ["dataset", "model", "seed", "rmse", "seconds"]


def make(name, n):
    """A model for n training points; libraries are imported where they are needed."""
    if name == "twin":
        from twinned import TwinRegressor

        return TwinRegressor(random_state=0)
    if name in ("lightgbm", "twin-lightgbm"):
        from lightgbm import LGBMRegressor

        if name == "lightgbm":
            return LGBMRegressor(random_state=0, verbosity=-1)
        from twinned import HalfPairs, TwinRegressor

        boosting = LGBMRegressor(
            n_estimators=500, learning_rate=0.2, min_child_samples=max(1, n // 4), verbosity=-1
        )
        return TwinRegressor(boosting, pairs=HalfPairs(100_000), random_state=0)
    if name == "xgboost":
        from xgboost import XGBRegressor

        return XGBRegressor(random_state=0)
    from sklearn import ensemble

    return {
        "forest": ensemble.RandomForestRegressor(300, random_state=0),
        "extra-trees": ensemble.ExtraTreesRegressor(300, random_state=0),
        "boosting": ensemble.HistGradientBoostingRegressor(random_state=0),
    }[name]


def one_run(key, name, seed):
    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    train, validation, test = paper_split(len(y), seed)
    learn = np.concatenate([train, validation])
    start = time.perf_counter()
    model = make(name, len(learn)).fit(X[learn], y[learn])
    error = float(np.sqrt(np.mean((np.ravel(model.predict(X[test])) - y[test]) ** 2)))
    return key, name, seed, error, time.perf_counter() - start


def table(path):
    runs = pd.read_csv(path)
    others = pd.read_csv(path.with_name("accuracy_neural.csv"))
    runs = pd.concat([runs, others[others["model"] == "catboost"]])
    means = runs.pivot_table(index="dataset", columns="model", values="rmse").dropna(axis=1)
    counts = runs.pivot_table(index="dataset", columns="model", values="rmse", aggfunc="count")
    means = means.loc[:, (counts[means.columns] == len(PAPER_SEEDS)).all()]
    seconds = runs.groupby("model")["seconds"].mean()
    order = ["twin", "twin-lightgbm", "extra-trees", "forest", "boosting", "lightgbm", "xgboost"]
    models = [name for name in [*order, "catboost"] if name in means]
    lines = [
        "# Tree twins and tree ensembles on the paper's 25 splits",
        "",
        "Mean test RMSE, trained on the 80 % of each split, everything at its default (forests: "
        "300 trees). `twin` is `TwinRegressor()`; `twin-lightgbm` the same settings by LightGBM. "
        "`benchmarks/accuracy_trees.py`. Seconds are of fitting and predicting one split.",
        "",
        "| | " + " | ".join(models) + " |",
        "|---" * (len(models) + 1) + "|",
    ]
    for key in KEYS:
        cells = [f"{means.loc[key, name]:.4g}" for name in models]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    rows = {
        "geometric mean of the ratio to LightGBM": lambda name: (
            f"**{np.exp(np.log(means[name] / means['lightgbm']).mean()):.3f}**"
        ),
        "sets on which it beats both forests": lambda name: str(
            int((means[name] < means[["forest", "extra-trees"]].min(axis=1)).sum())
        ),
        "seconds, mean": lambda name: f"{seconds[name]:.2g}",
    }
    for title, cell in rows.items():
        lines.append(f"| {title} | " + " | ".join(cell(name) for name in models) + " |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--datasets", nargs="*", default=list(KEYS))
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    path = RESULTS / "accuracy_trees.csv"
    if not path.exists():
        path.write_text(",".join(HEADER) + "\n")
    done = {(row["dataset"], row["model"], int(row["seed"])) for row in csv.DictReader(path.open())}
    todo = [
        (key, name, seed)
        for name in arguments.models
        for seed in PAPER_SEEDS
        for key in arguments.datasets
        if (key, name, seed) not in done
    ]
    runs = Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")(
        delayed(one_run)(*run) for run in todo
    )
    for number, (key, name, seed, error, seconds) in enumerate(runs, 1):
        with path.open("a") as file:
            file.write(f"{key},{name},{seed},{error:.6g},{seconds:.4g}\n")
        if number % 25 == 0:
            print(f"{number}/{len(todo)}: {key} {name}", flush=True)
    text = table(path)
    path.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
