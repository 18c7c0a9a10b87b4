"""The paper's own training, compared with slow and obvious versions."""

import warnings
from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

from paper import published, published_training
from paper.published import PublishedNetwork, PublishedTwin
from twinned import NearestAnchors, NearestPairs, RandomPairs
from twinned.datasets import make_tf
from twinned.models.neural.network import Shape, pad_to

X, y = (part.to_numpy() for part in make_tf(90, random_state=0))
LEARN, VALIDATE, TEST = slice(0, 64), slice(64, 76), slice(76, 90)
ROWS = {"X_val": X[VALIDATE], "y_val": y[VALIDATE]}


def short(kind, **changes):
    """An estimator whose networks are small."""
    model = kind(**{"random_state": 0, **changes})
    model.hidden_sizes = (16, 16)
    return model


def engine(twin, learning_rate=1.0):
    """The config, the data of one problem, and the key of one member."""
    shape = Shape(4, 1, (16, 16), 0, "relu", twin)
    data = published_training.NetworkData(
        X=pad_to(X[None], 1, 90, 4),
        y=y[None, :, None].astype(np.float32),
        weight=np.ones((1, 90), np.float32),
        rows=np.arange(90, dtype=np.int32)[None],
        n_rows=np.int32([64]),
        held_out=np.arange(64, 76, dtype=np.int32)[None],
        n_held_out=np.int32([12]),
        partners=np.zeros((1, 1, 1), np.int32),
        n_partners=np.uint32([1]),
        n_held_out_partners=np.int32([0]),
        loop_weight=np.float32([0.0]),
        unlabelled=np.arange(76, 90, dtype=np.int32)[None],
        n_unlabelled=np.int32([14]),
        n_features=np.int32([2]),
        learning_rate=np.float32([learning_rate]),
    )
    return published_training.PublishedConfig(shape, 16, twin, False), data, np.uint32([[7]])


def plain_forward(parameters, x):
    value = x
    for layer, name in enumerate(("linear", "weight_1", "weight_2")):
        value = value @ parameters[name] + parameters[f"bias_{layer}"]
        value = np.maximum(value, 0) if layer < 2 else value
    return value


def member(twin, **changes):
    """The losses of one member, its problem and its initial parameters."""
    config, data, keys = engine(twin)
    state = published_training.initial_epoch_state(config, data, keys)
    problem = type(data)(*(value[0] for value in data))._replace(**changes)
    parameters = {name: np.asarray(value[0, 0]) for name, value in state.parameters.items()}
    losses = published_training.PublishedLoss(config, problem, keys[0, 0])
    return losses, problem, parameters


def raw_difference(parameters, X, a, b):
    both = {**parameters, "linear": np.vstack([parameters["linear_0"], parameters["linear_1"]])}
    return plain_forward(both, np.concatenate([X[a], X[b]]))


CORNERS = [np.array([0, 5, 9]), np.array([3, 3, 1]), np.array([7, 2, 30])]


def test_triple_loss_is_the_mean_of_three_raw_differences():
    losses, problem, parameters = member(twin=True)
    fast = losses.of_triples(parameters, [jnp.array(c) for c in CORNERS])
    squares = []
    for triple in zip(*CORNERS, strict=True):
        for a, b in zip(triple, (*triple[1:], triple[0]), strict=True):
            predicted = raw_difference(parameters, problem.X, a, b)
            squares.append((predicted - (problem.y[a] - problem.y[b])) ** 2)
    np.testing.assert_allclose(fast, np.mean(squares), rtol=1e-5)


def test_loop_loss_is_the_square_of_the_mean_of_three_differences(monkeypatch):
    # the unlabelled triples are rows 80 to 88, three by three
    drawn = iter([np.array([4, 5, 6]), np.array([7, 8, 9]), np.array([10, 11, 12])])
    monkeypatch.setattr(published_training, "integers", lambda *_: next(drawn))
    losses, problem, parameters = member(twin=True)
    fast = losses.of_loops(parameters, [jnp.array(c) for c in CORNERS], np.uint32(1))
    triples = [*zip(*CORNERS, strict=True), (80, 83, 86), (81, 84, 87), (82, 85, 88)]
    squares = []
    for a, b, c in triples:
        total = sum(
            raw_difference(parameters, problem.X, *pair) for pair in ((a, b), (b, c), (c, a))
        )
        squares.append((total / 3) ** 2)
    np.testing.assert_allclose(fast, np.mean(squares), rtol=1e-5)


@pytest.mark.parametrize("n_rows", [35, 33, 32])
def test_the_last_batch_of_plain_networks_has_the_remaining_rows(n_rows):
    losses, problem, parameters = member(twin=False, n_rows=np.int32(n_rows))
    order = np.random.RandomState(0).permutation(64).astype(np.int32)
    steps = published.steps_per_epoch(n_rows, twin=False)
    parts = [order[:n_rows][start : start + 16] for start in range(0, n_rows, 16)]
    assert len(parts) == steps
    for step, rows in enumerate(parts):
        assert int(losses.rows_of_step(jnp.int32(step))) == len(rows)
        error = plain_forward({**parameters, "linear": parameters["linear_0"]}, problem.X[rows])
        expected = np.mean((error - problem.y[rows]) ** 2)
        fast = losses.of_rows(parameters, jnp.array(order), jnp.int32(step))
        np.testing.assert_allclose(fast, expected, rtol=1e-5)


@pytest.mark.parametrize(("k", "n_partners"), [(2, 2), (16, 2), (32, 4), (64, 9)])
def test_validation_pairs_of_nearest_pairs_are_nearest_validation_rows(k, n_partners):
    twin = PublishedTwin(pairs=NearestPairs(k, include_self=True))
    problem = published.build_published_problem(twin, X[LEARN], y[LEARN], None, *ROWS.values())
    data = published._stack_problems([twin], [problem], 4)
    assert data.n_held_out_partners[0] == n_partners
    nearest = {}
    for row in range(64, 76):
        apart = [np.linalg.norm(problem.X[row] - problem.X[other]) for other in range(64, 76)]
        nearest[row] = {64 + int(i) for i in np.argsort(apart)[:n_partners]}
        assert set(data.partners[0][row, :n_partners]) == nearest[row]
    config = published_training.PublishedConfig(None, 16, True, True)
    own = type(data)(*(value[0] for value in data))
    losses = published_training.PublishedLoss(config, own, np.uint32(7))
    drawn = np.array([losses._draw_held_out(np.uint32(i))[:12] for i in range(100)])
    assert {row: set(drawn[:, row - 64]) for row in nearest} == nearest


@pytest.mark.parametrize(
    "twin",
    [
        PublishedTwin(pairs=RandomPairs(8)),
        PublishedTwin("as_written", pairs=NearestPairs(8)),
        PublishedTwin(),
    ],
)
def test_other_validation_pairs_are_random(twin):
    problem = published.build_published_problem(twin, X[LEARN], y[LEARN], None, *ROWS.values())
    assert published._stack_problems([twin], [problem], 4).n_held_out_partners[0] == 0


def test_initial_weights_are_those_of_glorot():
    parameters = published_training.initial_epoch_state(*engine(twin=True)).parameters
    for name, fan_in, fan_out in (("linear_0", 4, 16), ("weight_1", 16, 16), ("weight_2", 16, 1)):
        bound = np.sqrt(6 / (fan_in + fan_out))
        weights = np.asarray(parameters[name][0, 0])[: 2 if name == "linear_0" else None]
        assert np.abs(weights).max() <= bound
        assert np.abs(weights).max() > 0.8 * bound
    assert not np.asarray(parameters["bias_0"]).any()


@pytest.mark.slow
def test_the_rate_halves_on_a_plateau_of_the_training_loss():
    # at a rate near zero the loss never falls: 20 epochs without a fall halve the rate
    config, data, keys = engine(twin=False, learning_rate=1e-12)
    schedule = published.SCHEDULES["as_published", False]
    state = published_training.initial_epoch_state(config, data, keys)
    limits = jnp.array([schedule.max_epochs, schedule.plateau, schedule.patience], jnp.int32)
    rates = []
    for first in range(0, 48, published_training.EPOCHS_AT_ONCE):
        state, _ = published_training.train_epochs(
            config, data, keys, state, jnp.int32(first), jnp.int32(4), limits
        )
        rates.append(float(state.rate[0, 0]) / 1e-12)
    # the first epoch counts as a fall; then 20 more
    np.testing.assert_allclose(rates, [1, 1, 0.5, 0.5, 0.5, 0.25], rtol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PublishedTwin, PublishedNetwork])
def test_training_stops_when_the_validation_loss_has_not_fallen_for_long(kind):
    model = short(kind, patience=6, max_epochs=400).fit(X[LEARN], y[LEARN], **ROWS)
    curve = model.learning_curve_[0]
    curve = curve[np.isfinite(curve)]
    assert len(curve) < 400
    assert int(np.argmin(curve)) == len(curve) - 1 - 6
    assert np.sqrt(np.mean((model.predict(X[TEST]) - y[TEST]) ** 2)) < 0.5 * y.std()


def test_no_more_epochs_than_allowed():
    model = short(PublishedNetwork, max_epochs=5).fit(X[LEARN], y[LEARN], **ROWS)
    assert np.isfinite(model.learning_curve_).sum() == 5


@pytest.mark.parametrize(
    "kind", [pytest.param(PublishedTwin, marks=pytest.mark.slow), PublishedNetwork]
)
def test_an_ensemble_of_diverged_members_is_refused(kind):
    # of the shape of the test above, whose program is compiled
    model = short(kind, max_epochs=3, learning_rate=1e30)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ValueError, match=r"networks diverged.*smaller learning_rate"):
            model.fit(X[LEARN], y[LEARN], **ROWS)
    assert not hasattr(model, "member_weights_")


@pytest.mark.parametrize("kind", [PublishedTwin, PublishedNetwork])
def test_everything_is_a_constructor_parameter(kind):
    model = kind(n_members=3, max_epochs=7)
    assert clone(model).get_params() == model.get_params()
    assert (model.n_members, model.learning_rate) == (3, 1.0)
    assert published.resolve_schedule(model).max_epochs == 7
    code, text = (published.resolve_schedule(kind(name)) for name in ("as_published", "as_written"))
    assert code.max_epochs != text.max_epochs
    assert (code.triples, text.triples) == (kind is PublishedTwin, False)
    assert code[2:] == text[2:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [partial(PublishedTwin, "as_published"), partial(PublishedNetwork, "as_written")],
)
def test_many_problems_at_once_equal_one(make):
    estimator = make(max_epochs=4, n_members=2, random_state=1)
    problems = [(X[i : i + n], y[i : i + n], None, *ROWS.values()) for i, n in ((0, 50), (5, 50))]
    for together, problem in zip(
        published.fit_published([estimator] * 2, problems), problems, strict=True
    ):
        alone = clone(estimator).fit(*problem)
        np.testing.assert_allclose(together.predict(X[TEST]), alone.predict(X[TEST]), atol=2e-4)


@pytest.mark.slow
def test_nearest_neighbor_twin_of_the_paper():
    model = short(
        PublishedTwin,
        pairs=NearestPairs(8, include_self=True),
        anchors=NearestAnchors(8),
        patience=20,
    ).fit(X[LEARN], y[LEARN], **ROWS)
    assert model.n_pairs_ == 64 * 8  # not mirrored: eight for each point
    assert np.sqrt(np.mean((model.predict(X[TEST]) - y[TEST]) ** 2)) < 0.5 * y.std()


@pytest.mark.slow
def test_the_loop_weight_0_is_the_supervised_training(monkeypatch):
    monkeypatch.setattr(PublishedTwin, "hidden_sizes", (16, 16))
    twins = [PublishedTwin(max_epochs=3, loop_weight=w, random_state=0) for w in (0.0, 10.0)]
    data = X[LEARN], y[LEARN], None, *ROWS.values(), X[TEST]
    zero, ten = published.fit_published(twins, [data] * 2)
    (again,) = published.fit_published(twins[:1], [data])
    np.testing.assert_allclose(zero.predict(X[TEST]), again.predict(X[TEST]), atol=1e-4)
    assert np.abs(zero.predict(X[TEST]) - ten.predict(X[TEST])).max() > 1e-3


def test_signed_maximum_scaling():
    data = X[LEARN], 100 * y[LEARN], None, X[VALIDATE], y[VALIDATE]
    problem = published.build_published_problem(PublishedNetwork(), *data)
    np.testing.assert_allclose(problem.X[:64].max(axis=0), 1.0)
    np.testing.assert_allclose(problem.X[:64].mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_array_equal(problem.y[:64, 0], 100 * y[LEARN])


def test_an_unknown_variant_is_refused():
    with pytest.raises(ValueError, match=r"variant must be.*'odd'"):
        PublishedTwin("odd").fit(X[LEARN], y[LEARN], **ROWS)
