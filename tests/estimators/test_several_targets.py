"""Several targets of AutoTwinRegressor: a blend for each target, and joint intervals."""

import pickle
from functools import partial

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold
from sklearn.utils import get_tags

from twinned import AutoTwinRegressor, TransformedTargetTwin, load, save

MEMBERS = ["ridge", "extra_trees:fast"]
Blend = partial(AutoTwinRegressor, members=MEMBERS, random_state=0)
Quick = partial(Blend, members=["ridge"])


def make_rows(n, seed=0, correlation=0.0):
    """Features, and two targets whose errors are correlated."""
    rng = np.random.RandomState(seed)
    X = rng.normal(size=(n, 3))
    noise = rng.normal(size=(n, 2))
    noise[:, 1] = correlation * noise[:, 0] + np.sqrt(1 - correlation**2) * noise[:, 1]
    return X, np.column_stack([X[:, 0], X[:, 1] * X[:, 2]]) + 0.3 * noise


@pytest.fixture(scope="module")
def rows():
    X, Y = make_rows(160)
    Y[:30, 1] = np.nan
    Y[120:140, 0] = np.nan
    X = pd.DataFrame(X, columns=["a", "b", "c"])
    return X[:140], pd.DataFrame(Y[:140], columns=["heat", "cold"]), X[140:], Y[140:]


@pytest.fixture(scope="module")
def model(rows):
    return Blend(cv=4).fit(*rows[:2])


def folds_of(model, target):
    fold = model.targets_[target].out_of_fold()["fold"].to_numpy()
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(fold.max() + 1)]


def separate_models(model, X, Y):
    """The obvious version: a blend of each target, fitted to the rows that have it."""
    for j, name in enumerate(Y.columns):
        known = Y[name].notna()
        yield Blend(cv=folds_of(model, j)).fit(X[known], Y.loc[known, name])


def test_predictions_are_those_of_separate_blends_with_the_same_folds(model, rows):
    X, Y, new_X, new_Y = rows
    separate = list(separate_models(model, X, Y))

    def stacked(method, *arguments, **options):
        return np.stack([method(each, new_X, *arguments, **options) for each in separate], axis=1)

    predict, interval = AutoTwinRegressor.predict, AutoTwinRegressor.predict_interval
    np.testing.assert_array_equal(model.predict(new_X), stacked(predict))
    mean, std = model.predict(new_X, return_std=True)
    assert mean.shape == std.shape == (20, 2)
    np.testing.assert_array_equal(std[:, 1], separate[1].predict(new_X, return_std=True)[1])
    np.testing.assert_array_equal(model.predict_interval(new_X, 0.8), stacked(interval, 0.8))
    levels = [0.1, 0.5, 0.7]
    quantiles = model.predict_quantiles(new_X, levels)
    assert quantiles.shape == (20, 2, 3)
    np.testing.assert_array_equal(quantiles, stacked(AutoTwinRegressor.predict_quantiles, levels))
    for method in (AutoTwinRegressor.predict_cdf, AutoTwinRegressor.log_density):
        expected = [method(each, new_X, y) for each, y in zip(separate, new_Y.T, strict=True)]
        np.testing.assert_array_equal(method(model, new_X, new_Y), np.transpose(expected))
        np.testing.assert_array_equal(method(model, new_X, 0.5), stacked(method, 0.5))
    difference = AutoTwinRegressor.predict_difference
    np.testing.assert_array_equal(difference(model, new_X, X[:20]), stacked(difference, X[:20]))
    assert [each.plan_ for each in model.targets_] == [each.plan_ for each in separate]


def test_folds_are_shared_and_no_row_is_lost(model, rows):
    Y = rows[1]
    fold = np.full(Y.shape, np.nan)
    for j, target in enumerate(model.targets_):
        np.testing.assert_array_equal(target.anchor_rows_, np.flatnonzero(Y.iloc[:, j].notna()))
        fold[target.anchor_rows_, j] = target.out_of_fold()["fold"]
    assert (np.isnan(fold) == Y.isna().to_numpy()).all()
    both = ~np.isnan(fold).any(axis=1)
    np.testing.assert_array_equal(fold[both, 0], fold[both, 1])
    assert len(model.joint_scores_) == both.sum() == 90


def test_groups_and_splitters_are_those_of_all_rows(rows):
    X, Y, *_ = rows
    groups = np.arange(len(X)) // 10
    fitted = Quick(cv=3).fit(X, Y, groups=groups)
    for target in fitted.targets_:
        pairs = zip(groups[target.anchor_rows_], target.out_of_fold()["fold"], strict=True)
        assert len(set(pairs)) == len(set(groups[target.anchor_rows_]))  # a fold for each group
    expected = np.empty(len(X))
    for k, (_, held_out) in enumerate(KFold(4).split(X)):
        expected[held_out] = k
    for target in Quick(cv=KFold(4)).fit(X, Y).targets_:
        fold = target.out_of_fold()["fold"]
        np.testing.assert_array_equal(fold, expected[target.anchor_rows_])


def test_equal_features_share_a_fold_whatever_targets_they_have():
    X, Y = make_rows(60)
    X, Y = np.repeat(X, 2, axis=0), np.repeat(Y, 2, axis=0)
    Y[::2, 0] = Y[1::2, 1] = np.nan  # of two equal rows, each has one target
    first, second = (each.out_of_fold()["fold"] for each in Quick().fit(X, Y).targets_)
    np.testing.assert_array_equal(first, second)


def test_tables_have_a_column_of_targets(model, rows):
    new_X = rows[2]
    assert model.target_names_ == ["heat", "cold"]
    comparables = model.explain(new_X[:3], n=2)
    assert comparables["target"].tolist() == ["heat"] * 9 + ["cold"] * 9
    second = pd.DataFrame(model.targets_[1].explain(new_X[:3], n=2))
    own = pd.DataFrame(comparables[9:].drop(columns="target"))
    pd.testing.assert_frame_equal(own, second, check_index_type=False)
    board = model.leaderboard_
    assert board.columns[0] == "target"
    assert board.groupby("target")["weight"].sum().round(9).tolist() == [1.0, 1.0]
    inside = model.applicability(new_X)
    assert inside.index.tolist() == 2 * new_X.index.tolist()
    assert len(model.out_of_fold()) == rows[1].notna().to_numpy().sum()


def test_an_array_of_targets_has_numbered_names(rows):
    X, Y, *_ = rows
    assert Quick(cv=3).fit(X.to_numpy(), Y.to_numpy()).target_names_ == ["y0", "y1"]


def test_score_is_the_mean_over_targets(model, rows):
    X, Y, new_X, new_Y = rows
    assert model.score(new_X, new_Y) == pytest.approx(r2_score(new_Y, model.predict(new_X)))
    parts = []
    for j, name in enumerate(Y):
        known = Y[name].notna()
        parts.append(r2_score(Y.loc[known, name], model.predict(X[known])[:, j]))
    assert model.score(X, Y) == pytest.approx(np.mean(parts))


def test_a_single_column_is_a_single_target(rows):
    X, Y, new_X, _ = rows
    y = Y["heat"].dropna()
    with pytest.warns(match="column-vector"):
        one = Quick(cv=3).fit(X.loc[y.index], y.to_frame().to_numpy())
    flat = Quick(cv=3).fit(X.loc[y.index], y)
    np.testing.assert_array_equal(one.predict(new_X), flat.predict(new_X))
    assert one.targets_ == []
    joint = one.predict_interval(new_X, joint=True)
    np.testing.assert_array_equal(joint, flat.predict_interval(new_X))


def test_a_new_fit_forgets_the_former(rows):
    X, Y, new_X, _ = rows
    fitted = Quick(cv=3).fit(X, Y)
    fitted.fit(X, X["a"])
    assert fitted.targets_ == []
    assert fitted.predict(new_X).shape == (20,)
    fitted.fit(X, Y)
    assert "anchors_X_" not in vars(fitted)
    assert fitted.predict(new_X).shape == (20, 2)


def test_time_budget_is_divided(rows):
    X, Y, *_ = rows
    fitted = Quick(time_budget=40.0, cv=3).fit(X, Y)
    first, second = (each.time_budget for each in fitted.targets_)
    assert first == pytest.approx(20.0, rel=0.05)
    assert 20.0 <= second < 40.0
    assert fitted.time_budget == 40.0


# --- joint intervals ------------------------------------------------------------------------------


def joint_coverage(intervals, Y):
    return np.mean(((intervals[..., 0] <= Y) & (intervals[..., 1] >= Y)).all(axis=1))


@pytest.mark.parametrize("correlation", [pytest.param(0.0, marks=pytest.mark.slow), 0.9])
def test_joint_intervals_cover_all_targets(correlation):
    coverages = []
    for seed in range(3):
        X, Y = make_rows(1300, seed, correlation)
        model = Quick().fit(X[:300], Y[:300])
        joint = model.predict_interval(X[300:], 0.9, joint=True)
        assert joint.shape == (1000, 2, 2)
        coverages.append(joint_coverage(joint, Y[300:]))
        separate = model.predict_interval(X[300:], 0.9)
        assert (np.diff(joint, axis=2) >= np.diff(separate, axis=2)).all()
        assert joint_coverage(separate, Y[300:]) < coverages[-1]
    assert np.mean(coverages) == pytest.approx(0.9, abs=0.025)


def test_joint_scores_against_the_obvious_version(model, rows):
    Y, new_X = rows[1:3]
    both = np.flatnonzero(Y.notna().all(axis=1))
    scores = np.zeros(len(both))
    for target in model.targets_:
        table = target.out_of_fold().set_index(target.anchor_rows_).loc[both]
        distribution = target.calibration_.distribution
        for i, score in enumerate(table["score"]):
            scores[i] = max(scores[i], abs(2 * distribution.cdf(np.array([score]))[0] - 1))
    np.testing.assert_allclose(model.joint_scores_, np.sort(scores))
    # the 81st of 90 is exceeded by the next with the probability 10 / 91
    ends = model.predict_interval(new_X, 81 / 91, joint=True)
    level = np.sort(scores)[80]
    for j, target in enumerate(model.targets_):
        expected = target.predict_quantiles(new_X, [(1 - level) / 2, (1 + level) / 2])
        np.testing.assert_allclose(ends[:, j], expected)


def test_joint_intervals_need_rows_with_all_targets(rows):
    X, Y, new_X, _ = rows
    few = Y.copy()
    few.iloc[30:117, 1] = np.nan  # three rows have both
    fitted = Quick(cv=2).fit(X, few)
    assert fitted.predict_interval(new_X, 0.9).shape == (20, 2, 2)
    message = "confidence=0.9 needs at least 9 calibration rows with all targets; there are 3"
    with pytest.raises(ValueError, match=message):
        fitted.predict_interval(new_X, 0.9, joint=True)
    with pytest.raises(TypeError, match="joint must be True or False"):
        fitted.predict_interval(new_X, joint="all")


# --- stored models and further rows ---------------------------------------------------------------


def test_save_load_pickle_and_clone(model, rows, tmp_path):
    new_X = rows[2]
    save(model, tmp_path / "model.twin")
    for copied in (load(tmp_path / "model.twin"), pickle.loads(pickle.dumps(model))):
        assert copied.target_names_ == ["heat", "cold"]
        np.testing.assert_array_equal(copied.predict(new_X), model.predict(new_X))
        for joint in (False, True):
            ends = copied.predict_interval(new_X, joint=joint)
            np.testing.assert_array_equal(ends, model.predict_interval(new_X, joint=joint))
        assert copied.leaderboard_["target"].nunique() == 2
    with pytest.raises(NotFittedError):
        clone(model).predict(new_X)


def test_add_anchors_to_each_target(model, rows):
    new_X, new_Y = rows[2], rows[3].copy()
    new_Y[:5, 0] = np.nan
    extended = model.add_anchors(new_X, new_Y)
    first = model.targets_[0].add_anchors(new_X[5:], new_Y[5:, 0])
    np.testing.assert_array_equal(extended.predict(new_X)[:, 0], first.predict(new_X))
    assert [len(each.anchors_y_) for each in extended.targets_] == [135, 130]
    assert len(model.targets_[0].anchors_y_) == 120
    only_second = model.add_anchors(new_X[:5], new_Y[:5])
    assert [len(each.anchors_y_) for each in only_second.targets_] == [120, 115]


# --- errors ---------------------------------------------------------------------------------------


def test_bad_targets_are_refused_in_one_line(rows):
    X, Y, *_ = rows
    Y = Y.to_numpy()
    without_column, without_row, infinite, few = (Y.copy() for _ in range(4))
    without_column[:, 1] = without_row[3] = np.nan
    infinite[4, 0], few[30:116, 1] = np.inf, np.nan
    for wrong, message in (
        (without_column, "The target 'y1' has no values; drop it"),
        (without_row, "Row 3 has no value of any target"),
        (infinite, "contains infinity"),
        (few[:118], "Target 'y1': .* at least 4 are needed"),
    ):
        with pytest.raises(ValueError, match=message) as error:
            Quick().fit(X[: len(wrong)], wrong)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="need a single output, not 2"):
        Quick().fit(X, Y, y_lower=Y[:, 0])


def test_methods_of_one_target_name_the_way_out(model, rows):
    new_X = rows[2]
    for method in (
        AutoTwinRegressor.predict_members,
        AutoTwinRegressor.predict_anchors,
        AutoTwinRegressor.rank,
    ):
        with pytest.raises(ValueError, match=r"has 2 targets; .* model.targets_\[0\]"):
            method(model, new_X)
    with pytest.raises(ValueError, match="has 2 targets"):
        model.select_members(["ridge"])
    with pytest.raises(ValueError, match=r"y has the shape \(20,\), not \(20, 2\)"):
        model.predict_cdf(new_X, rows[3][:, 0])
    with pytest.raises(ValueError, match="has 2 targets"):
        TransformedTargetTwin.around(model).predict(new_X)


def test_tags():
    assert get_tags(AutoTwinRegressor()).target_tags.multi_output
