"""Accuracy of the default tree twin beside tree ensembles, on the paper's nine sets and 25 splits.

Each split trains on its 80 % (train and validation rows together) and is tested once on its 20 %.
CatBoost's rows are those of `accuracy_neural.csv`, which has the same splits. Results:
`benchmarks/results/accuracy_trees.csv` and `.md`.

    python -m benchmarks.accuracy.accuracy_trees --models forest lightgbm
    python -m benchmarks.accuracy.accuracy_trees --models twin twin-lightgbm
"""

import numpy as np
import pandas as pd

from benchmarks import frame
from benchmarks.accuracy import peers
from paper.data import rmse, training_and_test_rows
from twinned.datasets import KEYS, PAPER_SEEDS

COLUMNS = ["dataset", "model", "seed", "rmse:.6g", "seconds:.4g"]
MODELS = ["twin", "twin-lightgbm", "extra-trees", "forest", "boosting", "lightgbm", "xgboost"]


def make_model(name, X):
    """Return a model for these features; libraries are imported where they are needed."""
    if name in ("lightgbm", "xgboost"):
        return peers.make_model(name, X)
    if name == "twin":
        from twinned import TwinRegressor

        return TwinRegressor(random_state=0)
    if name == "twin-lightgbm":
        from twinned import HalfPairs, TwinRegressor

        boosting = peers.make_model("lightgbm", X)
        leaf = max(1, len(X) // 4)
        boosting.set_params(n_estimators=500, learning_rate=0.2, min_child_samples=leaf)
        return TwinRegressor(boosting, pairs=HalfPairs(100_000), random_state=0)
    from sklearn import ensemble

    return {
        "forest": ensemble.RandomForestRegressor(300, random_state=0),
        "extra-trees": ensemble.ExtraTreesRegressor(300, random_state=0),
        "boosting": ensemble.HistGradientBoostingRegressor(random_state=0),
    }[name]


def run_split(dataset, model, seed):
    (X, y), (X_test, y_test) = training_and_test_rows(dataset, seed)
    return {"rmse": rmse(make_model(model, X).fit(X, y).predict(X_test), y_test)}


def summary(runs):
    neural_runs = pd.read_csv(frame.RESULTS / "accuracy_neural.csv")
    runs = pd.concat([runs, neural_runs[neural_runs["model"] == "catboost"]])
    means = runs.pivot_table(index="dataset", columns="model", values="rmse").dropna(axis=1)
    counts = runs.pivot_table(index="dataset", columns="model", values="rmse", aggfunc="count")
    means = means.loc[:, (counts[means.columns] == len(PAPER_SEEDS)).all()]
    seconds = runs.groupby("model")["seconds"].mean()
    models = [name for name in [*MODELS, "catboost"] if name in means]
    rows = [[key, *(f"{means.loc[key, name]:.4g}" for name in models)] for key in KEYS]
    ratio = np.exp(np.log(means.div(means["lightgbm"], axis=0)).mean())
    forests = means[["forest", "extra-trees"]].min(axis=1)
    better = means.lt(forests, axis=0).sum()
    rows += [
        ["geometric mean of the ratio to LightGBM", *(f"**{ratio[m]:.3f}**" for m in models)],
        ["sets on which it beats both forests", *(str(better[m]) for m in models)],
        ["seconds, mean", *(f"{seconds[m]:.2g}" for m in models)],
    ]
    return [
        "# Tree twins and tree ensembles on the paper's 25 splits",
        "",
        "Mean test RMSE, trained on the 80 % of each split, everything at its default (forests: "
        "300 trees). `twin` is `TwinRegressor()`; `twin-lightgbm` the same settings by LightGBM. "
        "`python -m benchmarks.accuracy.accuracy_trees`. Seconds are of fitting and "
        "predicting one split.",
        "",
        *frame.markdown_table(["", *models], rows),
    ]


BENCHMARK = frame.Benchmark(
    "accuracy_trees",
    __doc__,
    COLUMNS,
    run=run_split,
    summary=summary,
    trial=("dataset", "model", "seed"),
    axes={"model": MODELS, "seed": list(PAPER_SEEDS), "dataset": list(KEYS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
