"""Folds of rows, groups of rows, and rows with equal features."""

from collections.abc import Iterator
from numbers import Integral

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import GroupKFold, KFold, check_cv

from twinned._compat import BaseEstimator
from twinned.rows.schema import Floats, Indices

MIN_TRAINING_ROWS = 10  # of a fold of groups

Fold = tuple[Indices, Indices]  # training rows, held-out rows
Folds = list[Fold]


def held_out_rows(n_rows: int, fraction: float, rng: np.random.RandomState) -> NDArray[np.bool_]:
    """(n_rows,) mask of a random fraction of the rows, at least one and never all."""
    count = min(max(1, round(fraction * n_rows)), n_rows - 1)
    held_out = np.zeros(n_rows, dtype=bool)
    held_out[rng.permutation(n_rows)[:count]] = True
    return held_out


def row_folds(
    n: int,
    n_folds: int,
    random_state: int | np.random.RandomState | None,
    groups: Indices | None = None,
    min_rows: int = MIN_TRAINING_ROWS,
) -> Folds:
    """Random folds of rows, as (training, held-out) indices; `groups` (n,) are not split.

    Groups that leave fewer than `min_rows` training rows are refused.

    >>> [held_out.tolist() for _, held_out in row_folds(4, 5, 0, np.array([0, 0, 1, 1]))]
    [[2, 3], [0, 1]]
    """
    rows = np.arange(n)
    if groups is None:
        return list(KFold(n_folds, shuffle=True, random_state=random_state).split(rows))
    n_splits = min(n_folds, len(np.unique(groups)))
    splitter = GroupKFold(n_splits, shuffle=True, random_state=random_state)
    folds = list(splitter.split(rows, groups=groups))
    smallest = min(len(training) for training, _ in folds)
    if smallest < min(min_rows, n // 2):
        raise ValueError(
            f"The largest group has {np.bincount(groups).max()} of the {n} rows; a fold without it "
            f"has {smallest} training rows, and at least {min_rows} are needed."
        )
    return folds


class ForwardFolds(BaseEstimator):
    """Folds in the order of time: each is trained on all earlier rows.

    The `groups` of `fit` are the times of the rows: numbers, dates or others that can be sorted.
    The later half of the rows is held out, in folds of about equal size. Rows of equal times are in
    one fold. The rows may be in any order, unlike those of `TimeSeriesSplit`.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds; there are fewer where few times differ.

    Examples
    --------
    >>> from twinned import ForwardFolds
    >>> times = [2021, 2022, 2020, 2022, 2023, 2020]
    >>> for training, held_out in ForwardFolds().split(times, groups=times):
    ...     print(training, held_out)
    [0 2 5] [1 3]
    [0 1 2 3 5] [4]
    """

    def __init__(self, n_splits: int = 5) -> None:
        self.n_splits = n_splits

    def get_n_splits(
        self, X: object = None, y: object = None, groups: ArrayLike | None = None
    ) -> int:
        """The number of folds of these times."""
        return len(list(self.split(X, y, groups)))

    def split(self, X: object, y: object = None, groups: ArrayLike | None = None) -> Iterator[Fold]:
        """Yield (training rows, held-out rows) of each fold."""
        if groups is None:
            raise ValueError("ForwardFolds needs the times of the rows: give them as groups.")
        earlier = count_earlier(groups)
        share = earlier / max(int(earlier.max()), 1)  # 1 at the last time
        number = np.minimum((2 * share - 1) * self.n_splits, self.n_splits - 1)
        for fold in np.unique(np.floor(number[number >= 0])):
            yield np.flatnonzero(number < fold), np.flatnonzero(np.floor(number) == fold)


def count_earlier(times: ArrayLike) -> Indices:
    """(row,): the number of rows of earlier times.

    >>> count_earlier([2021, 2022, 2020, 2022])
    array([1, 2, 0, 2])
    """
    try:
        _, codes, counts = np.unique(times, return_inverse=True, return_counts=True)
    except TypeError as error:
        raise ValueError(f"The times of the rows cannot be sorted: {error}.") from None
    return (np.cumsum(counts) - counts)[codes]


def encode_groups(groups: ArrayLike, n: int) -> Indices:
    """(n,) integer codes of at least two groups, for any labels."""
    labels = np.asarray(groups, dtype=object)
    if labels.shape != (n,):
        raise ValueError(f"groups must have one label for each of the {n} rows.")
    missing = pd.isna(labels)
    if missing.any():
        raise ValueError(f"Row {int(missing.argmax())} has no group.")
    distinct, codes = np.unique(labels.astype(str), return_inverse=True)
    if len(distinct) < 2:
        raise ValueError(f"All rows are in one group, {distinct[0]}; at least two are needed.")
    return codes


def distinct_rows(matrix: Floats) -> tuple[Indices, Indices]:
    """Index of the first of equal rows, and (row,) the number of its distinct row.

    Missing values are equal to each other.

    >>> distinct_rows(np.array([[1.0, np.nan], [0.0, 1.0], [1.0, np.nan]]))
    (array([1, 0]), array([1, 0, 1]))
    """
    missing = np.isnan(matrix)
    if missing.any():
        matrix = np.column_stack([np.where(missing, 0.0, matrix), missing])
    _, first, inverse = np.unique(matrix, axis=0, return_index=True, return_inverse=True)
    return first, inverse.ravel()


def equal_features(matrix: Floats, n_folds: int = 5) -> Indices | None:
    """(row,): codes of rows with equal features; None where no folds can separate them.

    Rows that share their features with more than half a fold have codes of their own.
    """
    _, codes = distinct_rows(matrix)
    counts = np.bincount(codes)
    alone = counts[codes] > len(matrix) / (2 * n_folds)
    codes = np.where(alone, len(counts) + np.arange(len(matrix)), codes)
    codes = np.unique(codes, return_inverse=True)[1]
    n_codes = int(codes.max()) + 1
    return None if n_codes == len(matrix) or n_codes < 2 * n_folds else codes


def given_folds(cv: object, X: Floats, y: Floats, groups: ArrayLike | None = None) -> Folds | None:
    """The folds of a splitter or of an iterable of splits; None for an integer.

    Not all rows must be held out, nor must a fold be trained on all others.
    """
    if isinstance(cv, Integral):
        return None
    rows = np.arange(len(X))  # a split may be a mask
    splits = [(rows[training], rows[part]) for training, part in check_cv(cv).split(X, y, groups)]
    folds = [split for split in splits if len(split[1])]
    every = np.concatenate([held_out for _, held_out in folds]) if folds else rows[:0]
    if len(folds) < 2 or len(np.unique(every)) < len(every):
        raise ValueError("cv must hold out each row at most once, in at least two folds.")
    if any(len(training) < 2 or np.isin(training, rows).any() for training, rows in folds):
        raise ValueError("Each fold of cv needs two training rows, and must not hold them out.")
    return folds


def draw_folds(
    n: int, n_folds: int, seed: int | np.random.RandomState | None, groups: Indices | None
) -> Indices:
    """The fold of each row (n,), of those of `row_folds`."""
    return number_folds(row_folds(n, n_folds, seed, groups), n)[0]


def number_folds(folds: Folds, n: int) -> tuple[Indices, NDArray[np.bool_] | None]:
    """(row,) the fold that holds out each row, −1 where none does, and (fold, row) training rows.

    The latter are None where each fold is trained on all rows that it does not hold out.

    >>> number_folds([(np.array([0]), np.array([1])), (np.array([0, 1]), np.array([2]))], 3)[0]
    array([-1,  0,  1])
    """
    fold, training = np.full(n, -1), np.zeros((len(folds), n), dtype=bool)
    for number, (rows, held_out) in enumerate(folds):
        fold[held_out], training[number, rows] = number, True
    is_rest = np.array_equal(training, fold != np.arange(len(folds))[:, None])
    return fold, None if is_rest else training


def complete_predictions(predicted: Floats, y: Floats, weight: Floats | None) -> Floats:
    """(row, …) out-of-fold predictions, with the mean error where no fold holds out a row (NaN).

    Errors minus their mean are so 0 there: nothing is known of them.

    >>> complete_predictions(np.array([np.nan, 1.0, 2.0]), np.array([5.0, 2.0, 5.0]), None)
    array([3., 1., 2.])
    """
    held_out = ~np.isnan(predicted).reshape(len(y), -1).any(axis=1)
    if held_out.all():
        return predicted
    target = y.reshape(*y.shape, *(1,) * (predicted.ndim - y.ndim))
    weight = None if weight is None else weight[held_out]
    mean = np.average((target - predicted)[held_out], axis=0, weights=weight)
    return np.where(np.isnan(predicted), target - mean, predicted)
