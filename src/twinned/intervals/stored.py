"""Stored intervals: the calibration that a fitted twin stores and saves with itself.

It is a dict of plain parts, the attribute `intervals_` of the twin: the scores of held-out rows,
and the error scale. The known rows are the anchors.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from twinned.intervals.error_scale import ErrorScale, NeighborFeatures, ScaleInputs
from twinned.intervals.weighted import likelihood_ratio, weighted_quantiles
from twinned.rows.neighbors import Indices, LearnedMetric
from twinned.rows.schema import Floats
from twinned.rows.validation import check_real


def store_intervals(
    twin: Any,
    scale: ErrorScale,
    scores: Floats,
    neighbors: NeighborFeatures,
    rows: Indices | None = None,
) -> None:
    """Store a calibration in a twin whose anchors are the calibrated rows.

    `rows` are the rows of the scores, among those of the neighbor features.
    """
    if not hasattr(twin, "anchors_X_"):
        raise ValueError(f"Only a twin can store intervals, not {type(twin).__name__}.")
    y = np.asarray(twin.anchors_y_)
    anchors = None
    if y.ndim == 1:
        anchors = _anchor_of_rows(twin.anchors_X_[:, neighbors.columns], y, neighbors)
    if anchors is None:
        raise ValueError(
            f"Only a twin whose anchors are these {len(neighbors.y)} rows can store their scores; "
            f"{type(twin).__name__} has {len(y)} anchors, or different ones."
        )
    order = np.argsort(scores, kind="stable")
    twin.intervals_ = {
        **scale._asdict(),
        "columns": np.array(neighbors.columns, dtype=np.intp),
        "metric": None if neighbors.learned is None else tuple(neighbors.learned),
        "scores": scores[order],
        "rows": None if rows is None else anchors[rows][order],
        "settings": _fingerprint(twin),
    }


class StoredIntervals:
    """Prediction intervals from the calibration that a twin stores."""

    def __init__(self, twin: Any) -> None:
        parts = dict(twin.intervals_)
        if parts.pop("settings") != _fingerprint(twin):
            raise ValueError(
                "The anchors, weights or symmetric of the twin have changed since its intervals "
                "were calibrated; calibrate again with twinned.cross_conformal."
            )
        self.scores: Floats = parts.pop("scores")
        self._rows: Indices | None = parts.pop("rows")
        self.columns: list[int] = parts.pop("columns").tolist()
        metric = parts.pop("metric")
        self.scale = ErrorScale(**parts)
        self.neighbors = NeighborFeatures(
            twin.anchors_X_[:, self.columns],
            twin.anchors_y_,
            learned=None if metric is None else LearnedMetric(*metric),
        )

    def error_scale(self, matrix: Floats, mean: Floats, std: Floats) -> Floats:
        """(n,) expected size of errors of encoded rows with these predictions."""
        features = self.neighbors.transform(matrix[:, self.columns], mean)
        return self.scale.predict(ScaleInputs(mean, std, features))

    def std(self, scale: Floats) -> Floats:
        """(n,): calibrated standard deviations of rows with these error scales."""
        return scale * np.sqrt(np.mean(self.scores**2))

    def interval(self, mean: Floats, scale: Floats, confidence: float) -> Floats:
        """(n, 2): lower and upper ends."""
        level = check_confidence(confidence, len(self.scores))
        half_width = scale * self.scores[-quantile_rank(level, len(self.scores))]
        return np.column_stack([mean - half_width, mean + half_width])

    def weighted_interval(
        self,
        mean: Floats,
        scale: Floats,
        confidence: float,
        features: tuple[Floats, Floats, Floats],
    ) -> Floats:
        """(n, 2): ends for rows of another distribution; see `twinned.intervals.weighted`.

        `features` are those of the rows, of the anchors and of that distribution, (row, encoded).
        """
        level = check_confidence(confidence, len(self.scores))
        if self._rows is None:
            raise ValueError(
                "The twin does not store the rows of its calibration, which X_shifted needs; "
                "calibrate it again with twinned.cross_conformal."
            )
        own, anchors, shifted = features
        known = anchors[self._rows]
        ratio = likelihood_ratio(known, shifted)
        half_width = scale * weighted_quantiles(self.scores, ratio(known), ratio(own), level)
        return np.column_stack([mean - half_width, mean + half_width])


def quantile_rank(confidence: float, n: int) -> int:
    """Rank of the conformal quantile among n scores, counted from the largest, which is 1.

    >>> quantile_rank(0.9, 9), quantile_rank(0.9, 19), quantile_rank(0.5, 99)
    (1, 2, 50)
    """
    # as in split conformal prediction; the margin is for rounding
    return min(max(1, int((1.0 - confidence) * (n + 1) + 1e-9)), n)


def check_confidence(confidence: Any, n: int) -> float:
    """Validate a confidence that n scores can guarantee."""
    level = check_real("confidence", confidence)
    if not 0 < level < 1:
        raise ValueError(f"confidence must be between 0 and 1, but is {confidence!r}.")
    if (1.0 - level) * (n + 1) + 1e-9 < 1:
        needed = int(np.ceil(1.0 / (1.0 - level) - 1e-9)) - 1
        raise ValueError(
            f"confidence={confidence:g} needs at least {needed} calibration rows; there are {n}."
        )
    return level


def _anchor_of_rows(X: Floats, y: Floats, neighbors: NeighborFeatures) -> Indices | None:
    """The anchor (X, y) of each row of the neighbor features; None where they are not the same."""
    both = [np.column_stack([X, y]), np.column_stack([neighbors.values, neighbors.y])]
    first, second = (np.lexsort(side.T) for side in both)
    if not np.array_equal(both[0][first], both[1][second], equal_nan=True):
        return None
    anchors = np.empty(len(y), dtype=np.intp)
    anchors[second] = first
    return anchors


def _fingerprint(twin: Any) -> str:
    """Digest of the parameters that change predictions without a fit."""
    digest = hashlib.sha256()
    _update(digest, [twin.anchors, twin.weights, twin.symmetric])
    return digest.hexdigest()


def _update(digest: Any, value: Any) -> None:
    """Add a parameter to a digest: by its values, independent of how it is printed."""
    if isinstance(value, BaseEstimator):
        digest.update(type(value).__qualname__.encode())
        _update(digest, sorted(value.get_params(deep=False).items()))
    elif isinstance(value, np.ndarray | list | tuple) and _is_numeric(value):
        array = np.ascontiguousarray(value, dtype=np.float64)
        digest.update(repr(array.shape).encode() + array.tobytes())
    elif isinstance(value, list | tuple):
        digest.update(b"[")
        for item in value:
            _update(digest, item)
        digest.update(b"]")
    elif callable(value):  # a function has no values; its name is all that can be compared
        digest.update(getattr(value, "__qualname__", type(value).__qualname__).encode())
    else:
        digest.update(f"{type(value).__name__}={value!r};".encode())


def _is_numeric(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "fiub"
    except ValueError:  # rows of different lengths
        return False
