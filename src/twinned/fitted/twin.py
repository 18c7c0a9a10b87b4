"""FittedTwin: a difference model, its anchors, and predictions in blocks of bounded memory.

A prediction selects the anchors of each query, predicts the differences to them by the fast path
of the model or from pairs, adds the known values, and combines the estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from typing import Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from twinned.fitted.applicability import ApplicabilityDomain
from twinned.models.learned_metric import learn_metric
from twinned.models.protocol import AnchoredModel, DifferenceModel
from twinned.models.resources import MemoryBudget, limit_threads, map_row_blocks, row_blocks
from twinned.pairing.anchors import (
    AllAnchors,
    AnchorStrategy,
    GPWeights,
    ReplicateWeights,
    UniformWeights,
    WeightStrategy,
)
from twinned.pairing.differences import (
    check_anchor_weights,
    combine,
    draw_loops,
    estimate,
    loop_sum,
)
from twinned.rows.neighbors import LEARNED, LearnedMetric, NeighborIndex, distance_matrix
from twinned.rows.schema import Floats, Indices, Rows, TableSchema

P = ParamSpec("P")
Result = TypeVar("Result")

_FAST_BLOCK_BYTES = 64_000_000  # of estimates that the fast path stores at once
_ROWS_PER_SEARCH = 65_536  # queries of one nearest-neighbor search
# Queries whose loops are drawn at once: fixed, so that results do not depend on the memory limit.
_ROWS_PER_LOOP_DRAW = 4_096


class RowScale(Protocol):
    """Scale of encoded rows, for a model that is fitted to scaled features."""

    def transform(self, rows: Rows) -> Rows: ...


@dataclass(frozen=True, eq=False)
class Queries:
    """Validated rows to predict, encoded block by block, as indicators take much memory."""

    schema: TableSchema
    scale: RowScale | None
    matrix: Floats  # (query, feature), with categories as codes

    def take(self, rows: slice | Indices) -> Rows:
        """Encoded rows, as the model sees them."""
        encoded = self.schema.to_rows(self.matrix[rows])
        return encoded if self.scale is None else self.scale.transform(encoded)

    def encode(self) -> Rows:
        """All rows, encoded."""
        return self.take(slice(None))

    def __len__(self) -> int:
        return len(self.matrix)


@dataclass(frozen=True, eq=False)
class Anchors:
    """Known rows from which queries are predicted; what is derived from them is made once."""

    schema: TableSchema
    X: Floats  # (anchor, feature), with categories as codes
    y: Floats  # (anchor,) or (anchor, output)
    weights: Floats | None = None  # (anchor,)
    labels: list[Hashable] | None = None  # of the rows in the training table
    scale: RowScale | None = None
    censored_X: Floats | None = None  # (row, feature): rows of the fit whose value is not known
    fitted_metric: LearnedMetric | None = None  # learned in the fit, where a strategy needed it
    n_jobs: int | None = None  # of neighbor searches
    # neighbor indices by metric, as needed, and the model that was last bound to the anchors
    indices: dict[str, NeighborIndex] = field(default_factory=dict, init=False)
    models: list[DifferenceModel] = field(default_factory=list, init=False)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def targets(self) -> Floats:
        """(anchor, output)."""
        return self.y.reshape(len(self.y), -1)

    def take(self, rows: Indices) -> Anchors:
        """Some of the anchors."""
        return replace(
            self,
            X=self.X[rows],
            y=self.y[rows],
            weights=None if self.weights is None else self.weights[rows],
            labels=None if self.labels is None else [self.labels[i] for i in rows],
        )

    def as_queries(self, rows: slice | Indices = slice(None)) -> Queries:
        """Anchors as rows to predict."""
        return Queries(self.schema, self.scale, self.X[rows])

    @cached_property
    def rows(self) -> Rows:
        """Encoded anchors, as the model sees them."""
        return Queries(self.schema, self.scale, self.X).take(slice(None))

    @cached_property
    def features(self) -> Floats:
        """(anchor, encoded feature)."""
        return self.rows.features

    @property
    def measured_features(self) -> Floats:
        """(row, encoded feature): the anchors and, after them, censored rows of the fit."""
        if self.censored_X is None:
            return self.features
        censored = Queries(self.schema, self.scale, self.censored_X).encode()
        return np.concatenate([self.features, censored.features])

    @cached_property
    def metric(self) -> LearnedMetric:
        """The learned metric, of the fit or else of the anchors."""
        return self.fitted_metric or learn_metric(self.features, self.y, self.weights)

    @property
    def derived_metric(self) -> LearnedMetric | None:
        """The metric that was learned from the anchors, if it has been."""
        return None if self.fitted_metric is not None else vars(self).get("metric")

    def set_metric(self, metric: LearnedMetric) -> None:
        """Set the metric that was learned from these anchors before they were saved."""
        vars(self)["metric"] = metric

    @cached_property
    def domain(self) -> ApplicabilityDomain:
        """The applicability domain."""
        categorical = self.schema.categorical
        return ApplicabilityDomain(self.X, self.features, self.metric, self.y, categorical)

    def index(self, metric: str) -> NeighborIndex:
        """The neighbor index for a metric."""
        if metric not in self.indices:
            learned = self.metric if metric == LEARNED else None
            self.indices[metric] = NeighborIndex(self.features, metric, self.n_jobs, learned)
        return self.indices[metric]


def _limited(method: Callable[Concatenate[FittedTwin, P], Result]) -> Callable[..., Result]:
    """Run a method of `FittedTwin` with the threads of its `n_jobs`."""

    @wraps(method)
    def run(self: FittedTwin, *arguments: P.args, **options: P.kwargs) -> Result:
        with limit_threads(self.n_jobs):
            return method(self, *arguments, **options)

    return run


def check_predictions(values: Floats) -> Floats:
    """Return predictions (query, output) if they are finite; raise otherwise."""
    finite = np.isfinite(values)
    if not finite.all():
        row, output = np.argwhere(~finite)[0]
        raise ValueError(
            f"The prediction of row {row} is {values[row, output]}; check the scale of X and y."
        )
    return values


class Selection(NamedTuple):
    """The anchors of a block of queries, (query, anchor) each; None stands for all anchors."""

    indices: Indices | None = None
    distances: Floats | None = None

    def take(self, rows: slice) -> Selection:
        if self.indices is None or self.distances is None:
            return self
        return Selection(self.indices[rows], self.distances[rows])


class _FastPath(NamedTuple):
    """The model bound to the anchors, or None; and whether it reduces estimates by itself."""

    anchored: AnchoredModel | None
    reduces: bool = False


class AnchorEstimates(NamedTuple):
    """The estimates of the anchors of some queries."""

    indices: Indices  # (query, anchor)
    estimates: Floats  # (query, anchor, output), the mean over members
    weights: Floats  # (query, anchor), which sum to one
    distances: Floats  # (query, anchor)


@dataclass(frozen=True, eq=False)
class FittedTwin:
    """A difference model, anchors, and how they are selected and weighted: the result of a fit.

    All results have an output axis last; `squeeze` drops it where y is one-dimensional.
    """

    model: DifferenceModel
    anchors: Anchors
    anchor_strategy: AnchorStrategy
    weight_strategy: WeightStrategy | GPWeights | ReplicateWeights
    memory_limit: int | None = None  # bytes
    n_jobs: int | None = None

    # --- results ------------------------------------------------------------------------------

    @_limited
    def predict(self, queries: Queries, *, return_std: bool = False) -> tuple[Floats, Floats]:
        """(query, output): mean and, with `return_std`, raw standard deviation of the estimates."""
        path = self._fast_path(len(queries), reduce=True, variance=return_std)

        def predict_block(rows: slice, selection: Selection) -> tuple[Floats, Floats]:
            block = queries.take(rows)
            if path.anchored is not None and path.reduces and path.anchored.supports(block):
                mean, variance = path.anchored.moments(
                    block, self.anchors.weights, variance=return_std, n_jobs=self.n_jobs
                )
                return mean, mean if variance is None else np.sqrt(variance)
            estimates = self._estimate(block, selection, path)
            weights = self._weigh(queries.matrix[rows], block, selection, estimates)
            return combine(estimates, self.model.member_weights, weights)

        means, stds = zip(*self._map(predict_block, queries, path), strict=True)
        return check_predictions(np.concatenate(means)), check_predictions(np.concatenate(stds))

    @_limited
    def predict_members(self, queries: Queries) -> Floats:
        """(member, query, output): the prediction of each member."""
        path = self._fast_path(len(queries))

        def predict_block(rows: slice, selection: Selection) -> Floats:
            block = queries.take(rows)
            estimates = self._estimate(block, selection, path)
            weights = self._weigh(queries.matrix[rows], block, selection, estimates)
            return np.stack([combine(part[None], np.ones(1), weights)[0] for part in estimates])

        return np.concatenate(self._map(predict_block, queries, path), axis=1)

    @_limited
    def map_estimates(
        self,
        function: Callable[[slice, AnchorEstimates], Result],
        queries: Queries,
        metric: str | None = None,
    ) -> list[Result]:
        """`function(rows, estimates of their anchors)` of all blocks of queries, in order.

        Without a metric of distances, neither weights nor distances are computed.
        """
        path = self._fast_path(len(queries))

        def call(rows: slice, selection: Selection) -> Result:
            block = queries.take(rows)
            estimates = self._estimate(block, selection, path)
            indices = self._indices(selection, len(block))
            weights: Floats = np.empty((0, 0))
            distances: Floats = weights
            if metric is not None:
                given = self._weigh(queries.matrix[rows], block, selection, estimates)
                weights = np.ones(indices.shape) if given is None else given
                weights = weights / weights.sum(axis=1, keepdims=True)
                distances = self._distances(block, selection, metric)
            mean = self.mean_of_members(estimates)
            return function(rows, AnchorEstimates(indices, mean, weights, distances))

        return self._map(call, queries, path)

    def predict_anchors(self, queries: Queries) -> tuple[Indices, Floats]:
        """(query, anchor) indices and (query, anchor, output) estimates of the anchors."""
        blocks: list[AnchorEstimates] = self.map_estimates(lambda _, block: block, queries)
        parts = (block.indices for block in blocks), (block.estimates for block in blocks)
        return np.concatenate(list(parts[0])), np.concatenate(list(parts[1]))

    @_limited
    def deviations(self, queries: Queries, anchors: Indices) -> Floats:
        """(query, function): how far the estimates are from their mean, of the first output.

        A function is one of these anchors, whatever the anchor strategy, with one member. Its
        deviation is multiplied by the root of its weight.
        """
        path = self._fast_path(len(queries))
        all_anchors = replace(self, anchor_strategy=AllAnchors())

        def predict_block(rows: slice, _: Selection) -> Floats:
            block = queries.take(rows)
            indices = np.broadcast_to(anchors, (len(block), len(anchors)))
            selection = Selection(indices)
            estimates = self._estimate(block, selection, path)
            weights = all_anchors._weigh(queries.matrix[rows], block, selection, estimates)
            mean, _std = combine(estimates, self.model.member_weights, weights)
            shares = np.ones(indices.shape) if weights is None else weights
            shares = shares / shares.sum(axis=1, keepdims=True)
            members = np.sqrt(self.model.member_weights)[:, None, None]
            scaled = (estimates[..., 0] - mean[:, :1]) * np.sqrt(shares) * members
            return scaled.transpose(1, 0, 2).reshape(len(block), -1)

        return np.concatenate(all_anchors._map(predict_block, queries, path))

    @_limited
    def predict_difference(
        self, first: Queries | Rows, second: Queries | Rows
    ) -> tuple[Floats, Floats]:
        """(row, output): F(first, second) row by row, and its standard deviation over members."""
        means, stds = [], []
        for rows in row_blocks(len(first), self._pairs_per_block()):
            members = self.model.differences(first.take(rows), second.take(rows))
            means.append(mean := self.mean_of_members(members))
            stds.append(np.sqrt(self.mean_of_members((members - mean) ** 2)))
        return np.concatenate(means), np.concatenate(stds)

    @_limited
    def loop_inconsistency(
        self, queries: Queries, n_loops: int, rng: np.random.RandomState
    ) -> Floats:
        """(query, output): mean |F(x, i) + F(i, j) + F(j, x)| over random anchors i and j."""
        results, anchors = [], self.anchors.rows
        for rows in row_blocks(len(queries), _ROWS_PER_LOOP_DRAW):
            block = queries.take(rows)
            i, j = draw_loops(len(block), len(anchors), n_loops, rng)
            x = block.take(np.repeat(np.arange(len(block)), n_loops))
            a, b = anchors.take(i.ravel()), anchors.take(j.ravel())
            sides = ((x, a), (a, b), (b, x))
            sums = loop_sum(*(self.predict_difference(*side)[0] for side in sides))
            results.append(np.abs(sums).reshape(*i.shape, -1).mean(axis=1))
        return np.concatenate(results)

    def queries(self, matrix: Floats) -> Queries:
        """Encoded rows (row, feature), with categories as codes, as rows to predict."""
        return Queries(self.anchors.schema, self.anchors.scale, matrix)

    def squeeze(self, values: Floats) -> Floats:
        """Drop the output axis where y is one-dimensional."""
        return values[..., 0] if self.anchors.y.ndim == 1 else values

    def mean_of_members(self, values: Floats) -> Floats:
        """(member, ...) → (...): the weighted mean over members."""
        return np.tensordot(self.model.member_weights, values, axes=1)

    # --- steps: fast path, selection, estimates, weights --------------------------------------

    def _fast_path(
        self, n_queries: int, *, reduce: bool = False, variance: bool = False
    ) -> _FastPath:
        """The fast path of the model, where it exists, pays and fits into memory."""
        n_pairs = n_queries * self._n_anchors_used()
        anchored = self.model.at_anchors(self.anchors.rows, self.anchors.targets, n_pairs)
        if anchored is None:
            return _FastPath(None)
        fixed = isinstance(self.weight_strategy, UniformWeights | ReplicateWeights)
        weighted = self.anchors.weights is not None
        if (
            reduce
            and fixed
            and self.nearest is None
            and anchored.can_reduce(weighted=weighted, variance=variance)
        ):
            return _FastPath(anchored, reduces=True)
        # with too little memory for the estimates of one query, its anchors are split into blocks
        fits = self._budget.fits(self._bytes_per_query(anchored))
        return _FastPath(anchored if fits else None)

    def _map(
        self, function: Callable[[slice, Selection], Result], queries: Queries, path: _FastPath
    ) -> list[Result]:
        """`function(rows, selection)` of all blocks of queries, in order.

        The anchors of many queries are selected at once; their blocks are smaller.
        """
        n_used = self._n_anchors_used()
        if path.anchored is None:
            per_block = max(1, self._pairs_per_block() // n_used)
        elif path.reduces:
            per_block = self._budget.at_most(
                path.anchored.queries_per_block, path.anchored.bytes_per_query
            )
        else:
            each = self._bytes_per_query(path.anchored)
            per_block = self._budget.at_most(max(1, _FAST_BLOCK_BYTES // each), each)
        per_search = max(1, len(queries))
        if self.nearest is not None:
            # an index and a distance of each neighbor, and as much again during the search
            per_search = self._budget.at_most(_ROWS_PER_SEARCH, 32 * n_used)
        n_jobs = self.n_jobs if path.anchored is None else 1  # the fast path has its own threads
        results: list[Result] = []
        for searched in row_blocks(len(queries), per_search):
            start, selection = searched.start, Selection()
            if self.nearest is not None:
                k, metric = self.nearest
                features = queries.take(searched).features
                selection = Selection(*self.anchors.index(metric).kneighbors(features, k))

            def call(rows: slice, start: int = start, selection: Selection = selection) -> Result:
                block = slice(start + rows.start, start + rows.stop)
                return function(block, selection if self.nearest is None else selection.take(rows))

            results += map_row_blocks(call, searched.stop - start, per_block, n_jobs)
        return results

    @property
    def nearest(self) -> tuple[int, str] | None:
        """The number of nearest anchors used for a query and their metric; None for all."""
        return self.anchor_strategy.nearest(len(self.anchors))

    def _n_anchors_used(self) -> int:
        nearest = self.nearest
        return len(self.anchors) if nearest is None else nearest[0]

    def _estimate(self, block: Rows, selection: Selection, path: _FastPath) -> Floats:
        """(member, query, anchor, output): the estimate of each anchor by each member.

        Where pairs are built, many anchors are split into blocks.
        """
        indices, targets, rows = selection.indices, self.anchors.targets, self.anchors.rows
        if path.anchored is not None and path.anchored.supports(block):
            differences = path.anchored.differences(block, indices, n_jobs=self.n_jobs)
        else:
            anchors = rows.take(None if indices is None else indices)  # (1 or query, anchor, …)
            per_block = max(1, self._pairs_per_block() // len(block))
            parts = [
                self.model.differences(block.take(np.s_[:, None]), anchors.take(np.s_[:, part]))
                for part in row_blocks(anchors.numeric.shape[1], per_block)
            ]
            differences = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
        return estimate(differences, targets if indices is None else targets[indices])

    def _weigh(
        self, matrix: Floats, block: Rows, selection: Selection, estimates: Floats
    ) -> Floats | None:
        """(query, anchor) weights, or None where all are equal."""
        strategy, sample_weights = self.weight_strategy, self.anchors.weights
        is_uniform = isinstance(strategy, UniformWeights)
        if is_uniform and sample_weights is None:
            return None
        indices, weights = self._indices(selection, len(block)), None
        if isinstance(strategy, ReplicateWeights):
            weights = strategy.weigh(matrix, indices)
        elif not is_uniform:
            mean = self.squeeze(self.mean_of_members(estimates))
            if isinstance(strategy, GPWeights):
                metric = self.anchors.metric
                strategy = strategy.bind(metric)
                distances = self._distances_after(metric.in_length_scales, block, selection)
            else:
                distances = self._distances(block, selection)
            weights = check_anchor_weights(strategy(distances, mean, indices), indices.shape)
        if sample_weights is None:
            return weights
        of_anchors = sample_weights[indices]
        return check_anchor_weights(
            of_anchors if weights is None else of_anchors * weights, indices.shape
        )

    def _distances(self, block: Rows, selection: Selection, metric: str | None = None) -> Floats:
        """(query, anchor) distances by a metric; None is that of the selection, or Euclidean."""
        nearest = self.nearest
        selected_by = None if nearest is None else nearest[1]
        if selection.distances is not None and metric in (None, selected_by):
            return selection.distances
        if metric == LEARNED:
            return self._distances_after(self.anchors.metric.transform, block, selection)
        return self._distances_after(lambda rows: rows, block, selection, metric or "euclidean")

    def _distances_after(
        self,
        transform: Callable[[Floats], Floats],
        block: Rows,
        selection: Selection,
        metric: str = "euclidean",
    ) -> Floats:
        """(query, anchor) distances of transformed features."""
        queries, anchors = transform(block.features), transform(self.anchors.features)
        if selection.indices is None:
            return distance_matrix(queries, anchors, metric)
        parts = [
            distance_matrix(query[None], anchors[indices], metric)
            for query, indices in zip(queries, selection.indices, strict=True)
        ]
        return np.concatenate(parts)

    def _indices(self, selection: Selection, n_queries: int) -> NDArray[np.intp]:
        if selection.indices is not None:
            return selection.indices
        return np.broadcast_to(np.arange(len(self.anchors)), (n_queries, len(self.anchors)))

    # --- memory -------------------------------------------------------------------------------

    @property
    def _budget(self) -> MemoryBudget:
        return MemoryBudget(self.memory_limit, self.n_jobs)

    def _pairs_per_block(self) -> int:
        """The number of pairs that each thread predicts at once."""
        # an estimate, its mirror image, their weight and distance exist beside the pair itself
        each = self.model.bytes_per_pair + 8 * 4 * self.anchors.targets.shape[1]
        return self._budget.at_most(self.model.pairs_per_block, each)

    def _bytes_per_query(self, anchored: AnchoredModel) -> int:
        """Memory of a query on the fast path, with the estimates of its anchors."""
        # the estimates of all members and a copy, a weight, a distance, and temporary arrays
        n_arrays = 4 + 2 * len(self.model.member_weights)
        n_estimates = self._n_anchors_used() * self.anchors.targets.shape[1]
        return anchored.bytes_per_query + 8 * n_arrays * n_estimates
