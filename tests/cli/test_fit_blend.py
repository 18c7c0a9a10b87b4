"""`twinned fit` with its default model, a blend: members, output, saved model, bad input."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from typer.testing import CliRunner

import twinned
from twinned import AutoTwinRegressor
from twinned.app.cli import app
from twinned.datasets import make_wsb
from twinned.estimators.blending.members import TWIN_SIZES

MEMBERS = ("ridge", "gp_rbf", "tree_twin")


@pytest.fixture(autouse=True)
def few_members(monkeypatch):
    """Blend three quick members, and fit the error scale with two trees."""
    monkeypatch.setattr("twinned.estimators.blending.members.AUTO", MEMBERS)
    monkeypatch.setitem(TWIN_SIZES, "fast", TWIN_SIZES["fast"]._replace(iterations=5))
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
    arguments = ("-t", "y", "-o", path, *options)  # --model auto --effort fast
    return run("fit", table, *arguments), path


def read_features(table):
    X = pd.read_csv(table, float_precision="round_trip").drop(columns=["y", "batch"])
    return X.assign(material=X["material"].astype("category"))


def test_summary_and_progress(table):
    result, path = fit(table, "--drop", "batch")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    header = next(i for i, line in enumerate(lines) if line.split() == ["member", "RMSE", "weight",
                                                                        "seconds"])  # fmt: skip
    assert {line.split()[0] for line in lines[header + 1 : header + 4]} == set(MEMBERS)
    assert all("±" in line for line in lines[header + 1 : header + 4])
    assert lines[header + 4].split()[0] == "blend"
    assert "auto (fast), 3 members" in result.stdout
    assert "the error of the blend with twins is" in result.stdout
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
    X, y = read_features(table), np.log(data["y"]) if log else data["y"]
    model = AutoTwinRegressor(effort="fast", random_state=3).fit(X, y, groups=data["batch"])
    board = model.leaderboard_
    assert [entry["member"] for entry in facts["leaderboard"]] == board["member"].tolist()
    for name in ("rmse", "rmse_se", "weight"):
        assert [entry[name] for entry in facts["leaderboard"]] == pytest.approx(board[name])
    assert facts["contribution"]["ratio"] == pytest.approx(model.contribution_["ratio"])
    assert set(facts["contribution"]["baseline_weights"]) == set(MEMBERS)
    assert facts["blend"]["method"] == model.blend_["method"]
    assert (facts["skipped"], facts["effort"], facts["time_budget"]) == ({}, "fast", 300.0)

    predicted = run("predict", path, table, "--interval", "0.8", "--std", "--json")
    columns = json.loads(predicted.stdout)
    mean, std = model.predict(X, return_std=True)
    ends = model.predict_interval(X, 0.8)
    mean, std, ends = (np.exp(mean), np.exp(mean) * std, np.exp(ends)) if log else (mean, std, ends)
    np.testing.assert_allclose(columns["prediction"], mean, rtol=1e-9)
    np.testing.assert_allclose(columns["std"], std, rtol=1e-9)
    np.testing.assert_allclose(np.column_stack([columns["low"], columns["high"]]), ends, rtol=1e-9)


def test_time_budget_and_skipped_members(table):
    result, path = fit(table, "--budget", "1s", "--drop", "batch")
    assert result.exit_code == 0, result.output
    # the blend itself is expected to take longer, so that only the first member is fitted
    assert result.stdout.count("skipped  ") == 2
    assert "warning" not in result.stderr
    assert twinned.load(path).time_budget == 1.0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--pairs", "3"), "--pairs does not apply to --model auto; use a twin"),
        (("--anchors", "3"), "--anchors does not apply to --model auto; use a twin"),
        (("-m", "twin", "--effort", "fast"), "--effort needs --model auto"),
        (("-m", "twin", "--budget", "9s"), "--budget needs --model auto"),
        (("--budget", "soon"), "--budget must be a time such as 60s or 2m"),
        (("--effort", "little"), "--effort must be one of fast, balanced, thorough"),
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
