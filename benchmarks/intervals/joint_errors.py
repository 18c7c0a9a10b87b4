"""Errors of several rows at once: how large and how correlated they are, beside `sample`.

Twins are fitted to a few random rows, of training rows of the paper's first split or of generated
tables, and predict up to 80 others. Measured are the root mean square of the errors in units of the
spread of the anchors' estimates and of the standard deviation of `sample`; and the mean
log-likelihood per row of the errors, each divided by that deviation and all by one factor that fits
best, under normal distributions with different correlations: independence, that of the anchors and
members and that of the Gaussian process (each mixed with a tenth of independence), and the mean of
all three, which `sample` uses. The factor `SPREAD_FACTOR` and the correlation were chosen by
results on these tables. Writes `benchmarks/results/joint_errors.csv` and `.md`.

    python -m benchmarks.intervals.joint_errors --jobs 2        # about ten core-minutes
"""

import warnings

import numpy as np

from benchmarks import frame
from benchmarks.accuracy.tables import GENERATED
from paper.data import training_and_test_rows
from twinned import AutoTwinRegressor, TwinRegressor

N_NEW = 80
TABLES = [
    "BH", "CS", "EE", "TF", "WN", "WSB", "YH", "reaction yield", "borehole", "Franke", "Ishigami",
]  # fmt: skip
MODELS = ["twin 30", "twin 100", "blend 30"]  # and the number of rows
BLEND = ["gp_matern", "extra_trees:fast", "tree_twin:fast"]
CORRELATIONS = ["independent", "anchors", "process", "mean"]
COLUMNS = [
    "model", "table", "seed", "spread_ratio:.3f", "error_ratio:.3f",
    *(f"{name}:.3f" for name in CORRELATIONS), "seconds:.3g",
]  # fmt: skip


def measure(model, name, seed):
    warnings.filterwarnings("ignore")
    rng = np.random.RandomState(seed)
    if name in GENERATED:
        X, y = GENERATED[name](400, rng)
    else:
        (X, y), _ = training_and_test_rows(name, 0)
    kind, n_rows = model.split()
    train, new = np.split(rng.permutation(len(y))[: int(n_rows) + N_NEW], [int(n_rows)])
    twin = TwinRegressor(random_state=seed)
    if kind == "blend":
        twin = AutoTwinRegressor(members=BLEND, cv=5, random_state=seed)
    twin.fit(X[train], y[train])
    mean, std = twin.predict_error(X[new])
    errors = y[new] - mean
    queries = twin.encode(X[new])
    features = twin.fitted_.error_features(queries)
    spread = np.linalg.norm(twin.fitted_.deviations(queries, np.arange(len(train))), axis=1)
    identity = np.eye(len(new))
    by_anchors = features.deviations @ features.deviations.T
    both = 3 * features.correlation() - by_anchors
    np.fill_diagonal(both, 1.0)  # that of the process
    matrices = {
        "independent": identity,
        "anchors": 0.9 * by_anchors + 0.1 * identity,
        "process": 0.9 * both + 0.1 * identity,
        "mean": features.correlation(),
    }
    return {
        "spread_ratio": root_mean_square(errors / np.maximum(spread, 1e-12)),
        "error_ratio": root_mean_square(errors / std),
        **{key: log_likelihood(errors / std, matrix) for key, matrix in matrices.items()},
    }


def root_mean_square(values):
    return np.sqrt(np.mean(values**2))


def log_likelihood(scores, correlation):
    """Mean per row, up to a constant, with the factor of all scores that fits best."""
    factor = np.linalg.cholesky(correlation + 1e-6 * np.eye(len(scores)))
    whitened = np.linalg.solve(factor, scores)
    return -np.log(root_mean_square(whitened)) - np.mean(np.log(np.diag(factor)))


def summary(runs):
    rows = []
    for model in MODELS:
        own = runs[runs["model"] == model]
        if own.empty:
            continue
        gains = own[CORRELATIONS[1:]].sub(own["independent"], axis=0)
        rows.append(
            [
                f"{model} rows",
                "–" if "blend" in model else median_and_range(own["spread_ratio"]),
                median_and_range(own["error_ratio"]),
                *(f"{gains[name].mean():+.3f} ({(gains[name] > 0).sum()})" for name in gains),
            ]
        )
    return [
        "# Errors of several rows at once",
        "",
        "Root mean square error in units of the spread of the anchors and of the standard "
        "deviation of `sample` (medians over tables, and the range), and the gain in mean "
        "log-likelihood per row over independent errors, by three correlations; in brackets the "
        f"number of tables, of {runs['table'].nunique()}, on which it is positive. "
        "`python -m benchmarks.intervals.joint_errors`.",
        "",
        *frame.markdown_table(
            ["", "error / spread", "error / deviation", "anchors", "process", "mean of three"],
            rows,
        ),
    ]


def median_and_range(values):
    return f"{values.median():.2f} ({values.min():.2f} to {values.max():.2f})"


BENCHMARK = frame.Benchmark(
    "joint_errors",
    __doc__,
    COLUMNS,
    run=measure,
    summary=summary,
    trial=("model", "table", "seed"),
    axes={"model": MODELS, "seed": 1, "table": TABLES},
)

if __name__ == "__main__":
    BENCHMARK.main()
