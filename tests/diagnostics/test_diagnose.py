"""The diagnosis of a data set: recommended model, errors, checks and time budget."""

import time

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyRegressor

from twinned import AutoTwinRegressor, TwinRegressor, diagnose
from twinned.datasets import make_wsb
from twinned.diagnostics.errors import MEAN
from twinned.estimators.blending.budget import affordable_rows

MEMBERS = ["ridge", "gp_rbf"]


def make_estimator(members=MEMBERS):
    return AutoTwinRegressor(members=members)


@pytest.fixture(scope="module")
def diagnosis(bridge):
    return diagnose(*bridge, estimator=make_estimator())


def test_recommended_model_is_that_of_the_code(diagnosis, bridge):
    X, y = bridge
    namespace = {"X": X, "y": y}
    exec(diagnosis.code, namespace)
    np.testing.assert_array_equal(namespace["model"].predict(X), diagnosis.model.predict(X))
    ends = namespace["model"].predict_interval(X)
    np.testing.assert_array_equal(ends, diagnosis.model.predict_interval(X))


def test_errors_are_those_of_the_out_of_fold_predictions(diagnosis, bridge):
    y, errors = bridge[1].to_numpy(), diagnosis.errors
    table = diagnosis.out_of_fold
    residual = table["prediction"] - y
    assert errors.rmse == pytest.approx(np.sqrt((residual**2).mean()))
    assert errors.mae == pytest.approx(residual.abs().mean())
    assert errors.median == pytest.approx(residual.abs().median())
    assert errors.r2 == pytest.approx(1 - (residual**2).sum() / ((y - y.mean()) ** 2).sum())
    assert errors.mean_rmse == pytest.approx(y.std(), rel=0.1)
    inside = (table["lower"] <= y) & (y <= table["upper"])
    assert inside.mean() == pytest.approx(0.9, abs=0.02)
    lines = diagnosis.describe_errors("V").splitlines()
    assert lines[0] == "Errors of V on held-out rows:"
    assert lines[1].split("  ")[0] == "half of the rows within"
    assert lines[1].endswith(f"  ± {errors.median:.3g}")


def test_leaderboard_has_all_members_the_mean_and_the_recommended_model(diagnosis):
    board = diagnosis.leaderboard.set_index("model")
    assert set(board.index) >= {*MEMBERS, MEAN}
    assert board["recommended"].sum() == 1
    recommended = board[board["recommended"]].iloc[0]
    assert recommended["rmse"] == pytest.approx(diagnosis.errors.rmse)
    assert board["rmse"].is_monotonic_increasing
    assert (board["rmse_se"] > 0).all()
    assert diagnosis.recommendation.members == ["gp_rbf"]
    assert board["weight"]["gp_rbf"] == 1.0
    assert str(diagnosis).startswith("Use a Gaussian process (squared exponential)")


def test_every_check_names_its_model(diagnosis):
    assert set(diagnosis.checks) == {"learning"}
    assert diagnosis.checks["learning"].model == "gp_rbf"
    learning = diagnosis.checks["learning"].numbers
    assert learning["rmse"][-1] == pytest.approx(diagnosis.errors.rmse, rel=0.3)
    assert all(error > 0 for error in learning["standard_error"])
    for check in diagnosis.checks.values():
        assert check.model in str(check)


def test_without_time_one_member_is_fitted(bridge):
    start = time.perf_counter()
    diagnosis = diagnose(*bridge, estimator=make_estimator(), budget=0.01)
    assert time.perf_counter() - start < 20
    assert diagnosis.recommendation.members == ["ridge"]
    assert "gp_rbf" in diagnosis.skipped
    assert "Skipped: gp_rbf" in str(diagnosis)
    assert diagnosis.model.predict_interval(bridge[0]).shape == (120, 2)


def test_random_subset_of_too_many_rows(bridge, monkeypatch):
    X, y = bridge
    monkeypatch.setattr("twinned.diagnostics.diagnosis.affordable_rows", lambda *sizes: 50)
    diagnosis = diagnose(X, y, estimator=make_estimator(["ridge"]), budget=60, random_state=3)
    assert len(diagnosis.rows) == len(diagnosis.y) == 50
    np.testing.assert_array_equal(diagnosis.y, y.iloc[diagnosis.rows])
    assert diagnosis.n_rows == 120
    assert "50 random rows of 120" in diagnosis.notes[0]
    namespace = {"X": X.iloc[diagnosis.rows], "y": y.iloc[diagnosis.rows]}
    exec(diagnosis.code, namespace)
    np.testing.assert_array_equal(namespace["model"].predict(X), diagnosis.model.predict(X))


def test_affordable_rows():
    assert affordable_rows(300, 6, 1.0, 1) == 300  # few rows are never reduced
    assert affordable_rows(5000, 30, 60.0, 2) == 5000
    subset = affordable_rows(200_000, 30, 60.0, 2)
    assert 1000 <= subset < 200_000
    assert subset < affordable_rows(200_000, 30, 600.0, 2)


@pytest.mark.slow
def test_logarithm_of_the_target(bridge):
    X, voltage = bridge
    y = np.exp(3 * voltage)
    diagnosis = diagnose(X, y, estimator=make_estimator(), log_target=True, random_state=1)
    predicted = diagnosis.model.predict(X)
    assert (predicted > 0).all()
    ratio = predicted / np.exp(diagnosis.twin.predict(X))
    assert ((ratio > 1) & (ratio < 1.05)).all()  # the arithmetic mean exceeds the geometric one
    assert list(diagnosis.model.feature_names_in_) == list(X.columns)
    table = diagnosis.out_of_fold
    np.testing.assert_allclose(table["y"], y)
    residual = table["prediction"] - y
    assert diagnosis.errors.rmse == pytest.approx(np.sqrt((residual**2).mean()))
    board = diagnosis.leaderboard.set_index("model")
    out_of_fold = diagnosis.twin.out_of_fold()
    own = np.exp(out_of_fold["gp_rbf"])
    own = own * (y.to_numpy() / own).mean() - y.to_numpy()
    assert board["rmse"]["gp_rbf"] == pytest.approx(np.sqrt((own**2).mean()))
    namespace = {"X": X, "y": y}
    exec(diagnosis.code, namespace)
    np.testing.assert_allclose(namespace["model"].predict(X), predicted, rtol=1e-12)
    with pytest.raises(ValueError, match="positive"):
        diagnose(X, voltage, log_target=True)


def test_logarithm_of_limits(bridge):
    X, voltage = (part[:60] for part in bridge)
    y = np.exp(3 * voltage.to_numpy())
    below = y < np.quantile(y, 0.2)
    censored = {
        "y": np.where(below, np.nan, y),
        "y_lower": np.where(below, 0.0, y),
        "y_upper": np.where(below, y[below].max(), y),
    }
    arguments = {"estimator": make_estimator(["ridge"]), "log_target": True}
    diagnosis = diagnose(X, **censored, **arguments)
    namespace = {"X": X, **censored}
    exec(diagnosis.code, namespace)
    predicted = diagnosis.model.predict(X)
    np.testing.assert_allclose(namespace["model"].predict(X), predicted, rtol=1e-9)
    np.testing.assert_allclose(np.sort(diagnosis.twin.anchors_y_), np.sort(np.log(y[~below])))
    assert (predicted[below] < np.quantile(y, 0.4)).mean() > 0.7
    with pytest.raises(ValueError, match="positive values of y, y_lower and y_upper"):
        diagnose(
            X, **{**censored, "y_upper": np.where(below, 0.0, y), "y_lower": None}, **arguments
        )


def test_model_that_is_not_better_than_the_mean():
    rng = np.random.RandomState(0)
    X, y = rng.rand(60, 2), rng.normal(size=60)
    members = [("constant", DummyRegressor(strategy="constant", constant=9.0))]
    diagnosis = diagnose(X, y, estimator=make_estimator(members))
    assert diagnosis.summary.startswith("These features do not predict y: the error of the best ")
    assert diagnosis.recommendation.conclusion == "no prediction"


@pytest.mark.slow
def test_groups_are_held_out_together():
    """Repeated measurements of one sample in the training set would make errors too small."""
    rng = np.random.RandomState(0)
    sample = np.repeat(np.arange(20), 4)
    X = rng.normal(size=(20, 3))[sample] + 0.01 * rng.normal(size=(80, 3))
    y = rng.normal(size=20)[sample] + 0.01 * rng.normal(size=80)
    names = np.array([f"s{i}" for i in sample])
    twin = TwinRegressor(DummyRegressor(), anchors="all")
    estimator = make_estimator(["gp_rbf", ("twin", twin)])
    alone = diagnose(X, y, estimator=estimator)
    together = diagnose(X, y, estimator=estimator, groups=names)
    assert together.out_of_fold.groupby(sample)["fold"].nunique().max() == 1
    assert 4 * alone.errors.rmse < together.errors.rmse
    assert together.code.endswith("groups=groups)")
    with pytest.raises(ValueError, match="Row 1 has no group"):
        diagnose(X, y, groups=["s", None, *names[2:]])
    with pytest.raises(ValueError, match="one label for each of the 80 rows"):
        diagnose(X, y, groups=names[:5])
    with pytest.raises(ValueError, match="All rows are in one group, s"):
        diagnose(X, y, groups=np.full(80, "s"))


@pytest.mark.slow
def test_missing_values_and_categories():
    X, y = make_wsb(60, random_state=0)
    X = X.assign(maker=pd.Categorical(["a", "b", "c"] * 20))
    X.iloc[::9, 0] = np.nan
    diagnosis = diagnose(X, y, estimator=make_estimator())
    assert diagnosis.model.predict_interval(X, 0.8).shape == (60, 2)


def test_too_few_rows_and_a_constant_target_are_refused():
    with pytest.raises(ValueError, match="at least 20 rows; there are 5"):
        diagnose(np.zeros((5, 1)), np.arange(5.0))
    with pytest.raises(ValueError, match="All values of y are 1"):
        diagnose(np.random.RandomState(0).rand(25, 2), np.ones(25))
    with pytest.raises(TypeError, match="AutoTwinRegressor"):
        diagnose(*make_wsb(30), estimator=TwinRegressor())
