"""Hyperparameters of the forests from the grid of the paper's text, on random rows.

The grid has 405 points: 135 and three numbers of trees. Of the 135, 90 grow different forests:
`min_samples_split` has no effect up to twice `min_samples_leaf`. They are searched by successive
halving over the number of trees, up to 200, with five folds, once for each data set on the training
rows of split 0; then the number of trees of the best point is chosen by the same folds. The twin is
searched with folds of pairs (*text_leaking*) and with folds of samples (*text_sound*).

    python -m benchmarks.forest_search --jobs 16

Results: `benchmarks/results/forest_search.csv`; `paper/forest_settings.json` has the found points,
which `python -m paper run T4 T5 --variant as_written` reads. An interrupted search continues.
"""

import json
import time
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed
from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import check_cv

from benchmarks.table5_tuned import halving_search, search_rows
from paper import forests, harness
from paper.data import rmse
from twinned.datasets import KEYS

COLUMNS = ["dataset", "kind", "params", "seconds:.4g"]
KINDS = ("text_plain", "text_leaking", "text_sound")
DEPTHS_AND_FEATURES = {"max_depth": [4, 8, 16, 32, 64], "max_features": [0.33, 0.667, 1.0]}
LEAVES_AND_SPLITS = {1: [2, 4, 8], 2: [4, 8], 5: [8]}  # min_samples_leaf → min_samples_split
GRID = [
    {**DEPTHS_AND_FEATURES, "min_samples_leaf": [leaf], "min_samples_split": splits}
    for leaf, splits in LEAVES_AND_SPLITS.items()
]
SEARCH_TREES = 200
TREES = (100, 300, 600)
SETTINGS = Path(forests.__file__).with_name("forest_settings.json")


def search(dataset, kind, n_jobs):
    """Return the best point of the grid for the training rows of split 0."""
    X, y, cv = search_rows(dataset, kind.removeprefix("text_"), random=True)
    start = time.perf_counter()
    found = halving_search(X, y, cv, GRID, SEARCH_TREES, n_jobs)
    best = {name: found.best_params_[name] for name in GRID[0]}
    errors = Parallel(n_jobs)(
        delayed(errors_by_trees)(X, y, *fold, best) for fold in check_cv(cv).split(X, y)
    )
    best["n_estimators"] = TREES[int(np.argmin(np.mean(np.square(errors), axis=0)))]
    return {"params": json.dumps(best), "seconds": time.perf_counter() - start}


def errors_by_trees(X, y, train, test, params):
    """Return the error of a fold for each number of trees of the grid."""
    forest = RandomForestRegressor(warm_start=True, random_state=0, **params)
    errors = []
    for n_trees in TREES:
        forest.set_params(n_estimators=n_trees).fit(X[train], y[train])
        errors.append(rmse(forest.predict(X[test]), y[test]))
    return errors


def main():
    arguments = harness.parse_arguments(
        __doc__, jobs=2, datasets=list(KEYS), only_table=False, results=harness.RESULTS
    )
    path = arguments.results / "forest_search.csv"
    table = harness.ResultTable(path, ("dataset", "kind"), COLUMNS)
    trials = [(key, kind) for key in arguments.datasets for kind in KINDS]
    # one search after the other: each uses all jobs itself
    execute = harness.in_parallel(lambda *trial: search(*trial, arguments.jobs))
    harness.run_pending(
        [] if arguments.only_table else trials, table, execute, harness.print_progress
    )
    settings = json.loads(SETTINGS.read_text("utf-8"))
    for row in table.read().itertuples():
        settings[row.dataset][row.kind] = json.loads(row.params)
    text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
    harness.write_file(SETTINGS, text.encode())


if __name__ == "__main__":
    main()
