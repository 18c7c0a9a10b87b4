"""Calibration: the scores of held-out rows, from which prediction intervals are made.

Scores are in units of the error scale, the expected size of the error of a prediction. Without
observed errors it is the standard deviation of the model. With out-of-fold errors, extremely
randomized trees are fitted to their size: from the features of a row, from the prediction and its
standard deviation, and from neighbor features: the distances of the nearest known rows, the spread
of their values, and the distance of these from the prediction. The error scale is the fitted size,
or its product with a power of the standard deviation where out-of-fold errors are likelier so. The
regressor and these powers were chosen by the likelihood of out-of-fold errors, on training rows of
the paper's sets and on the tables of `benchmarks/accuracy/tables.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.preprocessing import StandardScaler

from twinned.fitted.quantiles import ScoreDistribution
from twinned.rows.columns import is_numeric_dtype, to_numeric
from twinned.rows.neighbors import NeighborIndex
from twinned.rows.schema import Floats, Indices, column_list, is_table
from twinned.rows.validation import check_choice, check_row_numbers, count_rows

# Of the mean standard deviation, added to each, so that no error scale is zero.
RELATIVE_FLOOR = 0.05
_FLOOR_OF_TARGET = 0.002  # the same, in units of the standard deviation of the known values
N_NEIGHBORS = (3, 10, 20)
MAX_FLOAT32 = float(np.finfo(np.float32).max)
MAX_SPLIT_FEATURES = 30  # that are tried in a split of a tree, so that wide tables take no longer
_SPLIT_SHARE = 0.75  # of the features, where there are few
# Of each kind of width, exponents of the fitted error size and of the model's standard deviation;
# the likeliest are taken.
EXPONENTS = {
    "learned": [(1.0, 0.0), (1.0, 0.125), (2 / 3, 1 / 3)],
    "std": [(0.0, 1.0)],
    "constant": [(0.0, 0.0)],
}
# Power of the ratio of the spread of estimates to the largest one of calibration rows, by which its
# excess over that is multiplied, as far away errors grow faster than this spread. Chosen on random
# functions and cut tables, not those that `benchmarks/intervals/outside.py` measures.
SPREAD_POWER = 0.75
# Those that are fitted to errors of held-out rows, and grow with the distance from the known rows.
FITTED_WIDTHS = ("learned",)


class NeighborFeatures:
    """Features of a row made from the nearest known rows X, with target values y (n,).

    Only the numeric `columns` are used, and the `codes` of categories as they are. Distances are
    Euclidean on standardized numeric features.
    """

    def __init__(
        self, X: object, y: Floats, columns: Sequence[int], codes: Sequence[int] = ()
    ) -> None:
        self.columns: list[int] = list(columns)
        self.codes: list[int] = list(codes)
        self.y = y
        self.values: Floats = numeric_features(X, self.columns)
        if not self.columns:
            return
        with np.errstate(invalid="ignore"):  # a feature without values
            self.scaler: StandardScaler = StandardScaler().fit(self.values)
        self._index = NeighborIndex(self._standardize(self.values))

    @classmethod
    def of(cls, X: object, y: Floats, categorical: Sequence[int] = ()) -> NeighborFeatures:
        """By all numeric columns, by their type in the table; some are codes of categories."""
        numeric = numeric_columns(X)
        codes = [column for column in numeric if column in categorical]
        columns = [column for column in numeric if column not in codes]
        return cls(X, y, columns, codes)

    def _standardize(self, values: Floats) -> Floats:
        """Features for distances, with missing values replaced by the mean."""
        return np.nan_to_num(self.scaler.transform(values))

    def transform(self, X: object, mean: Floats) -> Floats:
        """(n, feature) features of rows for which a model predicts `mean`.

        The codes of categories; the numeric features; the distances of the nearest and tenth
        nearest known row; the standard deviation of y among the nearest 3, 10 and 20; the distances
        of the nearest y, and of the mean of the nearest 5, from the prediction.
        """
        features = numeric_features(X, [*self.codes, *self.columns])
        codes, values = features[:, : len(self.codes)], features[:, len(self.codes) :]
        if not self.columns:
            return codes
        k = min(max(N_NEIGHBORS), len(self.y))
        rows, distances = self._index.kneighbors(self._standardize(values), k)
        nearest_y = self.y[rows]
        return np.column_stack(
            [
                codes,
                values,
                distances[:, 0],
                distances[:, : N_NEIGHBORS[1]][:, -1],
                *(nearest_y[:, :n].std(axis=1) for n in N_NEIGHBORS),
                np.abs(nearest_y[:, 0] - mean),
                np.abs(nearest_y[:, :5].mean(axis=1) - mean),
            ]
        )


@dataclass(frozen=True, eq=False)
class ErrorScale:
    """Expected size of errors, up to a factor that calibration determines."""

    width: str
    floor: float
    regressor: ExtraTreesRegressor | None = None  # of the size of errors
    regressor_floor: float = 0.0
    # of the fitted size and of the standard deviation
    exponents: Floats = field(default_factory=lambda: np.array([0.0, 1.0]))
    factor: float = 1.0  # of both, with known errors of measurement
    y_std: Floats | float | None = None  # their median, or those of (row,) further measurements
    # of the median calibration row by the process of the learned metric; None without widening
    process_std: float | None = None
    largest_std: float | None = None  # of the calibration rows; None where widths do not grow by it

    @classmethod
    def fit(
        cls, width: str, floor: float, features: Floats, errors: Floats, random_state: object
    ) -> ErrorScale:
        """Fit the regressor to `features` (see `scale_features`) and absolute `errors`."""
        if width not in FITTED_WIDTHS:
            return cls(width, floor)
        candidates = min(_SPLIT_SHARE, MAX_SPLIT_FEATURES / max(1, features.shape[1]))
        regressor = ExtraTreesRegressor(
            100, min_samples_leaf=5, max_features=candidates, random_state=random_state
        ).fit(features, errors)
        return cls(width, floor, regressor, RELATIVE_FLOOR * float(np.mean(errors)))

    def size(self, features: Floats) -> Floats:
        """(row,): the fitted size of errors; ones without a regressor."""
        if self.regressor is None:
            return np.ones(len(features))
        return positive_scale(self.regressor.predict(features), self.regressor_floor)

    def widening(self, process_std: Floats | None) -> Floats | float:
        """(row,): factors of the scale at rows with these standard deviations by the process.

        So intervals grow with the distance from the known rows.

        >>> ErrorScale("std", 0.0, process_std=2.0).widening(np.array([1.0, 2.0, 5.0]))
        array([1. , 1. , 2.5])
        """
        if process_std is None or self.process_std is None:
            return 1.0
        return np.maximum(1.0, process_std / self.process_std)

    def predict(self, features: Floats, widening: Floats | float = 1.0) -> Floats:
        """(row,): the error scale of rows with these features (see `scale_features`)."""
        of_size, of_std = self.exponents
        scale = widening * self.factor * self.size(features) ** of_size * features[:, -1] ** of_std
        return scale if self.y_std is None else np.hypot(scale, self.y_std)


def scale_features(neighbor_features: Floats, mean: Floats, std: Floats, floor: float) -> Floats:
    """(row, feature): neighbor features, predictions and their positive standard deviations.

    They are within the range of float32, in which trees compute.
    """
    features = np.column_stack([neighbor_features, mean, positive_scale(std, floor)])
    return np.clip(features, -MAX_FLOAT32, MAX_FLOAT32)


def count_scale_features(n_columns: int, n_codes: int = 0) -> int:
    """The number of features of the regressor, by the numbers of numeric and other columns.

    >>> count_scale_features(0), count_scale_features(3), count_scale_features(3, 1)
    (2, 12, 13)
    """
    return 2 + n_codes + (n_columns + 4 + len(N_NEIGHBORS) if n_columns else 0)


def std_floor(std: Floats, known_y: Floats | None = None) -> float:
    """The constant that is added to every standard deviation.

    For a twin, a small fraction of the standard deviation of its known values: it does not depend
    on the calibration rows, so the coverage is exact. For another model, a small fraction of the
    mean standard deviation.
    """
    if known_y is not None and np.std(known_y) > 0:
        return _FLOOR_OF_TARGET * float(np.std(known_y))
    return RELATIVE_FLOOR * float(np.mean(std))


def positive_scale(std: Floats, floor: float) -> Floats:
    """Standard deviations to divide by; ones where the floor is zero, as all of them are then."""
    return std + floor if floor > 0 else np.ones_like(std)


def numeric_columns(X: object) -> list[int]:
    """Indices of the numeric columns, by their type in the whole table."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "f":
        return list(range(X.shape[1]))
    if is_table(X):
        return [j for j, column in enumerate(column_list(X)[0]) if is_numeric_dtype(column)]
    try:
        return list(range(np.asarray(X, dtype=float).shape[1]))
    except (TypeError, ValueError):
        return []


def numeric_features(X: object, columns: list[int]) -> Floats:
    """(n, column) float64: the values of these columns."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "f":
        return X[:, columns]
    if not columns:
        return np.empty((count_rows(X), 0))
    if not is_table(X):
        return np.asarray(X, dtype=float)[:, columns]
    values, names = column_list(X)
    return np.column_stack([to_numeric(values[j], names[j]) for j in columns])


# --- calibration ---


@dataclass(frozen=True, eq=False)
class Calibration:
    """Scores of held-out rows and the error scale in units of which they are.

    The predictive distribution of y is the prediction plus the error scale times a score.
    """

    scores: Floats  # (score,), sorted in increasing order
    scale: ErrorScale
    neighbors: NeighborFeatures
    rows: Indices | None = None  # (score,): among the anchors; None where they are others

    @classmethod
    def of_scores(
        cls,
        scores: Floats,
        scale: ErrorScale,
        neighbors: NeighborFeatures,
        rows: Indices | None = None,
    ) -> Calibration:
        """From scores in any order, and their rows among the anchors."""
        order = np.argsort(scores, kind="stable")
        return cls(scores[order], scale, neighbors, None if rows is None else rows[order])

    def error_scale(
        self, X: object, mean: Floats, std: Floats, process_std: Floats | None = None
    ) -> Floats:
        """(n,) expected size of errors of rows with these predictions.

        X is a table or, for a twin, the matrix of its encoded features. `process_std` (n,) is that
        of the process of the learned metric, where intervals are widened. They are also widened
        where the estimates of anchors and members differ by more than at any calibration row.
        """
        features = self.neighbors.transform(X, mean)
        features = scale_features(features, mean, std, self.scale.floor)
        scale = self.scale.predict(features, self.scale.widening(process_std))
        unit = self.std(np.ones(1))  # 0 for a constant target
        if self.scale.largest_std is None or not unit > 0:
            return scale
        ratio = features[:, -1] / self.scale.largest_std
        excess = self.scale.largest_std * np.maximum(ratio - 1.0, 0.0) * ratio**SPREAD_POWER
        return np.hypot(scale, excess / unit)

    def with_errors(self, of: str, y_std: object, n_rows: int) -> Calibration:
        """With the errors of further measurements, the median of the known ones, or none."""
        check_choice("of", of, ["measurement", "value"])
        if of == "measurement" and y_std is None:
            return self
        if self.scale.y_std is None:
            raise ValueError("of='value' and y_std need a fit with y_std, or with --error.")
        known = 0.0 if of == "value" else check_row_numbers("y_std", y_std, n_rows)
        return replace(self, scale=replace(self.scale, y_std=known))

    def std(self, scale: Floats) -> Floats:
        """(n,) standard deviations of the errors of rows with these error scales."""
        return scale * np.sqrt(np.mean(self.scores**2))

    @cached_property
    def distribution(self) -> ScoreDistribution:
        """The distribution of scores."""
        return ScoreDistribution.of(self.scores)

    @property
    def n_rows(self) -> int:
        """The number of held-out rows."""
        return len(self.scores)

    def with_known_rows(self, X: Floats, y: Floats) -> Calibration:
        """The same scores, with the neighbor features of these known rows."""
        neighbors = NeighborFeatures(X, y, self.neighbors.columns, self.neighbors.codes)
        return replace(self, neighbors=neighbors)


def find_rows(X: Floats, y: Floats, neighbors: NeighborFeatures) -> Indices | None:
    """The row (X, y) of each known row of neighbor features; None where they are not the same."""
    rows = np.column_stack([X[:, neighbors.columns], y])
    known = np.column_stack([neighbors.values, neighbors.y])
    first, second = np.lexsort(rows.T), np.lexsort(known.T)
    if not np.array_equal(rows[first], known[second], equal_nan=True):
        return None
    found = np.empty(len(y), dtype=np.intp)
    found[second] = first
    return found
