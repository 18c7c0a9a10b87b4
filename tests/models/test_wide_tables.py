"""Selection of features and of pair features of wide tables."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import KFold

from twinned import SemiSupervisedTwinRegressor, TwinRegressor
from twinned.models.base_estimator import MAX_FEATURES
from twinned.models.sklearn import PairTrainingSet
from twinned.models.wide_tables import (
    choose_pair_columns,
    distinct_features,
    held_out_error,
    important_features,
)
from twinned.pairing.pairs import PairFeatures
from twinned.rows.schema import TableSchema

BOOSTING = HistGradientBoostingRegressor(max_iter=20, min_samples_leaf=5, early_stopping=False)


def training_set(X, y, schema):
    features = PairFeatures("concat+difference", schema, np.dtype(np.float64))
    first, second = np.triu_indices(len(X), 1)
    rows = schema.to_rows(X)
    pairs = features.build(rows.take(first), rows.take(second))
    return PairTrainingSet(pairs, y[first] - y[second], {}, first, second, y), features


@pytest.fixture
def schema():
    return TableSchema(["numeric"] * 4, [[]] * 4, [0] * 4)


def test_differences_alone_where_effects_are_additive(schema, rng):
    X = rng.normal(size=(60, 4))
    training, features = training_set(X, X.sum(axis=1), schema)
    chosen = choose_pair_columns(BOOSTING, training, features, None)
    assert chosen.n_constant == features.n_concatenated == 8
    assert not chosen.pairs[:, :8].any()
    np.testing.assert_array_equal(chosen.pairs[:, 8:], training.pairs[:, 8:])
    assert training.pairs[:, :8].all()  # not changed
    further = chosen.with_pseudo_labels(np.ones((2, 12)), np.zeros(2))
    assert further.pairs[-2:].sum(axis=1).tolist() == [4.0, 4.0]


def test_all_columns_where_effects_interact(schema, rng):
    X = rng.uniform(-1, 1, size=(60, 4))
    training, features = training_set(X, 5 * np.abs(X[:, 0]) + np.abs(X[:, 1]), schema)
    assert choose_pair_columns(BOOSTING, training, features, None) is training


def test_other_estimators_keep_all_columns(schema, rng):
    X = rng.normal(size=(60, 4))
    training, features = training_set(X, X.sum(axis=1), schema)
    assert choose_pair_columns(RandomForestRegressor(), training, features, None) is training
    difference = PairFeatures("difference", schema, np.dtype(np.float64))
    assert choose_pair_columns(BOOSTING, training, difference, None) is training


def test_error_of_held_out_rows_is_that_of_a_slow_version(schema, rng):
    X, y = rng.normal(size=(30, 4)), rng.normal(size=30)
    training, _ = training_set(X, y, schema)
    columns = np.arange(8, 12)
    known, held_out = next(KFold(3, shuffle=True, random_state=0).split(X))
    model = HistGradientBoostingRegressor(**{**BOOSTING.get_params(), "random_state": 0})
    within = np.isin(training.first, known) & np.isin(training.second, known)
    model.fit(training.pairs[within][:, columns], training.target[within])
    errors = []
    for row in held_out:
        own = [
            y[j]
            + (model.predict([X[row] - X[j]])[0] if row < j else -model.predict([X[j] - X[row]])[0])
            for j in known
        ]
        errors.append(abs(np.mean(own) - y[row]))
    error = held_out_error(BOOSTING, training, columns[0], None)
    assert error == pytest.approx(np.mean(errors))


def test_pairs_within_groups_keep_all_columns(schema, rng):
    X = rng.normal(size=(60, 4))
    training, features = training_set(X, X.sum(axis=1), schema)
    groups = np.arange(60) // 10
    within = groups[training.first] == groups[training.second]
    training = training._replace(
        pairs=training.pairs[within],
        target=training.target[within],
        first=training.first[within],
        second=training.second[within],
        groups=groups,
    )
    assert choose_pair_columns(BOOSTING, training, features, None) is training


@pytest.mark.parametrize("wrap", [lambda twin: twin, SemiSupervisedTwinRegressor])
def test_a_wide_twin_of_differences(wrap, rng, monkeypatch):
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 10)
    X = rng.normal(size=(40, MAX_FEATURES + 1))
    y = X[:, :20].sum(axis=1)
    model = wrap(TwinRegressor(pairs=5, cv=0, random_state=0))
    if not isinstance(model, TwinRegressor):
        y = np.where(np.arange(40) < 35, y, np.nan)
    model.fit(X, y)
    twin = model if isinstance(model, TwinRegressor) else model.twin_
    assert twin.estimator_.n_features_in_ == 3 * len(twin.selected_features_)
    # differences do not change when both rows are shifted
    shifted = twin.predict_difference(X[:5] + 1, X[5:10] + 1)
    np.testing.assert_allclose(shifted, twin.predict_difference(X[:5], X[5:10]))


def distinct_one_by_one(matrix):
    """The slow version: each feature beside all distinct ones before it."""
    distinct = []
    for j in range(matrix.shape[1]):
        column = matrix[:, j]
        if np.ptp(column) == 0:
            continue
        order = np.argsort(np.argsort(column))  # no ties in the tests
        copies = [
            abs(np.corrcoef(column, matrix[:, i])[0, 1]) > 0.999
            and abs(np.corrcoef(order, np.argsort(np.argsort(matrix[:, i])))[0, 1]) > 0.999
            for i in distinct
        ]
        if not any(copies):
            distinct.append(j)
    return distinct


@given(seed=st.integers(0, 999), n_rows=st.integers(3, 40), n_copies=st.integers(0, 6))
def test_distinct_features(seed, n_rows, n_copies):
    rng = np.random.RandomState(seed)
    X = rng.normal(size=(n_rows, 4))
    copies = X[:, rng.randint(4, size=n_copies)] * rng.choice([-3.0, 0.5, 1e6], size=n_copies)
    X = np.column_stack([X, np.full(n_rows, 7.0), copies + rng.normal()])
    X = X[:, rng.permutation(X.shape[1])]
    assert distinct_features(X).tolist() == distinct_one_by_one(X)


def test_one_outlier_makes_no_copies():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(50, 2))
    X[0] = 1e6
    assert np.corrcoef(X.T)[0, 1] > 0.999
    assert distinct_features(X).tolist() == [0, 1]


def test_missing_values_are_information():
    X = np.ones((20, 3))
    X[:5, 1] = np.nan
    X[:, 2] = np.nan
    assert distinct_features(X).tolist() == [1]


@pytest.mark.parametrize("n_outputs", [0, 2])
@pytest.mark.parametrize("scale", [1.0, 1e200])
def test_important_features(n_outputs, scale):
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(120, 30))
    y = X[:, 3] + 2 * X[:, 7] * X[:, 20]
    y = np.column_stack([y, 1e-6 * X[:, 11]]) if n_outputs else y
    expected = {3, 7, 20, 11} if n_outputs else {3, 7, 20}
    X[:, 5] = 4 - X[:, 7]
    X[rng.uniform(size=X.shape) < 0.02] = np.nan
    selected = important_features(X * scale, y, 6)
    assert len(selected) == 6
    assert expected <= {7 if j == 5 else j for j in selected}
    assert (np.diff(selected) > 0).all()


def test_a_weight_is_a_repetition():
    rng = np.random.RandomState(1)
    X, y = rng.uniform(size=(40, 30)), rng.uniform(size=40)
    weight = rng.randint(1, 4, size=40)
    repeated = np.repeat(np.arange(40), weight)
    weighted = important_features(X, y, 10, weight)
    assert weighted.tolist() == important_features(X[repeated], y[repeated], 10).tolist()
    assert weighted.tolist() != important_features(X, y, 10).tolist()


def test_few_features_are_all_selected():
    assert important_features(np.ones((5, 3)), np.arange(5.0), 3).tolist() == [0, 1, 2]


def test_one_of_constant_features_is_selected():
    assert important_features(np.ones((5, 3)), np.arange(5.0), 2).tolist() == [0]
