"""Seconds to fit and test RMSE: TwinNeuralRegressor beside RealMLP, same cores, same rows.

RealMLP is pytabkit's `RealMLP_TD_Regressor()`, everything at its default; it takes its validation
rows from inside the 80 %, as ours does. Each fit runs in a process of its own with an empty cache
of compiled programs, so compiling is part of our seconds; importing the libraries is part of
neither's. Fits take turns, split by split. Besides the clock, processor seconds are given: on a
machine that others use they say more.

`--curve` writes validation RMSE (out of fold, training rows alone) against processor seconds for
several shapes of training, which is what the effort "fast" was chosen by.

Needs pytabkit, PyTorch and, for the picture, matplotlib. Results go to `benchmarks/results`.

    TWINNED_DATA=… python benchmarks/neural_fit.py
    TWINNED_DATA=… python benchmarks/neural_fit.py --curve
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
SETS = ("CS", "EE", "YH")
MODELS = ("RealMLP", "fast", "balanced")
# what the curve compares: members, folds, partners, pairs a step, steps
SHAPES = [
    (members, folds, partners, pairs, steps)
    for members, folds in ((2, 2), (4, 2), (6, 2))
    for partners, pairs in ((1, 128), (4, 128), (8, 128), (4, 64), (4, 256))
    for steps in (500, 1000, 2000, 4000)
]


def split(key, seed):
    from twinned.datasets import load, paper_split

    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    train, validation, test = paper_split(len(y), seed)
    learn = np.concatenate([train, validation])
    return X[learn], y[learn], X[test], y[test]


def estimator(model, settings):
    if model == "RealMLP":
        import torch
        from pytabkit import RealMLP_TD_Regressor

        torch.set_num_threads(len(os.sched_getaffinity(0)))
        return RealMLP_TD_Regressor(
            random_state=0, device="cpu", n_threads=len(os.sched_getaffinity(0))
        )
    from twinned import TwinNeuralRegressor
    from twinned.neural import fitting

    if "partners" in settings:
        fitting.PARTNERS = settings.pop("partners")
    return TwinNeuralRegressor(effort=model, random_state=0, **settings)


def child(model, key, seed, settings):
    """One fit, told as JSON on the last line."""
    X, y, X_test, y_test = split(key, seed)
    one = estimator(model, settings)
    clock, processor = time.perf_counter(), time.process_time()
    one.fit(X, y)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    told = {"clock": clock, "processor": processor}
    if settings:
        unseen = one.out_of_fold_prediction_
        told["rmse"] = float(np.sqrt(np.mean((unseen - y) ** 2)))
    else:
        told["rmse"] = float(np.sqrt(np.mean((np.ravel(one.predict(X_test)) - y_test) ** 2)))
    print(json.dumps(told))


def fit(model, key, seed, settings=None):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [
                sys.executable,
                __file__,
                "--child",
                model,
                key,
                str(seed),
                json.dumps(settings or {}),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,  # RealMLP leaves files where it runs
            env={**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled"},
        )
    if run.returncode:
        raise RuntimeError(run.stderr)
    return json.loads(run.stdout.strip().splitlines()[-1])


def compare(n_splits, path):
    path.write_text("dataset,split,model,clock,processor,rmse\n")
    rows = []
    for seed in range(n_splits):
        for key in SETS:
            for model in MODELS:
                told = fit(model, key, seed)
                figures = [told["clock"], told["processor"], told["rmse"]]
                rows.append([key, seed, model, *figures])
                with path.open("a") as file:
                    file.write(f"{key},{seed},{model},")
                    file.write(",".join(f"{value:.5g}" for value in figures) + "\n")
                print(*rows[-1], flush=True)
    return rows


def table(rows, n_splits):
    lines = [
        "# Fitting, beside RealMLP",
        "",
        f"One fit each on the 80 % of the first {n_splits} of the paper's splits, in turns, on "
        f"{len(os.sched_getaffinity(0))} cores: medians of seconds, compiling included (the cache "
        "of compiled programs is empty at each fit), and mean test RMSE. The machine is shared: "
        "processor seconds say more than the clock. Made by `python benchmarks/neural_fit.py`; "
        "every run is in `neural_fit.csv`.",
        "",
        "| | | RealMLP | `fast` | ratio | `balanced` | ratio |",
        "|---|---|---|---|---|---|---|",
    ]
    for key in SETS:
        of = {m: np.array([r[3:] for r in rows if (r[0], r[2]) == (key, m)]) for m in MODELS}
        for column, name in enumerate(("seconds", "processor seconds", "test RMSE")):
            average = np.mean if column == 2 else np.median
            peer, fast, default = (average(of[model][:, column]) for model in MODELS)
            lines.append(
                f"| {key} | {name} | {peer:.3g} | {fast:.3g} | {fast / peer:.2f} | {default:.3g} | "
                f"{default / peer:.2f} |"
            )
    return "\n".join([*lines, ""])


def curve(path):
    done = set()
    if path.exists():
        done = {tuple(row[:7]) for row in csv.reader(path.open())}
    else:
        header = "dataset,seed,members,folds,partners,pairs,steps,clock,processor,rmse"
        path.write_text(header + "\n")
    for shape in SHAPES:
        for key in SETS:
            for seed in (0, 1):
                what = (key, str(seed), *map(str, shape))
                if what in done:
                    continue
                names = ("n_members", "n_folds", "partners", "batch_size", "max_steps")
                told = fit("fast", key, seed, dict(zip(names, shape, strict=True)))
                with path.open("a") as file:
                    figures = (told["clock"], told["processor"], told["rmse"])
                    file.write(",".join([*what, *(f"{value:.5g}" for value in figures)]) + "\n")
                print(*what, figures, flush=True)


def picture(path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd

    runs = (
        pd.read_csv(path)
        .groupby(["dataset", "members", "folds", "partners", "pairs", "steps"], as_index=False)[
            ["processor", "rmse"]
        ]
        .mean()
    )
    figure, axes = plt.subplots(1, len(SETS), figsize=(13, 4.2), layout="constrained")
    for axis, key in zip(axes, SETS, strict=True):
        own = runs[runs["dataset"] == key]
        shapes = own.groupby(["members", "partners", "pairs"])
        for number, ((members, partners, pairs), line) in enumerate(shapes):
            axis.plot(
                line["processor"],
                line["rmse"],
                marker="os^Dv"[number % 5],
                markersize=4,
                linewidth=1,
                label=f"{members} members, {partners} partners, {pairs} pairs",
            )
        axis.set(xscale="log", yscale="log", title=key, xlabel="processor seconds of a fit")
    axes[0].set_ylabel("out-of-fold RMSE, training rows")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=7)
    figure.savefig(path.with_suffix(".png"), dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--child", nargs=4)
    arguments = parser.parse_args()
    if arguments.child:
        model, key, seed, settings = arguments.child
        child(model, key, int(seed), json.loads(settings))
        return
    RESULTS.mkdir(exist_ok=True)
    if arguments.curve:
        curve(RESULTS / "neural_fit_curve.csv")
        picture(RESULTS / "neural_fit_curve.csv")
        return
    rows = compare(arguments.splits, RESULTS / "neural_fit.csv")
    text = table(rows, arguments.splits)
    (RESULTS / "neural_fit.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
