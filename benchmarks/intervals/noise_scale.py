"""Coverage of prediction intervals among the rows with the most noise, where noise depends on x.

Generated tables of 400 training and 2,000 test rows, several draws of each (of the blend, four or
five are committed):

- *one feature*: the noise grows fivefold along a feature;
- *prediction*: the noise is a fifth of the noise-free value;
- *category*: the noise is 0.1, 0.2, 0.3 and 0.5 in four categories.

Models: a blend of ridge regression, a Gaussian process and extremely randomized trees, and the
default `TwinRegressor` with `cross_conformal` and five folds. Reported are the coverage at 80, 90
and 95 % of the quarter of test rows with the most noise, of the other rows and of all, and the mean
logarithm of the density, also that of the true normal distribution. Settings of the error scale
were compared on draws 0 and 1 of the blend, too; the other draws were measured once. Appends to
`benchmarks/results/noise_scale.csv` and writes `noise_scale.md` beside it.

    python -m benchmarks.intervals.noise_scale  # about an hour of one core
    python -m benchmarks.intervals.noise_scale --only-table
"""

import warnings

import numpy as np
import pandas as pd
from scipy.stats import norm

from benchmarks import frame
from twinned import AutoTwinRegressor, TwinRegressor, cross_conformal
from twinned.exceptions import ShiftWarning
from twinned.metrics import log_likelihood

N_TRAIN, N_TEST, LEVELS = 400, 2000, (0.8, 0.9, 0.95)
PARTS = ("noisiest", "others", "all")
N_DRAWS = {"blend": 5, "twin": 3}
MEMBERS = ["ridge", "gp_matern", "extra_trees"]
COLUMNS = [
    "dataset", "model", "seed",
    *(f"{part}_{level:g}:.4f" for part in PARTS for level in LEVELS),
    "log_likelihood:.4f", "true_log_likelihood:.4f", "seconds:.3g",
]  # fmt: skip


def along_feature(n, rng):
    X = rng.uniform(size=(n, 5))
    mean = np.sin(5 * X[:, 1]) + 2 * X[:, 2] * X[:, 3] + X[:, 0]
    return X, mean, 0.2 * (1 + 4 * X[:, 0])


def by_prediction(n, rng):
    X = rng.normal(size=(n, 6))
    mean = np.exp(1 + 0.5 * X[:, 0] + 0.4 * np.sin(2 * X[:, 1]) + 0.3 * X[:, 2])
    return X, mean, 0.2 * mean


def by_category(n, rng):
    X, kind = pd.DataFrame(rng.uniform(size=(n, 4))).add_prefix("x"), rng.randint(4, size=n)
    mean = 3 * X["x0"] + np.sin(6 * X["x1"]) + np.array([0, 0.3, -0.4, 0.5])[kind] * X["x2"]
    names = np.array(["red", "blue", "green", "black"])
    noise = np.array([0.1, 0.5, 0.2, 0.3])[kind]
    return X.assign(kind=pd.Categorical(names[kind])), mean.to_numpy(), noise


NOISE = {
    "one feature": along_feature,
    "prediction": by_prediction,
    "category": by_category,
}


def fit(model, X, y, seed):
    if model == "blend":
        return AutoTwinRegressor(members=MEMBERS, random_state=seed).fit(X, y)
    twin = TwinRegressor(random_state=seed)
    return cross_conformal(twin, X, y, cv=5, random_state=seed)


def measure(dataset, model, seed):
    rng = np.random.RandomState(seed)
    X, mean, noise = NOISE[dataset](N_TRAIN + N_TEST, rng)
    y = mean + noise * rng.normal(size=len(mean))
    X = pd.DataFrame(X)
    X.columns = X.columns.astype(str)
    fitted = fit(model, X[:N_TRAIN], y[:N_TRAIN], seed)
    test, y, mean, noise = X[N_TRAIN:], y[N_TRAIN:], mean[N_TRAIN:], noise[N_TRAIN:]
    noisiest = np.isin(np.arange(N_TEST), np.argsort(-noise, kind="stable")[: N_TEST // 4])
    masks = dict(zip(PARTS, (noisiest, ~noisiest, np.full(N_TEST, True)), strict=True))
    result = {
        "log_likelihood": log_likelihood(fitted, test, y),
        "true_log_likelihood": np.mean(norm.logpdf(y, mean, noise)),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        for level in LEVELS:
            low, high = fitted.predict_interval(test, level).T
            covered = (low <= y) & (y <= high)
            result |= {f"{part}_{level:g}": covered[mask].mean() for part, mask in masks.items()}
    return result


def summary(runs):
    """Return the lines of the Markdown file."""
    lines = [
        "# Intervals where noise depends on x",
        "",
        "Made by `python -m benchmarks.intervals.noise_scale`. Coverage in %, means over "
        "draws with the "
        "standard error of the mean; the noisiest are a quarter of the test rows. Densities are "
        "mean logarithms.",
        "",
    ]
    rows = []
    for (model, dataset), own in runs.groupby(["model", "dataset"], sort=False):
        cells = [model, dataset, f"{len(own)}"]
        for part in PARTS:
            values = [100 * own[f"{part}_{level:g}"] for level in LEVELS]
            cells.append(", ".join(f"{value.mean():.1f} ± {value.sem():.1f}" for value in values))
        names = ("log_likelihood", "true_log_likelihood")
        rows.append([*cells, *(f"{own[name].mean():.3f}" for name in names)])
    header = ["model", "noise depends on", "draws"]
    header += [f"{part}: 80, 90, 95 %" for part in PARTS]
    return lines + frame.markdown_table([*header, "log density", "true"], rows)


BENCHMARK = frame.Benchmark(
    "noise_scale",
    __doc__,
    COLUMNS,
    run=measure,
    summary=summary,
    trial=("dataset", "model", "seed"),
    axes={"seed": max(N_DRAWS.values()), "model": list(N_DRAWS), "dataset": list(NOISE)},
    is_trial=lambda dataset, model, seed: seed < N_DRAWS[model],
)

if __name__ == "__main__":
    BENCHMARK.main()
