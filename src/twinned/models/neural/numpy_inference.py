"""Predictions of trained networks for few pairs, by numpy: JAX takes a second to start and compile.

The functions are those of `inference`, with the same arguments.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from twinned.models.neural.network import Matrix, Network, Shape, TrainedNetworks
from twinned.models.resources import MemoryBudget, row_blocks
from twinned.rows.schema import Floats

CPU_PAIRS = 1024  # of a tile, whose layers should stay in the cache
_MAX_ROWS = 16_384  # queries, and anchors, with their first layer in memory at once


def first_layer_bytes(shape: Shape) -> int:
    """Return the memory that the first layer of one point needs while it is computed.

    Angles, sines and cosines and their concatenation, and both halves of the layer.
    """
    return 4 * (shape.n_features * (2 + 5 * shape.n_frequencies) + 2 * shape.hidden_sizes[0])


class BlockLimits(NamedTuple):
    """The largest part of the grid of queries and anchors that is in memory at once."""

    pairs: int  # of a tile
    rows: int  # queries, and as many anchors

    @classmethod
    def of(cls, shape: Shape, budget: MemoryBudget, pairs: int) -> BlockLimits:
        """Return at most that many pairs.

        Half of the memory is for a tile, a quarter each for the first layer of queries and anchors.
        """
        widest = max(shape.hidden_sizes)
        # both orders before and after an activation, and the difference of the two
        pair = 4 * (2 * 2 * widest + widest + shape.n_outputs)
        return cls(
            pairs=budget.at_most(pairs, 2 * pair),
            rows=budget.at_most(_MAX_ROWS, 4 * first_layer_bytes(shape)),
        )


def block_limits(shape: Shape, budget: MemoryBudget) -> BlockLimits:
    """Return the largest useful blocks within the memory limit."""
    return BlockLimits.of(shape, budget, CPU_PAIRS)


def row_outputs(networks: TrainedNetworks, queries: Matrix) -> Floats:
    """(member, row, output): the predictions of plain networks, in units of scaled y."""
    members = [Network(*networks.take(member)) for member in range(networks.n_members)]
    return np.stack([network.output(network.first_layer(queries)[0]) for network in members])


def mean_and_variance(
    networks: TrainedNetworks,
    member_weights: Floats,
    queries: Matrix,
    anchors: Matrix,
    anchor_y: Floats,
    anchor_weights: Floats,
    limits: BlockLimits,
) -> tuple[Floats, Floats]:
    """Mean and variance, (query, output) each, of the estimates of all anchors by all members."""
    share = (anchor_weights / anchor_weights.sum())[:, None]
    blocks = list(row_blocks(len(queries), max(1, limits.pairs // len(anchors))))
    mean = np.empty((networks.n_members, len(queries), anchor_y.shape[1]))
    variance = np.empty_like(mean)
    for member in range(networks.n_members):
        network = Network(*networks.take(member))
        of_queries, of_anchors = network.first_layer(queries), network.first_layer(anchors)
        for rows in blocks:
            block = tuple(half[rows, None] for half in of_queries)
            estimates = network.differences(block, of_anchors) + anchor_y
            mean[member, rows] = (share * estimates).sum(axis=1)
            deviations = estimates - mean[member, rows, None]
            variance[member, rows] = (share * deviations**2).sum(axis=1)
    return mixture(member_weights, mean, variance)


def mixture(weight: Floats, mean: Floats, variance: Floats) -> tuple[Floats, Floats]:
    """Mean and variance of a mixture of parts, which are the leading axis."""
    share = weight / weight.sum()
    total = np.tensordot(share, mean, axes=1)
    return total, np.tensordot(share, variance + (mean - total) ** 2, axes=1)
