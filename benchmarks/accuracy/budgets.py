"""Error of `AutoTwinRegressor` within short time budgets, beside other models with their seconds.

A trial is one fit on one split of a table: a blend with a `time_budget`, or CatBoost, LightGBM,
XGBoost or a Gaussian process at their defaults. Each has a process of its own and two threads on
two cores that no other trial uses, so a machine with 16 cores runs eight trials at the same time.
`seconds` are those of `fit`, with all imports that it needs; `processor` is its processor time.

    python -m benchmarks.accuracy.budgets --jobs 8     # three splits, on 16 cores
    python -m benchmarks.accuracy.budgets --datasets EE CS --budgets 10 30 --splits 2
    python -m benchmarks.accuracy.budgets --only-table

The tables are those of the paper and of `tables`; and six wide ones of about 200 features, 500
training rows and 700 test rows: `latent`, `friedman` and `mixed`, and three with ten features that
are relevant.

Results: `benchmarks/results/budgets.csv`, `.md`.
"""

import os
import queue
import time

import joblib
import numpy as np
import pandas as pd

from benchmarks import frame
from benchmarks.accuracy.accuracy_auto import geometric_mean
from benchmarks.accuracy.peers import make_model
from benchmarks.accuracy.tables import OTHER_TABLES, split_table
from paper.data import rmse
from twinned.datasets import KEYS, STANDARD_KEYS

BLEND, REFERENCE = "blend", "catboost"
BUDGETS = [5, 10, 30, 60, 120]
THREADS = {"catboost": "thread_count", "lightgbm": "n_jobs", "xgboost": "n_jobs"}
PEERS = [*THREADS, "gaussian process"]
UCI = [f"uci {key}" for key in STANDARD_KEYS]
N_CORES = 2  # of a trial
N_TRAIN, N_TEST, N_ROWS = 500, 700, 1500  # of wide tables
COLUMNS = [
    "dataset",
    "split",
    "model",
    "budget",  # seconds; 0 is none
    "rmse:.6g",
    "seconds:.4g",
    "processor:.4g",
    "members",  # with their weights, the largest first
]


def make_latent(seed):
    """185 features from 20 factors, smooth and noisy."""
    rng = np.random.RandomState(1000 + seed)
    factors = rng.normal(size=(N_ROWS, 20))
    loadings = rng.normal(size=(20, 185)) * (rng.uniform(size=(20, 185)) < 0.25)
    X = factors @ loadings
    X = X / np.maximum(X.std(axis=0), 1e-9) + 0.3 * rng.normal(size=X.shape)
    y = np.sin(2 * factors[:, 0]) + factors[:, 1] * factors[:, 2] + 0.5 * factors[:, 3] ** 2
    y += 0.7 * factors[:, 4:8].sum(axis=1)
    return X, y + 0.3 * rng.normal(size=N_ROWS)


def make_friedman(seed):
    """Friedman 1 with 155 irrelevant features and 25 copies."""
    rng = np.random.RandomState(2000 + seed)
    X = rng.uniform(size=(N_ROWS, 160))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2
    y += 10 * X[:, 3] + 5 * X[:, 4] + rng.normal(size=N_ROWS)
    copies = X[:, :25] * rng.uniform(0.5, 2, size=25) + 1e-3 * rng.normal(size=(N_ROWS, 25))
    return np.hstack([X, copies]), y


def make_mixed(seed):
    """120 saturating features from 12 factors, and 80 others of which one is relevant."""
    rng = np.random.RandomState(3000 + seed)
    factors = rng.normal(size=(N_ROWS, 12))
    X = np.tanh(factors @ rng.normal(size=(12, 120)) / 2) + 0.2 * rng.normal(size=(N_ROWS, 120))
    X = np.hstack([X, rng.exponential(size=(N_ROWS, 80))])
    y = np.exp(0.4 * factors[:, 0]) * (2 + np.cos(2 * factors[:, 1]))
    y += factors[:, 2] * (factors[:, 3] > 0) + np.log1p(X[:, 120])
    return X, y + 0.2 * rng.normal(size=N_ROWS)


def sparse_linear(X):
    """Ten linear effects."""
    return X[:, :10] @ np.linspace(2.0, 0.5, 10)


def sparse_smooth(X):
    """Ten smooth effects and two interactions."""
    y = np.sin(1.5 * X[:, :5]).sum(axis=1) + (0.5 * X[:, 5:8] ** 2).sum(axis=1)
    return y + X[:, 8] * X[:, 9] + X[:, 0] * X[:, 5]


def sparse_steps(X):
    """Jumps and their interactions."""
    above = X[:, :10] > np.linspace(-0.5, 0.5, 10)
    y = 2.0 * (above[:, 0] & above[:, 1]) + 1.5 * (above[:, 2] ^ above[:, 3]) * above[:, 4]
    return y + above[:, 5:] @ np.array([1.0, 0.8, 0.6, 0.5, 0.4])


SPARSE = {
    "sparse linear": sparse_linear,
    "sparse smooth": sparse_smooth,
    "sparse steps": sparse_steps,
}
WIDE = {"latent": make_latent, "friedman": make_friedman, "mixed": make_mixed}
TABLES = [*KEYS, *OTHER_TABLES, *WIDE, *SPARSE]


def make_sparse(name, split):
    """Return training and test rows of 200 features, with noise of a third of the signal."""
    rng = np.random.RandomState(4000 + split)
    X = rng.normal(size=(N_TRAIN + N_TEST, 200))
    y = SPARSE[name](X)
    y = y / y.std() + 0.33 * rng.normal(size=len(y))
    return (X[:N_TRAIN], y[:N_TRAIN]), (X[N_TRAIN:], y[N_TRAIN:])


def load_split(dataset, split):
    """Return training and test rows."""
    if dataset in SPARSE:
        return make_sparse(dataset, split)
    if dataset in WIDE:
        X, y = WIDE[dataset](split)
        order = np.random.RandomState(split).permutation(len(y))
        train, test = order[:N_TRAIN], order[N_TRAIN : N_TRAIN + N_TEST]
        return (X[train], y[train]), (X[test], y[test])
    return split_table(dataset, split)


def measure_fit(dataset, split, model, budget):
    """Return the test RMSE and the seconds of one fit."""
    (X, y), (X_test, y_test) = load_split(dataset, split)
    start, processor = time.perf_counter(), time.process_time()
    if model == BLEND:
        from twinned import AutoTwinRegressor

        estimator = AutoTwinRegressor(time_budget=budget, n_jobs=N_CORES, random_state=0)
    elif model in THREADS:
        estimator = make_model(model, X).set_params(**{THREADS[model]: N_CORES})
    else:
        from twinned.estimators.regressors import GPRegressor

        X, X_test = (pd.get_dummies(pd.DataFrame(part), dtype=float) for part in (X, X_test))
        estimator = GPRegressor(random_state=0)
    estimator.fit(X, y)
    seconds = {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - processor,
    }
    members = ""
    if model == BLEND:
        board = estimator.leaderboard_.sort_values("weight", ascending=False)
        pairs = zip(board["member"], board["weight"], strict=True)
        members = " ".join(f"{name}={weight:.2f}" for name, weight in pairs)
    return {"rmse": rmse(estimator.predict(X_test), y_test), **seconds, "members": members}


def run_on_own_cores(trials, jobs):
    """Run each trial in a process on cores that no other trial uses meanwhile."""
    cores = sorted(os.sched_getaffinity(0))
    free = queue.Queue()
    for job in range(jobs):
        free.put([cores[i % len(cores)] for i in range(job * N_CORES, (job + 1) * N_CORES)])

    def run(*trial):
        own = free.get()
        try:
            os.sched_setaffinity(0, own)  # of this thread, which its processes inherit
            return frame.run_in_subprocess(measure_fit, *trial)
        finally:
            free.put(own)

    with joblib.parallel_config(backend="threading"):  # each trial starts a process of its own
        yield from frame.in_parallel(run, jobs)(trials)


def summary(runs):
    """Return the lines of the page: errors relative to CatBoost by budget, and seconds."""
    runs = runs.assign(name=[_name(*pair) for pair in zip(runs.model, runs.budget, strict=True)])
    budgets = sorted(runs.loc[runs["model"] == BLEND, "budget"].unique())
    names = [_name(BLEND, budget) for budget in budgets]
    names += [name for name in PEERS if name in set(runs["name"]) and name != REFERENCE]
    errors = runs.pivot_table(index=["dataset", "split"], columns="name", values="rmse")
    errors = errors.dropna(subset=[REFERENCE])  # the same splits in each ratio
    means = {name: errors[[name, REFERENCE]].dropna().groupby("dataset").mean() for name in names}
    ratios = pd.DataFrame({name: own[name] / own[REFERENCE] for name, own in means.items()})
    seconds = runs.pivot_table(index="dataset", columns="name", values="seconds", aggfunc="median")
    order = [name for name in [*TABLES, *UCI] if name in ratios.index]
    rows = [
        [
            dataset,
            str(errors.loc[dataset].shape[0]),
            f"{errors.loc[dataset, REFERENCE].mean():.4g}",
            f"{seconds.loc[dataset, REFERENCE]:.1f}",
            *(f"{value:.3f}" for value in ratios.loc[dataset, names]),
        ]
        for dataset in order
    ]
    known = [ratios[name].dropna() for name in names]
    longest = runs.groupby("name")["seconds"].max()
    statistics = {
        "geometric mean": [f"**{geometric_mean(own):.3f}**" for own in known],
        "at or below CatBoost": [f"{100 * np.mean(own <= 1.0):.0f} %" for own in known],
        "largest": [f"{own.max():.3f}" for own in known],
        "median seconds": [f"{seconds[name].median():.1f}" for name in names],
        "most seconds": [f"{longest[name]:.1f}" for name in names],
    }
    rows += [[title, "", "", "", *values] for title, values in statistics.items()]
    return [
        "# Short time budgets",
        "",
        "Test RMSE of `AutoTwinRegressor(time_budget=…, n_jobs=2)` and of other models at their "
        "defaults, relative to CatBoost's default: ratios of means over the same splits. All have "
        "two threads on two cores of their own, and their seconds are those of `fit` with all "
        "imports; blends were fitted on another machine than CatBoost. "
        "`python -m benchmarks.accuracy.budgets`.",
        "",
        *frame.markdown_table(["", "splits", "CatBoost", "its seconds", *names], rows),
    ]


def _name(model, budget):
    return f"{model}, {budget:g} s" if model == BLEND else model


BENCHMARK = frame.Benchmark(
    "budgets",
    __doc__,
    COLUMNS,
    execute=run_on_own_cores,
    summary=summary,
    trial=("dataset", "split", "model", "budget"),
    axes={
        "split": 3,
        "dataset": [*TABLES, *UCI],
        "model": [BLEND, *PEERS],
        "budget": [*BUDGETS, 0],
    },
    is_trial=lambda dataset, split, model, budget: (model == BLEND) == (budget > 0),
)

if __name__ == "__main__":
    BENCHMARK.main()
