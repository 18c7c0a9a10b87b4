"""Training of many networks as one compiled program: problems × members.

A *problem* is a training set, scaled and padded; a *member* is one network with its own training
rows, held-out rows, hyperparameters and random numbers. Pairs are drawn on the device at every
step, so the n² pairs are never stored. The program is compiled once for a `TrainingConfig`; the
number of steps, learning rates and so on are data.

One step of a twin draws `batch_points` points and pairs each with `n_partners` others of the same
batch: embedding and first layer are computed once per point, not once per pair.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from twinned.models.neural import counter_rng
from twinned.models.neural.network import (
    Halves,
    Parameters,
    Shape,
    differences,
    first_layer,
    initial_parameters,
    network_output,
)

VALIDATION_ROWS = 512  # of the held-out rows, which are in random order


class TrainingConfig(NamedTuple):
    """What determines the compiled program of training."""

    shape: Shape
    batch_points: int
    n_partners: int
    partner_table: bool  # pairs come from a fixed table, not from within the batch
    optimizer: str
    loops: bool = False  # the loss includes the inconsistency of loops
    dropout: bool = True  # at least one member has dropout; without, no masks are drawn
    check_anchors: int = 64
    one_member: bool = False  # the program is that of one member, not of a batch of members


AnyArray = Any  # an array of JAX while training, of numpy while it is assembled


class ProblemArrays(NamedTuple):
    """A training set; a batch of problems has the problem as the leading axis of every field."""

    X: AnyArray  # (row, feature), scaled, padded with zeros
    y: AnyArray  # (row, output), scaled
    weight: AnyArray  # (row,)
    n_features: AnyArray  # () without padding
    partners: AnyArray  # (row, partner) int32; (1, 1) without a partner table
    n_partners: AnyArray  # () columns of `partners` that are not padding


class MemberArrays(NamedTuple):
    """The data of one network; a batch has the leading axes problem and member."""

    key: AnyArray
    rows: AnyArray  # (row,) int32; the first n_rows are training rows
    n_rows: AnyArray
    is_training: AnyArray  # (row,) 1.0 for training rows, 0.0 for others
    held_out: AnyArray  # (row,) int32; the first n_held_out are not padding
    n_held_out: AnyArray
    learning_rate: AnyArray
    dropout: AnyArray
    weight_decay: AnyArray
    gate: AnyArray  # 1.0 with periodic embedding, 0.0 without
    frequency_scale: AnyArray
    loop_weight: AnyArray
    loop_rows: AnyArray  # (row,) int32, labelled and unlabelled rows of loops; (1,) without loops
    n_loop_rows: AnyArray


class TrainingState(NamedTuple):
    """A member between two checks, and its best parameters so far."""

    parameters: Parameters
    momentum: optax.OptState
    best: Parameters
    best_error: Array
    best_check: Array


def optimizer_by_name(name: str) -> optax.GradientTransformation:
    """Return the direction of a step; learning rate and weight decay are those of the member."""
    if name == "adamw":
        return optax.scale_by_adam(b1=0.9, b2=0.99, eps=1e-8)
    if name == "adadelta":
        return optax.scale_by_adadelta(rho=0.95, eps=1e-7)
    raise ValueError(f"optimizer must be 'adamw' or 'adadelta', not {name!r}.")


@partial(jax.jit, static_argnames="config")
def initial_state(
    config: TrainingConfig, problems: ProblemArrays, members: MemberArrays
) -> TrainingState:
    """The state of all members of all problems before their first step."""

    def one(problem: ProblemArrays, member: MemberArrays) -> TrainingState:
        key = counter_rng.fold_in(member.key, 0)
        parameters = initial_parameters(
            config.shape, key, problem.n_features, member.frequency_scale
        )
        momentum = optimizer_by_name(config.optimizer).init(parameters)
        return TrainingState(parameters, momentum, parameters, jnp.float32(jnp.inf), jnp.int32(0))

    return over_members(config, one)(problems, members)


@partial(jax.jit, static_argnames="config", donate_argnames="state")
def train_to_check(
    config: TrainingConfig,
    problems: ProblemArrays,
    members: MemberArrays,
    state: TrainingState,
    check: Array,
    schedule: Array,
) -> tuple[TrainingState, Array]:
    """Train up to the next check. `schedule` is (steps between checks, steps in total).

    Returns the new state and each member's error at the check, in units of scaled y.
    """
    steps, total_steps = schedule
    one = partial(_train_member, config, check, steps, total_steps)
    return over_members(config, one)(problems, members, state)


def over_members(config: TrainingConfig, one: Callable[..., Any]) -> Callable[..., Any]:
    """Vectorize a function of a problem, a member and other data of the member.

    The function itself is returned where the program is that of one member: see `dispatch`.
    """
    if config.one_member:
        return one

    def of_problem(problem: ProblemArrays, *own: Any) -> Any:
        return jax.vmap(partial(one, problem))(*own)

    return jax.vmap(of_problem)


def _train_member(
    config: TrainingConfig,
    check: Array,
    steps: Array,
    total_steps: Array,
    problem: ProblemArrays,
    member: MemberArrays,
    state: TrainingState,
) -> tuple[TrainingState, Array]:
    direction = optimizer_by_name(config.optimizer)

    def step(
        number: Array, state: tuple[Parameters, optax.OptState]
    ) -> tuple[Parameters, optax.OptState]:
        parameters, momentum = state
        gradient = jax.grad(_loss, argnums=1)(
            config, parameters, problem, member, counter_rng.fold_in(member.key, number + 1)
        )
        update, momentum = direction.update(gradient, momentum, parameters)
        rate = member.learning_rate * _rate_factor(number.astype(jnp.float32) / total_steps)
        return _descend(parameters, update, rate, member.weight_decay), momentum

    parameters, momentum = jax.lax.fori_loop(
        check * steps, (check + 1) * steps, step, (state.parameters, state.momentum)
    )
    error = validation_error(config, parameters, problem, member)
    # without held-out rows the error is 0 at every check, and the last parameters are the best
    better = error <= state.best_error
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), parameters, state.best)
    return TrainingState(
        parameters,
        momentum,
        best,
        jnp.where(better, error, state.best_error),
        jnp.where(better, check, state.best_check),
    ), error


def _rate_factor(done: Array) -> Array:
    """Factor of the learning rate when a share `done` of the steps is done.

    A short linear rise, then half a cosine down to zero.
    """
    return jnp.minimum(1.0, done / 0.02) * 0.5 * (1.0 + jnp.cos(jnp.pi * done))


def _descend(parameters: Parameters, update: Parameters, rate: Array, decay: Array) -> Parameters:
    """Take one step; weights decay towards zero, biases and frequencies do not."""
    return {
        name: value - rate * (update[name] + (decay * value if _is_weight(name) else 0.0))
        for name, value in parameters.items()
    }


def _is_weight(name: str) -> bool:
    return name.startswith(("weight", "linear", "periodic"))


def _loss(
    config: TrainingConfig,
    parameters: Parameters,
    problem: ProblemArrays,
    member: MemberArrays,
    key: Array,
) -> Array:
    shape, n_points = config.shape, config.batch_points
    drawn = member.rows[counter_rng.integers(counter_rng.fold_in(key, 1), member.n_rows, n_points)]
    masks = _dropout_masks(config, counter_rng.fold_in(key, 2), member.dropout)
    y, weight = problem.y[drawn], problem.weight[drawn]
    first = first_layer(shape, parameters, problem.X[drawn], member.gate)
    if not shape.twin:
        return _mean_square(network_output(shape, parameters, first[0], masks) - y, weight)
    if config.partner_table:
        random_bits = counter_rng.bits(counter_rng.fold_in(key, 3), config.n_partners, n_points)
        columns = (random_bits % problem.n_partners).astype(jnp.int32)
        partners = problem.partners[drawn, columns].ravel()  # partner by partner
        second = first_layer(shape, parameters, problem.X[partners], member.gate)
        y_second = problem.y[partners]
        # a partner that is not a training row of the member makes no pair
        w_second = problem.weight[partners] * member.is_training[partners]
    else:
        # the partners of a point are the next ones of the batch, which is in random order
        following = partial(_following, n=config.n_partners)
        second = tuple(following(half) for half in first)
        y_second, w_second = following(y), following(weight)
    repeat = partial(_repeat, times=config.n_partners)
    first, y, weight = tuple(repeat(half) for half in first), repeat(y), repeat(weight)
    if masks is not None:
        # or the compiler draws and copies them anew wherever one is used
        masks = jax.lax.optimization_barrier(
            [_repeat(mask, 2 * config.n_partners) for mask in masks]
        )
    predicted = differences(shape, parameters, first, second, masks)
    loss = _mean_square(predicted - (y - y_second), weight * w_second)
    if config.loops:
        loss += member.loop_weight * _loop_loss(config, parameters, problem, member, key)
    return loss


def _following(values: Array, n: int) -> Array:
    """(points, …) → (n · points, …): the point 1, 2, …, n positions further on, in a ring.

    Shifted copies, as the gradient of an index is a slow scattering of sums.
    """
    return jnp.concatenate([jnp.roll(values, -shift, axis=0) for shift in range(1, n + 1)])


def _repeat(values: Array, times: int) -> Array:
    """(points, …) → (times · points, …).

    Copies, as the gradient of a broadcast is a sum over the first axis, which is slow, too.
    """
    return jnp.concatenate([values] * times)


def _loop_loss(
    config: TrainingConfig,
    parameters: Parameters,
    problem: ProblemArrays,
    member: MemberArrays,
    key: Array,
) -> Array:
    """Mean square of the sums of differences around loops of three random points.

    The points of a batch form a ring, and each is the first of a loop over the next two: a ring of
    n points makes n loops of 2n differences, not 3n. No value of y is needed.
    """
    rows = member.loop_rows[
        counter_rng.integers(counter_rng.fold_in(key, 5), member.n_loop_rows, config.batch_points)
    ]
    points = first_layer(config.shape, parameters, problem.X[rows], member.gate)

    def shifted(by: int) -> Halves:
        return tuple(jnp.roll(half, -by, axis=0) for half in points)

    to_next = differences(config.shape, parameters, points, shifted(1))
    back = differences(config.shape, parameters, shifted(2), points)
    return jnp.mean((to_next + jnp.roll(to_next, -1, axis=0) + back) ** 2)


def _mean_square(error: Array, weight: Array) -> Array:
    square = jnp.mean(error**2, axis=-1)
    return jnp.sum(weight * square) / jnp.maximum(jnp.sum(weight), 1e-30)


def _dropout_masks(config: TrainingConfig, key: Array, rate: Array) -> list[Array] | None:
    """One mask per layer and point, shared by all pairs whose first point it is."""
    if not config.dropout:
        return None
    keep = 1.0 - rate
    return [
        jnp.where(
            counter_rng.uniform(counter_rng.fold_in(key, layer), config.batch_points, size) < keep,
            1 / keep,
            0,
        )
        for layer, size in enumerate(config.shape.hidden_sizes)
    ]


def validation_error(
    config: TrainingConfig, parameters: Parameters, problem: ProblemArrays, member: MemberArrays
) -> Array:
    """Root mean square error of held-out rows, predicted from training rows as anchors."""
    held_out = member.held_out[:VALIDATION_ROWS]
    predicted = predict_from_anchors(
        config, parameters, problem, member, held_out, config.check_anchors, block=64
    )
    weight = (jnp.arange(held_out.shape[0]) < member.n_held_out) * problem.weight[held_out]
    square = jnp.mean((predicted - problem.y[held_out]) ** 2, axis=-1)
    return jnp.sqrt(jnp.sum(weight * square) / jnp.maximum(jnp.sum(weight), 1e-30))


def predict_from_anchors(
    config: TrainingConfig,
    parameters: Parameters,
    problem: ProblemArrays,
    member: MemberArrays,
    rows: Array,
    n_anchors: int,
    block: int,
) -> Array:
    """(row, output): predictions of `rows` from anchors spread over the member's training rows.

    `block` rows are computed at once, from their first layer on: there may be many.
    """
    shape = config.shape
    anchors = member.rows[(jnp.arange(n_anchors) * member.n_rows) // n_anchors]
    anchor_halves = first_layer(shape, parameters, problem.X[anchors], member.gate)

    def one(row: Array) -> Array:
        query = first_layer(shape, parameters, problem.X[row], member.gate)
        if not shape.twin:
            return network_output(shape, parameters, query[0])
        halves = tuple(half[None] for half in query)
        to_anchors = differences(shape, parameters, halves, anchor_halves)
        return jnp.mean(to_anchors + problem.y[anchors], axis=0)

    return jax.lax.map(one, rows, batch_size=min(block, rows.shape[0]))
