"""Networks that hold out a fold as members, beside those that are trained on all rows."""

from types import SimpleNamespace

import numpy as np
import pytest

from twinned import NeuralRegressor, NeuralTraining, TwinNeuralRegressor
from twinned.models.neural import fitting
from twinned.models.neural.problem import build_problem
from twinned.models.neural.selection import TrainedMembers

TRAINING = {"n_folds": 2, "fold_steps": 60, "max_steps": 200, "fold_members": True}


def draw(n, noise=0.0):
    rng = np.random.RandomState(0)
    X = rng.uniform(-1, 1, (n, 2))
    return X, np.sin(3 * X[:, 0]) + X[:, 1] + noise * rng.normal(size=n)


@pytest.mark.parametrize("kind", [NeuralRegressor, TwinNeuralRegressor])
@pytest.mark.parametrize(("much_noise", "weight"), [(0.0, 0.5), (np.inf, 0.2)])
def test_fold_members_have_less_weight_where_there_is_little_noise(
    much_noise, weight, kind, monkeypatch
):
    monkeypatch.setattr(fitting, "_MUCH_NOISE", much_noise)
    monkeypatch.setattr(fitting, "_LEAST_FALL", 1.0)
    X, y = draw(40)
    training = NeuralTraining(**TRAINING)
    model = kind((16,), effort="small", n_members=3, training=training, random_state=0).fit(X, y)
    of_folds, of_all = model.member_weights_[:-3], model.member_weights_[-3:]
    assert of_folds.sum() == pytest.approx(weight)
    np.testing.assert_allclose(of_all, (1 - weight) / 3)
    members = model.predict_members(X)
    mean = of_folds @ members[:-3] + (1 - weight) * members[-3:].mean(axis=0)
    np.testing.assert_allclose(model.predict(X), mean, rtol=1e-4, atol=1e-5)
    errors = model.out_of_fold_prediction_ - y
    assert np.sqrt(np.mean(errors**2)) < 0.5 * y.std()


@pytest.mark.parametrize(
    ("noise", "least_fall", "expected"),
    [
        # (steps, networks) of the trial, of the networks that hold out a fold, and of the members
        (0.0, -9.0, [(60, 4), (200, 2), (200, 1), (200, 2)]),
        (0.0, 1.0, [(60, 4), (200, 2), (100, 1), (100, 2)]),
        (2.0, 1.0, [(60, 4), (60, 2), (60, 2)]),
        (2.0, -9.0, [(60, 4), (60, 2), (200, 2), (200, 1), (200, 2)]),
    ],
)
def test_more_networks_where_there_is_little_noise_or_the_error_still_falls(
    noise, least_fall, expected, monkeypatch
):
    trained = []
    train = fitting._train_members

    def recorded(config, group, members, max_steps, **options):
        trained.append((max_steps, len(members[0])))
        return train(config, group, members, max_steps, **options)

    monkeypatch.setattr(fitting, "_train_members", recorded)
    monkeypatch.setattr(fitting, "_MUCH_NOISE", 0.8)  # of a trial of a few steps
    monkeypatch.setattr(fitting, "_LEAST_FALL", least_fall)
    monkeypatch.setattr(fitting, "_LEAST_FALL_OF_HALF", least_fall)
    X, y = draw(80, noise)
    training = NeuralTraining(**TRAINING)
    NeuralRegressor((16,), effort="small", training=training, random_state=0).fit(X, y)
    assert trained == expected


def test_the_better_half_of_the_settings_is_trained_on():
    problem = SimpleNamespace(row_weight=np.ones(6), folds=[np.arange(4), np.array([4, 5])])
    errors = np.array([1.0, 1.0, 0.5, 0.2, np.nan, 0.1])  # of three settings
    kept, noise = fitting._best_settings(problem, errors)
    assert kept.tolist() == [0, 1]
    assert noise == pytest.approx(np.sqrt((4 * 0.25 + 2 * 0.04) / 6))


def test_networks_of_the_first_fold_and_of_the_others_are_in_order(monkeypatch):
    def train(config, group, members, max_steps, *, trial=False):
        # the first setting is the worst; errors and predictions have the numbers of the networks
        numbers = np.array([member.number for member in members[0]], dtype=np.float32)
        errors = np.where(numbers < n_folds, 0.1, 1e-3 * numbers)[:, None]
        return [TrainedMembers({"bias": numbers}, errors, numbers[:, None])]

    monkeypatch.setattr(fitting, "_train_members", train)
    n_folds, sizes = 3, {**TRAINING, "n_folds": 3}
    estimator = NeuralRegressor(effort="balanced", training=NeuralTraining(**sizes))
    problem = build_problem(estimator, *draw(40))
    settings = list(problem.options.settings)
    config = fitting.training_config([problem], settings)
    result = fitting._train_on_folds(config, [problem], settings)
    expected = [3, 4, 5, 6, 7, 8, 9, 10, 11]  # of the settings 1 to 3
    assert result.settings == settings[1:4]
    assert [member.number for member in result.members] == expected
    assert [member.fold for member in result.members] == [0, 1, 2] * 3
    assert [member.setting for member in result.members[::n_folds]] == settings[1:4]
    trained = result.trained[0]
    for values in (trained.parameters["bias"], trained.errors[:, 0] * 1e3, trained.predicted[:, 0]):
        np.testing.assert_allclose(values, expected, rtol=1e-6)


def test_more_folds_than_allowed_are_joined():
    X, y = draw(40)
    held_out = np.arange(40).reshape(4, 10)
    folds = [(np.setdiff1d(np.arange(40), rows), rows) for rows in held_out]
    estimator = NeuralRegressor(training=NeuralTraining(**TRAINING))
    problem = build_problem(estimator, X, y, folds=folds)
    assert [len(fold) for fold in problem.folds] == [20, 20]
    for training, fold in zip(problem.training, problem.folds, strict=True):
        np.testing.assert_array_equal(np.sort(np.append(training, fold)), np.arange(40))


def test_few_anchors_predict_as_all_of_them():
    X, y = draw(120, 0.3)
    training = NeuralTraining(max_steps=200)
    twin = TwinNeuralRegressor((16,), effort="small", training=training, random_state=0).fit(X, y)
    of_all = twin.predict(X)
    twin.condense_anchors(8)
    assert len(twin.anchors_y_) == 8
    assert np.sqrt(np.mean((twin.predict(X) - of_all) ** 2)) < 0.05 * of_all.std()


def test_fold_members_is_a_bool():
    training = NeuralTraining(fold_members=2)
    with pytest.raises(TypeError, match="fold_members must be True or False"):
        NeuralRegressor(training=training).fit(np.eye(6), np.arange(6.0))


@pytest.mark.parametrize(
    "kind", [pytest.param(NeuralRegressor, marks=pytest.mark.slow), TwinNeuralRegressor]
)
def test_fold_members_of_a_wide_table_have_their_own_features(kind):
    rng = np.random.RandomState(0)
    X = rng.normal(size=(80, 70))
    X[:, 0] = np.arange(80) == 3  # constant without row 3
    y = 2 * X[:, 69]
    training = NeuralTraining(**TRAINING)
    model = kind((16,), effort="small", n_members=3, training=training, random_state=0).fit(X, y)
    for predicted in model.predict_members(X):
        assert np.corrcoef(predicted, y)[0, 1] > 0.7
