"""Active learning from 20 labels to 200 in 12 batches, beside random choice.

The paper's splits 0 to 9: labels are taken from the 80 %, errors are of the 20 %. The first 20 are
drawn at random, the same for all; then 12 batches of 15. `TwinRegressor(cv=0)` chooses by each
strategy of `twinned.query`; folds would not change its standard deviation. A random forest chooses
by the spread of its trees and a Gaussian process by its standard deviation, each of which predicts
for itself. Compared is the mean over batches of test RMSE (the area under its curve), as a ratio to
the same model with random choice.
Results: `benchmarks/results/active_learning.csv` and `.md`.

    python -m benchmarks.labels.active_learning --jobs 16        # about three core-hours
    python -m benchmarks.labels.active_learning --only-table
"""

import warnings

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import frame
from paper.data import rmse, training_and_test_rows
from twinned import TwinRegressor, query
from twinned.datasets import KEYS

FIRST, BATCH, N_BATCHES, N_SEEDS = 20, 15, 12, 10
COLUMNS = ["dataset", "seed", "model", "choice", "labels", "rmse:.6g", "seconds:.3g"]
# model: the ways in which it may choose; "spread" is the strategy "uncertainty" of `twinned.query`
CHOICES = {
    "twin": ["random", "spread", "spread, no diversity"],
    "forest": ["random", "spread"],
    "gp": ["random", "spread"],
}


def make_model(kind, n_features):
    if kind == "twin":
        return TwinRegressor(cv=0, random_state=0, n_jobs=1)
    if kind == "forest":
        return RandomForestRegressor(100, random_state=0)
    kernel = ConstantKernel() * RBF(np.ones(n_features)) + WhiteKernel(1e-2)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    return make_pipeline(StandardScaler(), process)


def choose(kind, choice, model, X, n, rng):
    """Return the indices of the n rows of X to label next."""
    if choice == "random":
        return rng.permutation(len(X))[:n]
    if kind == "twin":
        strategy, _, no_diversity = choice.replace("spread", "uncertainty").partition(", ")
        diversity = 0.0 if no_diversity else 1.0
        return query(model, X, n, strategy=strategy, diversity=diversity, random_state=rng)
    if kind == "forest":
        spread = np.std([tree.predict(X) for tree in model.estimators_], axis=0)
    else:
        spread = model.predict(X, return_std=True)[1]
    return np.argsort(-spread, kind="stable")[:n]


def run_curve(dataset, seed, kind, choice):
    """Return the test error after each batch."""
    warnings.filterwarnings("ignore")
    (X, y), test = training_and_test_rows(dataset, seed)
    rng = np.random.RandomState(seed)
    order = rng.permutation(len(y))
    labelled, pool = order[:FIRST], order[FIRST:]
    rows = []
    for batch in range(N_BATCHES + 1):
        model = make_model(kind, X.shape[1]).fit(X[labelled], y[labelled])
        rows.append(
            {"labels": FIRST + batch * BATCH, "rmse": rmse(model.predict(test[0]), test[1])}
        )
        n = min(BATCH, len(pool))
        if batch == N_BATCHES or not n:
            break
        chosen = choose(kind, choice, model, X[pool], n, rng)
        labelled, pool = np.append(labelled, pool[chosen]), np.delete(pool, chosen)
    return rows


def summary(runs):
    area = runs.pivot_table(index=["dataset", "seed"], columns=["model", "choice"], values="rmse")
    names = [(kind, choice) for kind, all_choices in CHOICES.items() for choice in all_choices]
    names = [name for name in names if name in area and name[1] != "random"]
    rows, means = [], {name: [] for name in names}
    for key in KEYS:
        own, cells = area.loc[key], [key]
        for name in names:
            base = own[name[0], "random"]
            change = ((own[name] - base) / base.mean()).dropna()
            means[name].append(change.mean())
            cells.append(f"{1 + change.mean():.3f} ({change.std() / np.sqrt(len(change)):.3f})")
        rows.append(cells)
    rows.append(["below random", *(f"{sum(m < 0 for m in means[name])} of 9" for name in names)])
    overall = [np.exp(np.mean(np.log1p(means[name]))) for name in names]
    rows.append(["geometric mean", *(f"**{value:.3f}**" for value in overall)])
    mean = area.groupby("dataset").mean()
    others = [
        f"{key} | {mean['forest', 'random'][key] / mean['twin', 'random'][key]:.3f} | "
        f"{mean['gp', 'random'][key] / mean['twin', 'random'][key]:.3f}"
        for key in KEYS
    ]
    return [
        "# Active learning",
        "",
        f"Area under the curve of test RMSE from {FIRST} labels in {N_BATCHES} batches of {BATCH}, "
        f"as a ratio to random choice by the same model; means of {N_SEEDS} seeds, in brackets "
        "the standard error of the paired difference. `python -m "
        "benchmarks.labels.active_learning`.",
        "",
        *frame.markdown_table(["", *(f"{kind}: {choice}" for kind, choice in names)], rows),
        "",
        "The same areas of each model with random choice, as a ratio to the twin's:",
        "",
        *frame.markdown_table(["", "forest", "gp"], others),
    ]


BENCHMARK = frame.Benchmark(
    "active_learning",
    __doc__,
    COLUMNS,
    run=run_curve,
    summary=summary,
    trial=("dataset", "seed", "model", "choice"),
    axes={
        "seed": N_SEEDS,
        "model": list(CHOICES),
        "choice": list(dict.fromkeys(choice for own in CHOICES.values() for choice in own)),
        "dataset": list(KEYS),
    },
    is_trial=lambda dataset, seed, model, choice: choice in CHOICES[model],
)

if __name__ == "__main__":
    BENCHMARK.main()
