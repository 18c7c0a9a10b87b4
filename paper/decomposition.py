"""The appendix, measured: bias, variance and covariance of ensembles of anchors and of networks.

For an ensemble of M estimates e_i(x), made from a random training set, the expected square error
against the truth is

    bias² + variance / M + (1 − 1/M) covariance,

with the bias of the mean estimate, the mean variance of one estimate, and the mean covariance of
two (Ueda and Nakano). The paper derives it and does not measure it. Here 25 training sets are drawn
anew, the test points stay the same, and the truth is known: the formulas of TF, RCL and WSB.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper.networks import member_estimates
from paper.records import Run
from twinned._table import Floats
from twinned.diagnostics.uncertainty_checks import bias_variance_covariance

FORMULAS = ("TF", "RCL", "WSB")
N_SETS, N_LEARN, N_TEST, N_MEMBERS = 25, 300, 200, 8
N_ANCHORS = 32


def expected_error(parts: dict[str, float], size: int) -> float:
    """What the formula says of an ensemble of this size."""
    return parts["bias"] + parts["variance"] / size + (1 - 1 / size) * parts["covariance"]


def expand_decomposition(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    """One run a formula."""
    if dataset not in FORMULAS or split != 0:
        return []
    settings = {
        "sets": 4 if quick else N_SETS,
        "learn": 60 if quick else N_LEARN,
        "test": N_TEST,
        "members": 2 if quick else N_MEMBERS,
        "anchors": N_ANCHORS,
        "effort": "fast" if quick else "balanced",
    }
    return [Run("decomposition", flavour, dataset, 0, settings)]


def execute_decomposition(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Parts for anchors of one twin, for twins with all anchors, and for plain networks."""
    from twinned.neural import NeuralRegressor, TwinNeuralRegressor, fit_many

    for run in batch:
        settings = run.settings
        sets = [_draw(run.dataset, settings["learn"], 1 + i) for i in range(settings["sets"])]
        test, truth = _draw(run.dataset, settings["test"], 0, noise=False)
        options: dict[str, Any] = {"n_members": settings["members"], "random_state": 0}
        if run.flavour == "modern":
            options |= {"n_folds": 1, "selection": "mean", "effort": settings["effort"]}
        told = {}
        for kind in (TwinNeuralRegressor, NeuralRegressor):
            make: Any = kind if run.flavour == "modern" else kind.as_published
            # the networks' own draws differ from set to set, as in the other studies
            each = [make(**options | {"random_state": i}) for i in range(len(sets))]
            told[kind.__name__] = fit_many(each, [_problem(own) for own in sets])
        twins = [np.stack(list(member_estimates(m, test))) for m in told["TwinNeuralRegressor"]]
        plain = [model.predict_members(test) for model in told["NeuralRegressor"]]
        rng = np.random.RandomState(0)
        some = [rng.permutation(own.shape[2])[: settings["anchors"]] for own in twins]
        views = {
            "anchors": np.stack([own[0][:, a].T for own, a in zip(twins, some, strict=True)]),
            "twins": np.stack([own.mean(axis=2) for own in twins]),
            "networks": np.stack(plain),
        }
        yield (
            run,
            {
                name: bias_variance_covariance(seen, truth)
                | {"error": float(np.mean((seen.mean(axis=1) - truth) ** 2))}
                for name, seen in views.items()
            },
        )


def _problem(points: tuple[Floats, Floats]) -> tuple[Any, ...]:
    """Seven eighths to learn from, the rest to stop by."""
    X, y = points
    n = 7 * len(y) // 8
    return X[:n], y[:n], None, X[n:], y[n:]


def _draw(dataset: str, n: int, seed: int, noise: bool = True) -> tuple[Floats, Floats]:
    """Rows of a formula, with its noise or without."""
    from twinned.datasets import make_rcl, make_tf, make_wsb

    make: Any = {"TF": make_tf, "RCL": make_rcl, "WSB": make_wsb}[dataset]
    options = {} if noise or dataset == "TF" else {"noise": 0.0}
    X, y = make(n, random_state=seed, **options)
    return X.to_numpy(), y.to_numpy()
