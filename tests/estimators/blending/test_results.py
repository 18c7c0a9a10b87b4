"""Out-of-fold predictions of the members of a blend, and blends of selected members."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from twinned import AutoTwinRegressor
from twinned.datasets import make_wsb


@pytest.mark.slow
@pytest.mark.parametrize("names", [["ridge"], ["extra_trees:fast", "gp_rbf"]])
def test_selected_members_equal_a_fit_with_these_members(names):
    X, y = make_wsb(60, random_state=0)
    members = ["ridge", "gp_rbf", "extra_trees:fast"]
    model = AutoTwinRegressor(members=members, time_budget=60, random_state=3).fit(X, y)
    selected = model.select_members(names)
    again = AutoTwinRegressor(**selected.get_params()).fit(X, y)
    assert sorted(selected.member_names_) == sorted(again.member_names_) == sorted(names)
    np.testing.assert_array_equal(selected.predict(X), again.predict(X))
    np.testing.assert_array_equal(selected.predict_interval(X), again.predict_interval(X))
    pd.testing.assert_frame_equal(selected.out_of_fold(), again.out_of_fold())
    assert set(model.member_names_) == set(members)  # unchanged


def test_out_of_fold_predictions_of_members():
    X, y = make_wsb(50, random_state=0)
    model = AutoTwinRegressor(members=["ridge", "gp_rbf"], random_state=0).fit(X, y)
    table = model.out_of_fold()
    np.testing.assert_array_equal(table["prediction"], model.out_of_fold_prediction_)
    rmse = np.sqrt(((table["ridge"] - y.to_numpy()) ** 2).mean())
    assert rmse == pytest.approx(model.leaderboard_.set_index("member")["rmse"]["ridge"])
    # fold by fold, ridge regression of the other folds on features standardized there
    for fold in range(table["fold"].max() + 1):
        own = table["fold"].to_numpy() == fold
        ridge = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))
        ridge.fit(X[~own], y[~own])
        np.testing.assert_allclose(table["ridge"][own], ridge.predict(X[own]))
    scores = np.sort(model.fitted_.calibration.scores)
    np.testing.assert_array_equal(np.sort(table["score"]), scores)
    with pytest.raises(AttributeError, match="fit it again"):
        pickle.loads(pickle.dumps(model)).out_of_fold()
    with pytest.raises(ValueError, match="names must be of"):
        model.select_members(["boosting"])


def test_members_with_power_transformations(rng):
    X = rng.lognormal(sigma=1.5, size=(50, 2))
    y = X[:, 0] * X[:, 1]
    members = ["ridge", "gp_rbf", "ridge_power", "gp_rbf_power"]
    model = AutoTwinRegressor(members=members, cv=3, random_state=0).fit(X[:40], y[:40])
    assert model.plan_ == model.member_names_ == members
    assert model.blend_["rmse"] < 0.1 * y.std()
    again = AutoTwinRegressor(members=model.plan_, cv=3, random_state=0).fit(X[:40], y[:40])
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    selected = model.select_members(["ridge_power"])
    alone = AutoTwinRegressor(**selected.get_params()).fit(X[:40], y[:40])
    np.testing.assert_array_equal(alone.predict(X), selected.predict(X))
    more = model.add_anchors(X[40:], y[40:])
    np.testing.assert_allclose(more.predict(X), model.predict(X), rtol=0.1, atol=0.1)


def test_intervals_of_a_single_member_have_one_scale():
    """The spread of one member is zero, and rounding errors of its mean must not be a scale."""
    X, y = make_wsb(120, random_state=0)
    model = AutoTwinRegressor(members=["gp_rbf"], random_state=1).fit(X, 3 * y)
    table = model.out_of_fold()
    scale = (table["y"] - table["prediction"]) / table["score"]
    assert scale.max() < 100 * scale.min()
    width = np.diff(model.predict_interval(X, 0.9))
    assert np.all(width < y.std())
