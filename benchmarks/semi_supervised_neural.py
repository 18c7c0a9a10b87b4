"""Semi-supervised TNNR: the loop loss over unlabelled points when labels are few.

The paper's 25 splits. Of each split's 80 % a share of the rows is labelled (the first ones of a
seeded permutation), the others are unlabelled; the test rows are used for testing only. Everything
is `effort="fast"`:

- `supervised`: `TwinNeuralRegressor` on the labelled rows alone;
- `loops W`: the same with `loop_weight=W` over labelled and unlabelled rows;
- `plain`: `NeuralRegressor` on the labelled rows;
- `co-training`: two plain networks with different activations; in each of two rounds each gives the
  other pseudo-labels of the unlabelled points of which it is most certain (its members agree best),
  as many as there are labels; their mean predicts.

`loops, chosen` takes for each data set and share the W with the lowest out-of-fold error of
labelled rows, summed over splits. One GPU does it in minutes. Results:
`benchmarks/results/semi_supervised_neural.csv` and `.md`.

    python -m benchmarks.semi_supervised_neural --shares 0.1 0.3
    python -m benchmarks.semi_supervised_neural --only-table
"""

import time
from typing import NamedTuple

import numpy as np

from paper import harness
from paper.data import rmse, training_and_test_rows
from twinned.datasets import KEYS, PAPER_SEEDS
from twinned.neural import NeuralRegressor, TwinNeuralRegressor, fit_many

LOOP_WEIGHTS = (0.1, 1.0, 10.0)
ROUNDS = 2
COLUMNS = ["dataset", "share:g", "seed", "model", "rmse:.6g", "out_of_fold:.6g", "seconds:.3g"]


class Problem(NamedTuple):
    """The rows of one split."""

    X: np.ndarray  # labelled
    y: np.ndarray
    X_unlabelled: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def make_problem(dataset, seed, share):
    (X, y), test = training_and_test_rows(dataset, seed)
    rows = np.random.RandomState(seed).permutation(len(y))
    n = max(10, round(share * len(rows)))
    return Problem(X[rows[:n]], y[rows[:n]], X[rows[n:]], *test)


def errors(models, problems):
    """Yield the test error and the out-of-fold error of labelled rows of each split."""
    for model, problem in zip(models, problems, strict=True):
        out_of_fold = model.out_of_fold_prediction_[: len(problem.y)]
        predicted = model.predict(problem.X_test)
        yield rmse(predicted, problem.y_test), rmse(out_of_fold, problem.y)


def run_twin(problems, loop_weight):
    estimator = TwinNeuralRegressor(effort="fast", loop_weight=loop_weight, random_state=0)
    sets = [(problem.X, problem.y) for problem in problems]
    if loop_weight:
        sets = [
            (np.concatenate([X, own.X_unlabelled]), np.append(y, [np.nan] * len(own.X_unlabelled)))
            for (X, y), own in zip(sets, problems, strict=True)
        ]
    return errors(fit_many(estimator, sets), problems)


def run_plain(problems):
    sets = [(problem.X, problem.y) for problem in problems]
    estimator = NeuralRegressor(effort="fast", random_state=0)
    return errors(fit_many(estimator, sets), problems)


def run_co_training(problems):
    estimators = [
        NeuralRegressor(effort="fast", activation=name, random_state=0) for name in ("silu", "relu")
    ]
    sets = [[(problem.X, problem.y) for problem in problems] for _ in estimators]
    models = [fit_many(estimator, own) for estimator, own in zip(estimators, sets, strict=True)]
    remaining = [[np.arange(len(problem.X_unlabelled)) for problem in problems] for _ in estimators]
    for _ in range(ROUNDS):
        for source, receiver in ((0, 1), (1, 0)):
            for i, problem in enumerate(problems):
                rows = remaining[receiver][i]
                if not len(rows):
                    continue
                pool = problem.X_unlabelled[rows]
                value, spread = models[source][i].predict(pool, return_std=True)
                surest = np.argsort(spread)[: len(problem.y)]
                X, y = sets[receiver][i]
                sets[receiver][i] = np.concatenate([X, pool[surest]]), np.append(y, value[surest])
                remaining[receiver][i] = np.delete(rows, surest)
        models = [fit_many(estimator, own) for estimator, own in zip(estimators, sets, strict=True)]
    for first, second, problem in zip(*models, problems, strict=True):
        predicted = (first.predict(problem.X_test) + second.predict(problem.X_test)) / 2
        yield rmse(predicted, problem.y_test), np.nan


MODELS = {
    "supervised": lambda problems: run_twin(problems, 0.0),
    **{f"loops {w:g}": (lambda problems, w=w: run_twin(problems, w)) for w in LOOP_WEIGHTS},
    "plain": run_plain,
    "co-training": run_co_training,
}


def run_splits(dataset, share, model):
    """Return the errors of all 25 splits; seconds are those of fitting, divided by 25."""
    problems = [make_problem(dataset, seed, share) for seed in PAPER_SEEDS]
    start = time.perf_counter()
    results = list(MODELS[model](problems))
    seconds = (time.perf_counter() - start) / len(problems)
    return [
        {"seed": seed, "rmse": error, "out_of_fold": out_of_fold, "seconds": seconds}
        for seed, (error, out_of_fold) in zip(PAPER_SEEDS, results, strict=True)
    ]


def summary(runs):
    lines = [
        "# Semi-supervised TNNR",
        "",
        "Mean test RMSE over 25 splits as a ratio to the supervised twin on the same labelled "
        'rows, all `effort="fast"`; in brackets the standard error of the paired difference. The '
        "unlabelled points are the rest of the 80 %. Made by "
        "`python -m benchmarks.semi_supervised_neural`.",
    ]
    for share, own in runs.groupby("share"):
        table = own.pivot_table(index=["dataset", "seed"], columns="model", values="rmse")
        out_of_fold = own.assign(square=own["out_of_fold"] ** 2).pivot_table(
            index="dataset", columns="model", values="square"
        )
        loops = [name for name in MODELS if name.startswith("loops") and name in table]
        names = [*loops, "loops, chosen", *(n for n in ("plain", "co-training") if n in table)]
        rows, ratios = [], {name: [] for name in names}
        for key in KEYS:
            if key not in table.index.get_level_values(0):
                continue
            errors_of = table.loc[key].copy()
            errors_of["loops, chosen"] = errors_of[out_of_fold.loc[key, loops].idxmin()]
            base = errors_of["supervised"]
            cells = [key, f"{base.mean():.4g}"]
            for name in names:
                change = (errors_of[name] - base) / base.mean()
                ratios[name].append(1 + change.mean())
                cells.append(f"{1 + change.mean():.3f} ({change.std() / np.sqrt(len(change)):.3f})")
            rows.append(cells)
        means = [f"**{np.exp(np.mean(np.log(ratios[name]))):.3f}**" for name in names]
        rows.append(["geometric mean", "1", *means])
        lines += ["", f"## {share:.0%} labelled", ""]
        lines += harness.markdown_table(["", "supervised", *names], rows)
    return lines


def main():
    arguments = harness.parse_arguments(
        __doc__,
        shares=[0.1, 0.3, 0.7],
        datasets=list(KEYS),
        models=list(MODELS),
        only_table=False,
        output=harness.RESULTS / "semi_supervised_neural.csv",
    )
    table = harness.ResultTable(arguments.output, ("dataset", "share", "model"), COLUMNS)
    trials = [
        (key, share, model)
        for share in arguments.shares
        for model in arguments.models
        for key in arguments.datasets
    ]
    harness.run_benchmark(table, trials, run_splits, arguments)
    harness.write_markdown(arguments.output.with_suffix(".md"), summary(table.read()))


if __name__ == "__main__":
    main()
