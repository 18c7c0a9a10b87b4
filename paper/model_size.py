"""Figure F: how many numbers an ensemble stores.

E plain networks store E times their parameters. A twin with E anchors stores one network, with
a first layer of twice the width, and E anchors of f features and one value. The bytes of saved
models are measured as well. `as_published` counts the paper's network, `modern` ours, which also
embeds each feature as sines and cosines.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from paper.records import Trial
from twinned import RandomAnchors, save
from twinned.neural import NeuralRegressor, NeuralTraining, TwinNeuralRegressor

VARIANTS = ("as_published", "modern")
HIDDEN = (128, 128)
FREQUENCIES = {"as_published": 0, "modern": 16}
ENSEMBLE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
FEATURE_COUNTS = (1, 10, 100, 1000)
MEASURED_FEATURES, MEASURED_SIZES = 10, (1, 4, 16)


def count_parameters(n_features: int, n_sides: int = 1, n_frequencies: int = 0) -> int:
    """Return the number of weights and biases of a network with one output; a twin has two sides.

    With frequencies, each feature also enters as so many sines and cosines; the frequencies are
    parameters that both sides share.

    >>> count_parameters(10), count_parameters(10, n_frequencies=16)
    (18049, 59169)
    """
    inputs = n_sides * n_features * (1 + 2 * n_frequencies)
    sizes = (inputs, *HIDDEN, 1)
    layers = sum(before * after + after for before, after in pairwise(sizes))
    return layers + n_features * n_frequencies


def count_stored_numbers(size: int, n_features: int, n_frequencies: int = 0) -> tuple[int, int]:
    """Return the numbers stored by `size` plain networks, and by one twin with `size` anchors.

    >>> count_stored_numbers(2, 10)
    (36098, 19351)
    """
    plain, twin = (count_parameters(n_features, sides, n_frequencies) for sides in (1, 2))
    return size * plain, twin + size * (n_features + 1)


def size_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    """Return one trial, which uses no data set."""
    settings = {
        "hidden": list(HIDDEN),
        "frequencies": FREQUENCIES[variant],
        "measured_features": MEASURED_FEATURES,
        "features": list(FEATURE_COUNTS),
        "sizes": list(ENSEMBLE_SIZES),
        "measured": list(MEASURED_SIZES),
    }
    return [Trial("storage", variant, dataset, split, settings)]


def run_sizes(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield counts by the number of features, and bytes of saved models."""
    for trial in batch:
        settings = trial.settings
        counts = {
            str(f): [
                count_stored_numbers(size, f, settings["frequencies"]) for size in settings["sizes"]
            ]
            for f in settings["features"]
        }
        saved = [saved_bytes(size, settings["frequencies"]) for size in settings["measured"]]
        yield trial, {"numbers": counts, "bytes": saved}


def saved_bytes(size: int, n_frequencies: int) -> tuple[int, int]:
    """Return the bytes of saved models: `size` plain networks, and a twin with `size` anchors."""
    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(max(size, 20), MEASURED_FEATURES)), rng.normal(size=max(size, 20))
    # one step: the values of the weights do not matter here
    training = NeuralTraining(max_steps=1, n_folds=1, selection="mean")
    training.set_params(embedding=1.0 if n_frequencies else None)
    options: dict[str, Any] = {"hidden_sizes": HIDDEN, "training": training, "random_state": 0}
    plain = NeuralRegressor(n_members=size, **options).fit(X, y)
    twin = TwinNeuralRegressor(n_members=1, anchors=RandomAnchors(size), **options).fit(X, y)
    return saved_size(plain), saved_size(twin)


def saved_size(model: Any) -> int:
    """Return the bytes of a saved model."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.twin"
        save(model, path)
        return path.stat().st_size
