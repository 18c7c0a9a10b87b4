"""Pairs of training rows: strategies that draw them, their features, and folds of pairs."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import check_cv

from twinned._compat import BaseEstimator
from twinned.rows.folds import Folds
from twinned.rows.neighbors import NeighborIndex, check_metric
from twinned.rows.schema import Floats, Indices, Rows, TableSchema
from twinned.rows.validation import check_bool, check_choice, check_integer

# "auto" is all pairs up to this number (500 rows), which boosting fits in seconds, and random
# partners beyond.
AUTO_PAIRS = 250_000
# The fewest partners per row of "auto" while they fit into memory. The paper finds 8 to 16 enough,
# but its code also pairs the partners with each other, which is 33 or more pairs per row.
AUTO_PARTNERS = 8


RowPairs = tuple[Indices, Indices]  # (n_pairs,) first and second rows
MetricIndex = Callable[[str], NeighborIndex]  # the index of the rows by a metric
RNG = np.random.RandomState


@runtime_checkable
class PairStrategy(Protocol):
    """Contract of pair strategies: `draw` returns at most `count` pairs.

    The count is checked against the memory limit before pairs are drawn.

    With the attribute `both_orders = True`, the pairs include their mirror images. Otherwise a
    `symmetric` twin adds them, unless the strategy has `one_order = True`.
    """

    def count(self, n_rows: int) -> int: ...

    def draw(self, n_rows: int, index: MetricIndex, rng: RNG) -> RowPairs: ...


class AllPairs(BaseEstimator):
    """All n² pairs of training rows, including each row with itself.

    The pairs i = j make repeating a row equivalent to doubling its weight.
    """

    both_orders = True

    def count(self, n_rows: int) -> int:
        return n_rows**2

    def draw(self, n_rows: int, index: MetricIndex | None, rng: RNG | None) -> RowPairs:
        """(n²,) first and second rows.

        >>> AllPairs().draw(2, None, None)
        (array([0, 0, 1, 1]), array([0, 1, 0, 1]))
        """
        rows = np.arange(n_rows)
        return np.repeat(rows, n_rows), np.tile(rows, n_rows)


class RandomPairs(BaseEstimator):
    """Each row with `per_point` others, drawn without replacement: the paper's multiplier.

    Parameters
    ----------
    per_point : int
        Number of partners per row, at most all others.
    partner_pairs : bool, default=False
        Also pair the partners of a row with each other, as the author's code does. Then
        `per_point=8` means about 33 pairs per row.
    """

    both_orders = False

    def __init__(self, per_point: int, partner_pairs: bool = False) -> None:
        self.per_point = per_point
        self.partner_pairs = partner_pairs

    def count(self, n_rows: int) -> int:
        """Number of pairs; with `partner_pairs` an upper bound, as some coincide."""
        m = self._partners(n_rows)
        if check_bool("partner_pairs", self.partner_pairs):
            return min(n_rows * m * (m + 1) // 2, n_rows * (n_rows - 1) // 2)
        return n_rows * m

    def draw(self, n_rows: int, index: MetricIndex | None, rng: RNG) -> RowPairs:
        """(count,) first and second rows, which differ in every pair."""
        m = self._partners(n_rows)
        partners = np.empty((n_rows, m), dtype=np.intp)
        for i in range(n_rows):
            drawn = _distinct(rng, n_rows - 1, m)
            # indices from i on are shifted by one, so that i itself is never drawn
            partners[i] = drawn + (drawn >= i)
        first, second = np.repeat(np.arange(n_rows), m), partners.ravel()
        if not self.partner_pairs:
            return first, second
        left, right = np.triu_indices(m, k=1)
        first = np.concatenate([first, partners[:, left].ravel()])
        second = np.concatenate([second, partners[:, right].ravel()])
        low, high = np.minimum(first, second), np.maximum(first, second)
        return _swap_randomly(*np.divmod(np.unique(low * n_rows + high), n_rows), rng)

    def _partners(self, n_rows: int) -> int:
        return min(check_integer("pairs (per_point)", self.per_point), n_rows - 1)


class HalfPairs(BaseEstimator):
    """Each pair of two different rows once, in random order.

    Half the pairs of `AllPairs`, for a twin that is `symmetric` and so predicts mirror images
    consistently without being fitted to them.

    Parameters
    ----------
    most : int or None, default=None
        Maximum number of pairs; beyond it, each row gets random partners instead of all others.
    """

    both_orders = False
    one_order = True

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def count(self, n_rows: int) -> int:
        every = n_rows * (n_rows - 1) // 2
        if self.most is None or every <= check_integer("pairs (most)", self.most):
            return every
        return n_rows * max(1, self.most // n_rows)

    def draw(self, n_rows: int, index: MetricIndex | None, rng: RNG) -> RowPairs:
        """(count,) first and second rows.

        >>> first, second = HalfPairs().draw(3, None, np.random.RandomState(0))
        >>> sorted((min(pair), max(pair)) for pair in zip(first.tolist(), second.tolist()))
        [(0, 1), (0, 2), (1, 2)]
        """
        count = self.count(n_rows)
        if count < n_rows * (n_rows - 1) // 2:
            first, second = RandomPairs(count // n_rows).draw(n_rows, index, rng)
        else:
            first, second = _swap_randomly(*np.triu_indices(n_rows, k=1), rng)
        # Boosting adds up gradients faster where successive pairs fall into different bins, which
        # pairs of one row do not.
        order = rng.permutation(count)
        return first[order], second[order]


class NearestPairs(BaseEstimator):
    """Each row with its `k` nearest neighbors, at most all others.

    Parameters
    ----------
    k : int
        Number of neighbors.
    metric : str, default="euclidean"
        Name of a metric of scikit-learn's `NearestNeighbors`, or `"learned"`: Euclidean on
        features that are scaled by learned length scales (see the user guide).
    include_self : bool, default=False
        Whether a row counts as its own nearest neighbor, as in the author's code.
    """

    both_orders = False

    def __init__(self, k: int, metric: str = "euclidean", include_self: bool = False) -> None:
        self.k = k
        self.metric = metric
        self.include_self = include_self

    def count(self, n_rows: int) -> int:
        return n_rows * self._neighbors(n_rows)

    def draw(self, n_rows: int, index: MetricIndex, rng: RNG | None) -> RowPairs:
        """(n·k,) first and second rows."""
        k, neighbors = self._neighbors(n_rows), index(check_metric(self.metric))
        second = neighbors.kneighbors_self(k, include_self=self.include_self)
        return np.repeat(np.arange(n_rows), k), second.ravel()

    def _neighbors(self, n_rows: int) -> int:
        others = n_rows - (not check_bool("include_self", self.include_self))
        return min(check_integer("pairs (k)", self.k), others)


def as_pair_strategy(
    pairs: object, n_rows: int, max_pairs: int = 2**62, *, mirrored: bool
) -> PairStrategy:
    """The strategy of the parameter `pairs`, where at most `max_pairs` pairs fit in memory.

    >>> as_pair_strategy("auto", 300, mirrored=True)
    AllPairs()
    >>> as_pair_strategy("auto", 1000, mirrored=True)
    RandomPairs(per_point=125)
    """
    if isinstance(pairs, str):
        check_choice("pairs", pairs, ["auto", "all"], ", a number of partners, or a strategy")
        if pairs == "all":
            return AllPairs()
        if n_rows**2 <= min(AUTO_PAIRS, max_pairs):
            return AllPairs()
        per_partner = n_rows * (2 if mirrored else 1)
        partners = max(AUTO_PARTNERS, AUTO_PAIRS // per_partner)
        partners = min(partners, max_pairs // per_partner, n_rows - 1)
        return RandomPairs(max(1, partners))
    if isinstance(pairs, PairStrategy) and not isinstance(pairs, type):
        return pairs
    try:
        return RandomPairs(check_integer("pairs", pairs))
    except TypeError:
        message = f"pairs must be 'auto', 'all', a number or a strategy, not {pairs!r}."
        raise TypeError(message) from None


def check_drawn_pairs(first: Indices, second: Indices, n_rows: int, count: int) -> None:
    """Validate the pairs that a strategy drew: valid row indices, at most `count` pairs."""
    sides = np.asarray(first), np.asarray(second)
    if any(side.ndim != 1 or side.dtype.kind not in "iu" for side in sides):
        raise TypeError(f"a pair strategy must draw integer row indices, not {sides!r}.")
    if not 0 < len(first) == len(second) <= count:
        drew = f"a pair strategy drew {len(first)} first and {len(second)} second rows"
        raise ValueError(f"{drew}; it needs as many of both, and at most its count, {count}.")
    rows = np.concatenate(sides)
    if rows.min() < 0 or rows.max() >= n_rows:
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise ValueError(f"a pair strategy drew row {wrong} of {n_rows} rows.")


def _swap_randomly(low: Indices, high: Indices, rng: RNG) -> RowPairs:
    """Pairs in random order: with rows sorted by y, one order would have only one sign."""
    swapped = rng.randint(0, 2, len(low)) == 1
    return np.where(swapped, high, low), np.where(swapped, low, high)


def _distinct(rng: RNG, n: int, m: int) -> Indices:
    """Draw m distinct integers below n, in O(m) where m is much smaller than n."""
    if 3 * m >= n:
        return rng.permutation(n)[:m]
    drawn = np.unique(rng.randint(0, n, size=m))
    while len(drawn) < m:
        drawn = np.unique(np.concatenate([drawn, rng.randint(0, n, size=m - len(drawn))]))
    return drawn


def draw_by_weight(weight: Floats, most: int, rng: RNG) -> Indices:
    """Indices drawn in proportion to weights, for an estimator that does not support weights.

    Integer weights are repetitions, exactly, divided by their common factor and up to `most`
    indices. Other weights are met in expectation with as many indices as there are weights: the
    integer part of each share is certain, and the remainder is drawn in proportion.

    >>> draw_by_weight(np.array([1.0, 0.0, 2.0]), 10, np.random.RandomState(0))
    array([0, 2, 2])
    """
    if weight.max() < 2**53 and np.all(weight == np.floor(weight)):
        times = weight.astype(np.int64)
        times //= np.gcd.reduce(times)
        if times.sum() <= most:
            return np.repeat(np.arange(len(weight)), times)
    share = weight * (min(len(weight), most) / weight.sum())
    certain = np.floor(share)
    n_left = round(share.sum() - certain.sum())
    rows = np.repeat(np.arange(len(weight)), certain.astype(np.intp))
    if n_left:
        left = share - certain
        more = rng.choice(len(weight), size=n_left, replace=True, p=left / left.sum())
        rows = np.sort(np.concatenate([rows, more]))
    return rows


def pair_folds(
    cv: object, first: Indices, second: Indices, y: Floats, groups: Indices | None = None
) -> Folds:
    """Folds of pairs that are folds of rows: (train, test) indices of pairs, as `cv` of a search.

    A pair and its mirror image, or two pairs that share a row, have nearly the same information: a
    search that cross-validates over pairs is tested on rows that it was fitted to, and chooses
    models that overfit. Here a fold holds out rows: the training pairs are those of the remaining
    rows, and the test pairs those of a held-out row with a remaining one, as in a prediction.

    `cv`, as everywhere in scikit-learn, splits the rows with target values `y` and `groups`;
    `first` and `second` (n_pairs,) are the rows of each pair.

    >>> first, second = np.repeat(np.arange(4), 4), np.tile(np.arange(4), 4)
    >>> train, test = pair_folds(2, first, second, np.zeros(4))[0]
    >>> [(int(first[row]), int(second[row])) for row in train]
    [(2, 2), (2, 3), (3, 2), (3, 3)]
    >>> len(test)  # rows 0 and 1 with rows 2 and 3, in both orders
    8
    """
    n_rows = len(y)
    folds = []
    for training_rows, test_rows in check_cv(cv).split(np.zeros((n_rows, 1)), y, groups):
        training, held_out = np.zeros((2, n_rows), dtype=bool)
        training[training_rows], held_out[test_rows] = True, True
        train = np.flatnonzero(training[first] & training[second])
        test = np.flatnonzero(
            (held_out[first] & training[second]) | (training[first] & held_out[second])
        )
        if not len(train) or not len(test):
            counts = f"{len(train)} training pairs and {len(test)} test pairs"
            raise ValueError(f"A fold of cv={cv!r} has {counts}; use more pairs or fewer folds.")
        folds.append((train, test))
    return folds


# --- features of pairs ---


PAIR_FEATURES = ("concat", "concat+difference", "difference")


class PairColumn(IntEnum):
    """Role of a pair column: a feature of either row, a difference, or a category mismatch."""

    FIRST = 0
    SECOND = 1
    DIFFERENCE = 2
    MISMATCH = 3


class PairFeatures:
    """Builder of pair features.

    `"concat"` is (a, b); `"difference"` is a − b; `"concat+difference"` is (a, b, a − b), in that
    order; a callable gets both sides as (n_pairs, n_encoded) arrays and returns
    (n_pairs, width). Differences are subtracted in float64, then rounded to `dtype`.
    `selected` are the features of the table that pairs are made of; None for all of them.
    """

    def __init__(
        self, kind: Any, schema: TableSchema, dtype: np.dtype, selected: Indices | None = None
    ) -> None:
        if not callable(kind) or isinstance(kind, type):
            check_choice("pair_features", kind, PAIR_FEATURES, " or a callable")
        self.kind = kind
        self.dtype = dtype
        n_features = len(schema.kinds)
        self.selected: Indices = np.arange(n_features) if selected is None else selected
        self._selected = None
        if selected is not None and len(selected) < n_features:
            self._selected = schema.row_columns(selected)
        example = schema.to_rows(np.zeros((2, n_features)))
        if self._selected is not None:
            example = example.take_columns(*self._selected)
        n_numeric, n_codes = example.numeric.shape[1], example.codes.shape[1]
        self._n_encoded = n_numeric + example.one_hot.shape[1]
        if callable(kind):
            self.width: int = self._call(example, example).shape[1]
        else:
            self.width = 2 * self._n_encoded * ("concat" in kind)
            self.width += (n_numeric + n_codes) * ("difference" in kind)
        self.bytes_per_pair: int = self.width * dtype.itemsize

    def build(self, first: Rows, second: Rows) -> Floats:
        """(..., width) in C order, for sides whose leading axes broadcast against each other."""
        if self._selected is not None:
            first, second = (side.take_columns(*self._selected) for side in (first, second))
        leading = np.broadcast_shapes(first.codes.shape[:-1], second.codes.shape[:-1])
        if callable(self.kind):
            flat = [_flatten(side, leading) for side in (first, second)]
            return self._call(*flat).reshape(*leading, self.width)
        out = np.empty((*leading, self.width), dtype=self.dtype)
        column = 0
        if "concat" in self.kind:
            for features in (first.numeric, first.one_hot, second.numeric, second.one_hot):
                out[..., column : column + features.shape[-1]] = features
                column += features.shape[-1]
        if "difference" in self.kind:
            n_numeric = first.numeric.shape[-1]
            np.subtract(
                first.numeric,
                second.numeric,
                out=out[..., column : column + n_numeric],
                casting="same_kind",
                dtype=np.float64,
            )
            if first.codes.shape[-1]:
                out[..., column + n_numeric :] = category_mismatch(first.codes, second.codes)
        return out

    def layout(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(width,) role of each pair column, and the index of the feature it is made of.

        Features are counted over numeric features, indicators and codes, in the order of `rows`.
        Used for prediction without building pairs.
        """
        ends = np.cumsum([array.shape[-1] for array in rows])
        numeric, indicators, codes = np.split(np.arange(ends[-1]), ends[:-1])
        if self._selected is not None:
            selected_numeric, selected_indicators, selected_codes = self._selected
            numeric = numeric[selected_numeric]
            indicators = indicators[selected_indicators]
            codes = codes[selected_codes]
        encoded = [*numeric, *indicators]
        role: list[int] = []
        source: list[int] = []
        if "concat" in self.kind:
            role += [PairColumn.FIRST] * len(encoded) + [PairColumn.SECOND] * len(encoded)
            source += encoded * 2
        if "difference" in self.kind:
            role += [PairColumn.DIFFERENCE] * len(numeric) + [PairColumn.MISMATCH] * len(codes)
            source += [*numeric, *codes]
        return np.array(role, dtype=np.int64), np.array(source, dtype=np.int64)

    def _call(self, first: Rows, second: Rows) -> Floats:
        rows = np.asarray(self.kind(first.features, second.features))
        if rows.ndim != 2 or len(rows) != len(first) or rows.dtype.kind not in "fiub":
            raise ValueError(
                f"pair_features must return a numeric array of shape ({len(first)}, width), but "
                f"{self.kind!r} returned {rows.dtype} of shape {rows.shape}."
            )
        return rows.astype(self.dtype, copy=False)


def category_mismatch(first: Floats, second: Floats) -> Floats:
    """1 where two categories differ, 0 where they are equal, NaN where one is missing.

    >>> category_mismatch(np.array([0.0, 0.0, np.nan]), np.array([0.0, 3.0, 1.0]))
    array([ 0.,  1., nan])
    """
    differs = (first != second).astype(np.float64)
    return np.where(np.isnan(first) | np.isnan(second), np.nan, differs)


def _flatten(side: Rows, leading: tuple[int, ...]) -> Rows:
    """Rows with all leading axes merged into one."""

    def flatten(array: Floats) -> Floats:
        width = array.shape[-1]
        return np.broadcast_to(array, (*leading, width)).reshape(int(np.prod(leading)), width)

    return Rows(flatten(side.numeric), flatten(side.one_hot), flatten(side.codes))
