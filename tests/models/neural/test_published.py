"""The paper's own training, compared with slow and obvious versions."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

from twinned import NearestAnchors, NearestPairs, NeuralRegressor, TwinNeuralRegressor
from twinned.datasets import make_tf
from twinned.models.neural import published
from twinned.models.neural.batch import fold_members, stack_problems
from twinned.models.neural.network import Shape
from twinned.models.neural.parameters import member_settings
from twinned.models.neural.problem import build_problem
from twinned.models.neural.published_loss import PublishedConfig, PublishedLoss
from twinned.neural import fit_many

X, y = (part.to_numpy() for part in make_tf(90, random_state=0))
LEARN, VALIDATE, TEST = slice(0, 64), slice(64, 76), slice(76, 90)


def short(cls, **changes):
    return cls.as_published(**{"random_state": 0, "hidden_sizes": (16, 16), **changes})


def engine(estimator, twin, loops=False):
    """The config, the schedule, and a batch of one problem and one member."""
    problem = build_problem(
        estimator, X[LEARN], y[LEARN], None, X[VALIDATE], y[VALIDATE], twin=twin
    )
    shape = Shape(4, 1, tuple(estimator.hidden_sizes), 0, "relu", twin)
    own = fold_members(problem, member_settings(estimator))
    problems, members = stack_problems([problem], [own], 4, float(loops))
    schedule = published.resolve_schedule(estimator, twin)
    config = PublishedConfig(shape, 16, schedule.triples, False, loops, "adadelta")
    return config, schedule, problems, members


def first_of(batch, axes):
    return type(batch)(*(value[(0,) * axes] for value in batch))


def plain_forward(parameters, x):
    value = x
    for layer, name in enumerate(("linear", "weight_1", "weight_2")):
        value = value @ parameters[name] + parameters[f"bias_{layer}"]
        value = np.maximum(value, 0) if layer < 2 else value
    return value


def test_triple_loss_is_the_mean_of_three_raw_differences():
    config, _, problems, members = engine(short(TwinNeuralRegressor), twin=True)
    state = published.initial_epoch_state(config, problems, members)
    problem, member = first_of(problems, 1), first_of(members, 2)
    parameters = {name: np.asarray(value[0, 0]) for name, value in state.parameters.items()}
    corners = [np.array([0, 5, 9]), np.array([3, 3, 1]), np.array([7, 2, 30])]
    losses = PublishedLoss(config, problem, member)
    fast = losses.of_triples(parameters, [jnp.array(c) for c in corners])

    both = {**parameters, "linear": np.vstack([parameters["linear_0"], parameters["linear_1"]])}
    features, values = np.asarray(problem.X), np.asarray(problem.y)
    squares = []
    for triple in zip(*corners, strict=True):
        for a, b in zip(triple, (*triple[1:], triple[0]), strict=True):
            predicted = plain_forward(both, np.concatenate([features[a], features[b]]))
            squares.append((predicted - (values[a] - values[b])) ** 2)
    np.testing.assert_allclose(fast, np.mean(squares), rtol=1e-5)


def test_initial_weights_are_those_of_glorot():
    config, _, problems, members = engine(short(TwinNeuralRegressor), twin=True)
    parameters = published.initial_epoch_state(config, problems, members).parameters
    for name, fan_in, fan_out in (("linear_0", 4, 16), ("weight_1", 16, 16), ("weight_2", 16, 1)):
        bound = np.sqrt(6 / (fan_in + fan_out))
        weights = np.asarray(parameters[name][0, 0])[: 2 if name == "linear_0" else None]
        assert np.abs(weights).max() <= bound
        assert np.abs(weights).max() > 0.8 * bound
    assert not np.asarray(parameters["bias_0"]).any()


@pytest.mark.slow
def test_the_rate_halves_on_a_plateau_of_the_training_loss():
    # at a rate near zero the loss never falls: 20 epochs without a fall halve the rate
    estimator = short(NeuralRegressor, learning_rate=1e-12)
    config, schedule, problems, members = engine(estimator, twin=False)
    state = published.initial_epoch_state(config, problems, members)
    limits = jnp.array([schedule.max_epochs, schedule.plateau, schedule.patience], jnp.int32)
    rates = []
    for first in range(0, 48, published.EPOCHS_AT_ONCE):
        state, _ = published.train_epochs(
            config, problems, members, state, jnp.int32(first), jnp.int32(4), limits
        )
        rates.append(float(state.rate[0, 0]) / 1e-12)
    # the first epoch counts as a fall; then 20 more
    np.testing.assert_allclose(rates, [1, 1, 0.5, 0.5, 0.5, 0.25], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [TwinNeuralRegressor, NeuralRegressor])
def test_training_stops_when_the_validation_loss_has_not_fallen_for_long(cls):
    model = short(cls, patience=6, max_epochs=400)
    model.fit(X[LEARN], y[LEARN], X_val=X[VALIDATE], y_val=y[VALIDATE])
    curve = model.learning_curve_[0]
    curve = curve[np.isfinite(curve)]
    assert len(curve) < 400
    assert int(np.argmin(curve)) == len(curve) - 1 - 6
    assert np.sqrt(np.mean((model.predict(X[TEST]) - y[TEST]) ** 2)) < 0.5 * y.std()


def test_no_more_epochs_than_allowed():
    model = short(NeuralRegressor, max_epochs=5).fit(X[LEARN], y[LEARN])
    assert np.isfinite(model.learning_curve_).sum() == 5


@pytest.mark.parametrize(
    "cls", [pytest.param(TwinNeuralRegressor, marks=pytest.mark.slow), NeuralRegressor]
)
def test_an_ensemble_of_diverged_members_is_refused(cls):
    # of the shape of the test above, whose program is compiled
    model = short(cls, max_epochs=3, learning_rate=1e30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"networks diverged.*smaller learning_rate"):
            model.fit(X[LEARN], y[LEARN])
    assert not hasattr(model, "member_weights_")


@pytest.mark.parametrize("cls", [TwinNeuralRegressor, NeuralRegressor])
def test_everything_is_a_constructor_parameter(cls):
    model = cls.as_published(n_members=3)
    assert clone(model).get_params() == model.get_params()
    assert model.n_members == 3
    assert (model.recipe, model.optimizer, model.learning_rate) == ("published", "adadelta", 1.0)
    written, code = cls.as_written().get_params(), cls.as_published().get_params()
    assert {name for name in code if code[name] != written[name]} == {"recipe", "max_epochs"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cls", "recipe"), [(TwinNeuralRegressor, "as_published"), (NeuralRegressor, "as_written")]
)
def test_fit_many_equals_fit(cls, recipe):
    estimator = getattr(cls, recipe)(hidden_sizes=(8, 8), max_epochs=4, n_members=2, random_state=1)
    problems = [
        (X[i : i + n], y[i : i + n], None, X[VALIDATE], y[VALIDATE]) for i, n in ((0, 50), (5, 40))
    ]
    for together, (X_own, y_own, _, X_val, y_val) in zip(
        fit_many(estimator, problems), problems, strict=True
    ):
        alone = clone(estimator).fit(X_own, y_own, X_val=X_val, y_val=y_val)
        np.testing.assert_allclose(together.predict(X[TEST]), alone.predict(X[TEST]), atol=2e-4)


@pytest.mark.slow
def test_nearest_neighbor_twin_of_the_paper():
    model = short(
        TwinNeuralRegressor,
        pairs=NearestPairs(8, include_self=True),
        anchors=NearestAnchors(8),
        patience=20,
    ).fit(X[LEARN], y[LEARN], X_val=X[VALIDATE], y_val=y[VALIDATE])
    assert model.n_pairs_ == 64 * 8  # not mirrored: eight for each point
    assert np.sqrt(np.mean((model.predict(X[TEST]) - y[TEST]) ** 2)) < 0.5 * y.std()


def test_signed_maximum_scaling():
    problem = build_problem(short(NeuralRegressor), X, 100 * y, twin=False)
    np.testing.assert_allclose(problem.X.max(axis=0), 1.0)
    np.testing.assert_allclose(problem.X.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_array_equal(problem.y[:, 0], 100 * y)


@pytest.mark.parametrize("name", ["recipe", "scaling"])
def test_an_unknown_choice_is_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be.*'odd'"):
        TwinNeuralRegressor(**{name: "odd"}).fit(X, y)


def test_a_failed_fit_does_not_change_the_estimator():
    model = NeuralRegressor((8,), n_members=1, n_folds=1, max_steps=20, random_state=0).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="infinity"):
        model.fit(X[:, :1] + np.inf, y)
    np.testing.assert_array_equal(model.predict(X), before)
