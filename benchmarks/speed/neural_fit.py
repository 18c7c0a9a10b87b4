"""Seconds to fit and test RMSE: TwinNeuralRegressor beside RealMLP, same cores, same rows.

RealMLP is pytabkit's `RealMLP_TD_Regressor()`, everything at its default; it takes its validation
rows from inside the 80 %, as ours does. Each fit runs in a process of its own with an empty cache
of compiled programs, so compiling is part of our seconds; importing the libraries is part of
neither's. Fits take turns, split by split. Besides the clock, processor seconds are given: they
depend less on what else runs on the machine.

Needs pytabkit and PyTorch. Results: `benchmarks/results/neural_fit.csv` and `.md`,
measured on two cores.

    python -m benchmarks.speed.neural_fit
"""

import os
import tempfile
import time

from benchmarks import frame
from paper.data import rmse, training_and_test_rows

SETS = ("CS", "EE", "YH")
MODELS = ("RealMLP", "fast", "balanced")
COLUMNS = ["dataset", "split", "model", "clock:.5g", "processor:.5g", "rmse:.5g"]


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


def uncached(function):
    """Return the function as one that runs in a process with an empty cache of programs."""

    def run(*trial):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": f"{folder}/compiled"}
            # RealMLP writes files to its working directory
            return frame.run_in_subprocess(function, *trial, cwd=folder, env=environment)

    return run


def summary(runs):
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
        f"One fit each on the 80 % of the first {runs['split'].nunique()} of the paper's "
        "splits, in turns, on "
        "two cores: medians of seconds, compiling included (the cache "
        "of compiled programs is empty at each fit), and mean test RMSE. The machine is shared: "
        "processor seconds are more reliable than the clock. Made by `python -m "
        "benchmarks.speed.neural_fit`; every run is in `neural_fit.csv`.",
        "",
        *frame.markdown_table(header, rows),
    ]


BENCHMARK = frame.Benchmark(
    "neural_fit",
    __doc__,
    COLUMNS,
    run=uncached(measure_fit),
    summary=summary,
    trial=("dataset", "split", "model"),
    axes={"split": 3, "dataset": list(SETS), "model": list(MODELS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
