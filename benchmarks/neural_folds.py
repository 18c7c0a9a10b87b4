"""How to divide the steps of a thorough neural twin between folds and members.

Networks that hold out a fold select the settings, and members are trained on all rows. The second
to the fifth division have the same number of steps; the first has fewer and the last has more. The
criterion is the error of a fifth of the training rows of the paper's splits 0 to 2, which is held
out; no test row is used. Results: `benchmarks/results/neural_folds.csv` and `.md`. A GPU needs five
minutes.

    python -m benchmarks.neural_folds --jobs 16
"""

import time

import numpy as np

from paper import harness
from paper.data import rmse, training_and_test_rows
from twinned.datasets import KEYS

COLUMNS = ["division", "dataset", "seed", "rmse:.6g", "seconds:.4g"]
# folds, steps of each of their networks, members
DIVISIONS = {
    "5 folds of 2,400 steps, 24 members": (5, 2400, 24),
    "5 folds of 3,000 steps, 24 members": (5, 3000, 24),
    "5 folds of 3,600 steps, 20 members": (5, 3600, 20),
    "5 folds of 4,500 steps, 14 members": (5, 4500, 14),
    "10 folds of 1,800 steps, 20 members": (10, 1800, 20),
    "5 folds of 6,000 steps, 24 members": (5, 6000, 24),
}
SEEDS = (0, 1, 2)


def hold_out(dataset, seed):
    """Return four fifths of the training rows of a split, and the rest."""
    (X, y), _ = training_and_test_rows(dataset, seed)
    order = np.random.RandomState(seed).permutation(len(y))
    fitted, rest = np.split(order, [4 * len(order) // 5])
    return (X[fitted], y[fitted]), (X[rest], y[rest])


def run_divisions(trials, jobs):
    """Yield the errors of all problems for each division."""
    from twinned.neural import NeuralTraining, TwinNeuralRegressor, fit_many

    splits = [(key, seed) for key in KEYS for seed in SEEDS]
    problems = [hold_out(*split) for split in splits]
    for (division,) in trials:
        n_folds, fold_steps, n_members = DIVISIONS[division]
        estimator = TwinNeuralRegressor(
            effort="thorough",
            n_members=n_members,
            training=NeuralTraining(n_folds=n_folds, fold_steps=fold_steps),
            n_jobs=jobs,
            random_state=0,
        )
        start = time.perf_counter()
        models = fit_many(estimator, [train for train, _ in problems])
        seconds = (time.perf_counter() - start) / len(problems)
        rows = [
            {"dataset": key, "seed": seed, "rmse": rmse(model.predict(X), y)}
            for (key, seed), model, (_, (X, y)) in zip(splits, models, problems, strict=True)
        ]
        yield (division,), rows, seconds


def summary(runs):
    errors = runs.pivot_table(index=["dataset", "seed"], columns="division", values="rmse")
    known = [division for division in DIVISIONS if division in errors]
    ratios = np.log(errors[known].div(errors[known[0]], axis=0))
    by_set = np.exp(ratios.groupby("dataset").mean())
    rows = [[key, *(f"{by_set.loc[key, name]:.3f}" for name in known)] for key in KEYS]
    rows.append(["geometric mean", *(f"**{np.exp(ratios[name].mean()):.4f}**" for name in known)])
    return [
        "# Folds and members of a thorough neural twin",
        "",
        "RMSE of a fifth of the training rows of splits 0 to 2, which is held out, relative to the "
        "first column. This table decided the default. `python -m benchmarks.neural_folds`.",
        "",
        *harness.markdown_table(["", *known], rows),
    ]


def main():
    arguments = harness.parse_arguments(
        __doc__, jobs=1, only_table=False, output=harness.RESULTS / "neural_folds.csv"
    )
    table = harness.ResultTable(arguments.output, ("division",), COLUMNS)
    wanted = [] if arguments.only_table else [(name,) for name in DIVISIONS]
    harness.run_pending(
        wanted, table, lambda trials: run_divisions(trials, arguments.jobs), harness.print_progress
    )
    harness.write_markdown(arguments.output.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
