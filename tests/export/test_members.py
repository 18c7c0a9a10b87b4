"""Members of a blend that are exported alone."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import twinned
from twinned import AutoTwinRegressor, TwinRegressor
from twinned.app.cli import app
from twinned.estimators.blending.members import SIZES
from twinned.export.c import to_c
from twinned.export.members import select_member, separable_members

MEMBERS = ["ridge", "tree_twin:fast", "boosting:fast"]
TWIN = MEMBERS[1]


@pytest.fixture(scope="module", autouse=True)
def few_iterations():
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(SIZES, "fast", SIZES["fast"]._replace(boosting_iterations=10))
        patch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 10)
        yield


@pytest.fixture(scope="module")
def table():
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(40, 2)), columns=["area", "rooms"])
    return X, X["area"] + 0.1 * rng.normal(size=40)


@pytest.fixture(scope="module")
def blend(table):
    return AutoTwinRegressor(members=MEMBERS, cv=3, random_state=0).fit(*table)


def test_a_member_predicts_as_in_the_blend(blend, table):
    own = select_member(blend, TWIN)
    expected = blend.predict_members(table[0])[blend.member_names_.index(TWIN)]
    np.testing.assert_allclose(own.predict(table[0]), expected, rtol=1e-12)
    assert list(own.feature_names_in_) == ["area", "rooms"]
    assert not hasattr(blend.members_[TWIN], "feature_names_in_")


def test_members_are_ranked_by_accuracy(blend):
    names = separable_members(blend)
    assert set(names) == set(MEMBERS[1:])
    errors = blend.leaderboard_.set_index("member")["rmse"][names]
    assert errors.is_monotonic_increasing


def test_members_with_prepared_features_are_refused(blend, table):
    X, y = table
    with pytest.raises(ValueError, match=r"'ridge' cannot be used alone: .* standardized"):
        select_member(blend, "ridge")
    skewed = AutoTwinRegressor(members=["ridge_power"], cv=2, random_state=0)
    skewed.fit(X[["area"]], np.exp(X["area"] / X["area"].max() * 5))
    with pytest.raises(ValueError, match=r"'ridge_power' cannot .*: .* power-transformed"):
        select_member(skewed, "ridge_power")
    with pytest.raises(ValueError, match=r"no member 'forest'; it has ridge, tree_twin:fast"):
        select_member(blend, "forest")
    with pytest.raises(TypeError, match="needs an AutoTwinRegressor, not TwinRegressor"):
        select_member(TwinRegressor(Ridge()).fit(X, y), TWIN)
    X = X.assign(wall=np.where(X["area"] > 0.5, "brick", "wood"))
    with_text = AutoTwinRegressor(members=MEMBERS[2:], cv=3, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"categories are encoded by the blend; fit a single twin"):
        select_member(with_text, MEMBERS[2])


def test_the_refusal_of_a_blend_names_a_member(blend, tmp_path):
    with pytest.raises(TypeError, match=rf"does not support blends.*--member {TWIN}"):
        to_c(blend, tmp_path / "model.h")
    assert not (tmp_path / "model.h").exists()


def test_command_line(blend, tmp_path):
    twinned.save(blend, tmp_path / "blend.twin")

    def run(*options):
        arguments = ["export", tmp_path / "blend.twin", "-o", tmp_path / "blend.h", *options]
        return CliRunner().invoke(app, [str(each) for each in arguments])

    refused = run()
    assert refused.exit_code == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "twinned export --member " in refused.stderr
    result = run("--member", TWIN, "--anchors", 5)
    assert result.exit_code == 0, result.output
    assert "tables of 5 anchors" in result.stdout
    header = (tmp_path / "blend.h").read_text()
    assert '"area"' in header
    assert "blend_predict(" in header
    assert "is no twin" in run("--member", MEMBERS[2]).stderr  # it predicts the target itself


def test_a_member_is_found_by_the_name_before_its_colon(blend, table):
    own, expected = select_member(blend, "tree_twin"), select_member(blend, TWIN)
    np.testing.assert_array_equal(own.predict(table[0]), expected.predict(table[0]))


def test_members_of_tables_with_ordered_categories_are_refused(table):
    X, y = table
    levels = pd.Categorical(np.resize([10, 20, 30], len(X)), ordered=True)
    blend = AutoTwinRegressor(members=["ridge", "boosting:fast"], cv=3).fit(X.assign(o=levels), y)
    assert separable_members(blend) == []
    with pytest.raises(ValueError, match="ordered categories are encoded by the blend"):
        select_member(blend, "boosting")
