"""Pairs of training rows: strategies that draw them, and folds of pairs."""

from collections.abc import Callable
from typing import Protocol, runtime_checkable

import numpy as np
from sklearn.model_selection import check_cv

from twinned._compat import BaseEstimator
from twinned.rows.folds import Folds
from twinned.rows.neighbors import NeighborIndex, check_metric
from twinned.rows.schema import Floats, Indices
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
