"""How large an error to expect of a prediction, before and after errors were seen.

Before, a model's own standard deviation says it. After, extremely randomised trees learn the size
of the errors of left-out points: from the points themselves, from what the model says of them, and
from the known points nearby: how near they are, how much their values differ, and how far these are
from what the model says. Features, learner and the weights of its word were chosen by the
sparsification of errors out of fold, on the training rows of the paper's first splits.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.pipeline import Pipeline

from twinned._neighbors import NeighborIndex
from twinned._table import Floats, column_list, is_numeric_dtype, is_table, to_numeric
from twinned._validation import count_rows

# Of the mean raw standard deviation, added to each: no point is so easy that no error counts.
LEAST = 0.05
_LEAST_OF_SPREAD = 0.002  # the same, in units of the standard deviation of the known values
_NEARBY = (3, 10, 20)  # known points
_LARGEST = float(np.finfo(np.float32).max)
_LEARNED_SHARE = 2 / 3  # of the logarithm of the expected error; the rest is the model's own word


class Told(NamedTuple):
    """What a model says of points, and what is known about them."""

    mean: Floats
    raw: Floats  # its standard deviation; ones where it has none
    about: Floats  # (point, feature)


class NeighborFeatures:
    """The known points, of which a query has some nearby.

    Only columns of numbers count, by their type in the table; names are left out.

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        The known points.
    y : array of shape (n,)
        Their values.
    names : list of int, default=()
        TableSchema of numbers that stand for names, and are left out, too.
    """

    def __init__(self, X: Any, y: Floats, names: Sequence[int] = ()) -> None:
        self.places, self.y = [i for i in numeric_indices(X) if i not in names], y
        if not self.places:
            return
        numbers = numeric_features(X, self.places)
        known = ~np.isnan(numbers)
        count = np.maximum(known.sum(axis=0), 1)
        self._middle = np.where(known, numbers, 0.0).sum(axis=0) / count
        square = np.where(known, numbers - self._middle, 0.0) ** 2
        spread = np.sqrt(square.sum(axis=0) / count)
        self._spread = np.where(spread > 0, spread, 1.0)
        self._index = NeighborIndex(self._scaled(numbers))

    def _scaled(self, numbers: Floats) -> Floats:
        """Standardised; what is missing is as the mean."""
        return np.nan_to_num((numbers - self._middle) / self._spread, nan=0.0)

    def about(self, X: Any, mean: Floats) -> Floats:
        """(n, feature) of points for which a model predicts `mean`.

        Their numbers; how far the nearest known point is, and the tenth; the spread of y among 3,
        10 and 20 of them; how far the nearest one's y is from the prediction, and the mean of 5.
        """
        numbers = numeric_features(X, self.places)
        if not self.places:
            return numbers
        k = min(max(_NEARBY), len(self.y))
        rows, distances = self._index.kneighbors(self._scaled(numbers), k)
        near = self.y[rows]
        return np.column_stack(
            [
                numbers,
                distances[:, 0],
                distances[:, : _NEARBY[1]][:, -1],
                *(near[:, :n].std(axis=1) for n in _NEARBY),
                np.abs(near[:, 0] - mean),
                np.abs(near[:, :5].mean(axis=1) - mean),
            ]
        )


class ErrorScale(NamedTuple):
    """Tells how large an error to expect.

    With a learner, by a geometric mean of what that says and of the model's own deviation.
    """

    width: str
    floor: float
    learner: Any  # of the size of errors; None where the model's own deviation serves
    learned_floor: float

    def sigma(self, told: Told) -> Floats:
        if self.width == "constant":
            return np.ones_like(told.mean)
        sigma = positive(told.raw, self.floor)
        if self.learner is None:
            return sigma
        learned = self.learner.predict(features(told, self.floor))
        learned = positive(learned, self.learned_floor)
        return learned**_LEARNED_SHARE * sigma ** (1 - _LEARNED_SHARE)


def features(told: Told, floor: float) -> Floats:
    """What the size of an error is learned from; trees take it in float32."""
    found = np.column_stack([told.about, told.mean, positive(told.raw, floor)])
    return np.clip(found, -_LARGEST, _LARGEST)


def error_size_regressor(random_state: Any) -> ExtraTreesRegressor:
    """Learns the size of errors: of a few hundred, so not finely."""
    return ExtraTreesRegressor(200, min_samples_leaf=5, max_features=0.5, random_state=random_state)


def numeric_indices(X: Any) -> list[int]:
    """Which columns are numbers, by their type in the whole table; names are left out."""
    if is_table(X):
        return [i for i, column in enumerate(column_list(X)[0]) if is_numeric_dtype(column)]
    try:
        return list(range(np.asarray(X, dtype=float).shape[1]))
    except (TypeError, ValueError):
        return []


def categorical_indices(model: Any) -> Sequence[int]:
    """Which columns a fitted twin takes for names, whatever their type."""
    columns = getattr(model, "_schema", None)
    return () if columns is None else columns.categorical


def numeric_features(X: Any, places: list[int]) -> Floats:
    """(n, place) those columns."""
    if not is_table(X):
        return np.asarray(X, dtype=float)[:, places] if places else np.empty((count_rows(X), 0))
    columns, names = column_list(X)
    numbers = [to_numeric(columns[i], names[i]) for i in places]
    return np.column_stack([np.empty((count_rows(X), 0)), *numbers])


def tell(model: Any, X: Any, around: NeighborFeatures | None = None, said: Any = None) -> Told:
    """What a model of one output says of points; `said` where it has been asked already."""
    if said is not None:
        mean, raw = said
    elif has_std(model):
        mean, raw = (np.asarray(part, dtype=float) for part in model.predict(X, return_std=True))
    else:
        mean = np.asarray(model.predict(X), dtype=float)
        raw = np.ones_like(mean)
    if mean.ndim != 1:
        raise ValueError(f"Intervals need a model of one output, but this one has {mean.shape[1]}.")
    about = np.empty((len(mean), 0)) if around is None else around.about(X, mean)
    return Told(mean, raw, about)


def has_std(model: Any) -> bool:
    """Whether `predict` takes `return_std`; a pipeline hands it to its last step."""
    while isinstance(model, Pipeline):
        model = model.steps[-1][1]
    return "return_std" in inspect.signature(model.predict).parameters


def std_floor(model: Any, raw: Floats) -> float:
    """What is added to every deviation.

    Of a twin, a small part of the spread of its known values: that is settled before any
    calibration point is seen, and so the coverage is exact. Of another model, a small part of the
    mean deviation.
    """
    known = getattr(getattr(model, "twin_", model), "anchors_y_", None)
    if known is not None and np.std(known) > 0:
        return _LEAST_OF_SPREAD * float(np.std(known))
    return LEAST * float(np.mean(raw))


def positive(raw: Floats, floor: float) -> Floats:
    """Standard deviations to divide by; ones where the floor is zero, as all of them are then."""
    return raw + floor if floor > 0 else np.ones_like(raw)
