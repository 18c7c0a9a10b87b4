"""Losses of networks with censored rows: distances to the bounds of y and of differences."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

from tests.models.neural.conftest import initial_parameters
from twinned import NeuralRegressor, NeuralTraining, TwinNeuralRegressor
from twinned.models.neural import training
from twinned.models.neural.network import Network, Shape
from twinned.models.neural.parameters import Setting
from twinned.models.neural.problem import build_problem
from twinned.models.neural.trainable_network import fold_in, integers

INF = np.inf
SMALL = {
    "hidden_sizes": (16,),
    "n_members": 2,
    "training": NeuralTraining(max_steps=60, fold_steps=30),
    "random_state": 0,
}


def slow_distance(value, low, high):
    return low - value if value < low else value - high if value > high else 0.0


@pytest.fixture
def bounds(rng):
    y = rng.normal(size=20)
    lower, upper = y.copy(), y.copy()
    lower[:5], upper[:5] = -INF, 0.1
    lower[5:9], upper[5:9] = 0.2, INF
    upper[9:12] += 0.5
    return lower, upper


@pytest.mark.parametrize("twin", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_loss_is_the_mean_square_of_distances_to_bounds(twin, bounds, rng):
    lower, upper = bounds
    shape = Shape(3, 1, (8,), 0, "silu", twin)
    n_points, n_partners = 12, 2 if twin else 1
    config = training.TrainingConfig(
        shape, n_points, n_partners, False, censored=True, dropout=False
    )
    key = jnp.uint32(5)
    parameters = initial_parameters(shape, key, jnp.int32(3), jnp.float32(0))
    X = rng.normal(size=(20, 3)).astype(np.float32)
    problem = training.ProblemArrays(
        X=X,
        y=np.full((20, 1), np.nan),  # not used
        weight=jnp.ones(20),
        partners=np.zeros((1, 1)),
        n_partners=1,
        lower=jnp.asarray(lower[:, None]),
        upper=jnp.asarray(upper[:, None]),
    )
    empty = training.MemberArrays(*[None] * len(training.MemberArrays._fields))
    member = empty._replace(
        setting=Setting(0.0, 0.0, 0.0, 0.0),
        rows=jnp.arange(20),
        n_rows=jnp.int32(20),
        columns=jnp.arange(3),
        feature_scale=jnp.ones(3),
    )
    problem = problem._replace(X=jnp.asarray(X))
    loss = jax.jit(training.MemberTask(config, problem, member).loss)(parameters, key)

    drawn = np.asarray(integers(fold_in(key, 1), jnp.int32(20), n_points))
    network = Network(shape, parameters, jnp.float32(0))

    @jax.jit
    def difference(a, b):
        return network.differences(network.first_layer(a), network.first_layer(b))[0, 0]

    @jax.jit
    def output(a):
        return network.output(network.first_layer(a)[0])[0, 0]

    squares = []
    if twin:
        for position, a in enumerate(drawn):
            for shift in (1, 2):
                b = drawn[(position + shift) % n_points]
                value = float(difference(X[[a]], X[[b]]))
                distance = slow_distance(value, lower[a] - upper[b], upper[a] - lower[b])
                squares.append(distance**2)
    else:
        for a in drawn:
            value = float(output(X[[a]]))
            squares.append(slow_distance(value, lower[a], upper[a]) ** 2)
    assert np.mean(squares) > 1e-3
    np.testing.assert_allclose(loss, np.mean(squares), rtol=1e-4)


def test_problem_has_scaled_bounds_and_known_rows_in_every_fold(rng):
    X, y = rng.normal(size=(30, 2)), rng.normal(size=30)
    y_upper = np.where(np.arange(30) < 20, 1.0, np.nan)
    partial = np.where(np.arange(30) < 20, np.nan, y)
    estimator = clone(TwinNeuralRegressor(**SMALL)).set_params(training__n_folds=5)
    problem = build_problem(estimator, X, partial, y_upper=y_upper)
    assert problem.is_censored.sum() == 20
    known = ~problem.is_censored
    np.testing.assert_array_equal(problem.bounds.lower[known], problem.y[known])
    assert (problem.bounds.lower < problem.bounds.upper)[~known].all()
    assert np.isfinite(problem.bounds.lower).all()
    limit = problem.scale.inverse_transform_y(problem.bounds.upper[~known])
    np.testing.assert_allclose(limit, 1.0)
    assert [int(known[fold].sum()) for fold in problem.folds] == [2] * 5
    errors = problem.errors(np.full((10, 1), 1e9), np.flatnonzero(known))
    np.testing.assert_allclose(errors, 1e9, rtol=1e-6)


def test_bounds_that_equal_y_change_nothing(rng):
    X, y = rng.normal(size=(25, 2)), rng.normal(size=25)
    plain = TwinNeuralRegressor(**SMALL).fit(X, y)
    with_bounds = TwinNeuralRegressor(**SMALL).fit(X, y, y_lower=y, y_upper=y)
    np.testing.assert_array_equal(plain.predict(X), with_bounds.predict(X))


@pytest.mark.parametrize(
    "estimator", [TwinNeuralRegressor, pytest.param(NeuralRegressor, marks=pytest.mark.slow)]
)
def test_networks_learn_that_values_are_beyond_a_limit(estimator, rng):
    X = rng.uniform(-1, 1, (80, 1))
    y = X[:, 0]
    low = y < 0
    options = {**SMALL, "training": NeuralTraining(max_steps=300, fold_steps=100)}
    model = estimator(**options).fit(X, np.where(low, np.nan, y), y_upper=np.where(low, 0.0, y))
    assert (model.predict(X[y < -0.3]) < 0.1).all()
    assert np.isfinite(model.out_of_fold_prediction_).all()
    if estimator is TwinNeuralRegressor:
        np.testing.assert_array_equal(model.anchor_rows_, np.flatnonzero(~low))
        np.testing.assert_array_equal(model.anchors_y_, y[~low])
