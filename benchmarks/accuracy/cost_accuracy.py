"""The defaults before and after a change: test errors, coverage and processor seconds.

`TwinRegressor(random_state=0)` or `AutoTwinRegressor(random_state=0)` is trained on the 80 % of a
split and tested on the 20 %: of the paper's sets and those of `tables.py`. Rows of the version
`before` are those of `accuracy_trees.csv`, whose seconds include predictions, and of
`accuracy_auto*.csv`, whose networks were trained on a GPU. Results:
`benchmarks/results/cost_accuracy.csv` and `.md`. It continues where it stopped.

    OMP_NUM_THREADS=1 python -m benchmarks.accuracy.cost_accuracy --jobs 16
    OMP_NUM_THREADS=1 python -m benchmarks.accuracy.cost_accuracy --models blend --datasets cpus YH
    python -m benchmarks.accuracy.cost_accuracy --only-table
"""

import time

import numpy as np

from benchmarks import frame
from benchmarks.accuracy.tables import split_table
from paper.data import rmse
from twinned import AutoTwinRegressor, TwinRegressor
from twinned.datasets import KEYS

COLUMNS = [
    "model",
    "dataset",
    "version",
    "seed",
    "rmse:.6g",
    "coverage_90:.4g",
    "fit_seconds:.4g",
]
MODELS = {"twin": TwinRegressor, "blend": AutoTwinRegressor}


def run_split(model, dataset, version, seed):
    """Fit and test the model; all versions have the same parameters."""
    (X, y), (X_test, y_test) = split_table(dataset, seed)
    start = time.process_time()
    fitted = MODELS[model](random_state=0).fit(X, y)
    seconds = time.process_time() - start
    coverage = np.nan
    if model == "blend":
        low, high = fitted.predict_interval(X_test, 0.9).T
        coverage = np.mean((low <= y_test) & (y_test <= high))
    error = rmse(fitted.predict(X_test), y_test)
    return {"rmse": error, "coverage_90": coverage, "fit_seconds": seconds}


def summary(runs):
    """The table of both versions of each model, on the splits that both have."""
    lines = [
        "# The defaults before and after",
        "",
        "Mean test RMSE of `TwinRegressor()` and `AutoTwinRegressor()`, coverage of 90 % "
        "intervals, and processor seconds of a fit on one thread. "
        "`python -m benchmarks.accuracy.cost_accuracy`. The networks of the blends before were "
        "trained on a GPU, so that their seconds are no comparison. Of the default twin, EE, RCL, "
        "TF, WSB and YH, which have little noise, were measured before the last change of its "
        "sizes for noisy tables.",
    ]
    for model, title in (("twin", "The default twin"), ("blend", "The blend")):
        table = summary_of_model(runs[runs["model"] == model], model == "blend")
        lines += ["", f"## {title}", "", *table]
    return lines


def summary_of_model(runs, is_blend):
    """The lines of the table of a model."""
    columns = ["rmse", "coverage_90", "fit_seconds"]
    values = runs.pivot(index=["dataset", "seed"], columns="version", values=columns)
    values = values[values["rmse"].notna().all(axis=1)]
    if values.empty or len(values["rmse"].columns) < 2:
        return ["Not measured after the change."]
    rows, ratios = [], []
    for dataset in dict.fromkeys(values.index.get_level_values("dataset")):
        part = values.loc[dataset]
        before, after = part["rmse"]["before"], part["rmse"]["after"]
        ratios.append(after.mean() / before.mean())
        row = [dataset, f"{before.mean():.4g}", f"{after.mean():.4g}", f"{ratios[-1]:.3f}"]
        if len(part) > 1:
            difference = after - before
            std_error = difference.std() / np.sqrt(len(difference))
            row.append(f"{difference.mean() / std_error:+.1f}")
        else:
            row.append("")
        coverage = part["coverage_90"].mean() if is_blend else None
        row += [
            "" if coverage is None else f"{coverage['before']:.2f}, {coverage['after']:.2f}",
            f"{part['fit_seconds']['before'].mean():.1f}",
            f"{part['fit_seconds']['after'].mean():.1f}",
            str(len(part)),
        ]
        rows.append(row)
    mean = np.exp(np.mean(np.log(ratios)))
    rows.append(["geometric mean", "", "", f"**{mean:.3f}**", *[""] * 5])
    header = (
        " | before | after | ratio | difference in standard errors | coverage before, after "
        "| s before | s after | splits"
    )
    return frame.markdown_table(header, rows)


BENCHMARK = frame.Benchmark(
    name="cost_accuracy",
    description=__doc__,
    columns=COLUMNS,
    trial=("model", "dataset", "version", "seed"),
    run=run_split,
    summary=summary,
    axes={
        "seed": list(range(10)),
        "version": ["after"],
        "dataset": list(KEYS),
        "model": ["twin"],
    },
)

if __name__ == "__main__":
    BENCHMARK.main()
