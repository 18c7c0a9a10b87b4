"""Anchors of a query: which training rows are stored, which are used, and their weights.

The paper finds no consistent gain by weights of uncertainty; `benchmarks/anchors/anchor_weights.py`
measures the strategies here.

Replicates are queries that equal known rows. Rows with equal features are held out together, so
out-of-fold predictions are those of new rows. Where the table has many replicates, the correlation
of their out-of-fold errors shows how much the known values of a row are worth: near 1 if replicates
have equal values that no model predicts, near 0 if their values differ as much as those of
different rows do from their predictions.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from twinned._compat import BaseEstimator
from twinned.rows.folds import distinct_rows
from twinned.rows.neighbors import KERNELS, LEARNED, check_metric
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_choice, check_integer, check_real

_LEAST_REPLICATED = 20  # distinct rows that occur more than once
# The least relative fall of an out-of-fold error for which predictions depend on near anchors, and
# the least number of distinct rows by which it is measured.
_LEAST_GAIN, _LEAST_ROWS = 0.02, 50
WeightStrategy = Callable[[Floats, Floats, Indices], Floats]


@runtime_checkable
class AnchorStrategy(Protocol):
    """Contract of anchor strategies.

    `store` draws the training rows that are stored as anchors. `nearest` returns the number of
    nearest anchors used for a query and their metric, or None where all are used.
    """

    def store(self, n_rows: int, rng: np.random.RandomState) -> Indices: ...

    def nearest(self, n_anchors: int) -> tuple[int, str] | None: ...


class AllAnchors(BaseEstimator):
    """All training rows are anchors of every query."""

    def store(self, n_rows: int, rng: np.random.RandomState) -> Indices:
        return np.arange(n_rows)

    def nearest(self, n_anchors: int) -> None:
        return None


class NearestAnchors(BaseEstimator):
    """Each query is predicted from its `k` nearest anchors.

    Parameters
    ----------
    k : int
        Number of anchors.
    metric : str, default="euclidean"
        Name of a metric of scikit-learn's `NearestNeighbors`, or `"learned"`: Euclidean on
        features that are scaled by learned length scales (see the user guide).
    """

    def __init__(self, k: int, metric: str = "euclidean") -> None:
        self.k = k
        self.metric = metric

    def store(self, n_rows: int, rng: np.random.RandomState) -> Indices:
        self.nearest(n_rows)
        return np.arange(n_rows)

    def nearest(self, n_anchors: int) -> tuple[int, str]:
        k = check_integer("anchors (k)", self.k)
        if k > n_anchors:
            available = f"{n_anchors} anchors (n_samples = {n_anchors})"
            raise ValueError(f"k={k} exceeds the {available}; use fewer or anchors='all'.")
        return k, check_metric(self.metric)


class RandomAnchors(BaseEstimator):
    """`n` training rows, drawn once in `fit`; only those are stored.

    Parameters
    ----------
    n : int
        Number of anchors.
    """

    def __init__(self, n: int) -> None:
        self.n = n

    def store(self, n_rows: int, rng: np.random.RandomState) -> Indices:
        n = check_integer("anchors (n)", self.n)
        if n > n_rows:
            raise ValueError(f"n={n} of RandomAnchors exceeds the {n_rows} rows; use fewer.")
        return np.sort(rng.choice(n_rows, size=n, replace=False))

    def nearest(self, n_anchors: int) -> None:
        return None


def as_anchor_strategy(anchors: object) -> AnchorStrategy:
    """The strategy of the parameter `anchors`."""
    if isinstance(anchors, AnchorStrategy) and not isinstance(anchors, type):
        return anchors
    if not isinstance(anchors, str) or anchors != "all":
        check_choice("anchors", anchors, ["all"], " or a strategy such as NearestAnchors(16)")
    return AllAnchors()


def clearly_lowest(errors: Sequence[Floats], rows: Floats, weights: Floats | None = None) -> int:
    """Index of the (row, …) errors of these rows that are lowest; 0 where none is clearly so.

    The fall of the mean squared error below the first counts less its standard error, so that few
    rows with large errors do not decide. The error must fall by 2 %, and fewer than 50 distinct
    rows show too little.
    """
    first, codes = distinct_rows(rows)
    if len(first) < _LEAST_ROWS:
        return 0
    share = np.full(len(rows), 1 / len(rows)) if weights is None else weights / weights.sum()
    squares = [(residuals.reshape(len(rows), -1) ** 2).sum(axis=1) for residuals in errors]
    # twice the gain, as errors are squared
    best, largest = 0, 2 * _LEAST_GAIN * float(share @ squares[0])
    for number, row_squares in enumerate(squares):
        falls = squares[0] - row_squares
        mean = float(share @ falls)
        # rows of equal features are not independent, and repeated rows are a weight
        deviations = np.bincount(codes, weights=share * (falls - mean))
        if (fall := mean - np.sqrt(np.sum(deviations**2))) > largest:
            best, largest = number, fall
    return best


def draw_anchors(
    anchors: object, known_rows: Indices, rng: np.random.RandomState
) -> tuple[Indices, tuple[int, str] | None]:
    """The known rows that are anchors, and the number and metric of the nearest; None for all."""
    strategy = as_anchor_strategy(anchors)
    rows = np.asarray(strategy.store(len(known_rows), rng))
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or not len(rows):
        raise ValueError(f"an anchor strategy must store integer row indices, not {rows!r}.")
    if rows.min() < 0 or rows.max() >= len(known_rows):
        raise ValueError(f"an anchor strategy stored rows {rows!r} of {len(known_rows)} rows.")
    return known_rows[rows], strategy.nearest(len(rows))


# --- weights ---


class UniformWeights(BaseEstimator):
    """Equal weights."""

    def __call__(self, distances: Floats, estimates: Floats, anchor_indices: Indices) -> Floats:
        return np.ones(anchor_indices.shape)


class DistanceWeights(BaseEstimator):
    """Inverse distances; an anchor at distance zero gets all the weight.

    An anchor whose distance is undefined (no feature in common) gets weight zero, unless all
    distances of the query are undefined: then the weights are equal.
    """

    def __call__(self, distances: Floats, estimates: Floats, anchor_indices: Indices) -> Floats:
        """(query, anchor) weights.

        >>> DistanceWeights()(np.array([[0.5, 2.0], [0.0, 3.0]]), None, None)
        array([[2. , 0.5],
               [1. , 0. ]])
        """
        undefined = np.isnan(distances)
        all_undefined = undefined.all(axis=1, keepdims=True)
        distances = np.where(undefined, np.where(all_undefined, 1.0, np.inf), distances)
        exact = distances == 0
        nearest = distances.min(axis=1, keepdims=True)
        # in units of the nearest distance where its inverse would overflow: only ratios count
        unit = np.where(nearest > 1e-300, 1.0, nearest)
        inverse = np.divide(unit, distances, out=np.zeros_like(distances), where=~exact)
        return np.where(exact.any(axis=1, keepdims=True), exact.astype(np.float64), inverse)


class GPWeights(BaseEstimator):
    """Inverse variance of y at the query, given the anchor alone, by a Gaussian process.

    The process is the one that the learned metric comes from (see `feature_relevance_`); the paper
    suggests its uncertainty as a weight. In units of its amplitude, the variance is
    `1 + noise − k(r)² / (1 + noise)`, where r is the distance in length scales.

    Parameters
    ----------
    power : float, default=1.0
        Power of the inverse variance; 0 gives equal weights.
    """

    def __init__(self, power: float = 1.0) -> None:
        self.power = power

    def weigh(self, distances: Floats, noise: float) -> Floats:
        """(query, anchor) weights by distances in length scales and the noise of the process.

        They are in units of that of an anchor at distance zero.

        >>> GPWeights().weigh(np.array([[0.0, 99.0]]), noise=0.5)
        array([[1.        , 0.55555556]])
        """
        correlation = KERNELS["matern"](distances**2)[0]
        # the variance without an anchor is total, and that at distance zero (total² − 1) / total
        total, power = 1.0 + noise, check_real("power of GPWeights", self.power)
        weights: Floats = ((total**2 - 1.0) / (total**2 - correlation**2)) ** power
        return weights


def as_weight_strategy(weights: object) -> WeightStrategy | GPWeights:
    """The strategy of the parameter `weights`."""
    if isinstance(weights, GPWeights) or (callable(weights) and not isinstance(weights, type)):
        return weights
    check_choice("weights", weights, ["uniform", "distance"], " or a strategy")
    return UniformWeights() if weights == "uniform" else DistanceWeights()


def uses_learned_metric(*strategies: object) -> bool:
    """Whether any of these strategies for pairs, anchors or weights needs the learned metric."""
    return any(
        isinstance(strategy, GPWeights)
        or (isinstance(metric := getattr(strategy, "metric", None), str) and metric == LEARNED)
        for strategy in strategies
    )


# --- replicates ---


def replicate_correlation(matrix: Floats, errors: Floats, weights: Floats | None = None) -> float:
    """Correlation of the out-of-fold errors (row,) of rows of a matrix that are equal, or 0.

    The mean product of the errors of two replicates, divided by their mean square. It is 0 where
    fewer than 20 rows are replicated, if it would be negative, and with weights, which may stand
    for repeated rows.

    >>> rows = np.repeat(np.arange(25.0), 2)[:, None]
    >>> replicate_correlation(rows, np.tile([1.0, 0.5], 25))
    0.8
    >>> replicate_correlation(rows[:30], np.ones(30))
    0.0
    """
    codes = distinct_rows(matrix)[1]
    counts = np.bincount(codes)
    replicated = counts > 1
    if weights is not None or replicated.sum() < _LEAST_REPLICATED:
        return 0.0
    sums, squares = (np.bincount(codes, weights=values) for values in (errors, errors**2))
    # of the pairs of replicates, so that each row counts once
    products = (sums**2 - squares)[replicated] / (counts[replicated] - 1)
    total = float(squares[replicated].sum())
    return float(np.clip(products.sum() / total, 0.0, 1.0)) if total > 0 else 0.0


def weigh_replicates(
    weights: Floats, queries: Indices, anchors: Indices, correlation: float
) -> Floats:
    """(query, anchor) weights with more weight for anchors that equal the query.

    `queries` and `anchors` are those of `EqualRows.match`, and the given weights sum to one. The m
    anchors that equal a query have together the additional weight m ρ / (1 + (m − 1) ρ), that of
    their mean in the best linear prediction, where ρ is the `correlation` of replicates.

    >>> rows = EqualRows(np.array([[1.0], [1.0], [2.0]]))
    >>> matches = rows.match(np.array([[2.0], [7.0]]))
    >>> weigh_replicates(np.full((2, 3), 1 / 3), *matches, 0.5).round(3)
    array([[0.167, 0.167, 0.667],
           [0.333, 0.333, 0.333]])
    """
    counts = np.bincount(queries, minlength=len(weights))
    weight_of_match = correlation / (1 + np.maximum(counts - 1, 0) * correlation)
    weights = weights * (1 - counts * weight_of_match)[:, None]
    weights[queries, anchors] += weight_of_match[queries]
    return weights


class EqualRows:
    """Rows of a matrix (anchor, feature), by which equal ones of other rows are found."""

    def __init__(self, matrix: Floats) -> None:
        self._anchors: dict[bytes, list[int]] = {}
        for anchor, key in enumerate(_row_keys(matrix)):
            self._anchors.setdefault(key, []).append(anchor)

    def match(self, matrix: Floats) -> tuple[Indices, Indices]:
        """(match,): indices of queries and of the anchors that equal them."""
        matches = [
            (query, anchor)
            for query, key in enumerate(_row_keys(matrix))
            for anchor in self._anchors.get(key, ())
        ]
        queries, anchors = np.array(matches, dtype=np.intp).reshape(-1, 2).T
        return queries, anchors


def _row_keys(matrix: Floats) -> list[bytes]:
    """The bytes of each row; equal rows have equal bytes, missing values included."""
    rows = np.where(np.isnan(matrix), np.nan, matrix + 0.0)  # one NaN, and no negative zero
    return [row.tobytes() for row in rows]
