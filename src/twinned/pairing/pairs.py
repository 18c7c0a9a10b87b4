"""Which pairs, what the learner sees of them, and THE sign convention.

`F(a, b) = y(a) − y(b)`: first minus second. Nobody else builds pairs, and nobody else knows the
sign.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from twinned._neighbors import Indices, NeighborIndex, check_metric
from twinned._table import Floats, Rows, TableSchema
from twinned._validation import check_bool, check_choice, check_integer

PAIR_FEATURES = ("concat", "concat+difference", "difference")

# "auto" takes all pairs up to this many, and random partners beyond: what 500 points give, and
# what a boosted learner fits in seconds.
AUTO_PAIRS = 250_000
# ... but never fewer partners than this while they fit into memory. The paper finds 8 to 16
# enough; as its code also pairs the partners with each other, that is 33 or more pairs a point,
# so this is a floor for large n and no advice.
AUTO_PARTNERS = 8


# --- the sign -------------------------------------------------------------------------------


def difference(first: Any, second: Any) -> Any:
    """y(a) − y(b), the value that F(a, b) learns."""
    return first - second


def antisymmetric(forward: Any, backward: Any) -> Any:
    """½F(a, b) − ½F(b, a) from both orders; swapping a and b flips the sign to the last bit.

    >>> antisymmetric(3.0, -2.0), antisymmetric(-2.0, 3.0)
    (2.5, -2.5)
    """
    return 0.5 * (forward - backward)


def asymmetry(forward: Any, backward: Any) -> Any:
    """How far the two orders disagree: the spread of F(a, b) and −F(b, a) about their mean."""
    return 0.5 * np.abs(forward + backward)


def estimate(predicted_difference: Any, anchor_y: Any) -> Any:
    """y(x) = F(x, anchor) + y(anchor)."""
    return predicted_difference + anchor_y


# --- which pairs ----------------------------------------------------------------------------


class PairStrategy(Protocol):
    """What `pairs` may be: it counts before it draws, so that memory can be refused in time."""

    both_orders: bool

    def count(self, n_points: int) -> int: ...

    def draw(
        self, n_points: int, index: Callable[[str], NeighborIndex], rng: np.random.RandomState
    ) -> tuple[Indices, Indices]: ...


class AllPairs(BaseEstimator):
    """Every point with every point, itself included.

    The pairs i = j make repeating a row the same as doubling its weight.
    """

    both_orders = True

    def count(self, n_points: int) -> int:
        return n_points**2

    def draw(self, n_points: int, index: Any, rng: Any) -> tuple[Indices, Indices]:
        """(n²,) first and second rows.

        >>> AllPairs().draw(2, None, None)
        (array([0, 0, 1, 1]), array([0, 1, 0, 1]))
        """
        rows = np.arange(n_points)
        return np.repeat(rows, n_points), np.tile(rows, n_points)


class RandomPairs(BaseEstimator):
    """Each point with `per_point` others, drawn without replacement: the paper's multiplier.

    Parameters
    ----------
    per_point : int
        How many partners each point gets, at most all others.
    partner_pairs : bool, default=False
        Also pair the partners of a point with each other, as the author's code does: the distinct
        pairs of a triple's three sides. Then `per_point = 8` means about 33 pairs per point.
    """

    both_orders = False

    def __init__(self, per_point: int, partner_pairs: bool = False) -> None:
        self.per_point = per_point
        self.partner_pairs = partner_pairs

    def count(self, n_points: int) -> int:
        """How many pairs; with `partner_pairs` at most that many, as some coincide."""
        m = self._partners(n_points)
        if check_bool("partner_pairs", self.partner_pairs):
            return min(n_points * m * (m + 1) // 2, n_points * (n_points - 1) // 2)
        return n_points * m

    def draw(
        self, n_points: int, index: Any, rng: np.random.RandomState
    ) -> tuple[Indices, Indices]:
        """(count,) first and second rows, never the same point twice in a pair."""
        m = self._partners(n_points)
        partners = np.empty((n_points, m), dtype=np.intp)
        for i in range(n_points):
            drawn = _distinct(rng, n_points - 1, m)
            # numbers from i on mean the point after: so i itself is never drawn
            partners[i] = drawn + (drawn >= i)
        first, second = np.repeat(np.arange(n_points), m), partners.ravel()
        if not self.partner_pairs:
            return first, second
        left, right = np.triu_indices(m, k=1)
        first = np.concatenate([first, partners[:, left].ravel()])
        second = np.concatenate([second, partners[:, right].ravel()])
        low, high = np.minimum(first, second), np.maximum(first, second)
        distinct = np.unique(low * n_points + high)
        low, high = distinct // n_points, distinct % n_points
        # either way round: rows may be sorted by y, and then one order has only one sign
        turned = rng.randint(0, 2, len(low)) == 1
        return np.where(turned, high, low), np.where(turned, low, high)

    def _partners(self, n_points: int) -> int:
        return min(check_integer("pairs (per_point)", self.per_point), n_points - 1)


class HalfPairs(BaseEstimator):
    """Each pair of two points once, in one order or the other at random.

    Half the work of `AllPairs`, for a twin that is `symmetric` and so knows the mirror image of
    what it has learned.

    Parameters
    ----------
    most : int or None, default=None
        Beyond so many pairs, random partners for each point instead of all others.
    """

    both_orders = False
    one_order = True

    def __init__(self, most: int | None = None) -> None:
        self.most = most

    def count(self, n_points: int) -> int:
        every = n_points * (n_points - 1) // 2
        if self.most is None or every <= check_integer("pairs (most)", self.most):
            return every
        return n_points * max(1, self.most // n_points)

    def draw(
        self, n_points: int, index: Any, rng: np.random.RandomState
    ) -> tuple[Indices, Indices]:
        """(count,) first and second rows.

        >>> first, second = HalfPairs().draw(3, None, np.random.RandomState(0))
        >>> sorted((min(pair), max(pair)) for pair in zip(first.tolist(), second.tolist()))
        [(0, 1), (0, 2), (1, 2)]
        """
        count = self.count(n_points)
        if count < n_points * (n_points - 1) // 2:
            return RandomPairs(count // n_points).draw(n_points, index, rng)
        low, high = np.triu_indices(n_points, k=1)
        # either way round: rows may be sorted by y, and then one order has only one sign
        turned = rng.randint(0, 2, len(low)) == 1
        return np.where(turned, high, low), np.where(turned, low, high)


class NearestPairs(BaseEstimator):
    """Each point with its `k` nearest neighbors, at most all others.

    Parameters
    ----------
    k : int
        How many neighbors.
    metric : str, default="euclidean"
        Any metric name that scikit-learn's `NearestNeighbors` takes.
    include_self : bool, default=False
        Let a point count as its own nearest neighbor, as in the author's code.
    """

    both_orders = False

    def __init__(self, k: int, metric: str = "euclidean", include_self: bool = False) -> None:
        self.k = k
        self.metric = metric
        self.include_self = include_self

    def count(self, n_points: int) -> int:
        return n_points * self._neighbors(n_points)

    def draw(
        self, n_points: int, index: Callable[[str], NeighborIndex], rng: Any
    ) -> tuple[Indices, Indices]:
        """(n·k,) first and second rows."""
        k = self._neighbors(n_points)
        neighbors = index(check_metric(self.metric)).kneighbors_self(
            k, include_self=self.include_self
        )
        return np.repeat(np.arange(n_points), k), neighbors.ravel()

    def _neighbors(self, n_points: int) -> int:
        others = n_points - (not check_bool("include_self", self.include_self))
        return min(check_integer("pairs (k)", self.k), others)


def as_pair_strategy(
    pairs: Any, n_points: int, most_pairs: int | None, *, mirrored: bool
) -> PairStrategy:
    """What the parameter `pairs` means for `n_points` when at most `most_pairs` fit in memory.

    >>> as_pair_strategy("auto", 300, None, mirrored=True)
    AllPairs()
    >>> as_pair_strategy("auto", 1000, None, mirrored=True)
    RandomPairs(per_point=125)
    """
    if isinstance(pairs, str):
        check_choice("pairs", pairs, ["auto", "all"], ", a number of partners, or a strategy")
        if pairs == "all":
            return AllPairs()
        most = AUTO_PAIRS if most_pairs is None else min(AUTO_PAIRS, most_pairs)
        if n_points**2 <= most:
            return AllPairs()
        orders = 2 if mirrored else 1
        partners = max(AUTO_PARTNERS, most // (orders * n_points))
        if most_pairs is not None:
            partners = min(partners, most_pairs // (orders * n_points))
        return RandomPairs(max(1, min(partners, n_points - 1)))
    if hasattr(pairs, "count") and hasattr(pairs, "draw") and not isinstance(pairs, type):
        return pairs
    try:
        return RandomPairs(check_integer("pairs", pairs))
    except TypeError:
        raise TypeError(
            "pairs must be 'auto', 'all', a number of partners, or a strategy such as "
            f"RandomPairs(8), not {pairs!r}."
        ) from None


def check_pairs(first: Any, second: Any, n_points: int, most: int) -> None:
    """What a strategy drew: rows that exist, as many first as second ones, and not too many."""
    for side in (first, second):
        if np.ndim(side) != 1 or np.asarray(side).dtype.kind not in "iu":
            raise TypeError(f"a pair strategy must draw whole row numbers, not {side!r}.")
    if len(first) != len(second) or not len(first):
        raise ValueError(
            f"a pair strategy drew {len(first)} first and {len(second)} second rows; it needs as "
            "many of both, and at least one."
        )
    if len(first) > most:
        raise ValueError(f"a pair strategy drew {len(first)} pairs, more than it counted ({most}).")
    lowest, highest = min(first.min(), second.min()), max(first.max(), second.max())
    if lowest < 0 or highest >= n_points:
        raise ValueError(
            f"a pair strategy drew row {lowest if lowest < 0 else highest} of {n_points} points."
        )


def _distinct(rng: np.random.RandomState, n: int, m: int) -> Indices:
    """M distinct numbers below n, in O(m) where m is small beside n."""
    if 3 * m >= n:
        return rng.permutation(n)[:m]
    drawn = np.unique(rng.randint(0, n, size=m))
    while len(drawn) < m:
        drawn = np.unique(np.concatenate([drawn, rng.randint(0, n, size=m - len(drawn))]))
    return drawn


# --- what the learner sees of a pair ----------------------------------------------------------


class PairColumn(IntEnum):
    """What a column of a pair is: a point's own value, a difference, or whether names differ."""

    FIRST = 0
    SECOND = 1
    DIFFERENCE = 2
    NAMES = 3


class PairFeatures:
    """Turns pairs of points into rows for the learner.

    `"concat"` is (a, b); `"difference"` is a − b; `"concat+difference"` is (a, b, a − b), in that
    order; a callable gets both sides as (n_pairs, n_columns) arrays and returns
    (n_pairs, n_new_columns). Differences are subtracted in float64, then rounded to `dtype`.
    """

    def __init__(self, kind: Any, columns: TableSchema, dtype: np.dtype[Any]) -> None:
        if not callable(kind) or isinstance(kind, type):
            check_choice("pair_features", kind, PAIR_FEATURES, " or a callable")
        self.kind = kind
        self.dtype = dtype
        self._n_wide = columns.n_encoded
        self._n_differences = columns.n_features
        if callable(kind):
            some = columns.to_rows(np.zeros((2, columns.n_features)))
            self.width = self._called(some, some).shape[1]
        else:
            self.width = 2 * self._n_wide * ("concat" in kind) + (
                self._n_differences * ("difference" in kind)
            )

    def build(self, first: Rows, second: Rows, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """(..., width) in C order, for sides whose leading axes broadcast against each other."""
        leading = np.broadcast_shapes(first.codes.shape[:-1], second.codes.shape[:-1])
        if callable(self.kind):
            flat = [_flatten(side, leading) for side in (first, second)]
            rows = self._called(*flat).reshape(*leading, self.width)
            if out is not None:
                out[...] = rows
            return rows
        if out is None:
            out = np.empty((*leading, self.width), dtype=self.dtype)
        column = 0
        if "concat" in self.kind:
            for part in (first.numeric, first.one_hot, second.numeric, second.one_hot):
                out[..., column : column + part.shape[-1]] = part
                column += part.shape[-1]
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

    def layout(self, n_numeric: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(width,) what each column of `build` is, and which column of a point it is made of.

        A point's columns are counted over numbers, indicators and codes, in that order, as in
        `Rows`; `n_numeric` of them are numbers. For those who predict without building pairs.
        """
        role: list[int] = []
        source: list[int] = []
        if "concat" in self.kind:
            role += [PairColumn.FIRST] * self._n_wide + [PairColumn.SECOND] * self._n_wide
            source += [*range(self._n_wide)] * 2
        if "difference" in self.kind:
            n_names = self._n_differences - n_numeric
            role += [PairColumn.DIFFERENCE] * n_numeric + [PairColumn.NAMES] * n_names
            source += [*range(n_numeric), *range(self._n_wide, self._n_wide + n_names)]
        return np.array(role, dtype=np.int64), np.array(source, dtype=np.int64)

    def _called(self, first: Rows, second: Rows) -> NDArray[Any]:
        rows = np.asarray(self.kind(first.features, second.features))
        if rows.ndim != 2 or len(rows) != len(first) or rows.dtype.kind not in "fiub":
            raise ValueError(
                f"pair_features must return numbers of shape ({len(first)}, n_columns), but "
                f"{self.kind!r} returned {rows.dtype} of shape {rows.shape}."
            )
        return rows.astype(self.dtype, copy=False)


def category_mismatch(first: Floats, second: Floats) -> Floats:
    """1 where two names differ, 0 where they are the same, NaN where one is missing.

    >>> category_mismatch(np.array([0.0, 0.0, np.nan]), np.array([0.0, 3.0, 1.0]))
    array([ 0.,  1., nan])
    """
    differs = (first != second).astype(np.float64)
    return np.where(np.isnan(first) | np.isnan(second), np.nan, differs)


def _flatten(side: Rows, leading: tuple[int, ...]) -> Rows:
    """Both leading axes of a grid as one, for what can only see rows."""
    n_rows = int(np.prod(leading))
    return Rows(
        *(
            np.broadcast_to(part, (*leading, part.shape[-1])).reshape(n_rows, part.shape[-1])
            for part in side
        )
    )


# --- weights ----------------------------------------------------------------------------------


def draw_by_weight(weight: Floats, most: int, rng: np.random.RandomState) -> Indices:
    """Rows that stand in for weights, for a learner that takes none.

    Whole-number weights are repetitions, exactly, once their common factor is taken out and up to
    `most` rows. Other weights are met in expectation with as many rows as there are weights: the
    whole part of each share is certain, and the rest is drawn in proportion to what is left over.

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
