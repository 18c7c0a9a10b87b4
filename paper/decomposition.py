"""Study V: bias, variance and covariance of ensembles of anchors and of networks.

For an ensemble of M estimates e_i(x), made from a random training set, the expected squared error
against the truth is

    bias² + variance / M + (1 − 1/M) covariance,

with the bias of the mean estimate, the mean variance of one estimate, and the mean covariance of
two (Ueda and Nakano). The paper's appendix derives it and does not measure it. Here 25 training
sets are drawn, the test points stay the same, and the truth is known: the formulas of TF, RCL and
WSB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper.bias_variance import bias_variance_covariance
from paper.data import Points
from paper.member_predictions import FittedTwin
from paper.networks import fit_all, make_network
from paper.records import Trial
from twinned.datasets import make_rcl, make_tf, make_wsb
from twinned.neural import NeuralRegressor, TwinNeuralRegressor

VARIANTS = ("as_published", "modern")
GENERATORS: dict[str, Any] = {"TF": make_tf, "RCL": make_rcl, "WSB": make_wsb}
N_SETS, N_TRAIN, N_TEST, N_MEMBERS = 25, 300, 200, 8
N_ANCHORS = 32


def expected_error(parts: dict[str, float], size: int) -> float:
    """Return the expected squared error of an ensemble of this size, by the formula."""
    return parts["bias"] + parts["variance"] / size + (1 - 1 / size) * parts["covariance"]


def decomposition_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    """Return one trial per formula."""
    if dataset not in GENERATORS or split != 0:
        return []
    settings = {
        "sets": N_SETS,
        "learn": N_TRAIN,
        "test": N_TEST,
        "members": N_MEMBERS,
        "anchors": N_ANCHORS,
        "effort": "balanced",
    }
    return [Trial("decomposition", variant, dataset, 0, settings)]


def run_decomposition(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield the parts for anchors of one twin, twins with all anchors, and plain networks."""
    for trial in batch:
        settings = trial.settings
        X_test, truth = _draw(trial.dataset, settings["test"], 0, noise=False)
        twins = [FittedTwin(model) for model in _fit_sets(trial, TwinNeuralRegressor)]
        estimates = [np.stack(list(twin.estimates(X_test))) for twin in twins]
        plain = [model.predict_members(X_test) for model in _fit_sets(trial, NeuralRegressor)]
        rng = np.random.RandomState(0)
        anchors = [rng.permutation(own.shape[2])[: settings["anchors"]] for own in estimates]
        ensembles = {  # (set, member, query) each
            "anchors": np.stack(
                [own[0][:, subset].T for own, subset in zip(estimates, anchors, strict=True)]
            ),
            "twins": np.stack([own.mean(axis=2) for own in estimates]),
            "networks": np.stack(plain),
        }
        yield (
            trial,
            {
                name: bias_variance_covariance(members, truth)
                | {"error": float(np.mean((members.mean(axis=1) - truth) ** 2))}
                for name, members in ensembles.items()
            },
        )


def _fit_sets(trial: Trial, kind: type[NeuralRegressor] | type[TwinNeuralRegressor]) -> list[Any]:
    """Return a fitted model for each training set; their seeds differ, as in the other studies."""
    settings = trial.settings
    models = [
        make_network(kind, trial, n_members=settings["members"], random_state=i)
        for i in range(settings["sets"])
    ]
    problems = []
    for i in range(settings["sets"]):
        X, y = _draw(trial.dataset, settings["learn"], 1 + i)
        n = 7 * len(y) // 8  # the last eighth is for early stopping
        problems.append((X[:n], y[:n], None, X[n:], y[n:]))
    return fit_all(models, problems)


def _draw(dataset: str, n: int, seed: int, noise: bool = True) -> Points:
    """Draw rows of a formula, with its noise or without."""
    options = {} if noise or dataset == "TF" else {"noise": 0.0}
    X, y = GENERATORS[dataset](n, random_state=seed, **options)
    return X.to_numpy(), y.to_numpy()
