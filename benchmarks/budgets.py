"""Error of `AutoTwinRegressor` within short time budgets, beside other models with their seconds.

A trial is one fit on one split of a table: a blend with a `time_budget`, or CatBoost, LightGBM,
XGBoost or a Gaussian process at their defaults. Each has a process of its own and two threads on
two cores that no other trial uses, so a machine with 16 cores runs eight trials at the same time.
`seconds` are those of `fit`, with all imports that it needs; `processor` is its processor time.

    python -m benchmarks.budgets --jobs 8              # all tables, three splits, on 16 cores
    python -m benchmarks.budgets --datasets EE CS --budgets 10 30 --splits 2
    python -m benchmarks.budgets --only-table

The tables are those of the paper, of `benchmarks.tables` and `benchmarks.wide`, and three generated
ones of 200 features of which ten are relevant. The sets of molecules of `benchmarks.wide` are named
by `--datasets`. Choices were made with `--validation`, which has no test rows: a fifth of the
training rows of each split is held out in their place, generated wide tables have other rows, and
the standard splits of UCI are left out.

    python -m benchmarks.budgets --validation --budgets 10 --output validation.csv

Results: `benchmarks/results/budgets.csv`, `.md`.
"""

import os
import queue
import time

import joblib
import numpy as np
import pandas as pd

from benchmarks import wide
from benchmarks.accuracy_auto import geometric_mean
from benchmarks.peers import make_model
from benchmarks.tables import OTHER_TABLES, split_table
from paper import harness
from paper.data import rmse
from twinned.datasets import KEYS, STANDARD_KEYS

BLEND, REFERENCE = "blend", "catboost"
BUDGETS = [5, 10, 30, 60, 120]
THREADS = {"catboost": "thread_count", "lightgbm": "n_jobs", "xgboost": "n_jobs"}
PEERS = [*THREADS, "gaussian process"]
UCI = [f"uci {key}" for key in STANDARD_KEYS]
N_CORES = 2  # of a trial
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


# --- tables -------------------------------------------------------------------------------------


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
TABLES = [*KEYS, *OTHER_TABLES, *wide.GENERATED, *SPARSE]


def make_sparse(name, split):
    """Return training and test rows of 200 features, with noise of a third of the signal."""
    rng = np.random.RandomState(4000 + split)
    X = rng.normal(size=(wide.N_TRAIN + wide.N_TEST, 200))
    y = SPARSE[name](X)
    y = y / y.std() + 0.33 * rng.normal(size=len(y))
    return (X[: wide.N_TRAIN], y[: wide.N_TRAIN]), (X[wide.N_TRAIN :], y[wide.N_TRAIN :])


def load_split(dataset, split, validation):
    """Return training and test rows; with `validation`, neither are test rows elsewhere."""
    generated = dataset in SPARSE or dataset in wide.GENERATED
    if validation and generated:
        split += 100
    if dataset in SPARSE:
        return make_sparse(dataset, split)
    if dataset in wide.DATASETS:
        train, test = wide.load_rows(dataset, split)
    else:
        train, test = split_table(dataset, split)
    if not validation or generated:
        return train, test
    X, y = train
    order = np.random.RandomState(split).permutation(len(y))
    held_out, rest = np.split(order, [round(0.2 * len(y))])

    def take(rows):
        return (X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]), y[rows]

    return take(np.sort(rest)), take(np.sort(held_out))


# --- trials -------------------------------------------------------------------------------------


def measure_fit(dataset, split, model, budget, validation):
    """Return the test RMSE and the seconds of one fit."""
    (X, y), (X_test, y_test) = load_split(dataset, split, validation)
    start, processor = time.perf_counter(), time.process_time()
    if model == BLEND:
        from twinned import AutoTwinRegressor

        estimator = AutoTwinRegressor(time_budget=budget, n_jobs=N_CORES, random_state=0)
    elif model in THREADS:
        estimator = make_model(model, X).set_params(**{THREADS[model]: N_CORES})
    else:
        from twinned.estimators.gaussian_process import GPRegressor

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


def on_own_cores(jobs, validation):
    """Return a function that measures a trial on cores that no other trial uses meanwhile."""
    cores = sorted(os.sched_getaffinity(0))
    free = queue.Queue()
    for job in range(jobs):
        free.put([cores[i % len(cores)] for i in range(job * N_CORES, (job + 1) * N_CORES)])

    def run(*trial):
        own = free.get()
        try:
            os.sched_setaffinity(0, own)  # of this thread, which its processes inherit
            return harness.run_in_subprocess(measure_fit, *trial, validation)
        finally:
            free.put(own)

    return run


# --- results ------------------------------------------------------------------------------------


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
    order = [name for name in [*TABLES, *UCI, *wide.MOLECULES] if name in ratios.index]
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
        "`python -m benchmarks.budgets`.",
        "",
        *harness.markdown_table(["", "splits", "CatBoost", "its seconds", *names], rows),
    ]


def _name(model, budget):
    return f"{model}, {budget:g} s" if model == BLEND else model


def main():
    arguments = harness.parse_arguments(
        __doc__,
        datasets=str,
        splits=3,
        budgets=BUDGETS,
        models=[BLEND, *PEERS],
        jobs=1,
        validation=False,
        only_table=False,
        output=harness.RESULTS / "budgets.csv",
    )
    table = harness.ResultTable(arguments.output, ("dataset", "split", "model", "budget"), COLUMNS)
    datasets = arguments.datasets or (TABLES if arguments.validation else [*TABLES, *UCI])
    trials = [
        (dataset, split, model, budget)
        for split in range(arguments.splits)
        for dataset in datasets
        for model in arguments.models
        for budget in (arguments.budgets if model == BLEND else [0])
    ]
    if not arguments.only_table:
        # threads: each trial starts a process of its own
        with joblib.parallel_config(backend="threading"):
            run = on_own_cores(arguments.jobs, arguments.validation)
            execute = harness.in_parallel(run, arguments.jobs)
            harness.run_pending(trials, table, execute, harness.print_progress)
    harness.write_markdown(arguments.output.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
