"""Active learning from 20 labels to 200 in 12 batches, beside random choice.

The paper's splits 0 to 9: labels are bought from the 80 %, errors are of the 20 %. The first 20 are
drawn at random, the same for all; then 12 batches of 15. The default `TwinRegressor` chooses by
each strategy of `twinned.query`; a random forest chooses by the spread of its trees and a Gaussian
process by its standard deviation, each of which predicts for itself. Compared is the mean over
batches of test RMSE (the area under its curve), as a ratio to the same model with random choice.
Finished rows are not run again.

    python benchmarks/active_learning.py --jobs 16        # about three core-hours
    python benchmarks/active_learning.py --only-table
"""

import argparse
import csv
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from joblib import Parallel, delayed
from sklearn.ensemble import RandomForestRegressor
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from twinned import TwinRegressor, query
from twinned.datasets import KEYS, PAPER_SEEDS, load, paper_split

RESULTS = Path(__file__).parent / "results"
FIRST, BATCH, N_BATCHES, N_SEEDS = 20, 15, 12, 10
# model: how it may choose
CHOICES = {
    "twin": [
        *("random", "spread", "inconsistency", "change", "difference"),
        "spread, no diversity",
    ],
    "forest": ["random", "spread"],
    "gp": ["random", "spread"],
}


def model_of(kind, n_features):
    if kind == "twin":
        return TwinRegressor(random_state=0, n_jobs=1)
    if kind == "forest":
        return RandomForestRegressor(100, random_state=0)
    kernel = ConstantKernel() * RBF(np.ones(n_features)) + WhiteKernel(1e-2)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    return make_pipeline(StandardScaler(), process)


def choose(kind, how, model, X, n, rng):
    if how == "random":
        return rng.permutation(len(X))[:n]
    if kind == "twin":
        strategy, _, plain = how.partition(", ")
        return query(
            model, X, n, strategy=strategy, diversity=0.0 if plain else 1.0, random_state=rng
        )
    if kind == "forest":
        spread = np.std([tree.predict(X) for tree in model.estimators_], axis=0)
    else:
        spread = model.predict(X, return_std=True)[1]
    return np.argsort(-spread, kind="stable")[:n]


def one_run(key, seed, kind, how):
    warnings.filterwarnings("ignore")
    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    train, validation, test = paper_split(len(y), seed)
    pool = np.concatenate([train, validation])
    rng = np.random.RandomState(seed)
    order = rng.permutation(pool)
    known, rest = order[:FIRST], order[FIRST:]
    errors, start = [], time.perf_counter()
    for batch in range(N_BATCHES + 1):
        model = model_of(kind, X.shape[1]).fit(X[known], y[known])
        errors.append(float(np.sqrt(np.mean((model.predict(X[test]) - y[test]) ** 2))))
        n = min(BATCH, len(rest))
        if batch == N_BATCHES or not n:
            break
        rows = choose(kind, how, model, X[rest], n, rng)
        known, rest = np.append(known, rest[rows]), np.delete(rest, rows)
    return key, seed, kind, how, errors, time.perf_counter() - start


def run(path, keys, kinds, choices, jobs, n_seeds):
    if not path.exists():
        path.write_text("dataset,seed,model,choice,labels,rmse,seconds\n")
    rows = csv.DictReader(path.open())
    done = {(r["dataset"], int(r["seed"]), r["model"], r["choice"]) for r in rows}
    todo = [
        (key, seed, kind, how)
        for seed in PAPER_SEEDS[:n_seeds]
        for kind in kinds
        for how in CHOICES[kind]
        if choices is None or how in choices
        for key in keys
        if (key, seed, kind, how) not in done
    ]
    runs = Parallel(n_jobs=jobs, return_as="generator_unordered")(
        delayed(one_run)(*run) for run in todo
    )
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        for number, (key, seed, kind, how, errors, seconds) in enumerate(runs, 1):
            for batch, error in enumerate(errors):
                labels = FIRST + batch * BATCH
                writer.writerow([key, seed, kind, how, labels, f"{error:.6g}", f"{seconds:.3g}"])
            file.flush()
            if number % 50 == 0:
                print(f"{number}/{len(todo)}", flush=True)


def summary(path):
    runs = pd.read_csv(path)
    area = runs.pivot_table(index=["dataset", "seed"], columns=["model", "choice"], values="rmse")
    names = [(kind, how) for kind, ways in CHOICES.items() for how in ways if how != "random"]
    names = [name for name in names if name in area]
    lines = [
        "# Active learning",
        "",
        f"Area under the curve of test RMSE from {FIRST} labels in {N_BATCHES} batches of {BATCH}, "
        f"as a ratio to random choice by the same model; means of {N_SEEDS} seeds, in brackets "
        "the standard error of the paired difference. `python benchmarks/active_learning.py`.",
        "",
        "| | " + " | ".join(f"{kind}: {how}" for kind, how in names) + " |",
        "|---" * (len(names) + 1) + "|",
    ]
    below = dict.fromkeys(names, 0)
    logs = {name: [] for name in names}
    for key in KEYS:
        own, cells = area.loc[key], []
        for name in names:
            base = own[name[0], "random"]
            change = ((own[name] - base) / base.mean()).dropna()
            below[name] += change.mean() < 0
            logs[name].append(np.log1p(change.mean()))
            cells.append(f"{1 + change.mean():.3f} ({change.std() / np.sqrt(len(change)):.3f})")
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    lines.append("| below random | " + " | ".join(f"{below[name]} of 9" for name in names) + " |")
    means = [f"**{np.exp(np.mean(logs[name])):.3f}**" for name in names]
    lines.append("| geometric mean | " + " | ".join(means) + " |")
    lines += ["", "The same areas of each model with random choice, as a ratio to the twin's:", ""]
    lines += ["| | forest | gp |", "|---|---|---|"]
    for key in KEYS:
        mean = area.loc[key].mean()
        cells = [
            f"{mean[kind, 'random'] / mean['twin', 'random']:.3f}" for kind in ("forest", "gp")
        ]
        lines.append(f"| {key} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--datasets", nargs="*", default=list(KEYS))
    parser.add_argument("--models", nargs="*", default=list(CHOICES))
    parser.add_argument("--choices", nargs="*", help="some ways to choose; default: all")
    parser.add_argument("--seeds", type=int, default=N_SEEDS)
    parser.add_argument("--only-table", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "active_learning.csv")
    arguments = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    if not arguments.only_table:
        run(
            arguments.output,
            arguments.datasets,
            arguments.models,
            arguments.choices,
            arguments.jobs,
            arguments.seeds,
        )
    text = summary(arguments.output)
    arguments.output.with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
