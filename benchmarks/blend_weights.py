"""Weights of blends: the methods of `AutoTwinRegressor`, and alternatives that were not taken.

The blends are made of members that `benchmarks.member_predictions` fitted, on tables outside the
paper; members without a file are left out. `chosen` is the method with the lowest nested error, as
in `AutoTwinRegressor`; `two methods` is the same without `smoothed`. `winsorized` limits the errors
of the rows that all members predict worst, 2 or 5 % of them, before the weights are fitted. Results
are ratios to the member with the lowest test error: `benchmarks/results/blend_weights.csv`, `.md`.
The methods of the library were chosen by this table.

    python -m benchmarks.member_predictions --kind others --efforts balanced --output FOLDER \\
        --seeds 0 1 2 --datasets cpus Franke
    python -m benchmarks.blend_weights --predictions FOLDER
"""

from functools import partial
from unittest import mock

import numpy as np

from benchmarks.accuracy_auto import geometric_mean
from benchmarks.member_predictions import needed_members, prediction_file, prepare, read_predictions
from benchmarks.tables import OTHER_TABLES, split_table
from paper import harness
from paper.data import rmse
from twinned.estimators.blending import weights as blending

WAYS = ["chosen", "two methods", *blending.METHODS, "winsorized 2 %", "winsorized 5 %"]
COLUMNS = ["dataset", "seed", "members", *(f"{way}:.6g" for way in WAYS)]


def limit_errors(errors, share):
    """Scale down the errors of rows whose smallest error is among the largest ones."""
    smallest = np.abs(errors).min(axis=1)
    limit = np.quantile(smallest, 1 - share)
    return errors * np.minimum(1.0, limit / np.maximum(smallest, np.finfo(float).tiny))[:, None]


def choose_weights(errors, groups, names):
    """Return the weights of the method with the lowest nested error among some."""
    methods = {name: blending.METHODS[name] for name in names}
    with mock.patch.dict(blending.METHODS, methods, clear=True):
        return blending.fit_weights(errors, np.zeros(len(errors)), None, groups).weights


def run_split(dataset, seed, predictions):
    """Return the test error of each way of weighting, as a ratio to that of the best member."""
    (X, y), (_, y_test) = split_table(dataset, seed)
    blend = prepare("balanced", X, y)
    names = [spec.name for spec in needed_members(blend)]
    names = [
        name
        for name in names
        if prediction_file(predictions, dataset, seed, "balanced", name).exists()
    ]
    members = {
        name: read_predictions(predictions, dataset, seed, "balanced", name) for name in names
    }
    y, groups = blend.rows.y, blend.rows.groups
    errors = np.column_stack([own.out_of_fold - y for own in members.values()])
    tests = np.column_stack([own.test for own in members.values()])
    every = blending.METHODS
    two = [name for name in every if name != "smoothed"]
    weights = {
        "chosen": choose_weights(errors, groups, every),
        "two methods": choose_weights(errors, groups, two),
        **{name: method(errors / np.sqrt(len(errors))) for name, method in every.items()},
        "winsorized 2 %": choose_weights(limit_errors(errors, 0.02), groups, every),
        "winsorized 5 %": choose_weights(limit_errors(errors, 0.05), groups, every),
    }
    best = min(rmse(own.test, y_test) for own in members.values())
    ratios = {way: rmse(tests @ own, y_test) / best for way, own in weights.items()}
    return [{"members": len(members), **ratios}]


def summary(runs):
    """Return the lines of the page: geometric means over splits, and over tables."""
    means = runs.groupby("dataset")[WAYS].agg(geometric_mean)
    rows = [[name, *(f"{value:.3f}" for value in row)] for name, row in means.iterrows()]
    rows.append(["geometric mean", *(f"**{geometric_mean(means[way]):.4f}**" for way in WAYS)])
    return [
        "# Weights of blends",
        "",
        "Test error of blends, as a ratio to the member with the lowest test error of each split, "
        f"geometric means over {runs['seed'].nunique()} splits. `python -m benchmarks.blend_weights"
        "`; the methods of the library were chosen by this table.",
        "",
        *harness.markdown_table(["", *WAYS], rows),
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__,
        datasets=list(OTHER_TABLES),
        seeds=[0, 1, 2],
        jobs=1,
        predictions="",
        only_table=False,
        output=harness.RESULTS / "blend_weights.csv",
    )
    table = harness.ResultTable(arguments.output, ("dataset", "seed"), COLUMNS)
    trials = [(key, seed) for seed in arguments.seeds for key in arguments.datasets]
    run = partial(run_split, predictions=arguments.predictions)
    harness.run_benchmark(table, trials, run, arguments)
    harness.write_markdown(arguments.output.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
