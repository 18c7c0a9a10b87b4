"""The default twin before and after a change of its defaults: test error and processor seconds.

`TwinRegressor(random_state=0)` is trained on the 80 % of the paper's splits and tested on the 20 %.
Rows of the version `before` are those of `accuracy_trees.csv`, whose seconds include predictions.
Results: `benchmarks/results/cost_accuracy.csv` and `.md`. It continues where it stopped.

    OMP_NUM_THREADS=1 python -m benchmarks.accuracy.cost_accuracy --jobs 16
    python -m benchmarks.accuracy.cost_accuracy --only-table
"""

import time

import numpy as np

from benchmarks import frame
from paper.data import rmse, training_and_test_rows
from twinned import TwinRegressor
from twinned.datasets import KEYS

COLUMNS = ["dataset", "version", "seed", "rmse:.6g", "fit_seconds:.4g"]


def run_split(dataset, version, seed):
    """Fit and test the twin; all versions have the same parameters."""
    (X, y), (X_test, y_test) = training_and_test_rows(dataset, seed)
    start = time.process_time()
    twin = TwinRegressor(random_state=0).fit(X, y)
    seconds = time.process_time() - start
    return {"rmse": rmse(twin.predict(X_test), y_test), "fit_seconds": seconds}


def summary(runs):
    """The table of both versions, on the splits that both have."""
    values = runs.pivot_table(index=["dataset", "seed"], columns="version").dropna()
    rows, ratios = [], []
    for key in (key for key in KEYS if key in values.index):
        errors, seconds = (values.loc[key][name] for name in ("rmse", "fit_seconds"))
        before, after = errors["before"], errors["after"]
        difference = after - before
        std_error = difference.std() / np.sqrt(len(difference))
        ratios.append(after.mean() / before.mean())
        rows.append(
            [
                key,
                f"{before.mean():.4g}",
                f"{after.mean():.4g}",
                f"{ratios[-1]:.3f}",
                f"{difference.mean() / std_error:+.1f}",
                f"{seconds['before'].mean():.1f}",
                f"{seconds['after'].mean():.1f}",
                str(len(before)),
            ]
        )
    mean = np.exp(np.mean(np.log(ratios)))
    rows.append(["geometric mean", "", "", f"**{mean:.3f}**", "", "", "", ""])
    header = (
        " | before | after | ratio | difference in standard errors | s before | s after | splits"
    )
    return [
        "# The default twin before and after",
        "",
        "Mean test RMSE of `TwinRegressor()` on the paper's splits, and processor seconds of a fit "
        "on one thread. `python -m benchmarks.accuracy.cost_accuracy`.",
        "",
        *frame.markdown_table(header, rows),
    ]


BENCHMARK = frame.Benchmark(
    name="cost_accuracy",
    description=__doc__,
    columns=COLUMNS,
    trial=("dataset", "version", "seed"),
    run=run_split,
    summary=summary,
    axes={"seed": list(range(10)), "version": ["after"], "dataset": list(KEYS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
