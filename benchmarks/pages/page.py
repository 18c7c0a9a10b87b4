"""The page of benchmarks in the documentation, written from a template and committed results.

`benchmarks/pages/benchmarks.md` is Markdown in which {{name}} stands for a text that is computed
here from the files of `benchmarks/results`. The command writes `docs/benchmarks.md` and the picture
of error against time; a test checks that the page agrees with the results.

    python -m benchmarks.pages.page
"""

import numpy as np
import pandas as pd

from benchmarks import frame
from benchmarks.accuracy import standard_splits
from benchmarks.accuracy.accuracy_auto import (
    BLEND,
    CONFIDENCES,
    WITHOUT_TWINS,
    add_peers,
    geometric_mean,
    paired_ratio,
)
from benchmarks.accuracy.accuracy_neural import TWIN_METHODS
from benchmarks.accuracy.standard_splits import MEASURES, WITHOUT_LOWEST
from paper.comparison import published
from paper.page import DOCS, render
from twinned.datasets import KEYS, PAPER_SEEDS, STANDARD_KEYS, STANDARD_SPLITS

TEMPLATE = frame.ROOT / "benchmarks" / "pages" / "benchmarks.md"
PICTURE = DOCS / "pictures" / "error-against-time.svg"
EFFORTS = ("balanced", "thorough")
NEARLY = 1.02  # a ratio up to which the error is as low as that of the best
PEERS = {"catboost": "CatBoost", "lightgbm": "LightGBM", "xgboost": "XGBoost"}
LABELS = PEERS | {"gaussian process": "Gaussian process"}


def read_results(name):
    """Return the rows of a file of results; none where it does not exist yet."""
    path = frame.RESULTS / f"{name}.csv"
    return pd.read_csv(path) if path.exists() else None


def page_text():
    """Return the page."""
    runs = {
        name: read_results(name)
        for name in (
            "standard_splits",
            "accuracy_auto",
            "accuracy_auto_others",
            "accuracy_auto_unseen",
            "budgets",
            "cost_accuracy",
        )
    }
    standard, losses = standard_values(runs["standard_splits"])
    paper, paper_losses = paper_values(runs["accuracy_auto"])
    others, other_losses = other_values(runs["accuracy_auto_others"])
    unseen, unseen_losses = unseen_values(runs["accuracy_auto_unseen"])
    time_section, time_losses = time_values(runs["budgets"])
    lines = [*losses, *paper_losses, *other_losses, *unseen_losses, *time_losses]
    values = {
        **standard,
        **paper,
        **others,
        **unseen,
        **cost_values(runs["cost_accuracy"]),
        "time_section": time_section,
        "losses": "\n".join(f"- {line}" for line in lines),
    }
    return render(TEMPLATE.read_text("utf-8"), values)


def join(names):
    """Return "a", "a and b" or "a, b and c"."""
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


# --- UCI standard splits ---


def standard_values(runs):
    """Return the texts of the standard splits, and the lines on where the blend loses."""
    own = standard_splits.published().drop_duplicates("method")
    sources = own.groupby("source", sort=False)["method"].agg(list)
    values = {
        "splits": str(len(STANDARD_SPLITS)),
        "training": "90",
        "sources": "; ".join(f"{join(methods)}: {name}" for name, methods in sources.items()),
    }
    if runs is None:  # only what is published
        runs = pd.DataFrame(columns=[name.partition(":")[0] for name in standard_splits.COLUMNS])
    for measure in MEASURES:
        table = standard_splits.measure_table(runs, measure)
        values[f"standard_{measure}"] = "\n".join(table)
    values["standard_coverage"] = "\n".join(standard_splits.distribution_table(runs))
    fewer = standard_splits.fewer_splits(runs)
    values["fewer_splits"] = f" {fewer}" if fewer else ""
    has_blend = standard_splits.BLEND in set(runs["model"])
    values["standard_conclusion"] = f" {standard_conclusion(runs)}" if has_blend else ""
    return values, standard_losses(runs) if has_blend else []


def compare_standard(runs, measure):
    """Return (set, blend, lowest other figure, its name, lowest published figure) of each set."""
    means = runs.pivot_table(index="model", columns="dataset", values=measure)
    figures = standard_splits.published().dropna(subset=measure)
    found = []
    for key in STANDARD_KEYS:
        if key not in means or (measure, key) in WITHOUT_LOWEST:
            continue
        theirs = figures[figures["dataset"] == key].set_index("method")[measure]
        peers = means[key].drop(standard_splits.BLEND).dropna().rename(standard_splits.MODELS)
        every = pd.concat([theirs, peers])
        if len(every) and np.isfinite(means.loc[standard_splits.BLEND, key]):
            lowest = theirs.min() if len(theirs) else np.nan
            own = means.loc[standard_splits.BLEND, key]
            found.append((key, own, every.min(), every.idxmin(), lowest))
    return found


def standard_conclusion(runs):
    """Return on how many sets the blend is at or below the lowest published figures."""
    parts = []
    for measure in ("rmse", "nll"):
        found = [each for each in compare_standard(runs, measure) if np.isfinite(each[4])]
        below = [key for key, own, _, _, lowest in found if own <= lowest]
        which = f" ({join(below)})" if 0 < len(below) < len(found) else ""
        count = f"{len(below)} of {len(found)} sets{which}"
        parts.append(f"its {MEASURES[measure]} is at or below the lowest on {count}")
    text = f"Of the published figures that were found, {parts[0]}, and {parts[1]}."
    is_lowest = [own <= best for _, own, best, _, _ in compare_standard(runs, "rmse")]
    count = f"{sum(is_lowest)} of {len(is_lowest)}"
    return f"{text} With the models that were run here, too, its RMSE is the lowest on {count}."


def standard_losses(runs, measures=tuple(MEASURES)):
    """Return a line for each set and measure in which another figure is lower."""
    lines = []
    for measure in measures:
        for key, own, best, name, _ in compare_standard(runs, measure):
            if own > best:
                lines.append(
                    f"Standard splits, {key}: {MEASURES[measure]} {own:.4g}, {name} {best:.4g}."
                )
    return lines


# --- tables of `accuracy_auto` ---


def blend_rows(runs):
    """Return (table, mean error of each model, best other model, ratio, paired errors)."""
    means = runs.pivot_table(index="dataset", columns="model", values="rmse")
    others = means.drop(columns=[BLEND, WITHOUT_TWINS], errors="ignore")
    keys = [key for key in KEYS if key in means.index]
    for key in keys + [key for key in means.index if key not in KEYS]:
        best = others.loc[key].idxmin()
        yield key, means.loc[key], best, *paired_ratio(runs[runs["dataset"] == key], best)


def loss_line(where, key, errors, best, ratio, in_errors):
    return (
        f"{where}, {key}: {errors[BLEND]:.4g}, {(ratio - 1) * 100:.0f} % above "
        f"{PEERS.get(best, f'`{best}`')} ({in_errors:.1f} paired standard errors)."
    )


def paper_values(runs):
    """Return the texts of the nine sets, and the lines on where the blend loses."""
    twins = published()
    twins = twins[twins["method"].isin(TWIN_METHODS)].groupby("dataset")["rmse"].min()
    cells = {key: [key] for key in KEYS}
    conclusions, losses, catboost = [], [], {}
    for effort in EFFORTS:
        both, _ = add_peers(runs[runs["effort"] == effort])
        ratios = []
        for key, errors, best, ratio, in_errors in blend_rows(both):
            cells[key] += [f"{errors[BLEND]:.4g}", f"{ratio:.3f} ({in_errors:+.1f}), {best}"]
            catboost[key] = errors.get("catboost", np.nan)
            if key != "TF":
                ratios.append(errors[BLEND] / twins[key])
            if ratio > NEARLY:
                losses.append(loss_line(f"Paper, `{effort}`", key, errors, best, ratio, in_errors))
        coverage = runs[(runs["effort"] == effort) & (runs["model"] == BLEND)]
        coverage = coverage.groupby("dataset").mean(numeric_only=True).mean()
        shown = " / ".join(f"{100 * coverage[f'coverage_{c}']:.1f}" for c in CONFIDENCES)
        conclusions.append(
            f'With `effort="{effort}"`, the error is {geometric_mean(ratios):.3f} of the paper\'s '
            f"best (geometric mean without TF), and intervals of {CONFIDENCES[0]}, "
            f"{CONFIDENCES[1]} and {CONFIDENCES[2]} % cover {shown} %."
        )
    rows = [[*cells[key], f"{catboost[key]:.4g}", f"{twins[key]:.4g}"] for key in KEYS]
    header = [""]
    for effort in EFFORTS:
        header += [effort, f"{effort} / best other"]
    table = frame.markdown_table([*header, "CatBoost", "paper's best"], rows)
    values = {
        "paper_splits": str(len(PAPER_SEEDS)),
        "paper_table": "\n".join(table),
        "paper_conclusion": " ".join(conclusions),
    }
    return values, losses


def other_values(runs):
    """Return the texts of the tables outside the paper, and where the blend loses."""
    both, _ = add_peers(runs)
    counts = runs[runs["model"] == BLEND].groupby("dataset").size()
    rows, ratios, to_catboost, losses = [], [], [], []
    for key, errors, best, ratio, in_errors in blend_rows(both):
        peers = [f"{errors.get(name, np.nan):.4g}" for name in PEERS]
        best_text = f"{ratio:.3f} ({in_errors:+.1f}), {best}"
        rows.append([f"{key} ({counts[key]} splits)", f"{errors[BLEND]:.4g}", *peers, best_text])
        ratios.append(ratio)
        to_catboost.append(errors[BLEND] / errors["catboost"])
        if ratio > NEARLY:
            losses.append(loss_line("Outside the paper", key, errors, best, ratio, in_errors))
    header = ["", "blend", *PEERS.values(), "blend / best other"]
    n_below = sum(ratio <= 1 for ratio in to_catboost)
    conclusion = (
        f"The error is {geometric_mean(ratios):.3f} of that of the best other model, chosen by "
        f"test error on each table, and {geometric_mean(to_catboost):.3f} of CatBoost's (geometric "
        f"means); it is at or below CatBoost's on {n_below} of {len(rows)} tables."
    )
    table = "\n".join(frame.markdown_table(header, rows))
    return {"others_table": table, "others_conclusion": conclusion}, losses


def unseen_values(runs):
    """Return the texts of the tables that no choice was made with, and where the blend loses."""
    counts = runs[runs["model"] == BLEND].groupby("dataset").size()
    rows, ratios, losses = [], [], []
    for key, errors, best, ratio, in_errors in blend_rows(runs):
        best_text = f"{ratio:.3f} ({in_errors:+.1f}), {best}"
        rows.append([f"{key} ({counts[key]} splits)", f"{errors[BLEND]:.4g}", best_text])
        ratios.append(ratio)
        if ratio > NEARLY:
            losses.append(loss_line("No choice made", key, errors, best, ratio, in_errors))
    conclusion = (
        f"The error is {geometric_mean(ratios):.3f} of that of the best member, chosen by test "
        f"error on each table (geometric mean), and at most 2 % above it on "
        f"{sum(ratio <= 1.02 for ratio in ratios)} of {len(rows)} tables."
    )
    table = "\n".join(frame.markdown_table(["", "blend", "blend / best member"], rows))
    return {"unseen_table": table, "unseen_conclusion": conclusion}, losses


# --- error against time ---


def cost_values(runs):
    """The values of the blend before and after a change of its networks."""
    errors = runs[runs["model"] == "blend"].pivot_table(
        index=["dataset", "seed"], columns="version", values="rmse"
    )
    means = errors.groupby("dataset").mean()
    ratio = np.exp(np.log(means["after"] / means["before"]).mean())
    return {"cost_tables": str(len(means)), "cost_ratio": f"{ratio:.3f}"}


def time_points(runs):
    """Return name → (median seconds, ratios of errors to CatBoost's by table)."""
    is_blend = runs["model"] == "blend"
    names = np.where(is_blend, [f"{budget:g} s" for budget in runs["budget"]], runs["model"])
    runs = runs.assign(name=names)
    errors = runs.pivot_table(index=["dataset", "split"], columns="name", values="rmse")
    errors = errors.dropna(subset="catboost")
    order = [f"{budget:g} s" for budget in sorted(runs.loc[is_blend, "budget"].unique())]
    points = {}
    for name in [*order, *(name for name in errors if name not in order)]:
        means = errors[list({name, "catboost"})].dropna().groupby("dataset").mean()
        seconds = runs.loc[runs["name"] == name].groupby("dataset")["seconds"].median()
        points[name] = seconds.median(), means[name] / means["catboost"]
    return points, order


def time_values(runs):
    """Return the section on time budgets, empty without results, and where the blend loses."""
    if runs is None:
        return "", []
    points, order = time_points(runs)
    rows, losses = [], []
    for name, (seconds, ratios) in points.items():
        label = f"`time_budget={name[:-2]}`" if name in order else LABELS.get(name, name)
        share = f"{100 * np.mean(ratios <= 1):.0f} %"
        median, largest = ratios.median(), ratios.max()
        rows.append(
            [label, f"{seconds:.1f}", f"{median:.3f}", share, f"{largest:.2f} ({ratios.idxmax()})"]
        )
        if name in order and name != order[0] and largest > 1.05:
            worst = ratios[ratios > 1.05].sort_values(ascending=False)
            tables = ", ".join(f"{key} {ratio:.2f}" for key, ratio in worst.items())
            losses.append(f"Within {name}, error divided by CatBoost's: {tables}.")
    header = ["", "median seconds", "error / CatBoost's", "tables at or below", "largest"]
    n_tables = len(next(iter(points.values()))[1])
    section = [
        "## Error against time",
        "",
        "`AutoTwinRegressor` with a `time_budget`, and other models with their defaults, on two "
        f"cores and {n_tables} tables: those above and wide ones. The errors are divided by those "
        "of CatBoost's default (median over tables). All splits and tables are in "
        "`benchmarks/results/budgets.md`, by `python -m benchmarks.accuracy.budgets`.",
        "",
        f"![Error against seconds of the fit](pictures/{PICTURE.name})",
        "",
        *frame.markdown_table(header, rows),
        "",
        "",
    ]
    return "\n".join(section), losses


def draw(runs, path):
    """Draw the median of errors against the median seconds of a fit."""
    import matplotlib.pyplot as plt

    points, order = time_points(runs)
    figure, axes = plt.subplots(figsize=(5.2, 3.8), layout="constrained")
    line = [(points[name][0], points[name][1].median()) for name in order]
    axes.plot(*np.transpose(line), "o-", color="black", label="AutoTwinRegressor, by budget")
    for name, position in zip(order, line, strict=True):
        axes.annotate(name, position, textcoords="offset points", xytext=(4, 6), fontsize=8)
    for name, (seconds, ratios) in points.items():
        if name not in order:
            axes.plot(seconds, ratios.median(), "s", label=LABELS.get(name, name))
    axes.axhline(1.0, color="0.8", linewidth=1, zorder=0)
    axes.set(xscale="log", xlabel="median seconds of a fit on two cores", xlim=(1, 150))
    axes.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
    axes.set_ylabel("error / CatBoost's, median of tables")
    axes.legend(fontsize=8)
    frame.write_figure(path, figure)
    plt.close(figure)


def main():
    frame.write_file(DOCS / "benchmarks.md", page_text().encode())
    runs = read_results("budgets")
    if runs is not None:
        draw(runs, PICTURE)


if __name__ == "__main__":
    main()
