"""The picture of results and the figures of the first pages, from committed results.

Writes `docs/pictures/results.svg`, and the text between the marks `figures` of `README.md` and
`docs/index.md`; a test checks that the texts agree with the results. Above: error of
`AutoTwinRegressor` and of the models beside it on the UCI standard splits, divided by the lowest
published figure of each set. Below: coverage of the intervals of `AutoTwinRegressor`.

    python -m benchmarks.pages.front_page
"""

import re
import textwrap

import numpy as np

from benchmarks import frame
from benchmarks.accuracy import standard_splits
from benchmarks.pages.page import compare_standard, join, read_results, time_points
from paper.page import DOCS
from twinned.datasets import STANDARD_KEYS, STANDARD_SPLITS

PAGES = (frame.ROOT / "README.md", DOCS / "index.md")
PICTURE = DOCS / "pictures" / "results.svg"
MARKS = re.compile(r"(?<=<!-- figures:begin -->\n).*?(?=<!-- figures:end -->)", re.DOTALL)
SHOWN = {"catboost": "CatBoost", "xgboost": "XGBoost", "gaussian process": "Gaussian process"}
WORDS = ("none", "one", "two", "three", "four", "five", "six")


def text():
    """Return the sentences on the results of the standard splits."""
    runs = read_results("standard_splits")
    found = compare_standard(runs, "rmse")
    below = [key for key, own, _, _, lowest in found if own <= lowest]
    ratios = {key: own / lowest for key, own, _, _, lowest in found}
    coverage = coverages(runs)[90]
    own = runs[runs["model"] == standard_splits.BLEND]
    seconds = own.groupby("dataset")["seconds"].mean()
    points, order = time_points(read_results("budgets"))
    budget, ratio = order[-1][:-2], points[order[-1]][1]
    lowest, highest = (100 * (1 - f(ratios[key] for key in below)) for f in (max, min))
    n_splits = own.groupby("dataset")["seed"].nunique()
    above = [
        f"on {key} it is {ratio:.3f} of it ({n_splits[key]} of {len(STANDARD_SPLITS)} splits)"
        for key, ratio in ratios.items()
        if key not in below
    ]
    sentences = [
        f"On the standard splits of {WORDS[len(found)]} UCI data sets, the error of "
        f"`AutoTwinRegressor` is {lowest:.0f} to {highest:.0f} % below the lowest of the published "
        f"errors that were found on {WORDS[len(below)]} ({join(below)})",
        f"; {'; '.join(above)}." if above else ".",
        f" Intervals of 90 % cover {coverage.min():.0f} to {coverage.max():.0f} % of test rows.",
        f" A fit takes time: {seconds.min():.0f} to {seconds.max():.0f} seconds there, of one core "
        f"and a GPU. Within {budget} seconds on two cores, the error is {ratio.median():.2f} of "
        f"CatBoost's (median of {len(ratio)} tables), and at or below it on "
        f"{100 * (ratio <= 1).mean():.0f} %.",
    ]
    return wrap("".join(sentences))


def wrap(paragraph):
    """Return a paragraph in lines of at most 100 characters."""
    return "\n".join(textwrap.wrap(paragraph, 100, break_on_hyphens=False)) + "\n"


def coverages(runs):
    """Return the coverage of the intervals in per cent, of each set and confidence."""
    own = runs[runs["model"] == standard_splits.BLEND]
    names = {f"coverage_{level}": level for level in standard_splits.CONFIDENCES}
    return 100 * own.groupby("dataset")[list(names)].mean().rename(columns=names)


def draw(runs, path):
    """Draw errors divided by the lowest published ones, and the coverage of intervals."""
    import matplotlib.pyplot as plt

    found = {key: (own, lowest) for key, own, _, _, lowest in compare_standard(runs, "rmse")}
    means = runs.pivot_table(index="model", columns="dataset", values="rmse")
    keys = [key for key in STANDARD_KEYS if key in found]
    positions = np.arange(len(keys))[::-1]
    figure, (upper, lower) = plt.subplots(2, 1, figsize=(5.2, 6.4), layout="constrained")
    upper.axvline(1, color="0.5", linewidth=1, zorder=0)
    colors = dict(zip(SHOWN, ("#0369a1", "#a16207", "#6b7280"), strict=True))
    for model, label in SHOWN.items():
        lowest = [means.loc[model].get(key, np.nan) / found[key][1] for key in keys]
        upper.plot(lowest, positions, "s", markersize=5, color=colors[model], label=label)
    own = [found[key][0] / found[key][1] for key in keys]
    upper.plot(own, positions, "o", markersize=10, color="#c2410c", label="AutoTwinRegressor")
    for ratio, position in zip(own, positions, strict=True):
        style = {"textcoords": "offset points", "xytext": (0, 8), "ha": "center", "fontsize": 8}
        upper.annotate(f"{ratio:.2f}", (ratio, position), **style)
    upper.set(xscale="log", xlim=(0.55, 3.2), ylim=(-0.5, len(keys) - 0.2))
    upper.set_xticks([0.6, 0.8, 1, 1.5, 2, 3], ["0.6", "0.8", "1", "1.5", "2", "3"])
    upper.set_xticks([], minor=True)
    upper.set_yticks(positions, keys)
    upper.set(xlabel="RMSE / lowest published RMSE", title="Error beside the lowest published")
    upper.legend(fontsize=8, loc="upper right")
    table = coverages(runs).loc[keys]
    for level, marker in zip(table.columns, "ovs", strict=True):
        lower.axvline(level, color="0.75", linewidth=1, zorder=0)
        lower.plot(
            table[level], positions, marker, color="#0f766e", label=f"intervals of {level} %"
        )
    lower.set_yticks(positions, keys)
    lower.set(xlabel="test rows in their interval, %", xlim=(70, 100), ylim=upper.get_ylim())
    lower.set_title("Coverage of prediction intervals")
    lower.legend(fontsize=8, loc="lower left")
    frame.write_figure(path, figure)
    plt.close(figure)


def main():
    for page in PAGES:
        own = page.read_text("utf-8")
        frame.write_file(page, MARKS.sub(lambda _: text(), own).encode())
    draw(read_results("standard_splits"), PICTURE)


if __name__ == "__main__":
    main()
