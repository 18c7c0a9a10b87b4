"""Wide tables: features that the default twin selects, frequencies of the networks."""

import logging

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

import twinned
from twinned import HalfPairs, NeuralRegressor, NeuralTraining, TwinNeuralRegressor, TwinRegressor
from twinned.models.base_estimator import DEFAULT_PAIRS, FAST, MAX_FEATURES, THOROUGH
from twinned.models.neural.network import round_up
from twinned.models.neural.parameters import resolve_options
from twinned.models.neural.problem import build_problem


@pytest.fixture(autouse=True)
def few_iterations(monkeypatch):
    """Which features are used does not depend on the number of trees."""
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 15)


@pytest.fixture
def wide(rng):
    X = rng.uniform(size=(40, MAX_FEATURES + 30))
    X[:, 1] = 2.0
    X[:, 2] = 1 - 3 * X[:, 0]
    return X, X[:, 0] + 2 * X[:, -1] ** 2


def test_same_as_a_table_of_the_selected_features(wide, caplog, tmp_path):
    X, y = wide
    with caplog.at_level(logging.INFO, logger="twinned"):
        twin = TwinRegressor(cv=0, random_state=0).fit(X[:30], y[:30])
    assert f"{MAX_FEATURES} most important of {X.shape[1]} features" in caplog.text
    selected = twin.selected_features_
    assert len(selected) == MAX_FEATURES
    assert {0, X.shape[1] - 1} <= set(selected)
    assert not {1, 2} & set(selected)
    assert twin.estimator_.n_features_in_ == 3 * MAX_FEATURES
    smaller = TwinRegressor(cv=0, random_state=0).fit(X[:30][:, selected], y[:30])
    np.testing.assert_array_equal(twin.predict(X[30:]), smaller.predict(X[30:][:, selected]))
    # one query builds pairs, many take the fast path
    many = np.tile(X[30:], (40, 1))
    np.testing.assert_allclose(twin.predict(many)[0], twin.predict(X[30:31])[0])
    assert twin.n_features_in_ == twin.anchors_X_.shape[1] == X.shape[1]
    twinned.save(twin, tmp_path / "wide.twin")
    loaded = twinned.load(tmp_path / "wide.twin")
    np.testing.assert_array_equal(loaded.selected_features_, twin.selected_features_)
    np.testing.assert_array_equal(loaded.predict(X), twin.predict(X))


def test_categorical_features_of_a_wide_table(wide):
    X, y = wide
    frame = pd.DataFrame(X).rename(columns=str)
    frame["kind"] = pd.Categorical(np.where(np.arange(len(X)) % 2, "odd", "even"))
    twin = TwinRegressor(cv=0, random_state=0).fit(frame, y + 3 * (np.arange(len(X)) % 2))
    assert X.shape[1] in twin.selected_features_
    assert twin.estimator_.n_features_in_ == 3 * (MAX_FEATURES - 1) + 2 * 2 + 1
    other = frame.assign(kind=frame["kind"].cat.rename_categories({"odd": "even", "even": "odd"}))
    assert (twin.predict_difference(frame[1::2], other[1::2]) > 1).all()


def test_given_estimators_and_callables_see_all_features(wide):
    X, y = wide
    boosting = HistGradientBoostingRegressor(max_iter=2)
    for twin in (
        TwinRegressor(boosting),
        TwinRegressor(pair_features=lambda a, b: a - b, pairs=HalfPairs(50)),
    ):
        assert len(clone(twin).fit(X, y).selected_features_) == X.shape[1]


def test_narrow_tables_have_all_pairs_and_frequencies():
    for n_features in (1, 10, 20):
        assert THOROUGH.n_pairs(500, n_features) == DEFAULT_PAIRS
        boosting = THOROUGH.make_estimator(500, 1, n_features)
        assert (boosting.min_samples_leaf, boosting.max_bins) == (125, 255)
        assert (
            resolve_options(TwinNeuralRegressor()).frequencies_per_feature(round_up(n_features, 4))
            == 16
        )


def test_a_leaf_holds_the_same_share_of_fewer_pairs():
    boosting = THOROUGH.make_estimator(500, 1, 80)
    share = THOROUGH.n_pairs(500, 80) / DEFAULT_PAIRS
    assert boosting.min_samples_leaf == int(125 * share) == 19
    # 40 pairs per row of 300 rows, of 299 / 2
    assert FAST.make_estimator(300, 1, 10).min_samples_leaf == int(75 * 40 * 2 / 299) == 20
    # 40 rows have fewer pairs than the default
    assert THOROUGH.make_estimator(40, 1, 80).min_samples_leaf == 10


def test_networks_of_a_wide_table(rng):
    X, y = rng.uniform(size=(30, 64)), rng.uniform(size=30)
    X[:, 5] = X[:, 6]
    y = y + 10 * X[:, 9]
    twin = TwinNeuralRegressor(
        n_members=1,
        training=NeuralTraining(n_folds=1, max_steps=2, max_features=20),
        hidden_sizes=(4,),
        random_state=0,
    ).fit(X, y)
    selected = twin.selected_features_
    assert len(selected) == 20
    assert 9 in selected
    assert twin._shape["n_features"] == 24  # padded
    assert twin.anchors_X_.shape == X.shape
    changed = X.copy()
    changed[:, [j for j in range(64) if j not in selected]] = 0.5
    np.testing.assert_array_equal(twin.predict(changed), twin.predict(X))
    changed[:, 9] += 1
    assert (twin.predict(changed) != twin.predict(X)).all()


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [TwinNeuralRegressor, NeuralRegressor])
def test_settings_of_few_and_of_all_features(estimator, monkeypatch, rng):
    monkeypatch.setattr("twinned.models.neural.inputs.MAX_RELEVANT_FEATURES", 5)
    X, y = rng.uniform(size=(60, 12)), rng.normal(size=60)
    X[:, 3] = 1.0
    X[:, 8] = -X[:, 7]
    model = estimator(
        (4,), n_members=2, training=NeuralTraining(n_folds=2, max_steps=2), random_state=0
    )
    problem = build_problem(model, X, y)
    assert problem.is_wide
    expected = [j for j in range(12) if j not in (3, 8)]
    assert problem.selected.tolist() == expected
    for own in problem.inputs:
        assert len(own.columns) == len(expected)
        assert own.used[1].tolist() == [1.0] * len(expected)
        assert own.used[0].sum() == 5
        np.testing.assert_array_equal(own.relevance > 0, own.used > 0)
    fitted = model.fit(X, y)
    assert fitted.selected_features_.tolist() == expected
    for few in fitted._parameters["linear_0"]:
        n_used = np.count_nonzero(np.any(few[: len(expected)] != 0, axis=1))
        assert n_used in (5, len(expected))
    changed = X.copy()
    changed[:, [3, 8]] = 0.3
    np.testing.assert_array_equal(fitted.predict(changed), fitted.predict(X))


def test_all_features_are_used_without_a_maximum(monkeypatch, rng):
    monkeypatch.setattr("twinned.models.neural.inputs.MAX_RELEVANT_FEATURES", 5)
    model = TwinNeuralRegressor(
        (4,), n_members=1, training=NeuralTraining(max_features=None), random_state=0
    )
    problem = build_problem(model, np.ones((20, 8)), rng.normal(size=20))
    assert not problem.is_wide
    assert problem.n_columns == 8


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [TwinNeuralRegressor, NeuralRegressor])
def test_out_of_fold_predictions_do_not_depend_on_the_rows_they_predict(estimator, rng):
    X, y = rng.uniform(size=(48, 40)), rng.normal(size=48)
    # one setting and one check: nothing is chosen by the error of other folds, whose networks are
    # trained on these rows
    model = estimator(
        (4,),
        n_members=1,
        training=NeuralTraining(n_folds=2, max_steps=1, max_features=5),
        random_state=0,
    ).fit(X, y)
    problem = build_problem(model, X, y)
    of_fold, of_all = (problem.inputs[fold].columns.tolist() for fold in (0, -1))
    assert of_fold != of_all
    assert len(of_fold) == len(of_all) == len(model.selected_features_) == 5
    # rows of the first fold in another order of y: its scale is the same
    held_out = np.flatnonzero(np.isin(problem.merged_into, problem.folds[0]))
    changed = y.copy()
    changed[held_out] = np.roll(y[held_out], 1)
    other = clone(model).fit(X, changed)
    assert other.selected_features_.tolist() != model.selected_features_.tolist()
    predictions = [own.out_of_fold_prediction_ for own in (model, other)]
    np.testing.assert_allclose(*(own[held_out] for own in predictions), rtol=1e-6)
    training = np.setdiff1d(np.arange(48), held_out)
    assert (predictions[0][training] != predictions[1][training]).all()


def test_networks_with_one_fold_have_the_same_features(rng):
    X, y = rng.uniform(size=(48, 40)), rng.normal(size=48)
    model = TwinNeuralRegressor(
        (4,), n_members=1, training=NeuralTraining(n_folds=1, max_features=5), random_state=0
    )
    problem = build_problem(model, X, y)
    assert [own.columns.tolist() for own in problem.inputs] == [[0, 1, 2, 3, 4]] * 2


@pytest.mark.parametrize(("n_features", "expected"), [(24, 16), (48, 2), (64, 1), (100, 0)])
def test_frequencies_of_a_wide_table(n_features, expected):
    assert resolve_options(TwinNeuralRegressor()).frequencies_per_feature(n_features) == expected


@pytest.mark.parametrize(
    ("parameters", "n_features", "expected"),
    [
        ({}, 24, (400, 1000)),
        ({}, 64, (240, 600)),
        ({"max_steps": 200}, 64, (120, 200)),
        ({"max_steps": 100}, 64, (60, 100)),
        ({"fold_steps": 500}, 64, (500, 600)),
    ],
)
def test_steps_of_a_wide_table(parameters, n_features, expected):
    twin = TwinNeuralRegressor(effort="fast", training=NeuralTraining(**parameters))
    assert resolve_options(twin).steps(n_features) == expected
