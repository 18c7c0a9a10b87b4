"""`twinned fit` with its default model, a blend: members, output, saved model, bad input."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from typer.testing import CliRunner

import twinned
from twinned import AutoTwinRegressor, TransformedTargetTwin
from twinned.app.cli import app
from twinned.app.cli.advise import AdviseOptions
from twinned.app.cli.fit import FitOptions
from twinned.datasets import make_wsb

MEMBERS = ("ridge", "gp_rbf", "tree_twin")


@pytest.fixture(autouse=True)
def few_members(monkeypatch):
    """Blend three quick members, and fit the error scale with two trees."""
    monkeypatch.setattr("twinned.estimators.blending.members.AUTO", MEMBERS)
    monkeypatch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 5)
    monkeypatch.setattr(
        "twinned.fitted.calibration.ExtraTreesRegressor",
        lambda n_estimators, **parameters: ExtraTreesRegressor(2, **parameters),
    )


@pytest.fixture
def table(tmp_path):
    X, voltage = make_wsb(40, as_printed=True, random_state=0)
    X["material"] = np.where(X["R1"] > 2, "wood", "clay")
    X.loc[2, "R2"] = np.nan
    path = tmp_path / "table.csv"
    X.assign(y=np.exp(voltage), batch=np.arange(40) // 4).to_csv(path, index=False)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def fit(table, *options):
    path = table.with_name("model.twin")
    arguments = ("-t", "y", "-o", path, *options)  # --model auto
    return run("fit", table, *arguments), path


def read_features(table):
    X = pd.read_csv(table, float_precision="round_trip").drop(columns=["y", "batch"])
    return X.assign(material=X["material"].astype("category"))


def test_summary_and_progress(table):
    result, path = fit(table, "--drop", "batch")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].startswith("result       Use ")
    header = [line.split() for line in lines].index(["model", "RMSE", "weight", "seconds"])
    shown = {line.split()[0] for line in lines[header + 1 :] if "±" in line}
    assert shown - {"blend"} == {*MEMBERS, "mean"}
    assert sum(line.endswith("  recommended") for line in lines) == 1
    assert "auto (balanced), in " in result.stdout
    assert "skipped" not in result.stdout
    for name in MEMBERS:
        assert f"{name}: RMSE" in result.stderr
    assert str(path) in lines[-1]


@pytest.mark.parametrize("log", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_json_and_saved_model_equal_the_python_api(table, log):
    options = ["--log-target"] if log else []
    result, path = fit(table, "--group", "batch", "--seed", "3", "--jobs", "2", "--json", *options)
    facts = json.loads(result.stdout)
    data = pd.read_csv(table, float_precision="round_trip")
    X, y = read_features(table), data["y"]
    members = list(facts["recommended"])
    whole = AutoTwinRegressor(members=members, random_state=3)
    whole = TransformedTargetTwin(whole) if log else whole
    whole.fit(X, y, groups=data["batch"])
    model = whole.regressor_ if log else whole
    assert [*facts["recommended"].values()] == pytest.approx(model.member_weights_)
    errors = {row["model"]: row["rmse"] for row in facts["leaderboard"]}
    assert {*errors} >= {*MEMBERS, "mean of y"}
    if not log:
        board = model.leaderboard_.set_index("member")
        assert [errors[name] for name in members] == pytest.approx(board["rmse"][members])
    assert (facts["skipped"], facts["effort"], facts["budget"]) == ({}, "balanced", 300.0)

    predicted = run("predict", path, table, "--interval", "0.8", "--std", "--json")
    columns = json.loads(predicted.stdout)
    mean, std = whole.predict(X, return_std=True)
    ends = whole.predict_interval(X, 0.8)
    np.testing.assert_allclose(columns["prediction"], mean, rtol=1e-9)
    np.testing.assert_allclose(columns["std"], std, rtol=1e-9)
    np.testing.assert_allclose(np.column_stack([columns["low"], columns["high"]]), ends, rtol=1e-9)


def test_budget_and_skipped_members(table):
    result, path = fit(table, "--budget", "1s", "--drop", "batch")
    assert result.exit_code == 0, result.output
    # the blend itself is expected to take longer, so that only ridge is fitted
    assert result.stdout.count("skipped  ") == 2
    assert "s for the blend and its intervals" in result.stdout
    assert "warning" not in result.stderr
    assert twinned.load(path).member_names_ == ["ridge"]


@pytest.mark.parametrize("model", ["auto", "ridge"])
def test_target_that_nothing_predicts(tmp_path, model):
    path, rng = tmp_path / "table.csv", np.random.RandomState(0)
    pd.DataFrame(rng.normal(size=(40, 3)), columns=["a", "b", "y"]).to_csv(path, index=False)
    result, _ = fit(path, "--model", model, *(["--budget", "1s"] if model == "auto" else []))
    assert result.stdout.startswith("result       These features do not predict y: ")
    assert "Twinning" not in result.stdout


def test_effort_of_a_long_budget():
    options = {"table": "t.csv", "targets": ["y"], "output": "m.twin"}
    assert FitOptions(**options).effort == AdviseOptions(**options).effort == "balanced"
    assert FitOptions(**options, budget="30m").effort == "thorough"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--pairs", "3"), "--pairs does not apply to --model auto; use a twin"),
        (("-m", "twin", "--budget", "9s"), "--budget needs --model auto"),
        (("--budget", "soon"), "--budget must be a time such as 60s or 2m"),
        (("--pairs", "few", "-m", "twin"), "--pairs must be auto, all or a positive whole number"),
    ],
)
def test_bad_input(table, options, text):
    path = table.with_name("model.twin")
    result = run("fit", table, "-t", "y", "-o", path, *options)
    assert result.exit_code == 2
    assert result.stderr.startswith("twinned: error: ")
    assert result.stderr.count("\n") == 1
    assert text in result.stderr
    assert not path.exists()
