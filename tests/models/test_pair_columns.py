"""Choice between all pair features and differences alone."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import KFold

from twinned import SemiSupervisedTwinRegressor, TwinRegressor
from twinned.models.base_estimator import MAX_FEATURES
from twinned.models.sklearn import PairTrainingSet
from twinned.models.wide_tables import choose_pair_columns, held_out_error
from twinned.pairing.features import PairFeatures
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
    mask = np.isin(np.arange(30), known)
    error = held_out_error(BOOSTING, training, mask, columns, None)
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
    model = wrap(TwinRegressor(pairs=5, random_state=0))
    if not isinstance(model, TwinRegressor):
        y = np.where(np.arange(40) < 35, y, np.nan)
    model.fit(X, y)
    twin = model if isinstance(model, TwinRegressor) else model.twin_
    assert twin.estimator_.n_features_in_ == 3 * len(twin.selected_features_)
    # differences do not change when both rows are shifted
    shifted = twin.predict_difference(X[:5] + 1, X[5:10] + 1)
    np.testing.assert_allclose(shifted, twin.predict_difference(X[:5], X[5:10]))
