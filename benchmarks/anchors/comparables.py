"""Comparable cases of every kind of model: their spread, and the error of their mean alone.

The paper's nine sets and first splits: each model is fitted to the 80 % and explains the 20 %
(`explain` with n = 8). Of each split:

- *rmse*: that of `predict`;
- *out_of_fold_rmse*: the root mean square of `anchor_residuals_`, the out-of-fold errors of the
  known cases;
- *spread*: the standard deviation of the estimates from the eight cases (divisor 8 − 1), as the
  root mean square over test rows, divided by *out_of_fold_rmse*;
- *error*: the RMSE of the weighted mean of these estimates, divided by *rmse*;
- *largest_difference* of the sum of all weighted estimates, those of all other cases included, from
  the prediction, divided by the size of the prediction.

Results: `benchmarks/results/comparables.csv` and `.md`.

    python -m benchmarks.anchors.comparables --jobs 16                              # a core-hour
    python -m benchmarks.anchors.comparables --jobs 16 --models "tree twin" --seeds 25  # another
    python -m benchmarks.anchors.comparables --only-table
"""

import warnings

import numpy as np

from benchmarks import frame
from paper.data import rmse, training_and_test_rows
from twinned import AutoTwinRegressor, TwinNeuralRegressor, TwinRegressor
from twinned.datasets import KEYS

N_CASES, N_SPLITS = 8, 3
FACTOR, MAX_ERROR = 1.5, 1.15  # within and up to which spread and error of a set are counted
COLUMNS = [
    "model",
    "dataset",
    "seed",
    "rmse:.6g",
    "out_of_fold_rmse:.6g",
    "spread:.4g",
    "error:.4g",
    "largest_difference:.2g",
]
MODELS = {
    "extra trees": lambda: AutoTwinRegressor(members=["extra_trees"], random_state=0),
    "Gaussian process": lambda: AutoTwinRegressor(members=["gp_matern"], random_state=0),
    "boosting": lambda: AutoTwinRegressor(members=["boosting"], random_state=0),
    "tree twin": lambda: TwinRegressor(random_state=0),
    "neural twin": lambda: TwinNeuralRegressor(random_state=0),
    "blend": lambda: AutoTwinRegressor(effort="fast", random_state=0),
}


def run_split(name, dataset, seed):
    warnings.filterwarnings("ignore")
    (X, y), test = training_and_test_rows(dataset, seed)
    return measure(MODELS[name]().fit(X, y), *test)


def measure(model, X, y):
    """Return the figures of a fitted model for test rows."""
    predicted = model.predict(X)
    table = model.explain(X, n=N_CASES)
    estimates, weights = (
        table[name].to_numpy().reshape(len(X), N_CASES + 1) for name in ("estimate", "weight")
    )
    cases, shares = estimates[:, :N_CASES], weights[:, :N_CASES]
    out_of_fold = float(np.sqrt(np.mean(model.anchor_residuals_**2)))
    spread = np.sqrt(np.mean(cases.var(axis=1, ddof=1)))
    of_cases = np.average(cases, axis=1, weights=shares)
    error = rmse(predicted, y)
    differences = np.abs((weights * estimates).sum(axis=1) - predicted)
    return {
        "rmse": error,
        "out_of_fold_rmse": out_of_fold,
        "spread": spread / out_of_fold,
        "error": rmse(of_cases, y) / error,
        "largest_difference": np.max(differences / np.abs(predicted)),
    }


def summary(runs):
    n_splits = runs.groupby("model")["seed"].nunique()
    models = {name: f"{name} ({n_splits[name]})" for name in MODELS if name in n_splits}
    means = runs.pivot_table(index="dataset", columns="model")
    spread, error = (means[name][list(models)] for name in ("spread", "error"))
    within = ((spread >= 1 / FACTOR) & (spread <= FACTOR)).sum()
    largest = runs.groupby("model")["largest_difference"].max()

    def table(values, digits, last, counts):
        rows = [[key, *(f"{value:{digits}}" for value in row)] for key, row in values.iterrows()]
        rows.append([last, *(f"**{counts[name]}**" for name in models)])
        return frame.markdown_table(["", *models.values()], rows)

    return [
        f"# The {N_CASES} comparable cases of a prediction",
        "",
        "Means over the paper's splits, whose number is in brackets. Extra trees, Gaussian process "
        "(Matérn) and boosting are blends of one member, the tree twin and the neural twin have "
        'their defaults, and the blend is `AutoTwinRegressor(effort="fast")`. '
        "`python -m benchmarks.anchors.comparables`.",
        "",
        f"Standard deviation of the estimates from the cases (divisor {N_CASES} − 1; root mean "
        "square over test rows), divided by the out-of-fold RMSE:",
        "",
        *table(spread, ".2f", f"sets within a factor of {FACTOR}", within),
        "",
        "RMSE of the weighted mean of the cases alone, divided by that of `predict`:",
        "",
        *table(error, ".3f", f"sets of at most {MAX_ERROR}", (error <= MAX_ERROR).sum()),
        "",
        "RMSE of `predict`, and the largest difference between it and the sum of all weighted "
        "estimates, as a share of the prediction:",
        "",
        *table(means["rmse"][list(models)], ".4g", "largest difference", largest),
    ]


BENCHMARK = frame.Benchmark(
    "comparables",
    __doc__,
    COLUMNS,
    run=run_split,
    summary=summary,
    trial=("model", "dataset", "seed"),
    axes={"seed": N_SPLITS, "model": list(MODELS), "dataset": list(KEYS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
