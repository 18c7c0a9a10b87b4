"""Number of trees of `TwinRegressor()`, compared inside the training rows.

As in `benchmarks/tree_default.py`, the training rows of the paper's splits are split once more,
80/20, and the test rows are never used; at most 200 of the held-out rows are predicted. Friedman's
functions (300 noisy rows) are drawn anew for each seed. One twin of 500 trees is fitted per data
set and seed, and its first trees predict, so that the comparison is between the same trees. Seeds
start at 2, since the default was chosen with the seeds 0 and 1. EE and TF stand for sets of 500
rows and more.

    python -m benchmarks.tree_iterations --jobs 2      # two minutes of two cores
    python -m benchmarks.tree_iterations --only-table

Results: `benchmarks/results/tree_iterations.csv` and `.md`.
"""

import copy

import numpy as np
from sklearn.datasets import make_friedman1, make_friedman2, make_friedman3

from paper import harness
from paper.data import rmse, training_and_test_rows
from twinned import HalfPairs, TwinRegressor
from twinned.models.base_estimator import DEFAULT_PAIRS, THOROUGH

COLUMNS = ["dataset", "seed", "n_rows", "iterations", "rmse:.6g"]
ITERATIONS = [300, 350, 400, 450, 500]
# name: the function and its noise
FRIEDMAN = {
    "Friedman 1": (make_friedman1, 1.0),
    "Friedman 2": (make_friedman2, 125.0),
    "Friedman 3": (make_friedman3, 0.1),
}
DATASETS = ["BH", "EE", "TF", "WSB", "YH", *FRIEDMAN]
MAX_CHECK_ROWS = 200


def draw_rows(dataset, seed):
    """X and y to fit, and X and y to predict."""
    if dataset in FRIEDMAN:
        function, noise = FRIEDMAN[dataset]
        X, y = function(300 + MAX_CHECK_ROWS, noise=noise, random_state=seed)
        train, check = np.split(np.arange(len(y)), [300])
    else:
        (X, y), _ = training_and_test_rows(dataset, seed)
        rows = np.random.RandomState(seed + 1000).permutation(len(y))
        train, check = np.split(rows, [int(0.8 * len(rows))])
        check = check[:MAX_CHECK_ROWS]
    return X[train], y[train], X[check], y[check]


def run_trial(dataset, seed):
    X, y, X_check, y_check = draw_rows(dataset, seed)
    boosting = THOROUGH.make_estimator(len(y), 1, X.shape[1]).set_params(max_iter=ITERATIONS[-1])
    twin = TwinRegressor(boosting, pairs=HalfPairs(DEFAULT_PAIRS), random_state=0).fit(X, y)
    fitted, rows = twin.estimator_, []
    for iterations in ITERATIONS:
        twin.estimator_ = copy.copy(fitted)
        twin.estimator_._predictors = fitted._predictors[:iterations]
        error = rmse(twin.predict(X_check), y_check)
        rows.append({"n_rows": len(y), "iterations": iterations, "rmse": error})
    return rows


def summary(runs):
    """The table of changes of the error, in percent of that of all trees."""
    errors = runs.pivot_table(
        index=["n_rows", "dataset", "seed"], columns="iterations", values="rmse"
    )
    changes = 100 * np.log(errors).sub(np.log(errors[ITERATIONS[-1]]), axis=0)
    by_set = changes.groupby(["n_rows", "dataset"])
    means, deviations, counts = by_set.mean(), by_set.sem(), by_set.size()
    rows = [
        f"{name} | {n} | {counts[n, name]} | "
        + " | ".join(
            f"{means.loc[(n, name), k]:+.2f} ± {deviations.loc[(n, name), k]:.2f}"
            for k in ITERATIONS[:-1]
        )
        for n, name in means.index
    ]
    return [
        "# Number of trees of the default twin",
        "",
        "Change of the RMSE by the first trees of 500, in percent (100 × its logarithm): mean over "
        "seeds and its standard error, on rows inside the training rows of the paper's splits and "
        "on Friedman's functions. `python -m benchmarks.tree_iterations`.",
        "",
        *harness.markdown_table(
            ["", "rows", "seeds", *(f"{k} trees" for k in ITERATIONS[:-1])], rows
        ),
        "",
        "The default has as many trees as rows, but at least 350 and at most 500.",
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__, jobs=2, seeds=3, datasets=DATASETS, only_table=False
    )
    path = harness.RESULTS / "tree_iterations.csv"
    table = harness.ResultTable(path, ("dataset", "seed"), COLUMNS)
    trials = [(key, seed) for seed in range(2, 2 + arguments.seeds) for key in arguments.datasets]
    harness.run_benchmark(table, trials, run_trial, arguments)
    harness.write_markdown(path.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
