"""The paper's own training, step for step, over problems × members as one compiled program.

It differs from `training` in almost everything: the loss is of the raw F over *triples* of points
(their three differences), the rate halves when the training loss stops falling, training stops
when the pair loss of one fixed set of validation triples stops falling, and the last weights are
kept. The numbers are those of the author's code and of the Keras that ran it; where the paper's
text says otherwise, the recipe `"written"` follows the text.

Axes: `step`, `triple`, `corner` (the three points of a triple), `output`.
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

from twinned._validation import check_integer
from twinned.models.neural import counter_rng
from twinned.models.neural.network import Parameters, Shape, finish, halves, initial
from twinned.models.neural.training import Member, Problem

RECIPES = ("modern", "published", "written")
EPOCHS_AT_ONCE = 8  # between two looks at who has stopped
_LEAST_FALL = 1e-4  # Keras: a fall of the training loss by less is none, whatever its size
# Half of the author's batch are unlabelled triples, which weigh nothing unless loops do. The factor
# matters where losses are near _LEAST_FALL: smaller ones stop the rate, and learn less.
LABELLED_SHARE = 0.5


class Course(NamedTuple):
    """What one recipe fixes for twins, or for plain networks."""

    triples: bool
    max_epochs: int
    plateau: int  # epochs without a falling training loss before the rate halves
    patience: int  # epochs without a falling validation loss before training stops


# The code swaps the two limits that the text gives.
COURSES = {
    ("published", True): Course(True, 2_000, 32, 64),
    ("published", False): Course(False, 10_000, 20, 50),
    ("written", True): Course(False, 10_000, 32, 64),
    ("written", False): Course(False, 2_000, 20, 50),
}


class PublishedPlan(NamedTuple):
    """What fixes the compiled program."""

    shape: Shape
    batch_size: int
    triples: bool
    partner_table: bool
    loops: bool
    optimizer: str


class Walk(NamedTuple):
    """Where a member stands after an epoch."""

    parameters: Parameters
    momentum: Any
    rate: Array
    least_loss: Array  # of training, for the plateau
    level: Array  # epochs on the plateau
    least_error: Array  # of validation, for stopping
    waited: Array
    stopped: Array
    epochs: Array


def published_settings(twin: bool, recipe: str) -> dict[str, Any]:
    """The constructor parameters of `as_published` and `as_written`."""
    course = COURSES[recipe, twin]
    return {
        "recipe": recipe,
        "hidden_sizes": (128, 128),
        "activation": "relu",
        "embedding": None,
        "n_frequencies": 0,
        "optimizer": "adadelta",
        "learning_rate": 1.0,
        "dropout": 0.0,
        "weight_decay": 0.0,
        "batch_size": 16,
        "n_members": 1,
        "n_folds": 1,
        "selection": "mean",
        "scaling": "signed_max",
        "max_epochs": course.max_epochs,
        "patience": course.patience,
    }


def course_of(estimator: Any, twin: bool) -> Course:
    """The recipe's course, with what the user set himself in its place."""
    changes: dict[str, Any] = {
        name: check_integer(name, getattr(estimator, name))
        for name in ("max_epochs", "patience")
        if getattr(estimator, name) is not None
    }
    return COURSES[estimator.recipe, twin]._replace(**changes)


def steps_per_epoch(n_learned: int, batch_size: int, twin: bool) -> int:
    """How many steps the author calls an epoch.

    A plain network sees each row once. A twin takes 5 (n_train + n_test) / 16 steps, and the
    paper's test rows are 2/7 of its training rows.

    >>> steps_per_epoch(700, 16, twin=False), steps_per_epoch(700, 16, twin=True)
    (44, 281)
    """
    rows = 5 * 9 / 7 * n_learned if twin else n_learned
    return max(1, round(rows / batch_size) if twin else -(-n_learned // batch_size))


def train(
    plan: PublishedPlan,
    course: Course,
    problems: Problem,
    members: Member,
    steps: int,
    progress: Any,
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Train until everyone has stopped: the last weights, and (problem, member, epoch) errors."""
    state = begin(plan, problems, members)
    rules = jnp.array([course.max_epochs, course.plateau, course.patience], jnp.int32)
    errors = []
    for first in progress(range(0, course.max_epochs, EPOCHS_AT_ONCE)):
        state, error = advance_epochs(
            plan, problems, members, state, jnp.int32(first), jnp.int32(steps), rules
        )
        errors.append(np.asarray(error))
        if bool(jnp.all(state.stopped)):
            break
    return jax.tree.map(np.asarray, state.parameters), np.concatenate(errors, axis=-1)


@partial(jax.jit, static_argnames="plan")
def begin(plan: PublishedPlan, problems: Problem, members: Member) -> Walk:
    """All members of all problems before their first step."""

    def one(problem: Problem, member: Member) -> Walk:
        parameters = _glorot(plan.shape, counter_rng.fold(member.key, 0), problem.n_features)
        never = jnp.float32(jnp.inf)
        zero = jnp.int32(0)
        return Walk(
            parameters,
            _optimizer(plan).init(parameters),
            member.learning_rate,
            never,
            zero,
            never,
            zero,
            jnp.bool_(False),
            zero,
        )

    return jax.vmap(jax.vmap(one, in_axes=(None, 0)))(problems, members)


def _optimizer(plan: PublishedPlan) -> optax.GradientTransformation:
    if plan.optimizer == "adadelta":
        return optax.scale_by_adadelta(rho=0.95, eps=1e-7)
    return optax.scale_by_adam()


def _glorot(shape: Shape, key: Array, n_features: Array) -> Parameters:
    """Keras' initial weights: uniform with variance 2 / (fan_in + fan_out), biases zero."""
    parameters = initial(shape, key, n_features, jnp.float32(0.0))
    sides = 2 if shape.twin else 1
    fan_in = sides * n_features.astype(jnp.float32)
    widths = (*shape.hidden_sizes, shape.n_outputs)
    wider = jnp.sqrt(2.0 * fan_in / (fan_in + widths[0]))  # `initial` has variance 1 / fan_in
    for side in range(sides):
        parameters[f"linear_{side}"] = parameters[f"linear_{side}"] * wider
    for layer in range(1, len(widths)):
        before, after = widths[layer - 1], widths[layer]
        scale = np.sqrt(2.0 * before / (before + after))
        parameters[f"weight_{layer}"] = parameters[f"weight_{layer}"] * scale
    return parameters


@partial(jax.jit, static_argnames="plan", donate_argnames="state")
def advance_epochs(
    plan: PublishedPlan,
    problems: Problem,
    members: Member,
    state: Walk,
    first_epoch: Array,
    steps: Array,
    rules: Array,
) -> tuple[Walk, Array]:
    """Some epochs more for all who have not stopped, and their validation errors (NaN after)."""
    one = partial(_epochs, plan, first_epoch, steps, rules)
    return jax.vmap(jax.vmap(one, in_axes=(None, 0, 0)))(problems, members, state)


def _epochs(
    plan: PublishedPlan,
    first_epoch: Array,
    steps: Array,
    rules: Array,
    problem: Problem,
    member: Member,
    state: Walk,
) -> tuple[Walk, Array]:
    def one(state: Walk, number: Array) -> tuple[Walk, Array]:
        epoch = first_epoch + number
        new, error = _epoch(plan, epoch, steps, rules, problem, member, state)
        # who has stopped stays as he is
        kept = jax.tree.map(lambda old, after: jnp.where(state.stopped, old, after), state, new)
        return kept, jnp.where(state.stopped, jnp.nan, error)

    return jax.lax.scan(one, state, jnp.arange(EPOCHS_AT_ONCE, dtype=jnp.int32))


def _epoch(
    plan: PublishedPlan,
    epoch: Array,
    steps: Array,
    rules: Array,
    problem: Problem,
    member: Member,
    state: Walk,
) -> tuple[Walk, Array]:
    direction = _optimizer(plan)
    order = (
        _shuffled(member, counter_rng.fold(member.key, 7 + 2 * epoch))
        if not plan.shape.twin
        else None
    )

    def step(number: Array, carry: Any) -> Any:
        parameters, momentum, total = carry
        key = counter_rng.fold(member.key, 8 + 2 * (epoch * steps + number))
        loss, gradient = jax.value_and_grad(_loss, argnums=1)(
            plan, parameters, problem, member, key, order, number
        )
        update, momentum = direction.update(gradient, momentum, parameters)
        parameters = jax.tree.map(lambda p, u: p - state.rate * u, parameters, update)
        return parameters, momentum, total + loss

    parameters, momentum, total = jax.lax.fori_loop(
        0, steps, step, (state.parameters, state.momentum, jnp.float32(0.0))
    )
    loss = total / steps
    # nothing left out: the training loss has to say when to stop
    unseen = _validation_loss(plan, parameters, problem, member)
    error = jnp.where(member.n_left_out > 0, unseen, loss)

    max_epochs, plateau, patience = rules
    fell = loss < state.least_loss - _LEAST_FALL
    level = jnp.where(fell, 0, state.level + 1)
    halve = level >= plateau
    better = error < state.least_error
    waited = jnp.where(better, 0, state.waited + 1)
    done = (waited >= patience) | (epoch + 1 >= max_epochs)
    walk = Walk(
        parameters,
        momentum,
        jnp.where(halve, 0.5 * state.rate, state.rate),
        jnp.where(fell, loss, state.least_loss),
        jnp.where(halve, 0, level),
        jnp.where(better, error, state.least_error),
        waited,
        done,
        state.epochs + 1,
    )
    return walk, jnp.sqrt(error)


def _shuffled(member: Member, key: Array) -> Array:
    """(row,) the rows that are learned from, in random order; padding comes last."""
    n = member.rows.shape[0]
    ticket = counter_rng.bits(key, 1, n)[0] >> 1
    last = jnp.uint32(2**32 - 1)
    return member.rows[jnp.argsort(jnp.where(jnp.arange(n) < member.n_rows, ticket, last))]


def _loss(
    plan: PublishedPlan,
    parameters: Parameters,
    problem: Problem,
    member: Member,
    key: Array,
    order: Any,
    number: Array,
) -> Array:
    size = plan.batch_size
    if order is not None:
        places = (number * size + jnp.arange(size)) % member.n_rows
        rows = order[places]
        first = halves(plan.shape, parameters, problem.X[rows], member.embedded)[0]
        square = jnp.mean((finish(plan.shape, parameters, first) - problem.y[rows]) ** 2, axis=-1)
        return jnp.mean(square * problem.weight[rows])
    if not plan.triples:
        a = member.rows[counter_rng.below(counter_rng.fold(key, 1), member.n_rows, size)]
        b = _others(plan, problem, member, a, counter_rng.fold(key, 2))
        pair = _differences(plan, parameters, problem, member, a, b)
        return _pair_loss(problem, member, pair, a, b)
    half = max(1, size // 2)
    corners = _triples(plan, problem, member, key, member.rows, member.n_rows, half)
    loss = LABELLED_SHARE * _triple_loss(plan, parameters, problem, member, corners)
    if plan.loops:
        around = _triples(
            plan, problem, member, counter_rng.fold(key, 9), member.pool, member.n_pool, half
        )
        sums = sum(
            _differences(plan, parameters, problem, member, around[i], around[(i + 1) % 3])
            for i in range(3)
        )
        loss = loss + LABELLED_SHARE * member.loop_weight * jnp.mean(sums**2)
    return loss


def _triples(
    plan: PublishedPlan,
    problem: Problem,
    member: Member,
    key: Array,
    rows: Array,
    n_rows: Array,
    size: int,
) -> list[Array]:
    """Three times (triple,) rows: random ones, or a random one and two of its partners."""
    drawn = [rows[counter_rng.below(counter_rng.fold(key, 1 + i), n_rows, size)] for i in range(3)]
    if plan.partner_table:
        known = member.learns[drawn[0]] > 0  # unlabelled rows have no partners
        for i in (1, 2):
            own = _others(plan, problem, member, drawn[0], counter_rng.fold(key, 4 + i))
            drawn[i] = jnp.where(known, own, drawn[i])
    return drawn


def _others(
    plan: PublishedPlan, problem: Problem, member: Member, rows: Array, key: Array
) -> Array:
    """A random partner for each row: of its table, or any."""
    if not plan.partner_table:
        return member.rows[counter_rng.below(key, member.n_rows, rows.shape[0])]
    which = counter_rng.bits(key, 1, rows.shape[0])[0]
    columns = (which % problem.n_partners).astype(jnp.int32)
    return problem.partners[rows, columns]


def _differences(
    plan: PublishedPlan,
    parameters: Parameters,
    problem: Problem,
    member: Member,
    a: Array,
    b: Array,
) -> Array:
    """(pair, output): the raw F, one order only, as the author trains it."""
    first = halves(plan.shape, parameters, problem.X[a], member.embedded)[0]
    second = halves(plan.shape, parameters, problem.X[b], member.embedded)[1]
    return finish(plan.shape, parameters, first + second)


def _pair_loss(problem: Problem, member: Member, predicted: Array, a: Array, b: Array) -> Array:
    square = jnp.mean((predicted - (problem.y[a] - problem.y[b])) ** 2, axis=-1)
    weight = problem.weight[a] * problem.weight[b] * member.learns[a] * member.learns[b]
    return jnp.mean(square * weight)


def _triple_loss(
    plan: PublishedPlan,
    parameters: Parameters,
    problem: Problem,
    member: Member,
    corners: list[Array],
) -> Array:
    """The mean over the three differences of each triple, in one pass through the network."""
    a = jnp.concatenate(corners)
    b = jnp.concatenate([corners[1], corners[2], corners[0]])
    predicted = _differences(plan, parameters, problem, member, a, b)
    return _pair_loss(problem, member, predicted, a, b)


def _validation_loss(
    plan: PublishedPlan, parameters: Parameters, problem: Problem, member: Member
) -> Array:
    """Of all left-out rows; of a twin, over the same triples of left-out rows every time."""
    rows = member.left_out
    inside = (jnp.arange(rows.shape[0]) < member.n_left_out).astype(jnp.float32)
    total = jnp.maximum(jnp.sum(inside), 1.0)
    if not plan.shape.twin:
        first = halves(plan.shape, parameters, problem.X[rows], member.embedded)[0]
        square = jnp.mean((finish(plan.shape, parameters, first) - problem.y[rows]) ** 2, axis=-1)
        return jnp.sum(inside * square) / total
    key = counter_rng.fold(member.key, 3)
    count = jnp.maximum(member.n_left_out, 1)
    others = [
        rows[counter_rng.below(counter_rng.fold(key, i), count, rows.shape[0])] for i in range(2)
    ]
    a = jnp.concatenate([rows, *others])
    b = jnp.concatenate([*others, rows])
    predicted = _differences(plan, parameters, problem, member, a, b)
    square = jnp.mean((predicted - (problem.y[a] - problem.y[b])) ** 2, axis=-1)
    return jnp.sum(jnp.tile(inside, 3) * square) / (3.0 * total)
