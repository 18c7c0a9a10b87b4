"""FittedTwin: a difference model, its anchors, and predictions in blocks of bounded memory.

A prediction selects the anchors of each query, predicts the differences to them by the fast path
of the model or from pairs, adds the known values, and combines the estimates.

Where out-of-fold residuals of the anchors are known, that is the prediction f(a) of the model. The
estimate from an anchor b is then y(b) + f(a) − g(b), where g(b) is the out-of-fold prediction of b,
by a model that was not fitted to it: f(a) plus the residual of b. So the estimates differ as much
as the model errs, and where residuals of neighbors are alike, near anchors have more weight.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import gen_batches

from twinned.batches.effects import BatchEffects
from twinned.exceptions import MissingBatchWarning, warn_caller
from twinned.fitted.anchors import AnchorEstimates, Anchors, QueryBlock, Transform
from twinned.fitted.applicability import ClassStatistics, Mask
from twinned.fitted.calibration import Calibration
from twinned.fitted.prediction import Prediction, error_correlation
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.models.protocol import AnchoredModel, DifferenceModel
from twinned.models.resources import MemoryBudget, limit_threads, map_row_blocks
from twinned.pairing.anchors import GPWeights, UniformWeights, WeightStrategy
from twinned.pairing.differences import combine, draw_loops, loop_sum
from twinned.rows.schema import Floats, Indices, Queries, Rows, TableSchema
from twinned.rows.training import TrainingRows
from twinned.rows.validation import check_predictions, check_row_numbers

Result = TypeVar("Result")

_FAST_BLOCK_BYTES = 64_000_000  # of estimates that the fast path stores at once
_ROWS_PER_COMPLETION = 1000  # incomplete queries that are completed at once
_ROWS_PER_ENCODING = 65_536  # queries whose features are encoded at once
# Queries whose loops are drawn at once: fixed, so that results do not depend on the memory limit.
_ROWS_PER_LOOP_DRAW = 4_096
# The anchors whose estimates correlate the errors of queries; of more, a fixed random subset.
_MAX_CORRELATING = 200


@dataclass(frozen=True, eq=False)
class FittedTwin:
    """A difference model, anchors, and how they are selected and weighted: the result of a fit.

    All results have an output axis last; `squeeze` drops it where y is one-dimensional.
    """

    model: DifferenceModel
    anchors: Anchors
    nearest: tuple[int, str] | None = None  # the number of anchors of a query, and their metric
    weight_strategy: WeightStrategy | GPWeights = field(default_factory=UniformWeights)
    budget: MemoryBudget = field(default_factory=MemoryBudget)
    # (anchor, output): out-of-fold residuals minus their mean, where all anchors are used with
    # equal weights. So the model is not changed by their mean.
    residuals: Floats | None = None
    # Weights of the estimates with these residuals, None for equal ones, and the correlation by
    # which anchors that equal the query have more weight.
    local_weights: GPWeights | None = None
    replicate_correlation: float = 0.0
    batches: BatchEffects | None = None  # whose codes are those of the anchors
    target: TargetTransform = IDENTITY
    calibration: Calibration | None = None  # of prediction intervals
    applicability: ClassStatistics | None = None  # measured of the classes of applicability

    @property
    def schema(self) -> TableSchema:
        """Kinds and categories of the features."""
        return self.anchors.schema

    @property
    def is_local(self) -> bool:
        """Whether the weights of the estimates depend on the query, where there are residuals."""
        return self.local_weights is not None or self.replicate_correlation > 0

    # --- results ------------------------------------------------------------------------------

    def predict(
        self, queries: Queries, *, of: str = "measurement", y_std: object = None
    ) -> Prediction:
        """The predictive distribution of each query.

        `of` and `y_std` are as in `TwinRegressor.predict_interval`.
        """
        prediction = Prediction(self, queries, self.calibration)
        if self.calibration is None:
            return prediction
        if y_std is not None and self.target != IDENTITY:
            y_std = check_row_numbers("y_std", y_std, len(queries))
            y_std = y_std / self.target.slope(prediction.mean)
        calibration = self.calibration.with_errors(of, y_std, len(queries))
        return replace(prediction, calibration=calibration)

    def find_incomplete(self, queries: Queries) -> Mask:
        """(query,): whether a query misses a value that every anchor has."""
        return np.any(np.isnan(queries.matrix[:, self.anchors.always_known]), axis=1)

    def complete(self, queries: Queries, n: int | None = None) -> tuple[Queries, Indices]:
        """Rows with values in place of those that every anchor has, n for an incomplete row.

        Also returned is the (row,) first of each. They are without batches. Without `n`, there are
        as many as the prediction of an incomplete row is the mean of.
        """
        imputer = self.anchors.imputer
        completed, starts = imputer.complete(queries.matrix, n or imputer.n_values)
        return self.queries(completed), starts

    def completions(
        self, queries: Queries, calibration: Calibration
    ) -> Iterator[tuple[Indices, Prediction]]:
        """Incomplete queries, in blocks, and predictions of the rows that complete them, n each."""
        incomplete = np.flatnonzero(self.find_incomplete(queries))
        for start in range(0, len(incomplete), _ROWS_PER_COMPLETION):
            rows = incomplete[start : start + _ROWS_PER_COMPLETION]
            completed, _ = self.complete(self.queries(queries.matrix[rows]))
            yield rows, Prediction(self, completed, calibration)

    def moments(self, queries: Queries, *, return_std: bool = False) -> tuple[Floats, Floats]:
        """(query, output): mean, and raw standard deviation of the estimates by differences.

        They are on the scale of the fitted target. The standard deviation is computed with
        `return_std` only.
        """
        is_local = self.is_local

        def predict_block(block: QueryBlock) -> tuple[Floats, Floats]:
            mean, std = block.moments
            if is_local:
                mean = (block.anchor_shares[..., None] * block.anchor_estimates()).sum(axis=1)
            elif self.residuals is not None:
                mean = mean + np.average(self.residuals, axis=0, weights=self.anchors.weight)
            return mean, std

        results = self.map_blocks(
            predict_block, queries, reduce=True, variance=return_std, per_anchor=is_local
        )
        mean, std = (np.concatenate(parts) for parts in zip(*results, strict=True))
        check_predictions(mean)
        if return_std:
            check_predictions(std)
        return mean, std

    def predict_mean(self, queries: Queries) -> Floats:
        """(query, output): the weighted mean of the estimates of the anchors in units of y."""
        if self.target == IDENTITY:
            return self.moments(queries)[0]

        def predict_block(_: slice, block: AnchorEstimates) -> Floats:
            return np.einsum("ij,ijk->ik", block.weights, block.estimates)

        return np.concatenate(self.map_estimates(predict_block, queries))

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
    ) -> list[Result]:
        """`function(rows, estimates of their anchors)` of all blocks of queries, in order.

        The estimates are in units of y. Without a metric, no distances are computed.
        """
        transform: Transform = self.target.invert

        def call(block: QueryBlock) -> Result:
            distances = np.empty((0, 0)) if metric is None else block.distances(metric)
            estimates = AnchorEstimates(
                indices=block.anchor_indices,
                estimates=block.anchor_estimates(transform),
                weights=block.anchor_shares,
                distances=distances,
            )
            return function(block.rows, estimates)

        return self.map_blocks(call, queries, reduce=self.residuals is not None, per_anchor=True)

    def predict_anchors(self, queries: Queries) -> tuple[Indices, Floats]:
        """(query, anchor) indices and (query, anchor, output) estimates of the anchors."""
        blocks: list[AnchorEstimates] = self.map_estimates(lambda _, block: block, queries)
        indices, estimates, _, _ = zip(*blocks, strict=True)
        return np.concatenate(indices), np.concatenate(estimates)

    def error_correlation(self, queries: Queries) -> Floats:
        """(query, query): correlations of the errors of one measurement of each query."""
        drawn = np.random.RandomState(0).permutation(len(self.anchors))[:_MAX_CORRELATING]
        functions: Indices = np.sort(drawn)
        features = self.complete(queries, 1)[0].encode().features
        by_process = self.anchors.process.correlation(features)
        return error_correlation(self.deviations(queries, functions), by_process)

    def process_std(self, queries: Queries) -> Floats:
        """(query,): standard deviation of y by the process, in units of its amplitude."""
        blocks = gen_batches(len(queries.matrix), _ROWS_PER_ENCODING)
        parts = [self.anchors.process.std(queries.take(rows).features) for rows in blocks]
        return np.concatenate(parts)

    def deviations(self, queries: Queries, anchors: Indices) -> Floats:
        """(query, function): how far the estimates are from their mean, of the first output.

        A function is one of these anchors, whatever the anchor strategy, with one member. Its
        deviation is multiplied by the root of its weight.
        """

        def predict_block(block: QueryBlock) -> Floats:
            block = replace(block, subset=anchors)
            mean, _std = combine(block.estimates, self.model.member_weights, block.weights)
            members = np.sqrt(self.model.member_weights)[:, None, None]
            scaled = (block.estimates[..., 0] - mean[:, :1]) * np.sqrt(block.shares) * members
            return scaled.transpose(1, 0, 2).reshape(len(block), -1)

        with_all = replace(self, nearest=None)
        return np.concatenate(with_all.map_blocks(predict_block, queries))

    def predict_difference(
        self, first: Queries | Rows, second: Queries | Rows
    ) -> tuple[Floats, Floats]:
        """(row, output): F(first, second) row by row, and its standard deviation over members."""
        means, stds = [], []
        with limit_threads(self.budget.n_jobs):
            for rows in gen_batches(len(first), self.pairs_per_block):
                members = self.model.differences(first.take(rows), second.take(rows))
                means.append(mean := self.mean_of_members(members))
                stds.append(np.sqrt(self.mean_of_members((members - mean) ** 2)))
        return np.concatenate(means), np.concatenate(stds)

    def loop_inconsistency(
        self, queries: Queries, n_loops: int, rng: np.random.RandomState
    ) -> Floats:
        """(query, output): mean |F(x, i) + F(i, j) + F(j, x)| over random anchors i and j."""
        results, anchors = [], self.anchors.rows
        for rows in gen_batches(len(queries), _ROWS_PER_LOOP_DRAW):
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
        """(anchor,): deviations of the batches of the anchors; 0 without batches."""
        deviation = self.anchors.deviation
        return np.zeros(len(self.anchors)) if deviation is None else deviation

    @property
    def fitted_y(self) -> Floats:
        """(anchor,) or (anchor, output): known values of the fitted target, with deviations."""
        y = self.anchors.y
        return y if self.batches is None else y + self.anchor_offsets

    @property
    def known_y(self) -> Floats:
        """(anchor,) or (anchor, output): known values in units of y."""
        return self.target.invert_known(self.fitted_y)

    def training_rows(self) -> TrainingRows:
        """The anchors as rows to fit to again, in their order and with all arguments of `fit`.

        Weights are those that include the errors of measurement.
        """
        batches = self.batches
        labels = None if batches is None else np.array(batches.names)[self.anchors.batch]
        return self.anchors.to_rows(self.fitted_y, labels)

    def queries(self, matrix: Floats) -> Queries:
        """Encoded rows (row, feature), with categories as codes, as rows to predict."""
        return Queries(self.schema, self.anchors.scale, matrix)

    def squeeze(self, values: Floats) -> Floats:
        """Drop the output axis where y is one-dimensional."""
        return values[..., 0] if self.anchors.y.ndim == 1 else values

    def mean_of_members(self, values: Floats) -> Floats:
        """(member, ...) → (...): the weighted mean over members."""
        return np.tensordot(self.model.member_weights, values, axes=1)

    # --- batches ------------------------------------------------------------------------------

    def check_batch(self, batch: object) -> None:
        """Raise where a batch is given for a model without batches."""
        if batch is not None and self.batches is None:
            raise ValueError("The model was fitted without batch; fit it with one.")

    def warn_without_batch(self) -> None:
        """Warn where a model has batches, and none is given."""
        if self.batches is not None:
            message = (
                "The model was fitted with batches, and none is given: predictions are those of "
                "the mean of all batches. Give batch=, one label or one for each row."
            )
            warn_caller(message, MissingBatchWarning)

    def in_batches(self, queries: Queries, batch: Any) -> Queries:
        """Rows to predict with the deviations of their batches; None is an unknown batch."""
        if self.batches is None:
            self.check_batch(batch)
            return queries
        n_queries = len(queries.matrix)
        codes = np.full(n_queries, -1) if batch is None else self.batches.codes_of(batch, n_queries)
        return self.batches.with_deviations(queries, codes)

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
        enough to store the estimates of all their anchors nevertheless.
        """
        n_queries = len(queries.matrix)
        with limit_threads(self.budget.n_jobs):
            anchored, reduces = self._fast_path(n_queries, reduce, variance)
            per_block = self._queries_per_block(anchored, reduces=reduces and not per_anchor)
            is_incomplete = self.find_incomplete(queries)
            n_values = self.anchors.imputer.n_values if is_incomplete.any() else 1
            # of rows that replace the queries, as many as fit into a block
            n_completed = np.cumsum(np.where(is_incomplete, n_values, 1))
            starts = np.unique((n_completed - 1) // per_block, return_index=True)[1]
            ends = np.append(starts[1:], n_queries)

            def call(block: slice) -> Result:
                rows = slice(starts[block.start], ends[block.start])
                offset = None if queries.offset is None else queries.offset[rows]
                of_block = Queries(queries.schema, queries.scale, queries.matrix[rows], offset)
                any_incomplete = bool(is_incomplete[rows].any())
                return function(
                    QueryBlock(self, rows, of_block, any_incomplete, anchored, reduces, variance)
                )

            # the fast path has its own threads
            n_jobs = self.budget.n_jobs if anchored is None else 1
            return map_row_blocks(call, len(starts), 1, n_jobs)

    def _queries_per_block(self, anchored: AnchoredModel | None, *, reduces: bool) -> int:
        """The number of queries of a block, by the fast path or on pairs."""
        if anchored is None:
            return max(1, self.pairs_per_block // self._n_anchors_used)
        if reduces:
            return self.budget.at_most(anchored.queries_per_block, anchored.bytes_per_query)
        n_bytes = self._bytes_per_query(anchored)
        return self.budget.at_most(max(1, _FAST_BLOCK_BYTES // n_bytes), n_bytes)

    def _fast_path(
        self, n_queries: int, reduce: bool, variance: bool
    ) -> tuple[AnchoredModel | None, bool]:
        """The fast path of the model, where it exists, pays and fits, and whether it reduces."""
        n_pairs, anchors = n_queries * self._n_anchors_used, self.anchors
        anchored = self.model.at_anchors(anchors.rows, anchors.outputs, n_pairs)
        if anchored is None:
            return None, False
        is_plain = anchors.weight is None and not variance
        if reduce and self.uses_all_anchors_equally and (is_plain or not anchored.mean_only):
            return anchored, True
        # with too little memory for the estimates of one query, its anchors are split into blocks
        return anchored if self.budget.fits(self._bytes_per_query(anchored)) else None, False

    @property
    def uses_all_anchors_equally(self) -> bool:
        """Whether the prediction of the model is the mean of the estimates of all anchors."""
        return self.nearest is None and isinstance(self.weight_strategy, UniformWeights)

    @property
    def _n_anchors_used(self) -> int:
        return len(self.anchors.matrix) if self.nearest is None else self.nearest[0]

    @cached_property
    def pairs_per_block(self) -> int:
        """The number of pairs that each thread predicts at once."""
        # an estimate, its mirror image, their weight and distance exist beside the pair itself
        each = self.model.bytes_per_pair + 8 * 4 * self.anchors.outputs.shape[1]
        return self.budget.at_most(self.model.pairs_per_block, each)

    def _bytes_per_query(self, anchored: AnchoredModel) -> int:
        """Memory of a query on the fast path, with the estimates of its anchors."""
        # the estimates of all members and a copy, a weight, a distance, and temporary arrays
        n_arrays = 4 + 2 * len(self.model.member_weights)
        n_estimates = self._n_anchors_used * self.anchors.outputs.shape[1]
        return anchored.bytes_per_query + 8 * n_arrays * n_estimates
