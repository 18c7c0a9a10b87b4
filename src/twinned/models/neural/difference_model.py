"""Trained ensembles of networks as models: of differences, at fixed anchors, and of y itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from twinned.models.neural.inputs import Scale
from twinned.models.neural.network import (
    CPU_PAIRS,
    Matrix,
    MemberParameters,
    Shape,
    TrainedNetworks,
    pad_to,
)
from twinned.models.protocol import AnchoredModel
from twinned.models.resources import MemoryBudget, map_row_blocks
from twinned.rows.folds import distinct_rows
from twinned.rows.schema import Floats, Indices, Rows

# A block of pairs this large stays in the cache of a CPU; larger ones are slower, not faster.
_CPU_BLOCK_BYTES = 8_000_000
_PLAIN_ROWS = 4_096  # queries of a block of plain networks
_REDUCED_ROWS = 65_536  # queries of one call of `moments`, which has blocks of its own
# Pairs of all members that numpy predicts in a tenth of the time that JAX takes to start.
_FEW_PAIRS = 65_536


@dataclass(frozen=True, eq=False)
class _NetworkEnsemble:
    """Trained networks and the scale of their data.

    Parameters
    ----------
    shape : Shape
        The sizes of the networks.
    parameters : dict of ndarray
        The parameters of the networks; leading axis member.
    scale : Scale
        The scale of X and y.
    member_weights : ndarray of shape (n_members,)
        The weights of the members; they sum to one.
    device : {"auto", "cpu", "gpu"}
        Where to compute.
    n_jobs : int or None
        The number of threads on a CPU.
    memory_limit : int or None
        The bytes that blocks may use, in all threads together.
    columns : ndarray or None
        The encoded features that are inputs of the networks; None for all of them.
    """

    shape: Shape
    parameters: MemberParameters
    scale: Scale
    member_weights: Floats
    device: str = "auto"
    n_jobs: int | None = None
    memory_limit: int | None = None
    columns: NDArray[np.intp] | None = None

    @property
    def networks(self) -> TrainedNetworks:
        return TrainedNetworks(self.shape, self.parameters)

    def matrix(self, rows: Rows) -> Matrix:
        """(..., feature) float32: the scaled features of rows, padded."""
        features = rows.features if self.columns is None else rows.features[..., self.columns]
        return pad_to(features, *features.shape[:-1], self.shape.n_features)

    def budget(self, n_jobs: int | None) -> MemoryBudget:
        """The memory of each of `n_jobs` threads."""
        return MemoryBudget(self.memory_limit, n_jobs)

    def has_few(self, n_pairs: int) -> bool:
        """Whether numpy predicts so many pairs of each member, as JAX takes a second to start."""
        return n_pairs * len(self.member_weights) <= _FEW_PAIRS and self.device != "gpu"

    @contextmanager
    def compiled(self) -> Iterator[ModuleType]:
        """Context that computes on the device, with the compiled predictions."""
        from twinned.models.neural import inference
        from twinned.models.neural.device import on_device

        with on_device(self.device, self.n_jobs):
            yield inference


class PlainNetworks(_NetworkEnsemble):
    """Trained networks that predict y itself."""

    def predict(self, queries: Rows) -> Floats:
        """(member, query, output): the prediction of each member."""
        X = self.matrix(queries)
        if self.has_few(len(X)):
            out = self.networks.outputs(X)
        else:
            with self.compiled() as inference:
                out = inference.row_outputs(self.networks, X)
        return self.scale.inverse_transform_y(out.astype(np.float64))

    def queries_per_block(self, n_jobs: int | None) -> int:
        """Return the number of queries that are predicted at once."""
        # a layer before and after its activation in float32; three copies of the results
        bytes_per_row = self.shape.first_layer_bytes + 2 * 4 * max(self.shape.hidden_sizes)
        bytes_per_row += 3 * 8 * len(self.member_weights) * self.shape.n_outputs
        return self.budget(n_jobs).at_most(_PLAIN_ROWS, bytes_per_row)


class NeuralDifferenceModel(_NetworkEnsemble):
    """An ensemble of networks F(a, b), antisymmetric each (a `DifferenceModel`).

    Rows are scaled by `scale`; differences are in units of y.
    """

    symmetric = True

    def with_anchors(self, rows: Rows, n_before: int) -> NeuralDifferenceModel:
        """The same model: nothing of it depends on the anchors."""
        return self

    @property
    def bytes_per_pair(self) -> int:
        # where no point is in two pairs, each has its own first layer; three copies of the results
        of_members = 3 * 8 * len(self.member_weights) * self.shape.n_outputs
        return self._layer_bytes + 2 * self.shape.first_layer_bytes + of_members

    @property
    def pairs_per_block(self) -> int:
        with self.compiled() as inference:
            if inference.platform() != "cpu":
                return inference.GPU_PAIRS
        return max(1, _CPU_BLOCK_BYTES // (self._layer_bytes + 8 * 4 * self.shape.n_outputs))

    @property
    def _layer_bytes(self) -> int:
        # both orders of a pair, and a layer before and after its activation, in float32
        return 2 * 2 * 4 * max(self.shape.hidden_sizes)

    def differences(self, first: Rows, second: Rows) -> Floats:
        """(member, ..., output): F(first, second); the leading axes of both sides broadcast."""
        a, b = self.matrix(first), self.matrix(second)
        is_grid = a.ndim == 3 and a.shape[1] == 1 and b.shape[0] == 1
        with self.compiled() as inference:
            if is_grid:
                out = inference.anchor_differences(self.networks, a[:, 0], b[0])
            else:
                a, b = np.broadcast_arrays(a, b)
                sides = (side.reshape(-1, side.shape[-1]) for side in (a, b))
                out = inference.row_outputs(self.networks, *sides)
                out = out.reshape(len(out), *a.shape[:-1], -1)
        return out.astype(np.float64) * self.scale.y_spread

    def at_anchors(self, anchors: Rows, anchors_y: Floats, n_pairs: int) -> AnchoredNetworks:
        """Return the fast path for these anchors; it pays for any number of pairs."""
        return AnchoredNetworks(self, anchors, anchors_y)


@dataclass(frozen=True, eq=False)
class AnchoredNetworks(AnchoredModel):
    """A `NeuralDifferenceModel` bound to fixed anchors (an `AnchoredModel`).

    Parameters
    ----------
    model : NeuralDifferenceModel
        The networks.
    anchors : Rows
        The anchors, scaled.
    anchors_y : ndarray of shape (n_anchors, n_outputs)
        Their known values, in units of y.
    """

    model: NeuralDifferenceModel
    anchors: Rows
    anchors_y: Floats
    queries_per_block = _REDUCED_ROWS

    @property
    def bytes_per_query(self) -> int:
        return self.model.shape.first_layer_bytes

    def moments(
        self, queries: Rows, weights: Floats | None, *, variance: bool, n_jobs: int | None
    ) -> tuple[Floats, Floats | None]:
        """Weighted mean and variance of the estimates of all anchors by all members."""
        model = self.model
        anchors, anchors_y, merged_into = self._distinct_anchors
        anchor_weights = np.ones(len(merged_into)) if weights is None else weights
        merged_weights: Floats = np.bincount(merged_into, weights=anchor_weights).astype(np.float64)
        networks, of_members = model.networks, model.member_weights
        known = anchors, anchors_y, merged_weights
        if model.has_few(len(queries) * len(anchors)):
            most_pairs = model.budget(n_jobs).at_most(CPU_PAIRS, 2 * model.shape.pair_bytes)
            results = [networks.moments(of_members, model.matrix(queries), *known, most_pairs)]
        else:
            with model.compiled() as inference:
                limits = inference.block_limits(model.shape, model.budget(n_jobs))

            def one_block(rows: slice) -> tuple[Floats, Floats]:
                X = model.matrix(queries.take(rows))
                with model.compiled() as inference:
                    return inference.mean_and_variance(networks, of_members, X, *known, limits)

            results = map_row_blocks(one_block, len(queries), limits.rows, n_jobs)
        means, variances = zip(*results, strict=True)
        mean = model.scale.inverse_transform_y(np.concatenate(means))
        if not variance:
            return mean, None
        return mean, np.concatenate(variances) * model.scale.y_spread**2

    def differences(self, queries: Rows, indices: Indices | None, *, n_jobs: int | None) -> Floats:
        """(member, query, anchor, output): predicted y(query) − y(anchor)."""
        model = self.model
        n_anchors = len(self.anchors) if indices is None else indices.shape[1]
        most_pairs = model.budget(n_jobs).at_most(model.pairs_per_block, model.bytes_per_pair)
        n_rows = max(1, most_pairs // n_anchors)

        def one_block(rows: slice) -> Floats:
            block = model.matrix(queries.take(rows))
            anchor_blocks = []
            for columns in gen_batches(n_anchors, max(1, most_pairs // len(block))):
                anchors, positions = self._matrix[columns], None
                if indices is not None:
                    used, positions = np.unique(indices[rows, columns], return_inverse=True)
                    anchors, positions = self._matrix[used], positions.reshape(len(block), -1)
                with model.compiled() as inference:
                    anchor_blocks.append(
                        inference.anchor_differences(model.networks, block, anchors, positions)
                    )
            out = np.concatenate(anchor_blocks, axis=2)
            return out.astype(np.float64) * model.scale.y_spread

        return np.concatenate(map_row_blocks(one_block, len(queries), n_rows, n_jobs), axis=1)

    @cached_property
    def _matrix(self) -> Matrix:
        return self.model.matrix(self.anchors)

    @cached_property
    def _distinct_anchors(self) -> tuple[Matrix, Floats, Indices]:
        """Features and scaled y of distinct anchors, and the one that each anchor became.

        They are in a fixed order, and a repeated anchor is an anchor of that weight: in single
        precision the order of a sum changes its last digits.
        """
        scaled_y = self.model.scale.transform_y(self.anchors_y)
        first, merged_into = distinct_rows(np.column_stack([scaled_y, self._matrix]))
        return self._matrix[first], scaled_y[first], merged_into
