"""Figure C: seconds of training and prediction, against the number of neighbors.

The other studies train many networks at once, so their seconds do not show the time of one. Here
one network trains alone, twice, for fewer and for more steps: the difference is the time of a step,
without compilation. The figure multiplies it by the number of steps of the training. The number of
neighbors enters training only through the number of epochs, and prediction through the number of
anchors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from paper.data import split_rows
from paper.records import Trial
from twinned import NearestAnchors
from twinned.neural import NeuralRegressor, TwinNeuralRegressor

VARIANTS = ("as_published", "modern")
EPOCHS, STEPS = (8, 40), (200, 1000)  # of the shorter and the longer training
ANCHORS = (1, 4, 16, 64)
PREDICTIONS = 3  # of which the fastest is taken


def timing_trials(variant: str, dataset: str, split: int, quick: bool) -> list[Trial]:
    """Return one trial per data set: the time of a step does not depend on the split."""
    settings: dict[str, Any] = {"anchors": list(ANCHORS)}
    if quick:
        settings["lengths"] = [length // 4 for length in _lengths(variant)]
    return [Trial("timing", variant, dataset, 0, settings)] if split == 0 else []


def _lengths(variant: str) -> tuple[int, int]:
    return STEPS if variant == "modern" else EPOCHS


def run_timing(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield seconds of a step (modern) or an epoch, and of predicting the test rows."""
    for trial in batch:
        train, validation, (X_test, _) = split_rows(trial.dataset, trial.split)
        kinds: dict[str, Any] = {"plain": NeuralRegressor, "twin": TwinNeuralRegressor}
        result: dict[str, Any] = {}
        for name, kind in kinds.items():
            lengths = trial.settings.get("lengths", _lengths(trial.variant))
            models = [_estimator(kind, trial.variant, length) for length in lengths]
            for model in models:  # compile
                model.fit(*train, None, *validation)
            seconds = [_seconds(model.fit, *train, None, *validation) for model in models]
            result[f"{name}_unit"] = (seconds[1] - seconds[0]) / (lengths[1] - lengths[0])
            result[f"{name}_predict"] = _fastest_prediction(models[1], X_test)
        result["nearest_predict"] = {
            str(k): _fastest_prediction(models[1].set_params(anchors=NearestAnchors(k)), X_test)
            for k in trial.settings["anchors"]
        }
        yield trial, result


def _estimator(kind: Any, variant: str, length: int) -> Any:
    if variant == "modern":
        options = {"n_members": 1, "n_folds": 1, "selection": "mean", "max_steps": length}
        return kind(**options, random_state=0)
    return kind.as_published(max_epochs=length, patience=length, random_state=0)


def _seconds(call: Any, *arguments: Any) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def _fastest_prediction(model: Any, X: Any) -> float:
    model.predict(X)  # compile
    return min(_seconds(model.predict, X) for _ in range(PREDICTIONS))
