"""Figure C: seconds of whole trainings and of predictions, measured with one network alone.

The other studies train many networks at once, so their seconds do not show the time of one. Here
one network trains at a time, until its own stopping rule ends the training: a plain network, a twin
of all pairs, and twins of nearest pairs. A first training, which compiles, is not counted; each of
the others has a seed of its own. The machine should do nothing else meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from paper.data import split_rows
from paper.networks import make_estimator, training_settings
from paper.records import Trial
from twinned import NearestAnchors
from twinned.neural import NeuralRegressor, TwinNeuralRegressor

VARIANTS = ("as_published", "modern")
NEAREST_PAIRS = (2, 8, 32, 128)
ANCHORS = (1, 4, 16, 64)  # nearest anchors of the twin of all pairs
REPETITIONS = {"as_published": 3, "modern": 5}


def timing_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    """Return a trial for each kind of network on one split: repetitions differ in their seed."""
    if split > 0:
        return []
    kinds = [("plain", 0), ("all", 0), *(("nearest", k) for k in NEAREST_PAIRS)]
    settings = {"members": 1, "repetitions": REPETITIONS[variant], **training_settings(variant)}
    return [
        Trial("timing", variant, dataset, 0, settings | {"pairs": kind, "partners": partners})
        for kind, partners in kinds
    ]


def run_timing(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield seconds of each training and of predicting the test rows, by the number of anchors."""
    for trial in batch:
        train, (X_val, y_val), (X_test, _) = split_rows(trial.dataset, trial.split)
        held_out = {"X_val": X_val, "y_val": y_val}
        plain, n = trial.settings["pairs"] == "plain", trial.settings["repetitions"]
        kind: Any = NeuralRegressor if plain else TwinNeuralRegressor
        _shorten(make_estimator(trial, kind), trial.variant).fit(*train, **held_out)
        model = make_estimator(trial, kind)
        seconds = [
            _seconds(model.set_params(random_state=seed).fit, *train, **held_out)
            for seed in range(n)
        ]
        predictions = {}
        for name, anchors in _anchors(trial).items():
            timed = model if plain else model.with_strategies(anchors=anchors)
            predictions[name] = [_seconds(timed.predict, X_test) for _ in range(n + 1)][1:]
        yield trial, {"training": seconds, "prediction": predictions}


def _shorten(model: Any, variant: str) -> Any:
    """The estimator with the shortest training that has the same compiled program.

    The number of epochs is data of the program; that of our steps is not.
    """
    return model if variant == "modern" else model.set_params(max_epochs=1, patience=1)


def _anchors(trial: Trial) -> dict[str, Any]:
    """The anchors that predictions are timed with, by the name of their number."""
    if trial.settings["pairs"] == "nearest":
        k = trial.settings["partners"]
        return {str(k): NearestAnchors(k)}
    if trial.settings["pairs"] == "plain":
        return {"all": "all"}  # it has none
    return {"all": "all"} | {str(k): NearestAnchors(k) for k in ANCHORS}


def _seconds(call: Any, *arguments: Any, **options: Any) -> float:
    start = time.perf_counter()
    call(*arguments, **options)
    return time.perf_counter() - start
