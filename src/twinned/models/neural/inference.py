"""Predictions of trained networks, compiled: differences, their mean and variance, and y itself.

No pair is built. The halves of the first layer are computed once per point; only the following
layers are computed for each query and anchor, one member after another, in blocks.

The mean and variance over all anchors are reduced inside the compiled program: no difference of a
single pair leaves it. It iterates over tiles of the grid of queries and anchors; each tile gives a
mean and a sum of squared deviations, and two of those are merged without cancellation (Chan, Golub
and LeVeque). A tile is small enough for the cache of a CPU, or large enough for a GPU.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray
from sklearn.utils import gen_batches

from twinned.models.neural.device import platform
from twinned.models.neural.network import (
    CPU_PAIRS,
    Matrix,
    Network,
    Parameters,
    Shape,
    TrainedNetworks,
    mixture,
    pad_rows,
    pad_to,
    round_up,
)
from twinned.models.resources import MemoryBudget
from twinned.rows.schema import Floats, Indices

GPU_PAIRS = 262_144  # of a tile: a GPU needs enough to do
_TILE_ANCHORS = 256  # enough for fast products, and little padding in the last tile
_MAX_ROWS = 16_384  # queries, and anchors, with their first layer in memory at once


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
    shape: Shape, parameters: Parameters, Q: Array, A: Array, indices: Array | None
) -> Array:
    def of_member(parameters: Parameters) -> Array:
        network = Network(shape, parameters)
        queries = tuple(half[:, None] for half in network.first_layer(Q))
        # where all queries have the same anchors, indexing by None adds the axis of queries
        anchors = tuple(half[indices] for half in network.first_layer(A))
        return network.differences(queries, anchors)

    return jax.lax.map(of_member, parameters)


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
def _rows(shape: Shape, parameters: Parameters, X: Array, Z: Array | None) -> Array:
    def of_member(parameters: Parameters) -> Array:
        network = Network(shape, parameters)
        first = network.first_layer(X)
        if Z is None:
            return network.output(first[0])
        return network.differences(first, network.first_layer(Z))

    return jax.lax.map(of_member, parameters)


# --- mean and variance over all anchors -----------------------------------------------------------


class BlockLimits(NamedTuple):
    """The largest part of the grid of queries and anchors that is in memory at once."""

    pairs: int  # of a tile
    rows: int  # queries, and as many anchors


def block_limits(shape: Shape, budget: MemoryBudget) -> BlockLimits:
    """Return the largest useful blocks within the memory limit.

    Half of the memory is for a tile, a quarter each for the first layer of queries and anchors.
    """
    return BlockLimits(
        pairs=budget.at_most(CPU_PAIRS if platform() == "cpu" else GPU_PAIRS, 2 * shape.pair_bytes),
        rows=budget.at_most(_MAX_ROWS, 4 * shape.first_layer_bytes),
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
    for block in gen_batches(len(anchors), limits.rows):
        mean, squares = _member_moments(
            networks, queries, anchors[block], values[block], limits.pairs
        )
        shares.append(values[block, -1].sum())
        means.append(mean)
        variances.append(squares / shares[-1])
    mean, variance = mixture(np.array(shares), np.stack(means), np.stack(variances))
    mean, variance = mixture(member_weights, mean, variance)
    return mean + center, variance


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
    members = [networks.take(i) for i in range(networks.n_members)]
    results = [np.asarray(_moments(tile, *member, Q, A, V, counts)) for member in members]
    mean, squares = np.stack(results, axis=1)[:, :, : len(queries)].astype(np.float64)
    return mean, squares


@partial(jax.jit, static_argnames=("shape", "tile"))
def _moments(
    tile: tuple[int, int],
    shape: Shape,
    parameters: Parameters,
    Q: Array,
    A: Array,
    values: Array,
    n_tiles: Array,
) -> Array:
    """(2, query, output): one member's mean and sum of squared deviations over the anchors.

    Only the first `n_tiles` of each side are computed, so padding costs no time.
    """
    tile_queries, tile_anchors = tile
    network = Network(shape, parameters)
    query_halves, anchor_halves = network.first_layer(Q), network.first_layer(A)
    output = network.half_output_weight()
    zeros = jnp.zeros((tile_queries, shape.n_outputs))

    def cut(side: Array, i: Array, size: int) -> Array:
        return jax.lax.dynamic_slice_in_dim(side, i * size, size)

    def one_row(i: Array, results: Array) -> Array:
        query = [cut(half, i, tile_queries)[:, None] for half in query_halves]

        def one_tile(j: Array, merged: tuple[Array, ...]) -> tuple[Array, ...]:
            anchor = [cut(half, j, tile_anchors)[None] for half in anchor_halves]
            known_y, weight = jnp.split(cut(values, j, tile_anchors), [shape.n_outputs], axis=1)
            forward = network.last_hidden(query[0] + anchor[1])
            backward = network.last_hidden(anchor[0] + query[1])
            # the output layer is linear, so it is applied to the difference of both orders
            estimate = (forward - backward) @ output + known_y
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
