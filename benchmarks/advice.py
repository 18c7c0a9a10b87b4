"""The recommendation of `twinned advise` on the paper's data sets, against the best single model.

Each split is trained on its 80 % within a budget of seconds, as the command does, and tested once
on its 20 %. The test error of the recommended model is compared with that of the best single model
that can be fitted in the same budget, chosen by test error: all members of the blend, and each
member that was skipped fitted alone. Results: `benchmarks/results/advice.csv` and `.md`.

    python -m benchmarks.advice --budget 120     # an hour on two cores
    python -m benchmarks.advice --budget 120 --members-only --datasets BH YH
"""

import time
import warnings

import numpy as np
from joblib import cpu_count

from paper import harness
from paper.data import rmse, training_and_test_rows
from twinned import AutoTwinRegressor, diagnose
from twinned.datasets import KEYS
from twinned.exceptions import SkippedMemberWarning
from twinned.report import collect, render

TOLERANCE = 0.03
COLUMNS = ["dataset", "seed", "conclusion", "recommended", "rmse:.6g", "out_of_fold_rmse:.6g"]
COLUMNS += ["out_of_fold_se:.4g", "best", "best_rmse:.6g", "advice_seconds:.4g", "skipped"]
COLUMNS += ["seconds:.4g"]


def run_advice(dataset, seed, budget, members_only):
    (X, y), (X_test, y_test) = training_and_test_rows(dataset, seed)
    start = time.perf_counter()
    n_jobs = cpu_count()
    diagnosis = diagnose(X, y, budget=budget, n_jobs=n_jobs)
    left = budget - (time.perf_counter() - start)
    render(collect(diagnosis, title=dataset, seconds=max(0.5, 0.5 * left)))  # as the command does
    seconds = time.perf_counter() - start
    blend = diagnosis.blend
    predictions = zip(blend.member_names_, blend.predict_members(X_test), strict=True)
    errors = {name: rmse(predicted, y_test) for name, predicted in predictions}
    if not members_only:
        for name in blend.skipped_:
            errors |= fit_alone(name, X, y, X_test, y_test, budget, n_jobs)
    best = min(errors, key=errors.get)
    return {
        "conclusion": diagnosis.recommendation.conclusion,
        "recommended": " ".join(diagnosis.recommendation.members),
        "rmse": rmse(diagnosis.model.predict(X_test), y_test),
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


def summary(runs, budget):
    runs = runs.fillna("").set_index(["dataset", "seed"])
    rows, n_near, n_in_time = [], 0, 0
    for key, seed in [index for key in KEYS for index in runs.index if index[0] == key]:
        row = runs.loc[(key, seed)]
        ratio = row["rmse"] / row["best_rmse"]
        n_near += ratio <= 1 + TOLERANCE
        n_in_time += row["advice_seconds"] <= 1.2 * budget
        rows.append(
            f"{key} | {seed} | {row['recommended']} | {row['conclusion']} | {row['rmse']:.4g} | "
            f"{row['best']} | {row['best_rmse']:.4g} | {ratio:.3f} | "
            f"{row['out_of_fold_rmse']:.4g} ± {row['out_of_fold_se']:.2g} | "
            f"{row['advice_seconds']:.0f} | {row['skipped']}"
        )
    header = " | split | recommended | twinning | RMSE | best single model | its RMSE | ratio | "
    header += "RMSE out of fold | seconds | skipped"
    ratios = runs["rmse"] / runs["best_rmse"]
    return [
        "# The recommendation of `twinned advise`, and the best single model",
        "",
        f"`python -m benchmarks.advice --budget {budget:g}`: trained on the 80 % of a split, "
        "tested once on its 20 %. The best single model is chosen by test error among those that "
        "can be fitted in the same budget. Seconds on two cores, with the page.",
        "",
        *harness.markdown_table(header, rows),
        "",
        f"The recommended model is within {TOLERANCE:.0%} of the best single model on {n_near} of "
        f"{len(runs)} (geometric mean of the ratios {np.exp(np.log(ratios).mean()):.3f}), and the "
        f"time is at most 20 % over the budget on {n_in_time} of {len(runs)}.",
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__,
        budget=120.0,
        datasets=list(KEYS),
        seeds=[0],
        members_only=False,
        only_table=False,
        output=harness.RESULTS / "advice.csv",
    )
    table = harness.ResultTable(arguments.output, ("dataset", "seed"), COLUMNS)
    trials = [(key, seed) for key in arguments.datasets for seed in arguments.seeds]

    def run(key, seed):
        return run_advice(key, seed, arguments.budget, arguments.members_only)

    harness.run_benchmark(table, trials, run, arguments)
    lines = summary(table.read(), arguments.budget)
    harness.write_markdown(arguments.output.with_suffix(".md"), lines)


if __name__ == "__main__":
    main()
