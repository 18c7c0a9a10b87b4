"""Possible causes of the printed errors of TF, RCL and WSB, each tried alone on all nine sets.

The paper's own training reproduces the twins of the six sets with noise, and has lower errors than
printed on TF, RCL and WSB. Each candidate is a rule of the training that neither the text nor the
description of the author's code states, changed here alone and not in the reproduction. One that
is the cause brings TF, RCL and WSB to print together and leaves the six others.

Every candidate has errors with one anchor, drawn at random for each row, with all, and with the
best number of nearest anchors. Results: `benchmarks/results/as_published_candidates.csv`; the page
of the reproduction has them as factors.

    python -m paper.as_published_candidates                       # minutes on a GPU
    python -m paper.as_published_candidates --datasets WSB --n-splits 2 --n-members 1

The candidate of the hypothesis of the page has errors of each split:

    python -m paper.as_published_candidates --hypothesis --n-splits 25 --n-members 32
"""

import sys
from collections import namedtuple
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import frame
from paper import published, published_training
from paper.data import rmse, split_rows
from paper.member_predictions import FittedTwin, errors_by_n_neighbors
from paper.networks import NEIGHBORS
from twinned.datasets import KEYS
from twinned.models.neural.trainable_network import fold_in, integers

COLUMNS = [
    "candidate", "dataset", "rmse_1_anchor:.5g", "rmse_all_anchors:.5g",
    "rmse_nearest:.5g", "rmse_ensemble:.5g", "epochs:.0f", "splits", "members", "seconds:.3g",
]  # fmt: skip


class Rules(NamedTuple):
    """The rules of training that candidates change; the defaults are those of the reproduction."""

    loss_factor: float = 1.0
    least_fall: float = published_training.LEAST_FALL  # of the training loss, for the plateau
    epsilon: float = 1e-7  # of Adadelta
    n_triples: float = 0.0  # of validation; 0: one for each validation row
    fresh_triples: float = 0.0  # 1: validation triples are drawn anew in every epoch
    least_validation_fall: float = 0.0


CANDIDATES = {
    "none": Rules(),
    "loss × 3": Rules(loss_factor=3.0),
    "loss × 3/4": Rules(loss_factor=0.75),
    "loss × 1/3": Rules(loss_factor=1 / 3),
    "loss × 1/8": Rules(loss_factor=1 / 8),
    "plateau threshold × 10": Rules(least_fall=1e-3),
    "plateau threshold 1e-5": Rules(least_fall=1e-5),
    "plateau threshold 0": Rules(least_fall=0.0),
    "rate never halved": Rules(least_fall=-np.inf),
    "epsilon 1e-8": Rules(epsilon=1e-8),
    "epsilon 1e-6": Rules(epsilon=1e-6),
    "epsilon 1e-5": Rules(epsilon=1e-5),
    "8 validation triples": Rules(n_triples=8),
    "16 validation triples": Rules(n_triples=16),
    "fresh validation triples": Rules(fresh_triples=1),
    "16 fresh validation triples": Rules(n_triples=16, fresh_triples=1),
    "validation threshold 1e-4": Rules(least_validation_fall=1e-4),
    "never halved, threshold 1e-4": Rules(least_fall=-np.inf, least_validation_fall=1e-4),
}

HYPOTHESIS = "never halved, threshold 1e-4"

CandidateData: Any = namedtuple(  # type: ignore[misc]
    "CandidateData", [*published_training.NetworkData._fields, "rules"]
)


class CandidateTwin(published.PublishedTwin):
    """Twins as published, with the rules of a candidate."""

    def __init__(self, candidate="none", n_members=1, random_state=None):
        super().__init__(n_members=n_members, random_state=random_state)
        self.candidate = candidate


def stack_with_rules(estimators, group, n_features, stack=published._stack_problems):
    """Return the data of all problems, of which the rules are a part."""
    rules = [CANDIDATES[own.candidate] for own in estimators]
    arrays = Rules._make(np.array(values, np.float32) for values in zip(*rules, strict=True))
    return CandidateData._make([*stack(estimators, group, n_features), arrays])


def validation_loss(losses, parameters, epoch):
    """The validation loss by the rules of a candidate."""
    data, rules = losses.data, losses.data.rules
    rows, n_rows = data.held_out, jnp.maximum(data.n_held_out, 1)
    key = fold_in(losses.key, 3)
    key = jnp.where(rules.fresh_triples > 0, fold_in(key, 10 + epoch), key)
    others = [rows[integers(fold_in(key, i), n_rows, rows.shape[0])] for i in range(2)]
    # fresh triples have a fresh first row, too
    first = rows[integers(fold_in(key, 2), n_rows, rows.shape[0])]
    first = jnp.where(rules.fresh_triples > 0, first, rows)
    a, b = jnp.concatenate([first, *others]), jnp.concatenate([*others, first])
    used = jnp.where(rules.n_triples > 0, rules.n_triples, n_rows)
    inside = (jnp.arange(rows.shape[0]) < used).astype(jnp.float32)
    return jnp.sum(jnp.tile(inside, 3) * losses._pair_squares(parameters, a, b)) / (3.0 * used)


def train_epoch(losses, epoch, steps, limits, state):
    """One epoch of `paper.published_training`, with the rules of a candidate."""
    rules = losses.data.rules

    def loss_of(parameters, number):
        key = fold_in(losses.key, 8 + 2 * (epoch * steps + number))
        return rules.loss_factor * losses.of_differences(parameters, key)

    def adadelta(weight, gradient, squares, updates):
        squares = 0.95 * squares + 0.05 * gradient**2
        update = gradient * jnp.sqrt(updates + rules.epsilon) / jnp.sqrt(squares + rules.epsilon)
        return weight - state.rate * update, squares, 0.95 * updates + 0.05 * update**2

    def step(number, carry):
        parameters, momentum, total = carry
        loss, gradient = jax.value_and_grad(loss_of)(parameters, number)
        new = {
            name: adadelta(parameters[name], gradient[name], momentum.e_g[name], momentum.e_x[name])
            for name in parameters
        }
        parameters, squares, updates = ({n: new[n][i] for n in new} for i in range(3))
        return parameters, momentum._replace(e_g=squares, e_x=updates), total + loss

    carry = state.parameters, state.momentum, jnp.float32(0.0)
    parameters, momentum, total = jax.lax.fori_loop(0, steps, step, carry)
    loss, error = total / steps, validation_loss(losses, parameters, epoch)
    falls = rules.least_fall, rules.least_validation_fall
    new = state.after_epoch(parameters, momentum, loss, error, epoch, limits, falls)
    return new, jnp.sqrt(error)


@contextmanager
def training_with_rules():
    """Context in which the compiled program of `paper.published_training` has rules."""
    jax.clear_caches()
    try:
        with (
            patch.object(published, "_stack_problems", stack_with_rules),
            patch.object(published_training, "_train_epoch", train_epoch),
        ):
            yield
    finally:
        jax.clear_caches()


def fit_candidates(dataset, candidates, n_splits, n_members):
    """Return the twins of all candidates on all splits, one program, and the test rows."""
    splits = [split_rows(dataset, seed) for seed in range(n_splits)]
    twins = [CandidateTwin(name, n_members, 0) for name in candidates for _ in splits]
    problems = [(*train, None, *held_out) for train, held_out, _ in splits] * len(candidates)
    with training_with_rules():
        return published.fit_published(twins, problems), [test for _, _, test in splits]


def run_hypothesis(dataset, *, hypothesis, n_splits, n_members):
    """Return the errors of the candidate of the hypothesis on each split."""
    models, tests = fit_candidates(dataset, [HYPOTHESIS], n_splits, n_members)
    rows = []
    for split, (model, test) in enumerate(zip(models, tests, strict=True)):
        one, every, ensemble, *nearest = split_errors(model, *test)
        row = {"split": split, "members": n_members, "1_anchor": one, "all_anchors": every}
        found = dict(zip(NEIGHBORS, nearest, strict=False))  # as many as there are anchors
        by_number = {f"nearest_{k}": found.get(k, np.nan) for k in NEIGHBORS}
        rows.append(row | {"ensemble": ensemble} | by_number)
    return rows


def run_candidates(dataset, *, candidates, n_splits, n_members):
    """Return the mean errors of each candidate and prediction; all are trained as one program."""
    models, tests = fit_candidates(dataset, candidates, n_splits, n_members)
    rows = []
    for number, name in enumerate(candidates):
        own = models[number * n_splits : (number + 1) * n_splits]
        curves = [model.learning_curve_ for model in own]
        errors = [split_errors(model, *test) for model, test in zip(own, tests, strict=True)]
        one, every, ensemble, *nearest = np.mean(errors, axis=0)
        rows.append(
            {
                "candidate": name,
                "rmse_1_anchor": one,
                "rmse_all_anchors": every,
                "rmse_nearest": min(nearest),
                "rmse_ensemble": ensemble,
                "epochs": np.mean([np.isfinite(c).sum(axis=1).mean() for c in curves]),
                "splits": n_splits,
                "members": n_members,
            }
        )
    return rows


def split_errors(model, X, y):
    """Errors with one anchor and with all, of one network, and of all members with all anchors.

    The others are of one network with nearest anchors, by their number.
    """
    twin = FittedTwin(model)
    sizes = [k for k in NEIGHBORS if k <= len(twin.anchors_y)]
    nearest = twin.nearest_anchors(X, max(sizes))
    predicted, single = [], []
    for own in twin.estimates(X):
        predicted.append(own.mean(axis=1))
        # the expected error of an anchor that is drawn at random for each row
        one = np.sqrt(np.mean((own - y[:, None]) ** 2))
        by_number = errors_by_n_neighbors(own, y, nearest, sizes)
        single.append([one, rmse(predicted[-1], y), *by_number.values()])
    one, every, *by_number = np.mean(single, axis=0)
    return [one, every, rmse(np.mean(predicted, axis=0), y), *by_number]


BENCHMARK = frame.Benchmark(
    "as_published_candidates",
    __doc__,
    COLUMNS,
    run=run_candidates,
    trial=("dataset",),
    axes={"dataset": list(KEYS)},
    options={"candidates": list(CANDIDATES), "n_splits": 5, "n_members": 4},
)

ERRORS = ["1_anchor", "all_anchors", "ensemble", *(f"nearest_{k}" for k in NEIGHBORS)]
BENCHMARK_HYPOTHESIS = frame.Benchmark(
    "hypothesis",
    __doc__,
    ["dataset", "split", "members", *(f"{name}:.5g" for name in ERRORS), "seconds:.3g"],
    run=run_hypothesis,
    trial=("dataset",),
    axes={"dataset": list(KEYS)},
    options={"hypothesis": False, "n_splits": 25, "n_members": 32},
)

if __name__ == "__main__":
    (BENCHMARK_HYPOTHESIS if "--hypothesis" in sys.argv else BENCHMARK).main()
