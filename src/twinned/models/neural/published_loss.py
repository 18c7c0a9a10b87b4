"""Losses of the paper's own training: over pairs, triples, loops and held-out rows.

Axes: `triple`, `corner` (the three points of a triple), `pair`, `output`.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from twinned.models.neural.counter_rng import bits, fold_in, integers
from twinned.models.neural.network import Network, Parameters, Shape
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


class PublishedLoss(NamedTuple):
    """The losses of one member on one problem."""

    config: PublishedConfig
    problem: ProblemArrays
    member: MemberArrays

    def of_rows(self, parameters: Parameters, order: Array, step: Array) -> Array:
        """Loss of a plain network over the rows of one step of an epoch; `order` is (row,)."""
        size = self.config.batch_size
        rows = order[(step * size + jnp.arange(size)) % self.member.n_rows]
        return jnp.mean(self._row_squares(parameters, rows) * self.problem.weight[rows])

    def of_differences(self, parameters: Parameters, key: Array) -> Array:
        """Loss of a twin over random pairs or triples, and over loops where these count."""
        member, size = self.member, self.config.batch_size
        if not self.config.triples:
            a = member.rows[integers(fold_in(key, 1), member.n_rows, size)]
            return self._of_pairs(parameters, a, self._draw_partners(a, fold_in(key, 2)))
        half = max(1, size // 2)
        corners = self._draw_triples(key, member.rows, member.n_rows, half)
        loss = LABELLED_SHARE * self.of_triples(parameters, corners)
        if self.config.loops:
            key = fold_in(key, 9)
            corners = self._draw_triples(key, member.loop_rows, member.n_loop_rows, half)
            sums = sum(
                self._raw_differences(parameters, corners[i], corners[(i + 1) % 3])
                for i in range(3)
            )
            loss = loss + LABELLED_SHARE * member.loop_weight * jnp.mean(sums**2)
        return loss

    def of_triples(self, parameters: Parameters, corners: list[Array]) -> Array:
        """Mean loss of the three differences of each triple, in one pass through the network."""
        a = jnp.concatenate(corners)
        b = jnp.concatenate([corners[1], corners[2], corners[0]])
        return self._of_pairs(parameters, a, b)

    def of_held_out_rows(self, parameters: Parameters) -> Array:
        """Loss of all held-out rows; of a twin, over the same triples of these rows every time."""
        rows = self.member.held_out
        inside = (jnp.arange(rows.shape[0]) < self.member.n_held_out).astype(jnp.float32)
        total = jnp.maximum(jnp.sum(inside), 1.0)
        if not self.config.shape.twin:
            return jnp.sum(inside * self._row_squares(parameters, rows)) / total
        key = fold_in(self.member.key, 3)
        count = jnp.maximum(self.member.n_held_out, 1)
        others = [rows[integers(fold_in(key, i), count, rows.shape[0])] for i in range(2)]
        a = jnp.concatenate([rows, *others])
        b = jnp.concatenate([*others, rows])
        square = self._pair_squares(parameters, a, b)
        return jnp.sum(jnp.tile(inside, 3) * square) / (3.0 * total)

    def _draw_triples(self, key: Array, rows: Array, n_rows: Array, size: int) -> list[Array]:
        """Three times (triple,) rows: random ones, or a random one and two of its partners."""
        drawn = [rows[integers(fold_in(key, 1 + i), n_rows, size)] for i in range(3)]
        if self.config.partner_table:
            labelled = self.member.is_training[drawn[0]] > 0  # unlabelled rows have no partners
            for i in (1, 2):
                partners = self._draw_partners(drawn[0], fold_in(key, 4 + i))
                drawn[i] = jnp.where(labelled, partners, drawn[i])
        return drawn

    def _draw_partners(self, rows: Array, key: Array) -> Array:
        """A random partner of each row: from the partner table, or any training row."""
        if not self.config.partner_table:
            return self.member.rows[integers(key, self.member.n_rows, rows.shape[0])]
        random_bits = bits(key, 1, rows.shape[0])[0]
        return self.problem.partners[
            rows, (random_bits % self.problem.n_partners).astype(jnp.int32)
        ]

    def _of_pairs(self, parameters: Parameters, a: Array, b: Array) -> Array:
        square, training = self._pair_squares(parameters, a, b), self.member.is_training
        weight = self.problem.weight[a] * self.problem.weight[b] * training[a] * training[b]
        return jnp.mean(square * weight)

    def _pair_squares(self, parameters: Parameters, a: Array, b: Array) -> Array:
        """(pair,): squared errors of the raw differences."""
        error = self._raw_differences(parameters, a, b) - (self.problem.y[a] - self.problem.y[b])
        return jnp.mean(error**2, axis=-1)

    def _raw_differences(self, parameters: Parameters, a: Array, b: Array) -> Array:
        """(pair, output): F(a, b) in this order only, as the author trains it."""
        network = self._network(parameters)
        first = network.first_layer(self.problem.X[a])[0]
        second = network.first_layer(self.problem.X[b])[1]
        return network.output(first + second)

    def _row_squares(self, parameters: Parameters, rows: Array) -> Array:
        """(row,): squared errors of a plain network."""
        network = self._network(parameters)
        predicted = network.output(network.first_layer(self.problem.X[rows])[0])
        return jnp.mean((predicted - self.problem.y[rows]) ** 2, axis=-1)

    def _network(self, parameters: Parameters) -> Network:
        return Network(self.config.shape, parameters, self.member.gate)
