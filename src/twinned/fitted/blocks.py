"""Blocks of queries that are predicted at once: estimates of their anchors, and the weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from twinned.fitted.anchors import Queries
from twinned.models.protocol import AnchoredModel
from twinned.pairing.anchors import GPWeights, UniformWeights, weigh_replicates
from twinned.pairing.differences import check_anchor_weights, combine, estimate
from twinned.rows.neighbors import LEARNED, distance_matrix
from twinned.rows.schema import Floats, Indices, Rows

if TYPE_CHECKING:
    from twinned.fitted.twin import FittedTwin

Transform = Callable[[Floats], Floats]  # of values of the fitted target, element by element


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
    queries: Queries  # of the block
    is_incomplete: bool  # whether any of them misses a value that every anchor has
    anchored: AnchoredModel | None  # the fast path of the model
    reduces: bool  # whether the fast path returns moments
    variance: bool  # whether the standard deviation is needed
    subset: Indices | None = None  # (anchor,): the anchors of every query, instead of the nearest

    def __len__(self) -> int:
        return len(self.queries)

    @cached_property
    def encoded(self) -> Rows:
        """The queries, with the values of the most similar anchor in place of missing ones."""
        queries = self.twin.complete(self.queries, 1)[0] if self.is_incomplete else self.queries
        return queries.encode()

    @cached_property
    def completions(self) -> tuple[Rows, Indices]:
        """Rows with values in place of missing ones, and the first of each query.

        There are several for an incomplete query, whose differences are averaged.
        """
        if not self.is_incomplete:
            return self.encoded, np.arange(len(self.queries.matrix))
        completed, starts = self.twin.complete(self.queries)
        return completed.encode(), starts

    def _average(self, values: Floats, axis: int = 0) -> Floats:
        """Values of completed rows along an axis → their means of each query."""
        n_rows, starts = values.shape[axis], self.completions[1]
        if n_rows == len(starts):
            return values
        sums = np.add.reduceat(values, starts, axis=axis)
        counts = np.diff(starts, append=n_rows)
        return sums / counts.reshape(-1, *(1,) * (values.ndim - axis - 1))

    @cached_property
    def nearest(self) -> tuple[Indices, Floats] | None:
        """(query, anchor): indices and distances of the nearest anchors; None for all anchors."""
        if self.twin.nearest is None or self.subset is not None:
            return None
        n_anchors, metric = self.twin.nearest
        return self.twin.anchors.index(metric).kneighbors(self.encoded.features, n_anchors)

    @property
    def indices(self) -> Indices | None:
        """(query, anchor); None stands for all anchors."""
        if self.subset is not None:
            return np.broadcast_to(self.subset, (len(self), len(self.subset)))
        return None if self.nearest is None else self.nearest[0]

    @property
    def anchor_indices(self) -> Indices:
        """(query, anchor)."""
        if (indices := self.indices) is not None:
            return indices
        n_anchors = len(self.twin.anchors)
        return np.broadcast_to(np.arange(n_anchors), (len(self), n_anchors))

    @property
    def offset(self) -> Floats:
        """(query, 1): of the batch of each query."""
        offset = self.queries.offset
        return np.zeros((len(self), 1)) if offset is None else offset[:, None]

    @cached_property
    def estimates(self) -> Floats:
        """(member, query, anchor, output): the estimate of each anchor by each member.

        Where pairs are built, many anchors are split into blocks.
        """
        twin, anchors, indices = self.twin, self.twin.anchors, self.indices
        encoded, starts = self.completions
        if indices is not None and self.is_incomplete:
            indices = np.repeat(indices, np.diff(starts, append=len(encoded)), axis=0)
        if self.anchored is not None and self.anchored.supports(encoded):
            differences = self.anchored.differences(encoded, indices, n_jobs=twin.budget.n_jobs)
        else:
            rows = anchors.rows.take(indices)  # (query or 1, anchor, …)
            per_block = max(1, twin.pairs_per_block // len(encoded))
            queries = encoded.take(np.s_[:, None])
            parts = [
                twin.model.differences(queries, rows.take(np.s_[:, start : start + per_block]))
                for start in range(0, rows.numeric.shape[1], per_block)
            ]
            differences = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
        targets = anchors.outputs if indices is None else anchors.outputs[self.indices]
        if twin.batches is not None:
            targets = targets + self.offset[:, None]
        return estimate(self._average(differences, axis=1), targets)

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        """(query, output): mean and standard deviation of the estimates by differences."""
        twin, anchored, encoded = self.twin, self.anchored, self.completions[0]
        if self.reduces and anchored is not None and anchored.supports(encoded):
            mean, variance = anchored.moments(
                encoded, twin.anchors.weight, variance=self.variance, n_jobs=twin.budget.n_jobs
            )
            mean = self._average(mean)
            std = mean if variance is None else np.sqrt(self._average(variance))
            return mean + self.offset, std
        return combine(self.estimates, twin.model.member_weights, self.weights)

    def anchor_estimates(self, transform: Transform = np.asarray) -> Floats:
        """(query, anchor, output): the estimate from each anchor, transformed.

        That of an anchor that equals the query is its value, as the model is fitted to it. Where
        weights are equal, the estimates from the others are moved, so that the mean is the same.
        """
        twin = self.twin
        if twin.residuals is None:
            return transform(twin.mean_of_members(self.estimates))
        estimates = transform(self.moments[0][:, None] + twin.residuals)
        (queries, anchors), targets = self._matches, twin.anchors.outputs
        if twin.is_local:
            estimates[queries, anchors] = transform(targets[anchors] + self.offset[queries])
        elif len(queries):
            shares = self.anchor_shares
            is_other = np.ones(shares.shape, dtype=bool)
            is_other[queries, anchors] = False
            for query in np.unique(queries):
                of_query, share, others = estimates[query], shares[query], is_other[query]
                if rest := share[others].sum():
                    known_y = transform(targets[~others] + self.offset[query])
                    moved = of_query[~others] - known_y
                    of_query[~others] -= moved
                    of_query[others] += share[~others] @ moved / rest
        return estimates

    @cached_property
    def _matches(self) -> tuple[Indices, Indices]:
        """(match,): queries and the anchors that equal them."""
        return self.twin.anchors.equal_rows.match(self.queries.matrix)

    @cached_property
    def weights(self) -> Floats | None:
        """(query, anchor) weights of the differences, or None where all are equal."""
        twin, strategy = self.twin, self.twin.weight_strategy
        sample_weights, is_uniform = twin.anchors.weight, isinstance(strategy, UniformWeights)
        if is_uniform and sample_weights is None:
            return None
        indices = self.anchor_indices
        if isinstance(strategy, GPWeights):
            weights = self._process_weights(strategy)
        elif is_uniform:
            weights = np.ones(indices.shape)
        else:
            mean = twin.squeeze(twin.mean_of_members(self.estimates))
            weights = check_anchor_weights(strategy(self.distances(), mean, indices), indices.shape)
        if sample_weights is None:
            return weights
        return check_anchor_weights(sample_weights[indices] * weights, indices.shape)

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
        if self.nearest and self.twin.nearest and metric in (None, self.twin.nearest[1]):
            return self.nearest[1]
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
