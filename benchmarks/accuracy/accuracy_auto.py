"""Accuracy of `AutoTwinRegressor` and of its members on the paper's nine sets and 25 splits.

Each split trains on its 80 % (train and validation rows together) and is tested once on its 20 %.
One fit gives the test error of the blend and of every member, the coverage and width of its
intervals, and `contribution_`, the ratio of errors with and without twins that it expects from
out-of-fold predictions. Results: `benchmarks/results/accuracy_auto.csv` and `.md`; their networks
were trained on a GPU.

    python -m benchmarks.accuracy.accuracy_auto --efforts fast --datasets BC TF --seeds 0 1 2
    python -m benchmarks.accuracy.accuracy_auto --efforts thorough
    python -m benchmarks.accuracy.accuracy_auto --datasets cpus … --seeds 0 1 … 9 \\
        --output benchmarks/results/accuracy_auto_others.csv
    python -m benchmarks.accuracy.accuracy_auto --datasets Crime MCAS … birthwt \\
        --seeds 0 1 2 3 4 --output benchmarks/results/accuracy_auto_unseen.csv
"""

import time

import numpy as np
import pandas as pd

from benchmarks import frame
from benchmarks.accuracy.accuracy_neural import TWIN_METHODS
from benchmarks.accuracy.tables import split_table
from paper.comparison import published
from paper.data import rmse
from twinned import AutoTwinRegressor
from twinned.datasets import KEYS, PAPER_SEEDS
from twinned.estimators.blending.members import POWER

BLEND, WITHOUT_TWINS = "blend", "blend without twins"
CONFIDENCES = (80, 90, 95)
# Columns of the blend only are NaN in the rows of members.
COLUMNS = [
    "dataset", "effort", "seed", "model", "rmse:.6g", "out_of_fold_rmse:.6g", "weight:.4g",
    *(f"coverage_{confidence}:.4g" for confidence in CONFIDENCES), "width_90:.6g", "ratio:.6g",
    "ratio_lower:.6g", "ratio_upper:.6g", "seconds:.4g",
]  # fmt: skip


def run_split(dataset, effort, seed, members=(), n_jobs=1):
    """Return one row for the blend, one for the blend without twins and one for each member."""
    (X, y), (X_test, y_test) = split_table(dataset, seed)
    start = time.perf_counter()
    model = AutoTwinRegressor(effort=effort, n_jobs=n_jobs, random_state=0)
    model.set_params(members=list(members) or "auto").fit(X, y)
    seconds = time.perf_counter() - start
    contribution = model.contribution_ or {}
    blend = {
        "model": BLEND,
        "rmse": rmse(model.predict(X_test), y_test),
        "out_of_fold_rmse": model.blend_["rmse"],
        "weight": 1.0,
        **coverage(model, X_test, y_test),
        "ratio": contribution.get("ratio", np.nan),
        "ratio_lower": contribution.get("lower", np.nan),
        "ratio_upper": contribution.get("upper", np.nan),
        "seconds": seconds,
    }
    board = model.leaderboard_.set_index("member")
    predictions = model.predict_members(X_test)
    rows = [
        {
            "model": name.removesuffix(POWER),
            "rmse": rmse(predicted, y_test),
            "out_of_fold_rmse": board.loc[name, "rmse"],
            "weight": board.loc[name, "weight"],
            "seconds": board.loc[name, "fit_seconds"],
        }
        for name, predicted in zip(model.member_names_, predictions, strict=True)
    ]
    if contribution:
        without = contribution["baseline_weights"] @ predictions
        rows.append(
            {
                "model": WITHOUT_TWINS,
                "rmse": rmse(without, y_test),
                "out_of_fold_rmse": contribution["baseline_rmse"],
                "weight": 0.0,
                "seconds": 0.0,
            }
        )
    missing = dict.fromkeys((column.partition(":")[0] for column in COLUMNS[7:-1]), np.nan)
    return [blend, *(missing | row for row in rows)]


def coverage(model, X, y):
    """Return the coverage of the intervals of each confidence, and the mean width at 90 %."""
    results = {}
    for confidence in CONFIDENCES:
        lower, upper = model.predict_interval(X, confidence / 100).T
        results[f"coverage_{confidence}"] = np.mean((lower <= y) & (y <= upper))
        if confidence == 90:
            results["width_90"] = np.mean(upper - lower)
    return results


def add_peers(runs):
    """Return the runs of one effort with those of other models on the same splits."""
    trees = pd.read_csv(frame.RESULTS / "accuracy_trees.csv")
    neural = pd.read_csv(frame.RESULTS / "accuracy_neural.csv")
    own = pd.read_csv(frame.RESULTS / "peers.csv")
    peers = pd.concat(
        [
            own,
            trees[trees["model"].isin(["forest", "lightgbm", "xgboost"])],
            neural[neural["model"] == "catboost"],
        ]
    ).drop_duplicates(["dataset", "model", "seed"])
    splits = runs[["dataset", "seed"]].drop_duplicates()
    return pd.concat([runs, peers.merge(splits)]), list(peers["model"].unique())


def summary(runs):
    """Return the lines of the page: errors, intervals and contribution of each effort."""
    lines = [
        "# `AutoTwinRegressor`, its members and other models",
        "",
        "Mean test RMSE; trained on the 80 % of each split, one setting for all sets. *Paper's "
        "best* is the lowest published figure of any TNNR variant. *Best* is the member or other "
        "model with the lowest mean test error on that set, so it is chosen by test rows; the "
        "blend is not. In parentheses, the difference to it in paired standard errors. CatBoost, "
        "LightGBM, XGBoost, RealMLP and random forests (300 trees) have their default parameters. "
        "With *thorough*, plain networks of splits 0 to 14 of RCL and WN are of an earlier version "
        "with larger batches. A member with power transformations counts as the plain one, as one "
        "of both is fitted. Of the tables outside the paper, Cigarette and WN grouped are of an "
        "earlier version. "
        "`python -m benchmarks.accuracy.accuracy_auto`.",
    ]
    for effort, own in runs.groupby("effort"):
        both, peers = add_peers(own)
        lines += ["", f"## {effort}", "", *error_table(both, peers)]
        lines += ["", *interval_table(own, both[both["model"] == "catboost"])]
    return lines


def paired_ratio(runs, reference):
    """Return the ratio of mean errors, and the mean difference in paired standard errors."""
    errors = runs[runs["model"].isin([BLEND, reference])]
    errors = errors.pivot_table(index="seed", columns="model", values="rmse").dropna()
    difference = errors[BLEND] - errors[reference]
    error = difference.std(ddof=1) / np.sqrt(len(errors))
    in_errors = difference.mean() / error if error > 0 else 0.0
    return errors[BLEND].mean() / errors[reference].mean(), in_errors


def error_table(runs, peers):
    """Mean test errors of the blend, of all members and of other models."""
    means = runs.pivot_table(index="dataset", columns="model", values="rmse")
    others = means.drop(columns=[BLEND, WITHOUT_TWINS], errors="ignore")
    paper = published()
    paper = paper[paper["method"].isin(TWIN_METHODS)]
    best_published = paper.groupby("dataset")["rmse"].min()
    keys = [key for key in KEYS if key in means.index]
    keys += [key for key in means.index if key not in KEYS]
    columns = [BLEND, *sorted(set(others) - set(peers)), *sorted(set(others) & set(peers))]
    counts = runs[runs["model"] == BLEND].groupby("dataset").size()
    rows, to_best, to_paper = [], [], []
    for key in keys:
        best = others.loc[key].idxmin()
        ratio, in_errors = paired_ratio(runs[runs["dataset"] == key], best)
        to_best.append(ratio)
        row = [f"{key} ({counts[key]} splits)"]
        row += [f"{means.loc[key, name]:.4g}" for name in columns]
        row += [f"{ratio:.3f} ({in_errors:+.1f}), {best}"]
        if key in best_published:
            to_paper += [means.loc[key, BLEND] / best_published[key]] if key != "TF" else []
            row += [f"{means.loc[key, BLEND] / best_published[key]:.3f}"]
        rows.append(row + [""] * (len(columns) + 3 - len(row)))
    overall = [f"**{geometric_mean(own):.3f}**" if own else "" for own in (to_best, to_paper)]
    rows.append(["geometric mean (paper: without TF)", *[""] * len(columns), *overall])
    header = ["", *columns, "blend / best", "blend / paper's best"]
    return frame.markdown_table(header, rows)


def interval_table(runs, catboost):
    """Coverage and width of the intervals, and what twins contribute."""
    blends = runs[runs["model"] == BLEND].groupby("dataset")
    errors = blends.sem(numeric_only=True)
    means, widths = blends.mean(numeric_only=True), catboost.groupby("dataset")["width_90"].mean()
    tests = runs.pivot_table(index="dataset", columns="model", values="rmse")
    tested = (
        tests[BLEND] / tests[WITHOUT_TWINS] if WITHOUT_TWINS in tests else pd.Series(dtype=float)
    )
    rows = []
    keys = [key for key in KEYS if key in means.index]
    for key in keys + [key for key in means.index if key not in KEYS]:
        own = means.loc[key]
        rows.append(
            [
                key,
                *(
                    f"{100 * own[name]:.1f} ({100 * errors.loc[key, name]:.1f})"
                    for name in (f"coverage_{confidence}" for confidence in CONFIDENCES)
                ),
                f"{own['width_90']:.4g}",
                f"{own['width_90'] / widths.get(key, np.nan):.3f}",
                f"{own['ratio']:.3f} ({own['ratio_lower']:.3f} to {own['ratio_upper']:.3f})",
                f"{tested.get(key, np.nan):.3f}",
            ]
        )
    mean = [f"**{100 * means[f'coverage_{c}'].mean():.1f}**" for c in CONFIDENCES]
    rows.append(["mean", *mean, *[""] * 4])
    header = [
        "", *(f"coverage at {confidence} % (standard error)" for confidence in CONFIDENCES),
        "width at 90 %", "width / split conformal around CatBoost",
        "contribution of twins, out of fold (90 % interval)", "the same by test error",
    ]  # fmt: skip
    return frame.markdown_table(header, rows)


def geometric_mean(values):
    return float(np.exp(np.mean(np.log(values))))


BENCHMARK = frame.Benchmark(
    "accuracy_auto",
    __doc__,
    COLUMNS,
    run=run_split,
    summary=summary,
    trial=("dataset", "effort", "seed"),
    axes={"effort": ["balanced"], "seed": list(PAPER_SEEDS), "dataset": list(KEYS)},
    options={"members": str, "n_jobs": 1},
)

if __name__ == "__main__":
    BENCHMARK.main()
