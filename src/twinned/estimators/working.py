"""A twin at work: select anchors → predict differences → combine, in blocks of bounded memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from twinned._neighbors import Indices, NeighborIndex, distance_matrix
from twinned._table import Floats, Rows, TableSchema
from twinned._validation import (
    check_same_rows,
    parse_memory_limit,
    validate_table,
)
from twinned.estimators.blocks import Queries, Selection, cut
from twinned.exceptions import MemoryLimitError
from twinned.pairing.anchors import as_anchor_strategy
from twinned.pairing.pairs import antisymmetric, asymmetry, estimate
from twinned.pairing.weights import (
    UniformWeights,
    as_weight_strategy,
    check_anchor_weights,
    combine,
)

# A block of pairs this large stays in the processor's cache; larger ones are slower, not faster.
_BLOCK_BYTES = 8_000_000
# Without pairs, blocks are large: what is made once for a block should not be made often.
_SHORTCUT_BLOCK = 64_000_000
# Neighbors are searched for many queries at once, whatever the block of pairs is.
_SEARCH_ROWS = 65_536


class AnchoredModel(BaseEstimator, ABC):
    """What `BaseTwin` answers from: fitted state, door, and the way of a block of queries."""

    @abstractmethod
    def _raw_differences(self, first: Rows, second: Rows) -> Floats:
        """F(first, second) as learned, (..., n_outputs), for sides that broadcast together.

        The caller keeps the number of pairs within `_pairs_per_block()`.
        """

    @abstractmethod
    def _pair_bytes(self) -> int:
        """What one pair costs while its difference is predicted."""

    # --- fitted state -------------------------------------------------------------------------

    def _remember(
        self,
        anchors_X: Floats,
        anchors_y: Floats,
        weight: Floats | None,
        columns: TableSchema,
        rows: Indices,
        indices: Mapping[str, NeighborIndex] = MappingProxyType({}),
    ) -> None:
        """Keep the anchors, and the index of their neighbors where predicting needs one.

        `rows` are their rows in the training table, −1 where they were added later; `indices` are
        those that the fit has already made of the same points, by metric.
        """
        if hasattr(self, "intervals_"):
            del self.intervals_  # those were of other points
        self.anchors_X_ = anchors_X
        self.anchors_y_ = anchors_y
        self.anchor_rows_ = rows
        self._anchor_weight = weight
        self._schema = columns
        self._prepare(indices)

    def _prepare(self, indices: Mapping[str, NeighborIndex] = MappingProxyType({})) -> None:
        """What predicting needs and a saved model does not hold, as it follows from the anchors."""
        self._points = self._as_points(self._schema, self.anchors_X_)
        self._read: Any = None  # what `_shortcut` found, once it has looked
        nearest = as_anchor_strategy(self.anchors).nearest(len(self.anchors_X_))
        self._index = None if nearest is None else indices.get(nearest[1])
        if nearest is not None and self._index is None:
            self._index = NeighborIndex(self._points.features, nearest[1], self.n_jobs)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        for derived in ("_points", "_index", "_read"):
            state.pop(derived, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "anchors_X_" in state:
            self._prepare()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "anchors_X_")

    def _anchors_y(self) -> Floats:
        """(n_anchors, n_outputs), with one output for a one-dimensional y."""
        return self.anchors_y_.reshape(len(self.anchors_y_), -1)

    def _shaped(self, values: Floats) -> Floats:
        """Drop the output axis where y had none."""
        return values[..., 0] if self.anchors_y_.ndim == 1 else values

    def _as_points(self, columns: TableSchema, matrix: Floats) -> Rows:
        """Encoded rows as the model sees them; a subclass may scale them."""
        return columns.to_rows(matrix)

    # --- the door -----------------------------------------------------------------------------

    def _allow_nan(self) -> bool:
        return bool(self.__sklearn_tags__().input_tags.allow_nan)

    def _open(self, X: Any) -> Queries:
        check_is_fitted(self)
        matrix, columns = validate_table(
            self, X, self._schema, allow_nan=self._allow_nan(), pair_dtype=self._pair_dtype
        )
        return Queries(self._as_points, columns, matrix)

    def _open_both(self, A: Any, B: Any) -> tuple[Queries, Queries]:
        """Both sides of row-by-row pairs; a category new to both is the same on both."""
        columns = self._schema
        options = {"allow_nan": self._allow_nan(), "pair_dtype": self._pair_dtype}
        first, columns = validate_table(self, A, columns, learn_categories=True, **options)
        second, columns = validate_table(self, B, columns, learn_categories=True, **options)
        check_same_rows(first, second)
        a, b = (Queries(self._as_points, columns, side) for side in (first, second))
        return a, b

    # --- select → difference → weight ---------------------------------------------------------

    def _differences(self, first: Rows, second: Rows) -> Floats:
        """F as this twin predicts it, (..., n_outputs): of both orders where `symmetric`."""
        forward = self._raw_differences(first, second)
        if not self.symmetric:
            return forward
        return antisymmetric(forward, self._raw_differences(second, first))

    def _combine(
        self, block: Rows, selection: Selection, shortcut: Any = None
    ) -> tuple[Floats, Floats]:
        """The prediction of a block of queries and its spread, both (n_queries, n_outputs).

        An anchor says two things, y + F(x, anchor) and y − F(anchor, x). Of all that is said, the
        variance is that of the anchors' means, and the mean of what lies between the two orders.
        """
        known = self._across(selection)[1]
        forward, backward = self._orders(block, selection, shortcut)
        if backward is None:
            estimates = estimate(forward, known)
            return combine(estimates, self._weights(block, selection, estimates))
        estimates = estimate(antisymmetric(forward, backward), known)
        weights = self._weights(block, selection, estimates)
        mean, spread = combine(estimates, weights)
        between, _ = combine(asymmetry(forward, backward) ** 2, weights)
        return mean, np.sqrt(spread**2 + between)

    def _is_plain_mean(self, shortcut: Any) -> bool:
        """Whether a prediction is the mean over all anchors, which a shortcut finds at once."""
        return (
            shortcut._adds_in_float64
            and self._anchor_weight is None
            and isinstance(as_weight_strategy(self.weights), UniformWeights)
            and as_anchor_strategy(self.anchors).nearest(len(self.anchors_X_)) is None
        )

    def _across(self, selection: Selection) -> tuple[Rows, Floats]:
        """The anchors of a block of queries as its second axis, and their known values."""
        if selection.indices is None:
            return self._points.as_anchors(), self._anchors_y()
        return self._points.take(selection.indices), self._anchors_y()[selection.indices]

    def _estimates(self, block: Rows, selection: Selection, shortcut: Any = None) -> Floats:
        """(n_queries, n_anchors_used, n_outputs), one estimate from each anchor."""
        known = self._across(selection)[1]
        if shortcut is not None:
            members = shortcut.differences(block, selection.indices, n_jobs=self.n_jobs)
            return estimate(members.mean(axis=0), known)
        return estimate(self._over_anchors(self._differences, block, selection), known)

    def _orders(
        self, block: Rows, selection: Selection, shortcut: Any
    ) -> tuple[Floats, Floats | None]:
        """F(query, anchor) and, where `symmetric`, F(anchor, query), as of `_estimates`."""
        if shortcut is None:
            forward = self._over_anchors(self._raw_differences, block, selection)
            if not self.symmetric:
                return forward, None
            return forward, self._over_anchors(
                lambda query, anchor: self._raw_differences(anchor, query), block, selection
            )
        members = shortcut.differences(block, selection.indices, n_jobs=self.n_jobs)
        return members[0], -members[1] if self.symmetric else None

    def _over_anchors(
        self, differences: Callable[[Rows, Rows], Floats], block: Rows, selection: Selection
    ) -> Floats:
        """(n_queries, n_anchors_used, n_outputs) of a function of query and anchor.

        A query with more anchors than a block holds pairs is done in several blocks.
        """
        across, known = self._across(selection)
        step = max(1, self._pairs_per_block() // len(block))
        parts = [
            differences(block.as_queries(), across.across(slice(start, start + step)))
            for start in range(0, known.shape[-2], step)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)

    def _weights(self, block: Rows, selection: Selection, estimates: Floats) -> Floats | None:
        """(n_queries, n_anchors_used), or None where every anchor counts the same."""
        strategy = as_weight_strategy(self.weights)
        indices = self._indices(selection, len(block))
        weights = None
        if not isinstance(strategy, UniformWeights):
            distances = self._distances(block, selection)
            weights = strategy(distances, self._shaped(estimates), indices)
            weights = check_anchor_weights(weights, indices.shape)
        if self._anchor_weight is None:
            return weights
        of_anchors = self._anchor_weight[indices]
        if weights is not None:
            of_anchors = of_anchors * weights
        return check_anchor_weights(of_anchors, indices.shape)

    def _distances(self, block: Rows, selection: Selection) -> Floats:
        if selection.distances is not None:
            return selection.distances
        return distance_matrix(block.features, self._points.features)

    def _indices(self, selection: Selection, n_queries: int) -> Indices:
        if selection.indices is not None:
            return selection.indices
        every = np.arange(len(self.anchors_X_))
        return np.broadcast_to(every, (n_queries, len(every)))

    # --- blocks -------------------------------------------------------------------------------

    def _shortcut(self, queries: Queries) -> Any:
        """What predicts differences to anchors without building pairs; None where nothing does."""
        return None

    def _shortcut_bytes(self, shortcut: Any, *, only_mean: bool) -> int:
        """What a query costs while a shortcut predicts it."""
        estimates = 0 if only_mean else self._n_used() * self._anchors_y().shape[1]
        # an estimate, its mirror image, a weight, a distance, and what they are made from
        return shortcut.bytes_per_query + 8 * 8 * estimates

    def _n_used(self) -> int:
        """How many anchors serve a query."""
        nearest = as_anchor_strategy(self.anchors).nearest(len(self.anchors_X_))
        return len(self.anchors_X_) if nearest is None else nearest[0]

    def _over_blocks(
        self, one_block: Any, queries: Queries, shortcut: Any = None, *, only_mean: bool = False
    ) -> list[Any]:
        """`one_block(rows, selection)` over blocks of queries, in order, on `n_jobs` threads.

        A shortcut needs no small blocks, and has threads of its own.
        """
        nearest = as_anchor_strategy(self.anchors).nearest(len(self.anchors_X_))
        used = self._n_used()
        per_block = max(1, self._pairs_per_block() // used)
        if shortcut is not None:
            each = self._shortcut_bytes(shortcut, only_mean=only_mean)
            per_block = self._within_limit(each, max(1, _SHORTCUT_BLOCK // each))
        # an index and a distance for each of a query's neighbors, and as much while they are found
        at_once = len(queries) if nearest is None else self._within_limit(32 * used, _SEARCH_ROWS)
        results: list[Any] = []
        n_jobs = self.n_jobs if shortcut is None else 1
        with Parallel(n_jobs=n_jobs, require="sharedmem") as parallel:
            for start in range(0, len(queries), at_once):
                stop = min(start + at_once, len(queries))
                found = Selection(None, None)
                if nearest is not None:
                    found = self._select(queries.take(slice(start, stop)), *nearest)
                results += parallel(
                    delayed(one_block)(slice(low, min(low + per_block, stop)), selection)
                    for low, selection in cut(found, start, stop, per_block)
                )
        return results

    def _select(self, queries: Rows, k: int, metric: str) -> Selection:
        index = self._index
        if index is None or index.metric != metric:
            # `anchors` was set to something else after the fit
            index = NeighborIndex(self._points.features, metric, self.n_jobs)
        return Selection(*index.kneighbors(queries.features, k))

    def _row_blocks(self, n_rows: int) -> Iterator[slice]:
        per_block = self._pairs_per_block()
        return (slice(start, start + per_block) for start in range(0, n_rows, per_block))

    def _pairs_per_block(self) -> int:
        """How many pairs may exist at once, in each thread."""
        # an estimate, its mirror image, their weight and distance live beside the pair itself
        each = self._pair_bytes() + 8 * 4 * self._anchors_y().shape[1]
        return self._within_limit(each, max(1, _BLOCK_BYTES // each))

    def _within_limit(self, bytes_each: int, most: int) -> int:
        """How many things of that size, at most `most`, each thread may hold."""
        limit = parse_memory_limit(self.memory_limit)
        if limit is None:
            return most
        fit = limit // effective_n_jobs(self.n_jobs) // bytes_each
        if fit < 1:
            raise MemoryLimitError(
                f"memory_limit={self.memory_limit!r} is too small for a single pair or query "
                f"({bytes_each} bytes in each of {effective_n_jobs(self.n_jobs)} threads)."
            )
        return min(fit, most)
