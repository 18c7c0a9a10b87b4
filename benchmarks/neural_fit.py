"""Seconds to fit and test RMSE: TwinNeuralRegressor beside RealMLP, same cores, same rows.

RealMLP is pytabkit's `RealMLP_TD_Regressor()`, everything at its default; it takes its validation
rows from inside the 80 %, as ours does. Each fit runs in a process of its own with an empty cache
of compiled programs, so compiling is part of our seconds; importing the libraries is part of
neither's. Fits take turns, split by split. Besides the clock, processor seconds are given: they
depend less on what else runs on the machine.

`--curve` writes out-of-fold RMSE of the training rows against processor seconds (without
compiling), for several shapes of a step and growing numbers of steps: the basis for choosing a
shape.

Needs pytabkit and PyTorch. Results: `benchmarks/results/neural_fit.csv` and `.md`,
`neural_fit_curve.csv` and `.png`.

    python -m benchmarks.neural_fit
    python -m benchmarks.neural_fit --curve
"""

import os
import tempfile
import time

from paper import harness
from paper.data import rmse, training_and_test_rows

SETS = ("CS", "EE", "YH")
MODELS = ("RealMLP", "fast", "balanced")
COLUMNS = ["dataset", "split", "model", "clock:.5g", "processor:.5g", "rmse:.5g"]
CURVE_COLUMNS = [
    "dataset", "split", "members", "partners", "pairs", "steps", "processor:.5g", "rmse:.5g"
]  # fmt: skip
# shapes that the curve compares: members, partners of a point, pairs a step
SHAPES = [(6, 1, 128), (6, 4, 128), (6, 8, 128), (6, 4, 64), (6, 4, 256), (2, 4, 128), (12, 4, 128)]
STEPS = (500, 1000, 2000, 4000)


def make_model(model):
    if model == "RealMLP":
        import torch
        from pytabkit import RealMLP_TD_Regressor

        n_threads = len(os.sched_getaffinity(0))
        torch.set_num_threads(n_threads)
        return RealMLP_TD_Regressor(random_state=0, device="cpu", n_threads=n_threads)
    from twinned import TwinNeuralRegressor

    return TwinNeuralRegressor(effort=model, random_state=0)


def measure_fit(dataset, split, model):
    """Return seconds by the clock and of the processor, and test RMSE, of one fit."""
    train, (X_test, y_test) = training_and_test_rows(dataset, split)
    estimator = make_model(model)
    clock, processor = time.perf_counter(), time.process_time()
    estimator.fit(*train)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    error = rmse(estimator.predict(X_test), y_test)
    return {"clock": clock, "processor": processor, "rmse": error}


def measure_curve(dataset, split, members, partners, pairs):
    """Return processor seconds and out-of-fold RMSE of fits of one shape with growing steps."""
    from twinned import NeuralTraining, TwinNeuralRegressor
    from twinned.models.neural import fitting

    fitting.N_PARTNERS = partners
    (X, y), _ = training_and_test_rows(dataset, split)
    rows = []
    for steps in (20, *STEPS):  # the first one compiles
        training = NeuralTraining(n_folds=2, batch_size=pairs, max_steps=steps)
        estimator = TwinNeuralRegressor(n_members=members, training=training, random_state=0)
        start = time.process_time()
        estimator.fit(X, y)
        seconds = time.process_time() - start
        error = rmse(estimator.out_of_fold_prediction_, y)
        rows.append({"steps": steps, "processor": seconds, "rmse": error})
    return rows[1:]


def uncached(function):
    """Return the function as one that runs in a process with an empty cache of programs."""

    def run(*trial):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled"}
            # RealMLP writes files to its working directory
            return harness.run_in_subprocess(function, *trial, cwd=folder, env=environment)

    return run


def summary(runs, n_splits):
    rows = []
    for key in SETS:
        own = runs[runs["dataset"] == key].groupby("model")
        for name, average in (
            ("seconds", own["clock"].median()),
            ("processor seconds", own["processor"].median()),
            ("test RMSE", own["rmse"].mean()),
        ):
            peer, fast, default = (average[model] for model in MODELS)
            rows.append(
                f"{key} | {name} | {peer:.3g} | {fast:.3g} | {fast / peer:.2f} | {default:.3g} | "
                f"{default / peer:.2f}"
            )
    header = " |  | RealMLP | `fast` | ratio | `balanced` | ratio"
    return [
        "# Fitting, beside RealMLP",
        "",
        f"One fit each on the 80 % of the first {n_splits} of the paper's splits, in turns, on "
        f"{len(os.sched_getaffinity(0))} cores: medians of seconds, compiling included (the cache "
        "of compiled programs is empty at each fit), and mean test RMSE. The machine is shared: "
        "processor seconds are more reliable than the clock. Made by `python -m "
        "benchmarks.neural_fit`; every run is in `neural_fit.csv`.",
        "",
        *harness.markdown_table(header, rows),
    ]


def draw_curves(runs, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

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
    harness.write_figure(path, figure, dpi=110)


def main():
    arguments = harness.parse_arguments(__doc__, splits=3, curve=False, only_table=False)
    if arguments.curve:
        path = harness.RESULTS / "neural_fit_curve.csv"
        identity = ("dataset", "split", "members", "partners", "pairs")
        table = harness.ResultTable(path, identity, CURVE_COLUMNS)
        trials = [(key, 0, *shape) for shape in SHAPES for key in SETS]
        harness.run_benchmark(table, trials, uncached(measure_curve), arguments)
        draw_curves(table.read(), path.with_suffix(".png"))
        return
    path = harness.RESULTS / "neural_fit.csv"
    table = harness.ResultTable(path, ("dataset", "split", "model"), COLUMNS)
    trials = [(key, i, model) for i in range(arguments.splits) for key in SETS for model in MODELS]
    # the page names the cores of this machine: written only where something was measured
    if harness.run_benchmark(table, trials, uncached(measure_fit), arguments):
        harness.write_markdown(path.with_suffix(".md"), summary(table.read(), arguments.splits))


if __name__ == "__main__":
    main()
