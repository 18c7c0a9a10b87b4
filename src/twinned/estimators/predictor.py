"""TwinPredictor: predictions from a difference model and anchors, in blocks of bounded memory.

A prediction selects the anchors of each query, predicts the differences to them by the fast path
of the model or from pairs, adds the known values, and combines the estimates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

import numpy as np
import pandas as pd

from twinned.estimators.adjustments import attribute
from twinned.estimators.blocks import Queries, Selection, map_query_blocks
from twinned.estimators.explain import comparables
from twinned.models.protocol import AnchoredModel, DifferenceModel
from twinned.models.resources import MemoryBudget, limit_threads, row_blocks
from twinned.pairing.anchors import AllAnchors, AnchorStrategy
from twinned.pairing.differences import estimate
from twinned.pairing.loops import draw_loops, loop_sum
from twinned.pairing.weights import (
    GPWeights,
    UniformWeights,
    WeightStrategy,
    check_anchor_weights,
    combine,
)
from twinned.rows.neighbors import LEARNED, Indices, LearnedMetric, NeighborIndex, distance_matrix
from twinned.rows.schema import Floats, Rows

P = ParamSpec("P")
Result = TypeVar("Result")

_FAST_BLOCK_BYTES = 64_000_000  # of estimates that the fast path stores at once
_ROWS_PER_SEARCH = 65_536  # queries of one nearest-neighbor search
# Queries whose loops are drawn at once: fixed, so that results do not depend on the memory limit.
_ROWS_PER_LOOP_DRAW = 4_096


def _limited(method: Callable[Concatenate[TwinPredictor, P], Result]) -> Callable[..., Result]:
    """Run a method of `TwinPredictor` with the threads of its `n_jobs`."""

    @wraps(method)
    def run(self: TwinPredictor, *arguments: P.args, **options: P.kwargs) -> Result:
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


class _FastPath(NamedTuple):
    """The model bound to the anchors, or None; and whether it reduces estimates by itself."""

    anchored: AnchoredModel | None
    reduces: bool = False


@dataclass(frozen=True)
class TwinPredictor:
    """A difference model, anchors, and how they are selected and weighted.

    `anchors_y` is (anchor, output), `anchor_weights` (anchor,) or None. All results have an output
    axis last; `squeeze` drops it where y is one-dimensional.
    """

    model: DifferenceModel
    anchors: Rows
    anchors_y: Floats
    anchor_weights: Floats | None
    anchor_strategy: AnchorStrategy
    weight_strategy: WeightStrategy | GPWeights
    index: NeighborIndex | None
    make_index: Callable[[str], NeighborIndex]  # of the anchors, for a metric
    learned_metric: Callable[[], LearnedMetric]  # learned when it is first needed
    budget: MemoryBudget
    n_jobs: int | None
    y_is_1d: bool

    # --- results ------------------------------------------------------------------------------

    @_limited
    def predict(self, queries: Queries, *, return_std: bool) -> tuple[Floats, Floats]:
        """(query, output): mean and, with `return_std`, standard deviation of the estimates."""
        path = self._fast_path(len(queries), reduce=True, variance=return_std)

        def predict_block(rows: slice, selection: Selection) -> tuple[Floats, Floats]:
            block = queries.take(rows)
            if path.anchored is not None and path.reduces and path.anchored.supports(block):
                mean, variance = path.anchored.moments(
                    block, self.anchor_weights, variance=return_std, n_jobs=self.n_jobs
                )
                return mean, mean if variance is None else np.sqrt(variance)
            estimates = self._estimate(block, selection, path)
            weights = self._weigh(block, selection, estimates)
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
            weights = self._weigh(block, selection, estimates)
            return np.stack([combine(own[None], np.ones(1), weights)[0] for own in estimates])

        return np.concatenate(self._map(predict_block, queries, path), axis=1)

    @_limited
    def predict_anchors(self, queries: Queries) -> tuple[Indices, Floats]:
        """(query, anchor) indices and (query, anchor, output) estimates of the anchors."""
        path = self._fast_path(len(queries))

        def predict_block(rows: slice, selection: Selection) -> tuple[Indices, Floats]:
            block = queries.take(rows)
            estimates = self._mean_of_members(self._estimate(block, selection, path))
            return self._indices(selection, len(block)), estimates

        indices, estimates = zip(*self._map(predict_block, queries, path), strict=True)
        return np.concatenate(indices), np.concatenate(estimates)

    @_limited
    def deviations(self, queries: Queries, anchors: Indices) -> Floats:
        """(query, function): how far the estimates are from their mean, of the first output.

        A function is one of these anchors, whatever the anchor strategy, with one member. Its
        deviation is multiplied by the root of its weight.
        """
        path = self._fast_path(len(queries))
        all_anchors = replace(self, anchor_strategy=AllAnchors(), index=None)

        def predict_block(rows: slice, _: Selection) -> Floats:
            block = queries.take(rows)
            indices = np.broadcast_to(anchors, (len(block), len(anchors)))
            selection = Selection(indices, None)
            estimates = self._estimate(block, selection, path)
            weights = all_anchors._weigh(block, selection, estimates)
            mean, _std = combine(estimates, self.model.member_weights, weights)
            shares = np.ones(indices.shape) if weights is None else weights
            shares = shares / shares.sum(axis=1, keepdims=True)
            members = np.sqrt(self.model.member_weights)[:, None, None]
            scaled = (estimates[..., 0] - mean[:, :1]) * np.sqrt(shares) * members
            return scaled.transpose(1, 0, 2).reshape(len(block), -1)

        return np.concatenate(all_anchors._map(predict_block, queries, path))

    @_limited
    def explain(self, queries: Queries, n: int, metric: str) -> pd.DataFrame:
        """The `n` comparable anchors of each query, with their distances by a metric."""
        path = self._fast_path(len(queries))

        def explain_block(rows: slice, selection: Selection) -> pd.DataFrame:
            block = queries.take(rows)
            estimates = self._estimate(block, selection, path)
            indices = self._indices(selection, len(block))
            weights = self._weigh(block, selection, estimates)
            table = comparables(
                indices,
                self.anchors_y[indices],
                self._mean_of_members(estimates),
                np.ones(indices.shape) if weights is None else weights,
                self._distances(block, selection, metric),
                n,
            )
            return table.assign(query=table["query"] + rows.start)

        return pd.concat(self._map(explain_block, queries, path), ignore_index=True)

    def adjustments(self, queries: Queries, table: pd.DataFrame, anchors: Queries) -> Floats:
        """(row of the table, feature): what each feature adds to the difference.

        `table` is that of `explain`.
        """
        n_outputs = self.anchors_y.shape[1]
        by_output = np.arange(len(table)).reshape(len(queries), n_outputs, -1)
        rows = by_output.transpose(0, 2, 1).reshape(-1, n_outputs)  # (pair, output)
        query, anchor = (table[name].to_numpy()[rows[:, 0]] for name in ("query", "anchor"))
        pairs = replace(queries, matrix=queries.matrix[query])
        second = replace(queries, matrix=anchors.matrix[anchor])
        found = self.attribute(pairs, second, table["difference"].to_numpy()[rows])
        result = np.empty((len(table), found.shape[1]))
        result[rows] = found.transpose(0, 2, 1)
        return result

    def attribute(self, first: Queries, second: Queries, differences: Floats) -> Floats:
        """(pair, feature, output): what each feature adds to (pair, output) F(first, second)."""

        def predict(mixed: Floats, anchors: Floats) -> Floats:
            sides = (replace(first, matrix=side) for side in (mixed, anchors))
            return self.predict_difference(*sides)[0]

        return attribute(predict, first.matrix, second.matrix, differences)

    @_limited
    def predict_difference(self, first: Queries, second: Queries) -> tuple[Floats, Floats]:
        """(row, output): F(first, second) row by row, and its standard deviation over members."""
        means, stds = [], []
        for members in self._difference_blocks(first, second):
            mean = self._mean_of_members(members)
            means.append(mean)
            stds.append(np.sqrt(self._mean_of_members((members - mean) ** 2)))
        return np.concatenate(means), np.concatenate(stds)

    @_limited
    def difference(self, first: Rows, second: Rows) -> Floats:
        """(row, output): F(first, second) row by row."""
        blocks = self._difference_blocks(first, second)
        return np.concatenate([self._mean_of_members(members) for members in blocks])

    def _difference_blocks(self, first: Rows | Queries, second: Rows | Queries) -> Iterator[Floats]:
        """Yield (member, row, output) differences of blocks of rows."""
        for rows in row_blocks(len(first), self._pairs_per_block()):
            yield self.model.differences(first.take(rows), second.take(rows))

    @_limited
    def loop_inconsistency(
        self, queries: Queries, n_loops: int, rng: np.random.RandomState
    ) -> Floats:
        """(query, output): mean |F(x, i) + F(i, j) + F(j, x)| over random anchors i and j."""
        results = []
        for rows in row_blocks(len(queries), _ROWS_PER_LOOP_DRAW):
            block = queries.take(rows)
            i, j = draw_loops(len(block), len(self.anchors), n_loops, rng)
            x = block.take(np.repeat(np.arange(len(block)), n_loops))
            a, b = self.anchors.take(i.ravel()), self.anchors.take(j.ravel())
            sums = loop_sum(*(self.difference(*side) for side in ((x, a), (a, b), (b, x))))
            results.append(np.abs(sums).reshape(*i.shape, -1).mean(axis=1))
        return np.concatenate(results)

    def squeeze(self, values: Floats) -> Floats:
        """Drop the output axis where y is one-dimensional."""
        return values[..., 0] if self.y_is_1d else values

    # --- steps: fast path, selection, estimates, weights --------------------------------------

    def _fast_path(
        self, n_queries: int, *, reduce: bool = False, variance: bool = False
    ) -> _FastPath:
        """The fast path of the model, where it exists, pays and fits into memory."""
        n_pairs = n_queries * self._n_anchors_used()
        anchored = self.model.at_anchors(self.anchors, self.anchors_y, n_pairs)
        if anchored is None:
            return _FastPath(None)
        fixed_weights = self._nearest() is None and isinstance(self.weight_strategy, UniformWeights)
        weighted = self.anchor_weights is not None
        if reduce and fixed_weights and anchored.can_reduce(weighted=weighted, variance=variance):
            return _FastPath(anchored, reduces=True)
        # with too little memory for the estimates of one query, its anchors are split into blocks
        return _FastPath(anchored if self.budget.fits(self._bytes_per_query(anchored)) else None)

    def _map(
        self, function: Callable[[slice, Selection], Result], queries: Queries, path: _FastPath
    ) -> list[Result]:
        """`function(rows, selection)` of all blocks of queries, in order."""
        nearest, n_used = self._nearest(), self._n_anchors_used()
        if path.anchored is None:
            per_block = max(1, self._pairs_per_block() // n_used)
        elif path.reduces:
            per_block = self.budget.at_most(
                path.anchored.queries_per_block, path.anchored.bytes_per_query
            )
        else:
            each = self._bytes_per_query(path.anchored)
            per_block = self.budget.at_most(max(1, _FAST_BLOCK_BYTES // each), each)
        per_search = max(1, len(queries))
        if nearest is not None:
            # an index and a distance of each neighbor, and as much again during the search
            per_search = self.budget.at_most(_ROWS_PER_SEARCH, 32 * n_used)
        return map_query_blocks(
            function,
            len(queries),
            per_block,
            partial(self._select, queries),
            per_search,
            self.n_jobs if path.anchored is None else 1,  # the fast path has its own threads
        )

    def _nearest(self) -> tuple[int, str] | None:
        """The number of nearest anchors used for a query and their metric; None for all."""
        return self.anchor_strategy.nearest(len(self.anchors))

    def _n_anchors_used(self) -> int:
        nearest = self._nearest()
        return len(self.anchors) if nearest is None else nearest[0]

    def _select(self, queries: Queries, rows: slice) -> Selection:
        nearest = self._nearest()
        if nearest is None:
            return Selection(None, None)
        k, metric = nearest
        index = self.index
        if index is None or index.metric != metric:  # `anchors` was changed after the fit
            index = self.make_index(metric)
        return Selection(*index.kneighbors(queries.take(rows).features, k))

    def _estimate(self, block: Rows, selection: Selection, path: _FastPath) -> Floats:
        """(member, query, anchor, output): the estimate of each anchor by each member."""
        indices = selection.indices
        if path.anchored is not None and path.anchored.supports(block):
            differences = path.anchored.differences(block, indices, n_jobs=self.n_jobs)
        else:
            differences = self._differences_to_anchors(block, indices)
        known = self.anchors_y if indices is None else self.anchors_y[indices]
        return estimate(differences, known)

    def _differences_to_anchors(self, block: Rows, indices: Indices | None) -> Floats:
        """(member, query, anchor, output) from pairs, in blocks of anchors where there are many."""
        anchors = self.anchors.as_anchors() if indices is None else self.anchors.take(indices)
        per_block = max(1, self._pairs_per_block() // len(block))
        parts = [
            self.model.differences(block.as_queries(), anchors.slice_anchors(part))
            for part in row_blocks(anchors.numeric.shape[1], per_block)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)

    def _weigh(self, block: Rows, selection: Selection, estimates: Floats) -> Floats | None:
        """(query, anchor) weights, or None where all are equal."""
        indices = self._indices(selection, len(block))
        weights = None
        if not isinstance(self.weight_strategy, UniformWeights):
            mean = self.squeeze(self._mean_of_members(estimates))
            strategy = self.weight_strategy
            if isinstance(strategy, GPWeights):
                learned = self.learned_metric()
                strategy = strategy.bind(learned)
                distances = self._distances_after(learned.in_length_scales, block, selection)
            else:
                distances = self._distances(block, selection)
            weights = strategy(distances, mean, indices)
            weights = check_anchor_weights(weights, indices.shape)
        if self.anchor_weights is None:
            return weights
        sample_weights = self.anchor_weights[indices]
        if weights is not None:
            sample_weights = sample_weights * weights
        return check_anchor_weights(sample_weights, indices.shape)

    def _mean_of_members(self, values: Floats) -> Floats:
        """(member, ...) → (...): the weighted mean over members."""
        return np.tensordot(self.model.member_weights, values, axes=1)

    def _distances(self, block: Rows, selection: Selection, metric: str | None = None) -> Floats:
        """(query, anchor) distances by a metric; None is that of the selection, or Euclidean."""
        nearest = self._nearest()
        selected_by = None if nearest is None else nearest[1]
        if selection.distances is not None and metric in (None, selected_by):
            return selection.distances
        if metric == LEARNED:
            return self._distances_after(self.learned_metric().transform, block, selection)
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
            distance_matrix(query[None], anchors[own], metric)
            for query, own in zip(queries, selection.indices, strict=True)
        ]
        return np.concatenate(parts)

    def _indices(self, selection: Selection, n_queries: int) -> Indices:
        if selection.indices is not None:
            return selection.indices
        return np.broadcast_to(np.arange(len(self.anchors)), (n_queries, len(self.anchors)))

    # --- memory -------------------------------------------------------------------------------

    def _pairs_per_block(self) -> int:
        """The number of pairs that each thread predicts at once."""
        # an estimate, its mirror image, their weight and distance exist beside the pair itself
        each = self.model.bytes_per_pair + 8 * 4 * self.anchors_y.shape[1]
        return self.budget.at_most(self.model.pairs_per_block, each)

    def _bytes_per_query(self, anchored: AnchoredModel) -> int:
        """Memory of a query on the fast path, with the estimates of its anchors."""
        # the estimates of all members and a copy, a weight, a distance, and temporary arrays
        n_arrays = 4 + 2 * len(self.model.member_weights)
        n_estimates = self._n_anchors_used() * self.anchors_y.shape[1]
        return anchored.bytes_per_query + 8 * n_arrays * n_estimates
