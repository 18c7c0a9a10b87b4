"""Pictures of single pages of the documentation, from committed results and generated data.

Writes `docs/pictures/NAME.svg` of each name of PICTURES, or of those that are given. Their texts
can be read on a phone.

    OMP_NUM_THREADS=1 python -m benchmarks.pages.page_pictures [NAME …]

The picture of data sets needs their files. That of the page of serving is a screenshot
(`examples/page_picture.py`).
"""

import argparse
import re

import numpy as np
import pandas as pd

from benchmarks import frame
from benchmarks.pages.page import read_results
from paper.page import DOCS
from twinned import ForwardFolds, TwinRegressor
from twinned.datasets import KEYS, load

ORANGE, BLUE, BROWN, GREEN, GRAY = "#d9541e", "#0284c7", "#a16207", "#0d9488", "#7b8494"
WIDTH = 5.2  # inches
LIMIT = 3.0  # of the generated example of detection limits


def subplots(*shape, **options):
    """Return a figure and its axes."""
    import matplotlib.pyplot as plt

    return plt.subplots(*shape, layout="constrained", **options)


def label_rows(axes, names):
    """Label the rows of a plot, from above; return their positions."""
    positions = np.arange(len(names))[::-1]
    axes.set_yticks(positions, names)
    axes.set_ylim(-0.6, len(names) - 0.4)
    return positions


def expected_label(x):
    """Return the function of the example of detection limits."""
    return 3.5 + 2.5 * np.sin(2.5 * x) + 0.3 * x


def draw_detection_limits():
    """Draw fits to values of which some are below a limit, and errors of the benchmark."""
    rng = np.random.RandomState(0)
    x = np.sort(rng.uniform(0, 4, 80))
    y = expected_label(x) + rng.normal(0, 0.1, len(x))
    below = y < LIMIT
    grid = np.linspace(0, 4, 300)
    upper = np.where(below, LIMIT, np.nan)
    fits = {
        "rows left out": (GRAY, x[~below], y[~below], {}),
        "limit as the value": (BLUE, x, np.maximum(y, LIMIT), {}),
        "bounds, y_upper": (ORANGE, x, np.where(below, np.nan, y), {"y_upper": upper}),
    }
    figure, (left, right) = subplots(2, 1, figsize=(WIDTH, 7.0))
    left.axhline(LIMIT, color="0.75", linewidth=1)
    left.plot(grid, expected_label(grid), "k:", label="truth")
    for name, (color, x_known, y_known, bounds) in fits.items():
        twin = TwinRegressor(cv=0, random_state=0).fit(x_known[:, None], y_known, **bounds)
        left.plot(grid, twin.predict(grid[:, None]), color=color, label=name)
    left.plot(x[~below], y[~below], "o", markersize=3, color="k", label="measured")
    (tip,) = left.plot(x[below], upper[below], "v", markersize=5, color=GREEN)
    tip.set_label(f"“<{LIMIT:g}”")
    left.vlines(x[below], 0, LIMIT, color=GREEN, linewidth=0.5)
    left.set(xlabel="feature", ylabel="target", title="Fits of a twin to 80 rows", ylim=(0, 7.5))
    runs = read_results("censored_labels").query("model == 'twin' and share == 0.4")
    ways = ["dropped", "substituted", "censored"]
    ratios = np.log(runs[ways].div(runs["known"], axis=0))
    means = np.exp(ratios.groupby(runs["dataset"]).mean()).loc[list(KEYS)]
    positions = label_rows(right, KEYS)
    right.axvline(1, color="0.75", linewidth=1)
    for way, (color, *_), marker in zip(ways, fits.values(), "sso", strict=True):
        right.plot(means[way], positions, marker, markersize=6, color=color)
    right.set(xscale="log", xlabel="RMSE / RMSE with all values known")
    right.set_xticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"])
    right.set_xticks([], minor=True)
    right.set_title("40 % of the labels beyond limits")
    figure.legend(fontsize=9, ncols=3, loc="outside lower center")
    return figure


def draw_time():
    """Draw forward folds."""
    times = np.arange(60)
    figure, axes = subplots(figsize=(WIDTH, 3.0))
    folds = list(ForwardFolds().split(times[:, None], groups=times))
    positions = label_rows(axes, [f"fold {i + 1}" for i in range(len(folds))])
    for position, (training, held_out) in zip(positions, folds, strict=True):
        axes.plot(training, np.full(len(training), position), "s", markersize=3, color=BLUE)
        axes.plot(held_out, np.full(len(held_out), position), "s", markersize=3, color=ORANGE)
    axes.plot([], [], "s", color=BLUE, label="training rows")
    axes.plot([], [], "s", color=ORANGE, label="held-out rows")
    axes.set(xlabel="time", xticks=[])
    figure.legend(fontsize=9, ncols=2, loc="outside lower center")
    return figure


def draw_trees_or_networks():
    """Draw errors of twins of trees and of networks, divided by those of CatBoost."""
    runs = pd.concat([read_results("accuracy_trees"), read_results("accuracy_neural")])
    means = runs.pivot_table(index="dataset", columns="model", values="rmse").loc[list(KEYS)]
    figure, axes = subplots(figsize=(WIDTH, 4.2))
    positions = label_rows(axes, KEYS)
    axes.axvline(1, color="0.75", linewidth=1)
    for model, color, marker, name in (
        ("twin", BLUE, "s", "trees: TwinRegressor()"),
        ("twin:fast", BROWN, "^", 'networks, effort="fast"'),
        ("twin:balanced", ORANGE, "o", "networks: TwinNeuralRegressor()"),
    ):
        axes.plot(means[model] / means["catboost"], positions, marker, color=color, label=name)
    axes.set(xscale="log", xlabel="RMSE / RMSE of CatBoost, means of 25 splits")
    axes.set_xticks([0.05, 0.1, 0.2, 0.5, 1], ["0.05", "0.1", "0.2", "0.5", "1"])
    axes.set_xticks([], minor=True)
    figure.legend(fontsize=9, loc="outside lower center")
    return figure


def draw_active_learning():
    """Draw the error of a twin by the number of labels, chosen by `query` or at random."""
    runs = read_results("active_learning").query("model == 'twin'")
    means = runs.pivot_table(index="labels", columns=["dataset", "choice"], values="rmse")
    figure, panels = subplots(3, 3, figsize=(WIDTH, 5.6), sharex=True)
    for axes, key in zip(panels.flat, KEYS, strict=True):
        axes.plot(means[key, "random"], color=GRAY, label="random")
        axes.plot(means[key, "spread"], color=ORANGE, label='query, "uncertainty"')
        axes.set_title(key, fontsize=9)
        axes.tick_params(labelsize=8)
        axes.set_ylim(bottom=0)
    figure.legend(*panels[0, 0].get_legend_handles_labels(), fontsize=9, loc="outside upper right")
    figure.supxlabel("labels", fontsize=9)
    figure.supylabel("test RMSE, mean of 10 seeds", fontsize=9)
    return figure


def draw_data_sets():
    """Draw the distribution of the target of each data set of the paper."""
    figure, panels = subplots(3, 3, figsize=(WIDTH, 5.0))
    for axes, key in zip(panels.flat, KEYS, strict=True):
        axes.hist(load(key)[1], bins=40, color=BLUE)
        axes.set_title(key, fontsize=9)
        axes.tick_params(labelsize=8)
    figure.supxlabel("target", fontsize=9)
    figure.supylabel("rows", fontsize=9)
    return figure


def draw_calibration_transfer():
    """Draw the deviations of instruments, and predictions of a new one, of the page's example."""
    text = (DOCS / "calibration-transfer.md").read_text("utf-8")
    page = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL)), page)
    model, moved, test, X = (page[name] for name in ("model", "moved", "test", "X_new"))
    figure, (left, right) = subplots(2, 1, figsize=(WIDTH, 6.8))
    common = moved.predict_distribution(X, batch=None)
    for name in [*page["names"], "new"]:
        of_batch = moved.predict_distribution(X, batch=name)
        deviation = of_batch.location - common.location
        color = ORANGE if name == "new" else GRAY
        left.plot(X[:, 0], deviation, color=color, label=name)
        left.annotate(name, (X[-1, 0], deviation[-1]), fontsize=9)
        if name == "new":
            band = 1.645 * of_batch.queries.offset_std
            left.fill_between(X[:, 0], deviation - band, deviation + band, color=color, alpha=0.2)
    left.margins(x=0.1)  # room for the names
    left.set_xlabel("first reading", fontsize=9)
    left.set_ylabel("deviation", fontsize=9)
    right.plot(test, test, color=GRAY, linewidth=1)
    right.plot(test, model.predict(X), "o", ms=4, color=BLUE, label="without samples")
    right.plot(test, moved.predict(X, batch="new"), "o", ms=4, color=ORANGE, label="three samples")
    right.set_xlabel("reference method", fontsize=9)
    right.set_ylabel("prediction", fontsize=9)
    right.legend(fontsize=9)
    return figure


PICTURES = {
    "calibration-transfer": draw_calibration_transfer,
    "detection-limits": draw_detection_limits,
    "time": draw_time,
    "trees-or-networks": draw_trees_or_networks,
    "active-learning": draw_active_learning,
    "data-sets": draw_data_sets,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    for name in parser.parse_args().names or PICTURES:
        frame.write_figure(DOCS / "pictures" / f"{name}.svg", PICTURES[name]())


if __name__ == "__main__":
    main()
