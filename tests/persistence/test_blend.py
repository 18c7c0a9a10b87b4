"""Files of `AutoTwinRegressor`: equal after loading, refused where altered."""

import pickle
from dataclasses import replace

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import twinned
from twinned import (
    AutoTwinRegressor,
    NeuralTraining,
    TransformedTargetTwin,
    TwinNeuralRegressor,
    TwinRegressor,
)
from twinned.estimators.blending.members import AUTO, SIZES

SMALL = ["ridge", "gp_matern", "gp_rbf", "extra_trees", "boosting", "tree_twin"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(90, 3)), columns=["a", "b", "c"])
    X["kind"] = pd.Categorical(rng.choice(["red", "green", "blue"], 90))
    y = np.sin(X["a"]) + (X["kind"] == "red") + 0.1 * rng.normal(size=90)
    X.loc[[3, 80], "b"] = np.nan
    return X, y.to_numpy()


@pytest.fixture(scope="module")
def blend(table):
    """A blend with a member of each kind."""
    X, y = table
    network = TwinNeuralRegressor(
        (4,), n_members=1, training=NeuralTraining(max_steps=5, fold_steps=5)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "fast", SIZES["fast"]._replace(trees=3, boosting_iterations=3))
        patch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 3)
        model = AutoTwinRegressor(
            members=[*SMALL, ("network", network)], effort="fast", cv=2, random_state=0
        )
        return model.fit(X[:70], y[:70])


@pytest.fixture(scope="module", autouse=True)
def two_trees():
    """Fit the error scale of the intervals with two trees: many tests load them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "twinned.fitted.calibration.ExtraTreesRegressor",
            lambda n_estimators, **parameters: ExtraTreesRegressor(2, **parameters),
        )
        yield


@pytest.fixture(scope="module")
def small_bytes(table, tmp_path_factory):
    members = ["ridge", "gp_rbf", ("twin", TwinRegressor(Ridge()))]
    model = AutoTwinRegressor(members=members, cv=2, random_state=0).fit(*table)
    path = tmp_path_factory.mktemp("blend") / "model.twin"
    twinned.save(model, path)
    return path.read_bytes()


def test_members_with_power_transformations(table, tmp_path):
    X, y = table
    X = X.assign(a=np.exp(2 * X["a"]))
    members = ["ridge_power", "gp_rbf_power"]
    model = AutoTwinRegressor(members=members, cv=2, random_state=0).fit(X[:70], np.exp(y[:70]))
    twinned.save(model, tmp_path / "model.twin")
    assert_equal_models(model, twinned.load(tmp_path / "model.twin"), X[70:])


@pytest.fixture
def file(small_bytes, tmp_path, model_file):
    """The file of a small blend, to be altered."""
    file = model_file(tmp_path / "model.twin")
    file.path.write_bytes(small_bytes)
    return file


def assert_equal_models(model, other, X):
    for result in (
        lambda own: own.predict(X),
        lambda own: own.predict(X, return_std=True)[1],
        lambda own: own.predict_interval(X),
        lambda own: own.predict_members(X),
        lambda own: own.predict_difference(X, X[::-1]),
        lambda own: own.feature_relevance_,
        lambda own: own.out_of_fold_prediction_,
        lambda own: own.member_weights_,
    ):
        assert np.array_equal(result(other), result(model))
    pd.testing.assert_frame_equal(other.explain(X), model.explain(X), check_exact=True)
    pd.testing.assert_frame_equal(other.leaderboard_, model.leaderboard_, check_exact=True)
    assert str(other.contribution_) == str(model.contribution_)
    assert (other.blend_, other.skipped_) == (model.blend_, model.skipped_)
    assert str(other.plan_) == str(model.plan_)
    assert str(other) == str(model)


def test_equal_after_loading(blend, saved, table):
    assert set(blend.member_names_) == {*SMALL, "network"}
    assert_equal_models(blend, twinned.load(saved(blend).path), table[0][70:])


def test_pickle_joblib_and_clone(blend, table, tmp_path):
    X = table[0][70:]
    joblib.dump(blend, tmp_path / "model.joblib")
    for other in (pickle.loads(pickle.dumps(blend)), joblib.load(tmp_path / "model.joblib")):
        assert_equal_models(blend, other, X)
    assert str(clone(blend)) == str(blend)
    assert not hasattr(clone(blend), "members_")


def test_loaded_blend_with_further_anchors(file, table, saved):
    X, y = table
    extended = twinned.load(file.path).add_anchors(X[:5], y[:5])
    assert_equal_models(extended, twinned.load(saved(extended).path), X[5:])


def test_log_target(table, saved):
    X, y = table
    blend = AutoTwinRegressor(members=["ridge"], cv=2, random_state=0)
    model = TransformedTargetTwin(blend)
    model.fit(X, y - y.min() + 1)
    loaded = twinned.load(saved(model).path)
    assert np.array_equal(loaded.predict(X), model.predict(X))
    assert loaded.regressor_.contribution_ is None


@pytest.mark.slow
def test_all_members(table, saved, monkeypatch):
    from twinned.models.neural.parameters import EFFORTS

    fewest = replace(EFFORTS["fast"], blend_members=2, n_settings=2, max_steps=20)
    monkeypatch.setitem(EFFORTS, "fast", fewest)
    X, y = table
    model = AutoTwinRegressor(effort="fast", members=list(AUTO), random_state=0).fit(X[:70], y[:70])
    assert len(model.member_names_) == 8
    assert_equal_models(model, twinned.load(saved(model).path), X[70:])


# --- members that cannot be saved -----------------------------------------------------------------


class MeanRegressor(RegressorMixin, BaseEstimator):
    def fit(self, X, y):
        self.mean_ = float(np.mean(y))
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


@pytest.mark.parametrize(
    ("estimator", "reason"),
    [
        (MeanRegressor(), "MeanRegressor'> is of a type"),
        (make_pipeline(FunctionTransformer(), Ridge()), "FunctionTransformer'> is of a type"),
    ],
)
@pytest.mark.parametrize("log_target", [False, True])
def test_refused_member_is_named(table, tmp_path, estimator, reason, log_target):
    X, y = table
    model = AutoTwinRegressor(members=["ridge", ("own", estimator)], cv=2, random_state=0)
    if log_target:
        model = TransformedTargetTwin(model)
    model.fit(X, y - y.min() + 1)
    with pytest.raises(TypeError, match=rf"members_\.own.*{reason}") as caught:
        twinned.save(model, tmp_path / "model.twin")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


# --- altered files --------------------------------------------------------------------------------


def set_first(value):
    def change(array):
        array.ravel()[0] = value

    return change


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda a: a[:-1], "member_weights_"),
        (lambda a: a * 2, "member_weights_"),
        (lambda a: a - 2 * (a == a.max()), "member_weights_"),
        (lambda a: a * np.nan, "member_weights_"),
        (lambda a: a[:-1], "_spread_weights"),
        (lambda a: -a, "_spread_weights"),
        (lambda a: a[:-1], "out_of_fold_prediction_"),
        (set_first(np.inf), "out_of_fold_prediction_"),
        (lambda a: a.astype(int), "out_of_fold_prediction_"),
        (set_first(np.inf), "anchors/matrix"),
        (lambda a: a[:, :-1].copy(), "anchors/matrix"),
        (lambda a: a[:-1], "anchors/matrix"),
        (set_first(np.nan), "anchors/y"),
        (lambda a: a[:-1], "anchors/y"),
        (lambda a: np.stack([a, a], axis=1), "anchors/y"),
        (lambda a: a[:-1], "anchors/table_rows"),
        (set_first(-9), "anchors/table_rows"),
        (set_first(-1), "anchors/table_rows"),
        (lambda a: a[:-1], "_leaderboard/rmse"),
        (lambda a: a * np.nan, "_leaderboard/fit_seconds"),
        (lambda a: a - 10**9, "_leaderboard/bytes"),
        (lambda a: a * 2, "contribution_/baseline_weights"),
        (lambda a: a[:-1], "contribution_/baseline_weights"),
        (lambda a: a[:-1], "calibration/scores"),
        (lambda a: a[:-1], "_preparations/0/medians"),
        (lambda a: a * np.nan, "_preparations/0/medians"),
        (lambda a: a[:-1], "_preparations/0/center"),
        (lambda a: a * 0, "_preparations/0/spread"),
        (lambda a: a[:-1], "members_/gp_rbf/process_/dual"),
        (lambda a: a[:, :-1].copy(), "members_/gp_rbf/process_/X"),
        (lambda a: -a, "members_/gp_rbf/process_/length_scales"),
        (lambda a: a * 0, "members_/gp_rbf/process_/weight"),
        (lambda a: a[:-1], "members_/twin/anchors/y"),
        (set_first(np.nan), "members_/twin/anchors/y"),
    ],
)
def test_altered_array(file, change, name):
    file.change_array(change, name)
    file.assert_refused()


@pytest.mark.parametrize(
    ("value", "path", "match"),
    [
        (9, ("n_features",), "feature"),
        ("0B", ("params", "memory_limit"), "memory_limit"),
        ("extreme", ("params", "effort"), "effort"),
        (["ridge", "ridge"], ("params", "members"), "twice"),
        (None, ("_leaderboard",), "_leaderboard"),
        ("other", ("_leaderboard", "member", 0), "leaderboard of other members"),
        (7, ("_leaderboard", "member", 0), "_leaderboard/member/0 is 7"),
        ("other", ("blend_", "method"), "blend_/method is 'other'"),
        (float("nan"), ("blend_", "rmse"), "blend_/rmse is nan"),
        ("much", ("contribution_", "ratio"), "contribution_/ratio"),
        (-1.0, ("contribution_", "rmse"), "contribution_/rmse"),
        ("none", ("members_", "ridge"), "members_/ridge is no regressor"),
        (None, ("_preparations", 0), "_preparations/0"),
        ("other", ("_preparations", 0, "kind"), "kind is 'other'"),
        ("encoded", ("_preparations", 0, "kind"), "does not scale 0 columns"),
        ([7], ("_preparations", 0, "marked"), "distinct numeric features"),
        ([3], ("_preparations", 0, "empty"), "distinct numeric features"),
        (10**12, ("anchors", "schema", "n_indicators", 3), "indicators"),
        (5, ("members_", "ridge", "n_features"), "axis feature"),
        ("linear", ("members_", "gp_rbf", "process_", "kernel"), "kernel"),
        (-1.0, ("members_", "gp_rbf", "process_", "noise"), "noise"),
        ("SVR", ("members_", "gp_rbf", "class"), "unknown class SVR"),
        (None, ("calibration",), "calibration has no parts"),
        ("other", ("calibration", "scale", "width"), "width"),
        ("other", ("anchors", "schema", "kinds", 0), "kinds/0 is 'other'"),
        (["red", "red"], ("anchors", "schema", "categories", 3), "twice"),
    ],
)
def test_altered_value(file, value, path, match):
    file.set(value, *path)
    file.assert_refused(match)


@pytest.mark.parametrize("name", ["anchors", "members_", "_anchor_predictions"])
def test_missing_part(file, name):
    file.change_json(lambda model: model["part"]["state"]["dict"].pop(name))
    file.assert_refused(f"has no {name}; fit and save the model again")
