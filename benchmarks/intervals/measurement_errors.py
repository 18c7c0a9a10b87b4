"""Known errors of measurement: errors with and without `y_std`, and coverage of intervals.

Three generated tables of `benchmarks/accuracy/tables.py` with further noise, whose standard
deviation is known for each row: 0.3 standard deviations of the value, times a lognormal variable of
scale 0.8. 300 training and 2,000 test rows, 16 draws. The estimate of the remaining part of errors
was chosen on other draws of these tables and of four others.

The model is a blend of ridge regression, a Gaussian process, extremely randomized trees and
boosting, effort "fast". Reported are the RMSE of the value, in standard deviations of it, of the
blend that knows the errors and of one that ignores them, and the coverage of 90 % intervals of the
value and of a measurement whose error is known. Appends to
`benchmarks/results/measurement_errors.csv` and writes `measurement_errors.md` beside it.

    python -m benchmarks.intervals.measurement_errors  # about 20 minutes of one core
    python -m benchmarks.intervals.measurement_errors --only-table
"""

import warnings

import numpy as np

from benchmarks import frame
from benchmarks.accuracy.tables import GENERATED
from twinned import AutoTwinRegressor
from twinned.exceptions import ShiftWarning

N_TRAIN, N_TEST, N_DRAWS = 300, 2000, 16
DATASETS = ("circuit", "reaction yield", "robot arm")
MEMBERS = ["ridge", "gp_matern", "extra_trees", "boosting"]
COLUMNS = [
    "dataset", "seed", "rmse:.5g", "rmse_ignoring:.5g", "value:.4f", "measurement:.4f",
    "measurement_ignoring:.4f", "width_ratio:.4g", "seconds:.3g",
]  # fmt: skip


def measure(dataset, seed):
    rng = np.random.RandomState(100 + seed)
    X, value = GENERATED[dataset](N_TRAIN + N_TEST, rng)
    y_std = 0.3 * value.std() * np.exp(0.8 * rng.normal(size=len(value)))
    y = value + y_std * rng.normal(size=len(value))
    blend = AutoTwinRegressor(members=MEMBERS, effort="fast", random_state=seed)
    ignoring = AutoTwinRegressor(members=MEMBERS, effort="fast", random_state=seed)
    blend.fit(X[:N_TRAIN], y[:N_TRAIN], y_std=y_std[:N_TRAIN])
    ignoring.fit(X[:N_TRAIN], y[:N_TRAIN])
    X, value, y, y_std = X[N_TRAIN:], value[N_TRAIN:], y[N_TRAIN:], y_std[N_TRAIN:]

    def rmse(model):
        return np.sqrt(np.mean((model.predict(X) - value) ** 2)) / value.std()

    def coverage(ends, truth):
        return np.mean((ends[:, 0] <= truth) & (truth <= ends[:, 1]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        of_value = blend.predict_interval(X, 0.9, of="value")
        of_measurement = blend.predict_interval(X, 0.9, y_std=y_std)
        of_ignoring = ignoring.predict_interval(X, 0.9)
    return {
        "rmse": rmse(blend),
        "rmse_ignoring": rmse(ignoring),
        "value": coverage(of_value, value),
        "measurement": coverage(of_measurement, y),
        "measurement_ignoring": coverage(of_ignoring, y),
        "width_ratio": np.median(np.ptp(of_value, axis=1)) / np.median(np.ptp(of_ignoring, axis=1)),
    }


def summary(runs):
    """Return the lines of the Markdown file."""
    lines = [
        "# Known errors of measurement",
        "",
        "Made by `python -m benchmarks.intervals.measurement_errors`. Means over draws with "
        "the standard "
        "error of the mean. RMSE are those of the value, in standard deviations of it; coverage of "
        "90 % intervals is in %.",
        "",
    ]
    rows = []
    for dataset, own in runs.groupby("dataset", sort=False):
        ratio = own["rmse"] / own["rmse_ignoring"]
        cells = [dataset, f"{len(own)}", f"{own['rmse'].mean():.3f}"]
        cells += [f"{own['rmse_ignoring'].mean():.3f}", f"{ratio.mean():.2f} ± {ratio.sem():.2f}"]
        for name in ("value", "measurement", "measurement_ignoring"):
            cells.append(f"{100 * own[name].mean():.1f} ± {100 * own[name].sem():.1f}")
        rows.append(cells)
    header = ["table", "draws", "RMSE", "RMSE, ignoring the errors", "ratio"]
    header += ["coverage, value", "coverage, measurement", "coverage, ignoring the errors"]
    return lines + frame.markdown_table(header, rows)


BENCHMARK = frame.Benchmark(
    "measurement_errors",
    __doc__,
    COLUMNS,
    run=measure,
    summary=summary,
    trial=("dataset", "seed"),
    axes={"seed": N_DRAWS, "dataset": list(DATASETS)},
)

if __name__ == "__main__":
    BENCHMARK.main()
