"""The learned metric: nearest anchors, anchor weights and comparables.

The paper's first splits and a Friedman 1 set (10 features, of which 5 are irrelevant), 80 % for
training. One twinned random forest per split; its estimates are combined in several ways, so the
difference model is the same in all columns. All figures are of test rows; the metric itself was
chosen on folds of the training rows.

- *euclidean*, *standardized*, *learned*: test RMSE with the 16 nearest anchors, by the Euclidean
  metric on features as they are and on standardized ones, and by the learned metric;
- *all*, *process*: test RMSE with all anchors, of equal weight and with `GPWeights()`;
- comparables: the mean |difference in y| of a query and its 5 nearest anchors, by each metric.

Results: `benchmarks/results/learned_metric.csv` and `.md`.

    python -m benchmarks.anchors.learned_metric --seeds 3     # ten minutes of two cores
    python -m benchmarks.anchors.learned_metric --seeds 25 --jobs 16
    python -m benchmarks.anchors.learned_metric --only-table
"""

import warnings

import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.preprocessing import StandardScaler

from benchmarks import frame
from paper.data import rmse, training_and_test_rows
from twinned import GPWeights, NearestAnchors, TwinRegressor
from twinned.datasets import KEYS

COLUMNS = ["dataset", "seed", "way", "rmse:.6g", "gap:.6g"]
FRIEDMAN = "friedman1"
N_ANCHORS, N_COMPARABLES = 16, 5
NEAREST = ["euclidean", "standardized", "learned"]


def load_split(dataset, seed):
    if dataset != FRIEDMAN:
        return training_and_test_rows(dataset, seed)
    X, y = make_friedman1(500, noise=1.0, random_state=seed)
    return (X[:400], y[:400]), (X[400:], y[400:])


def make_twin():
    forest = RandomForestRegressor(50, min_samples_leaf=2, max_features=0.5, random_state=0)
    return TwinRegressor(forest, pairs=16, random_state=0)


def run_split(dataset, seed):
    """Return the test error of each way, and the mean gap in y of the comparables."""
    warnings.filterwarnings("ignore")
    (X, y), (X_test, y_test) = load_split(dataset, seed)
    twin = make_twin().fit(X, y)
    # the nearest anchors on standardized features, with the same difference model
    scaler = StandardScaler().fit(X)
    standardized = TwinRegressor(
        RandomForestRegressor(1), anchors=NearestAnchors(N_ANCHORS), pairs=1, random_state=0
    ).fit(scaler.transform(X), y)
    _, estimates = twin.predict_anchors(X_test)
    nearest, _ = standardized.predict_anchors(scaler.transform(X_test))
    rows = [
        {
            "way": "standardized",
            "rmse": rmse(np.take_along_axis(estimates, nearest, axis=1).mean(axis=1), y_test),
            "gap": np.abs(y[nearest[:, :N_COMPARABLES]] - y_test[:, None]).mean(),
        }
    ]
    for way, metric in (("euclidean", "euclidean"), ("learned", "learned")):
        nearest_twin = twin.with_strategies(anchors=NearestAnchors(N_ANCHORS, metric=metric))
        table = nearest_twin.explain(X_test, n=N_COMPARABLES, metric=metric).query("anchor >= 0")
        gap = np.abs(table["anchor_y"] - y_test[table["query"]]).mean()
        rows.append({"way": way, "rmse": rmse(nearest_twin.predict(X_test), y_test), "gap": gap})
    for way, weights in (("all", "uniform"), ("process", GPWeights())):
        weighted = twin.with_strategies(anchors="all", weights=weights)
        rows.append({"way": way, "rmse": rmse(weighted.predict(X_test), y_test), "gap": np.nan})
    return rows


def summary(runs):
    error, gap = (
        runs.pivot_table(index=["dataset", "seed"], columns="way", values=value)
        .groupby("dataset")
        .mean()
        for value in ("rmse", "gap")
    )
    n_splits = runs.groupby("dataset")["seed"].nunique()
    ratios = [
        error["standardized"] / error["euclidean"],
        error["learned"] / error["euclidean"],
        error["process"] / error["all"],
        gap["standardized"] / gap["euclidean"],
        gap["learned"] / gap["euclidean"],
    ]
    rows = [
        [key, str(n_splits[key]), f"{error.loc[key, 'euclidean']:.4g}"]
        + [f"{ratio[key]:.3f}" for ratio in ratios]
        for key in error.index
    ]
    means = [f"**{np.exp(np.log(ratio).mean()):.3f}**" for ratio in ratios]
    rows.append(["geometric mean", "", "", *means])
    return [
        "# The learned metric",
        "",
        f"A twinned random forest on 80 % of each set. Test RMSE with the {N_ANCHORS} nearest "
        "anchors by the Euclidean metric on features as they are, and as ratios to it: by the "
        "Euclidean metric on standardized features and by the learned metric. *GPWeights*: ratio "
        "of the test RMSE to equal weights of all anchors. *Comparables*: mean |difference in y| "
        f"of a query and its {N_COMPARABLES} nearest anchors, as a ratio to the Euclidean metric. "
        "Below 1 is better. `python -m benchmarks.anchors.learned_metric`.",
        "",
        *frame.markdown_table(
            [
                "",
                "splits",
                "Euclidean",
                "standardized",
                "learned",
                "GPWeights",
                "comparables: standardized",
                "comparables: learned",
            ],
            rows,
        ),
    ]


BENCHMARK = frame.Benchmark(
    "learned_metric",
    __doc__,
    COLUMNS,
    run=run_split,
    summary=summary,
    trial=("dataset", "seed"),
    axes={"seed": 3, "dataset": [*KEYS, FRIEDMAN]},
)

if __name__ == "__main__":
    BENCHMARK.main()
