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

`as_published` trains twins and plain networks as the author's code does, on splits of 30 % labelled
training rows, 10 % validation rows and 60 % others, of which five sixths are unlabelled and one
sixth are test rows. Its loops are labelled and unlabelled triples of a batch. The author's
co-training is not described: ours has two ensembles of plain networks with different initial
weights. Its loop weights are ours as well; the validation rows choose among them.

The table of its records: `paper.semi_supervised_table`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from paper.data import load_arrays, rmse, training_and_test_rows
from paper.published import PublishedNetwork, PublishedTwin, fit_published
from paper.records import Trial
from twinned.neural import NeuralRegressor, NeuralTraining, TwinNeuralRegressor, fit_many
from twinned.rows.schema import Floats

STUDY, VARIANTS = "semi-supervised-networks", ("as_published", "modern")
SHARES, LOOP_WEIGHTS, N_ROUNDS = (0.1, 0.3, 0.7), (0.1, 1.0, 10.0), 2
PUBLISHED_PARTS = {"labelled": 0.3, "validation": 0.1, "unlabelled": 0.5, "test": 0.1}
PUBLISHED_SHARES, PUBLISHED_WEIGHTS = (PUBLISHED_PARTS["labelled"],), (1.0, 10.0, 100.0)
PUBLISHED_MEMBERS = 4  # of plain networks, whose agreement rates their pseudo-labels
MIN_LABELLED = 10
ACTIVATIONS = ("silu", "relu")  # of the two networks of co-training

Points = list[tuple[Floats, Floats]]  # X and y of each problem
Errors = dict[str, float]  # of test rows, and out of fold
Fit = Callable[[Points], list[Any]]  # labelled rows of each problem → fitted networks


class Problem(NamedTuple):
    """The rows of one split and share."""

    X: Floats  # labelled
    y: Floats
    X_unlabelled: Floats
    X_test: Floats
    y_test: Floats
    validation: tuple[Floats, Floats] | None = None  # as published, X and y


def semi_supervised_network_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    """Return a trial for each share of labelled rows."""
    settings: dict[str, Any] = {"effort": "fast", "loop_weights": list(LOOP_WEIGHTS)}
    shares: tuple[float, ...] = SHARES
    if variant == "as_published":
        settings = {"members": PUBLISHED_MEMBERS, "loop_weights": list(PUBLISHED_WEIGHTS)}
        shares = PUBLISHED_SHARES
    settings["rounds"] = N_ROUNDS
    return [Trial(STUDY, variant, dataset, split, settings | {"share": share}) for share in shares]


def run_semi_supervised_networks(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield test and out-of-fold errors of all methods; the splits of a share train at once."""

    def share(trial: Trial) -> float:
        return float(trial.settings["share"])

    for _, group in groupby(sorted(batch, key=share), share):
        trials = list(group)
        problems = [make_problem(trial) for trial in trials]
        settings, published = trials[0].settings, trials[0].variant == "as_published"
        fit: Any = _fit_published_twins if published else _fit_twins
        supervised, *of_loops = fit(problems, settings, [0.0, *settings["loop_weights"]])
        names = [f"{weight:g}" for weight in settings["loop_weights"]]
        loops = dict(zip(names, of_loops, strict=True))
        networks = _published_networks if published else _networks
        plain = _errors(networks(problems, settings, 0)(_labelled(problems)), problems)
        fits = [networks(problems, settings, number) for number in range(2)]
        co_training = _fit_co_training(problems, settings["rounds"], fits)
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
    if trial.variant == "as_published":
        return make_published_problem(trial)
    (X, y), test = training_and_test_rows(trial.dataset, trial.split)
    rows = np.random.RandomState(trial.split).permutation(len(y))
    n = max(MIN_LABELLED, round(trial.settings["share"] * len(rows)))
    return Problem(X[rows[:n]], y[rows[:n]], X[rows[n:]], *test)


def make_published_problem(trial: Trial) -> Problem:
    """Return the rows of the author's split: 30 % labelled, 10 %, 50 % unlabelled, 10 % test."""
    X, y = load_arrays(trial.dataset)
    order = np.random.RandomState(trial.split).permutation(len(y))
    n_validation, n_others = int(0.1 * len(y)), int(0.6 * len(y))
    n_labelled = len(y) - n_validation - n_others
    ends = np.cumsum([n_labelled, n_validation, n_others * 5 // 6])
    labelled, validation, unlabelled, test = np.split(order, ends)
    return Problem(
        X[labelled], y[labelled], X[unlabelled], X[test], y[test], (X[validation], y[validation])
    )


def _fit_twins(
    problems: list[Problem], settings: dict[str, Any], loop_weights: list[float]
) -> list[list[Errors]]:
    """Errors of twins on the labelled rows, and with loops through the unlabelled ones."""
    found = []
    for weight in loop_weights:
        estimator = TwinNeuralRegressor(loop_weight=weight, **_options(settings))
        sets = _labelled(problems)
        if weight:
            sets = [
                (np.concatenate([X, p.X_unlabelled]), np.append(y, [np.nan] * len(p.X_unlabelled)))
                for (X, y), p in zip(sets, problems, strict=True)
            ]
        found.append(_errors(fit_many(estimator, sets), problems))
    return found


def _fit_published_twins(
    problems: list[Problem], settings: dict[str, Any], loop_weights: list[float]
) -> list[list[Errors]]:
    """The same for the author's training: all loop weights are one program."""
    twin = PublishedTwin(random_state=0)
    estimators = [clone(twin).set_params(loop_weight=w) for w in loop_weights for _ in problems]
    sets = [_published_set(p, p.X, p.y, p.X_unlabelled) for _ in loop_weights for p in problems]
    models = fit_published(estimators, sets)
    starts = range(0, len(models), len(problems))
    return [_errors(models[i : i + len(problems)], problems) for i in starts]


def _networks(problems: list[Problem], settings: dict[str, Any], number: int) -> Fit:
    """How plain networks are fitted: those of one number differ from others in the activation."""
    return partial(fit_many, NeuralRegressor(**_options(settings, ACTIVATIONS[number])))


def _published_networks(problems: list[Problem], settings: dict[str, Any], number: int) -> Fit:
    """The same for the author's training: they differ in their random numbers."""
    network = PublishedNetwork(n_members=settings["members"], random_state=number)

    def fit(sets: Points) -> list[Any]:
        own = [_published_set(p, X, y) for p, (X, y) in zip(problems, sets, strict=True)]
        return fit_published([network] * len(sets), own)

    return fit


def _published_set(problem: Problem, X: Floats, y: Floats, *unlabelled: Floats) -> Any:
    assert problem.validation is not None
    return (X, y, None, *problem.validation, *unlabelled)


def _fit_co_training(problems: list[Problem], rounds: int, fits: list[Fit]) -> list[Errors]:
    """Errors of two networks, each of which is given by how it is fitted to labelled rows."""
    sets = [_labelled(problems) for _ in fits]
    remaining = [[np.arange(len(own.X_unlabelled)) for own in problems] for _ in fits]
    for number in range(rounds + 1):
        models = [fit(own) for fit, own in zip(fits, sets, strict=True)]
        if number == rounds:
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
    training = NeuralTraining(activation=activation)
    return {"effort": settings["effort"], "training": training, "random_state": 0}


def _labelled(problems: list[Problem]) -> Points:
    return [(problem.X, problem.y) for problem in problems]


def _errors(models: list[Any], problems: list[Problem]) -> list[Errors]:
    """Errors of test rows, and out of fold of labelled rows; as published, of validation rows."""
    found = []
    for model, own in zip(models, problems, strict=True):
        if own.validation is None:
            held_out = rmse(model.out_of_fold_prediction_[: len(own.y)], own.y)
        else:
            held_out = rmse(model.predict(own.validation[0]), own.validation[1])
        test = rmse(model.predict(own.X_test), own.y_test)
        found.append({"test": test, "out_of_fold": held_out})
    return found
