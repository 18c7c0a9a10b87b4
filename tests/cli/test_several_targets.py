"""Several targets on the command line: `fit`, `predict`, `advise`, `export` and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from typer.testing import CliRunner

from twinned import load
from twinned.app.cli import app
from twinned.app.serve.service import PredictionService


@pytest.fixture(scope="module", autouse=True)
def _few_members():
    """Two quick members, and an error scale of two trees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twinned.estimators.blending.members.AUTO", ("ridge", "gp_rbf"))
        patch.setattr(
            "twinned.fitted.calibration.ExtraTreesRegressor",
            lambda n_estimators, **parameters: ExtraTreesRegressor(2, **parameters),
        )
        yield


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def make_frame():
    rng = np.random.RandomState(0)
    frame = pd.DataFrame(rng.normal(size=(60, 2)), columns=["a", "b"])
    noise = 0.1 * rng.normal(size=(60, 2))
    frame["heat load"] = 5 + frame["a"] + noise[:, 0]
    frame["cold"] = frame["a"] * frame["b"] + noise[:, 1]
    frame.loc[:14, "cold"] = np.nan
    frame.loc[50:54, "heat load"] = np.nan
    frame.loc[59, ["heat load", "cold"]] = np.nan
    return frame.round(6)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """The table, the path of the model, and the result of its fit."""
    folder = tmp_path_factory.mktemp("targets")
    table, model = folder / "table.csv", folder / "model.twin"
    make_frame().to_csv(table, index=False)
    return table, model, run("fit", table, "-t", "heat load", "-t", "cold", "-o", model)


def test_fit_prints_the_errors_of_each_target(fitted):
    _, path, result = fitted
    assert result.exit_code == 0, result.output
    assert "target       heat load, cold" in result.stdout
    for name in ("heat load", "cold"):
        assert f"RMSE of {name} on held-out rows of the cross-validation:" in result.stdout
    assert "1 of 60 rows have no value of 'heat load', 'cold' and are not used" in result.stderr
    model = load(path)
    assert model.target_names_ == ["heat load", "cold"]
    assert model.feature_names_in_.tolist() == ["a", "b"]
    frame = make_frame()
    known = [np.flatnonzero(frame[name].notna()) for name in model.target_names_]
    assert [each.anchor_rows_.tolist() for each in model.targets_] == [k.tolist() for k in known]


def test_fit_prints_json(fitted, tmp_path):
    result = run("fit", fitted[0], "-t", "heat load", "-t", "cold", "-o", tmp_path / "m", "--json")
    facts = json.loads(result.stdout)
    assert facts["target"] == ["heat load", "cold"]
    assert set(facts["leaderboard"]) == {"heat load", "cold"}
    assert facts["rows"] == 59


def test_predict_has_columns_of_each_target(fitted, tmp_path):
    table, path, _ = fitted
    options = "--std", "--interval", 0.8, "--quantiles", "0.5", "--applicability", "--keep", "cold"
    result = run("predict", path, table, *options, "-o", tmp_path / "p.csv", "--digits", 17)
    assert result.exit_code == 0, result.output
    found = pd.read_csv(tmp_path / "p.csv")
    kinds = ["prediction", "std", "low", "high", "q0.5", "applicability"]
    named = [f"{kind}_{name}" for name in ("heat load", "cold") for kind in kinds]
    assert found.columns.tolist() == ["cold", *named]
    model, X = load(path), make_frame()[["a", "b"]]
    intervals = model.predict_interval(X, 0.8)
    for j, name in enumerate(model.target_names_):
        np.testing.assert_allclose(found[f"prediction_{name}"], model.predict(X)[:, j])
        np.testing.assert_allclose(found[f"low_{name}"], intervals[:, j, 0])
        np.testing.assert_allclose(found[f"high_{name}"], intervals[:, j, 1])
    taken = run("predict", path, table, "--keep", "prediction_cold")
    assert taken.exit_code == 2


def test_advice_is_on_a_single_target(fitted, tmp_path):
    result = run("advise", fitted[0], "-t", "heat load", "-t", "cold", "-r", tmp_path / "r.html")
    assert result.exit_code == 2
    assert "this needs one --target, not 2" in result.stderr


def test_export(fitted, tmp_path):
    pytest.importorskip("onnxruntime")
    result = run("export", fitted[1], "-o", tmp_path / "m.onnx", "--confidence", 0.9, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["bytes"] == (tmp_path / "m.onnx").stat().st_size


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("-t", "cold", "-t", "cold"), "--target names a column twice"),
        (("-t", "cold", "-t", "nothing"), "has no column 'nothing'"),
        (("-t", "cold", "-t", "a", "--model", "ridge"), "several targets need --model auto"),
        (("-t", "cold", "-t", "a", "--log-target"), "without --log-target"),
        (("-t", "cold", "-t", "a", "--drop", "a"), "--drop names 'a', which is the --target"),
        (("-t", "cold", "-t", "empty"), "column 'empty' has no value, and it is the --target"),
        (("-t", "cold", "-t", "same"), "column 'same' has one value"),
        (("-t", "cold", "-t", "limit"), "<5 is a limit, which needs a single --target"),
    ],
)
def test_bad_targets_are_refused_in_one_line(tmp_path, options, message):
    frame = make_frame().assign(empty=np.nan, same=1.0, limit=["<5"] + 59 * ["7"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    result = run("fit", tmp_path / "t.csv", *options, "-o", tmp_path / "m.twin")
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1 + ("note" in result.stderr)


def test_commands_of_a_single_target_refuse_the_model(fitted, tmp_path):
    table, path, _ = fitted
    for command in ("explain", "query"):
        result = run(command, path, table)
        assert (result.exit_code, result.stderr.count("\n")) == (2, 1)
        assert "needs a model of a single target" in result.stderr
    with pytest.raises(ValueError, match="single target"):
        PredictionService(load(path), "model.twin")
    result = run("export", path, "-o", tmp_path / "m.h")
    assert "y has 2 outputs, and C code a single one" in result.stderr
