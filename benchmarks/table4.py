"""Table T4 of the paper: the twinned forest with and without loops through unlabelled points.

The first 200 rows of each data set, 100 of them labelled, the other 100 both the unlabelled points
and the test points (transductive, as the author ran it); 25 seeds; the hyperparameters that the
sound search of table T5 found (`table5_tuned_search.csv`); a third of n² loops; raw F.

The author chose Λ by test error. Here it is chosen on labelled rows alone: once for each data set,
by repeated five-fold cross-validation of the labelled rows of seed 0, in which a fold's rows are
unlabelled together with the test rows; the choice is carried to all 25 seeds.

    python -m benchmarks.table4 --jobs 16                      # about four core-hours
    python -m benchmarks.table4 --only-table

Results: `benchmarks/results/table4.csv`, `table4_choice.csv`, `table4.md` and `table4.png`.
"""

import csv
import json

import numpy as np

from paper import harness
from paper.comparison import published_rmse
from paper.loop_relabelling import (
    ALL_LOOP_WEIGHTS,
    LOOP_WEIGHTS,
    N_FOLDS,
    run_semi_supervised,
    weight_name,
)
from paper.records import Trial
from twinned.datasets import KEYS, PAPER_SEEDS

COLUMNS = ["dataset", "run", "loop_weight", "rmse:.6g", "before:.4g", "after:.4g", "seconds:.3g"]


def run_test(dataset, seed):
    """Return the test error of each Λ on one seed."""
    return loop_errors(dataset, seed, ALL_LOOP_WEIGHTS if seed == 0 else LOOP_WEIGHTS)


def run_choice(dataset, fold):
    """Return the error of each Λ on one fold of the labelled rows of seed 0."""
    return loop_errors(dataset, 0, LOOP_WEIGHTS, fold=fold)


def loop_errors(dataset, seed, loop_weights, **fold):
    """Return a row for no loops and for each Λ: error, inconsistency before and after."""
    settings = {"trees": 100, "forest": sound_parameters()[dataset], **fold}
    settings["loop_weights"] = list(loop_weights)
    trial = Trial("semi-supervised-forests", "modern", dataset, seed, settings)
    ((_, result),) = run_semi_supervised([trial])
    nan = float("nan")
    supervised = {"rmse": result["supervised"], "before": nan, "after": nan}
    rows = [{"loop_weight": "supervised", **supervised}]
    for name, error in result["loops"].items():
        before, after = result["inconsistency"][name]
        rows.append({"loop_weight": name, "rmse": error, "before": before, "after": after})
    return rows


def sound_parameters():
    """Return data set → parameters of the sound search of table T5."""
    with (harness.RESULTS / "table5_tuned_search.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["kind"] == "sound"]
    return {row["dataset"]: json.loads(row["params"]) for row in rows}


def choose(runs, *, or_none):
    """Return the Λ of each data set with the lowest cross-validated error; or no loops at all."""
    if not or_none:
        runs = runs[runs["loop_weight"] != "supervised"]
    table = runs.assign(square=runs["rmse"] ** 2).pivot_table(
        index="dataset", columns="loop_weight", values="square"
    )
    return {key: row.idxmin() for key, row in table.iterrows()}


def by_seed(runs):
    return runs.pivot_table(index=["dataset", "run"], columns="loop_weight", values="rmse")


def mean_and_error(values):
    """Return the mean and its standard error, as text."""
    error = np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):+.2f} % (standard error over sets {error:.2f})"


def summary(runs, choice_runs):
    paper, errors = published_rmse("T4"), by_seed(runs)
    chosen, offered = (choose(choice_runs, or_none=flag) for flag in (False, True))
    names = [weight_name(weight) for weight in LOOP_WEIGHTS]
    headings = [f"Λ = {float(name):.3g}" for name in names]
    seconds = sum(
        own.groupby(["dataset", "run"])["seconds"].first().sum() for own in (runs, choice_runs)
    )
    rows, changes, changes_if_offered = [], [], []
    for key in KEYS:
        own = errors.loc[key]
        base = own["supervised"]
        change = 100 * (own[chosen[key]] - base) / base.mean()
        changes.append(change.mean())
        changes_if_offered.append(100 * (own[offered[key]].mean() / base.mean() - 1))
        theirs, semi = (paper.loc[key, f"twinned_rf_{kind}supervised"] for kind in ("", "semi_"))
        ratios = [f"{own[name].mean() / base.mean():.4f}" for name in names]
        rows.append(
            f"{key} | {base.mean():.4f} | {' | '.join(ratios)} | {float(chosen[key]):.3g} | "
            f"{change.mean():+.2f} ({change.std(ddof=1) / np.sqrt(len(change)):.2f}) | "
            f"{theirs:.4f} | {100 * (semi / theirs - 1):+.2f}"
        )
    ratio = runs.assign(ratio=runs["after"] / runs["before"]).pivot_table(
        index="dataset", columns="loop_weight", values="ratio"
    )
    further = ["chosen Λ", "change, %", "published, supervised", "change, %"]
    return [
        "# Table T4: loops through unlabelled points",
        "",
        "Mean test RMSE over 25 seeds: without loops, and its ratio for each Λ to that; then the Λ "
        "chosen on labelled rows of seed 0, its change (paired, with standard error, per cent), "
        "and what the paper printed (its Λ is the best on the test rows). "
        f"`python -m benchmarks.table4`, {seconds / 3600:.1f} core-hours.",
        "",
        *harness.markdown_table(["", "supervised", *headings, *further], rows),
        "",
        "With the Λ chosen on labelled rows the semi-supervised twin is no worse on "
        f"{sum(value <= 0 for value in changes)} of {len(changes)} sets; mean change "
        f"{mean_and_error(changes)}.",
        "",
        "Where the same cross-validation may also choose no loops at all, it does so on "
        f"{', '.join(key for key in KEYS if offered[key] == 'supervised')}: then no worse on "
        f"{sum(value <= 0 for value in changes_if_offered)} of {len(changes_if_offered)}, mean "
        f"change {mean_and_error(changes_if_offered)}.",
        "",
        "Mean |F(i,j) + F(j,k) + F(k,i)| of the loops after relabelling and fitting again, as a "
        "ratio to that before:",
        "",
        *harness.markdown_table(
            ["", *headings], ([key, *(f"{ratio.loc[key, n]:.2f}" for n in names)] for key in KEYS)
        ),
    ]


def draw(runs, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    errors = by_seed(runs)
    few = [weight_name(weight) for weight in LOOP_WEIGHTS]
    many = [weight_name(weight) for weight in sorted(ALL_LOOP_WEIGHTS)]
    # Λ = 0 is drawn at the left end of the logarithmic axis
    x = {name: max(float(name), 3e-4) for name in many}
    figure, axes = plt.subplots(3, 3, figsize=(9, 7.5), sharex=True, layout="constrained")
    for axis, key in zip(axes.flat, KEYS, strict=True):
        own = errors.loc[key]
        change = own[few].div(own["supervised"], axis=0) - 1
        axis.axhline(0, color="0.6", linewidth=1)
        axis.plot(
            [x[name] for name in many],
            100 * (own.loc[0, many] / own.loc[0, "supervised"] - 1),
            color="tab:orange",
            marker=".",
            linewidth=1,
            label="seed 0, the author's list",
        )
        axis.errorbar(
            [x[name] for name in few],
            100 * change.mean(),
            100 * change.std() / np.sqrt(len(change)),
            color="tab:blue",
            marker="o",
            markersize=4,
            label="25 seeds, with standard errors",
        )
        axis.set(xscale="log", title=key)
        # the ends of the author's list would dominate the axis on several sets
        limit = max(2.0, 1.6 * float(np.abs(100 * change.mean()).max()))
        axis.set_ylim(-limit, limit)
    for axis in axes[-1]:
        axis.set_xlabel("Λ (0 at the left end)")
    for axis in axes[:, 0]:
        axis.set_ylabel("change of test RMSE, %")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2)
    harness.write_figure(path, figure, dpi=120)


def main():
    arguments = harness.parse_arguments(
        __doc__,
        jobs=2,
        datasets=list(KEYS),
        seeds=len(PAPER_SEEDS),
        only_table=False,
        results=harness.RESULTS,
    )
    tests, choices = (
        harness.ResultTable(arguments.results / name, ("dataset", "run"), COLUMNS)
        for name in ("table4.csv", "table4_choice.csv")
    )
    folds = [(key, fold) for fold in range(N_FOLDS) for key in arguments.datasets]
    harness.run_benchmark(choices, folds, run_choice, arguments)
    trials = [(key, seed) for seed in PAPER_SEEDS[: arguments.seeds] for key in arguments.datasets]
    harness.run_benchmark(tests, trials, run_test, arguments)
    draw(tests.read(), tests.path.with_suffix(".png"))
    harness.write_markdown(tests.path.with_suffix(".md"), summary(tests.read(), choices.read()))


if __name__ == "__main__":
    main()
