"""Study S: semi-supervised TNNR and co-training, with which the paper compares its forests.

The paper cites both from an earlier one and prints no values of them. Of each split's 80 % a share
of the rows is labelled (the first ones of a seeded permutation), the others are unlabelled; the
test rows are used for testing only. A trial has one split and share, and all methods:

- *supervised*: `TwinNeuralRegressor` on the labelled rows alone;
- *loops*: the same with the loop loss over labelled and unlabelled rows, for each loop weight;
- *plain*: `NeuralRegressor` on the labelled rows;
- *co-training*: two plain networks with different activations. In each round each gives the other
  pseudo-labels of the unlabelled points of which it is most certain (its members agree best), as
  many as there are labels; their mean predicts.

The table of its records: `paper.semi_supervised_table`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from paper.data import rmse, training_and_test_rows
from paper.records import Trial
from twinned.neural import NeuralRegressor, NeuralTraining, TwinNeuralRegressor, fit_many
from twinned.rows.schema import Floats

STUDY, VARIANTS = "semi-supervised-networks", ("modern",)
SHARES, LOOP_WEIGHTS, N_ROUNDS = (0.1, 0.3, 0.7), (0.1, 1.0, 10.0), 2
QUICK_DATASET, QUICK_SHARES, QUICK_WEIGHTS, QUICK_STEPS = "TF", (0.3,), (1.0,), 50
MIN_LABELLED = 10
ACTIVATIONS = ("silu", "relu")  # of the two networks of co-training

Points = list[tuple[Floats, Floats]]  # X and y of each problem
Errors = dict[str, float]  # of test rows, and out of fold


class Problem(NamedTuple):
    """The rows of one split and share."""

    X: Floats  # labelled
    y: Floats
    X_unlabelled: Floats
    X_test: Floats
    y_test: Floats


def semi_supervised_network_trials(
    variant: str, dataset: str, split: int, quick: bool
) -> list[Trial]:
    """Return a trial for each share of labelled rows; a quick run has one data set."""
    if quick and dataset != QUICK_DATASET:
        return []
    settings = {"effort": "fast", "loop_weights": list(LOOP_WEIGHTS), "rounds": N_ROUNDS}
    if quick:
        settings |= {"loop_weights": list(QUICK_WEIGHTS), "rounds": 1, "max_steps": QUICK_STEPS}
    return [
        Trial(STUDY, variant, dataset, split, settings | {"share": share})
        for share in (QUICK_SHARES if quick else SHARES)
    ]


def run_semi_supervised_networks(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield test and out-of-fold errors of all methods; the splits of a share train at once."""

    def share(trial: Trial) -> float:
        return float(trial.settings["share"])

    for _, group in groupby(sorted(batch, key=share), share):
        trials = list(group)
        problems = [make_problem(trial) for trial in trials]
        settings = trials[0].settings
        supervised, plain = _fit_twins(problems, settings, 0.0), _fit_plain(problems, settings)
        loops = {
            f"{weight:g}": _fit_twins(problems, settings, weight)
            for weight in settings["loop_weights"]
        }
        co_training = _fit_co_training(problems, settings)
        for i, trial in enumerate(trials):
            yield (
                trial,
                {
                    "supervised": supervised[i],
                    "loops": {weight: errors[i] for weight, errors in loops.items()},
                    "plain": plain[i],
                    "co-training": co_training[i],
                },
            )


def make_problem(trial: Trial) -> Problem:
    """Return labelled, unlabelled and test rows of a trial."""
    (X, y), test = training_and_test_rows(trial.dataset, trial.split)
    rows = np.random.RandomState(trial.split).permutation(len(y))
    n = max(MIN_LABELLED, round(trial.settings["share"] * len(rows)))
    return Problem(X[rows[:n]], y[rows[:n]], X[rows[n:]], *test)


def _fit_twins(
    problems: list[Problem], settings: dict[str, Any], loop_weight: float
) -> list[Errors]:
    estimator = TwinNeuralRegressor(loop_weight=loop_weight, **_options(settings))
    sets = _labelled(problems)
    if loop_weight:
        sets = [
            (np.concatenate([X, own.X_unlabelled]), np.append(y, [np.nan] * len(own.X_unlabelled)))
            for (X, y), own in zip(sets, problems, strict=True)
        ]
    return _errors(fit_many(estimator, sets), problems)


def _fit_plain(problems: list[Problem], settings: dict[str, Any]) -> list[Errors]:
    estimator = NeuralRegressor(**_options(settings))
    return _errors(fit_many(estimator, _labelled(problems)), problems)


def _fit_co_training(problems: list[Problem], settings: dict[str, Any]) -> list[Errors]:
    estimators = [NeuralRegressor(**_options(settings, name)) for name in ACTIVATIONS]
    sets = [_labelled(problems) for _ in estimators]
    remaining = [[np.arange(len(own.X_unlabelled)) for own in problems] for _ in estimators]
    for number in range(settings["rounds"] + 1):
        models = [fit_many(estimator, own) for estimator, own in zip(estimators, sets, strict=True)]
        if number == settings["rounds"]:
            break
        for source, receiver in ((0, 1), (1, 0)):
            for i, problem in enumerate(problems):
                rows = remaining[receiver][i]
                if len(rows):
                    pool = problem.X_unlabelled[rows]
                    value, spread = models[source][i].predict(pool, return_std=True)
                    surest = np.argsort(spread)[: len(problem.y)]
                    X, y = sets[receiver][i]
                    sets[receiver][i] = (
                        np.concatenate([X, pool[surest]]),
                        np.append(y, value[surest]),
                    )
                    remaining[receiver][i] = np.delete(rows, surest)
    predicted = [
        (first.predict(own.X_test) + second.predict(own.X_test)) / 2
        for first, second, own in zip(*models, problems, strict=True)
    ]
    return [{"test": rmse(p, own.y_test)} for p, own in zip(predicted, problems, strict=True)]


def _options(settings: dict[str, Any], activation: str = "silu") -> dict[str, Any]:
    """Parameters that all networks share."""
    training = NeuralTraining(max_steps=settings.get("max_steps"), activation=activation)
    return {"effort": settings["effort"], "training": training, "random_state": 0}


def _labelled(problems: list[Problem]) -> Points:
    return [(problem.X, problem.y) for problem in problems]


def _errors(models: list[Any], problems: list[Problem]) -> list[Errors]:
    """Errors of test rows, and out of fold of labelled rows."""
    return [
        {
            "test": rmse(model.predict(own.X_test), own.y_test),
            "out_of_fold": rmse(model.out_of_fold_prediction_[: len(own.y)], own.y),
        }
        for model, own in zip(models, problems, strict=True)
    ]
