"""Table T4 and figure G: the twinned forest with loops through unlabelled points; and many rounds.

The first 200 rows of each data set: 100 labelled ones, and 100 others, which are both the
unlabelled points and the test points. A third of n² loops, raw F, one round.

- *semi-supervised forests*: test errors for several Λ. The author chose Λ by test error, and so
  does `as_published`. `modern` chooses it for each data set on labelled rows alone: by five-fold
  cross-validation of those of split 0, in which a fold's rows are unlabelled together with the test
  rows; these runs have a `fold` in their settings.
- *iterated loops*: the negative result. The relabelling is done again and again with smaller
  forests; each round's error, and how far its loops are from closing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from paper.forests import N_TREES, SEARCHES, found_settings, rmse
from paper.records import Run
from twinned._table import Floats

FLAVOURS = ("as_published", "modern")
LOOP_WEIGHTS = (0.0, 0.1, 1 / 3, 1.0, 10 / 3)
# the author's whole list, for split 0
ALL_LOOP_WEIGHTS = (0.0, 0.001, 1 / 300, 0.01, 1 / 30, 0.1, 1 / 3, 1.0, 10 / 3, 10.0, 100 / 3)
N_FOLDS, N_ROUNDS, ROUND_TREES = 5, 5, 20
ROUND_WEIGHTS = (0.1, 1 / 3, 1.0)
QUICK_TREES, QUICK_WEIGHTS = 5, (0.0, 1 / 3, 1.0)


class Rows(NamedTuple):
    """Places among the first 200 rows."""

    labelled: Any
    unlabelled: Any
    judged: Any


def expand_semi(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    """One run a split; and five of split 0, by which Λ is chosen without the test rows' values."""
    few = QUICK_WEIGHTS if quick else LOOP_WEIGHTS
    weights = ALL_LOOP_WEIGHTS if split == 0 and not quick else few
    settings = _forest(flavour, dataset, QUICK_TREES if quick else N_TREES)
    key = "semi-supervised-forests"
    runs = [Run(key, flavour, dataset, split, settings | {"loop_weights": list(weights)})]
    if split == 0 and flavour == "modern":
        runs += [
            Run(
                key,
                flavour,
                dataset,
                split,
                settings | {"loop_weights": list(few), "fold": i},
            )
            for i in range(2 if quick else N_FOLDS)
        ]
    return runs


def expand_iterated(flavour: str, dataset: str, split: int, quick: bool) -> list[Run]:
    settings = _forest(flavour, dataset, QUICK_TREES if quick else ROUND_TREES)
    weights = ROUND_WEIGHTS[1:] if quick else ROUND_WEIGHTS
    settings |= {"rounds": 2 if quick else N_ROUNDS, "loop_weights": list(weights)}
    return [Run("iterated-loops", flavour, dataset, split, settings)]


def _forest(flavour: str, dataset: str, trees: int) -> dict[str, Any]:
    return {"trees": trees, "forest": found_settings()[dataset][SEARCHES[flavour]]}


def execute_semi(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """The error without loops, and for each Λ with them; and their mean inconsistency."""
    for run in batch:
        X, y, rows = _rows(run)
        loops = TaughtLoops(run, X, y, rows)
        found: dict[str, Any] = {"supervised": loops.error(), "loops": {}, "inconsistency": {}}
        first = loops.sides()
        for weight in run.settings["loop_weights"]:
            loops.teach(first, weight)
            name = f"{weight:.6g}"
            found["loops"][name] = loops.error()
            found["inconsistency"][name] = [_inconsistency(s) for s in (first, loops.sides())]
        yield run, found


def execute_iterated(batch: list[Run]) -> Iterator[tuple[Run, dict[str, Any]]]:
    """Round after round for each Λ: test error and inconsistency, round 0 first."""
    for run in batch:
        X, y, rows = _rows(run)
        found = {}
        for weight in run.settings["loop_weights"]:
            loops = TaughtLoops(run, X, y, rows)
            sides = loops.sides()
            told = [(loops.error(), _inconsistency(sides))]
            for _ in range(run.settings["rounds"]):
                loops.teach(sides, weight)
                sides = loops.sides()
                told.append((loops.error(), _inconsistency(sides)))
            errors, inconsistency = zip(*told, strict=True)
            found[f"{weight:.6g}"] = {"rmse": errors, "inconsistency": inconsistency}
        yield run, found


class TaughtLoops:
    """A fitted twinned forest and loops through unlabelled points, by which it can be taught again.

    What `SemiSupervisedTwinRegressor` does for one Λ, with the first fit and the loops shared by
    all: that is most of the time.
    """

    def __init__(self, run: Run, X: Floats, y: Floats, rows: Rows) -> None:
        from sklearn.ensemble import RandomForestRegressor

        from twinned.estimators.semi_supervised import draw_unlabelled_loops, pairs_of
        from twinned.estimators.twin import TwinRegressor

        seed = run.settings.get("fold", run.split)
        forest = RandomForestRegressor(
            run.settings["trees"], random_state=seed, **run.settings["forest"]
        )
        self.twin = TwinRegressor(forest, pairs="all", symmetric=False, random_state=seed)
        self._lesson = self.twin._fit(X[rows.labelled], y[rows.labelled], None)
        self._X, self._y = X[rows.judged], y[rows.judged]
        points = self.twin._points
        others = self.twin._open(X[rows.unlabelled]).take(slice(None))
        # the numbers that the estimator of this seed draws its loops from
        rng = np.random.RandomState(np.random.RandomState(seed).randint(2**31 - 1, size=3)[0])
        loops = draw_unlabelled_loops(len(points), len(others), len(points) ** 2 // 3, rng)
        self._pairs = pairs_of(points, others, loops)

    def sides(self) -> tuple[Floats, ...]:
        """What the twin says of the three sides of each loop."""
        return tuple(self.twin._raw_differences(*pair) for pair in self._pairs)

    def teach(self, sides: Any, loop_weight: float) -> None:
        """Fit again: to the labelled pairs, and to the sides, relabelled."""
        from twinned.estimators.semi_supervised import relabel

        self.twin._teach(self._lesson, self._pairs, relabel(sides, loop_weight))

    def error(self) -> float:
        return rmse(self.twin.predict(self._X), self._y)


def _rows(run: Run) -> tuple[Floats, Floats, Rows]:
    from sklearn.model_selection import RepeatedKFold

    from twinned.datasets import forest_split, load

    table, values = load(run.dataset)
    X, y = table.to_numpy()[:200], values.to_numpy()[:200]
    labelled, test = forest_split(run.split)
    if "fold" not in run.settings:
        return X, y, Rows(labelled, test, test)
    folds = RepeatedKFold(n_splits=N_FOLDS, n_repeats=1, random_state=0).split(labelled)
    learned, held_out = list(folds)[run.settings["fold"]]
    unlabelled = np.concatenate([labelled[held_out], test])
    return X, y, Rows(labelled[learned], unlabelled, labelled[held_out])


def _inconsistency(sides: Any) -> float:
    from twinned.pairing.loops import loop_sum

    return float(np.mean(np.abs(loop_sum(*sides))))
