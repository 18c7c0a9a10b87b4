"""`--error`, known errors of measurement, in `fit`, `advise` and `predict`."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

from twinned import AutoTwinRegressor, diagnose, load
from twinned.app.cli import app
from twinned.app.cli.options import TrainingOptions
from twinned.app.cli.training_data import read_training_data


@pytest.fixture
def table(tmp_path, rng):
    n = 60
    x, z, sigma = rng.uniform(-1, 1, n), rng.uniform(size=n), rng.choice([0.01, 0.5], n)
    y = 5 + np.sin(3 * x) + z + sigma * rng.normal(size=n)
    path = tmp_path / "table.csv"
    pd.DataFrame({"x": x, "z": z, "sigma": sigma, "y": y}).round(6).to_csv(path, index=False)
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(part) for part in arguments])


def test_a_twin_is_fitted_and_predicts_values_and_measurements(table, tmp_path):
    model, options = tmp_path / "m.twin", ("--target", "y", "--error", "sigma")
    result = run("fit", table, *options, "-m", "ridge", "-o", model, "--json")
    assert result.exit_code == 0, result.output
    assert "column 'sigma': errors of measurement; their median is" in result.stderr
    facts = json.loads(result.stdout.splitlines()[-1])
    assert facts["error"] == "sigma"
    assert facts["numbers"] == ["x", "z"]
    assert load(model).anchor_weights_ is not None
    widths = {}
    for of in ("value", "measurement"):
        result = run("predict", model, table, "--interval", "0.9", "--of", of, "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout.splitlines()[-1])
        widths[of] = np.subtract(found["high"], found["low"])
    assert (widths["value"] < widths["measurement"]).all()


def test_the_logarithm_has_relative_errors(table, tmp_path):
    model, options = tmp_path / "m.twin", ("--target", "y", "--error", "sigma", "--log-target")
    result = run("fit", table, *options, "-m", "ridge", "-o", model)
    assert result.exit_code == 0, result.output
    rows = pd.read_csv(table)
    stored = load(model).fitted_.calibration.scale.y_std
    assert stored == pytest.approx(float(np.median(rows["sigma"] / rows["y"])))


def test_a_blend_is_fitted_with_errors(table):
    data = read_training_data(TrainingOptions(table=table, targets=["y"], error="sigma"))
    blend = AutoTwinRegressor(members=["ridge"], cv=3)
    diagnosis = diagnose(data.X, data.y, **data.arguments, estimator=blend, random_state=0)
    assert diagnosis.code.endswith("y_std=y_std)")
    assert any("known errors of measurement, whose median is" in note for note in diagnosis.notes)
    expected = clone(diagnosis.model).fit(data.X, data.y, **data.arguments)
    np.testing.assert_allclose(diagnosis.model.predict(data.X), expected.predict(data.X))
    logarithm = diagnose(
        data.X, data.y, **data.arguments, estimator=blend, log_target=True, random_state=0
    )
    median = np.median(data.arguments["y_std"] / data.y)
    assert logarithm.twin.fitted_.calibration.scale.y_std == pytest.approx(median)


@pytest.mark.parametrize("cell", ["-0.1", "", "<0.1"])
def test_wrong_errors_are_refused(tmp_path, cell):
    path = tmp_path / "table.csv"
    path.write_text(f"x,y,sigma\n1,3,0.1\n2,4,{cell}\n3,8,0.2\n4,5,0.1\n")
    result = run("fit", path, "--target", "y", "--error", "sigma", "-o", tmp_path / "m.twin")
    assert result.exit_code == 2
    assert "line 3, column 'sigma'" in result.stderr
    assert "is no standard deviation; --error takes 0 and more" in result.stderr


def test_values_need_known_errors(table, tmp_path):
    model = tmp_path / "m.twin"
    fitted = run("fit", table, "--target", "y", "-m", "ridge", "--drop", "sigma", "-o", model)
    assert fitted.exit_code == 0, fitted.output
    for of, message in (("value", "need a fit with y_std, or with --error"), ("mean", "of must")):
        result = run("predict", model, table, "--interval", "0.9", "--of", of)
        assert result.exit_code == 2
        assert message in result.stderr
