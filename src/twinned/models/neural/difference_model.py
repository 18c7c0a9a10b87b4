"""Trained ensembles of networks as models: of differences, at fixed anchors, and of y itself.

No pair is built. The halves of the first layer are computed once per point; only the following
layers are computed for each query and anchor, one member after another, in blocks.

The mean and variance over all anchors are reduced inside the compiled program: no difference of a
single pair leaves it. It iterates over tiles of the grid of queries and anchors; each tile gives a
mean and a sum of squared deviations, and two of those are merged without cancellation (Chan, Golub
and LeVeque). A tile is small enough for the cache of a CPU, or large enough for a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from twinned.models.neural.device import on_device, platform
from twinned.models.neural.network import Network, Parameters, Shape, pad_rows, pad_to, round_up
from twinned.models.neural.problem import Scale
from twinned.models.protocol import AnchoredModel
from twinned.models.resources import MemoryBudget, map_row_blocks, row_blocks
from twinned.rows.folds import distinct_rows
from twinned.rows.schema import Floats, Indices, Rows

Matrix = NDArray[np.float32]  # scaled and padded features, (row, feature)
MemberParameters = dict[str, NDArray[np.float32]]  # leading axis member


class TrainedNetworks(NamedTuple):
    """The networks of an ensemble."""

    shape: Shape
    parameters: MemberParameters
    gates: NDArray[np.float32]  # (member,): 1 with periodic embedding, 0 without

    def take(self, members: int | slice | Indices) -> TrainedNetworks:
        """Return some of the members."""
        parameters = {name: value[members] for name, value in self.parameters.items()}
        return TrainedNetworks(self.shape, parameters, self.gates[members])


# Pairs of a tile: on a CPU its layers should stay in the cache, a GPU needs enough to do.
_CPU_PAIRS, _GPU_PAIRS = 1024, 262_144
_TILE_ANCHORS = 256  # enough for fast products, and little padding in the last tile
_MAX_ROWS = 16_384  # queries, and anchors, with their first layer in memory at once


def first_layer_bytes(shape: Shape) -> int:
    """Return the memory that the first layer of one point needs while it is computed.

    Angles, sines and cosines and their concatenation, and both halves of the layer.
    """
    return 4 * (shape.n_features * (2 + 5 * shape.n_frequencies) + 2 * shape.hidden_sizes[0])


def anchor_differences(
    networks: TrainedNetworks, queries: Matrix, anchors: Matrix, indices: Indices | None = None
) -> NDArray[np.float32]:
    """(member, query, anchor, output): differences to anchors, in units of scaled y.

    `indices` (query, anchor) are rows of `anchors`, where each query has anchors of its own; None
    is all anchors. Queries close to each other have neighbors in common, so the first layer is
    computed once for each row of `anchors`.
    """
    n_queries, n_anchors = len(queries), len(anchors)
    Q, A = pad_rows(queries, round_up(n_queries, 4)), pad_rows(anchors, round_up(n_anchors, 64))
    if indices is not None:
        n_anchors = indices.shape[1]
        indices = pad_to(indices, len(Q), n_anchors, dtype=np.int32)
    return np.asarray(_to_anchors(*networks, Q, A, indices))[:, :n_queries, :n_anchors]


@partial(jax.jit, static_argnames="shape")
def _to_anchors(
    shape: Shape, parameters: Parameters, gates: Array, Q: Array, A: Array, indices: Array | None
) -> Array:
    def one(member: tuple[Parameters, Array]) -> Array:
        network = Network(shape, *member)
        queries = tuple(half[:, None] for half in network.first_layer(Q))
        # where all queries have the same anchors, indexing by None adds the axis of queries
        anchors = tuple(half[indices] for half in network.first_layer(A))
        return network.differences(queries, anchors)

    return jax.lax.map(one, (parameters, gates))


def row_outputs(
    networks: TrainedNetworks, first: Matrix, second: Matrix | None = None
) -> NDArray[np.float32]:
    """(member, row, output): differences row by row, in units of scaled y.

    Without second points, the predictions of plain networks.
    """
    size = round_up(len(first), 64)
    padded = None if second is None else pad_rows(second, size)
    return np.asarray(_rows(*networks, pad_rows(first, size), padded))[:, : len(first)]


@partial(jax.jit, static_argnames="shape")
def _rows(shape: Shape, parameters: Parameters, gates: Array, X: Array, Z: Array | None) -> Array:
    def one(member: tuple[Parameters, Array]) -> Array:
        network = Network(shape, *member)
        first = network.first_layer(X)
        if Z is None:
            return network.output(first[0])
        return network.differences(first, network.first_layer(Z))

    return jax.lax.map(one, (parameters, gates))


# --- mean and variance over all anchors -----------------------------------------------------------


class BlockLimits(NamedTuple):
    """The largest part of the grid of queries and anchors that is in memory at once."""

    pairs: int  # of a tile
    rows: int  # queries, and as many anchors


def block_limits(shape: Shape, budget: MemoryBudget) -> BlockLimits:
    """Return the largest useful blocks within the memory limit.

    Half of the memory is for a tile, a quarter each for the first layer of queries and anchors.
    """
    widest = max(shape.hidden_sizes)
    # both orders before and after an activation, and the difference of the two
    pair = 4 * (2 * 2 * widest + widest + shape.n_outputs)
    return BlockLimits(
        pairs=budget.at_most(_CPU_PAIRS if platform() == "cpu" else _GPU_PAIRS, 2 * pair),
        rows=budget.at_most(_MAX_ROWS, 4 * first_layer_bytes(shape)),
    )


def mean_and_variance(
    networks: TrainedNetworks,
    member_weights: Floats,
    queries: Matrix,
    anchors: Matrix,
    anchor_y: Floats,
    anchor_weights: Floats,
    limits: BlockLimits,
) -> tuple[Floats, Floats]:
    """Mean and variance, (query, output) each, of the estimates of all anchors by all members.

    `queries` and `anchors` are scaled and padded, as is `anchor_y` (anchor, output);
    `anchor_weights` (anchor,) need not sum to one. There may be no more queries than
    `limits.rows`.
    """
    # float32 represents deviations from the mean, whatever the mean is
    center = anchor_weights @ anchor_y / anchor_weights.sum()
    values = np.column_stack([anchor_y - center, anchor_weights / anchor_weights.mean()])
    shares, means, variances = [], [], []
    for block in row_blocks(len(anchors), limits.rows):
        part = anchors[block], values[block]
        mean, squares = _member_moments(networks, queries, *part, limits.pairs)
        shares.append(values[block, -1].sum())
        means.append(mean)
        variances.append(squares / shares[-1])
    mean, variance = _mixture(np.array(shares), np.stack(means), np.stack(variances))
    mean, variance = _mixture(member_weights, mean, variance)
    return mean + center, variance


def _mixture(weight: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of a mixture of parts, which are the leading axis."""
    share = weight / weight.sum()
    total = np.tensordot(share, mean, axes=1)
    return total, np.tensordot(share, variance + (mean - total) ** 2, axes=1)


def tile_size(n_queries: int, n_anchors: int, most_pairs: int) -> tuple[int, int]:
    """Return the queries and anchors of a tile; few different numbers, so few programs.

    >>> tile_size(10_000, 1_000, 1024), tile_size(1, 1_000, 1024), tile_size(50, 90, 262_144)
    ((4, 256), (1, 256), (64, 96))
    """
    anchors = min(_TILE_ANCHORS, round_up(n_anchors, 32), most_pairs)
    queries = 1
    while 2 * queries * anchors <= most_pairs and queries < n_queries:
        queries *= 2
    return queries, anchors


def _member_moments(
    networks: TrainedNetworks, queries: Matrix, anchors: Matrix, values: Floats, most_pairs: int
) -> tuple[Floats, Floats]:
    """(member, query, output): mean, and weighted sum of squared deviations, of each member.

    `values` (anchor, output + 1) are the known values and the weights of the anchors.
    """
    tile = tile_size(len(queries), len(anchors), most_pairs)
    n_tiles = [-(-len(side) // size) for side, size in zip((queries, anchors), tile, strict=True)]
    Q, A, V = (
        jnp.asarray(pad_rows(side, tile[axis] * round_up(n_tiles[axis], 1)))
        for side, axis in ((queries, 0), (anchors, 1), (values, 1))
    )
    counts = jnp.asarray(n_tiles, jnp.int32)
    # member by member: the program is then the same for any number of them
    members = [networks.take(i) for i in range(len(networks.gates))]
    results = [np.asarray(_moments(tile, *member, Q, A, V, counts)) for member in members]
    mean, squares = np.stack(results, axis=1)[:, :, : len(queries)].astype(np.float64)
    return mean, squares


@partial(jax.jit, static_argnames=("shape", "tile"))
def _moments(
    tile: tuple[int, int],
    shape: Shape,
    parameters: Parameters,
    gate: Array,
    Q: Array,
    A: Array,
    values: Array,
    n_tiles: Array,
) -> Array:
    """(2, query, output): one member's mean and sum of squared deviations over the anchors.

    Only the first `n_tiles` of each side are computed, so padding costs no time.
    """
    tile_queries, tile_anchors = tile
    network = Network(shape, parameters, gate)
    query_halves, anchor_halves = network.first_layer(Q), network.first_layer(A)
    output = network.half_output_weight()
    zeros = jnp.zeros((tile_queries, shape.n_outputs))

    def cut(side: Array, i: Array, size: int) -> Array:
        return jax.lax.dynamic_slice_in_dim(side, i * size, size)

    def one_row(i: Array, results: Array) -> Array:
        query = [cut(half, i, tile_queries)[:, None] for half in query_halves]

        def one_tile(j: Array, merged: tuple[Array, ...]) -> tuple[Array, ...]:
            anchor = [cut(half, j, tile_anchors)[None] for half in anchor_halves]
            known, weight = jnp.split(cut(values, j, tile_anchors), [shape.n_outputs], axis=1)
            forward = network.last_hidden(query[0] + anchor[1])
            backward = network.last_hidden(anchor[0] + query[1])
            # the output layer is linear, so it is applied to the difference of both orders
            estimate = (forward - backward) @ output + known
            total = jnp.sum(weight)
            mean = jnp.sum(weight * estimate, axis=1) / jnp.maximum(total, 1e-30)
            squares = jnp.sum(weight * (estimate - mean[:, None]) ** 2, axis=1)
            return _merge(merged, (total, mean, squares))

        start = (jnp.float32(0.0), zeros, zeros)
        _, mean, squares = jax.lax.fori_loop(0, n_tiles[1], one_tile, start)
        row = jnp.stack([mean, squares])
        return jax.lax.dynamic_update_slice_in_dim(results, row, i * tile_queries, axis=1)

    empty = jnp.zeros((2, Q.shape[0], shape.n_outputs))
    return jax.lax.fori_loop(0, n_tiles[0], one_row, empty)


def _merge(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
    """(weight, mean, sum of squared deviations) of the union of two sets."""
    total = left[0] + right[0]
    share = right[0] / jnp.maximum(total, 1e-30)
    apart = right[1] - left[1]
    return total, left[1] + share * apart, left[2] + right[2] + left[0] * share * apart**2


# --- models ---------------------------------------------------------------------------------------


# A block of pairs this large stays in the cache of a CPU; larger ones are slower, not faster.
_CPU_BLOCK_BYTES = 8_000_000
_PLAIN_ROWS = 4_096  # queries of a block of plain networks
_REDUCED_ROWS = 65_536  # queries of one call of `moments`, which has blocks of its own


@dataclass(frozen=True, eq=False)
class _NetworkEnsemble:
    """Trained networks and the scale of their data.

    Parameters
    ----------
    shape : Shape
        The sizes of the networks.
    parameters : dict of ndarray
        The parameters of the networks; leading axis member.
    gates : ndarray of shape (n_members,)
        1 for members with periodic embedding, 0 for others.
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
    gates: NDArray[np.float32]
    scale: Scale
    member_weights: Floats
    device: str = "auto"
    n_jobs: int | None = None
    memory_limit: int | None = None
    columns: NDArray[np.intp] | None = None

    @property
    def networks(self) -> TrainedNetworks:
        return TrainedNetworks(self.shape, self.parameters, self.gates)

    def matrix(self, rows: Rows) -> Matrix:
        """(..., feature) float32: the scaled features of rows, padded."""
        features = rows.features if self.columns is None else rows.features[..., self.columns]
        return pad_to(features, *features.shape[:-1], self.shape.n_features)

    def budget(self, n_jobs: int | None) -> MemoryBudget:
        """The memory of each of `n_jobs` threads."""
        return MemoryBudget(self.memory_limit, n_jobs)


class PlainNetworks(_NetworkEnsemble):
    """Trained networks that predict y itself."""

    def predict(self, queries: Rows) -> Floats:
        """(member, query, output): the prediction of each member."""
        with on_device(self.device, self.n_jobs):
            out = row_outputs(self.networks, self.matrix(queries))
        return self.scale.inverse_transform_y(out.astype(np.float64))

    def queries_per_block(self, n_jobs: int | None) -> int:
        """Return the number of queries that are predicted at once."""
        # a layer before and after its activation in float32; three copies of the results
        each = first_layer_bytes(self.shape) + 2 * 4 * max(self.shape.hidden_sizes)
        each += 3 * 8 * len(self.member_weights) * self.shape.n_outputs
        return self.budget(n_jobs).at_most(_PLAIN_ROWS, each)


class NeuralDifferenceModel(_NetworkEnsemble):
    """An ensemble of networks F(a, b), antisymmetric each (a `DifferenceModel`).

    Rows are scaled by `scale`; differences are in units of y.
    """

    symmetric = True

    def with_anchors(self, rows: Rows) -> NeuralDifferenceModel:
        """The same model: nothing of it depends on the anchors."""
        return self

    @property
    def bytes_per_pair(self) -> int:
        # where no point is in two pairs, each has its own first layer; three copies of the results
        of_members = 3 * 8 * len(self.member_weights) * self.shape.n_outputs
        return self._layer_bytes + 2 * first_layer_bytes(self.shape) + of_members

    @property
    def pairs_per_block(self) -> int:
        with on_device(self.device, self.n_jobs):
            if platform() != "cpu":
                return _GPU_PAIRS
        return max(1, _CPU_BLOCK_BYTES // (self._layer_bytes + 8 * 4 * self.shape.n_outputs))

    @property
    def _layer_bytes(self) -> int:
        # both orders of a pair, and a layer before and after its activation, in float32
        return 2 * 2 * 4 * max(self.shape.hidden_sizes)

    def differences(self, first: Rows, second: Rows) -> Floats:
        """(member, ..., output): F(first, second); the leading axes of both sides broadcast."""
        a, b = self.matrix(first), self.matrix(second)
        is_grid = a.ndim == 3 and a.shape[1] == 1 and b.shape[0] == 1
        with on_device(self.device, self.n_jobs):
            if is_grid:
                out = anchor_differences(self.networks, a[:, 0], b[0])
            else:
                a, b = np.broadcast_arrays(a, b)
                sides = (side.reshape(-1, side.shape[-1]) for side in (a, b))
                out = row_outputs(self.networks, *sides)
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
        return first_layer_bytes(self.model.shape)

    def moments(
        self, queries: Rows, weights: Floats | None, *, variance: bool, n_jobs: int | None
    ) -> tuple[Floats, Floats | None]:
        """Weighted mean and variance of the estimates of all anchors by all members."""
        model = self.model
        anchors, anchors_y, merged_into = self._distinct_anchors
        given = np.ones(len(merged_into)) if weights is None else weights
        merged_weights: Floats = np.bincount(merged_into, weights=given).astype(np.float64)
        with on_device(model.device, model.n_jobs):
            limits = block_limits(model.shape, model.budget(n_jobs))

        def one_block(rows: slice) -> tuple[Floats, Floats]:
            grid = (model.matrix(queries.take(rows)), anchors, anchors_y, merged_weights)
            with on_device(model.device, model.n_jobs):
                return mean_and_variance(model.networks, model.member_weights, *grid, limits)

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
            parts = []
            for columns in row_blocks(n_anchors, max(1, most_pairs // len(block))):
                anchors, positions = self._matrix[columns], None
                if indices is not None:
                    used, positions = np.unique(indices[rows, columns], return_inverse=True)
                    anchors, positions = self._matrix[used], positions.reshape(len(block), -1)
                with on_device(model.device, model.n_jobs):
                    parts.append(anchor_differences(model.networks, block, anchors, positions))
            out = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2)
            return out.astype(np.float64) * model.scale.y_spread

        blocks = map_row_blocks(one_block, len(queries), n_rows, n_jobs)
        return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)

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
