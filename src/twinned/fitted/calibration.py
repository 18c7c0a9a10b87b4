"""Calibration: the scores of held-out rows, from which prediction intervals are made.

A twin stores it as a dict of plain parts, its attribute `intervals_`, which is saved with it. The
known rows of its neighbor features are then the anchors.
"""

from __future__ import annotations

import hashlib
import inspect
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from twinned.fitted.error_scale import ErrorScale, NeighborFeatures, scale_features
from twinned.fitted.quantiles import (
    check_confidence,
    likelihood_ratio,
    quantile_rank,
    weighted_quantiles,
)
from twinned.rows.neighbors import Indices, LearnedMetric
from twinned.rows.schema import Floats

Parts = dict[str, Any]  # of a calibration, as a twin stores them


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of held-out rows and the error scale in units of which they are.

    An interval is the prediction ± a quantile of the scores times the error scale.
    """

    scores: Floats  # (score,), in increasing order
    scale: ErrorScale
    neighbors: NeighborFeatures
    rows: Indices | None = None  # (score,): among the known rows of the neighbor features
    settings: str = ""  # fingerprint of the settings of the twin that stores it

    @classmethod
    def of(
        cls,
        scores: Floats,
        scale: ErrorScale,
        neighbors: NeighborFeatures,
        rows: Indices | None = None,
    ) -> Calibration:
        """The calibration by (row,) scores in any order."""
        order = np.argsort(scores, kind="stable")
        return cls(scores[order], scale, neighbors, None if rows is None else rows[order])

    @classmethod
    def from_dict(cls, parts: Parts, anchors_X: Floats, anchors_y: Floats) -> Calibration:
        """The calibration of a twin with these anchors, from the parts that it stores."""
        scale = ErrorScale(*(parts[field.name] for field in fields(ErrorScale)))
        metric = None if parts["metric"] is None else LearnedMetric(*parts["metric"])
        neighbors = NeighborFeatures(anchors_X, anchors_y, parts["columns"].tolist(), metric)
        return cls(parts["scores"], scale, neighbors, parts["rows"], parts["settings"])

    def to_dict(self) -> Parts:
        """The parts without the known rows."""
        learned = self.neighbors.learned
        return {
            **vars(self.scale),
            "columns": np.array(self.neighbors.columns, dtype=np.intp),
            "metric": None if learned is None else tuple(learned),
            "scores": self.scores,
            "rows": self.rows,
            "settings": self.settings,
        }

    def error_scale(self, X: object, mean: Floats, std: Floats) -> Floats:
        """(n,) expected size of errors of rows with these predictions.

        X is a table or, for a twin, the matrix of its encoded features.
        """
        features = self.neighbors.transform(X, mean)
        return self.scale.predict(scale_features(features, mean, std, self.scale.floor))

    def std(self, scale: Floats) -> Floats:
        """(n,) standard deviations of the errors of rows with these error scales."""
        return scale * np.sqrt(np.mean(self.scores**2))

    def quantile(self, confidence: float) -> float:
        """The score that is exceeded with a probability of 1 − confidence."""
        level = check_confidence(confidence, len(self.scores))
        return self.scores[-quantile_rank(level, len(self.scores))]

    def interval(self, mean: Floats, scale: Floats, confidence: float) -> Floats:
        """(n, 2): lower and upper ends."""
        half_width = scale * self.quantile(confidence)
        return np.column_stack([mean - half_width, mean + half_width])

    def weighted_interval(
        self,
        mean: Floats,
        scale: Floats,
        confidence: float,
        features: tuple[Floats, Floats, Floats],
    ) -> Floats:
        """(n, 2): ends for rows of another distribution; see `twinned.fitted.quantiles`.

        `features` are those of the rows, of the anchors and of that distribution, (row, encoded).
        """
        level = check_confidence(confidence, len(self.scores))
        if self.rows is None:
            raise ValueError(
                "The twin does not store the rows of its calibration, which X_shifted needs; "
                "calibrate it again with twinned.cross_conformal."
            )
        queries, anchors, shifted = features
        calibrated = anchors[self.rows]
        ratio = likelihood_ratio(calibrated, shifted)
        factors = weighted_quantiles(self.scores, ratio(calibrated), ratio(queries), level)
        return np.column_stack([mean - scale * factors, mean + scale * factors])


def stored_calibration(twin: Any) -> Calibration:
    """The calibration that a twin stores, where its settings have not changed since."""
    if twin.intervals_["settings"] != _fingerprint(twin):
        raise ValueError(
            "The anchors, weights or symmetric of the twin have changed since its intervals "
            "were calibrated; calibrate again with twinned.cross_conformal."
        )
    return Calibration.from_dict(twin.intervals_, twin.anchors_X_, twin.anchors_y_)


def store_calibration(twin: Any, calibration: Calibration) -> None:
    """Store a calibration in a twin whose anchors are its known rows."""
    name, neighbors = type(twin).__name__, calibration.neighbors
    try:
        X, y = twin.anchors_X_[:, neighbors.columns], np.asarray(twin.anchors_y_)
    except AttributeError:
        raise ValueError(f"Only a twin can store intervals, not {name}.") from None
    anchors = _anchor_of_rows(X, y, neighbors) if y.ndim == 1 else None
    if anchors is None:
        raise ValueError(
            f"Only a twin whose anchors are these {len(neighbors.y)} rows can store their scores; "
            f"{name} has {len(y)} anchors, or different ones."
        )
    rows = None if calibration.rows is None else anchors[calibration.rows]
    twin.intervals_ = replace(calibration, rows=rows, settings=_fingerprint(twin)).to_dict()


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
    return hashlib.sha256(_content([twin.anchors, twin.weights, twin.symmetric])).hexdigest()


def _content(value: object) -> bytes:
    """Bytes of a parameter: by its values, independent of how it is printed."""
    if isinstance(value, BaseEstimator):
        parameters = sorted(value.get_params(deep=False).items())
        return type(value).__qualname__.encode() + _content(parameters)
    if isinstance(value, np.ndarray | list | tuple) and _is_numeric(value):
        array = np.ascontiguousarray(value, dtype=np.float64)
        return repr(array.shape).encode() + array.tobytes()
    if isinstance(value, list | tuple):
        return b"[" + b"".join(map(_content, value)) + b"]"
    if callable(value):  # a function has no values; its name is all that can be compared
        named = value if inspect.isroutine(value) or inspect.isclass(value) else type(value)
        return named.__qualname__.encode()
    return f"{type(value).__name__}={value!r};".encode()


def _is_numeric(value: object) -> bool:
    try:
        return np.asarray(value).dtype.kind in "fiub"
    except ValueError:  # rows of different lengths
        return False
