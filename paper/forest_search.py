"""Hyperparameters of the forests, searched once for each data set on the training rows of split 0.

By successive halving over the number of trees with five folds, for the plain forest, for the twin
with folds of pairs (*leaking*, as by the author) and for the twin with folds of rows (*sound*), in
two grids: that of the author's code on the first 200 rows, and that of the paper's text on random
rows (*text_plain*, …). The grid of the text has 405 points: 135 and three numbers of trees. Of the
135, 90 grow different forests, as `min_samples_split` has no effect up to twice
`min_samples_leaf`; the number of trees of the best point is chosen by the same folds.
`python -m paper run T5 --variant as_published` searches each split instead.

    python -m paper.forest_search --jobs 16

Results: `benchmarks/results/forest_search.csv`, which is not committed, and the chosen points in
`paper/forest_settings.json`, which `python -m paper run` reads. An interrupted search continues.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.model_selection import HalvingGridSearchCV, KFold, check_cv

from benchmarks import frame
from paper import forests
from paper.data import forest_rows, rmse
from paper.forest_grid import GRID
from twinned.datasets import KEYS
from twinned.pairing.pairs import pair_folds

COLUMNS = ["dataset", "kind", "params", "seconds:.4g"]
TEXT = "text_"
KINDS = ("plain", "leaking", "sound")
LEAVES_AND_SPLITS = {1: [2, 4, 8], 2: [4, 8], 5: [8]}  # min_samples_leaf → min_samples_split
TEXT_GRID = [
    {
        "max_depth": [4, 8, 16, 32, 64],
        "max_features": [0.33, 0.667, 1.0],
        "min_samples_leaf": [leaf],
        "min_samples_split": splits,
    }
    for leaf, splits in LEAVES_AND_SPLITS.items()
]
SEARCH_TREES = 200  # of the grid of the text
TREES = (100, 300, 600)
SETTINGS = Path(forests.__file__).with_name("forest_settings.json")


def search(dataset: str, kind: str, n_jobs: int) -> dict[str, Any]:
    """Return the best point of the grid, and the seconds of the search."""
    in_text = kind.startswith(TEXT)
    (X, y), _ = forest_rows(dataset, 0, random=in_text)
    folds: Any = KFold(5)
    if not kind.endswith("plain"):
        if kind.endswith("sound"):
            rows = np.arange(len(y))
            folds = pair_folds(folds, np.repeat(rows, len(y)), np.tile(rows, len(y)), y)
        X, y = forests.all_pairs(X, y)
    start = time.perf_counter()
    found = HalvingGridSearchCV(
        RandomForestRegressor(random_state=0),
        TEXT_GRID if in_text else GRID,
        resource="n_estimators",
        max_resources=SEARCH_TREES if in_text else forests.N_TREES,
        factor=3,
        cv=folds,
        scoring="neg_mean_squared_error",
        refit=False,
        random_state=0,
        n_jobs=n_jobs,
    ).fit(X, y)
    best = {name: found.best_params_[name] for name in GRID}
    if in_text:
        errors = Parallel(n_jobs)(
            delayed(errors_by_trees)(X, y, *fold, best) for fold in check_cv(folds).split(X, y)
        )
        best["n_estimators"] = TREES[int(np.argmin(np.mean(np.square(errors), axis=0)))]
    return {"params": json.dumps(best), "seconds": time.perf_counter() - start}


def errors_by_trees(X: Any, y: Any, train: Any, test: Any, params: dict[str, Any]) -> list[float]:
    """Return the error of a fold for each number of trees of the grid."""
    forest = RandomForestRegressor(warm_start=True, random_state=0, **params)
    errors = []
    for n_trees in TREES:
        forest.set_params(n_estimators=n_trees).fit(X[train], y[train])
        errors.append(rmse(forest.predict(X[test]), y[test]))
    return errors


def main() -> None:
    arguments = frame.parse_arguments(
        __doc__, jobs=2, datasets=list(KEYS), output=frame.RESULTS / "forest_search.csv"
    )
    table = frame.ResultTable(arguments.output, ("dataset", "kind"), COLUMNS)
    kinds = [*KINDS, *(f"{TEXT}{kind}" for kind in KINDS)]
    trials = [(key, kind) for key in arguments.datasets for kind in kinds]
    # one search after the other: each uses all jobs itself
    for dataset, kind in table.pending(trials):
        table.write((dataset, kind), search(dataset, kind, arguments.jobs), seconds=0.0)
        print(dataset, kind, flush=True)
    settings = json.loads(SETTINGS.read_text("utf-8"))
    for row in table.read().itertuples():
        settings[row.dataset][row.kind] = json.loads(str(row.params))
    text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
    frame.write_file(SETTINGS, text.encode())


if __name__ == "__main__":
    main()
