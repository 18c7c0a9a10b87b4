"""Partners of each point in a step of a neural twin, at about the same processor time of a step.

A step computes the first layer once for each point and the others once for each pair: fewer
partners leave time for more points. The criterion is the out-of-fold error of the training rows of
the paper's splits 0 and 1, five folds, `effort="balanced"`; no test row is used. Results:
`benchmarks/results/neural_partners.csv` and `.md`. A GPU needs two minutes.

    python -m benchmarks.neural_partners --jobs 16
"""

from dataclasses import replace
from unittest import mock

import numpy as np
from joblib import Parallel, delayed

from benchmarks.member_predictions import build_networks, predict_networks
from paper import harness
from twinned.datasets import KEYS
from twinned.estimators.blending import rows
from twinned.models.neural import fitting

COLUMNS = ["partners", "dataset", "seed", "rmse:.6g", "seconds:.4g"]
PAIRS = {4: 128, 2: 96, 1: 64}  # by the number of partners
SEEDS = (0, 1)


def build(dataset, seed):
    with mock.patch.dict(rows._FEW_ROWS, balanced=0):  # five folds of every table
        return build_networks(dataset, seed, "balanced")["neural_twin"]


def with_pairs(own, batch_size):
    """Return the problem with another number of pairs per step."""
    options = own.problem.options
    options = replace(options, effort=replace(options.effort, batch_size=batch_size))
    return own._replace(problem=replace(own.problem, options=options))


def run_partners(trials, jobs):
    """Yield the out-of-fold errors of all problems for each number of partners."""
    splits = [(key, seed) for key in KEYS for seed in SEEDS]
    problems = Parallel(n_jobs=jobs)(delayed(build)(*split) for split in splits)
    for (partners,) in trials:
        with mock.patch.object(fitting, "N_PARTNERS", partners):
            predictions = predict_networks([with_pairs(own, PAIRS[partners]) for own in problems])
        results = []
        for (key, seed), own, predicted in zip(splits, problems, predictions, strict=True):
            error = predicted.out_of_fold.ravel() - own.problem.table.target
            rmse = np.sqrt(np.nanmean(error**2))
            results.append({"dataset": key, "seed": seed, "rmse": rmse})
        yield (partners,), results, predictions[0].seconds


def summary(runs):
    errors = runs.pivot_table(index=["dataset", "seed"], columns="partners", values="rmse")
    ratios = np.log(errors.div(errors[4], axis=0))
    by_set = np.exp(ratios.groupby("dataset").mean())
    rows = [[key, *(f"{by_set.loc[key, n]:.3f}" for n in PAIRS)] for key in KEYS]
    rows.append(["geometric mean", *(f"**{np.exp(ratios[n].mean()):.3f}**" for n in PAIRS)])
    header = ["", *(f"partners: {n}, pairs: {PAIRS[n]}, points: {PAIRS[n] // n}" for n in PAIRS)]
    return [
        "# Partners of each point in a step of a neural twin",
        "",
        "Out-of-fold RMSE of the training rows of splits 0 and 1, relative to four partners. "
        "This table decided the default. `python -m benchmarks.neural_partners`.",
        "",
        *harness.markdown_table(header, rows),
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__, jobs=1, only_table=False, output=harness.RESULTS / "neural_partners.csv"
    )
    table = harness.ResultTable(arguments.output, ("partners",), COLUMNS)
    wanted = [] if arguments.only_table else [(n,) for n in PAIRS]
    harness.run_pending(
        wanted, table, lambda trials: run_partners(trials, arguments.jobs), harness.print_progress
    )
    harness.write_markdown(arguments.output.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
