"""Features with too few known values, in a fit and in the training rows of a fold."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from twinned import AutoTwinRegressor, TwinRegressor, cross_conformal
from twinned.diagnostics import diagnose
from twinned.estimators.twin import Pairs
from twinned.exceptions import UnusedFeatureWarning

SMALL = HistGradientBoostingRegressor(max_iter=10, min_samples_leaf=5, early_stopping=False)


@pytest.fixture(autouse=True)
def few_iterations(monkeypatch):
    """Which features are used does not depend on the number of trees."""
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 10)


def table(n_known, n_rows=30):
    """Three features, of which "b" is known in the first rows only."""
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.normal(size=(n_rows, 3)), columns=list("abc"))
    X.loc[n_known:, "b"] = np.nan
    return X, 2 * X["a"] + rng.normal(scale=0.1, size=n_rows)


@pytest.mark.parametrize("n_known", [0, 1])
def test_an_unknown_feature_is_not_used_and_named(n_known):
    X, y = table(n_known)
    with pytest.warns(UnusedFeatureWarning, match=r"not used: \['b'\]"):
        twin = TwinRegressor(cv=0, random_state=0).fit(X, y)
    assert twin.selected_features_.tolist() == [0, 2]
    queries = X.assign(b=1.0)
    np.testing.assert_array_equal(twin.predict(queries), twin.predict(queries.assign(b=np.nan)))
    without = TwinRegressor(cv=0, random_state=0).fit(X[["a", "c"]], y)
    np.testing.assert_array_equal(twin.predict(X), without.predict(X[["a", "c"]]))


def test_an_unknown_categorical_feature_is_not_used():
    X, y = table(30)
    X["b"] = pd.Categorical(["u"] + [None] * 29)
    with pytest.warns(UnusedFeatureWarning, match="'b'"):
        twin = TwinRegressor(SMALL).fit(X, y)
    assert np.isfinite(twin.predict(X)).all()


def test_two_known_values_are_used_without_a_warning():
    X, y = table(2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        twin = TwinRegressor(SMALL, random_state=0).fit(X, y)
    assert twin.selected_features_.tolist() == [0, 1, 2]


def test_a_feature_that_rows_held_out_for_early_stopping_alone_know_is_not_used():
    X, y = table(2)
    stopping = HistGradientBoostingRegressor(max_iter=5, early_stopping=True)
    n_dropped = 0
    for seed in range(8):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            TwinRegressor(stopping, pairs=5, random_state=seed).fit(X, y)
        n_dropped += any(one.category is UnusedFeatureWarning for one in caught)
    assert n_dropped > 0


def test_a_table_without_known_features_is_refused():
    X, y = table(1)
    with pytest.raises(ValueError, match=r"no feature with enough known values.*\['b'\]"):
        TwinRegressor().fit(X[["b"]], y)


def test_intervals_from_folds_without_known_values():
    X, y = table(2)
    with pytest.warns(UnusedFeatureWarning, match="'b'"):
        intervals = cross_conformal(TwinRegressor(SMALL, random_state=0), X, y).predict_interval(X)
    assert np.isfinite(intervals).all()


def test_a_blend_names_features_that_are_unknown_in_a_fold():
    X, y = table(2)
    blend = AutoTwinRegressor(members=["ridge", ("twin", TwinRegressor(SMALL))], random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        blend.fit(X, y)
    messages = [str(one.message) for one in caught if one.category is UnusedFeatureWarning]
    assert len(messages) == 1
    assert "['b']" in messages[0]
    assert blend.skipped_ == {}


@pytest.mark.slow
def test_boosted_twins_of_a_blend_are_fitted_where_a_fold_knows_nothing():
    X, y = table(1)
    with pytest.warns(UnusedFeatureWarning, match="'b'"):
        blend = AutoTwinRegressor(members=["tree_twin:fast"], random_state=0).fit(X, y)
    assert blend.skipped_ == {}


def test_diagnosis_where_a_fold_knows_nothing_of_a_feature():
    X, y = table(1, n_rows=40)
    blend = AutoTwinRegressor(members=["ridge", ("twin", TwinRegressor(SMALL))], random_state=0)
    with pytest.warns(UnusedFeatureWarning, match="'b'"):
        diagnosis = diagnose(X, y, estimator=blend, budget=20)
    assert set(diagnosis.leaderboard["model"]) >= {"ridge", "twin"}


def test_known_features_count_pairs_with_two_known_rows():
    """Against a loop over pairs, for random tables and pairs."""
    from twinned.estimators.twin import known_features

    rng = np.random.RandomState(1)
    for _ in range(20):
        matrix = np.where(rng.rand(12, 4) < 0.7, np.nan, 1.0)
        first, second = rng.randint(12, size=(2, 6))
        expected = [
            any(
                i != j and not np.isnan(matrix[[i, j], k]).any()
                for i, j in zip(first, second, strict=True)
            )
            for k in range(4)
        ]
        assert known_features(matrix, Pairs(first, second, None)).tolist() == expected
