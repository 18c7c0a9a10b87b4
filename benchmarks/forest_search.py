"""Hyperparameters of the forests from the grid of the paper's text, on random rows.

The grid has 405 points: 135 and three numbers of trees. The 135 are searched by successive halving
over the number of trees, up to 600, with five folds, once for each data set on the training rows of
split 0; then the number of trees of the best point is chosen by the same folds. The twin is
searched with folds of pairs (*text_leaking*) and with folds of samples (*text_sound*).

    python -m benchmarks.forest_search --jobs 16

Results: `benchmarks/results/forest_search.csv`; `paper/forest_settings.json` has the found points,
which `python -m paper run T4 T5 --variant as_written` reads. An interrupted search continues.
"""

import json
import time
from pathlib import Path

from sklearn.ensemble import RandomForestRegressor
from sklearn.model_selection import cross_val_score

from benchmarks.table5_tuned import SCORE, halving_search, search_rows
from paper import forests, harness
from twinned.datasets import KEYS

COLUMNS = ["dataset", "kind", "params", "seconds:.4g"]
KINDS = ("text_plain", "text_leaking", "text_sound")
GRID = {
    "max_depth": [4, 8, 16, 32, 64],
    "max_features": [0.33, 0.667, 1.0],
    "min_samples_leaf": [1, 2, 5],
    "min_samples_split": [2, 4, 8],
}
TREES = (100, 300, 600)
SETTINGS = Path(forests.__file__).with_name("forest_settings.json")


def search(dataset, kind, n_jobs):
    """Return the best point of the grid for the training rows of split 0."""
    X, y, cv = search_rows(dataset, kind.removeprefix("text_"), random=True)
    start = time.perf_counter()
    found = halving_search(X, y, cv, GRID, max(TREES), n_jobs)
    best = {name: found.best_params_[name] for name in GRID}
    scores = {
        trees: cross_val_score(
            RandomForestRegressor(trees, random_state=0, **best),
            X, y, cv=cv, scoring=SCORE, n_jobs=n_jobs,
        ).mean()
        for trees in TREES
    }  # fmt: skip
    best["n_estimators"] = max(scores, key=scores.get)
    return {"params": json.dumps(best), "seconds": time.perf_counter() - start}


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
