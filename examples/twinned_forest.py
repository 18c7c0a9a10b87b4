"""Test errors of three regressors and their twins on three generated data sets.

Prints a table and saves a figure. The data are generated from the formulas of the paper; no file or
network is needed.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsRegressor

from twinned import TwinRegressor
from twinned.datasets import make_rcl, make_tf, make_wsb

mpl.use("Agg")
import matplotlib.pyplot as plt

N_POINTS, N_TRAIN = 200, 100
DATASETS = {
    "TF": ("test function", make_tf),
    "RCL": ("RCL circuit", make_rcl),
    "WSB": ("Wheatstone bridge", make_wsb),
}


def regressors(seed):
    """Return each plain regressor and its twin, by name."""
    forest = RandomForestRegressor(50, min_samples_leaf=2, random_state=seed)
    neighbors = KNeighborsRegressor(5)
    boosting = HistGradientBoostingRegressor(random_state=seed)
    return {
        "random forest": (forest, TwinRegressor(forest)),
        "k-NN": (neighbors, TwinRegressor(neighbors)),
        "boosting": (boosting, TwinRegressor(boosting)),
    }


def rmse(prediction, truth):
    return float(np.sqrt(np.mean((prediction - truth) ** 2)))


def compare(n_seeds, console):
    """Fit all regressors to all data sets and splits.

    Returns a dict from (data set, regressor) to a list of (plain RMSE, twin RMSE), one per split,
    and the test predictions of the first forests: true values, plain, twin and its std.
    """
    errors = {(key, name): [] for key in DATASETS for name in regressors(0)}
    predictions = None
    columns = ("[progress.description]{task.description}", BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task("fitting", total=len(errors) * n_seeds)
        for seed in range(n_seeds):
            for key, (_, make) in DATASETS.items():
                X, y = make(N_POINTS, random_state=seed)
                X, X_test, y, y_test = train_test_split(X, y, train_size=N_TRAIN, random_state=seed)
                for name, (plain, twin) in regressors(seed).items():
                    progress.update(task, description=f"{key}, {name}")
                    plain_y = plain.fit(X, y).predict(X_test)
                    twin_y, std = twin.fit(X, y).predict(X_test, return_std=True)
                    errors[key, name].append((rmse(plain_y, y_test), rmse(twin_y, y_test)))
                    if predictions is None and name == "random forest":
                        predictions = y_test, plain_y, twin_y, std
                    progress.advance(task)
    return errors, predictions


def print_table(errors, console):
    table = Table(title="Test RMSE")
    for heading in ("data", "regressor", "plain", "twinned", "twinned / plain"):
        table.add_column(heading, justify="left" if heading in ("data", "regressor") else "right")
    last = list(regressors(0))[-1]
    for (key, name), pairs in errors.items():
        plain, twin = np.mean(pairs, axis=0)
        color = "green" if twin < plain else "red"
        ratio = f"[{color}]{twin / plain:.2f}[/]"
        row = (DATASETS[key][0], name, f"{plain:.4f}", f"{twin:.4f}", ratio)
        table.add_row(*row, end_section=name == last)
    console.print(table)


def draw(errors, predictions, path):
    """Save a figure: predictions against true values on the left, ratios of errors on the right."""
    plain_color, twin_color = "#9a9a9a", "#c2410c"
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
    truth, plain, twin, std = predictions
    span = [truth.min(), truth.max()]
    left.plot(span, span, color="#bbbbbb", linewidth=1, zorder=0)
    left.scatter(truth, plain, s=16, color=plain_color, label=f"forest, {rmse(plain, truth):.3f}")
    left.errorbar(
        truth,
        twin,
        std,
        fmt="o",
        markersize=4,
        linewidth=0.7,
        color=twin_color,
        label=f"twinned forest ± std over anchors, {rmse(twin, truth):.3f}",
    )
    left.set(xlabel="true value", ylabel="predicted", title="Test function, one split (RMSE)")
    left.legend(frameon=False, fontsize=8, loc="upper left")

    labels = [f"{key}  {name}" for key, name in errors]
    ratios = [np.mean(pairs, axis=0) for pairs in errors.values()]
    values = [twin / plain for plain, twin in ratios]
    rows = np.arange(len(labels))[::-1]
    right.barh(rows, values, color=[twin_color if v < 1 else plain_color for v in values])
    right.axvline(1, color="black", linewidth=1)
    for row, value in zip(rows, values, strict=True):
        right.text(
            max(value, 1.0 if value > 0.9 else 0) + 0.01,
            row,
            f"{value:.2f}",
            va="center",
            fontsize=8,
        )
    right.set_yticks(rows, labels, fontsize=8)
    right.set(
        xlabel="RMSE of the twin / RMSE of the plain regressor",
        title="Left of the line, the twin is better",
        xlim=(0, max(1.15, max(values) + 0.1)),
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the figure")
    parser.add_argument("--seeds", type=int, default=3, help="number of splits")
    arguments = parser.parse_args()
    console = Console()
    console.print(
        f"Each data set: {N_TRAIN} training and {N_POINTS - N_TRAIN} test points, mean of "
        f"{arguments.seeds} split{'s' * (arguments.seeds > 1)}."
    )
    errors, predictions = compare(arguments.seeds, console)
    print_table(errors, console)
    arguments.output.mkdir(parents=True, exist_ok=True)
    figure = arguments.output / "twinned-forest.png"
    draw(errors, predictions, figure)
    console.print(f"Figure: [bold]{figure}[/].")


if __name__ == "__main__":
    main()
