"""Seconds to fit and test RMSE: TwinNeuralRegressor beside RealMLP, same cores, same rows.

RealMLP is pytabkit's `RealMLP_TD_Regressor()`, everything at its default; it takes its validation
rows from inside the 80 %, as ours does. Each fit runs in a process of its own with an empty cache
of compiled programs, so compiling is part of our seconds; importing the libraries is part of
neither's. Fits take turns, split by split. Besides the clock, processor seconds are given: on a
machine that others use they say more.

`--curve` writes out-of-fold RMSE of the training rows against processor seconds (without
compiling), for several shapes of a step and growing numbers of steps: what a shape should be chosen
by.

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
from functools import partial
from pathlib import Path

import numpy as np

RESULTS = Path(__file__).parent / "results"
SETS = ("CS", "EE", "YH")
MODELS = ("RealMLP", "fast", "balanced")
# what the curve compares: members, partners of a point, pairs a step; each for growing steps
SHAPES = [(6, 1, 128), (6, 4, 128), (6, 8, 128), (6, 4, 64), (6, 4, 256), (2, 4, 128), (12, 4, 128)]
STEPS = (500, 1000, 2000, 4000)


def split(key, seed):
    from twinned.datasets import load, paper_split

    X, y = load(key)
    X, y = X.to_numpy(), y.to_numpy()
    train, validation, test = paper_split(len(y), seed)
    learn = np.concatenate([train, validation])
    return X[learn], y[learn], X[test], y[test]


def estimator(model):
    if model == "RealMLP":
        import torch
        from pytabkit import RealMLP_TD_Regressor

        n_threads = len(os.sched_getaffinity(0))
        torch.set_num_threads(n_threads)
        return RealMLP_TD_Regressor(random_state=0, device="cpu", n_threads=n_threads)
    from twinned import TwinNeuralRegressor

    return TwinNeuralRegressor(effort=model, random_state=0)


def rmse(predicted, y):
    return float(np.sqrt(np.mean((np.ravel(predicted) - y) ** 2)))


def child(model, key, seed):
    """One fit: seconds by the clock and of the processor, and test RMSE."""
    X, y, X_test, y_test = split(key, seed)
    one = estimator(model)
    clock, processor = time.perf_counter(), time.process_time()
    one.fit(X, y)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    return [clock, processor, rmse(one.predict(X_test), y_test)]


def shape_child(key, seed, members, partners, pairs):
    """Fits of one shape with growing steps: processor seconds and out-of-fold RMSE of each."""
    from twinned import TwinNeuralRegressor
    from twinned.models.neural import fitting

    fitting.N_PARTNERS = partners
    X, y, _, _ = split(key, seed)
    told = []
    for steps in (20, *STEPS):  # the first one compiles
        one = TwinNeuralRegressor(
            n_members=members, n_folds=2, batch_size=pairs, max_steps=steps, random_state=0
        )
        start = time.process_time()
        one.fit(X, y)
        told.append([time.process_time() - start, rmse(one.out_of_fold_prediction_, y)])
    return told[1:]


def in_a_process(*what):
    with tempfile.TemporaryDirectory() as folder:
        run = subprocess.run(
            [sys.executable, str(Path(__file__).resolve()), "--child", *map(str, what)],
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
                figures = in_a_process(model, key, seed)
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
    header = "dataset,split,members,partners,pairs,steps,processor,rmse\n"
    if not path.exists():
        path.write_text(header)
    done = {tuple(row[:5]) for row in csv.reader(path.open())}
    for shape in SHAPES:
        for key in SETS:
            what = (key, "0", *map(str, shape))
            if what in done:
                continue
            told = in_a_process("shape", *what)
            with path.open("a") as file:
                for steps, figures in zip(STEPS, told, strict=True):
                    values = [f"{value:.5g}" for value in figures]
                    file.write(",".join([*what, str(steps), *values]) + "\n")
            print(*what, told, flush=True)


def picture(path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    import pandas as pd

    runs = pd.read_csv(path)
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
        axis.set(xscale="log", title=key, xlabel="processor seconds of a fit")
        axis.set_xticks([1, 2, 5, 10, 20, 50], labels=["1", "2", "5", "10", "20", "50"])
        axis.minorticks_off()
    axes[0].set_ylabel("out-of-fold RMSE, training rows")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right center", fontsize=7)
    figure.savefig(path.with_suffix(".png"), dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--splits", type=int, default=3)
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--child", nargs="+")
    arguments = parser.parse_args()
    if arguments.child:
        model, key, *numbers = arguments.child
        run = shape_child if model == "shape" else partial(child, model)
        print(json.dumps(run(key, *map(int, numbers))))
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
