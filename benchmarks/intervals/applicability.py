"""Error and coverage of rows inside, at the edge and outside, where extreme rows are withheld.

The default twin, on at most 300 random training rows of a split of the paper. Withheld are the
fifth with the largest y, or the fifth with the largest values of the feature that has the strongest
rank correlation with y. Of the others, a fifth of all rows is for testing, too. Both are predicted,
and `applicability` classifies them. Reported are the error of each class, the coverage of 90 %
intervals, and what `measure_applicability` states of the class, which knows the training rows
alone.

The method was chosen on split 0, so the splits here begin with 1. Intervals, whose calibration
takes ten fits, are those of split 1 only. Appends to `benchmarks/results/applicability.csv`
and writes `applicability.md` beside it.

    python -m benchmarks.intervals.applicability
"""

import warnings

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from benchmarks import frame
from paper.data import training_and_test_rows
from twinned import TwinRegressor, measure_applicability
from twinned.datasets import KEYS
from twinned.exceptions import ShiftWarning
from twinned.fitted.applicability import LABELS

MAX_ROWS, SHARE, CONFIDENCE, FIRST_SPLIT = 300, 0.2, 0.9, 1
KINDS = ("largest y", "largest feature")
PER_CLASS = ("rows", "error", "coverage", "stated_error", "stated_coverage")
OF_INTERVALS = (
    *(f"{label}_{name}" for label in LABELS for name in PER_CLASS[2:]),
    "coverage",
)
HEADINGS = [
    "", "split", "edge", "outside", "rows", "coverage inside", "at the edge", "outside",
    "withheld outside", "all rows",
]  # fmt: skip
COLUMNS = [
    "dataset", "held_out", "seed",
    *(f"{label}_{name}:.4g" for label in LABELS for name in PER_CLASS),
    "withheld_outside:.3f", "coverage:.3f", "seconds:.3g",
]  # fmt: skip


def hold_out(kind, X, y):
    """Return the other rows, and the fifth with the largest values."""
    order = np.argsort(y)
    if kind == "largest feature":
        ranks = [abs(spearmanr(X.iloc[:, j], y).statistic) for j in range(X.shape[1])]
        order = np.argsort(X.iloc[:, int(np.nanargmax(ranks))].to_numpy(), kind="stable")
    return np.split(order, [len(y) - int(SHARE * len(y))])


def measure(dataset, held_out, seed):
    rng = np.random.RandomState(seed)
    (X, y), _ = training_and_test_rows(dataset, seed)
    chosen = rng.permutation(len(y))[:MAX_ROWS]
    X, y = pd.DataFrame(np.asarray(X)[chosen]).add_prefix("x"), np.asarray(y)[chosen]
    rest, withheld = hold_out(held_out, X, y)
    test, train = np.split(rng.permutation(rest), [len(withheld)])
    test = np.concatenate([test, withheld])
    twin = TwinRegressor(random_state=seed).fit(X.iloc[train], y[train])
    label = twin.applicability(X.iloc[test])["label"].to_numpy()
    errors = np.abs(twin.predict(X.iloc[test]) - y[test])
    result = {"withheld_outside": np.mean(label[-len(withheld) :] == "outside")}
    for name in LABELS:
        own = label == name
        result[f"{name}_rows"] = own.sum()
        result[f"{name}_error"] = np.sqrt(np.mean(errors[own] ** 2)) if own.any() else np.nan
    if seed > FIRST_SPLIT:
        return dict.fromkeys(OF_INTERVALS, np.nan) | result
    stated = measure_applicability(
        twin, X.iloc[train], y[train], confidence=CONFIDENCE, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ShiftWarning)
        ends = twin.predict_interval(X.iloc[test], CONFIDENCE)
    covered = (ends[:, 0] <= y[test]) & (y[test] <= ends[:, 1])
    for name in LABELS:
        own = label == name
        result[f"{name}_coverage"] = covered[own].mean() if own.any() else np.nan
        result[f"{name}_stated_error"] = stated["error"][name]
        result[f"{name}_stated_coverage"] = stated["coverage"][name]
    return {**result, "coverage": covered.mean()}


def pooled(runs, name):
    """Mean of a column of each class over runs, weighted by the number of rows."""
    values = []
    for label in LABELS:
        rows, own = runs[f"{label}_rows"], runs[f"{label}_{name}"]
        known = own.notna() & (rows > 0)
        values.append(np.average(own[known], weights=rows[known]) if known.any() else np.nan)
    return np.array(values)


def summary(runs):
    lines = [
        "# Applicability",
        "",
        "The default twin, 300 rows of each set or all of fewer, of which a fifth is withheld: the "
        "rows with the largest y, or with the largest values of the strongest feature. Predicted "
        "are these and as many random other rows. Columns: the root mean square error of rows at "
        "the edge and outside as a ratio to that inside; the number of rows of each class; "
        "their coverage by 90 % intervals, and in brackets the coverage that "
        "`measure_applicability` states, from the training rows alone; the share of the withheld "
        "rows that are outside; and the coverage of all rows. Intervals are those of the first "
        "split only. "
        "`python -m benchmarks.intervals.applicability`.",
    ]
    for kind, own in runs.groupby("held_out", sort=False):
        ratio = own["outside_error"] / own["inside_error"]
        by_set = np.exp(np.log(ratio).groupby(own["dataset"]).mean())
        rows = [_row(run) for run in own.sort_values(["dataset", "seed"]).to_dict("records")]
        lines += ["", f"## {kind[0].upper()}{kind[1:]} withheld", ""]
        lines += frame.markdown_table(HEADINGS, rows)
        lines += [
            "",
            f"The error outside is at least twice that inside on {(by_set >= 2).sum()} of "
            f"{len(by_set)} sets (geometric mean over splits): "
            + ", ".join(f"{key} {value:.2f}" for key, value in by_set.items())
            + ". Coverage of all rows of a class, in "
            f"brackets as stated: {compare_coverage(own)}.",
        ]
    lines += ["", "## Both", "", f"Coverage, in brackets as stated: {compare_coverage(runs)}."]
    return lines


def compare_coverage(runs):
    """Coverage of each class over all rows of the runs, measured and stated."""
    measured, stated = pooled(runs, "coverage"), pooled(runs, "stated_coverage")
    pairs = zip(LABELS, measured, stated, strict=True)
    return ", ".join(f"{label} {own:.0%} ({other:.0%})" for label, own, other in pairs)


def _row(run):
    def ratio(label):
        value = run[f"{label}_error"] / run["inside_error"]
        return "" if np.isnan(value) else f"{value:.2f}"

    def coverage(label):
        own, stated = run[f"{label}_coverage"], run[f"{label}_stated_coverage"]
        if np.isnan(stated):
            return ""
        return ("–" if np.isnan(own) else f"{own:.0%}") + f" ({stated:.0%})"

    return [
        run["dataset"],
        str(run["seed"]),
        ratio("edge"),
        ratio("outside"),
        ", ".join(f"{run[f'{label}_rows']:.0f}" for label in LABELS),
        *(coverage(label) for label in LABELS),
        f"{run['withheld_outside']:.0%}",
        "" if run["seed"] > FIRST_SPLIT else f"{run['coverage']:.0%}",
    ]


BENCHMARK = frame.Benchmark(
    "applicability",
    __doc__,
    COLUMNS,
    run=measure,
    summary=summary,
    trial=("dataset", "held_out", "seed"),
    axes={
        "seed": list(range(FIRST_SPLIT, FIRST_SPLIT + 3)),
        "dataset": list(KEYS),
        "held_out": list(KINDS),
    },
)

if __name__ == "__main__":
    BENCHMARK.main()
