"""FittedTwin: a difference model, its anchors, and predictions in blocks of bounded memory.

A prediction selects the anchors of each query, predicts the differences to them by the fast path
of the model or from pairs, adds the known values, and combines the estimates.

Where out-of-fold errors of the anchors are known, that is the prediction f(a) of the model. The
estimate from an anchor b is then y(b) + f(a) − g(b), where g(b) is the out-of-fold prediction of b,
by a model that was not fitted to it: f(a) plus the error of b. So the estimates differ as much as
the model errs, and where errors of neighbors are alike, near anchors have more weight.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from twinned.fitted.applicability import ApplicabilityDomain
from twinned.models.learned_metric import learn_metric
from twinned.models.protocol import AnchoredModel, DifferenceModel
from twinned.models.resources import MemoryBudget, limit_threads, map_row_blocks, row_blocks
from twinned.pairing.anchors import (
    N_NEAREST,
    AllAnchors,
    AnchorStrategy,
    EqualRows,
    GPWeights,
    UniformWeights,
    WeightStrategy,
    clearly_lowest,
    weigh_replicates,
)
from twinned.pairing.differences import (
    check_anchor_weights,
    combine,
    draw_loops,
    estimate,
    loop_sum,
)
from twinned.rows.batches import BatchOffsets
from twinned.rows.folds import Folds
from twinned.rows.neighbors import LEARNED, LearnedMetric, NeighborIndex, distance_matrix
from twinned.rows.schema import Floats, Indices, Rows, TableSchema

Result = TypeVar("Result")
Transform = Callable[[Floats], Floats]  # of values of the fitted target, element by element

_FAST_BLOCK_BYTES = 64_000_000  # of estimates that the fast path stores at once
_ROWS_PER_SEARCH = 65_536  # queries of one nearest-neighbor search
# Queries whose loops are drawn at once: fixed, so that results do not depend on the memory limit.
_ROWS_PER_LOOP_DRAW = 4_096
# Powers of local weights that are compared, and the number of rows by which they are.
_POWERS, _MAX_COMPARED = (0.0, 1.0, 2.0, 4.0), 1000


class RowScale(Protocol):
    """Scale of encoded rows, for a model that is fitted to scaled features."""

    def transform(self, rows: Rows) -> Rows: ...


@dataclass(frozen=True, eq=False)
class Queries:
    """Validated rows to predict, encoded block by block, as indicators take much memory."""

    schema: TableSchema
    scale: RowScale | None
    matrix: Floats  # (query, feature), with categories as codes
    # (query,): offset of the batch and its standard error; None without batches
    offset: Floats | None = None
    offset_std: Floats | None = None

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
    fitted_metric: LearnedMetric | None = None  # where it was learned before
    n_jobs: int | None = None  # of neighbor searches
    groups: Indices | None = None  # (anchor,): codes of groups that are held out together
    batch: Indices | None = None  # (anchor,): codes of batches, whose offsets y does not have
    # neighbor indices by metric, as needed, and the model that was last bound to the anchors
    indices: dict[str, NeighborIndex] = field(default_factory=dict, init=False)
    models: list[Any] = field(default_factory=list, init=False)

    def __len__(self) -> int:
        return len(self.X)

    @property
    def targets(self) -> Floats:
        """(anchor, output)."""
        return self.y.reshape(len(self.y), -1)

    def take(self, rows: Indices) -> Anchors:
        """Some of the anchors."""
        names = "X", "y", "weights", "groups", "batch"
        parts = ((name, vars(self)[name]) for name in names)
        taken: dict[str, Any] = {name: part if part is None else part[rows] for name, part in parts}
        return replace(self, **taken, labels=self.labels and [self.labels[i] for i in rows])

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
        """The learned metric, of the fit or else of the anchors, when it is first needed."""
        return self.fitted_metric or learn_metric(self.features, self.y, self.weights)

    @property
    def known_metric(self) -> LearnedMetric | None:
        """The learned metric, if it has been learned."""
        return vars(self).get("metric", self.fitted_metric)

    @cached_property
    def domain(self) -> ApplicabilityDomain:
        """The applicability domain."""
        details = self.metric, self.y, self.schema.categorical, self.groups
        return ApplicabilityDomain(self.X, self.features, *details)

    @cached_property
    def equal_rows(self) -> EqualRows:
        """The anchors that equal rows to predict."""
        return EqualRows(self.X)

    def index(self, metric: str) -> NeighborIndex:
        """The neighbor index for a metric."""
        if metric not in self.indices:
            learned = self.metric if metric == LEARNED else None
            self.indices[metric] = NeighborIndex(self.features, metric, self.n_jobs, learned)
        return self.indices[metric]


@dataclass(frozen=True, eq=False)
class LocalErrors:
    """Out-of-fold errors of the anchors, and how well those of other anchors predict them.

    Only the training rows of the fold of an anchor are used: errors of the same fold are those of
    the same model, and alike also where the model that is fitted to all rows does not err so.
    """

    anchors: Anchors
    errors: Floats  # (anchor,) or (anchor, output)
    folds: Folds  # of the anchors

    @cached_property
    def held_out(self) -> Indices:
        """The anchors that a fold holds out."""
        return np.sort(np.concatenate([held_out for _, held_out in self.folds]))

    @cached_property
    def scaled(self) -> Floats:
        """(anchor, encoded feature): in length scales of the process of the learned metric."""
        return self.anchors.metric.in_length_scales(self.anchors.features)

    def shares(self, power: float, rows: Indices) -> Floats:
        """(row, anchor) weights of `GPWeights` at these anchors, which sum to one.

        They are 0 for an anchor that no fold holds out.
        """
        noise, weight = self.anchors.metric.noise, self.anchors.weights
        weights = GPWeights(power).weigh(distance_matrix(self.scaled[rows], self.scaled), noise)
        is_used = np.zeros(weights.shape, dtype=bool)
        for training, held_out in self.folds:
            is_used[np.ix_(np.isin(rows, held_out), training)] = True
        weights = weights * is_used * (1.0 if weight is None else weight)
        return weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)

    def predict(self, power: float, rows: Indices | None = None) -> Floats:
        """(row,) or (row, output): weighted means of the errors, at all or these anchors."""
        rows = np.arange(len(self.errors)) if rows is None else rows
        blocks = np.array_split(rows, -(-len(rows) // _MAX_COMPARED))
        return np.concatenate([self.shares(power, block) @ self.errors for block in blocks])

    def best_power(self) -> float:
        """The power of the weights that predict the errors clearly best; 0 for equal ones."""
        weight = self.anchors.weights
        rows = np.random.RandomState(0).permutation(self.held_out)[:_MAX_COMPARED]
        remaining = [self.errors[rows] - self.predict(power, rows) for power in _POWERS]
        weight = None if weight is None else weight[rows]
        return _POWERS[clearly_lowest(remaining, self.scaled[rows], weight)]

    def best_nearest(self, power: float, nearest: Floats) -> int | None:
        """The number of nearest anchors whose out-of-fold predictions are clearly the best.

        `nearest` (number, anchor, …) are those of `N_NEAREST`. None is all anchors, with weights of
        a power.
        """
        rows, known = self.held_out, self.anchors.take(self.held_out)
        errors = [self.errors[rows] - self.predict(power, rows)]
        errors += [known.y - each[rows] for each in nearest]
        return (None, *N_NEAREST)[clearly_lowest(errors, known.X, known.weights)]


def check_predictions(values: Floats) -> Floats:
    """Return predictions (query, output) if they are finite; raise otherwise."""
    finite = np.isfinite(values)
    if not finite.all():
        row, output = np.argwhere(~finite)[0]
        raise ValueError(
            f"The prediction of row {row} is {values[row, output]}; check the scale of X and y."
        )
    return values


class AnchorEstimates(NamedTuple):
    """The estimates of the anchors of some queries."""

    indices: Indices  # (query, anchor)
    estimates: Floats  # (query, anchor, output), the mean over members
    weights: Floats  # (query, anchor), which sum to one
    distances: Floats  # (query, anchor)


@dataclass(frozen=True, eq=False)
class QueryBlock:
    """Queries that are predicted at once, and their anchors."""

    twin: FittedTwin
    rows: slice  # of all queries
    matrix: Floats  # (query, feature), with categories as codes
    encoded: Rows
    anchored: AnchoredModel | None  # the fast path of the model
    reduces: bool  # whether the fast path returns moments
    variance: bool  # whether the standard deviation is needed
    offset: Floats  # (query, 1): of the batch of each query
    indices: Indices | None = None  # (query, anchor); None stands for all anchors
    nearest_distances: Floats | None = None  # (query, anchor), by which anchors were selected

    @property
    def anchor_indices(self) -> Indices:
        """(query, anchor)."""
        if self.indices is not None:
            return self.indices
        n_anchors = len(self.twin.anchors)
        return np.broadcast_to(np.arange(n_anchors), (len(self.encoded), n_anchors))

    @cached_property
    def estimates(self) -> Floats:
        """(member, query, anchor, output): the estimate of each anchor by each member.

        Where pairs are built, many anchors are split into blocks.
        """
        twin, anchors, indices = self.twin, self.twin.anchors, self.indices
        if self.anchored is not None and self.anchored.supports(self.encoded):
            differences = self.anchored.differences(self.encoded, indices, n_jobs=twin.n_jobs)
        else:
            rows = anchors.rows.take(indices)  # (query or 1, anchor, …)
            per_block = max(1, twin.pairs_per_block // len(self.encoded))
            queries = self.encoded.take(np.s_[:, None])
            parts = [
                twin.model.differences(queries, rows.take(np.s_[:, part]))
                for part in row_blocks(rows.numeric.shape[1], per_block)
            ]
            differences = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
        targets = anchors.targets if indices is None else anchors.targets[indices]
        if twin.batches is not None:
            targets = targets + self.offset[:, None]
        return estimate(differences, targets)

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        """(query, output): mean and standard deviation of the estimates by differences."""
        twin, anchored = self.twin, self.anchored
        if self.reduces and anchored is not None and anchored.supports(self.encoded):
            mean, variance = anchored.moments(
                self.encoded, twin.anchors.weights, variance=self.variance, n_jobs=twin.n_jobs
            )
            return mean + self.offset, mean if variance is None else np.sqrt(variance)
        return combine(self.estimates, twin.model.member_weights, self.weights)

    def anchor_estimates(self, transform: Transform = np.asarray) -> Floats:
        """(query, anchor, output): the estimate from each anchor, transformed.

        That of an anchor that equals the query is its value, as the model is fitted to it. Where
        weights are equal, the estimates from the others are moved, so that the mean is the same.
        """
        twin = self.twin
        if twin.errors is None:
            return transform(twin.mean_of_members(self.estimates))
        estimates = transform(self.moments[0][:, None] + twin.errors)
        (queries, anchors), targets = self._matches, twin.anchors.targets
        if twin.is_local:
            estimates[queries, anchors] = transform(targets[anchors] + self.offset[queries])
        elif len(queries):
            shares = self.anchor_shares
            is_other = np.ones(shares.shape, dtype=bool)
            is_other[queries, anchors] = False
            for query in np.unique(queries):
                own, share, others = estimates[query], shares[query], is_other[query]
                if rest := share[others].sum():
                    moved = own[~others] - transform(targets[~others] + self.offset[query])
                    own[~others] -= moved
                    own[others] += share[~others] @ moved / rest
        return estimates

    @cached_property
    def _matches(self) -> tuple[Indices, Indices]:
        """(match,): queries and the anchors that equal them."""
        return self.twin.anchors.equal_rows.match(self.matrix)

    @cached_property
    def weights(self) -> Floats | None:
        """(query, anchor) weights of the differences, or None where all are equal."""
        twin, strategy = self.twin, self.twin.weight_strategy
        sample_weights = twin.anchors.weights
        is_uniform = isinstance(strategy, UniformWeights)
        if is_uniform and sample_weights is None:
            return None
        indices, weights = self.anchor_indices, None
        if isinstance(strategy, GPWeights):
            weights = self._process_weights(strategy)
        elif not is_uniform:
            mean = twin.squeeze(twin.mean_of_members(self.estimates))
            weights = check_anchor_weights(strategy(self.distances(), mean, indices), indices.shape)
        if sample_weights is None:
            return weights
        of_anchors = sample_weights[indices] * (1.0 if weights is None else weights)
        return check_anchor_weights(of_anchors, indices.shape)

    def _process_weights(self, strategy: GPWeights) -> Floats:
        """(query, anchor) weights by the process of the learned metric."""
        metric = self.twin.anchors.metric
        return strategy.weigh(self.distances_after(metric.in_length_scales), metric.noise)

    @property
    def shares(self) -> Floats:
        """(query, anchor) weights of the differences, which sum to one."""
        weights = np.ones(self.anchor_indices.shape) if self.weights is None else self.weights
        return weights / weights.sum(axis=1, keepdims=True)

    @property
    def anchor_shares(self) -> Floats:
        """(query, anchor) weights of the estimates from the anchors, which sum to one."""
        twin, shares = self.twin, self.shares
        if twin.local_weights is not None:
            shares = shares * self._process_weights(twin.local_weights)
            shares = shares / shares.sum(axis=1, keepdims=True)
        if not twin.replicate_correlation:
            return shares
        return weigh_replicates(shares, *self._matches, twin.replicate_correlation)

    def distances(self, metric: str | None = None) -> Floats:
        """(query, anchor) distances by a metric; None is that of the selection, or Euclidean."""
        nearest = self.twin.nearest
        if self.nearest_distances is not None and nearest and metric in (None, nearest[1]):
            return self.nearest_distances
        if metric == LEARNED:
            return self.distances_after(self.twin.anchors.metric.transform)
        return self.distances_after(lambda features: features, metric or "euclidean")

    def distances_after(
        self, transform: Callable[[Floats], Floats], metric: str = "euclidean"
    ) -> Floats:
        """(query, anchor) distances of transformed features."""
        queries, anchors = transform(self.encoded.features), transform(self.twin.anchors.features)
        if self.indices is None:
            return distance_matrix(queries, anchors, metric)
        parts = [
            distance_matrix(query[None], anchors[indices], metric)
            for query, indices in zip(queries, self.indices, strict=True)
        ]
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class FittedTwin:
    """A difference model, anchors, and how they are selected and weighted: the result of a fit.

    All results have an output axis last; `squeeze` drops it where y is one-dimensional.
    """

    model: DifferenceModel
    anchors: Anchors
    anchor_strategy: AnchorStrategy
    weight_strategy: WeightStrategy | GPWeights
    budget: MemoryBudget
    n_jobs: int | None = None
    # (anchor, output): y minus out-of-fold prediction, where all anchors are used. Their mean over
    # the rows of the fit is zero, so that with equal weights the model is not changed.
    errors: Floats | None = None
    # Weights of the estimates with these errors, None for equal ones, and the correlation by which
    # anchors that equal the query have more weight.
    local_weights: GPWeights | None = None
    replicate_correlation: float = 0.0
    batches: BatchOffsets | None = None  # whose codes are those of the anchors

    @property
    def is_local(self) -> bool:
        """Whether the weights of the estimates depend on the query, where there are errors."""
        return self.local_weights is not None or self.replicate_correlation > 0

    # --- results ------------------------------------------------------------------------------

    def predict(self, queries: Queries, *, return_std: bool = False) -> tuple[Floats, Floats]:
        """(query, output): mean, and raw standard deviation of the estimates by differences.

        The standard deviation is computed with `return_std` only.
        """

        def predict_block(block: QueryBlock) -> tuple[Floats, Floats]:
            mean, std = block.moments
            if self.is_local:
                mean = (block.anchor_shares[..., None] * block.anchor_estimates()).sum(axis=1)
            elif self.errors is not None:
                mean = mean + np.average(self.errors, axis=0, weights=self.anchors.weights)
            return mean, std

        options = {"variance": return_std, "per_anchor": self.is_local}
        results = self.map_blocks(predict_block, queries, reduce=True, **options)
        means, stds = zip(*results, strict=True)
        return check_predictions(np.concatenate(means)), check_predictions(np.concatenate(stds))

    def predict_members(self, queries: Queries) -> Floats:
        """(member, query, output): the prediction of each member."""

        def predict_block(block: QueryBlock) -> Floats:
            weights = block.weights
            parts = [combine(part[None], np.ones(1), weights)[0] for part in block.estimates]
            return np.stack(parts)

        return np.concatenate(self.map_blocks(predict_block, queries), axis=1)

    def map_estimates(
        self,
        function: Callable[[slice, AnchorEstimates], Result],
        queries: Queries,
        metric: str | None = None,
        transform: Transform = np.asarray,
    ) -> list[Result]:
        """`function(rows, estimates of their anchors)` of all blocks of queries, in order.

        Without a metric, no distances are computed. The estimates are transformed.
        """

        def call(block: QueryBlock) -> Result:
            weighted = block.anchor_indices, block.anchor_estimates(transform), block.anchor_shares
            distances = np.empty((0, 0)) if metric is None else block.distances(metric)
            return function(block.rows, AnchorEstimates(*weighted, distances))

        return self.map_blocks(call, queries, reduce=self.errors is not None, per_anchor=True)

    def predict_anchors(self, queries: Queries) -> tuple[Indices, Floats]:
        """(query, anchor) indices and (query, anchor, output) estimates of the anchors."""
        blocks: list[AnchorEstimates] = self.map_estimates(lambda _, block: block, queries)
        indices, estimates, _, _ = zip(*blocks, strict=True)
        return np.concatenate(indices), np.concatenate(estimates)

    def predict_mean_of(self, transform: Transform, queries: Queries) -> Floats:
        """(query, output): the weighted mean of the transformed estimates of the anchors."""

        def predict_block(_: slice, block: AnchorEstimates) -> Floats:
            return np.einsum("ij,ijk->ik", block.weights, block.estimates)

        return np.concatenate(self.map_estimates(predict_block, queries, transform=transform))

    def deviations(self, queries: Queries, anchors: Indices) -> Floats:
        """(query, function): how far the estimates are from their mean, of the first output.

        A function is one of these anchors, whatever the anchor strategy, with one member. Its
        deviation is multiplied by the root of its weight.
        """

        def predict_block(block: QueryBlock) -> Floats:
            n_queries = len(block.encoded)
            block = replace(block, indices=np.broadcast_to(anchors, (n_queries, len(anchors))))
            mean, _std = combine(block.estimates, self.model.member_weights, block.weights)
            members = np.sqrt(self.model.member_weights)[:, None, None]
            scaled = (block.estimates[..., 0] - mean[:, :1]) * np.sqrt(block.shares) * members
            return scaled.transpose(1, 0, 2).reshape(n_queries, -1)

        with_all = replace(self, anchor_strategy=AllAnchors())
        return np.concatenate(with_all.map_blocks(predict_block, queries))

    def predict_difference(
        self, first: Queries | Rows, second: Queries | Rows
    ) -> tuple[Floats, Floats]:
        """(row, output): F(first, second) row by row, and its standard deviation over members."""
        means, stds = [], []
        with limit_threads(self.n_jobs):
            for rows in row_blocks(len(first), self.pairs_per_block):
                members = self.model.differences(first.take(rows), second.take(rows))
                means.append(mean := self.mean_of_members(members))
                stds.append(np.sqrt(self.mean_of_members((members - mean) ** 2)))
        return np.concatenate(means), np.concatenate(stds)

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

    @property
    def anchor_offsets(self) -> Floats:
        """(anchor,): offsets of the batches of the anchors; 0 without batches."""
        if self.batches is None:
            return np.zeros(len(self.anchors))
        return self.batches.offsets[self.anchors.batch]

    @property
    def known_y(self) -> Floats:
        """(anchor,) or (anchor, output): known values, with the offsets of batches."""
        y = self.anchors.y
        return y if self.batches is None else y + self.anchor_offsets

    def queries(self, matrix: Floats) -> Queries:
        """Encoded rows (row, feature), with categories as codes, as rows to predict."""
        return Queries(self.anchors.schema, self.anchors.scale, matrix)

    def squeeze(self, values: Floats) -> Floats:
        """Drop the output axis where y is one-dimensional."""
        return values[..., 0] if self.anchors.y.ndim == 1 else values

    def mean_of_members(self, values: Floats) -> Floats:
        """(member, ...) → (...): the weighted mean over members."""
        return np.tensordot(self.model.member_weights, values, axes=1)

    # --- blocks of queries --------------------------------------------------------------------

    def map_blocks(
        self,
        function: Callable[[QueryBlock], Result],
        queries: Queries,
        *,
        reduce: bool = False,
        variance: bool = False,
        per_anchor: bool = False,
    ) -> list[Result]:
        """`function(block)` of all blocks of queries, in order.

        With `reduce`, the fast path may return moments, and with `per_anchor`, blocks are small
        enough to store the estimates of all their anchors nevertheless. The anchors of many queries
        are selected at once; their blocks are smaller.
        """
        with limit_threads(self.n_jobs):
            anchored, reduces = self._fast_path(len(queries), reduce, variance)
            if anchored is None:
                per_block = max(1, self.pairs_per_block // self._n_anchors_used)
            elif reduces and not per_anchor:
                per_block = self.budget.at_most(
                    anchored.queries_per_block, anchored.bytes_per_query
                )
            else:
                each = self._bytes_per_query(anchored)
                per_block = self.budget.at_most(max(1, _FAST_BLOCK_BYTES // each), each)
            per_search, nearest = max(1, len(queries)), self.nearest
            if nearest is not None:
                # an index and a distance of each neighbor, and as much again during the search
                per_search = self.budget.at_most(_ROWS_PER_SEARCH, 32 * nearest[0])
            n_jobs = self.n_jobs if anchored is None else 1  # the fast path has its own threads
            results: list[Result] = []
            offset = np.zeros(len(queries)) if queries.offset is None else queries.offset
            for searched in row_blocks(len(queries), per_search):
                selected: list[NDArray[Any]] = []
                if nearest is not None:
                    features = queries.take(searched).features
                    selected = [*self.anchors.index(nearest[1]).kneighbors(features, nearest[0])]

                def call(rows, start=searched.start, selected=selected):
                    block = slice(start + rows.start, start + rows.stop)
                    parts = queries.matrix[block], queries.take(block), anchored, reduces, variance
                    chosen = offset[block, None], *(part[rows] for part in selected)
                    return function(QueryBlock(self, block, *parts, *chosen))

                results += map_row_blocks(call, searched.stop - searched.start, per_block, n_jobs)
            return results

    def _fast_path(
        self, n_queries: int, reduce: bool, variance: bool
    ) -> tuple[AnchoredModel | None, bool]:
        """The fast path of the model, where it exists, pays and fits, and whether it reduces."""
        n_pairs, anchors = n_queries * self._n_anchors_used, self.anchors
        anchored = self.model.at_anchors(anchors.rows, anchors.targets, n_pairs)
        if anchored is None:
            return None, False
        options = {"weighted": anchors.weights is not None, "variance": variance}
        if reduce and self.uses_all_anchors_equally and anchored.can_reduce(**options):
            return anchored, True
        # with too little memory for the estimates of one query, its anchors are split into blocks
        return anchored if self.budget.fits(self._bytes_per_query(anchored)) else None, False

    @property
    def uses_all_anchors_equally(self) -> bool:
        """Whether the prediction of the model is the mean of the estimates of all anchors."""
        return self.nearest is None and isinstance(self.weight_strategy, UniformWeights)

    @property
    def nearest(self) -> tuple[int, str] | None:
        """The number of nearest anchors used for a query and their metric; None for all."""
        return self.anchor_strategy.nearest(len(self.anchors))

    @property
    def _n_anchors_used(self) -> int:
        nearest = self.nearest
        return len(self.anchors) if nearest is None else nearest[0]

    @property
    def pairs_per_block(self) -> int:
        """The number of pairs that each thread predicts at once."""
        # an estimate, its mirror image, their weight and distance exist beside the pair itself
        each = self.model.bytes_per_pair + 8 * 4 * self.anchors.targets.shape[1]
        return self.budget.at_most(self.model.pairs_per_block, each)

    def _bytes_per_query(self, anchored: AnchoredModel) -> int:
        """Memory of a query on the fast path, with the estimates of its anchors."""
        # the estimates of all members and a copy, a weight, a distance, and temporary arrays
        n_arrays = 4 + 2 * len(self.model.member_weights)
        n_estimates = self._n_anchors_used * self.anchors.targets.shape[1]
        return anchored.bytes_per_query + 8 * n_arrays * n_estimates
