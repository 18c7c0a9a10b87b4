"""Predictions and sizes of models exported to ONNX, beside `predict` and the saved model.

At most 60 training rows of the paper's first split are fitted, and the test rows are not used; the
models are small: the benchmark is about equality, not about accuracy.
Queries are training rows with noise, in float32: the differences of mean and standard deviation
are those of onnxruntime from `predict`, in standard deviations of y. Then the same queries in
float64, of which a model with inputs of float32 gets the rounded values: the share of rows that
differ by more than 1e-5. Models that take missing values get 5 % of them, and "categories" has one
feature as text, with a category that is not in the training rows. Trials that are in the results
are not run again.

    python -m benchmarks.export.onnx_export --kinds boosting ridge --datasets YH BH
    python -m benchmarks.export.onnx_export --only-table

Results: `benchmarks/results/onnx_export.csv` and `.md`.
"""

import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

import twinned
from benchmarks import frame
from paper.data import training_and_test_rows
from twinned import (
    AutoTwinRegressor,
    NearestAnchors,
    NeuralRegressor,
    NeuralTraining,
    TwinNeuralRegressor,
    TwinRegressor,
)
from twinned.export.onnx import to_onnx
from twinned.export.onnx.runtime import predict_onnx

COLUMNS = [
    "dataset", "kind", "rows", "mean:.2e", "above_mean", "std:.2e", "above_std",
    "share_rounded:.5f", "bytes", "size_ratio:.3f", "seconds:.1f",
]  # fmt: skip
DATASETS = ["BC", "BH", "CS", "EE", "RCL", "TF", "WN", "WSB", "YH"]
NEED_FLOAT64 = ["WN", "YH"]  # as of a density of 0.990 to 1.003, float32 loses digits
MAX_TRAINING_ROWS, NOISE, SHARE_MISSING = 60, 0.1, 0.05
MEAN_TOLERANCE, STD_TOLERANCE = 1e-5, 1e-4
BOOSTING = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=30)
NETWORKS = {
    "hidden_sizes": (16, 16), "effort": "fast", "n_members": 2, "random_state": 0,
    "training": NeuralTraining(max_steps=100),
}  # fmt: skip


def twin(estimator, **options):
    return TwinRegressor(estimator, **{"pairs": 30, "random_state": 0} | options)


def blend(members):
    return AutoTwinRegressor(members=members, cv=3, random_state=0)


KINDS = {
    "boosting": twin(BOOSTING),
    "missing": twin(BOOSTING),
    "categories": twin(BOOSTING),
    "tree": twin(DecisionTreeRegressor(min_samples_leaf=5)),
    "forest": twin(RandomForestRegressor(5, min_samples_leaf=2)),
    "extra trees": twin(ExtraTreesRegressor(5, min_samples_leaf=2)),
    "gradient boosting": twin(GradientBoostingRegressor(n_estimators=20)),
    "ridge": twin(Ridge()),
    "nearest anchors": twin(BOOSTING, anchors=NearestAnchors(16)),
    "networks": NeuralRegressor(**NETWORKS),
    "neural twin": TwinNeuralRegressor(**NETWORKS),
    "blend": blend(
        ["ridge", "gp_matern", ("extra trees", ExtraTreesRegressor(10)), ("twin", twin(BOOSTING))]
    ),
    "blend of networks": blend(
        [
            "ridge",
            ("networks", NeuralRegressor(**NETWORKS)),
            ("twin", TwinNeuralRegressor(**NETWORKS)),
        ]
    ),
}


def draw_rows(dataset, kind, n_rows):
    """Training rows and their y, and queries in float64."""
    (X, y), _ = training_and_test_rows(dataset, 0)
    X, y = np.asarray(X, dtype=float)[:MAX_TRAINING_ROWS], np.asarray(y)[:MAX_TRAINING_ROWS]
    rng = np.random.RandomState(0)
    queries = X[rng.randint(0, len(X), n_rows)]
    queries = queries + NOISE * X.std(axis=0) * rng.normal(size=queries.shape)
    if kind in ("missing", "blend"):
        X, queries = (np.where(rng.rand(*v.shape) < SHARE_MISSING, np.nan, v) for v in (X, queries))
    return X, y, queries


def as_table(values, kind, edges):
    """A table, whose first feature is text where the kind has categories."""
    table = pd.DataFrame(values, columns=[f"x{j}" for j in range(values.shape[1])])
    if kind == "categories":
        code = np.searchsorted(edges, values[:, 0])
        names = np.array(["a", "b", "c", "d", "e"], dtype=object)
        table["x0"] = names[code]
    return table


def run_trial(dataset, kind, rows):
    warnings.simplefilter("ignore")
    X, y, queries = draw_rows(dataset, kind, rows)
    # the last category is beyond the training rows
    known = X[:, 0][~np.isnan(X[:, 0])]
    edges = [*np.quantile(known, [0.25, 0.5, 0.75]), known.max()]
    model = KINDS[kind].fit(as_table(X, kind, edges), y)
    exact = as_table(queries.astype(np.float32).astype(np.float64), kind, edges)
    with tempfile.TemporaryDirectory() as folder:
        path, saved = Path(folder) / "model.onnx", Path(folder) / "model.twin"
        to_onnx(model, path, dtype="float64" if dataset in NEED_FLOAT64 else "float32")
        twinned.save(model, saved)
        sizes = path.stat().st_size, saved.stat().st_size
        found = predict_onnx(path, exact)
        rounded = predict_onnx(path, as_table(queries, kind, edges))["mean"]
    mean, std = model.predict(exact, return_std=True)
    unit = y.std()
    apart, apart_std = np.abs(found["mean"] - mean) / unit, np.abs(found["std"] - std) / unit
    other = np.abs(rounded - model.predict(as_table(queries, kind, edges))) / unit
    return {
        "mean": apart.max(),
        "above_mean": int((apart > MEAN_TOLERANCE).sum()),
        "std": apart_std.max(),
        "above_std": int((apart_std > STD_TOLERANCE).sum()),
        "share_rounded": np.mean(other > MEAN_TOLERANCE),
        "bytes": sizes[0],
        "size_ratio": sizes[0] / sizes[1],
    }


def summary(runs):
    """The table of the largest differences and sizes of each kind."""
    rows = []
    for kind in KINDS:
        own = runs[runs["kind"] == kind]
        if len(own):
            rows.append(
                [
                    kind,
                    " ".join(sorted(own["dataset"])),
                    f"{own['rows'].sum():,}",
                    f"{own['mean'].max():.0e}",
                    f"{own['above_mean'].sum():,}",
                    f"{own['std'].max():.0e}",
                    f"{own['above_std'].sum():,}",
                    f"{own['share_rounded'].max():.2%}",
                    f"{own['size_ratio'].min():.2f} … {own['size_ratio'].max():.2f}",
                ]
            )
    header = [
        "", "data sets", "rows", "mean", "above 1e-5", "std", "above 1e-4",
        "float64 rows above 1e-5", "size",
    ]  # fmt: skip
    return [
        "# Export to ONNX",
        "",
        "Largest differences of onnxruntime from `predict`, in standard deviations of y, on rows "
        "that are exact in float32, and the number of rows above the tolerance; the largest share, "
        "over data sets, of other rows that differ by more; and the size of the file, in units of "
        "the saved model. `python -m benchmarks.export.onnx_export`.",
        "",
        *frame.markdown_table(header, rows),
        "",
        "Inputs are float32, but float64 on WN and YH, which have features, such as a density of "
        "0.990 to 1.003, that lose digits in float32. The std of a blend is "
        "that of a forest, one of whose thresholds a row may cross by rounding.",
    ]


BENCHMARK = frame.Benchmark(
    "onnx_export",
    __doc__,
    COLUMNS,
    run=run_trial,
    summary=summary,
    trial=("dataset", "kind", "rows"),
    axes={"kind": list(KINDS), "dataset": DATASETS, "rows": [10_000]},
)

if __name__ == "__main__":
    BENCHMARK.main()
