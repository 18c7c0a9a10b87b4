"""AutoTwinRegressor: folds, members, blend, what a twin has, time budget."""

import pickle
import time
import warnings
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.model_selection import GroupKFold, KFold, PredefinedSplit
from sklearn.neighbors import KNeighborsRegressor
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from twinned import AutoTwinRegressor, NeuralTraining, TwinRegressor
from twinned.datasets import make_wsb
from twinned.estimators.blending.budget import CostModel
from twinned.estimators.blending.cross_fit import CrossFit
from twinned.estimators.blending.members import AUTO, MEMBERS, SIZES, FitSettings, resolve_members
from twinned.estimators.blending.rows import blend_rows, default_folds
from twinned.exceptions import SkippedMemberWarning, UnknownCategoryWarning, UnsuitableDataError
from twinned.rows.schema import TableSchema
from twinned.rows.training import TrainingRows

TWIN = ("linear_twin", TwinRegressor(Ridge(), memory_limit="2MB"))
CHEAP = [
    "ridge",
    ("knn", KNeighborsRegressor(1)),
    ("tree", DecisionTreeRegressor(max_depth=4)),
    TWIN,
]


@pytest.fixture(scope="module")
def data():
    table, values = make_wsb(90, random_state=0)
    X, y = table.to_numpy(), values.to_numpy()
    return X[:70], y[:70], X[70:], y[70:]


def folded(X, y, cv=None):
    """Rows with folds, as those of a blend."""
    rows = TrainingRows(TableSchema.all_numeric(X.shape[1]), X, y)
    return blend_rows(rows, cv, "balanced", 0).rows


@pytest.fixture(scope="module")
def model(data):
    return AutoTwinRegressor(members=CHEAP, random_state=0).fit(*data[:2])


@parametrize_with_checks([AutoTwinRegressor(members=["ridge", TWIN], cv=2)])
def test_sklearn_check(estimator, check):
    check(estimator)


@pytest.fixture
def few_steps(monkeypatch):
    """The smallest effort of all members: the checks are of the API, not of the accuracy."""
    from twinned.models.neural.parameters import EFFORTS

    smallest = replace(EFFORTS["fast"], blend_members=1, n_settings=1, max_steps=20)
    monkeypatch.setitem(EFFORTS, "fast", smallest)
    monkeypatch.setitem(SIZES, "fast", SIZES["fast"]._replace(trees=10, boosting_iterations=10))
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 10)


@pytest.mark.slow
@parametrize_with_checks([AutoTwinRegressor(effort="fast", cv=2)])
def test_sklearn_check_of_all_members(estimator, check, few_steps):
    check(estimator)


# --- members and folds ----------------------------------------------------------------------------


class Recorder(RegressorMixin, BaseEstimator):
    """Predicts the mean and records the rows that it was fitted to."""

    log: ClassVar[list] = []

    def fit(self, X, y, sample_weight=None):
        self.mean_ = np.mean(y)
        Recorder.log.append((set(np.asarray(y)), sample_weight))
        return self

    def predict(self, X):
        return np.full(len(X), self.mean_)


@pytest.fixture
def log():
    Recorder.log.clear()
    return Recorder.log


def held_out(log, y):
    """The target values that each fit did not use; the fit of all rows excluded."""
    return [set(y) - known for known, _ in log if known != set(y)]


def test_members_are_fitted_in_the_same_folds_and_to_all_rows(log, rng, shipped_defaults):
    X, y = rng.normal(size=(40, 2)), rng.permutation(np.arange(40.0))
    members = [("a", Recorder()), ("b", Recorder())]
    AutoTwinRegressor(members=members, random_state=0).fit(X, y)
    parts = held_out(log, y)
    assert len(log) == 22
    assert sorted(map(sorted, parts[:10])) == sorted(map(sorted, parts[10:]))
    assert set().union(*parts[:10]) == set(y)
    assert sum(map(len, parts[:10])) == 40


def test_large_tables_have_fewer_folds(shipped_defaults):
    assert [default_folds(n, "balanced") for n in (7, 499, 500)] == [7, 10, 5]
    assert [default_folds(n, "thorough") for n in (7, 999, 1000)] == [7, 10, 5]


def test_given_folds(log, rng):
    X, y = rng.normal(size=(30, 2)), np.arange(30.0)
    cv = KFold(3)
    AutoTwinRegressor(members=[("a", Recorder())], cv=cv).fit(X, y)
    assert [sorted(part) for part in held_out(log, y)] == [list(y[rows]) for _, rows in cv.split(X)]
    with pytest.raises(ValueError, match="must hold out each row at most once"):
        AutoTwinRegressor(members=["ridge"], cv=[(np.arange(20), np.arange(20, 30))]).fit(X, y)


def test_groups_and_equal_features_are_not_split(log, rng):
    y = np.arange(60.0)
    groups = np.repeat(np.arange(12), 5)
    AutoTwinRegressor(members=[("a", Recorder())]).fit(rng.normal(size=(60, 2)), y, groups=groups)
    for part in held_out(log, y):
        assert len(part) == 5 * len({groups[int(value)] for value in part})
    log.clear()
    pairs = np.repeat(rng.normal(size=(30, 2)), 2, axis=0)
    AutoTwinRegressor(members=[("a", Recorder())]).fit(pairs, y)
    for part in held_out(log, y):
        assert len(part) == 2 * len({int(value) // 2 for value in part})


@pytest.mark.parametrize("missing", [False, True])
def test_replicates_are_in_one_fold(rng, missing):
    """Also with missing values, with few points, and beside a point with many replicates."""
    points = rng.normal(size=(15, 2))
    if missing:
        points[:, 1] = np.nan
    X = np.repeat(points, 8, axis=0)
    folds = folded(np.vstack([X, np.tile(points[:1], (40, 1))]), rng.normal(size=160))
    rows, fold = folds.matrix, folds.fold
    of_points = [set(fold[np.isclose(rows[:, 0], point[0])]) for point in points]
    assert all(len(folds) == 1 for folds in of_points[1:])
    assert len(of_points[0]) > 1  # a point with many replicates is divided


@pytest.mark.parametrize("n_groups", [20, 400])
def test_groups_of_another_length_are_refused(data, n_groups):
    model = AutoTwinRegressor(members=["ridge"])
    with pytest.raises(ValueError, match="one label for each of the 70 rows"):
        model.fit(*data[:2], groups=np.arange(n_groups))


def test_large_groups_with_given_folds(rng):
    X, groups = rng.normal(size=(40, 2)), np.repeat([0, 1, 2], [32, 4, 4])
    model = AutoTwinRegressor(members=["ridge"], cv=GroupKFold(3)).fit(X, X[:, 0], groups=groups)
    assert model.leaderboard_["rmse"][0] < 0.1


def test_one_fold_of_positive_weight_is_refused(data):
    weight = (np.arange(70) < 35).astype(float)
    model = AutoTwinRegressor(members=["ridge"], cv=KFold(2))
    with pytest.raises(ValueError, match="only one fold"):
        model.fit(*data[:2], sample_weight=weight)


def test_networks_use_the_shared_folds():
    """A permutation of y within a fold changes all networks but those that hold out that fold."""
    from twinned import NeuralRegressor

    rng = np.random.RandomState(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    fold = np.tile(np.arange(4), 10)
    folds = list(PredefinedSplit(fold).split())
    network = NeuralRegressor(
        (8,),
        n_members=1,
        training=NeuralTraining(max_steps=30, learning_rate=2e-3, scaling="standard"),
        random_state=0,
    )
    moved = y.copy()
    moved[fold == 1] = np.roll(y[fold == 1], 1)
    one, other = (
        clone(network).fit_with_folds(X, values, None, folds).out_of_fold_prediction_
        for values in (y, moved)
    )
    np.testing.assert_allclose(one[fold == 1], other[fold == 1], atol=1e-5)
    assert np.abs(one - other)[fold != 1].min() > 1e-4


def test_repeated_rows_equal_weights(log, rng):
    X, y = rng.normal(size=(30, 3)), rng.normal(size=30)
    counts = rng.randint(0, 4, 30)
    members = ["ridge", ("tree", DecisionTreeRegressor(max_depth=3))]
    model = AutoTwinRegressor(members=members, random_state=0)
    weighted = clone(model).fit(X, y, sample_weight=counts)
    repeated = clone(model).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), rtol=1e-12)
    np.testing.assert_array_equal(weighted.member_weights_, repeated.member_weights_)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ("all", "members must be one of 'auto', or a list of members"),
        ([], "at least one member"),
        (["ridge", "rigde"], "a member must be one of"),
        (["ridge", "ridge:fast"], "'ridge' twice"),
        (["ridge:slow"], "the effort of ridge"),
        ([("ridge", Ridge())], "not a valid name"),
        ([("mine", DummyRegressor)], "must be a scikit-learn regressor"),
        (3, "members must be 'auto' or a list"),
    ],
)
def test_invalid_members(members, message, data):
    with pytest.raises((ValueError, TypeError), match=message):
        AutoTwinRegressor(members=members).fit(*data[:2])


def test_auto_has_all_members_of_core_dependencies():
    assert {spec.name for spec in resolve_members("auto", "fast")} == set(AUTO)
    assert set(MEMBERS) - set(AUTO) == {"gp_tanimoto"}


class Failing(RegressorMixin, BaseEstimator):
    def __init__(self, error=UnsuitableDataError):
        self.error = error

    def fit(self, X, y):
        raise self.error("no luck")

    def predict(self, X):
        return np.zeros(len(X))


def test_failed_member_is_skipped(data):
    X, y, *_ = data
    with pytest.warns(SkippedMemberWarning, match=r"bad \(failed: no luck\)"):
        model = AutoTwinRegressor(members=["ridge", ("bad", Failing())]).fit(X, y)
    assert model.member_names_ == ["ridge"]
    assert model.skipped_ == {"bad": "failed: no luck"}
    with pytest.raises(ValueError, match="No member could be fitted"):
        AutoTwinRegressor(members=[("bad", Failing())]).fit(X, y)


def test_errors_that_a_member_does_not_declare_are_raised(data):
    X, y, *_ = data
    for error in (ValueError, ZeroDivisionError):
        with pytest.raises(error, match="no luck"):
            AutoTwinRegressor(members=["ridge", ("bad", Failing(error))]).fit(X, y)


@pytest.mark.parametrize("member", ["ridge", "gp_rbf", "extra_trees", "boosting", "tree_twin"])
def test_categories_and_missing_values(member, rng):
    n = 60
    kind = rng.choice(["a", "b", "c"], n)
    table = pd.DataFrame({"kind": pd.Categorical(kind), "size": rng.normal(size=n)})
    y = np.select([kind == "a", kind == "b"], [0.0, 10.0], 20.0) + table["size"]
    table.loc[3, "size"] = np.nan
    table.loc[4, "kind"] = np.nan
    model = AutoTwinRegressor(effort="fast", members=[member], cv=3, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnknownCategoryWarning)
        model.fit(table, y)
        predicted = model.predict(table)
    assert np.isfinite(predicted).all()
    assert np.sqrt(np.mean((predicted - y)[5:] ** 2)) < 3
    new = table.iloc[:2].assign(kind=pd.Categorical(["z", "a"]))
    with pytest.warns(UnknownCategoryWarning) as caught:
        assert np.isfinite(model.predict(new)).all()
    assert len(caught) == 1


# --- blend ----------------------------------------------------------------------------------------


def test_prediction_is_the_weighted_mean_of_the_members(model, data):
    *_, X_test, y_test = data
    members = model.predict_members(X_test)
    assert members.shape == (4, 20)
    equal = model.with_fitted(replace(model.fitted_, local_weights=None))
    np.testing.assert_allclose(equal.predict(X_test), model.member_weights_ @ members)
    # the errors of such members are smooth, so that near rows correct them
    assert model.local_power_ > 0
    errors = [np.mean((blend.predict(X_test) - y_test) ** 2) for blend in (model, equal)]
    assert errors[0] < 0.8 * errors[1]
    fitted = model.members_["knn"]
    assert fitted.n_samples_fit_ == 70


def test_leaderboard(model, data):
    table = model.leaderboard_.set_index("member")
    assert list(model.leaderboard_) == [
        "member", "rmse", "rmse_se", "weight", "fit_seconds", "predict_seconds", "bytes",
    ]  # fmt: skip
    assert set(table.index) == set(model.member_names_) == {"ridge", "knn", "tree", "linear_twin"}
    assert table["rmse"].is_monotonic_increasing
    assert table["weight"].sum() == pytest.approx(1)
    assert table.loc["tree", "bytes"] == len(pickle.dumps(model.members_["tree"]))
    alone = AutoTwinRegressor(members=["ridge"], random_state=0).fit(*data[:2])
    assert alone.leaderboard_["rmse"][0] == table.loc["ridge", "rmse"]


def test_contribution_compares_blends_with_and_without_twins(data):
    X, y, *_ = data
    weak = [("mean", DummyRegressor())]
    model = AutoTwinRegressor(members=[*weak, TWIN], random_state=0).fit(X, y)
    result = model.contribution_
    assert result["lower"] < result["ratio"] < result["upper"] < 1
    assert result["baseline_rmse"] == pytest.approx(y.std(), rel=0.05)
    assert AutoTwinRegressor(members=weak).fit(X, y).contribution_ is None


def test_far_better_member_has_all_the_weight(rng):
    X = rng.normal(size=(80, 3))
    y = X @ [1.0, 2.0, 3.0]
    members = [("linear", LinearRegression()), ("knn", KNeighborsRegressor()), TWIN]
    model = AutoTwinRegressor(members=members, random_state=0).fit(X, y)
    assert model.member_weights_[0] == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(model.predict(X), y, atol=1e-9)


def test_n_jobs_does_not_change_the_result(data):
    boosting = HistGradientBoostingRegressor(max_iter=10)
    members = ["gp_matern", ("forest", ExtraTreesRegressor(5)), ("boosting_10", boosting), TWIN]
    model = AutoTwinRegressor(members=members, cv=3, random_state=0)
    X, y = data[0][:40], data[1][:40]
    one, several = (clone(model).set_params(n_jobs=n).fit(X, y) for n in (None, 2))
    np.testing.assert_array_equal(one.predict(data[2]), several.predict(data[2]))
    intervals = (model.predict_interval(data[2]) for model in (one, several))
    np.testing.assert_allclose(*intervals, rtol=1e-12)


# --- what a twin has ------------------------------------------------------------------------------


def test_intervals_cover(model, data):
    *_, X_test, y_test = data
    intervals = model.predict_interval(X_test, 0.9)
    covered = (intervals[:, 0] <= y_test) & (y_test <= intervals[:, 1])
    assert covered.mean() > 0.7
    wider = model.predict_interval(X_test, 0.95)
    assert (np.diff(wider) >= np.diff(intervals)).all()
    mean, std = model.predict(X_test, return_std=True)
    np.testing.assert_allclose(mean, model.predict(X_test), rtol=1e-12)
    np.testing.assert_allclose(intervals, model.predict_quantiles(X_test, [0.05, 0.95]))
    assert 0.5 < np.sqrt(np.mean(((y_test - mean) / std) ** 2)) < 2


def test_differences_are_the_weighted_mean_of_the_members(model, data):
    X_test = data[2]
    A, B = X_test[:10], X_test[10:]
    expected = 0.0
    for name, weight in zip(model.member_names_, model.member_weights_, strict=True):
        member = next(m for m in model.blend_model_.members if m.label == name)
        if member.is_twin:
            own = member.estimator.predict_difference(
                member.preparation.transform(A), member.preparation.transform(B)
            )
        else:
            own = member.predict(A) - member.predict(B)
        expected = expected + weight * own
    np.testing.assert_allclose(model.predict_difference(A, B), expected, atol=1e-12)
    np.testing.assert_allclose(model.predict_difference(B, A), -expected, atol=1e-12)


def test_estimates_of_anchors(model, data):
    """y(b) + f(a) − the out-of-fold f(b), whose errors have the mean zero."""
    X_test = data[2][:3]
    indices, estimates = model.predict_anchors(X_test)
    assert indices.shape == estimates.shape == (3, 70)
    out_of_fold = model.out_of_fold()[model.member_names_] @ model.member_weights_
    errors = model.anchors_y_ - out_of_fold
    members = model.member_weights_ @ model.predict_members(X_test)
    expected = members[:, None] + (errors - errors.mean()).to_numpy()
    np.testing.assert_allclose(estimates, expected, atol=1e-10)
    table = model.explain(X_test, n=4)
    assert len(table) == 15
    np.testing.assert_allclose(table["estimate"], table["anchor_y"] + table["difference"])
    assert model.loop_inconsistency(X_test, n_loops=5).max() < 1e-10


def test_added_anchors(model, data):
    *_, X_test, y_test = data
    more = model.add_anchors(X_test, y_test + 5)
    members = model.member_weights_ @ model.predict_members(X_test)
    errors = y_test + 5 - members  # the members are not fitted to these rows
    np.testing.assert_allclose(more.anchor_residuals_[70:], errors)
    assert more.predict_anchors(X_test[:1])[0].shape == (1, 90)
    np.testing.assert_array_equal(more.predict_members(X_test), model.predict_members(X_test))
    assert len(model.anchors_X_) == 70
    assert more.predict_interval(X_test).shape == (20, 2)


def test_pickle(model, data):
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_interval(data[2]), model.predict_interval(data[2]))
    np.testing.assert_array_equal(
        again.predict_difference(data[2][:1], data[2][1:2]),
        model.predict_difference(data[2][:1], data[2][1:2]),
    )


# --- time budget ----------------------------------------------------------------------------------


class Slow(LinearRegression):
    def fit(self, X, y, sample_weight=None):
        time.sleep(0.15)
        return super().fit(X, y)


def test_time_budget_skips_members_and_can_be_replayed(data):
    X, y, X_test, _ = data
    members = [("slow", Slow()), "ridge", "neural_twin"]
    model = AutoTwinRegressor(members=members, time_budget=0.5, random_state=0)
    with pytest.warns(SkippedMemberWarning, match="and 0.0 s remain besides"):
        model.fit(X, y)
    assert set(model.skipped_) == {"slow", "neural_twin"}
    assert model.plan_ == ["ridge"]
    again = clone(model).set_params(members=model.plan_, time_budget=None).fit(X, y)
    np.testing.assert_array_equal(model.predict(X_test), again.predict(X_test))


class FakeClock:
    remaining = 0.5

    def calibrate(self, spec, seconds):
        pass


@pytest.mark.parametrize("required", [False, True])
def test_member_with_a_slow_first_fold_is_skipped(data, required):
    spec = resolve_members([("slow", Slow())], "fast")[0]
    rows = folded(*data[:2], cv=4)
    fits = CrossFit(rows, FitSettings())
    member = fits.fit_one(spec, FakeClock(), required=required)
    assert (member is not None) == required
    assert required or fits.skipped["slow"].startswith("its first fold took")


def test_smaller_effort_within_the_time_budget(data):
    spec = resolve_members(["extra_trees"], "thorough")[0]
    rows = folded(*data[:2])
    costs = [
        CostModel(*rows.matrix.shape, rows.n_folds, 1).seconds(spec.with_effort(effort))
        for effort in ("fast", "balanced", "thorough")
    ]
    assert costs == sorted(costs)
    assert spec.with_effort("fast").entry == "extra_trees:fast"


def test_invalid_time_budget(data):
    with pytest.raises(ValueError, match="time_budget must be positive"):
        AutoTwinRegressor(time_budget=0).fit(*data[:2])


def test_verbose(data, capsys):
    AutoTwinRegressor(members=["ridge"], verbose=1).fit(*data[:2])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("[AutoTwinRegressor] ridge: RMSE")
    assert lines[1].startswith("[AutoTwinRegressor] blend (greedy): RMSE")


def test_too_few_rows():
    with pytest.raises(ValueError, match="3 different rows"):
        AutoTwinRegressor(members=["ridge"]).fit(np.arange(3.0)[:, None], np.arange(3.0))


@pytest.mark.parametrize("budget", [None, 30.0])
def test_constant_target_needs_one_member(budget):
    X = np.random.RandomState(0).rand(40, 2)
    with pytest.warns(SkippedMemberWarning) as caught:
        model = AutoTwinRegressor(time_budget=budget, random_state=0).fit(X, np.full(40, 3.5))
    assert len(caught) == 1
    assert "neural_twin (all values of y are 3.5)" in str(caught[0].message)
    assert model.member_names_ == ["ridge"]
    assert len(model.skipped_) == 7
    np.testing.assert_allclose(model.predict(X), 3.5)
    np.testing.assert_allclose(model.predict_interval(X), 3.5)
