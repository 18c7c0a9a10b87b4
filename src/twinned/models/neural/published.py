"""The paper's own training of twins and plain networks, as a compiled program.

It differs from `training` in almost everything: the loss is of the raw F over *triples* of points
(their three differences), the rate halves when the training loss stops falling, training stops
when the loss of a fixed set of validation triples stops falling, and the last parameters are used.
The numbers are those of the author's code and of the Keras that ran it; where the paper's text
differs, the recipe `"written"` follows the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from numpy.typing import NDArray

from twinned.models.neural import counter_rng
from twinned.models.neural.network import Parameters, Shape, initial_parameters
from twinned.models.neural.published_loss import PublishedConfig, PublishedLoss
from twinned.models.neural.training import MemberArrays, ProblemArrays
from twinned.rows.validation import check_integer

RECIPES = ("modern", "published", "written")
EPOCHS_AT_ONCE = 8  # between two checks whether all members have stopped
LEAST_FALL = 1e-4  # Keras: a smaller fall of the training loss counts as none, whatever its size


class PublishedSchedule(NamedTuple):
    """The epochs of one recipe, for twins or for plain networks."""

    triples: bool
    max_epochs: int
    plateau: int  # epochs without a falling training loss before the rate halves
    patience: int  # epochs without a falling validation loss before training stops


# The code swaps the two limits that the text gives.
SCHEDULES = {
    ("published", True): PublishedSchedule(True, 2_000, 32, 64),
    ("published", False): PublishedSchedule(False, 10_000, 20, 50),
    ("written", True): PublishedSchedule(False, 10_000, 32, 64),
    ("written", False): PublishedSchedule(False, 2_000, 20, 50),
}


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


def published_parameters(twin: bool, recipe: str) -> dict[str, Any]:
    """Return the constructor parameters that `as_published` and `as_written` set."""
    schedule = SCHEDULES[recipe, twin]
    return {
        "recipe": recipe,
        "hidden_sizes": (128, 128),
        "activation": "relu",
        "embedding": None,
        "n_frequencies": 0,
        "max_features": None,
        "optimizer": "adadelta",
        "learning_rate": 1.0,
        "dropout": 0.0,
        "weight_decay": 0.0,
        "batch_size": 16,
        "n_members": 1,
        "n_folds": 1,
        "selection": "mean",
        "scaling": "signed_max",
        "max_epochs": schedule.max_epochs,
        "patience": schedule.patience,
    }


def resolve_schedule(estimator: Any, twin: bool) -> PublishedSchedule:
    """Return the schedule of the recipe, with the estimator's own `max_epochs` and `patience`."""
    changes: dict[str, Any] = {
        name: check_integer(name, getattr(estimator, name))
        for name in ("max_epochs", "patience")
        if getattr(estimator, name) is not None
    }
    return SCHEDULES[estimator.recipe, twin]._replace(**changes)


def steps_per_epoch(n_train: int, batch_size: int, twin: bool) -> int:
    """Return the number of steps that the author calls an epoch.

    A plain network uses each row once. A twin takes 5 (n_train + n_test) / 16 steps, and the
    paper's test rows are 2/7 of its training rows.

    >>> steps_per_epoch(700, 16, twin=False), steps_per_epoch(700, 16, twin=True)
    (44, 281)
    """
    rows = 5 * 9 / 7 * n_train if twin else n_train
    return max(1, round(rows / batch_size) if twin else -(-n_train // batch_size))


def train_as_published(
    config: PublishedConfig,
    schedule: PublishedSchedule,
    problems: ProblemArrays,
    members: MemberArrays,
    steps: int,
    show_progress: Callable[[range], Iterable[int]],
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Train until all members have stopped.

    Returns the last parameters and the (problem, member, epoch) validation errors.
    """
    state = initial_epoch_state(config, problems, members)
    limits = jnp.array([schedule.max_epochs, schedule.plateau, schedule.patience], jnp.int32)
    errors = []
    for first in show_progress(range(0, schedule.max_epochs, EPOCHS_AT_ONCE)):
        state, error = train_epochs(
            config, problems, members, state, jnp.int32(first), jnp.int32(steps), limits
        )
        errors.append(np.asarray(error))
        if bool(jnp.all(state.stopped)):
            break
    return jax.tree.map(np.asarray, state.parameters), np.concatenate(errors, axis=-1)


@partial(jax.jit, static_argnames="config")
def initial_epoch_state(
    config: PublishedConfig, problems: ProblemArrays, members: MemberArrays
) -> EpochState:
    """The state of all members of all problems before their first epoch."""

    def one(problem: ProblemArrays, member: MemberArrays) -> EpochState:
        key = counter_rng.fold_in(member.key, 0)
        parameters = _glorot_parameters(config.shape, key, member.n_features)
        infinite, zero = jnp.float32(jnp.inf), jnp.int32(0)
        return EpochState(
            parameters=parameters,
            momentum=_optimizer(config).init(parameters),
            rate=member.learning_rate,
            least_loss=infinite,
            plateau_epochs=zero,
            least_error=infinite,
            epochs_without_fall=zero,
            stopped=jnp.bool_(False),
            epochs=zero,
        )

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))(problems, members)


def _optimizer(config: PublishedConfig) -> optax.GradientTransformation:
    if config.optimizer == "adadelta":
        return optax.scale_by_adadelta(rho=0.95, eps=1e-7)
    return optax.scale_by_adam()


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
    problems: ProblemArrays,
    members: MemberArrays,
    state: EpochState,
    first_epoch: Array,
    steps: Array,
    limits: Array,
) -> tuple[EpochState, Array]:
    """Train `EPOCHS_AT_ONCE` epochs, except members that have stopped.

    Returns the new state and the (problem, member, epoch) validation errors, NaN after stopping.
    """
    epochs = first_epoch + jnp.arange(EPOCHS_AT_ONCE, dtype=jnp.int32)

    def of_member(problem: ProblemArrays, member: MemberArrays, state: EpochState) -> Any:
        losses = PublishedLoss(config, problem, member)

        def one(state: EpochState, epoch: Array) -> tuple[EpochState, Array]:
            new, error = _train_epoch(losses, epoch, steps, limits, state)
            # a member that has stopped does not change
            after = jax.tree.map(lambda old, new: jnp.where(state.stopped, old, new), state, new)
            return after, jnp.where(state.stopped, jnp.nan, error)

        return jax.lax.scan(one, state, epochs)

    return jax.vmap(jax.vmap(of_member, in_axes=(None, 0, 0)))(problems, members, state)


def _train_epoch(
    losses: PublishedLoss, epoch: Array, steps: Array, limits: Array, state: EpochState
) -> tuple[EpochState, Array]:
    config, member = losses.config, losses.member
    direction = _optimizer(config)
    order = None
    if not config.shape.twin:
        order = _shuffled_rows(member, counter_rng.fold_in(member.key, 7 + 2 * epoch))

    def loss_of(parameters: Parameters, number: Array) -> Array:
        if order is not None:
            return losses.of_rows(parameters, order, number)
        key = counter_rng.fold_in(member.key, 8 + 2 * (epoch * steps + number))
        return losses.of_differences(parameters, key)

    def step(number: Array, carry: Any) -> Any:
        parameters, momentum, total = carry
        loss, gradient = jax.value_and_grad(loss_of)(parameters, number)
        update, momentum = direction.update(gradient, momentum, parameters)
        parameters = jax.tree.map(lambda p, u: p - state.rate * u, parameters, update)
        return parameters, momentum, total + loss

    parameters, momentum, total = jax.lax.fori_loop(
        0, steps, step, (state.parameters, state.momentum, jnp.float32(0.0))
    )
    loss = total / steps
    # without held-out rows the training loss decides when to stop
    held_out_loss = losses.of_held_out_rows(parameters)
    error = jnp.where(member.n_held_out > 0, held_out_loss, loss)

    max_epochs, plateau, patience = limits
    fell = loss < state.least_loss - LEAST_FALL
    plateau_epochs = jnp.where(fell, 0, state.plateau_epochs + 1)
    halve = plateau_epochs >= plateau
    better = error < state.least_error
    epochs_without_fall = jnp.where(better, 0, state.epochs_without_fall + 1)
    new = EpochState(
        parameters=parameters,
        momentum=momentum,
        rate=jnp.where(halve, 0.5 * state.rate, state.rate),
        least_loss=jnp.where(fell, loss, state.least_loss),
        plateau_epochs=jnp.where(halve, 0, plateau_epochs),
        least_error=jnp.where(better, error, state.least_error),
        epochs_without_fall=epochs_without_fall,
        stopped=(epochs_without_fall >= patience) | (epoch + 1 >= max_epochs),
        epochs=state.epochs + 1,
    )
    return new, jnp.sqrt(error)


def _shuffled_rows(member: MemberArrays, key: Array) -> Array:
    """(row,): the training rows in random order, then padding."""
    n = member.rows.shape[0]
    random_order = counter_rng.bits(key, 1, n)[0] >> 1
    last = jnp.uint32(2**32 - 1)
    return member.rows[jnp.argsort(jnp.where(jnp.arange(n) < member.n_rows, random_order, last))]
