"""The recommended model: a blend, a blend without twins, or a single member."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.tree import DecisionTreeRegressor

from twinned import AutoTwinRegressor, TransformedTargetTwin, TwinRegressor
from twinned.diagnostics.errors import comparison_table, predict_mean
from twinned.diagnostics.recommendation import (
    choose_model,
    describe_contribution,
    describe_failure,
    python_code,
    recommend,
)
from twinned.fitted.target import TargetTransform


def make_blend(errors, weights, rmse, contribution=None, skipped=None):
    """What `recommend` reads of a fitted blend: errors and weights of its members by name."""
    names = list(errors)
    twins = {name: TwinRegressor() if "twin" in name else Ridge() for name in names}
    board = pd.DataFrame({"member": names, "rmse": [errors[name] for name in names]})
    if contribution is not None:
        ratio, lower, upper, without = contribution
        baseline_weights = np.array([without.get(name, 0.0) for name in names])
        contribution = {
            "ratio": ratio,
            "lower": lower,
            "upper": upper,
            "baseline_rmse": rmse / ratio,
            "baseline_weights": baseline_weights,
        }
    return SimpleNamespace(
        leaderboard_=board.sort_values("rmse", ignore_index=True),
        members_=twins,
        member_names_=names,
        member_weights_=np.array([weights.get(name, 0.0) for name in names]),
        blend_={"rmse": rmse},
        contribution_=contribution,
        skipped_={} if skipped is None else skipped,
    )


ERRORS = {"ridge": 5.0, "gp_rbf": 1.2, "tree_twin": 1.1, "extra_trees": 1.3}


def test_blend_where_it_pays():
    blend = make_blend(
        ERRORS, {"gp_rbf": 0.5, "tree_twin": 0.5}, 0.9, (0.8, 0.7, 0.95, {"gp_rbf": 1.0})
    )
    found = recommend(blend)
    assert found.members == ["tree_twin", "gp_rbf"]
    assert found.conclusion == "helps"
    assert (
        "its error (RMSE) is 18 % lower than that of the best single model, tree_twin"
        in found.summary
    )
    assert "Twinning helps: the error of the blend with twins is 0.80 (0.70 to 0.95)" in found.twins


@pytest.mark.parametrize(("lower", "upper"), [(0.9, 1.2), (1.01, 1.2)])
def test_twins_are_excluded_where_they_do_not_lower_the_error(lower, upper):
    weights = {"gp_rbf": 0.5, "tree_twin": 0.4, "extra_trees": 0.1}
    without = {"gp_rbf": 0.6, "extra_trees": 0.4}
    found = recommend(make_blend(ERRORS, weights, 1.01, (1.01, lower, upper, without)))
    assert found.members == ["gp_rbf", "extra_trees"]
    assert found.conclusion == "does not help"
    assert "Twinning does not help" in found.summary


def test_single_member_where_the_blend_does_not_pay():
    weights = {"gp_rbf": 0.1, "tree_twin": 0.9}
    blend = make_blend(ERRORS, weights, 1.12, (0.9, 0.8, 0.99, {"gp_rbf": 1.0}))
    found = recommend(blend)
    assert found.members == ["tree_twin"]
    assert found.conclusion == "helps"
    assert found.reason.startswith("Use twinned gradient boosting: it has the lowest error")


def test_single_member_with_all_the_weight():
    """Its own error may differ a little, as the error of a blend has weights of other rows."""
    for error in (1.09, 1.12):
        blend = make_blend(ERRORS, {"tree_twin": 1.0}, error, (0.9, 0.8, 0.99, {"gp_rbf": 1.0}))
        reason = recommend(blend).reason
        weight = "it has all the weight in the blend of lowest error"
        assert reason == f"Use twinned gradient boosting: {weight}."


@pytest.mark.parametrize(
    ("weight", "members"), [(0.5, ["ridge", "gp_matern"]), (0.99, ["ridge"]), (0.01, ["gp_matern"])]
)
def test_no_blend_of_a_member_with_all_the_weight(weight, members, monkeypatch):
    """The weights of the recommended members are fitted anew: they may be 0 and 1."""
    X = np.random.default_rng(0).normal(size=(40, 1))
    blend = AutoTwinRegressor(members=["ridge", "gp_matern"], cv=3).fit(X, X[:, 0])
    recommended = make_blend({"ridge": 5, "gp_matern": 5.1}, {"ridge": 0.5, "gp_matern": 0.5}, 1)
    for name in ("leaderboard_", "contribution_", "blend_", "member_weights_"):
        monkeypatch.setattr(type(blend), name, vars(recommended)[name], raising=False)
        vars(blend).pop(name, None)
    select = AutoTwinRegressor.select_members

    def select_members(self, names):
        selected = select(self, names)
        if len(names) > 1:
            selected.member_weights_ = np.array([weight, 1 - weight])
        return selected

    monkeypatch.setattr(AutoTwinRegressor, "select_members", select_members)
    found, model = choose_model(blend)
    assert found.members == members
    assert model.member_names_ == members
    assert ("a blend" in found.reason) == (len(members) == 2)


def test_blend_where_a_single_member_is_hardly_better():
    weights = {"gp_rbf": 0.1, "tree_twin": 0.9}
    blend = make_blend(ERRORS, weights, 1.105, (0.9, 0.8, 0.99, {"gp_rbf": 1.0}))
    found = recommend(blend)
    assert found.members == ["tree_twin", "gp_rbf"]
    assert "its error (RMSE) is about that of the best single model, tree_twin" in found.reason


def test_ridge_where_it_is_as_good():
    errors = {**ERRORS, "ridge": 1.005, "gp_rbf": 1.0}
    found = recommend(
        make_blend(errors, {"gp_rbf": 0.5, "tree_twin": 0.5}, 1.0, (0.99, 0.97, 1.0, {"ridge": 1}))
    )
    assert found.members == ["ridge"]
    assert found.conclusion == "no clear difference"  # as the interval of the ratio says
    assert found.reason.startswith("Use ridge regression: it is the simplest model")


def test_single_twin_with_the_lowest_error():
    """Twins may not lower the error of the blend, and one of them still be the best model."""
    weights = {"gp_rbf": 0.5, "tree_twin": 0.5}
    blend = make_blend(ERRORS, weights, 1.15, (1.01, 0.9, 1.2, {"gp_rbf": 1.0}))
    assert recommend(blend).members == ["tree_twin"]


def test_without_twins_their_effect_is_unknown():
    found = recommend(make_blend({"ridge": 1.0}, {"ridge": 1.0}, 1.0))
    assert found.members == ["ridge"]
    assert found.conclusion == "unknown"
    assert "the only model that was fitted" in found.reason
    assert found.twins.startswith("Whether twinning helps is unknown: no twins were fitted.")


def test_infinite_contribution():
    contribution = {"ratio": np.inf, "lower": np.inf, "upper": np.inf}
    assert describe_contribution(contribution, "helps") == "The blend without twins has no error."


@pytest.mark.parametrize("seed", range(5))
def test_a_random_target_is_not_predicted(seed):
    rng = np.random.RandomState(seed)
    X, y = rng.normal(size=(80, 3)), rng.normal(size=80)
    twin = TwinRegressor(DecisionTreeRegressor(max_depth=3, random_state=0), random_state=0)
    blend = AutoTwinRegressor(members=["ridge", ("trees", twin)], cv=3, random_state=0)
    recommendation, model = choose_model(blend.fit(X, y))
    assert recommendation.summary.startswith("These features do not predict y: ")
    assert "Twinning" not in recommendation.summary
    assert recommendation.conclusion == "no prediction"
    assert model.member_names_ == recommendation.members


def test_local_weights_have_an_error_of_their_own():
    X = np.random.RandomState(0).uniform(size=(80, 1))
    blend = AutoTwinRegressor(members=["ridge"], cv=4, random_state=0).fit(X, np.sin(9 * X[:, 0]))
    recommendation, model = choose_model(blend)
    assert model.local_power_ > 0
    assert "Near known cases have more weight" in recommendation.summary
    board = comparison_table(blend, model, TargetTransform()).set_index("model")
    assert board["recommended"].tolist() == [True, False, False]
    table = model.out_of_fold()
    error = np.sqrt(np.mean((table["prediction"] - table["y"]) ** 2))
    assert board.loc["ridge, local weights", "rmse"] == pytest.approx(error)
    assert error < 0.5 * board.loc["ridge", "rmse"]


def test_errors_of_a_logarithm_are_called_so():
    rng = np.random.RandomState(0)
    X = rng.uniform(size=(60, 2))
    members = ["ridge", ("tree", DecisionTreeRegressor(max_depth=3, random_state=0))]
    blend = AutoTwinRegressor(members=members, cv=3, random_state=0)
    blend.fit(X, X[:, 0] + (X[:, 1] > 0.5) + 0.1 * rng.normal(size=60))
    assert "its error (RMSE) is " in choose_model(blend)[0].reason
    found = choose_model(blend, TargetTransform(is_log=True))[0]
    assert "its error of the logarithm (RMSE) is " in found.reason
    contribution = {"ratio": 0.8, "lower": 0.7, "upper": 0.9}
    text = describe_contribution(contribution, "helps", "error of the logarithm")
    assert text.startswith("Twinning helps: the error of the logarithm of the blend with twins is ")


def test_twins_without_weight_are_called_so():
    contribution = {"ratio": 1.0, "lower": 1.0, "upper": 1.0}
    text = describe_contribution(contribution, "does not help")
    assert text == "Twinning does not help: twins have no weight in the blend."


def test_large_errors_of_few_rows_hide_no_prediction():
    rng = np.random.RandomState(0)
    y = rng.normal(size=100)
    predicted = y + 0.1 * rng.normal(size=100)
    predicted[0] += 50.0
    assert describe_failure(predicted, y, predict_mean(y)) == ""
    assert describe_failure(rng.permutation(predicted), y, predict_mean(y))
    assert describe_failure(np.full(100, y.mean() + 0.1), y, predict_mean(y))
    assert describe_failure(0.01 * y, y, predict_mean(y)) == ""  # in the same order


def test_few_rows_may_not_show_a_prediction_clearly():
    rng = np.random.RandomState(0)
    y = rng.normal(size=20)
    failure = describe_failure(0.4 * y + 0.4 * rng.normal(size=20), y, predict_mean(y))
    assert failure.startswith("These features do not clearly predict y: ")


@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("grouped", [False, True])
def test_code_runs_and_makes_the_model(log_target, grouped):
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.rand(40, 2))
    y = pd.Series(np.exp(X[0]))
    groups = pd.Series(np.arange(40) // 2)
    model = AutoTwinRegressor(members=["ridge"], random_state=4)
    code = python_code(model, TargetTransform(log_target), groups=groups if grouped else None)
    assert len(code.splitlines()) <= 5
    namespace = {"X": X, "y": y, "groups": groups}
    exec(code, namespace)
    model = TransformedTargetTwin(model) if log_target else model
    expected = model.fit(X, y, groups=groups if grouped else None).predict(X)
    np.testing.assert_allclose(namespace["model"].predict(X), expected, rtol=1e-12)
