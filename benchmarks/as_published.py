"""The paper's own training on its 25 splits, beside tables T1 and T2.

`TwinNeuralRegressor.as_published()` and `NeuralRegressor.as_published()` learn from the 70 % of
each split, stop by its 10 % and are tested on its 20 %; all splits of a data set are trained as one
program. Appends to `benchmarks/results/as_published.csv`; finished data sets are not run again.

    python benchmarks/as_published.py                                  # minutes on a GPU
    python benchmarks/as_published.py --only-table --published PATH/TO/published.csv

TF, RCL and WSB have losses near the 1e-4 below which the author's plateau rule sees no progress.
How the scale of the loss moves them:

    python benchmarks/as_published.py --datasets TF RCL WSB --loss-scales 3 1 0.33 0.125
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np

from twinned.datasets import KEYS, PAPER_SEEDS, load, paper_split

RESULTS = Path(__file__).parent / "results"
HEADER = ["dataset", "method", "seed", "rmse", "epochs", "seconds"]
PUBLISHED = {
    "ann_single": ("T1", "ann_single"),
    "tnnr_all_anchors": ("T2", "tnnr_all_anchors"),
    "tnnr_1_anchor": ("T2", "tnnr_1_anchor"),
}


def problems(key):
    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    for seed in PAPER_SEEDS:
        train, validation, test = paper_split(len(y), seed)
        learn = (X[train], y[train], None, X[validation], y[validation])
        yield seed, learn, (X[test], y[test])


def rmse(predicted, y):
    return float(np.sqrt(np.mean((predicted - y) ** 2)))


def run(key, kind, recipe="as_published"):
    from twinned.neural import NeuralRegressor, TwinNeuralRegressor, fit_many

    estimator = getattr(TwinNeuralRegressor if kind == "tnnr" else NeuralRegressor, recipe)(
        random_state=0
    )
    every = list(problems(key))
    start = time.perf_counter()
    models = fit_many(estimator, [learn for _, learn, _ in every])
    seconds = (time.perf_counter() - start) / len(every)
    for (seed, _, (X, y)), model in zip(every, models, strict=True):
        epochs = int(np.isfinite(model.learning_curve_).sum())
        if kind == "ann":
            yield "ann_single", seed, rmse(model.predict(X), y), epochs, seconds
            continue
        _, estimates = model.predict_anchors(X)
        yield "tnnr_all_anchors", seed, rmse(estimates.mean(axis=1), y), epochs, seconds
        # the expected error of an anchor drawn at random
        alone = np.sqrt(np.mean((estimates - y[:, None]) ** 2, axis=0))
        yield "tnnr_1_anchor", seed, float(alone.mean()), epochs, seconds


def run_scales(keys, scales, output):
    """The twins again, their training loss multiplied by each of some numbers."""
    import jax

    from twinned.models.neural import published_loss

    share = published_loss.LABELLED_SHARE
    if not output.exists():
        output.write_text("dataset,method,loss_scale,rmse,standard_error,epochs\n")
    for key in keys:
        for scale in scales:
            published_loss.LABELLED_SHARE = share * scale
            jax.clear_caches()  # the factor is compiled in
            rows = list(run(key, "tnnr"))
            with output.open("a") as file:
                for method in ("tnnr_all_anchors", "tnnr_1_anchor"):
                    errors = [row[2] for row in rows if row[0] == method]
                    mean, spread = np.mean(errors), np.std(errors) / np.sqrt(len(errors))
                    epochs = np.mean([row[3] for row in rows])
                    file.write(f"{key},{method},{scale},{mean:.4g},{spread:.2g},{epochs:.0f}\n")
            print(f"{key} scale {scale}: {mean:.4g}", flush=True)


def table(rows, published):
    import pandas as pd

    ours = pd.DataFrame(rows, columns=HEADER).astype({"rmse": float, "epochs": int})
    means = ours.groupby(["dataset", "method"])[["rmse", "epochs"]].mean()
    spread = ours.groupby(["dataset", "method"])["rmse"].std(ddof=0) / np.sqrt(len(PAPER_SEEDS))
    paper = pd.read_csv(published).set_index(["table", "dataset", "method"])["rmse"]
    lines = [
        "# The paper's own training, on its 25 splits",
        "",
        "Mean test RMSE (standard error) of one network a split, the published figure, and their "
        "ratio. `python benchmarks/as_published.py --only-table --published PATH`.",
        "",
        "| | " + " | ".join(PUBLISHED) + " | epochs (twin, plain) |",
        "|---" * (len(PUBLISHED) + 2) + "|",
    ]
    ratios = {method: [] for method in PUBLISHED}
    for key in KEYS:
        cells = [key]
        for method, (name, column) in PUBLISHED.items():
            if (key, method) not in means.index:
                cells.append("")
                continue
            mean, known = means.loc[(key, method), "rmse"], paper[name, key, column]
            ratios[method].append(mean / known)
            cells.append(
                f"{mean:.4g} ({spread[key, method]:.2g}), {known:.4g}, **{mean / known:.3f}**"
            )
        epochs = [means["epochs"].get((key, m)) for m in ("tnnr_all_anchors", "ann_single")]
        cells.append(", ".join("" if e is None else f"{e:.0f}" for e in epochs))
        lines.append("| " + " | ".join(cells) + " |")
    for within in (0.03, 0.07):
        counts = [
            f"{sum(abs(ratio - 1) <= within for ratio in of)} of {len(of)}"
            for of in ratios.values()
        ]
        lines.append(f"| within {within:.0%} | " + " | ".join(counts) + " | |")
    return "\n".join([*lines, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datasets", nargs="*", default=list(KEYS))
    parser.add_argument("--kinds", nargs="*", default=["tnnr", "ann"])
    parser.add_argument("--loss-scales", nargs="*", type=float)
    parser.add_argument("--only-table", action="store_true")
    parser.add_argument("--published", type=Path)
    parser.add_argument("--output", type=Path, default=RESULTS / "as_published.csv")
    arguments = parser.parse_args()
    if arguments.loss_scales:
        output = arguments.output.with_name("as_published_loss_scale.csv")
        run_scales(arguments.datasets, arguments.loss_scales, output)
        return
    if not arguments.output.exists():
        arguments.output.write_text(",".join(HEADER) + "\n")
    done = {(row["dataset"], row["method"][:3]) for row in csv.DictReader(arguments.output.open())}
    for key in [] if arguments.only_table else arguments.datasets:
        for kind in arguments.kinds:
            if (key, kind[:3]) in done:
                continue
            start = time.perf_counter()
            rows = list(run(key, kind))
            with arguments.output.open("a") as file:
                for method, seed, error, epochs, seconds in rows:
                    file.write(f"{key},{method},{seed},{error:.6g},{epochs},{seconds:.4g}\n")
            mean = np.mean([row[2] for row in rows if row[0] != "tnnr_1_anchor"])
            print(f"{key} {kind}: {mean:.4g}, {time.perf_counter() - start:.1f} s", flush=True)
    if arguments.published:
        text = table(list(csv.reader(arguments.output.open()))[1:], arguments.published)
        arguments.output.with_suffix(".md").write_text(text)
        print(text)


if __name__ == "__main__":
    main()
