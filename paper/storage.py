"""Figure F: how many numbers an ensemble stores.

E plain networks store E times their parameters. A twin with E anchors stores one network, whose
first layer is twice as wide, and E anchors of f features and one value. Beside the count, the bytes
of real saved models. `as_published` counts the paper's network, `modern` ours, which embeds each
feature in waves.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from paper.records import Run

FLAVOURS = ("as_published", "modern")
HIDDEN = (128, 128)
FREQUENCIES = {"as_published": 0, "modern": 16}
ENSEMBLE_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
FEATURE_COUNTS = (1, 10, 100, 1000)
MEASURED_FEATURES, MEASURED_SIZES = 10, (1, 4, 16)


def network_numbers(n_features: int, n_sides: int = 1, n_frequencies: int = 0) -> int:
    """Weights and biases of a network with one output; a twin's has two sides.

    With frequencies, each feature enters also as so many sines and cosines of them, which are
    learned once for both sides.

    >>> network_numbers(10), network_numbers(10, n_frequencies=16)
    (18049, 59169)
    """
    inputs = n_sides * n_features * (1 + 2 * n_frequencies)
    sizes = (inputs, *HIDDEN, 1)
    layers = sum(before * after + after for before, after in pairwise(sizes))
    return layers + n_features * n_frequencies


def ensemble_numbers(n_members: int, n_features: int, n_frequencies: int = 0) -> tuple[int, int]:
    """Numbers stored by so many plain networks, and by one twin with so many anchors.

    >>> ensemble_numbers(2, 10)
    (36098, 19351)
    """
    plain, twin = (network_numbers(n_features, sides, n_frequencies) for sides in (1, 2))
    return n_members * plain, twin + n_members * (n_features + 1)


def expand_figure_f(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    """One run, of no data set."""
    settings = {
        "hidden": list(HIDDEN),
        "frequencies": FREQUENCIES[flavour],
        "measured_features": MEASURED_FEATURES,
        "features": list(FEATURE_COUNTS),
        "sizes": list(ENSEMBLE_SIZES),
        "measured": [1, 2] if quick else list(MEASURED_SIZES),
    }
    return [Run("storage", flavour, dataset, split, settings)]


def execute_figure_f(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    for run in batch:
        settings = run.settings
        counted = {
            str(f): [
                ensemble_numbers(size, f, settings["frequencies"]) for size in settings["sizes"]
            ]
            for f in settings["features"]
        }
        saved = [saved_bytes(size, settings["frequencies"]) for size in settings["measured"]]
        yield run, {"numbers": counted, "bytes": saved}


def saved_bytes(size: int, n_frequencies: int) -> tuple[int, int]:
    """Bytes of saved models: so many plain networks, and a twin with so many anchors."""
    from twinned.neural import NeuralRegressor, TwinNeuralRegressor
    from twinned.pairing.anchors import RandomAnchors
    from twinned.persistence import save

    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(max(size, 20), MEASURED_FEATURES)), rng.normal(size=max(size, 20))
    # what is learned does not matter here
    few: dict[str, Any] = {"hidden_sizes": HIDDEN, "n_folds": 1}
    few |= {"embedding": 1.0 if n_frequencies else None, "n_frequencies": n_frequencies}
    few |= {"selection": "mean", "max_steps": 1, "random_state": 0}
    plain = NeuralRegressor(n_members=size, **few).fit(X, y)
    twin = TwinNeuralRegressor(n_members=1, anchors=RandomAnchors(size), **few).fit(X, y)
    with tempfile.TemporaryDirectory() as folder:
        sizes = []
        for name, model in (("plain", plain), ("twin", twin)):
            path = Path(folder) / name
            save(model, path)
            sizes.append(path.stat().st_size)
    return sizes[0], sizes[1]
