"""Do weights of anchors help? The paper's negative result, and some ways that it did not try.

The paper's first splits. Of each 80 % a twin learns from three quarters, and the last quarter is
left out, for the weights that are learned; a twin that spends those labels on learning and weighs
all anchors alike stands beside them. All figures are test RMSE as a ratio to equal weights of the
same twin.

- *distance*: the inverse of the distance, on standardised features;
- *variance*, *least squares*: `twinned.learn_weights` from the quarter that was left out;
- *loops*: the inverse of the mean |F(x, a) + F(a, b) + F(b, x)| over random b (the paper's);
- *process*: the inverse variance that a Gaussian process gives to y(x) − y(a) before it sees any
  label, with its noise (the paper suggests it);
- *members*: the inverse variance over the members of a neural twin of F(x, a) (the paper's).

    python benchmarks/anchor_weights.py --splits 2     # an hour of one core
    python benchmarks/anchor_weights.py --only-table
"""

import argparse
import csv
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

from twinned import TwinNeuralRegressor, TwinRegressor, learn_weights
from twinned.datasets import KEYS, PAPER_SEEDS, load, paper_split

RESULTS = Path(__file__).parent / "results"
TWINS = {
    "default": lambda: TwinRegressor(random_state=0, n_jobs=1),
    "forest": lambda: TwinRegressor(
        RandomForestRegressor(50, min_samples_leaf=2, max_features=0.5, random_state=0),
        pairs=50,
        random_state=0,
    ),
    "neural": lambda: TwinNeuralRegressor(effort="fast", random_state=0),
}
WAYS = ["distance", "variance", "least squares", "loops", "process", "members", "all labels"]


def rmse(predicted, y):
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def weighted(estimates, weights):
    weights = np.broadcast_to(weights, estimates.shape)
    return np.sum(weights * estimates, axis=1) / np.sum(weights, axis=1)


def loop_weights(twin, X_test, rng, n_loops=8):
    """(query, anchor): the inverse of how far loops through both are from closing."""
    anchors = np.asarray(twin.anchors_X_)
    n_queries, n_anchors = len(X_test), len(anchors)
    query, anchor = (
        np.repeat(np.arange(n_queries), n_anchors),
        np.tile(np.arange(n_anchors), n_queries),
    )
    total = np.zeros(len(query))
    there = twin.predict_difference(X_test[query], anchors[anchor])
    for _ in range(n_loops):
        third = rng.randint(n_anchors, size=n_anchors)  # one third point for each anchor
        across = twin.predict_difference(anchors, anchors[third])
        back = -there.reshape(n_queries, n_anchors)[:, third].ravel()
        total += np.abs(there + across[anchor] + back)
    size = total.reshape(n_queries, n_anchors)
    return 1.0 / (size + 0.1 * size.mean())


def process_weights(X, y, anchors, X_test):
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(1e-2)
    some = np.random.RandomState(0).permutation(len(y))[:400]
    process = GaussianProcessRegressor(kernel, normalize_y=True).fit(X[some], y[some])
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


def one_run(key, seed, kind):
    warnings.filterwarnings("ignore")
    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    train, validation, test = paper_split(len(y), seed)
    learn = np.random.RandomState(seed).permutation(np.concatenate([train, validation]))
    most, rest = np.split(learn, [3 * len(learn) // 4])
    rng = np.random.RandomState(seed)
    scaler = StandardScaler().fit(X[most])
    twin = TWINS[kind]().fit(X[most], y[most])
    _, estimates = twin.predict_anchors(X[test])
    found = {"equal": rmse(estimates.mean(axis=1), y[test])}
    near = scaler.transform(X[test])[:, None] - scaler.transform(twin.anchors_X_)[None]
    distances = np.sqrt(np.sum(near**2, axis=2))
    found["distance"] = rmse(weighted(estimates, 1 / (distances + 1e-6)), y[test])
    for by in ("variance", "least squares"):
        weights = learn_weights(twin, X[rest], y[rest], by=by).weights
        found[by] = rmse(weighted(estimates, weights), y[test])
    found["loops"] = rmse(weighted(estimates, loop_weights(twin, X[test], rng)), y[test])
    of_process = process_weights(
        scaler.transform(X[most]),
        y[most],
        scaler.transform(twin.anchors_X_),
        scaler.transform(X[test]),
    )
    found["process"] = rmse(weighted(estimates, of_process), y[test])
    if kind == "neural":
        found["members"] = rmse(weighted(estimates, member_weights(twin, X[test])), y[test])
    found["all labels"] = rmse(TWINS[kind]().fit(X[learn], y[learn]).predict(X[test]), y[test])
    return key, seed, kind, found


def run(path, keys, kinds, n_splits, jobs):
    if not path.exists():
        path.write_text("dataset,seed,twin,way,rmse\n")
    rows = csv.DictReader(path.open())
    done = {(row["dataset"], int(row["seed"]), row["twin"]) for row in rows}
    todo = [
        (key, seed, kind)
        for seed in PAPER_SEEDS[:n_splits]
        for kind in kinds
        for key in keys
        if (key, seed, kind) not in done
    ]
    runs = Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(one_run)(*run) for run in todo
    )
    for number, (key, seed, kind, found) in enumerate(runs, 1):
        with path.open("a") as file:
            for way, error in found.items():
                file.write(f"{key},{seed},{kind},{way},{error:.6g}\n")
        print(f"{number}/{len(todo)} {key} {seed} {kind}", flush=True)


def summary(path):
    runs = pd.read_csv(path)
    lines = [
        "# Weights of anchors",
        "",
        "Test RMSE as a ratio to equal weights of the same twin, means over the splits that were "
        "run; the twin learned from three quarters of the 80 %. *All labels*: equal weights, and "
        "the last quarter spent on learning. `python benchmarks/anchor_weights.py`.",
    ]
    for kind, own in runs.groupby("twin"):
        table = own.pivot_table(index=["dataset", "seed"], columns="way", values="rmse")
        ways = [way for way in WAYS if way in table]
        splits = table.groupby("dataset").size()
        least, most = splits.min(), splits.max()
        of = f"{least}" if least == most else f"{least} to {most}"
        lines += ["", f"## {kind}, splits of each set: {of}", "", "| | " + " | ".join(ways) + " |"]
        lines.append("|---" * (len(ways) + 1) + "|")
        means = table.groupby("dataset").mean()
        ratio = means[ways].div(means["equal"], axis=0)
        for key, row in ratio.iterrows():
            lines.append(f"| {key} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
        overall = np.exp(np.log(ratio).mean())
        lines.append("| mean | " + " | ".join(f"**{value:.3f}**" for value in overall) + " |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--datasets", nargs="*", default=list(KEYS))
    parser.add_argument("--twins", nargs="*", default=list(TWINS))
    parser.add_argument("--only-table", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "anchor_weights.csv")
    arguments = parser.parse_args()
    if not arguments.only_table:
        run(
            arguments.output,
            arguments.datasets,
            arguments.twins,
            arguments.splits,
            arguments.jobs,
        )
    text = summary(arguments.output)
    arguments.output.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
