"""Does `twinned advise` give the right advice on the paper's data sets?

Its verdict, from all rows and five folds within a budget, beside the 25 splits of
`accuracy_trees.csv`: the default twin against its base, boosting, on the same splits. There the
truth is "no clear difference" where the 95 % interval of the paired difference holds 0.

    python benchmarks/advice.py --budget 120     # twenty minutes
"""

import argparse
import csv
import time
from pathlib import Path

import numpy as np
import pandas as pd

from twinned import diagnose
from twinned.datasets import KEYS, load
from twinned.report import collect, render

RESULTS = Path(__file__).parent / "results"
HEADER = ["dataset", "answer", "ratio", "low", "high", "seconds", "recommended", "left_out"]


def truth():
    """Data set → (answer, mean relative difference, half of its interval)."""
    runs = pd.read_csv(RESULTS / "accuracy_trees.csv")
    errors = runs.pivot_table(index=["dataset", "seed"], columns="model", values="rmse")
    found = {}
    for key, own in errors.groupby("dataset"):
        change = (own["twin"] - own["boosting"]) / own["boosting"].mean()
        mean, half = change.mean(), 1.96 * change.std(ddof=1) / np.sqrt(len(change))
        answer = "helps" if mean + half < 0 else "does not help" if mean - half > 0 else None
        found[key] = answer or "no clear difference", mean, half
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--budget", type=float, default=120)
    parser.add_argument("--datasets", nargs="*", default=list(KEYS))
    parser.add_argument("--output", type=Path, default=RESULTS / "advice.csv")
    arguments = parser.parse_args()
    path = arguments.output
    if not path.exists():
        path.write_text(",".join(HEADER) + "\n")
    done = {row["dataset"] for row in csv.DictReader(path.open())}
    for key in arguments.datasets:
        if key in done:
            continue
        start = time.perf_counter()
        found = diagnose(*load(key), budget=arguments.budget)
        render(collect(found, title=key))  # as the command does
        numbers = found.checks["comparison"].numbers
        kind = type(found.recommended).__name__
        row = [key, numbers["conclusion"], numbers["ratio"], *numbers["interval"]]
        row += [time.perf_counter() - start, kind, "; ".join(found.skipped)]
        with path.open("a", newline="") as file:
            csv.writer(file).writerow([f"{v:.4g}" if isinstance(v, float) else v for v in row])
        print(*row, flush=True)
    known, rows = truth(), pd.read_csv(path).fillna("").set_index("dataset")
    lines = [
        "# What `twinned advise` says, and what 25 splits say",
        "",
        f"`python benchmarks/advice.py --budget {arguments.budget:g}`: the default twin's error "
        "by that of boosting, its base. Seconds on two cores, with the page.",
        "",
        "| | advice | ratio (95 %) | 25 splits | change (95 %) | seconds | left out |",
        "|---|---|---|---|---|---|---|",
    ]
    right = 0
    for key in [key for key in KEYS if key in rows.index]:
        row, (answer, mean, half) = rows.loc[key], known[key]
        right += row["answer"] == answer
        lines.append(
            f"| {key} | {row['answer']} | {row['ratio']:.3f} ({row['low']:.3f} to "
            f"{row['high']:.3f}) | {answer} | {100 * mean:+.1f} ± {100 * half:.1f} % | "
            f"{row['seconds']:.0f} | {row['left_out']} |"
        )
    lines += ["", f"The advice agrees on {right} of {len(rows)}.", ""]
    path.with_suffix(".md").write_text("\n".join(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
