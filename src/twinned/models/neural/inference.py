"""What trained members answer, without building pairs.

The halves of the first layer are computed once a point; only what follows runs over the grid of
queries and anchors, one member after another, in blocks that the caller bounds.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array
from numpy.typing import NDArray

from twinned.models.neural.network import Parameters, Shape, differences, finish, halves
from twinned.models.neural.training import Member, Plan, Problem, anchored, over_members


@partial(jax.jit, static_argnames="plan")
def out_of_fold(plan: Plan, problems: Problem, members: Member, parameters: Parameters) -> Array:
    """(problem, member, left-out row, output): each member's rows that it did not learn from.

    They choose members, and are what calibration starts from: more anchors than a check needs.
    """
    n_anchors = 4 * plan.check_anchors

    def one(problem: Problem, member: Member, parameters: Parameters) -> Array:
        return anchored(plan, parameters, problem, member, member.left_out, n_anchors, block=16)

    return over_members(plan, one)(problems, members, parameters)


@partial(jax.jit, static_argnames="shape")
def _grid(shape: Shape, parameters: Parameters, gates: Array, Q: Array, A: Array) -> Array:
    def one(member: tuple[Parameters, Array]) -> Array:
        own, gate = member
        queries = tuple(half[:, None] for half in halves(shape, own, Q, gate))
        anchors = tuple(half[None] for half in halves(shape, own, A, gate))
        return differences(shape, own, queries, anchors)

    return jax.lax.map(one, (parameters, gates))


@partial(jax.jit, static_argnames="shape")
def _some(
    shape: Shape, parameters: Parameters, gates: Array, Q: Array, A: Array, places: Array
) -> Array:
    def one(member: tuple[Parameters, Array]) -> Array:
        own, gate = member
        queries = tuple(half[:, None] for half in halves(shape, own, Q, gate))
        anchors = tuple(half[places] for half in halves(shape, own, A, gate))
        return differences(shape, own, queries, anchors)

    return jax.lax.map(one, (parameters, gates))


@partial(jax.jit, static_argnames="shape")
def _rows(shape: Shape, parameters: Parameters, gates: Array, X: Array, Z: Any) -> Array:
    def one(member: tuple[Parameters, Array]) -> Array:
        own, gate = member
        first = halves(shape, own, X, gate)
        if Z is None:
            return finish(shape, own, first[0])
        return differences(shape, own, first, halves(shape, own, Z, gate))

    return jax.lax.map(one, (parameters, gates))


def grid_differences(
    shape: Shape, parameters: Any, gates: Any, queries: NDArray[Any], anchors: NDArray[Any]
) -> NDArray[Any]:
    """(member, query, anchor, output) predicted differences, antisymmetric, in units of y."""
    Q = pad_rows(queries, round_up(len(queries), 4))
    A = pad_rows(anchors, round_up(len(anchors), 64))
    out = np.asarray(_grid(shape, parameters, gates, Q, A))
    return out[:, : len(queries), : len(anchors)]


def some_differences(
    shape: Shape,
    parameters: Any,
    gates: Any,
    queries: NDArray[Any],
    anchors: NDArray[Any],
    places: NDArray[Any],
) -> NDArray[Any]:
    """(member, query, anchor, output), where each query has anchors of its own.

    `places` (query, anchor) are rows of `anchors`. Rows near each other have neighbors in
    common, so the first layer is computed for each of those once.
    """
    size = round_up(len(queries), 4)
    Q, at = pad_rows(queries, size), np.zeros((size, places.shape[1]), dtype=np.int32)
    at[: len(queries)] = places
    A = pad_rows(anchors, round_up(len(anchors), 64))
    return np.asarray(_some(shape, parameters, gates, Q, A, at))[:, : len(queries)]


def row_differences(
    shape: Shape, parameters: Any, gates: Any, first: NDArray[Any], second: NDArray[Any]
) -> NDArray[Any]:
    """(member, pair, output), row by row."""
    size = round_up(len(first), 64)
    out = _rows(shape, parameters, gates, pad_rows(first, size), pad_rows(second, size))
    return np.asarray(out)[:, : len(first)]


def plain_values(shape: Shape, parameters: Any, gates: Any, queries: NDArray[Any]) -> NDArray[Any]:
    """(member, query, output): what a plain network says of each point."""
    Q = pad_rows(queries, round_up(len(queries), 64))
    return np.asarray(_rows(shape, parameters, gates, Q, None))[:, : len(queries)]


def row_bytes(shape: Shape) -> int:
    """What the first layer of one point costs while it is computed.

    Angles, sines and cosines and their concatenation, and both halves of the layer.
    """
    return 4 * (shape.n_features * (2 + 5 * shape.n_frequencies) + 2 * shape.hidden_sizes[0])


def round_up(n: int, least: int) -> int:
    """The next of 1, 2, 3, 4, 6, 8, 12, …, but at least `least`.

    So there are few shapes to compile, and at most a third is wasted on padding.

    >>> [round_up(n, 4) for n in (1, 5, 9, 13, 100, 700)]
    [4, 6, 12, 16, 128, 768]
    >>> [round_up(n, 1) for n in (1, 2, 3, 5)]
    [1, 2, 3, 6]
    """
    size = least
    while size < n:
        # 2ᵏ → 3·2ᵏ⁻¹ → 2ᵏ⁺¹
        size = max(size + 1, size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3)
    return size


def pad_rows(X: NDArray[Any], size: int) -> NDArray[Any]:
    """(size, …): zeros after the rows of X."""
    out = np.zeros((size, *X.shape[1:]), dtype=np.float32)
    out[: len(X)] = X
    return out
