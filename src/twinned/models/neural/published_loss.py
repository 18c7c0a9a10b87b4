"""Losses of the paper's own training: over pairs, triples, loops and held-out rows.

Axes: `triple`, `corner` (the three points of a triple), `pair`, `output`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from twinned.models.neural.counter_rng import bits, fold_in, integers
from twinned.models.neural.network import Parameters, Shape, first_layer, network_output
from twinned.models.neural.training import MemberArrays, ProblemArrays

# Half of the author's batch are unlabelled triples, which count only with a loop weight. The factor
# matters where losses are near `published.LEAST_FALL`: smaller ones stop the rate, and learn less.
LABELLED_SHARE = 0.5


class PublishedConfig(NamedTuple):
    """What determines the compiled program of the paper's own training."""

    shape: Shape
    batch_size: int
    triples: bool
    partner_table: bool
    loops: bool
    optimizer: str


def row_loss(
    config: PublishedConfig,
    parameters: Parameters,
    problem: ProblemArrays,
    member: MemberArrays,
    order: Array,
    step: Array,
) -> Array:
    """Loss of a plain network over the rows of one step of an epoch; `order` is (row,)."""
    rows = order[(step * config.batch_size + jnp.arange(config.batch_size)) % member.n_rows]
    square = _row_squares(config, parameters, problem, member, rows)
    return jnp.mean(square * problem.weight[rows])


def difference_loss(
    config: PublishedConfig,
    parameters: Parameters,
    problem: ProblemArrays,
    member: MemberArrays,
    key: Array,
) -> Array:
    """Loss of a twin over random pairs or triples, and over loops where these count."""
    size = config.batch_size
    if not config.triples:
        a = member.rows[integers(fold_in(key, 1), member.n_rows, size)]
        b = _draw_partners(config, problem, member, a, fold_in(key, 2))
        predicted = _raw_differences(config, parameters, problem, member, a, b)
        return _pair_loss(problem, member, predicted, a, b)
    half = max(1, size // 2)
    corners = _draw_triples(config, problem, member, key, member.rows, member.n_rows, half)
    loss = LABELLED_SHARE * triple_loss(config, parameters, problem, member, corners)
    if config.loops:
        corners = _draw_triples(
            config, problem, member, fold_in(key, 9), member.loop_rows, member.n_loop_rows, half
        )
        sums = sum(
            _raw_differences(config, parameters, problem, member, corners[i], corners[(i + 1) % 3])
            for i in range(3)
        )
        loss = loss + LABELLED_SHARE * member.loop_weight * jnp.mean(sums**2)
    return loss


def triple_loss(
    config: PublishedConfig,
    parameters: Parameters,
    problem: ProblemArrays,
    member: MemberArrays,
    corners: list[Array],
) -> Array:
    """Mean loss of the three differences of each triple, in one pass through the network."""
    a = jnp.concatenate(corners)
    b = jnp.concatenate([corners[1], corners[2], corners[0]])
    predicted = _raw_differences(config, parameters, problem, member, a, b)
    return _pair_loss(problem, member, predicted, a, b)


def validation_loss(
    config: PublishedConfig, parameters: Parameters, problem: ProblemArrays, member: MemberArrays
) -> Array:
    """Loss of all held-out rows; of a twin, over the same triples of these rows every time."""
    rows = member.held_out
    inside = (jnp.arange(rows.shape[0]) < member.n_held_out).astype(jnp.float32)
    total = jnp.maximum(jnp.sum(inside), 1.0)
    if not config.shape.twin:
        square = _row_squares(config, parameters, problem, member, rows)
        return jnp.sum(inside * square) / total
    key = fold_in(member.key, 3)
    count = jnp.maximum(member.n_held_out, 1)
    others = [rows[integers(fold_in(key, i), count, rows.shape[0])] for i in range(2)]
    a = jnp.concatenate([rows, *others])
    b = jnp.concatenate([*others, rows])
    predicted = _raw_differences(config, parameters, problem, member, a, b)
    square = jnp.mean((predicted - (problem.y[a] - problem.y[b])) ** 2, axis=-1)
    return jnp.sum(jnp.tile(inside, 3) * square) / (3.0 * total)


def _draw_triples(
    config: PublishedConfig,
    problem: ProblemArrays,
    member: MemberArrays,
    key: Array,
    rows: Array,
    n_rows: Array,
    size: int,
) -> list[Array]:
    """Three times (triple,) rows: random ones, or a random one and two of its partners."""
    drawn = [rows[integers(fold_in(key, 1 + i), n_rows, size)] for i in range(3)]
    if config.partner_table:
        labelled = member.is_training[drawn[0]] > 0  # unlabelled rows have no partners
        for i in (1, 2):
            partners = _draw_partners(config, problem, member, drawn[0], fold_in(key, 4 + i))
            drawn[i] = jnp.where(labelled, partners, drawn[i])
    return drawn


def _draw_partners(
    config: PublishedConfig, problem: ProblemArrays, member: MemberArrays, rows: Array, key: Array
) -> Array:
    """A random partner of each row: from the partner table, or any training row."""
    if not config.partner_table:
        return member.rows[integers(key, member.n_rows, rows.shape[0])]
    columns = (bits(key, 1, rows.shape[0])[0] % problem.n_partners).astype(jnp.int32)
    return problem.partners[rows, columns]


def _raw_differences(
    config: PublishedConfig,
    parameters: Parameters,
    problem: ProblemArrays,
    member: MemberArrays,
    a: Array,
    b: Array,
) -> Array:
    """(pair, output): F(a, b) in this order only, as the author trains it."""
    first = first_layer(config.shape, parameters, problem.X[a], member.gate)[0]
    second = first_layer(config.shape, parameters, problem.X[b], member.gate)[1]
    return network_output(config.shape, parameters, first + second)


def _pair_loss(
    problem: ProblemArrays, member: MemberArrays, predicted: Array, a: Array, b: Array
) -> Array:
    square = jnp.mean((predicted - (problem.y[a] - problem.y[b])) ** 2, axis=-1)
    weight = problem.weight[a] * problem.weight[b] * member.is_training[a] * member.is_training[b]
    return jnp.mean(square * weight)


def _row_squares(
    config: PublishedConfig,
    parameters: Parameters,
    problem: ProblemArrays,
    member: MemberArrays,
    rows: Array,
) -> Array:
    """(row,): squared errors of a plain network."""
    first = first_layer(config.shape, parameters, problem.X[rows], member.gate)[0]
    predicted = network_output(config.shape, parameters, first)
    return jnp.mean((predicted - problem.y[rows]) ** 2, axis=-1)
