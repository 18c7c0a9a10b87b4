"""Table T5: random forests and their twins on 200 rows of each data set, by default the first.

`as_published` searches the author's grid of 54 points on each split, for the forest by five folds
of rows and for the twin by five folds of pairs, which leak: a pair and its mirror image fall into
different folds. `modern` has the points of a search that was made once for each data set, on the
training rows of split 0, with folds of samples (`paper/forest_search.py`).
`as_written` has random rows and the grid of the text, searched once
in both ways; it has no trials before that search.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import RandomForestRegressor

from paper.data import Points, forest_rows, rmse
from paper.records import Record, Trial
from twinned import TwinRegressor

N_TREES = 100
SEARCHES = {"as_published": "leaking", "modern": "sound", "as_written": "text_sound"}
VARIANTS = tuple(SEARCHES)


# without_differences: the features of a pair are those of both samples alone
METHODS = ("rf", "twinned_rf", "twinned_rf_leaking", "twinned_rf_without_differences")


def make_forest(trial: Trial, parameters: dict[str, Any], seed: int) -> RandomForestRegressor:
    """Return a forest; the number of trees is that of the trial where no search chose it."""
    return RandomForestRegressor(
        **({"n_estimators": trial.settings["trees"]} | parameters), random_state=seed
    )


@cache
def tuned_parameters() -> dict[str, dict[str, dict[str, Any]]]:
    """Return data set → plain, leaking, sound → parameters that the search of split 0 found."""
    text = Path(__file__).with_name("forest_settings.json").read_text("utf-8")
    parameters: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return parameters


def forest_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    """Return the trials of the forest and its twins."""
    settings: dict[str, Any] = {"trees": N_TREES}
    found = tuned_parameters()[dataset]
    methods: list[dict[str, Any]] = []
    if variant == "as_published":
        methods = [{"search": "rf"}, {"search": "twinned_rf"}]
    elif variant == "modern":
        twin = found["sound"]
        methods = [{"rf": found["plain"], "twinned_rf": twin}, {METHODS[-1]: twin}]
    else:
        settings |= {"rows": "random", "rf": found["text_plain"]}
        methods = [{"twinned_rf": found["text_sound"], "twinned_rf_leaking": found["text_leaking"]}]
    return [Trial("forests", variant, dataset, split, settings | own) for own in methods]


def run_forests(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield the test RMSE of the forest and of its twins, and the parameters that were searched."""
    for trial in batch:
        settings = trial.settings
        result: dict[str, Any] = {}
        if "search" in settings:
            name = settings["search"]
            result["parameters"] = search_parameters(trial)
            result[name] = forest_error(trial, name, result["parameters"])
        for name in (name for name in METHODS if name in settings):
            # both searches of the twin may have found the same parameters
            is_repeated = "twinned_rf" in result and settings[name] == settings["twinned_rf"]
            result[name] = (
                result["twinned_rf"] if is_repeated else forest_error(trial, name, settings[name])
            )
        yield trial, result


def search_parameters(trial: Trial) -> dict[str, Any]:
    """Return the best point of the author's grid for the training rows of a split."""
    from paper.forest_grid import search_grid  # which loads numba

    (X, y), _ = forest_rows(trial.dataset, trial.split)
    if trial.settings["search"] != "rf":
        X, y = all_pairs(X, y)
    return search_grid(X, y, trial.settings["trees"], trial.split)


def all_pairs(X: Any, y: Any) -> Points:
    """Return features and differences of all pairs, those of a first sample together."""
    first, second = np.repeat(np.arange(len(y)), len(y)), np.tile(np.arange(len(y)), len(y))
    X = np.column_stack([X[first], X[second], X[first] - X[second]]).astype(np.float32)
    return X, y[first] - y[second]


def forest_error(trial: Trial, name: str, parameters: dict[str, Any]) -> float:
    """Return the test RMSE of the forest or of a twin."""
    is_random = trial.settings.get("rows") == "random"
    train, (X_test, y_test) = forest_rows(trial.dataset, trial.split, is_random)
    model: Any = make_forest(trial, parameters, trial.split)
    if name != "rf":
        features = "concat" if name == METHODS[-1] else "concat+difference"
        model = TwinRegressor(
            model, pairs="all", symmetric=False, pair_features=features, random_state=trial.split
        )
    return rmse(model.fit(*train).predict(X_test), y_test)


def forest_errors(record: Record) -> dict[str, float]:
    """Return method → test RMSE."""
    return {name: record["result"][name] for name in METHODS if name in record["result"]}
