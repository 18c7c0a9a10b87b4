"""Table T5: random forests and their twins on the first 200 rows of each data set.

Hyperparameters were searched once for each data set, on the training rows of seed 0, over the
author's grid of 54 points (`benchmarks/table5_tuned.py`). `as_published` has those of the author's
search, whose folds of pairs leak; `modern` those of a sound one, with folds of points.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np

from paper.records import Run
from twinned._table import Floats

N_TREES = 100
SEARCHES = {"as_published": "leaking", "modern": "sound"}
FLAVOURS = tuple(SEARCHES)


@cache
def found_settings() -> dict[str, dict[str, dict[str, Any]]]:
    """Data set → plain, leaking, sound → what the search found."""
    text = files("paper").joinpath("forest_settings.json").read_text("utf-8")
    settings: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return settings


def expand_table5(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    """One run a split: the forest and its twin. `quick` has a fifth of the trees."""
    found = found_settings()[dataset]
    settings = {
        "trees": N_TREES // 5 if quick else N_TREES,
        "rf": found["plain"],
        "twinned_rf": found[SEARCHES[flavour]],
    }
    return [Run("forests", flavour, dataset, split, settings)]


def execute_table5(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Test RMSE of both."""
    from sklearn.ensemble import RandomForestRegressor

    from twinned.estimators.twin import TwinRegressor

    for run in batch:
        learn, test = first_rows(run.dataset, run.split)
        result = {}
        for name in ("rf", "twinned_rf"):
            model: Any = RandomForestRegressor(
                run.settings["trees"], random_state=run.split, **run.settings[name]
            )
            if name == "twinned_rf":
                model = TwinRegressor(model, pairs="all", symmetric=False, random_state=run.split)
            result[name] = rmse(model.fit(*learn).predict(test[0]), test[1])
        yield run, result


def first_rows(dataset: str, split: int) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """100 rows to learn from and 100 to predict, of the first 200."""
    from twinned.datasets import forest_split, load

    table, values = load(dataset)
    X, y = table.to_numpy()[:200], values.to_numpy()[:200]
    train, test = forest_split(split)
    return (X[train], y[train]), (X[test], y[test])


def rmse(predicted: Any, y: Any) -> float:
    return float(np.sqrt(np.mean((np.ravel(predicted) - y) ** 2)))
