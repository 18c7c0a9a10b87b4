"""Many networks trained as one compiled program: problems × members.

A *problem* is a training set, scaled and padded; a *member* is one network with its own rows,
left-out rows, hyperparameters and random numbers. Pairs are drawn on the device at every step, so
the n² pair set never exists. The program is compiled once for a shape (`Plan`); the number of
steps, learning rates and so on are data.

One step of a twin draws `batch_points` points and lets each meet `partners` others of the same
batch: embedding and first layer are computed once a point, not once a pair.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from twinned.models.neural import counter_rng
from twinned.models.neural.network import Parameters, Shape, differences, finish, halves, initial

VALIDATION_ROWS = 512  # of the left-out rows, which are in random order


class Plan(NamedTuple):
    """What fixes the compiled program of a training run."""

    shape: Shape
    batch_points: int
    partners: int
    partner_table: bool  # pairs come from a fixed table, not from within the batch
    optimizer: str
    loops: bool = False  # the consistency of loops is part of the loss
    dropout: bool = True  # some member drops out; without, no masks are drawn
    check_anchors: int = 64
    in_turn: bool = False  # the program is that of one member; a GPU wants them all


Value = Any  # an array of JAX while training, of numpy while it is put together


class Problem(NamedTuple):
    """A training set; every field has the problem as its leading axis in a batch of problems."""

    X: Value  # (row, feature), scaled, padded with zeros
    y: Value  # (row, output), scaled
    weight: Value  # (row,)
    n_features: Value  # () the true number
    partners: Value  # (row, partner) int32; (1, 1) where the plan has no table
    n_partners: Value  # () how many columns of it count


class Member(NamedTuple):
    """One network's own data; leading axes problem and member in a batch."""

    key: Value
    rows: Value  # (row,) int32, the first n_rows of which it learns from
    n_rows: Value
    learns: Value  # (row,) 1.0 for those rows, 0.0 for others
    left_out: Value  # (row,) int32, the first n_left_out of which stop it
    n_left_out: Value
    learning_rate: Value
    dropout: Value
    weight_decay: Value
    embedded: Value  # 1.0 or 0.0
    frequency_scale: Value
    loop_weight: Value
    pool: Value  # (row,) int32, labelled and unlabelled, which loops go through; (1,) without loops
    n_pool: Value


class State(NamedTuple):
    """Where each member stands between two checks, and the best it has been."""

    parameters: Parameters
    momentum: Any
    best: Parameters
    best_error: Array
    best_check: Array


def optimizer_of(name: str) -> optax.GradientTransformation:
    """The direction of a step; rate and decay are the member's own."""
    if name == "adamw":
        return optax.scale_by_adam(b1=0.9, b2=0.99, eps=1e-8)
    if name == "adadelta":
        return optax.scale_by_adadelta(rho=0.95, eps=1e-7)
    raise ValueError(f"optimizer must be 'adamw' or 'adadelta', not {name!r}.")


@partial(jax.jit, static_argnames="plan")
def start(plan: Plan, problems: Problem, members: Member) -> State:
    """All members of all problems before their first step."""

    def one(problem: Problem, member: Member) -> State:
        key = counter_rng.fold(member.key, 0)
        parameters = initial(plan.shape, key, problem.n_features, member.frequency_scale)
        momentum = optimizer_of(plan.optimizer).init(parameters)
        return State(parameters, momentum, parameters, jnp.float32(jnp.inf), jnp.int32(0))

    return over_members(plan, one)(problems, members)


@partial(jax.jit, static_argnames="plan", donate_argnames="state")
def advance(
    plan: Plan, problems: Problem, members: Member, state: State, check: Array, schedule: Array
) -> tuple[State, Array]:
    """Train up to the next check. `schedule` is (steps between checks, steps in all).

    Returns the new state and each member's error at the check, in units of y.
    """
    steps, in_all = schedule
    one = partial(_advance_member, plan, check, steps, in_all)
    return over_members(plan, one)(problems, members, state)


def over_members(plan: Plan, one: Any) -> Any:
    """A function of a problem, a member and what else the member has, over all of them.

    Where members take turns there is one of each, without leading axes: see `running`.
    """
    if plan.in_turn:
        return one

    def of_problem(problem: Problem, *own: Any) -> Any:
        return jax.vmap(partial(one, problem))(*own)

    return jax.vmap(of_problem)


def _advance_member(
    plan: Plan,
    check: Array,
    steps: Array,
    in_all: Array,
    problem: Problem,
    member: Member,
    state: State,
) -> tuple[State, Array]:
    direction = optimizer_of(plan.optimizer)

    def step(number: Array, state: tuple[Parameters, Any]) -> tuple[Parameters, Any]:
        parameters, momentum = state
        gradient = jax.grad(_loss, argnums=1)(
            plan, parameters, problem, member, counter_rng.fold(member.key, number + 1)
        )
        update, momentum = direction.update(gradient, momentum, parameters)
        rate = member.learning_rate * _schedule(number.astype(jnp.float32) / in_all)
        return _descend(parameters, update, rate, member.weight_decay), momentum

    parameters, momentum = jax.lax.fori_loop(
        check * steps, (check + 1) * steps, step, (state.parameters, state.momentum)
    )
    error = validation_error(plan, parameters, problem, member)
    # without left-out rows the error is 0 throughout, and the last weights are kept
    better = error <= state.best_error
    best = jax.tree.map(lambda new, old: jnp.where(better, new, old), parameters, state.best)
    return State(
        parameters,
        momentum,
        best,
        jnp.where(better, error, state.best_error),
        jnp.where(better, check, state.best_check),
    ), error


def _schedule(progress: Array) -> Array:
    """A short rise, then half a cosine down to zero."""
    return jnp.minimum(1.0, progress / 0.02) * 0.5 * (1.0 + jnp.cos(jnp.pi * progress))


def _descend(parameters: Parameters, update: Parameters, rate: Array, decay: Array) -> Parameters:
    """Weights shrink towards zero, biases and frequencies do not."""
    return {
        name: value - rate * (update[name] + (decay * value if _is_weight(name) else 0.0))
        for name, value in parameters.items()
    }


def _is_weight(name: str) -> bool:
    return name.startswith(("weight", "linear", "periodic"))


def _loss(
    plan: Plan, parameters: Parameters, problem: Problem, member: Member, key: Array
) -> Array:
    shape, points = plan.shape, plan.batch_points
    drawn = member.rows[counter_rng.below(counter_rng.fold(key, 1), member.n_rows, points)]
    masks = _dropout_masks(plan, counter_rng.fold(key, 2), member.dropout)
    y, weight = problem.y[drawn], problem.weight[drawn]
    first = halves(shape, parameters, problem.X[drawn], member.embedded)
    if not shape.twin:
        return _weighted(finish(shape, parameters, first[0], masks) - y, weight)
    if plan.partner_table:
        which = counter_rng.bits(counter_rng.fold(key, 3), plan.partners, points)
        columns = (which % problem.n_partners).astype(jnp.int32)
        partners = problem.partners[drawn, columns].ravel()  # partner by partner
        second = halves(shape, parameters, problem.X[partners], member.embedded)
        y_second = problem.y[partners]
        # a partner that the member must not learn from makes no pair
        w_second = problem.weight[partners] * member.learns[partners]
    else:
        # each point meets those 1, 2, … places further on in the batch, all drawn at random
        ahead = partial(_ahead, places=plan.partners)
        second = tuple(ahead(half) for half in first)
        y_second, w_second = ahead(y), ahead(weight)
    again = partial(_again, times=plan.partners)
    first, y, weight = tuple(again(half) for half in first), again(y), again(weight)
    if masks is not None:
        # or the compiler draws and copies them anew wherever one is used
        masks = jax.lax.optimization_barrier([_again(mask, 2 * plan.partners) for mask in masks])
    predicted = differences(shape, parameters, first, second, masks)
    loss = _weighted(predicted - (y - y_second), weight * w_second)
    if plan.loops:
        loss += member.loop_weight * _loop_loss(plan, parameters, problem, member, key)
    return loss


def _ahead(values: Array, places: int) -> Array:
    """(points, …) → (places · points, …): those 1 to `places` further on, in a ring.

    Shifted copies, as the gradient of an index is a slow scattering of sums.
    """
    return jnp.concatenate([jnp.roll(values, -place, axis=0) for place in range(1, places + 1)])


def _again(values: Array, times: int) -> Array:
    """(points, …) → (times · points, …).

    Copies, as the gradient of a broadcast is a sum over the first axis, which is slow, too.
    """
    return jnp.concatenate([values] * times)


def _loop_loss(
    plan: Plan, parameters: Parameters, problem: Problem, member: Member, key: Array
) -> Array:
    """The mean square of what differences around loops of three random points sum to.

    The points of a batch stand in a ring, and each begins a loop over the next two: a ring of n
    points makes n loops of 2n differences, not 3n. No value of y is needed.
    """
    rows = member.pool[
        counter_rng.below(counter_rng.fold(key, 5), member.n_pool, plan.batch_points)
    ]
    points = halves(plan.shape, parameters, problem.X[rows], member.embedded)

    def ahead(places: int) -> tuple[Array, ...]:
        return tuple(jnp.roll(half, -places, axis=0) for half in points)

    to_next = differences(plan.shape, parameters, points, ahead(1))
    back = differences(plan.shape, parameters, ahead(2), points)
    return jnp.mean((to_next + jnp.roll(to_next, -1, axis=0) + back) ** 2)


def _weighted(error: Array, weight: Array) -> Array:
    square = jnp.mean(error**2, axis=-1)
    return jnp.sum(weight * square) / jnp.maximum(jnp.sum(weight), 1e-30)


def _dropout_masks(plan: Plan, key: Array, rate: Array) -> list[Array] | None:
    """One mask a layer and point, shared by all the pairs that the point is the first of."""
    if not plan.dropout:
        return None
    keep = 1.0 - rate
    return [
        jnp.where(
            counter_rng.uniform(counter_rng.fold(key, layer), plan.batch_points, size) < keep,
            1 / keep,
            0,
        )
        for layer, size in enumerate(plan.shape.hidden_sizes)
    ]


def validation_error(plan: Plan, parameters: Parameters, problem: Problem, member: Member) -> Array:
    """Root mean square error of left-out rows, predicted from anchors that were learned from."""
    left_out = member.left_out[:VALIDATION_ROWS]
    predicted = anchored(plan, parameters, problem, member, left_out, plan.check_anchors, block=64)
    known = (jnp.arange(left_out.shape[0]) < member.n_left_out) * problem.weight[left_out]
    square = jnp.mean((predicted - problem.y[left_out]) ** 2, axis=-1)
    return jnp.sqrt(jnp.sum(known * square) / jnp.maximum(jnp.sum(known), 1e-30))


def anchored(
    plan: Plan,
    parameters: Parameters,
    problem: Problem,
    member: Member,
    rows: Array,
    n_anchors: int,
    block: int,
) -> Array:
    """(row, output): predictions of `rows` from anchors spread over what the member learned from.

    `block` rows are done at once, from their first layer on: there may be many.
    """
    shape = plan.shape
    places = (jnp.arange(n_anchors) * member.n_rows) // n_anchors
    anchors = member.rows[places]
    sides = halves(shape, parameters, problem.X[anchors], member.embedded)

    def one(row: Array) -> Array:
        query = halves(shape, parameters, problem.X[row], member.embedded)
        if not shape.twin:
            return finish(shape, parameters, query[0])
        across = differences(shape, parameters, tuple(half[None] for half in query), sides)
        return jnp.mean(across + problem.y[anchors], axis=0)

    return jax.lax.map(one, rows, batch_size=min(block, rows.shape[0]))
