"""Predictions of trained members, without building pairs.

The halves of the first layer are computed once per point; only the following layers are computed
for each query and anchor, one member after another, in blocks that the caller bounds.
"""

from __future__ import annotations

from functools import partial

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from twinned.models.neural.network import Network, Parameters, Shape
from twinned.models.neural.padding import pad_rows, pad_to, round_up
from twinned.models.neural.training import (
    MemberArrays,
    MemberTask,
    ProblemArrays,
    TrainingConfig,
    over_members,
)
from twinned.rows.neighbors import Indices

Matrix = NDArray[np.float32]  # scaled and padded features, (row, feature)
MemberParameters = dict[str, NDArray[np.float32]]  # leading axis member


@partial(jax.jit, static_argnames="config")
def predict_held_out(
    config: TrainingConfig, problems: ProblemArrays, members: MemberArrays, parameters: Parameters
) -> Array:
    """(problem, member, held-out row, output): each member's prediction of its held-out rows.

    These select members and calibrate intervals, so they use more anchors than a check does.
    """
    n_anchors = 4 * config.check_anchors

    def one(task: MemberTask, parameters: Parameters) -> Array:
        return task.predict(parameters, task.member.held_out, n_anchors, block=16)

    return over_members(config, one)(problems, members, parameters)


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


@partial(jax.jit, static_argnames="shape")
def _rows(shape: Shape, parameters: Parameters, gates: Array, X: Array, Z: Array | None) -> Array:
    def one(member: tuple[Parameters, Array]) -> Array:
        network = Network(shape, *member)
        first = network.first_layer(X)
        if Z is None:
            return network.output(first[0])
        return network.differences(first, network.first_layer(Z))

    return jax.lax.map(one, (parameters, gates))


def grid_differences(
    shape: Shape, parameters: MemberParameters, gates: Matrix, queries: Matrix, anchors: Matrix
) -> NDArray[np.float32]:
    """(member, query, anchor, output): differences to all anchors, in units of scaled y."""
    Q = pad_rows(queries, round_up(len(queries), 4))
    A = pad_rows(anchors, round_up(len(anchors), 64))
    out = np.asarray(_to_anchors(shape, parameters, gates, Q, A, None))
    return out[:, : len(queries), : len(anchors)]


def indexed_differences(
    shape: Shape,
    parameters: MemberParameters,
    gates: Matrix,
    queries: Matrix,
    anchors: Matrix,
    indices: Indices,
) -> NDArray[np.float32]:
    """(member, query, anchor, output), where each query has anchors of its own.

    `indices` (query, anchor) are rows of `anchors`. Queries close to each other have neighbors in
    common, so the first layer is computed once for each row of `anchors`.
    """
    size = round_up(len(queries), 4)
    Q = pad_rows(queries, size)
    A = pad_rows(anchors, round_up(len(anchors), 64))
    padded = pad_to(indices, size, indices.shape[1], dtype=np.int32)
    return np.asarray(_to_anchors(shape, parameters, gates, Q, A, padded))[:, : len(queries)]


def row_differences(
    shape: Shape, parameters: MemberParameters, gates: Matrix, first: Matrix, second: Matrix
) -> NDArray[np.float32]:
    """(member, pair, output): differences row by row, in units of scaled y."""
    size = round_up(len(first), 64)
    out = _rows(shape, parameters, gates, pad_rows(first, size), pad_rows(second, size))
    return np.asarray(out)[:, : len(first)]


def plain_outputs(
    shape: Shape, parameters: MemberParameters, gates: Matrix, queries: Matrix
) -> NDArray[np.float32]:
    """(member, query, output): predictions of plain networks, in units of scaled y."""
    Q = pad_rows(queries, round_up(len(queries), 64))
    return np.asarray(_rows(shape, parameters, gates, Q, None))[:, : len(queries)]


def first_layer_bytes(shape: Shape) -> int:
    """Return the memory that the first layer of one point needs while it is computed.

    Angles, sines and cosines and their concatenation, and both halves of the layer.
    """
    return 4 * (shape.n_features * (2 + 5 * shape.n_frequencies) + 2 * shape.hidden_sizes[0])
