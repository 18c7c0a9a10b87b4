"""Training of many networks as one compiled program: problems × members.

A *problem* is a training set, scaled and padded; a *member* is one network with its own training
rows, held-out rows, hyperparameters and random numbers. Pairs are drawn on the device at every
step, so the n² pairs are never stored. The program is compiled once for a `TrainingConfig`; the
number of steps, learning rates and so on are data.

One step of a twin draws `batch_points` points and pairs each with `n_partners` others of the same
batch: embedding and first layer are computed once per point, not once per pair.
"""

from functools import partial, wraps
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax import Array

from twinned.models.neural.network import Halves, Network, Parameters, Shape
from twinned.models.neural.parameters import Setting
from twinned.models.neural.trainable_network import (
    TrainableNetwork,
    fold_in,
    initial_parameters,
    integers,
    random_bits,
    uniform,
)


class TrainingConfig(NamedTuple):
    """What determines the compiled program of training."""

    shape: Shape
    batch_points: int
    n_partners: int
    partner_table: bool  # pairs come from a fixed table, not from within the batch
    loops: bool = False  # the loss includes the inconsistency of loops
    censored: bool = False  # targets have bounds, and errors are distances to them
    dropout: bool = True  # at least one member has dropout; without, no masks are drawn
    check_anchors: int = 64
    one_member: bool = False  # the program is that of one member, not of a batch of members


Targets = tuple[jax.Array, ...]  # (…, output): y alone, or its lower and its upper bounds
jax.tree_util.register_dataclass(Setting)
AnyArray = Any  # an array of JAX while training, of numpy while it is assembled


class PseudoArrays(NamedTuple):
    """Pairs with pseudo-labels, which are trained on beside the pairs of training rows."""

    first: AnyArray  # (pair, column), scaled
    second: AnyArray
    difference: AnyArray  # (pair, output), scaled
    n_pairs: AnyArray  # () without padding
    weight: AnyArray  # () their number by that of the other pairs


class ProblemArrays(NamedTuple):
    """A training set; a batch of problems has the problem as the leading axis of every field."""

    X: AnyArray  # (row, column), scaled, padded with zeros
    y: AnyArray  # (row, output), scaled
    weight: AnyArray  # (row,)
    partners: AnyArray  # (row, partner) int32; (1, 1) without a partner table
    n_partners: AnyArray  # () columns of `partners` that are not padding
    lower: AnyArray = None  # (row, output) bounds of y, scaled, equal where it is known
    upper: AnyArray = None
    pseudo: PseudoArrays | None = None


class MemberArrays(NamedTuple):
    """The data of one network; a batch has the leading axes problem and member."""

    key: AnyArray
    rows: AnyArray  # (row,) int32; the first n_rows are training rows
    n_rows: AnyArray
    n_anchors: AnyArray  # the first of them, whose value is known
    is_training: AnyArray  # (row,) 1.0 for training rows, 0.0 for others
    held_out: AnyArray  # (row,) int32; the first n_held_out are not padding
    n_held_out: AnyArray
    last_check: AnyArray  # up to which parameters are taken
    setting: AnyArray  # a `Setting` of arrays
    n_features: AnyArray  # () without padding
    columns: AnyArray  # (feature,) int32: its features among the columns of X
    feature_scale: AnyArray  # (feature,) factors of the features: ones, or their relevance
    loop_weight: AnyArray
    loop_rows: AnyArray  # (row,) int32, labelled and unlabelled rows of loops; (1,) without loops
    n_loop_rows: AnyArray


class TrainingState(NamedTuple):
    """A member between two checks, and its best parameters so far."""

    parameters: Parameters
    momentum: optax.OptState
    best: Parameters
    best_error: Array


class Check(NamedTuple):
    """Predictions of the rows that a member holds out, in units of scaled y."""

    error: AnyArray  # () root mean square, from anchors spread over the training rows
    predicted: AnyArray  # (held-out row, output)


# The direction of a step; learning rate and weight decay are those of the member.
_OPTIMIZER = optax.scale_by_adam(b1=0.9, b2=0.99, eps=1e-8)

# Compiling takes little more than half the time at this level, and a step as long as before: most
# of its time is spent in matrix products, which are not compiled here.
_CPU_OPTIONS = {"xla_backend_optimization_level": 1}


def _compiled(program, **options):
    """Compile a program whose first argument is a `TrainingConfig`."""
    on_device, on_cpu = (
        jax.jit(program, static_argnames="config", compiler_options=compiler_options, **options)
        for compiler_options in (None, _CPU_OPTIONS)
    )

    @wraps(program)
    def call(config, *arguments):
        return (on_cpu if config.one_member else on_device)(config, *arguments)

    return call


@_compiled
def initial_state(
    config: TrainingConfig, problems: ProblemArrays, members: MemberArrays
) -> TrainingState:
    """The state of all members of all problems before their first step."""

    def one(problem: ProblemArrays, member: MemberArrays) -> TrainingState:
        key, scale = fold_in(member.key, 0), member.setting.frequency_scale
        parameters = initial_parameters(config.shape, key, member.n_features, scale)
        momentum = _OPTIMIZER.init(parameters)
        return TrainingState(parameters, momentum, parameters, jnp.float32(jnp.inf))

    return _over_members(config, one)(problems, members)


@partial(_compiled, donate_argnames="state")
def train_to_check(
    config: TrainingConfig,
    problems: ProblemArrays,
    members: MemberArrays,
    state: TrainingState,
    check: Array,
    schedule: Array,
) -> tuple[TrainingState, Check]:
    """Train up to the next check. `schedule` is (steps between checks, steps in total)."""

    def one(problem, member, state):
        return MemberTask(config, problem, member).train(state, check, *schedule)

    return _over_members(config, one)(problems, members, state)


def _over_members(config, one):
    """Vectorize a function of a problem, a member, and other data of the member.

    Where the program is that of one member, there are no leading axes: see `batch`.
    """

    def of_problem(problem, *data):
        return jax.vmap(partial(one, problem))(*data)

    return one if config.one_member else jax.vmap(of_problem)


class MemberTask(NamedTuple):
    """The training of one member on one problem."""

    config: TrainingConfig
    problem: ProblemArrays
    member: MemberArrays

    def train(
        self, state: TrainingState, check: Array, steps: Array, total_steps: Array
    ) -> tuple[TrainingState, Check]:
        """Train from one check to the next, and predict the held-out rows."""
        member, setting = self.member, self.member.setting

        def step(number, carry):
            parameters, momentum = carry
            gradient = jax.grad(self.loss)(parameters, fold_in(member.key, number + 1))
            update, momentum = _OPTIMIZER.update(gradient, momentum, parameters)
            rate = setting.learning_rate * _rate_factor(number.astype(jnp.float32) / total_steps)
            return _descend(parameters, update, rate, setting.weight_decay), momentum

        parameters, momentum = jax.lax.fori_loop(
            check * steps, (check + 1) * steps, step, (state.parameters, state.momentum)
        )
        shape = len(member.held_out), self.problem.y.shape[1]
        predicted = jax.lax.cond(
            member.n_held_out > 0,
            lambda: self.predict(parameters, self.config.check_anchors, block=64),
            lambda: jnp.zeros(shape),
        )
        error = self.held_out_error(predicted)
        # without held-out rows the error is 0 at every check, and the last parameters are the best
        better = (error <= state.best_error) & (check <= member.last_check)
        best = jax.tree.map(lambda new, old: jnp.where(better, new, old), parameters, state.best)
        best_error = jnp.where(better, error, state.best_error)
        return TrainingState(parameters, momentum, best, best_error), Check(error, predicted)

    def network(self, parameters: Parameters) -> Network:
        # so the frequencies of members without periodic embedding stay 0
        gate = jnp.float32(self.member.setting.frequency_scale > 0)
        return TrainableNetwork(self.config.shape, parameters, gate)

    def features(self, rows: Array) -> Array:
        """(..., feature): the features of rows, scaled by their relevance or not; 0 for padding."""
        return self.problem.X[rows[..., None], self.member.columns] * self.member.feature_scale

    def targets(self, rows: Array) -> Targets:
        """The values of rows, or their bounds."""
        if self.config.censored:
            return self.problem.lower[rows], self.problem.upper[rows]
        return (self.problem.y[rows],)

    def loss(self, parameters: Parameters, key: Array) -> Array:
        """Mean square error of a random batch: of differences, or of y of plain networks.

        The error of a pair with a censored row is its distance to the interval of the difference.
        """
        config, problem, member = self
        network, n_points = self.network(parameters), config.batch_points
        n_partners = config.n_partners
        drawn = member.rows[integers(fold_in(key, 1), member.n_rows, n_points)]
        masks = self._dropout_masks(fold_in(key, 2))
        y, weight = self.targets(drawn), problem.weight[drawn]
        first = network.first_layer(self.features(drawn))
        if not config.shape.twin:
            return _mean_square(_errors(network.output(first[0], masks), y), weight)
        if config.partner_table:
            bits = random_bits(fold_in(key, 3), n_partners, n_points)
            columns = (bits % problem.n_partners).astype(jnp.int32)
            partners = problem.partners[drawn, columns].ravel()  # partner by partner
            second = network.first_layer(self.features(partners))
            y_second = self.targets(partners)
            # a partner that is not a training row of the member makes no pair
            w_second = problem.weight[partners] * member.is_training[partners]
        else:
            # the partners of a point are the next ones of the batch, which is in random order
            following = partial(_following, n=n_partners)
            second, y_second, w_second = jax.tree.map(following, (first, y, weight))
        repeat = partial(_repeat, times=n_partners)
        first, y, weight = jax.tree.map(repeat, (first, y, weight))
        if masks is not None:
            # or the compiler draws and copies them anew wherever one is used
            masks = jax.lax.optimization_barrier([_repeat(mask, 2 * n_partners) for mask in masks])
        predicted = network.differences(first, second, masks)
        loss = _mean_square(_errors(predicted, _difference(y, y_second)), weight * w_second)
        if config.loops:
            loss += member.loop_weight * self.loop_loss(parameters, key)
        if problem.pseudo is not None:
            loss += problem.pseudo.weight * self.pseudo_loss(network, problem.pseudo, key)
        return loss

    def pseudo_loss(self, network: Network, pseudo: PseudoArrays, key: Array) -> Array:
        """Mean square error of random pairs with pseudo-labels."""
        columns, scale = self.member.columns, self.member.feature_scale
        drawn = integers(fold_in(key, 6), pseudo.n_pairs, self.config.batch_points)
        first, second = (
            network.first_layer(side[drawn][:, columns] * scale)
            for side in (pseudo.first, pseudo.second)
        )
        masks = jax.tree.map(partial(_repeat, times=2), self._dropout_masks(fold_in(key, 7)))
        predicted = network.differences(first, second, masks)
        return jnp.mean((predicted - pseudo.difference[drawn]) ** 2)

    def loop_loss(self, parameters: Parameters, key: Array) -> Array:
        """Mean square of the sums of differences around loops of three random points.

        The points of a batch form a ring, and each is the first of a loop over the next two: a
        ring of n points makes n loops of 2n differences, not 3n. No value of y is needed.
        """
        member = self.member
        network, key = self.network(parameters), fold_in(key, 5)
        rows = integers(key, member.n_loop_rows, self.config.batch_points)
        points = network.first_layer(self.features(member.loop_rows[rows]))

        def shifted(by: int) -> Halves:
            return tuple(jnp.roll(half, -by, axis=0) for half in points)

        to_next = network.differences(points, shifted(1))
        back = network.differences(shifted(2), points)
        return jnp.mean((to_next + jnp.roll(to_next, -1, axis=0) + back) ** 2)

    def _dropout_masks(self, key: Array) -> list[Array] | None:
        """One mask per layer and point, shared by all pairs with this first point."""
        if not self.config.dropout:
            return None
        keep, n_points = 1.0 - self.member.setting.dropout, self.config.batch_points
        return [
            jnp.where(uniform(fold_in(key, layer), n_points, size) < keep, 1 / keep, 0)
            for layer, size in enumerate(self.config.shape.hidden_sizes)
        ]

    def held_out_error(self, predicted: Array) -> Array:
        """Root mean square error of the predictions of held-out rows."""
        rows = self.member.held_out
        is_row = jnp.arange(rows.shape[0]) < self.member.n_held_out  # not padding
        weight = is_row * self.problem.weight[rows]
        return jnp.sqrt(_mean_square(_errors(predicted, self.targets(rows)), weight))

    def predict(self, parameters: Parameters, n_anchors: int, block: int) -> Array:
        """(held-out row, output): predictions from anchors spread over the training rows.

        `block` rows are computed at once, from their first layer on: there may be many.
        """
        problem, member, network = self.problem, self.member, self.network(parameters)
        spread = member.rows[(jnp.arange(n_anchors) * member.n_anchors) // n_anchors]
        spread_halves = network.first_layer(self.features(spread))

        def one(row: Array) -> Array:
            query = tuple(half[None] for half in network.first_layer(self.features(row)))
            if not network.shape.twin:
                return network.output(query[0])[0]
            return jnp.mean(network.differences(query, spread_halves) + problem.y[spread], axis=0)

        return jax.lax.map(one, member.held_out, batch_size=min(block, len(member.held_out)))


def _rate_factor(done: Array) -> Array:
    """Factor of the learning rate after a share of the steps: short rise, then half a cosine."""
    return jnp.minimum(1.0, done / 0.02) * 0.5 * (1.0 + jnp.cos(jnp.pi * done))


def _descend(parameters: Parameters, update: Parameters, rate: Array, decay: Array) -> Parameters:
    """Take one step; weights decay towards zero, biases and frequencies do not."""
    weights = ("weight", "linear", "periodic")
    return {
        name: value - rate * (update[name] + (decay * value if name.startswith(weights) else 0.0))
        for name, value in parameters.items()
    }


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


def _difference(first: Targets, second: Targets) -> Targets:
    """Values of y(first) − y(second), or its bounds."""
    if len(first) == 1:
        return (first[0] - second[0],)
    return first[0] - second[1], first[1] - second[0]


def _errors(predicted: Array, targets: Targets) -> Array:
    """Signed distances of predictions to values, or to the intervals between bounds."""
    if len(targets) == 1:
        return predicted - targets[0]
    return predicted - jnp.clip(predicted, *targets)


def _mean_square(error: Array, weight: Array) -> Array:
    square = jnp.mean(error**2, axis=-1)
    return jnp.sum(weight * square) / jnp.maximum(jnp.sum(weight), 1e-30)
