"""Accuracy of the neural estimators on the paper's nine sets and 25 splits.

Each split trains on its 80 % (train and validation rows together), validates inside, and is tested
once on its 20 %. All splits of a data set are trained as one program (`fit_many`); one GPU does a
data set in seconds. Appends to `benchmarks/results/accuracy_neural.csv`, one row a split; finished
rows are not run again.

    python benchmarks/accuracy_neural.py --models twin:thorough twin:balanced plain:balanced
    python benchmarks/accuracy_neural.py --models catboost           # on a CPU
    python benchmarks/accuracy_neural.py --models twin:balanced:1600 \\
        --output benchmarks/results/accuracy_neural_steps.csv        # another number of steps
    python benchmarks/accuracy_neural.py --published PATH/TO/published.csv   # the table
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np

from twinned.datasets import KEYS, PAPER_SEEDS, load, paper_split

RESULTS = Path(__file__).parent / "results"
HEADER = ["dataset", "model", "seed", "rmse", "seconds"]
TWIN_COLUMNS = {
    "tnnr_1_anchor",
    "tnnr_all_anchors",
    "tnnr_ensemble_32",
    "nn_inference",
    "nn_train_and_inference",
}


def splits(key):
    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    for seed in PAPER_SEEDS:
        train, validation, test = paper_split(len(y), seed)
        learn = np.concatenate([train, validation])
        yield seed, (X[learn], y[learn]), (X[test], y[test])


def rmse(model, X, y):
    return float(np.sqrt(np.mean((np.ravel(model.predict(X)) - y) ** 2)))


def run_neural(key, kind, effort, steps=None):
    """All 25 splits at once; seconds are of training and compiling, a split's share."""
    from twinned.neural import NeuralRegressor, TwinNeuralRegressor, fit_many

    estimator = (TwinNeuralRegressor if kind == "twin" else NeuralRegressor)(
        effort=effort, max_steps=int(steps) if steps else None, random_state=0
    )
    every = list(splits(key))
    start = time.perf_counter()
    models = fit_many(estimator, [learn for _, learn, _ in every])
    seconds = time.perf_counter() - start
    for (seed, _, test), model in zip(every, models, strict=True):
        yield seed, rmse(model, *test), seconds / len(every)


def run_catboost(key):
    from catboost import CatBoostRegressor

    for seed, learn, test in splits(key):
        start = time.perf_counter()
        model = CatBoostRegressor(verbose=False, random_seed=0, allow_writing_files=False)
        model.fit(*learn)
        yield seed, rmse(model, *test), time.perf_counter() - start


def table(rows, published):
    import pandas as pd

    means = pd.DataFrame(rows, columns=HEADER).astype({"rmse": float})
    errors = means.groupby(["dataset", "model"])["rmse"].std(ddof=0) / np.sqrt(len(PAPER_SEEDS))
    means = means.groupby(["dataset", "model"])["rmse"].mean()
    paper = pd.read_csv(published)
    best = paper[paper["method"].isin(TWIN_COLUMNS)].groupby("dataset")["rmse"].min()
    # a model that has not run on all sets yet has no mean to speak of
    complete = means.groupby("model").size() == len(KEYS)
    models = sorted(complete.index[complete])
    lines = [
        "# The neural estimators on the paper's 25 splits",
        "",
        "Mean test RMSE (standard error), trained on the 80 % of each split. *Paper's best* is the "
        "lowest published figure of any TNNR variant (tables T1 to T3). One setting for all sets.",
        "",
        "| | paper's best | " + " | ".join(models) + " |",
        "|---" * (len(models) + 2) + "|",
    ]
    ratios = {model: [] for model in models}
    for key in KEYS:
        cells = [key, f"{best[key]:.4g}"]
        for model in models:
            mean = means.get((key, model))
            if mean is None:
                cells.append("")
                continue
            ratios[model].append((key, mean / best[key]))
            cells.append(f"{mean:.4g} ({errors[key, model]:.2g}), {mean / best[key]:.3f}")
        lines.append("| " + " | ".join(cells) + " |")
    gist = ["geometric mean of the ratio, without TF", ""]
    below = ["sets below the paper's best", ""]
    for model in models:
        logs = [np.log(ratio) for key, ratio in ratios[model] if key != "TF"]
        gist.append(f"**{np.exp(np.mean(logs)):.3f}**")
        below.append(f"{sum(ratio < 1 for _, ratio in ratios[model])} of {len(ratios[model])}")
    lines += ["| " + " | ".join(row) + " |" for row in (gist, below)]
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="*", default=[])
    parser.add_argument("--datasets", nargs="*", default=list(KEYS))
    parser.add_argument("--published", type=Path)
    parser.add_argument("--output", type=Path, default=RESULTS / "accuracy_neural.csv")
    arguments = parser.parse_args()
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    if not arguments.output.exists():
        arguments.output.write_text(",".join(HEADER) + "\n")
    done = {(row["dataset"], row["model"]) for row in csv.DictReader(arguments.output.open())}
    for model in arguments.models:
        for key in arguments.datasets:
            if (key, model) in done:
                continue
            start = time.perf_counter()
            kind, *how = model.split(":")
            runs = list(run_catboost(key) if kind == "catboost" else run_neural(key, kind, *how))
            with arguments.output.open("a") as file:
                for seed, error, seconds in runs:
                    file.write(f"{key},{model},{seed},{error:.6g},{seconds:.4g}\n")
            mean, fitting = np.mean([r[1] for r in runs]), sum(r[2] for r in runs)
            print(
                f"{key} {model}: {mean:.4g}; fitting {fitting:.1f} s, in all "
                f"{time.perf_counter() - start:.1f} s",
                flush=True,
            )
    if arguments.published:
        text = table(list(csv.reader(arguments.output.open()))[1:], arguments.published)
        arguments.output.with_suffix(".md").write_text(text)
        print(text)


if __name__ == "__main__":
    main()
