"""Weights of anchors: the paper's negative result, and further ways to weight.

The paper's first splits, three quarters of each 80 %. All figures are test RMSE as a ratio to equal
weights of the same twin. What is weighted are known values plus predicted differences, as by
`weights` of a twin.

- *distance*: the inverse of the distance, on standardised features;
- *loops*: the inverse of the mean |F(x, a) + F(a, b) + F(b, x)| over random b (the paper's);
- *process*: the inverse variance that a Gaussian process gives to y(x) − y(a) before it sees any
  label, with its noise (the paper suggests it);
- *members*: the inverse variance over the members of a neural twin of F(x, a) (the paper's);
- *local*: the default of `TwinRegressor()`. It weights estimates by
  the out-of-fold errors of anchors, near ones more where that predicts the errors of other folds.

Results: `benchmarks/results/anchor_weights.csv` and `.md`.

    python -m benchmarks.anchors.anchor_weights --seeds 2     # an hour of one core
    python -m benchmarks.anchors.anchor_weights --only-table
"""

import warnings

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

from benchmarks import frame
from paper.data import rmse, training_and_test_rows
from twinned import TwinNeuralRegressor, TwinRegressor
from twinned.datasets import KEYS

COLUMNS = ["dataset", "seed", "twin", "way", "rmse:.6g"]


def equal_weights(distances, estimates, indices):
    """Equal weights of the differences; estimates by `weights="uniform"` are out of fold."""
    return np.ones_like(distances)


TWINS = {
    "default": lambda: TwinRegressor(weights=equal_weights, random_state=0, n_jobs=1),
    "forest": lambda: TwinRegressor(
        RandomForestRegressor(50, min_samples_leaf=2, max_features=0.5, random_state=0),
        pairs=50,
        random_state=0,
    ),
    "neural": lambda: TwinNeuralRegressor(effort="fast", weights=equal_weights, random_state=0),
}
WAYS = ["distance", "loops", "process", "members", "local"]


def weighted_mean(estimates, weights):
    weights = np.broadcast_to(weights, estimates.shape)
    return np.sum(weights * estimates, axis=1) / np.sum(weights, axis=1)


def loop_weights(twin, X_test, rng, n_loops=8):
    """(query, anchor) inverse mean inconsistency of loops through both."""
    anchors = np.asarray(twin.anchors_X_)
    n_queries, n_anchors = len(X_test), len(anchors)
    query = np.repeat(np.arange(n_queries), n_anchors)
    anchor = np.tile(np.arange(n_anchors), n_queries)
    total = np.zeros(len(query))
    query_to_anchor = twin.predict_difference(X_test[query], anchors[anchor])
    for _ in range(n_loops):
        third = rng.randint(n_anchors, size=n_anchors)  # one third point for each anchor
        anchor_to_third = twin.predict_difference(anchors, anchors[third])
        third_to_query = -query_to_anchor.reshape(n_queries, n_anchors)[:, third].ravel()
        total += np.abs(query_to_anchor + anchor_to_third[anchor] + third_to_query)
    size = total.reshape(n_queries, n_anchors)
    return 1.0 / (size + 0.1 * size.mean())


def process_weights(X, y, anchors, X_test):
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(1e-2)
    subset = np.random.RandomState(0).permutation(len(y))[:400]
    process = GaussianProcessRegressor(kernel, normalize_y=True).fit(X[subset], y[subset])
    smooth, noise = process.kernel_.k1, process.kernel_.k2.noise_level
    variance = 2 * smooth.k1.constant_value - 2 * smooth(X_test, anchors) + noise
    return 1.0 / np.maximum(variance, 1e-6)


def member_weights(twin, X_test):
    anchors = np.asarray(twin.anchors_X_)
    rows = np.repeat(np.arange(len(X_test)), len(anchors))
    _, spread = twin.predict_difference(
        X_test[rows], np.tile(anchors, (len(X_test), 1)), return_std=True
    )
    spread = spread.reshape(len(X_test), -1)
    return 1.0 / (spread**2 + 0.01 * np.mean(spread**2))


def run_split(dataset, seed, kind):
    """Return the test error of each way to weight."""
    warnings.filterwarnings("ignore")
    (X, y), (X_test, y_test) = training_and_test_rows(dataset, seed)
    order = np.random.RandomState(seed).permutation(len(y))
    train = order[: 3 * len(order) // 4]
    twin = TWINS[kind]().fit(X[train], y[train])
    _, estimates = twin.predict_anchors(X_test)
    scaler = StandardScaler().fit(X[train])
    scaled_anchors, scaled_test = scaler.transform(twin.anchors_X_), scaler.transform(X_test)
    weights = {
        "equal": 1.0,
        "distance": 1 / (cdist(scaled_test, scaled_anchors) + 1e-6),
        "loops": loop_weights(twin, X_test, np.random.RandomState(seed)),
        "process": process_weights(
            scaler.transform(X[train]), y[train], scaled_anchors, scaled_test
        ),
    }
    if kind == "neural":
        weights["members"] = member_weights(twin, X_test)
    errors = {way: rmse(weighted_mean(estimates, own), y_test) for way, own in weights.items()}
    if kind == "default":
        local = TwinRegressor(random_state=0, n_jobs=1).fit(X[train], y[train])
        errors["local"] = rmse(local.predict(X_test), y_test)
    return [{"way": way, "rmse": error} for way, error in errors.items()]


def summary(runs):
    lines = [
        "# Weights of anchors",
        "",
        "Test RMSE as a ratio to equal weights of the same twin, means over the splits that were "
        "run; the twin was fitted on three quarters of the 80 %. *Local*: the default of "
        "`TwinRegressor()`, by out-of-fold errors. `python -m benchmarks.anchors.anchor_weights`.",
    ]
    for kind, own in runs.groupby("twin"):
        table = own.pivot_table(index=["dataset", "seed"], columns="way", values="rmse")
        ways = [way for way in WAYS if way in table]
        n_splits = table.groupby("dataset").size()
        fewest, most = n_splits.min(), n_splits.max()
        splits = f"{fewest}" if fewest == most else f"{fewest} to {most}"
        means = table.groupby("dataset").mean()
        ratio = means[ways].div(means["equal"], axis=0)
        rows = [[key, *(f"{value:.3f}" for value in row)] for key, row in ratio.iterrows()]
        rows.append(["mean", *(f"**{value:.3f}**" for value in np.exp(np.log(ratio).mean()))])
        lines += ["", f"## {kind}, splits of each set: {splits}", ""]
        lines += frame.markdown_table(["", *ways], rows)
    return lines


BENCHMARK = frame.Benchmark(
    "anchor_weights",
    __doc__,
    COLUMNS,
    run=run_split,
    summary=summary,
    trial=("dataset", "seed", "twin"),
    axes={"seed": 2, "twin": list(TWINS), "dataset": list(KEYS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
