"""Mean and spread over all anchors, reduced where the differences are computed.

No pair's value leaves the compiled program. It goes over the grid of queries and anchors tile by
tile; what a tile says of its queries is a mean and a sum of squared deviations, and two of those
make one without cancellation (Chan, Golub and LeVeque). A tile is small enough for a processor's
cache, or large enough for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from numpy.typing import NDArray

from twinned._table import Floats
from twinned.models.neural.inference import pad_rows, round_up, row_bytes
from twinned.models.neural.network import Parameters, Shape, halves, last_hidden, platform

# Pairs of a tile: on a CPU its layers should stay in the cache, a GPU wants enough to do.
_CPU_PAIRS, _GPU_PAIRS = 1024, 262_144
_ANCHORS = 256  # of a tile: enough for fast products, and little to waste on the last one
_ROWS = 16_384  # queries, and anchors, whose first layer is held at once


class Room(NamedTuple):
    """How much of the grid may exist at once."""

    pairs: int  # of a tile
    rows: int  # queries, and as many anchors


def room_for(shape: Shape, within_limit: Callable[[int, int], int]) -> Room:
    """The largest useful room; `within_limit(bytes, most)` tells how many of a size there may be.

    Half of the memory is for a tile, a quarter each for the first layer of queries and anchors.
    """
    widest = max(shape.hidden_sizes)
    # both orders before and after an activation, and the difference of the two
    pair = 4 * (2 * 2 * widest + widest + shape.n_outputs)
    most = _CPU_PAIRS if platform() == "cpu" else _GPU_PAIRS
    return Room(within_limit(2 * pair, most), within_limit(4 * row_bytes(shape), _ROWS))


def mean_and_variance(
    shape: Shape,
    members: tuple[dict[str, NDArray[Any]], NDArray[Any], Floats],
    queries: NDArray[Any],
    anchors: NDArray[Any],
    anchor_y: Floats,
    weight: Floats,
    room: Room,
) -> tuple[Floats, Floats]:
    """(query, output) each, of the estimates of all anchors by all members.

    `members` are parameters, gates and weights. `queries` and `anchors` are scaled and padded, as
    is `anchor_y` (anchor, output); `weight` (anchor,) need not sum to one. There may be no more
    queries than the room has rows.
    """
    *networks, of_members = members
    # float32 sees deviations from the mean, whatever the mean is
    centre = weight @ anchor_y / weight.sum()
    values = np.column_stack([anchor_y - centre, weight / weight.mean()])
    shares, means, variances = [], [], []
    for low in range(0, len(anchors), room.rows):
        some = slice(low, low + room.rows)
        own = _of_members(shape, networks, queries, anchors[some], values[some], room.pairs)
        shares.append(values[some, -1].sum())
        means.append(own[0])
        variances.append(own[1] / shares[-1])
    mean, variance = _mixture(np.array(shares), np.stack(means), np.stack(variances))
    mean, variance = _mixture(of_members, mean, variance)
    return mean + centre, variance


def _mixture(weight: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """The mean and variance of a mixture, whose parts are the leading axis."""
    share = weight / weight.sum()
    total = np.tensordot(share, mean, axes=1)
    return total, np.tensordot(share, variance + (mean - total) ** 2, axes=1)


def tile_of(n_queries: int, n_anchors: int, most_pairs: int) -> tuple[int, int]:
    """How many queries and anchors a tile has; few different numbers, so few programs.

    >>> tile_of(10_000, 1_000, 1024), tile_of(1, 1_000, 1024), tile_of(50, 90, 262_144)
    ((4, 256), (1, 256), (64, 96))
    """
    across = min(_ANCHORS, round_up(n_anchors, 32), most_pairs)
    down = 1
    while 2 * down * across <= most_pairs and down < n_queries:
        down *= 2
    return down, across


def _of_members(
    shape: Shape,
    networks: Any,
    queries: NDArray[Any],
    anchors: NDArray[Any],
    values: Floats,
    most_pairs: int,
) -> tuple[Floats, Floats]:
    """(member, query, output): mean, and weighted sum of squared deviations, of each member."""
    parameters, gates = networks
    tile = tile_of(len(queries), len(anchors), most_pairs)
    n_tiles = [-(-len(side) // size) for side, size in zip((queries, anchors), tile, strict=True)]
    Q, A, V = (
        jnp.asarray(pad_rows(side, tile[axis] * round_up(n_tiles[axis], 1)))
        for side, axis in ((queries, 0), (anchors, 1), (values, 1))
    )
    counts = jnp.asarray(n_tiles, jnp.int32)
    # member by member: the program is then the same for any number of them
    results = []
    for i, gate in enumerate(gates):
        own = {name: value[i] for name, value in parameters.items()}
        results.append(np.asarray(_moments(shape, tile, own, gate, Q, A, V, counts)))
    mean, square = np.stack(results, axis=1)[:, :, : len(queries)].astype(np.float64)
    return mean, square


@partial(jax.jit, static_argnames=("shape", "tile"))
def _moments(
    shape: Shape,
    tile: tuple[int, int],
    parameters: Parameters,
    gate: Array,
    Q: Array,
    A: Array,
    values: Array,
    n_tiles: Array,
) -> Array:
    """(2, query, output): one member's mean and sum of squared deviations over the anchors.

    Only the first `n_tiles` of each side are visited, so padding costs no time.
    """
    down, across = tile
    first = halves(shape, parameters, Q, gate)
    second = halves(shape, parameters, A, gate)
    output = 0.5 * parameters[f"weight_{len(shape.hidden_sizes)}"]
    nothing = jnp.zeros((down, shape.n_outputs))

    def cut(side: Array, i: Array, size: int) -> Array:
        return jax.lax.dynamic_slice_in_dim(side, i * size, size)

    def one_row(i: Array, results: Array) -> Array:
        query = [cut(half, i, down)[:, None] for half in first]

        def one_tile(j: Array, so_far: tuple[Array, ...]) -> tuple[Array, ...]:
            anchor = [cut(half, j, across)[None] for half in second]
            known, weight = jnp.split(cut(values, j, across), [shape.n_outputs], axis=1)
            forward = last_hidden(shape, parameters, query[0] + anchor[1])
            backward = last_hidden(shape, parameters, anchor[0] + query[1])
            # the output layer is linear, so it is applied to the difference of both orders
            estimate = (forward - backward) @ output + known
            total = jnp.sum(weight)
            mean = jnp.sum(weight * estimate, axis=1) / jnp.maximum(total, 1e-30)
            square = jnp.sum(weight * (estimate - mean[:, None]) ** 2, axis=1)
            return _joined(so_far, (total, mean, square))

        start = (jnp.float32(0.0), nothing, nothing)
        _, mean, square = jax.lax.fori_loop(0, n_tiles[1], one_tile, start)
        row = jnp.stack([mean, square])
        return jax.lax.dynamic_update_slice_in_dim(results, row, i * down, axis=1)

    empty = jnp.zeros((2, Q.shape[0], shape.n_outputs))
    return jax.lax.fori_loop(0, n_tiles[0], one_row, empty)


def _joined(left: tuple[Array, ...], right: tuple[Array, ...]) -> tuple[Array, ...]:
    """(weight, mean, sum of squared deviations) of two sets as one."""
    total = left[0] + right[0]
    share = right[0] / jnp.maximum(total, 1e-30)
    apart = right[1] - left[1]
    return total, left[1] + share * apart, left[2] + right[2] + left[0] * share * apart**2
