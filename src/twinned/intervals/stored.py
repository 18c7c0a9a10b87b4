"""What a twin keeps of its calibration, so that it has intervals, also once it is saved and loaded.

It is a dict of plain parts, the attribute `intervals_` of a fitted twin: the scores of points that
were left out, and what judges how large an error to expect. The points themselves are the anchors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor

from twinned._table import Floats
from twinned._validation import check_real
from twinned.intervals.error_scale import ErrorScale, NeighborFeatures, Told

WIDTHS = ["learned", "deviation", "constant"]
_PARTS = {*ErrorScale._fields, "columns", "scores", "settings"}


def keep(twin: Any, judge: ErrorScale, scores: Floats, around: NeighborFeatures) -> None:
    """Let a twin keep what was found for a twin of the same points."""
    known = np.asarray(getattr(twin, "anchors_y_", ()))
    if known.ndim != 1 or not np.array_equal(np.sort(known), np.sort(around.y)):
        raise ValueError(
            f"Only a twin whose anchors are these {len(around.y)} points can keep their scores; "
            f"{type(twin).__name__} has {len(known)} anchors, or other ones."
        )
    twin.intervals_ = {
        **judge._asdict(),
        "columns": np.array(around.places, dtype=np.intp),
        "scores": np.sort(scores),
        "settings": _settings(twin),
    }


class StoredIntervals:
    """The intervals of a twin that keeps scores."""

    def __init__(self, twin: Any) -> None:
        kept = dict(twin.intervals_)
        if kept.pop("settings") != _settings(twin):
            raise ValueError(
                "The twin's anchors, weights or symmetry have changed since its intervals were "
                "found; find them again with twinned.cross_conformal."
            )
        self._twin, self.scores = twin, kept.pop("scores")
        self._columns = kept.pop("columns").tolist()
        self._judge = ErrorScale(**kept)
        self._around = NeighborFeatures(twin.anchors_X_[:, self._columns], twin.anchors_y_)

    def sigma(self, X: Any, mean: Floats, raw: Floats) -> Floats:
        """(n,) how large an error to expect where the twin predicts `mean` and `raw` deviation."""
        numbers = self._twin._open(X).matrix[:, self._columns]
        return self._judge.sigma(Told(mean, raw, self._around.about(numbers, mean)))

    def ends(self, mean: Floats, sigma: Floats, confidence: float) -> Floats:
        """(n, 2): lower and upper ends."""
        level = check_confidence(confidence, len(self.scores))
        reach = sigma * self.scores[-rank(level, len(self.scores))]
        return np.column_stack([mean - reach, mean + reach])


def rank(confidence: float, n: int) -> int:
    """Which score reaches far enough, from the largest on: 1 is the largest.

    >>> rank(0.9, 9), rank(0.9, 19), rank(0.5, 99)
    (1, 2, 50)
    """
    # as in split conformal prediction; rounding must not lose one
    return min(max(1, int((1.0 - confidence) * (n + 1) + 1e-9)), n)


def check_confidence(confidence: Any, n: int) -> float:
    """A probability that n scores can promise."""
    level = check_real("confidence", confidence)
    if not 0 < level < 1:
        raise ValueError(f"confidence must lie between 0 and 1, but is {confidence!r}.")
    if (1.0 - level) * (n + 1) + 1e-9 < 1:
        needed = int(np.ceil(1.0 / (1.0 - level) - 1e-9)) - 1
        raise ValueError(
            f"confidence={confidence:g} needs {needed} calibration points at least; there are {n}."
        )
    return level


def find_fault(twin: Any) -> str | None:
    """What is wrong with the parts of a twin that was loaded; None where nothing is."""
    kept, n_features = twin.intervals_, getattr(twin, "n_features_in_", 0)
    if not isinstance(kept, dict) or set(kept) != _PARTS:
        return "its intervals have not the parts that intervals have"
    scores, columns, learner = kept["scores"], kept["columns"], kept["learner"]
    if kept["width"] not in WIDTHS or not isinstance(kept["settings"], str):
        return "its intervals are of an unknown kind"
    if learner is not None and type(learner) is not ExtraTreesRegressor:
        return f"its intervals are learned by a {type(learner).__name__}"
    for name in ("floor", "learned_floor"):
        if not isinstance(kept[name], float) or not 0 <= kept[name] < np.inf:
            return f"{name} of its intervals is {kept[name]!r}"
    if not _is_row(scores, np.float64) or not np.isfinite(scores).all() or (scores < 0).any():
        return "its scores are no sizes of errors"
    if not _is_row(columns, np.intp) or ((columns < 0) | (columns >= n_features)).any():
        return "its intervals ask for columns that it has not"
    known = getattr(twin, "anchors_y_", None)
    return None if isinstance(known, np.ndarray) and known.ndim == 1 else "it has several outputs"


def _is_row(values: Any, dtype: Any) -> bool:
    return isinstance(values, np.ndarray) and values.ndim == 1 and values.dtype == dtype


def _settings(twin: Any) -> str:
    """What of a twin can be changed without a fit, and changes what it predicts."""
    return repr((twin.anchors, twin.weights, twin.symmetric))
