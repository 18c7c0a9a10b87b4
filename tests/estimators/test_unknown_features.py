"""Features with too few known values, in a fit and in the training rows of a fold."""

import logging

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from twinned import AutoTwinRegressor, TwinRegressor, cross_conformal
from twinned.diagnostics import diagnose

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
def test_an_unknown_feature_is_not_used(n_known, caplog):
    X, y = table(n_known)
    with caplog.at_level(logging.INFO, logger="twinned"):
        twin = TwinRegressor(cv=0, random_state=0).fit(X, y)
    assert "too few known values are not used" in caplog.text
    # the difference of two rows is never known
    queries = X.assign(b=1.0 if n_known == 0 else X["b"])
    np.testing.assert_array_equal(twin.predict(queries), twin.predict(X.assign(b=np.nan)))


def test_an_unknown_feature_changes_nothing():
    X, y = table(0)
    twin = TwinRegressor(SMALL, random_state=0).fit(X, y)
    without = TwinRegressor(SMALL, random_state=0).fit(X[["a", "c"]], y)
    np.testing.assert_array_equal(twin.predict(X), without.predict(X[["a", "c"]]))


def test_unknown_categories_and_a_table_without_known_features():
    X, y = table(30)
    X["b"] = pd.Categorical(["u"] + [None] * 29)
    assert np.isfinite(TwinRegressor(SMALL).fit(X, y).predict(X)).all()
    X, y = table(1)
    predicted = TwinRegressor(SMALL).fit(X[["b"]], y).predict(X[["b"]])
    np.testing.assert_allclose(predicted[1:], y.mean(), atol=np.ptp(y))


@pytest.mark.parametrize("n_known", [1, 2])
def test_folds_without_known_values(n_known):
    X, y = table(n_known)
    intervals = cross_conformal(TwinRegressor(SMALL, random_state=0), X, y).predict_interval(X)
    assert np.isfinite(intervals).all()
    blend = AutoTwinRegressor(members=["ridge", ("twin", TwinRegressor(SMALL))], random_state=0)
    assert blend.fit(X, y).skipped_ == {}


def test_diagnosis_where_a_fold_knows_nothing_of_a_feature():
    X, y = table(1, n_rows=40)
    blend = AutoTwinRegressor(members=["ridge", ("twin", TwinRegressor(SMALL))], random_state=0)
    diagnosis = diagnose(X, y, estimator=blend, budget=20)
    assert set(diagnosis.leaderboard["model"]) >= {"ridge", "twin"}
