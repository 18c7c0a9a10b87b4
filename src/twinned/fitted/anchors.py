"""The anchors from which queries are predicted, and the estimates of blocks of queries.

Missing values that no anchor has are replaced by those of near anchors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.utils import gen_batches

from twinned.fitted.applicability import ApplicabilityDomain, Mask
from twinned.models.learned_metric import learn_metric
from twinned.models.protocol import AnchoredModel
from twinned.pairing.anchors import EqualRows, GPWeights, UniformWeights, weigh_replicates
from twinned.pairing.differences import check_anchor_weights, combine, estimate
from twinned.rows.neighbors import (
    LEARNED,
    LearnedMetric,
    MetricProcess,
    NeighborIndex,
    distance_matrix,
)
from twinned.rows.schema import Floats, Indices, Queries, Rows, RowScale
from twinned.rows.training import TrainingRows

if TYPE_CHECKING:
    from twinned.fitted.twin import FittedTwin

Transform = Callable[[Floats], Floats]  # of values of the fitted target, element by element

_N_VALUES = 30  # by which a row is completed; a prediction is their mean
_MAX_DONORS = 1000  # known rows whose values are used; of more, a fixed random subset
_ROWS_PER_BLOCK = 1000


@dataclass(frozen=True, eq=False)
class Anchors(TrainingRows):
    """Known rows from which queries are predicted; what is derived from them is made once.

    `y` is without the deviations of batches, `groups` are codes of groups that are held out
    together, and `batch` are codes of batches. Anchors that were added are row −1 of the table.
    """

    scale: RowScale | None = None
    censored_X: Floats | None = None  # (row, feature): rows of the fit whose value is not known
    learned_metric: LearnedMetric | None = None  # where it has been learned already
    n_jobs: int | None = None  # of neighbor searches
    # neighbor indices by metric, as needed
    indices: dict[str, NeighborIndex] = field(default_factory=dict, init=False)

    @classmethod
    def of_rows(cls, rows: TrainingRows, **details: Any) -> Self:
        """Of known rows of a fit, with details of the anchors."""
        of_fit = ("bounds", "fold", "fold_training", "unlabelled", "effects", "common")
        return cls(**values_of(rows) | dict.fromkeys(of_fit) | details)

    def prepare(self, nearest: tuple[int, str] | None) -> Self:
        """The anchors, with the values and the neighbor index that predictions need."""
        if nearest is not None:
            self.index(nearest[1])
        _ = self.outputs
        return self

    def to_rows(self, y: Floats, batch: np.ndarray | None) -> TrainingRows:
        """The anchors as rows of a fit, with these values and labels of batches."""
        return replace(
            TrainingRows(**values_of(self)),
            y=y,
            batch=batch,
            deviation=None,
            table_rows=np.arange(len(self)),
            n_table_rows=len(self),
        )

    def __getstate__(self) -> dict[str, object]:
        # without what is derived, except the metric, whose fit takes time
        return vars(replace(self, learned_metric=self.known_metric)) | {"indices": {}}

    @cached_property
    def rows(self) -> Rows:
        """Encoded anchors, as the model sees them."""
        return Queries(self.schema, self.scale, self.matrix).encode()

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
        return self.learned_metric or learn_metric(self.features, self.y, self.weight)

    @property
    def known_metric(self) -> LearnedMetric | None:
        """The learned metric, if it has been learned."""
        return vars(self).get("metric", self.learned_metric)

    @cached_property
    def process(self) -> MetricProcess:
        """The Gaussian process of the learned metric, given the anchors."""
        return MetricProcess(self.features, self.metric, self.schema)

    @cached_property
    def domain(self) -> ApplicabilityDomain:
        """The applicability domain."""
        return ApplicabilityDomain(
            self.matrix, self.features, self.metric, self.y, self.schema.categorical, self.groups
        )

    @cached_property
    def always_known(self) -> Mask:
        """(feature,): whether every anchor has a value."""
        return np.all(~np.isnan(self.matrix), axis=0)

    @cached_property
    def imputer(self) -> NeighborImputer:
        """Values for rows that miss those of features that every anchor has."""
        return NeighborImputer(self)

    @cached_property
    def equal_rows(self) -> EqualRows:
        """The anchors that equal rows to predict."""
        return EqualRows(self.matrix)

    def index(self, metric: str) -> NeighborIndex:
        """The neighbor index for a metric."""
        if metric not in self.indices:
            learned = self.metric if metric == LEARNED else None
            self.indices[metric] = NeighborIndex(self.features, metric, self.n_jobs, learned)
        return self.indices[metric]


def values_of(rows: TrainingRows) -> dict[str, Any]:
    """The values of the fields of `TrainingRows`."""
    return {of.name: vars(rows)[of.name] for of in fields(TrainingRows)}


class NeighborImputer:
    """Values of rows that miss one which all anchors have, from anchors.

    Models have not seen such rows, and their ways to handle missing values are not measured by the
    calibration. Their prediction is the mean over values that the missing features take in the
    nearest anchors, by the distances of the other features in the learned metric. Where anchors
    miss values of a feature, too, it is left to the model.
    """

    def __init__(self, anchors: Anchors) -> None:
        donors = np.random.RandomState(0).permutation(len(anchors))[:_MAX_DONORS]
        self._anchors, self._matrix = anchors, anchors.matrix[donors]
        self._scaled = anchors.metric.transform(anchors.features[donors])
        self.n_values: int = min(_N_VALUES, len(donors))

    def complete(self, matrix: Floats, n: int) -> tuple[Floats, Indices]:
        """Rows with the values of the n nearest anchors, the nearest first, for an incomplete row.

        Also returned is the (row,) first of each.
        """
        anchors, missing = self._anchors, np.isnan(matrix) & self._anchors.always_known
        incomplete = np.flatnonzero(missing.any(axis=1))
        counts = np.ones(len(matrix), dtype=np.intp)
        counts[incomplete] = n
        completed, starts = np.repeat(matrix, counts, axis=0), np.cumsum(counts) - counts
        patterns, numbers = np.unique(missing[incomplete], axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            columns = anchors.schema.encoded_columns(np.flatnonzero(~pattern))
            index = NeighborIndex(self._scaled[:, columns]) if len(columns) else None
            rows_of_pattern = incomplete[numbers.ravel() == number]
            for block in gen_batches(len(rows_of_pattern), _ROWS_PER_BLOCK):
                rows, nearest = rows_of_pattern[block], np.arange(n)
                if index is not None:
                    encoded = Queries(anchors.schema, anchors.scale, matrix[rows]).encode()
                    scaled = anchors.metric.transform(encoded.features)
                    nearest = index.kneighbors(scaled[:, columns], n)[0]
                positions = starts[rows, None] + np.arange(n)
                values = np.where(pattern, self._matrix[nearest], completed[positions])
                completed[positions] = values
        return completed, starts


# --- blocks of queries that are predicted at once ---


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
        if self.anchored is not None:
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
        if self.reduces and anchored is not None:
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
