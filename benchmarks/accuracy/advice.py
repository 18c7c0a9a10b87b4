"""The recommendation of `twinned advise` on 17 data sets, against the best single model.

The paper's nine sets, and eight tables with which no choice had been made. Each split is
trained on its 80 % within a budget of seconds, as the command does, and tested once on its 20 %.
Test rows that equal a training row in all features are excluded: the page holds equal rows out
together, so its error is that of rows that are not known yet. The test error of the recommended
model is compared with that of the best single model of its table, chosen by test error; and with
the error that the page states, which is out of fold.
Results: `benchmarks/results/advice.csv` and `.md`.

    python -m benchmarks.accuracy.advice     # an hour on two cores
"""

import time

import numpy as np
import pandas as pd
from joblib import cpu_count

from benchmarks import frame
from benchmarks.accuracy.tables import split_table
from twinned import diagnose
from twinned._compat import safe_indexing
from twinned.app.report import collect, render
from twinned.datasets import KEYS

TOLERANCE = 0.03
BUDGET = 120.0  # seconds
TABLES = ("Diamond", "Electricity", "Grunfeld", "Cigarette")
TABLES += ("borehole", "robot arm", "Franke", "cantilever")
DATASETS = [*KEYS, *TABLES]
COLUMNS = ["dataset", "seed", "conclusion", "recommended", "rmse:.6g", "rmse_se:.4g"]
COLUMNS += [
    "out_of_fold_rmse:.6g",
    "out_of_fold_se:.4g",
    "best",
    "best_rmse:.6g",
    "ratio_se:.4g",
    "copies",
    "advice_seconds:.4g",
    "skipped",
]
COLUMNS += ["seconds:.4g"]


def run_advice(dataset, seed):
    (X, y), (X_test, y_test) = split_table(dataset, seed)
    is_new = ~in_training(X_test, X)
    X_test, y_test = safe_indexing(X_test, np.flatnonzero(is_new)), y_test[is_new]
    start = time.perf_counter()
    n_jobs = cpu_count()
    diagnosis = diagnose(X, y, budget=BUDGET, n_jobs=n_jobs, random_state=0)
    left = BUDGET - (time.perf_counter() - start)
    render(collect(diagnosis, title=dataset, seconds=max(0.5, 0.5 * left)))  # as the command does
    seconds = time.perf_counter() - start
    blend = diagnosis.blend
    predictions = dict(zip(blend.member_names_, blend.predict_members(X_test), strict=True))
    squares = {name: (predicted - y_test) ** 2 for name, predicted in predictions.items()}
    best = min(squares, key=lambda name: squares[name].mean())
    own = (diagnosis.model.predict(X_test) - y_test) ** 2
    error, best_error = own.mean() ** 0.5, squares[best].mean() ** 0.5
    # standard errors of means, by the derivatives of the root and of the ratio of roots
    relative = own / own.mean() - squares[best] / squares[best].mean()
    return {
        "conclusion": diagnosis.recommendation.conclusion,
        "recommended": " ".join(diagnosis.recommendation.members),
        "rmse": error,
        "rmse_se": error / 2 * standard_error(own / own.mean()),
        "out_of_fold_rmse": diagnosis.errors.rmse,
        "out_of_fold_se": diagnosis.errors.rmse_se,
        "best": best,
        "best_rmse": best_error,
        "ratio_se": error / best_error / 2 * standard_error(relative),
        "copies": int(np.sum(~is_new)),
        "advice_seconds": seconds,
        "skipped": " ".join(blend.skipped_),
    }


def in_training(X_test, X):
    """(row,): whether a test row equals a training row in all features."""
    known = set(map(tuple, pd.DataFrame(X).to_numpy()))
    return np.array([tuple(row) in known for row in pd.DataFrame(X_test).to_numpy()])


def standard_error(values):
    return np.std(values, ddof=1) / len(values) ** 0.5


def summary(runs):
    runs = runs.fillna({"recommended": "", "skipped": ""})
    runs["ratio"] = runs["rmse"] / runs["best_rmse"]
    runs["se"] = np.hypot(runs["rmse_se"], runs["out_of_fold_se"])
    runs["apart"] = (runs["rmse"] - runs["out_of_fold_rmse"]) / runs["se"]
    order = {key: number for number, key in enumerate(DATASETS)}
    runs = runs.sort_values(
        ["dataset", "seed"], key=lambda column: column.map(lambda key: order.get(key, key))
    )
    rows = [
        f"{row.dataset} | {row.seed} | {row.recommended} | {row.conclusion} | {row.rmse:.4g} | "
        f"{row.best} | {row.best_rmse:.4g} | {row.ratio:.3f} ({row.ratio_se:.3f}) | "
        f"{row.out_of_fold_rmse:.4g} | {row.apart:+.1f} | {row.advice_seconds:.0f} | {row.copies} "
        f"| {row.skipped}"
        for row in runs.itertuples()
    ]
    header = " | split | recommended | twinning | RMSE | best single model | its RMSE | ratio | "
    header += "stated RMSE | apart in standard errors | seconds | copies | skipped"
    return [
        "# The recommendation of `twinned advise`, and the best single model",
        "",
        f"`python -m benchmarks.accuracy.advice`, {BUDGET:g} seconds each: trained on "
        "the "
        "80 % of a split, tested once on its 20 %. The best single model is chosen by test error "
        "among those of its table. The "
        "ratio of both errors has its standard error in brackets. The stated error is out of fold; "
        "its distance from the test error is in standard errors of the difference. Seconds on two "
        "cores, with the page. Copies are test rows that equal a training row: they do not count.",
        "",
        *(line for kind in (KEYS, TABLES) for line in conclusion(runs, kind)),
        *frame.markdown_table(header, rows),
    ]


def conclusion(runs, datasets):
    """Return a paragraph on some data sets; ratios are geometric means over splits."""
    runs = runs[runs["dataset"].isin(datasets)]
    if runs.empty:
        return []
    by_set = runs.groupby("dataset", sort=False)
    logs = by_set["ratio"].agg(lambda own: np.log(own).mean())
    relative = (runs["ratio_se"] / runs["ratio"]) ** 2
    log_se = np.sqrt(relative.groupby(runs["dataset"], sort=False).sum()) / by_set.size()
    ratios, near = np.exp(logs), logs <= np.maximum(np.log1p(TOLERANCE), 2 * log_se)
    in_time = (runs["advice_seconds"] <= 1.2 * BUDGET).sum()
    return [
        f"{', '.join(f'{key} {ratio:.3f}' for key, ratio in ratios.items())}: the recommended "
        f"model is within {TOLERANCE:.0%} of the best single model on "
        f"**{(ratios <= 1 + TOLERANCE).sum()} of {len(ratios)}** sets (geometric mean "
        f"{np.exp(logs.mean()):.3f}), and within {TOLERANCE:.0%} or two standard errors on "
        f"{near.sum()}. The stated error is within two standard errors of "
        f"the test error in {(runs['apart'].abs() <= 2).sum()} of {len(runs)} runs, and the time "
        f"at most 20 % over the budget in {in_time} of {len(runs)}.",
        "",
    ]


BENCHMARK = frame.Benchmark(
    "advice",
    __doc__,
    COLUMNS,
    run=run_advice,
    summary=summary,
    trial=("dataset", "seed"),
    axes={"dataset": DATASETS, "seed": [0, 1]},
)

if __name__ == "__main__":
    BENCHMARK.main()
