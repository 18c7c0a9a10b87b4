"""The compiled program of the paper's own training: losses, epochs and stopping rules.

Axes: `triple`, `corner` (the three points of a triple), `pair`, `output`.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from twinned.models.neural.fitting import show_progress
from twinned.models.neural.network import Network, Parameters, Shape
from twinned.models.neural.trainable_network import (
    TrainableNetwork,
    fold_in,
    initial_parameters,
    integers,
    random_bits,
)

EPOCHS_AT_ONCE = 8  # between two checks whether all members have stopped
LEAST_FALL = 1e-4  # Keras: a smaller fall of the training loss counts as none, whatever its size
# Half of the author's batch are unlabelled triples, which count only with a loop weight. The factor
# matters where losses are near `LEAST_FALL`: smaller ones stop the rate, and learn less.
LABELLED_SHARE = 0.5
_OPTIMIZER = optax.scale_by_adadelta(rho=0.95, eps=1e-7)


class PublishedSchedule(NamedTuple):
    """The epochs of one variant, for twins or for plain networks."""

    triples: bool
    max_epochs: int
    plateau: int  # epochs without a falling training loss before the rate halves
    patience: int  # epochs without a falling validation loss before training stops


class PublishedConfig(NamedTuple):
    """What determines the compiled program."""

    shape: Shape
    batch_size: int
    triples: bool
    partner_table: bool
    loops: bool = False  # the loss includes the inconsistency of loops


class NetworkData(NamedTuple):
    """A padded problem; a batch of problems has the problem as the leading axis of every field."""

    X: Any  # (row, feature), scaled
    y: Any  # (row, output)
    weight: Any  # (row,)
    rows: Any  # (row,) int32; the first n_rows are training rows
    n_rows: Any
    held_out: Any  # (row,) int32; the first n_held_out are not padding
    n_held_out: Any
    partners: Any  # (row, partner) int32; (1, 1) without a partner table
    n_partners: Any  # () columns of `partners` that are not padding, of training rows
    loop_weight: Any
    unlabelled: Any  # (row,) int32; the first n_unlabelled are not padding; (1,) without loops
    n_unlabelled: Any
    n_held_out_partners: Any  # () as many of held-out rows; 0: validation pairs are random ones
    n_features: Any  # () without padding
    learning_rate: Any


class EpochState(NamedTuple):
    """A member after an epoch."""

    parameters: Parameters
    momentum: optax.OptState
    rate: Array
    least_loss: Array  # of training, for the plateau
    plateau_epochs: Array
    least_error: Array  # of validation, for early stopping
    epochs_without_fall: Array
    stopped: Array
    epochs: Array

    def after_epoch(
        self,
        parameters: Parameters,
        momentum: optax.OptState,
        loss: Array,
        error: Array,
        epoch: Array,
        limits: Array,
        least_falls: Any = (LEAST_FALL, 0.0),
    ) -> EpochState:
        """The state after an epoch, by its training loss and validation error.

        `limits` are those of `PublishedSchedule`; `least_falls` are the smallest falls of the two
        that count as such.
        """
        max_epochs, plateau, patience = limits
        fell = loss < self.least_loss - least_falls[0]
        plateau_epochs = jnp.where(fell, 0, self.plateau_epochs + 1)
        halve = plateau_epochs >= plateau
        better = error < self.least_error - least_falls[1]
        epochs_without_fall = jnp.where(better, 0, self.epochs_without_fall + 1)
        return EpochState(
            parameters=parameters,
            momentum=momentum,
            rate=jnp.where(halve, 0.5 * self.rate, self.rate),
            least_loss=jnp.where(fell, loss, self.least_loss),
            plateau_epochs=jnp.where(halve, 0, plateau_epochs),
            least_error=jnp.where(better, error, self.least_error),
            epochs_without_fall=epochs_without_fall,
            stopped=(epochs_without_fall >= patience) | (epoch + 1 >= max_epochs),
            epochs=self.epochs + 1,
        )


class PublishedLoss(NamedTuple):
    """The losses of one member on one problem; `key` is that of its random numbers."""

    config: PublishedConfig
    data: NetworkData
    key: Any

    def of_rows(self, parameters: Parameters, order: Array, step: Array) -> Array:
        """Loss of a plain network over the rows of one step of an epoch; `order` is (row,).

        The last step has the remaining rows only, of which there may be one: as Keras trains.
        """
        size = self.config.batch_size
        rows = order[step * size + jnp.arange(size)]
        weight = jnp.where(jnp.arange(size) < self.rows_of_step(step), self.data.weight[rows], 0.0)
        squares = self._row_squares(parameters, rows)
        return jnp.sum(weight * squares) / self.rows_of_step(step)

    def rows_of_step(self, step: Array) -> Array:
        """Number of rows or pairs of a step: of a plain network, fewer in the last of an epoch."""
        size = self.config.batch_size
        if self.config.shape.twin:
            return jnp.int32(size)
        return jnp.minimum(size, self.data.n_rows - step * size)

    def of_differences(self, parameters: Parameters, key: Array) -> Array:
        """Loss of a twin over random pairs or triples."""
        data, size = self.data, self.config.batch_size
        if not self.config.triples:
            a = data.rows[integers(fold_in(key, 1), data.n_rows, size)]
            return self._of_pairs(parameters, a, self._draw_partners(a, fold_in(key, 2)))
        corners = self._draw_triples(key, max(1, size // 2))
        loss = LABELLED_SHARE * self.of_triples(parameters, corners)
        if self.config.loops:
            loss += data.loop_weight * self.of_loops(parameters, corners, key)
        return loss

    def of_triples(self, parameters: Parameters, corners: list[Array]) -> Array:
        """Mean loss of the three differences of each triple, in one pass through the network."""
        a = jnp.concatenate(corners)
        b = jnp.concatenate([corners[1], corners[2], corners[0]])
        return self._of_pairs(parameters, a, b)

    def of_loops(self, parameters: Parameters, labelled: list[Array], key: Array) -> Array:
        """Mean square of the *mean* of the three differences around each triple of a batch.

        Half of the triples are the labelled ones, half are of random unlabelled rows.
        """
        data, size = self.data, labelled[0].shape[0]
        drawn = [integers(fold_in(key, 7 + i), data.n_unlabelled, size) for i in range(3)]
        corners = [
            jnp.concatenate([own, data.unlabelled[rows]])
            for own, rows in zip(labelled, drawn, strict=True)
        ]
        a, b = jnp.concatenate(corners), jnp.concatenate([*corners[1:], corners[0]])
        differences = self._raw_differences(parameters, a, b).reshape(3, 2 * size, -1)
        return jnp.mean(jnp.mean(differences, axis=0) ** 2)

    def of_held_out_rows(self, parameters: Parameters) -> Array:
        """Loss of all held-out rows; of a twin, over the same triples of these rows every time."""
        rows = self.data.held_out
        inside = (jnp.arange(rows.shape[0]) < self.data.n_held_out).astype(jnp.float32)
        total = jnp.maximum(jnp.sum(inside), 1.0)
        if not self.config.shape.twin:
            return jnp.sum(inside * self._row_squares(parameters, rows)) / total
        others = [self._draw_held_out(fold_in(fold_in(self.key, 3), i)) for i in range(2)]
        a = jnp.concatenate([rows, *others])
        b = jnp.concatenate([*others, rows])
        square = self._pair_squares(parameters, a, b)
        return jnp.sum(jnp.tile(inside, 3) * square) / (3.0 * total)

    def _draw_held_out(self, key: Array) -> Array:
        """(row,): a random held-out row for each of them, or one of its partners among them."""
        rows, data = self.data.held_out, self.data
        drawn = rows[integers(key, jnp.maximum(data.n_held_out, 1), rows.shape[0])]
        if not self.config.partner_table:
            return drawn
        columns = integers(key, jnp.maximum(data.n_held_out_partners, 1), rows.shape[0])
        return jnp.where(data.n_held_out_partners > 0, data.partners[rows, columns], drawn)

    def _draw_triples(self, key: Array, size: int) -> list[Array]:
        """Three times (triple,) rows: random ones, or a random one and two of its partners."""
        rows, n_rows = self.data.rows, self.data.n_rows
        drawn = [rows[integers(fold_in(key, 1 + i), n_rows, size)] for i in range(3)]
        if self.config.partner_table:
            drawn[1:] = [self._draw_partners(drawn[0], fold_in(key, 4 + i)) for i in (1, 2)]
        return drawn

    def _draw_partners(self, rows: Array, key: Array) -> Array:
        """A random partner of each row: from the partner table, or any training row."""
        data = self.data
        if not self.config.partner_table:
            return data.rows[integers(key, data.n_rows, rows.shape[0])]
        bits = random_bits(key, 1, rows.shape[0])[0]
        return data.partners[rows, (bits % data.n_partners).astype(jnp.int32)]

    def _of_pairs(self, parameters: Parameters, a: Array, b: Array) -> Array:
        weight = self.data.weight[a] * self.data.weight[b]
        return jnp.mean(self._pair_squares(parameters, a, b) * weight)

    def _pair_squares(self, parameters: Parameters, a: Array, b: Array) -> Array:
        """(pair,): squared errors of the raw F(a, b), in this order only, as the author trains."""
        error = self._raw_differences(parameters, a, b) - (self.data.y[a] - self.data.y[b])
        return jnp.mean(error**2, axis=-1)

    def _raw_differences(self, parameters: Parameters, a: Array, b: Array) -> Array:
        """(pair, output): F(a, b), without the mean of both orders."""
        network = self._network(parameters)
        first = network.first_layer(self.data.X[a])[0]
        second = network.first_layer(self.data.X[b])[1]
        return network.output(first + second)

    def _row_squares(self, parameters: Parameters, rows: Array) -> Array:
        """(row,): squared errors of a plain network."""
        network = self._network(parameters)
        predicted = network.output(network.first_layer(self.data.X[rows])[0])
        return jnp.mean((predicted - self.data.y[rows]) ** 2, axis=-1)

    def _network(self, parameters: Parameters) -> Network:
        return TrainableNetwork(self.config.shape, parameters, jnp.float32(0.0))


def train_as_published(
    config: PublishedConfig,
    schedule: PublishedSchedule,
    data: NetworkData,
    keys: NDArray[np.uint32],
    steps: int,
    verbose: int = 0,
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Train until all members have stopped; `keys` are (problem, member).

    Returns the last parameters and the (problem, member, epoch) validation errors.
    """
    data, keys = jax.device_put((data, keys))
    state = initial_epoch_state(config, data, keys)
    limits = jnp.array([schedule.max_epochs, schedule.plateau, schedule.patience], jnp.int32)
    errors = []
    for first in show_progress(range(0, schedule.max_epochs, EPOCHS_AT_ONCE), verbose, keys.size):
        state, error = train_epochs(
            config, data, keys, state, jnp.int32(first), jnp.int32(steps), limits
        )
        errors.append(np.asarray(error))
        if bool(jnp.all(state.stopped)):
            break
    return jax.tree.map(np.asarray, state.parameters), np.concatenate(errors, axis=-1)


@partial(jax.jit, static_argnames="config")
def initial_epoch_state(config: PublishedConfig, data: NetworkData, keys: Array) -> EpochState:
    """The state of all members of all problems before their first epoch."""

    def one(data: NetworkData, key: Array) -> EpochState:
        parameters = _glorot_parameters(config.shape, fold_in(key, 0), data.n_features)
        infinite, zero = jnp.float32(jnp.inf), jnp.int32(0)
        return EpochState(
            parameters=parameters,
            momentum=_OPTIMIZER.init(parameters),
            rate=data.learning_rate,
            least_loss=infinite,
            plateau_epochs=zero,
            least_error=infinite,
            epochs_without_fall=zero,
            stopped=jnp.bool_(False),
            epochs=zero,
        )

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))(data, keys)


def _glorot_parameters(shape: Shape, key: Array, n_features: Array) -> Parameters:
    """Keras' initial weights: uniform with variance 2 / (fan_in + fan_out), biases zero."""
    parameters = initial_parameters(shape, key, n_features, jnp.float32(0.0))
    sides = 2 if shape.twin else 1
    fan_in = sides * n_features.astype(jnp.float32)
    widths = (*shape.hidden_sizes, shape.n_outputs)
    # `initial_parameters` has variance 1 / fan_in
    factor = jnp.sqrt(2.0 * fan_in / (fan_in + widths[0]))
    for side in range(sides):
        parameters[f"linear_{side}"] = parameters[f"linear_{side}"] * factor
    for layer in range(1, len(widths)):
        before, after = widths[layer - 1], widths[layer]
        scale = np.sqrt(2.0 * before / (before + after))
        parameters[f"weight_{layer}"] = parameters[f"weight_{layer}"] * scale
    return parameters


@partial(jax.jit, static_argnames="config", donate_argnames="state")
def train_epochs(
    config: PublishedConfig,
    data: NetworkData,
    keys: Array,
    state: EpochState,
    first_epoch: Array,
    steps: Array,
    limits: Array,
) -> tuple[EpochState, Array]:
    """Train `EPOCHS_AT_ONCE` epochs, except members that have stopped.

    Returns the new state and the (problem, member, epoch) validation errors, NaN after stopping.
    """
    epochs = first_epoch + jnp.arange(EPOCHS_AT_ONCE, dtype=jnp.int32)

    def of_member(data: NetworkData, key: Array, state: EpochState) -> Any:
        losses = PublishedLoss(config, data, key)

        def one(state: EpochState, epoch: Array) -> tuple[EpochState, Array]:
            new, error = _train_epoch(losses, epoch, steps, limits, state)
            # a member that has stopped does not change
            after = jax.tree.map(lambda old, new: jnp.where(state.stopped, old, new), state, new)
            return after, jnp.where(state.stopped, jnp.nan, error)

        return jax.lax.scan(one, state, epochs)

    return jax.vmap(jax.vmap(of_member, in_axes=(None, 0, 0)))(data, keys, state)


def _train_epoch(
    losses: PublishedLoss, epoch: Array, steps: Array, limits: Array, state: EpochState
) -> tuple[EpochState, Array]:
    data, key = losses.data, losses.key
    order = None
    if not losses.config.shape.twin:
        order = _shuffled_rows(data, fold_in(key, 7 + 2 * epoch))

    def loss_of(parameters: Parameters, number: Array) -> Array:
        if order is not None:
            return losses.of_rows(parameters, order, number)
        return losses.of_differences(parameters, fold_in(key, 8 + 2 * (epoch * steps + number)))

    def step(number: Array, carry: Any) -> Any:
        parameters, momentum, total = carry
        loss, gradient = jax.value_and_grad(loss_of)(parameters, number)
        update, momentum = _OPTIMIZER.update(gradient, momentum, parameters)
        parameters = jax.tree.map(lambda p, u: p - state.rate * u, parameters, update)
        n_rows = losses.rows_of_step(number)
        return parameters, momentum, total + jnp.array([n_rows * loss, n_rows])

    parameters, momentum, total = jax.lax.fori_loop(
        0, steps, step, (state.parameters, state.momentum, jnp.zeros(2))
    )
    loss, error = total[0] / total[1], losses.of_held_out_rows(parameters)
    new = state.after_epoch(parameters, momentum, loss, error, epoch, limits)
    return new, jnp.sqrt(error)


def _shuffled_rows(data: NetworkData, key: Array) -> Array:
    """(row,): the training rows in random order, then padding."""
    n = data.rows.shape[0]
    random_order = random_bits(key, 1, n)[0] >> 1
    last = jnp.uint32(2**32 - 1)
    return data.rows[jnp.argsort(jnp.where(jnp.arange(n) < data.n_rows, random_order, last))]
