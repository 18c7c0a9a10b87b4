"""The main job on a table whose truth is known: which model, how sure, and why.

Four laboratories measured an impurity, each with an unknown offset and with values below a limit of
detection. The table is generated, so that the formula, the offsets and the noise are known. The
demo recommends a model, predicts new rows with intervals, shows comparable samples, adds a fifth
laboratory with three known values, writes a report, and compares all results with the truth.
"""

import argparse
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from twinned import AutoTwinRegressor, diagnose, save, write_report

mpl.use("Agg")
import matplotlib.pyplot as plt

TARGET, BATCH = "impurity [mg/L]", "laboratory"
NOISE, LIMIT = 0.1, 0.5  # in mg/L
OFFSETS = pd.Series({"A": 0.0, "B": 0.6, "C": -0.4, "D": 0.3, "E": 1.0})  # in mg/L
# as they are found: relative to the mean of the laboratories of the fit, to which E is added
TRUE_OFFSETS = OFFSETS - OFFSETS["A":"D"].mean()
SOLVENTS = {"ethanol": 0.0, "acetone": 0.5, "water": 1.0}
# few members, of little effort, so that the demo is short; "auto" is all of them
MEMBERS = ["ridge", "gp_matern", "extra_trees:small", "boosting:small", "tree_twin:small"]


def true_impurity(samples):
    """Return the impurity without offsets and noise; the stirring rate has no effect."""
    heat = 2 * np.exp((samples["temperature [°C]"] - 90) / 35)
    time = samples["solvent"].map(SOLVENTS) * samples["time [h]"] / 5
    precipitates = samples["pH"] > 7  # a step, besides the smooth effects
    return heat + time + np.where(precipitates, 0.1, 1.1)


def make_samples(n, laboratories, rng):
    """Return n random samples with their measured values, none of them below the limit."""
    samples = pd.DataFrame(
        {
            BATCH: rng.choice(list(laboratories), n),
            "temperature [°C]": rng.uniform(20, 90, n).round(1),
            "pH": rng.uniform(4.5, 8.5, n).round(2),
            "time [h]": rng.uniform(0.5, 6, n).round(1),
            "stirring [1/min]": 50 * rng.randint(4, 17, n),
            "solvent": rng.choice(list(SOLVENTS), n),
        }
    )
    offset = samples[BATCH].map(OFFSETS)
    measured = true_impurity(samples) + offset + NOISE * rng.normal(size=n)
    return samples.drop(columns=BATCH), samples[BATCH], measured.clip(lower=0).round(2)


def heading(console, text):
    console.print(f"\n[bold]{text}[/]", highlight=False)


def show(console, table, title=None):
    """Print a DataFrame; units are below the names of the columns."""
    shown = Table(title=title, title_justify="left")
    for name in table.columns:
        shown.add_column(escape(str(name).replace(" [", "\n[")), justify="right")
    for _, row in table.iterrows():
        texts = (f"{x:.2f}" if isinstance(x, float) else str(x) for x in row)
        shown.add_row(*texts)
    console.print(shown)


def recommend(output, console, rng):
    """Diagnose the table of four laboratories, and return the recommended model and the table."""
    X, laboratory, y = make_samples(200, "ABCD", rng)
    below = y < LIMIT
    table = X.assign(**{BATCH: laboratory, TARGET: y.astype(str).where(~below, f"<{LIMIT}")})
    table.to_csv(output / "samples.csv", index=False)
    show(console, table.head(4), f"{len(table)} samples, {below.sum()} of them below the limit")
    heading(console, "1. Which model? From the command line, within a minute:")
    command = f'twinned advise {output / "samples.csv"} --target "{TARGET}" --batch {BATCH}'
    console.print(f"  {command}\n", markup=False, highlight=False, soft_wrap=True)
    diagnosis = diagnose(
        X,
        y.where(~below),  # NaN where only the bounds are known
        y_lower=np.where(below, 0.0, y),
        y_upper=np.where(below, LIMIT, y),
        batch=laboratory,
        estimator=AutoTwinRegressor(members=MEMBERS, cv=5),
        n_jobs=-1,
        random_state=0,
    )
    console.print(diagnosis.summary, highlight=False)
    console.print(diagnosis.describe_errors(TARGET), highlight=False, markup=False)
    ratio, low, high = (diagnosis.blend.contribution_[key] for key in ("ratio", "lower", "upper"))
    heading(console, "2. What does twinning contribute?")
    times = f"{ratio:.2f} ({low:.2f} to {high:.2f})"
    text = f"The error of the blend with twins is {times} times that of the blend without them."
    console.print(text, highlight=False)
    write_report(diagnosis, output / "advice.html", title="samples.csv", target=TARGET)
    save(diagnosis.model, output / "samples.twin")
    return diagnosis.model, X, y, below, laboratory


def predict(model, console, rng):
    """Predict new rows of known laboratories; return them, and what was found."""
    X, laboratory, y = make_samples(400, "ABCD", rng)
    predicted = model.predict(X, batch=laboratory)
    interval = model.predict_interval(X, confidence=0.9, batch=laboratory)
    heading(console, "3. How sure? New rows with intervals of 90 %:")
    ends = {"low": interval[:, 0], "high": interval[:, 1]}
    shown = X.assign(laboratory=laboratory, predicted=predicted, **ends)
    show(console, shown.head(4))
    heading(console, "4. Why? Comparable samples of the first row, adjusted feature by feature:")
    cases = model.explain(X.head(1), n=3, adjustments=True, batch=laboratory[:1])
    columns = ["anchor_y", "offset", *X.columns, "estimate", "weight"]
    show(console, cases[cases["anchor"] >= 0][columns])
    return y, predicted, interval


def add_laboratory(model, rng):
    """Add laboratory E by three known values; return the model and the error of other rows."""
    X, laboratory, y = make_samples(43, "E", rng)
    known, other = slice(0, 3), slice(3, None)
    extended = model.add_anchors(X[known], y[known], batch=laboratory[known])
    predicted = extended.predict(X[other], batch=laboratory[other])
    return extended, root_mean_square(predicted - y[other])


def root_mean_square(errors):
    return float(np.sqrt(np.mean(np.square(errors))))


def compare_with_truth(model, extended, rows, found, error_of_new, console):
    """Print what is known to be true beside what was found, and return whether all agree."""
    X, _, below, laboratory = rows
    y, predicted, interval = found
    checks = []
    error, low, high = root_mean_square(predicted - y), *interval.T
    checks.append(("noise, and the error of 400 new rows", NOISE, error, error < 2 * NOISE))
    covered = 100 * np.mean((low <= y) & (y <= high))
    # two standard deviations over tables of 200 samples: 2.7 each, by seven other tables
    checks.append(("rows in intervals of 90 %, ± 6", 90.0, covered, abs(covered - 90) < 6))
    for name, row in extended.batch_offsets_.iterrows():
        offset, std_error = row["offset"], row["std_error"]
        label = f"offset of laboratory {name}, ± {std_error:.2f}"
        is_near = abs(offset - TRUE_OFFSETS[name]) < 3 * std_error
        checks.append((label, TRUE_OFFSETS[name], offset, is_near))
    checks.append(("noise, and the error in E", NOISE, error_of_new, error_of_new < 2 * NOISE))
    truth = true_impurity(X[below]) + laboratory[below].map(OFFSETS)
    mean = np.mean(model.predict(X[below], batch=laboratory[below]))
    label = f'mean of the {below.sum()} values "<{LIMIT}"'
    checks.append((label, truth.mean(), mean, abs(mean - truth.mean()) < NOISE))
    relevance = dict(zip(X.columns, model.feature_relevance_, strict=True))
    share = relevance["stirring [1/min]"] / max(relevance.values())
    checks.append(("relevance of stirring, of the largest", 0.0, share, share < 0.1))
    table = pd.DataFrame(checks, columns=["", "true", "found", "agrees"])
    heading(console, "5. Is it right? What is known to be true, and what was found:")
    show(console, table.assign(agrees=np.where(table["agrees"], "yes", "NO")))
    return table["agrees"].all()


def draw(found, extended, path):
    """Save a figure: predictions with intervals on the left, offsets on the right."""
    y, predicted, (low, high) = found[0], found[1], found[2].T
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    inside = (low <= y) & (y <= high)
    for rows, color, label in ((inside, "#0f766e", "in"), (~inside, "#c2410c", "not in")):
        length = [predicted[rows] - low[rows], high[rows] - predicted[rows]]
        label = f"{100 * rows.mean():.1f} % {label} their interval of 90 %"
        style = {"fmt": "o", "markersize": 3, "linewidth": 0.6, "color": color, "label": label}
        left.errorbar(y[rows], predicted[rows], length, **style)
    left.axline((1, 1), slope=1, color="#bbbbbb", linewidth=1, zorder=0)
    left.set(xlabel="measured, mg/L", ylabel="predicted, mg/L", title="400 new rows")
    left.legend(frameon=False, fontsize=8)
    offsets = extended.batch_offsets_
    names = [str(name) for name in offsets.index]
    style = {"fmt": "o", "color": "#0f766e", "label": "found, ± 2 standard errors"}
    right.errorbar(names, offsets["offset"], 2 * offsets["std_error"], **style)
    right.plot(names, TRUE_OFFSETS[names], "_", color="black", markersize=22, label="true")
    right.set(xlabel="laboratory; three values of E are known", ylabel="offset, mg/L")
    right.set_title("Offsets of laboratories")
    right.legend(frameon=False, fontsize=8)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=130)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, default=Path("out"), help="folder of the files")
    output = parser.parse_args().output
    output.mkdir(parents=True, exist_ok=True)
    console, rng = Console(), np.random.RandomState(0)
    model, X, y, below, laboratory = recommend(output, console, rng)
    found = predict(model, console, rng)
    extended, error_of_new = add_laboratory(model, rng)
    rows = (X, y, below, laboratory)
    agrees = compare_with_truth(model, extended, rows, found, error_of_new, console)
    draw(found, extended, output / "demo.png")
    names = ("samples.csv", "samples.twin", "advice.html", "demo.png")
    console.print("Files:", ", ".join(str(output / name) for name in names))
    if not agrees:
        raise SystemExit("A result does not agree with the truth.")


if __name__ == "__main__":
    main()
