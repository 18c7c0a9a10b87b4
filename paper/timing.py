"""Figure C: how long training and predicting take, against the number of neighbours.

Many networks train at once in the other studies, so their clock says little. Here one network
trains alone, twice, for fewer and for more steps: the difference is the time of a step, free of
compiling. The figure multiplies it by the steps that the training took. The number of neighbours
enters training only through the number of epochs, and predicting through the number of anchors.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from paper.networks import rows_of
from paper.records import Run

FLAVOURS = ("as_published", "modern")
EPOCHS, STEPS = (8, 40), (200, 1000)  # of the shorter and the longer training
ANCHORS = (1, 4, 16, 64)
PREDICTIONS = 3  # of which the quickest counts


def expand_timing(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    """One run a data set: the time of a step does not depend on the split."""
    settings: dict[str, Any] = {"anchors": list(ANCHORS)}
    if quick:
        settings["lengths"] = [length // 4 for length in _lengths(flavour)]
    return [Run("timing", flavour, dataset, 0, settings)] if split == 0 else []


def _lengths(flavour: str) -> tuple[int, int]:
    return STEPS if flavour == "modern" else EPOCHS


def execute_timing(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Seconds of a step (modern) or of an epoch (as published), and of predicting the test rows."""
    from twinned.neural import NeuralRegressor, TwinNeuralRegressor
    from twinned.pairing.anchors import NearestAnchors

    for run in batch:
        learn, validation, test = rows_of(run.dataset, run.split)
        kinds: dict[str, Any] = {"plain": NeuralRegressor, "twin": TwinNeuralRegressor}
        result: dict[str, Any] = {}
        for name, kind in kinds.items():
            lengths = run.settings.get("lengths", _lengths(run.flavour))
            options = [_options(run.flavour, length) for length in lengths]
            models = [kind(**own).set_params(random_state=0) for own in options]
            for model in models:  # compile
                model.fit(*learn, X_val=validation[0], y_val=validation[1])
            seconds = [
                _seconds(model.fit, *learn, None, validation[0], validation[1]) for model in models
            ]
            result[f"{name}_unit"] = (seconds[1] - seconds[0]) / (lengths[1] - lengths[0])
            model = models[1]
            if name == "plain":
                result["plain_predict"] = _quickest(model, test[0])
                continue
            result["twin_predict"] = _quickest(model, test[0])
            result["nearest_predict"] = {
                str(k): _quickest(model.set_params(anchors=NearestAnchors(k)), test[0])
                for k in run.settings["anchors"]
            }
        yield run, result


def _options(flavour: str, length: int) -> dict[str, Any]:
    from twinned.models.neural.published import published_parameters

    if flavour == "modern":
        return {"n_members": 1, "n_folds": 1, "selection": "mean", "max_steps": length}
    # the plain network's settings differ in what is set here alone
    settings = published_parameters(True, "published")
    return settings | {"max_epochs": length, "patience": length}


def _seconds(call: Any, *arguments: Any) -> float:
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def _quickest(model: Any, X: Any) -> float:
    model.predict(X)  # compile
    return min(_seconds(model.predict, X) for _ in range(PREDICTIONS))
