"""The recommendation of `twinned advise` on the paper's data sets, against 25 splits.

Its conclusion, from all rows and five folds within a budget of seconds, is compared with the 25
splits of `accuracy_trees.csv`: the default twin against boosting, its base, on the same splits.
There the truth is "no clear difference" where the 95 % interval of the paired difference holds 0.
Results: `benchmarks/results/advice.csv` and `.md`.

    python -m benchmarks.advice --budget 120     # twenty minutes
"""

import numpy as np
import pandas as pd

from paper import harness
from twinned import diagnose
from twinned.datasets import KEYS, load
from twinned.report import collect, render

COLUMNS = ["dataset", "conclusion", "ratio:.4g", "low:.4g", "high:.4g", "seconds:.4g"]
COLUMNS += ["recommended", "skipped"]


def run_advice(dataset, budget):
    diagnosis = diagnose(*load(dataset), budget=budget)
    render(collect(diagnosis, title=dataset))  # as the command does
    numbers = diagnosis.checks["comparison"].numbers
    low, high = numbers["interval"]
    return {
        "conclusion": numbers["conclusion"],
        "ratio": numbers["ratio"],
        "low": low,
        "high": high,
        "recommended": type(diagnosis.recommended).__name__,
        "skipped": "; ".join(diagnosis.skipped),
    }


def true_conclusions():
    """Return data set → (conclusion, mean relative difference, half of its interval)."""
    runs = pd.read_csv(harness.RESULTS / "accuracy_trees.csv")
    errors = runs.pivot_table(index=["dataset", "seed"], columns="model", values="rmse")
    found = {}
    for key, own in errors.groupby("dataset"):
        change = (own["twin"] - own["boosting"]) / own["boosting"].mean()
        mean, half = change.mean(), 1.96 * change.std(ddof=1) / np.sqrt(len(change))
        conclusion = "no clear difference"
        if abs(mean) > half:
            conclusion = "helps" if mean < 0 else "does not help"
        found[key] = conclusion, mean, half
    return found


def summary(runs, budget):
    truth, runs = true_conclusions(), runs.fillna("").set_index("dataset")
    rows, n_right = [], 0
    for key in [key for key in KEYS if key in runs.index]:
        row, (conclusion, mean, half) = runs.loc[key], truth[key]
        n_right += row["conclusion"] == conclusion
        rows.append(
            f"{key} | {row['conclusion']} | {row['ratio']:.3f} ({row['low']:.3f} to "
            f"{row['high']:.3f}) | {conclusion} | {100 * mean:+.1f} ± {100 * half:.1f} % | "
            f"{row['seconds']:.0f} | {row['skipped']}"
        )
    header = " | advice | ratio (95 %) | 25 splits | change (95 %) | seconds | skipped"
    return [
        "# The conclusion of `twinned advise`, and that of 25 splits",
        "",
        f"`python -m benchmarks.advice --budget {budget:g}`: the ratio of the default twin's error "
        "to that of boosting, its base. Seconds on two cores, with the page.",
        "",
        *harness.markdown_table(header, rows),
        "",
        f"The advice agrees on {n_right} of {len(runs)}.",
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__,
        budget=120.0,
        datasets=list(KEYS),
        only_table=False,
        output=harness.RESULTS / "advice.csv",
    )
    table = harness.ResultTable(arguments.output, ("dataset",), COLUMNS)
    trials = [(key,) for key in arguments.datasets]
    harness.run_benchmark(table, trials, lambda key: run_advice(key, arguments.budget), arguments)
    lines = summary(table.read(), arguments.budget)
    harness.write_markdown(arguments.output.with_suffix(".md"), lines)


if __name__ == "__main__":
    main()
