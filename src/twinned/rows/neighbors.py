"""Nearest-neighbor search, distances, the learned metric, and its Gaussian process.

The search is exact, by scikit-learn. Distances are computed on the features as given, with
categorical features as indicators, or by a learned metric (`twinned.models.learned_metric`).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, solve_triangular
from scipy.sparse import csr_array
from scipy.spatial.distance import cdist
from sklearn.metrics import pairwise_distances
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

from twinned.rows.folds import Folds
from twinned.rows.schema import Floats, Indices, TableSchema

LEARNED = "learned"  # the name of the learned metric
_MORE_CANDIDATES = 4  # than neighbors that are searched, to see which are equally near
_CELLS_PER_BLOCK = 250_000  # queries × candidates
TRANSLATION_INVARIANT = {
    "euclidean", "l2", "sqeuclidean", "manhattan", "l1", "cityblock", "chebyshev", "minkowski",
    "nan_euclidean",
}  # fmt: skip
NARROW_FEATURES = 20  # of a table; beyond, distances are those of a matrix product
MAX_KNOWN = 1000  # known rows by which the process of the learned metric is conditioned
_JITTER = LEAST_VARIANCE = 1e-8  # in units of the amplitude
_ROWS_PER_BLOCK = 1000
# Variance of the slope of a trend beyond the known rows, for length scales of 1
# (`benchmarks/intervals/outside.py`).
TREND = 0.1


class LearnedMetric(NamedTuple):
    """Euclidean distance after each encoded feature is centered and scaled by its relevance.

    A missing value counts as the mean of its feature.
    """

    center: Floats  # (encoded feature,)
    scale: Floats  # (encoded feature,), by which features are multiplied
    length_scales: Floats  # (encoded feature,), of the Gaussian process; infinite if constant
    noise: float  # noise variance of the process, in units of its amplitude
    slopes: Floats  # (encoded feature,), root mean square slopes of y, per standard deviation

    def transform(self, features: Floats) -> Floats:
        """Features whose Euclidean distances are the learned ones.

        >>> ones = np.ones(2)
        >>> metric = LearnedMetric(ones, np.array([2.0, 0.5]), ones, 0.0, ones)
        >>> metric.transform(np.array([[1.0, 3.0], [2.0, np.nan]]))
        array([[0., 1.],
               [2., 0.]])
        """
        return np.nan_to_num((features - self.center) * self.scale)

    def in_length_scales(self, features: Floats) -> Floats:
        """Features whose Euclidean distances are those of the Gaussian process."""
        return np.nan_to_num((features - self.center) / self.length_scales)


class NeighborIndex:
    """An index of fixed rows for exact nearest-neighbor queries."""

    def __init__(
        self,
        features: Floats,
        metric: str = "euclidean",
        n_jobs: int | None = None,
        learned: LearnedMetric | None = None,
    ) -> None:
        self.metric = metric
        self._learned = learned if metric == LEARNED else None
        if self._learned is not None:
            features, metric = self._learned.transform(features), "euclidean"
        if metric != "nan_euclidean" and np.isnan(features).any():
            raise ValueError(f"Input contains NaN; use metric='nan_euclidean', not {metric!r}.")
        self._search_metric = metric
        self._features = features
        self._origin = _origin(features) if metric in TRANSLATION_INVARIANT else 0.0
        self._search = NearestNeighbors(metric=metric, n_jobs=n_jobs)
        try:
            self._search.fit(features - self._origin)
        except (TypeError, KeyError) as error:
            raise ValueError(f"metric={metric!r} cannot be used: {error}") from error

    def __len__(self) -> int:
        return len(self._features)

    def kneighbors_self(self, k: int, *, include_self: bool = False) -> Indices:
        """(n, k): indices of the k nearest neighbors of each row among the rows themselves.

        A row is not its own neighbor unless `include_self`; a duplicate of it is one.

        >>> NeighborIndex(np.array([[0.0], [1.0], [5.0]])).kneighbors_self(1)
        array([[1],
               [0],
               [1]])
        """
        # with `include_self`, the row itself comes first, even where it has a duplicate
        neighbors = [np.arange(len(self._features))] if include_self else []
        if k > len(neighbors):
            neighbors.append(
                self._search.kneighbors(None, k - len(neighbors), return_distance=False)
            )
        return np.column_stack(neighbors)

    def kneighbors(self, queries: Floats, k: int) -> tuple[Indices, Floats]:
        """(query, k) indices and distances, nearest first; of equally near rows, the first ones.

        Distances are equal if they are so in float32: rounding does not decide between rows.

        >>> NeighborIndex(np.array([[1.0], [3.0], [1.0]])).kneighbors(np.array([[2.0]]), 2)
        (array([[0, 1]]), array([[1., 1.]]))
        """
        if self._learned is not None:
            queries = self._learned.transform(queries)
        n_rows = len(self._features)
        n_candidates = max(min(k + _MORE_CANDIDATES, n_rows), k)
        indices, distances, is_open = self._nearest(queries, k, n_candidates)
        while is_open.any() and n_candidates < n_rows:
            n_candidates = min(4 * n_candidates, n_rows)
            # rows with many equally near ones have few values, and so have their queries
            distinct, inverse = np.unique(queries[is_open], axis=0, return_inverse=True)
            which = inverse.ravel()
            nearest, nearest_distances, remains_open = self._nearest(distinct, k, n_candidates)
            indices[is_open] = nearest[which]
            distances[is_open] = nearest_distances[which]
            is_open[is_open] = remains_open[which]
        return indices, distances

    def _nearest(
        self, queries: Floats, k: int, n_candidates: int
    ) -> tuple[Indices, Floats, NDArray[np.bool_]]:
        """`kneighbors` among so many candidates, and whether further rows may be as near."""
        shape = (len(queries), k)
        indices, distances = np.empty(shape, dtype=np.intp), np.empty(shape)
        is_open = np.empty(len(queries), dtype=bool)
        for block in gen_batches(len(queries), max(1, _CELLS_PER_BLOCK // n_candidates)):
            candidates, distances_to_candidates = self._candidates(queries[block], n_candidates)
            keys = _ordering_keys(distances_to_candidates)
            order = np.lexsort((candidates, keys))
            indices[block] = np.take_along_axis(candidates, order[:, :k], axis=1)
            distances[block] = np.take_along_axis(distances_to_candidates, order[:, :k], axis=1)
            last = np.take_along_axis(keys, order[:, [k - 1, -1]], axis=1)
            is_open[block] = last[:, 0] == last[:, 1]
        return indices, distances, is_open

    def _candidates(self, queries: Floats, n: int) -> tuple[Indices, Floats]:
        """(query, n) indices and distances of the nearest rows."""
        distances, indices = self._search.kneighbors(queries - self._origin, n)
        if self._search_metric == "euclidean":
            # exact: the search by inner products gives 1e-8 as the distance of a row to itself
            squares = np.zeros_like(distances)
            for column in range(queries.shape[1]):
                squares += (queries[:, column, None] - self._features[indices, column]) ** 2
            distances = np.sqrt(squares)
        return indices, distances


def _ordering_keys(distances: Floats) -> Floats:
    """Distances rounded to float32, where that has their magnitude."""
    limits = np.finfo(np.float32)
    with np.errstate(over="ignore"):
        rounded = distances.astype(np.float32).astype(np.float64)
    return np.where((rounded >= limits.tiny) & (rounded <= limits.max), rounded, distances)


def distance_matrix(queries: Floats, anchors: Floats, metric: str = "euclidean") -> Floats:
    """(query, anchor) distances; the Euclidean ones ignore missing values.

    >>> distance_matrix(np.array([[0.1, 0.0]]), np.array([[0.1, 0.0], [3.1, 4.0]]))
    array([[0., 5.]])
    """
    if metric != "euclidean":
        return pairwise_distances(queries, anchors, metric=metric)
    # not by inner products as in scikit-learn, which give 1e-8 as the distance of a row to itself
    distances = cdist(queries, anchors)
    if np.isnan(distances).any():
        missing = np.isnan(distances).any(axis=1)
        distances[missing] = _nan_euclidean(queries[missing], anchors)
    return distances


def _nan_euclidean(queries: Floats, anchors: Floats) -> Floats:
    """Euclidean over the features that both have, scaled to all; NaN where they share none."""
    squares = np.zeros((len(queries), len(anchors)))
    shared = np.zeros_like(squares)
    for column in range(queries.shape[1]):
        gap = queries[:, column, None] - anchors[None, :, column]
        has_both = ~np.isnan(gap)
        squares += np.where(has_both, gap, 0.0) ** 2
        shared += has_both
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.sqrt(squares * (queries.shape[1] / shared))


def _origin(features: Floats) -> Floats:
    """An origin near the data, for features far from zero such as years or identifiers.

    The brute-force search uses inner products, in which the differences of such a feature cancel.
    Subtracting one of its own values is exact where all are within a factor of two.
    """
    with np.errstate(invalid="ignore"):
        low = np.fmin.reduce(np.abs(features))  # without NaN
        high = np.fmax.reduce(np.abs(features))
        one_sign = (features > 0).all(axis=0) | (features < 0).all(axis=0)
    return np.where(one_sign & (high <= 2 * low), features[0], 0.0)


def check_metric(metric: object) -> str:
    """Validate the name of a metric; a function could not be saved with the model."""
    if not isinstance(metric, str):
        raise TypeError(f"metric must be a name such as 'euclidean', not {metric!r}.")
    return metric


def _rbf(squares: Floats) -> tuple[Floats, Floats]:
    """exp(−r²/2) and its derivative with respect to r², from r²."""
    value = np.exp(-0.5 * squares)
    return value, -0.5 * value


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Matérn 5/2 and its derivative with respect to r², from r²."""
    # in place: allocating large arrays takes longer than computing them
    slope = 5.0 * squares
    np.sqrt(slope, out=slope)
    value = np.exp(-slope)
    slope += 1.0
    slope *= value
    value *= squares
    value *= 5.0 / 3.0
    value += slope
    slope *= -5.0 / 6.0
    return value, slope


KERNELS: dict[str, Callable[[Floats], tuple[Floats, Floats]]] = {"rbf": _rbf, "matern": _matern}


def kernel_of_rows(kernel: str, first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """(first row, second row): correlation of scaled rows, and its derivative by r²."""
    if first.shape[1] > NARROW_FEATURES:  # by a matrix product, ten times as fast for 1,000
        return KERNELS[kernel](euclidean_distances(first, second, squared=True))
    return KERNELS[kernel](cdist(first, second, "sqeuclidean"))


def tanimoto_similarity(first: Floats, second: Floats) -> Floats:
    """(first row, second row): sum of the smaller counts divided by that of the larger ones.

    Rows without any count are equal.

    >>> tanimoto_similarity(np.array([[2.0, 1.0, 0.0]]), np.array([[1.0, 1.0, 2.0]]))
    array([[0.4]])
    """
    total = first.sum(axis=1)[:, None] + second.sum(axis=1)
    # molecules have few of all fragments; |a − b| is the larger count less the smaller one
    distance = manhattan_distances(csr_array(first), csr_array(second))
    return np.divide(total - distance, total + distance, out=np.ones_like(total), where=total > 0)


def mixed_correlation(similarity: Floats | None, correlation: Floats, share: float) -> Floats:
    """The weighted mean of the similarity of counts, if any, and that of other features."""
    return correlation if similarity is None else share * similarity + (1.0 - share) * correlation


class MetricProcess:
    """A Gaussian process with the learned length scales and noise, given known rows.

    Covariances are in units of its amplitude. Of more than 1,000 known rows, a fixed random subset
    is used.
    """

    def __init__(self, known_rows: Floats, metric: LearnedMetric, schema: TableSchema) -> None:
        """Of encoded features (known row, encoded feature)."""
        self.metric: LearnedMetric = metric
        self.schema: TableSchema = schema
        self.n_known: int = len(known_rows)
        self.used: Indices = np.random.RandomState(0).permutation(len(known_rows))[:MAX_KNOWN]
        self.scaled: Floats = metric.in_length_scales(known_rows[self.used])
        self.low: Floats = np.fmin.reduce(known_rows)  # without missing values
        self.high: Floats = np.fmax.reduce(known_rows)
        # (encoded feature,): of slopes; a standard deviation adds at most one of the process
        self.trend: Floats = TREND / np.maximum(1.0, TREND * self.scaled.var(axis=0))
        covariance = _kernel(self.scaled, self.scaled)
        covariance[np.diag_indices_from(covariance)] += metric.noise + _JITTER
        self.factor: Floats = np.linalg.cholesky(covariance)

    def correlation(self, features: Floats) -> Floats:
        """(row, row): correlations of measurements of rows with these encoded features."""
        scaled = self.metric.in_length_scales(features)
        explained = solve_triangular(self.factor, _kernel(self.scaled, scaled), lower=True).T
        remaining = np.maximum(1.0 - np.sum(explained**2, axis=1), LEAST_VARIANCE)
        std = np.sqrt(remaining + self.metric.noise)
        covariance: Floats = _kernel(scaled, scaled) - explained @ explained.T
        correlation = covariance / std[:, None] / std
        np.fill_diagonal(correlation, 1.0)
        return correlation

    def std(self, features: Floats) -> Floats:
        """(row,): standard deviation of y at rows with these encoded features.

        A category that no known row has is as far from the others as these are from each other. A
        feature beyond the range of the known rows adds the variance of a trend, which grows with
        the square of the distance, as the process itself returns to its mean.
        """
        std, inverse = np.empty(len(features)), self.metric.length_scales**-2.0
        for rows in gen_batches(len(features), _ROWS_PER_BLOCK):
            new = np.zeros(len(features[rows]))
            for feature in self.schema.categorical:
                columns = self.schema.encoded_columns(np.array([feature]))
                is_new = features[rows][:, columns].sum(axis=1) == 0
                new += is_new * inverse[columns].mean()
            scaled = self.metric.in_length_scales(features[rows])
            covariance = _kernel(self.scaled, scaled, new)
            explained = solve_triangular(self.factor, covariance, lower=True)
            remaining = np.maximum(1.0 - np.sum(explained**2, axis=0), LEAST_VARIANCE)
            excess = features[rows] - np.clip(features[rows], self.low, self.high)
            trend = self.trend * np.nan_to_num(excess / self.metric.length_scales) ** 2
            std[rows] = np.sqrt(remaining + self.metric.noise + trend.sum(axis=1))
        return std

    def amplitude(self, y: Floats) -> float:
        """The likeliest standard deviation of the process, by values of the known rows."""
        values = y[self.used] - y[self.used].mean()
        independent = solve_triangular(self.factor, values, lower=True)
        return max(float(np.sqrt(np.mean(independent**2))), 1e-290)

    def held_out_std(self, features: Floats, folds: Folds) -> Floats:
        """(row,): the same of the rows of folds, by the other rows; NaN of rows without a fold."""
        std = np.full(len(features), np.nan)
        for training, held_out in folds:
            others = MetricProcess(features[training], self.metric, self.schema)
            std[held_out] = others.std(features[held_out])
        return std

    def regression(self, y: Floats) -> Callable[[Floats], Floats]:
        """The mean of the process (row, output) as a function of encoded features.

        `y` are values (known row, output).
        """
        mean = y[self.used].mean(axis=0)
        dual = cho_solve((self.factor, True), y[self.used] - mean)
        scale = self.metric.in_length_scales
        return lambda features: _kernel(scale(features), self.scaled) @ dual + mean


def _kernel(first: Floats, second: Floats, further: Floats | float = 0.0) -> Floats:
    """(first, second): the correlation of the process at scaled rows.

    `further` (second,) is added to squares of distances.
    """
    return _matern(cdist(first, second, "sqeuclidean") + further)[0]
