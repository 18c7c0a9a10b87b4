"""Table T5: random forests and their twins on 200 rows of each data set, by default the first.

Hyperparameters were searched once for each data set, on the training rows of seed 0, over the
author's grid of 54 points (`benchmarks/table5_tuned.py`). `as_published` has those of the author's
search with its leaking folds of pairs; `modern` those of a sound one, with folds of points.
`as_written` has random rows and the grid of the text (`benchmarks/forest_search.py`), searched in
both ways; it has no trials before that search.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from sklearn.ensemble import RandomForestRegressor

from paper.data import forest_rows, rmse
from paper.records import Trial
from twinned import TwinRegressor

N_TREES = 100
SEARCHES = {"as_published": "leaking", "modern": "sound", "as_written": "text_sound"}
VARIANTS = tuple(SEARCHES)


METHODS = ("rf", "twinned_rf", "twinned_rf_leaking")


def make_forest(trial: Trial, parameters: dict[str, Any], seed: int) -> RandomForestRegressor:
    """Return a forest; the number of trees is that of the trial where no search chose it."""
    return RandomForestRegressor(
        **({"n_estimators": trial.settings["trees"]} | parameters), random_state=seed
    )


@cache
def tuned_parameters() -> dict[str, dict[str, dict[str, Any]]]:
    """Return data set → plain, leaking, sound → parameters that the search found."""
    text = Path(__file__).with_name("forest_settings.json").read_text("utf-8")
    parameters: dict[str, dict[str, dict[str, Any]]] = json.loads(text)
    return parameters


def forest_trials(variant: str, dataset: str, split: int, quick: bool) -> list[Trial]:
    """Return one trial per split, of the forest and its twin; `quick` has a fifth of the trees."""
    found = tuned_parameters()[dataset]
    if SEARCHES[variant] not in found:
        return []
    settings: dict[str, Any] = {"trees": N_TREES // 5 if quick else N_TREES}
    if variant == "as_written":
        settings |= {"rows": "random", "rf": found["text_plain"]}
        settings |= {"twinned_rf": found["text_sound"]}
        settings |= {"twinned_rf_leaking": found["text_leaking"]}
    else:
        settings |= {"rf": found["plain"], "twinned_rf": found[SEARCHES[variant]]}
    return [Trial("forests", variant, dataset, split, settings)]


def run_forests(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield the test RMSE of the forest and of its twins."""
    for trial in batch:
        settings = trial.settings
        result: dict[str, float] = {}
        for name in (name for name in METHODS if name in settings):
            # both searches of the twin may have found the same parameters
            is_repeated = "twinned_rf" in result and settings[name] == settings["twinned_rf"]
            result[name] = result["twinned_rf"] if is_repeated else forest_error(trial, name)
        yield trial, result


def forest_error(trial: Trial, name: str) -> float:
    """Return the test RMSE of the forest or of a twin with the parameters of the trial."""
    is_random = trial.settings.get("rows") == "random"
    train, (X_test, y_test) = forest_rows(trial.dataset, trial.split, is_random)
    model: Any = make_forest(trial, trial.settings[name], trial.split)
    if name != "rf":
        model = TwinRegressor(model, pairs="all", symmetric=False, random_state=trial.split)
    return rmse(model.fit(*train).predict(X_test), y_test)
