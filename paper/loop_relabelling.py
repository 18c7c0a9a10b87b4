"""Table T4, figure G and study I: the twinned forest with loops through unlabelled points.

The first 200 rows of each data set: 100 labelled ones, and 100 others, which are both the
unlabelled points and the test points. A third of n² loops, raw F. `as_written`: 200 random rows and
a third of n loops.

- *semi-supervised forests*: one round, test errors for five Λ of the author's list, on split 0 of
  the other variants for all of it. The author chose Λ by test error, and so does `as_published`,
  whose forests have the settings that the search of table 5 found on each split, as his. `modern`
  chooses it for each data set on labelled rows alone: by five-fold cross-validation of those of
  split 0, in which the rows of a fold are unlabelled together with the test rows; these trials have
  a `fold` in their settings.
- *iterated loops*: the negative result. The relabelling is repeated with smaller forests; the error
  and the loop inconsistency of each round.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from sklearn.model_selection import RepeatedKFold

from paper.data import forest_indices, load_arrays, rmse
from paper.forests import N_TREES, SEARCHES, make_forest, tuned_parameters
from paper.records import RECORDS, Records, Trial
from twinned import TwinRegressor
from twinned.estimators.semi_supervised import draw_unlabelled_loops, loop_sides, relabel
from twinned.pairing.differences import loop_sum
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

VARIANTS = tuple(SEARCHES)
ITERATED_VARIANTS = ("as_published", "modern")
LOOP_WEIGHTS = (0.0, 0.1, 1 / 3, 1.0, 10 / 3)
# the author's whole list
ALL_LOOP_WEIGHTS = (0.0, 0.001, 1 / 300, 0.01, 1 / 30, 0.1, 1 / 3, 1.0, 10 / 3, 10.0, 100 / 3)
OTHER_LOOP_WEIGHTS = tuple(weight for weight in ALL_LOOP_WEIGHTS if weight not in LOOP_WEIGHTS)
# The data sets where all splits of `as_written` have the whole list, in two trials.
WHOLE_LISTS = ("BC", "WN")
N_FOLDS, N_ROUNDS, ROUND_TREES = 5, 5, 20
ROUND_WEIGHTS = (0.1, 1 / 3, 1.0)


class RowIndices(NamedTuple):
    """Indices among the first 200 rows."""

    labelled: Indices
    unlabelled: Indices
    test: Indices


def semi_supervised_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    """Return the trials of a split; and those of the folds of split 0, by which Λ is chosen."""
    settings = _forest_settings(variant, dataset, N_TREES)
    changes: list[dict[str, Any]] = [{"loop_weights": list(LOOP_WEIGHTS)}]
    if variant == "as_published":
        settings["forest"] = searched_on_splits()[dataset, split]
    elif split == 0:
        changes = [{"loop_weights": list(ALL_LOOP_WEIGHTS)}]
    elif variant == "as_written" and dataset in WHOLE_LISTS:
        changes.append({"loop_weights": list(OTHER_LOOP_WEIGHTS)})
    if split == 0 and variant == "modern":
        few = list(LOOP_WEIGHTS)
        changes += [{"loop_weights": few, "fold": fold} for fold in range(N_FOLDS)]
    return [
        Trial("semi-supervised-forests", variant, dataset, split, settings | own) for own in changes
    ]


def iterated_trials(variant: str, dataset: str, split: int) -> list[Trial]:
    settings = _forest_settings(variant, dataset, ROUND_TREES)
    settings |= {"rounds": N_ROUNDS, "loop_weights": list(ROUND_WEIGHTS)}
    return [Trial("iterated-loops", variant, dataset, split, settings)]


@cache
def searched_on_splits() -> dict[tuple[str, int], dict[str, Any]]:
    """Return (data set, split) → what the search of table 5 as published found for the twin."""
    return {
        (record["config"]["dataset"], record["config"]["split"]): record["result"]["parameters"]
        for record in Records(RECORDS).read("forests", "as_published")
        if record["config"]["settings"].get("search") == "twinned_rf"
    }


def _forest_settings(variant: str, dataset: str, n_trees: int) -> dict[str, Any]:
    """Number of trees and parameters of the forests."""
    found = tuned_parameters()[dataset][SEARCHES[variant]]
    # the number of trees of the text's search would take ten times as long with loops
    forest = {name: value for name, value in found.items() if name != "n_estimators"}
    rows = {"rows": "random"} if variant == "as_written" else {}
    return {"trees": n_trees, "forest": forest, **rows}


def run_semi_supervised(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield the error without loops, and for each Λ the error and mean loop inconsistency."""
    for trial in batch:
        loops = LoopRelabelling(trial)
        result: dict[str, Any] = {"supervised": loops.error(), "loops": {}, "inconsistency": {}}
        first = loops.predict_sides()
        for weight in trial.settings["loop_weights"]:
            loops.refit(first, weight)
            name = weight_name(weight)
            result["loops"][name] = loops.error()
            sides = (first, loops.predict_sides())
            result["inconsistency"][name] = [mean_inconsistency(each) for each in sides]
        yield trial, result


def run_iterated(batch: list[Trial]) -> Iterator[tuple[Trial, dict[str, Any]]]:
    """Yield for each Λ the test error and inconsistency of each round, round 0 first."""
    for trial in batch:
        result = {}
        for weight in trial.settings["loop_weights"]:
            loops = LoopRelabelling(trial)
            sides = loops.predict_sides()
            rounds = [(loops.error(), mean_inconsistency(sides))]
            for _ in range(trial.settings["rounds"]):
                loops.refit(sides, weight)
                sides = loops.predict_sides()
                rounds.append((loops.error(), mean_inconsistency(sides)))
            errors, inconsistency = zip(*rounds, strict=True)
            result[weight_name(weight)] = {"rmse": errors, "inconsistency": inconsistency}
        yield trial, result


def weight_name(loop_weight: float) -> str:
    """Return the name of a Λ in records.

    >>> weight_name(1 / 3)
    '0.333333'
    """
    return f"{loop_weight:.6g}"


class LoopRelabelling:
    """A fitted twinned forest and loops through unlabelled points, on which it can be refitted.

    Equal to `SemiSupervisedTwinRegressor` for one Λ. Here the first fit and the loops are shared by
    all Λ, as they take most of the time.
    """

    def __init__(self, trial: Trial) -> None:
        X, y, rows = _rows(trial)
        seed = trial.settings.get("fold", trial.split)
        forest = make_forest(trial, trial.settings["forest"], seed)
        self.twin = TwinRegressor(forest, pairs="all", symmetric=False, random_state=seed)
        self._training_set = self.twin.fit_pairs(X[rows.labelled], y[rows.labelled])
        self._X_test, self._y_test = X[rows.test], y[rows.test]
        labelled = self.twin.fitted_.anchors.rows
        unlabelled = self.twin.encode(X[rows.unlabelled]).encode()
        # the seed from which the estimator of this random_state draws its loops
        rng = np.random.RandomState(np.random.RandomState(seed).randint(2**31 - 1, size=3)[0])
        # a third of the samples by the text, which has random rows; of the pairs by the code
        is_random = trial.settings.get("rows") == "random"
        n_loops = (len(labelled) if is_random else len(labelled) ** 2) // 3
        loops = draw_unlabelled_loops(len(labelled), len(unlabelled), n_loops, rng)
        self._pairs = loop_sides(labelled, unlabelled, loops)

    def predict_sides(self) -> tuple[Floats, ...]:
        """Return the predicted differences of the three sides of each loop."""
        fitted = self.twin.fitted_
        return tuple(fitted.predict_difference(*pair)[0] for pair in self._pairs)

    def refit(self, sides: Any, loop_weight: float) -> None:
        """Fit to the labelled pairs and to the relabelled sides."""
        self.twin.refit_with(self._training_set, self._pairs, relabel(sides, loop_weight))

    def error(self) -> float:
        return rmse(self.twin.predict(self._X_test), self._y_test)


def _rows(trial: Trial) -> tuple[Floats, Floats, RowIndices]:
    X, y = load_arrays(trial.dataset)
    is_random = trial.settings.get("rows") == "random"
    labelled, test = forest_indices(len(y), trial.split, is_random)
    if "fold" not in trial.settings:
        return X, y, RowIndices(labelled, test, test)
    folds = RepeatedKFold(n_splits=N_FOLDS, n_repeats=1, random_state=0).split(labelled)
    training, held_out = list(folds)[trial.settings["fold"]]
    unlabelled = np.concatenate([labelled[held_out], test])
    return X, y, RowIndices(labelled[training], unlabelled, labelled[held_out])


def mean_inconsistency(sides: Any) -> float:
    """Return the mean |sum| of loops from the differences along their three sides."""
    return float(np.mean(np.abs(loop_sum(*sides))))
