"""The recommendation of `twinned advise` on 17 data sets, against the best single model.

The paper's nine sets, and eight tables on which no choice was made (`tables.py`). Each split is
trained on its 80 % within a budget of seconds, as the command does, and tested once on its 20 %.
The test error of the recommended model is compared with that of the best single model of its table,
chosen by test error; and with the error that the page states, which is out of fold. With `--alone`,
members that were skipped for lack of time are compared, too, each fitted alone in the same budget.
Results: `benchmarks/results/advice.csv` and `.md`.

    python -m benchmarks.advice --budget 120     # an hour on two cores
    python -m benchmarks.advice --budget 120 --alone --datasets BH YH
"""

import time
import warnings

import numpy as np
from joblib import cpu_count

from benchmarks.tables import split_table
from paper import harness
from paper.data import rmse
from twinned import AutoTwinRegressor, diagnose
from twinned.datasets import KEYS
from twinned.exceptions import SkippedMemberWarning
from twinned.report import collect, render

TOLERANCE = 0.03
TABLES = ("Diamond", "Electricity", "Grunfeld", "Cigarette")
TABLES += ("borehole", "robot arm", "Franke", "cantilever")
DATASETS = [*KEYS, *TABLES]
COLUMNS = ["dataset", "seed", "conclusion", "recommended", "rmse:.6g", "rmse_se:.4g"]
COLUMNS += [
    "out_of_fold_rmse:.6g",
    "out_of_fold_se:.4g",
    "best",
    "best_rmse:.6g",
    "advice_seconds:.4g",
    "skipped",
]
COLUMNS += ["seconds:.4g"]


def run_advice(dataset, seed, budget, alone):
    (X, y), (X_test, y_test) = split_table(dataset, seed)
    start = time.perf_counter()
    n_jobs = cpu_count()
    diagnosis = diagnose(X, y, budget=budget, n_jobs=n_jobs)
    left = budget - (time.perf_counter() - start)
    render(collect(diagnosis, title=dataset, seconds=max(0.5, 0.5 * left)))  # as the command does
    seconds = time.perf_counter() - start
    blend = diagnosis.blend
    predictions = zip(blend.member_names_, blend.predict_members(X_test), strict=True)
    errors = {name: rmse(predicted, y_test) for name, predicted in predictions}
    if alone:
        for name in blend.skipped_:
            errors |= fit_alone(name, X, y, X_test, y_test, budget, n_jobs)
    best = min(errors, key=errors.get)
    predicted = diagnosis.model.predict(X_test)
    error = rmse(predicted, y_test)
    return {
        "conclusion": diagnosis.recommendation.conclusion,
        "recommended": " ".join(diagnosis.recommendation.members),
        "rmse": error,
        # that of the mean squared error, by the derivative of its root
        "rmse_se": np.std((predicted - y_test) ** 2, ddof=1) / len(y_test) ** 0.5 / (2 * error),
        "out_of_fold_rmse": diagnosis.errors.rmse,
        "out_of_fold_se": diagnosis.errors.rmse_se,
        "best": best,
        "best_rmse": errors[best],
        "advice_seconds": seconds,
        "skipped": " ".join(blend.skipped_),
    }


def fit_alone(name, X, y, X_test, y_test, budget, n_jobs):
    """Return the test error of a member that has the whole budget; empty where it takes longer."""
    model = AutoTwinRegressor(
        members=[name.partition(":")[0]], time_budget=budget, n_jobs=n_jobs, random_state=0
    )
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SkippedMemberWarning)
        model.fit(X, y)
    if time.perf_counter() - start > 1.2 * budget:
        return {}
    return {f"{name} alone": rmse(model.predict(X_test), y_test)}


def summary(runs, budget, alone):
    runs = runs.fillna({"recommended": "", "skipped": ""})
    runs["ratio"] = runs["rmse"] / runs["best_rmse"]
    runs["se"] = np.hypot(runs["rmse_se"], runs["out_of_fold_se"])
    runs["apart"] = (runs["rmse"] - runs["out_of_fold_rmse"]) / runs["se"]
    order = {key: number for number, key in enumerate(DATASETS)}
    runs = runs.sort_values(["dataset", "seed"], key=lambda column: column.replace(order))
    rows = [
        f"{row.dataset} | {row.seed} | {row.recommended} | {row.conclusion} | {row.rmse:.4g} | "
        f"{row.best} | {row.best_rmse:.4g} | {row.ratio:.3f} | {row.out_of_fold_rmse:.4g} | "
        f"{row.apart:+.1f} | {row.advice_seconds:.0f} | {row.skipped}"
        for row in runs.itertuples()
    ]
    header = " | split | recommended | twinning | RMSE | best single model | its RMSE | ratio | "
    header += "stated RMSE | apart in standard errors | seconds | skipped"
    return [
        "# The recommendation of `twinned advise`, and the best single model",
        "",
        f"`python -m benchmarks.advice --budget {budget:g}{' --alone' * alone}`: trained on the "
        "80 % of a split, tested once on its 20 %. The best single model is chosen by test error "
        f"among those {'that can be fitted in the same budget' if alone else 'of its table'}. The "
        "stated error is out of fold; its distance from the test error is in standard errors of "
        "the difference. Seconds on two cores, with the page.",
        "",
        *(line for kind in (KEYS, TABLES) for line in conclusion(runs, kind, budget)),
        *harness.markdown_table(header, rows),
    ]


def conclusion(runs, datasets, budget):
    """Return a paragraph on some data sets; ratios are geometric means over splits."""
    runs = runs[runs["dataset"].isin(datasets)]
    if runs.empty:
        return []
    ratios = np.exp(np.log(runs["ratio"]).groupby(runs["dataset"], sort=False).mean())
    in_time = (runs["advice_seconds"] <= 1.2 * budget).sum()
    return [
        f"{', '.join(f'{key} {ratio:.3f}' for key, ratio in ratios.items())}: the recommended "
        f"model is within {TOLERANCE:.0%} of the best single model on "
        f"**{(ratios <= 1 + TOLERANCE).sum()} of {len(ratios)}** sets (geometric mean "
        f"{np.exp(np.log(ratios).mean()):.3f}). The stated error is within two standard errors of "
        f"the test error in {(runs['apart'].abs() <= 2).sum()} of {len(runs)} runs, and the time "
        f"at most 20 % over the budget in {in_time} of {len(runs)}.",
        "",
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__,
        budget=120.0,
        datasets=DATASETS,
        seeds=[0, 1],
        alone=False,
        only_table=False,
        output=harness.RESULTS / "advice.csv",
    )
    table = harness.ResultTable(arguments.output, ("dataset", "seed"), COLUMNS)
    trials = [(key, seed) for key in arguments.datasets for seed in arguments.seeds]

    def run(key, seed):
        return run_advice(key, seed, arguments.budget, arguments.alone)

    harness.run_benchmark(table, trials, run, arguments)
    lines = summary(table.read(), arguments.budget, arguments.alone)
    harness.write_markdown(arguments.output.with_suffix(".md"), lines)


if __name__ == "__main__":
    main()
