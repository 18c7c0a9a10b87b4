"""The loop loss and unlabelled rows."""

import jax.numpy as jnp
import numpy as np
import pytest

from twinned import NeuralTraining, TwinNeuralRegressor
from twinned.datasets import make_tf
from twinned.models.neural import training
from twinned.models.neural.network import Network, Shape
from twinned.models.neural.parameters import Setting
from twinned.models.neural.trainable_network import fold_in, initial_parameters, integers

X, y = (part.to_numpy() for part in make_tf(160, random_state=0))
SMALL = {
    "hidden_sizes": (32, 32),
    "n_members": 2,
    "training": NeuralTraining(n_folds=1, max_steps=600, batch_size=64),
    "random_state": 0,
}


def half_labelled(n_labelled=30):
    known = y.copy()
    known[n_labelled:] = np.nan
    return known


@pytest.mark.slow
def test_loop_loss_is_the_mean_square_of_sums_around_loops():
    shape = Shape(4, 2, (8, 8), 0, "silu", True)
    config = training.TrainingConfig(shape, 6, 4, False, True)
    key = jnp.uint32(3)
    parameters = initial_parameters(shape, key, jnp.int32(4), jnp.float32(0))
    features = np.random.RandomState(0).normal(size=(20, 4)).astype(np.float32)
    # the features of the network are the columns of X in reverse order
    X_reversed = jnp.asarray(features[:, ::-1])
    problem = training.ProblemArrays(
        X_reversed, np.zeros((20, 2)), np.ones(20), np.zeros((1, 1)), 1
    )
    loop_rows = jnp.arange(20, dtype=jnp.int32)
    empty = training.MemberArrays(*[None] * len(training.MemberArrays._fields))
    member = empty._replace(
        setting=Setting(0.0, 0.0, 0.0, 0.0),
        columns=jnp.arange(4)[::-1],
        feature_scale=jnp.ones(4),
        loop_rows=loop_rows,
        n_loop_rows=jnp.int32(20),
    )
    fast = training.MemberTask(config, problem, member).loop_loss(parameters, key)

    rows = np.asarray(loop_rows[integers(fold_in(key, 5), jnp.int32(20), 6)])

    network = Network(shape, parameters, jnp.float32(0))

    def F(a, b):
        sides = [network.first_layer(features[[i]]) for i in (a, b)]
        return np.asarray(network.differences(*sides))[0]

    sums = [
        F(i, j) + F(j, k) + F(k, i)
        for i, j, k in zip(rows, np.roll(rows, -1), np.roll(rows, -2), strict=True)
    ]
    assert np.mean(np.square(sums)) > 1e-3
    np.testing.assert_allclose(fast, np.mean(np.square(sums)), rtol=1e-4)


@pytest.mark.slow
def test_loops_through_unlabelled_rows_become_consistent():
    without = TwinNeuralRegressor(**SMALL).fit(X[:30], y[:30])
    with_loops = TwinNeuralRegressor(**SMALL, loop_weight=10.0).fit(X, half_labelled())
    assert with_loops.loop_inconsistency(X[30:], random_state=0).mean() < 0.6 * (
        without.loop_inconsistency(X[30:], random_state=0).mean()
    )
    assert np.sqrt(np.mean((with_loops.predict(X[30:]) - y[30:]) ** 2)) < 0.8 * y.std()


def test_only_labelled_rows_are_anchors():
    labels = half_labelled()
    labels[3] = np.nan
    twin = TwinNeuralRegressor(
        **{**SMALL, "training": NeuralTraining(n_folds=2, max_steps=60)}, loop_weight=0.5
    ).fit(X, labels)
    np.testing.assert_array_equal(twin.anchor_rows_, np.delete(np.arange(30), 3))
    np.testing.assert_array_equal(np.isfinite(twin.out_of_fold_prediction_), np.isfinite(labels))
    assert np.isfinite(twin.score(X, labels))


def test_unlabelled_rows_are_refused_without_loops():
    with pytest.raises(ValueError, match=r"y\[30\] = nan.*loop_weight > 0"):
        TwinNeuralRegressor(**SMALL).fit(X, half_labelled())


def test_a_row_is_unlabelled_in_all_outputs_or_none():
    both = np.column_stack([y, half_labelled()])
    with pytest.raises(ValueError, match=r"y\[30, 1\] = nan.*in all its outputs"):
        TwinNeuralRegressor(**SMALL, loop_weight=1.0).fit(X, both)


@pytest.mark.parametrize("known", [0, 1])
def test_fewer_than_two_labels_are_refused(known):
    with pytest.raises(ValueError, match=f"y has {known} known values in 160 rows"):
        TwinNeuralRegressor(**SMALL, loop_weight=1.0).fit(X, half_labelled(known))


@pytest.mark.parametrize("weight", [-1.0, np.inf])
def test_an_invalid_loop_weight_is_refused(weight):
    with pytest.raises(ValueError, match="loop_weight"):
        TwinNeuralRegressor(**SMALL, loop_weight=weight).fit(X, y)
