"""`twinned export`."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from typer.testing import CliRunner

import twinned
from tests.export.onnx.runtime import predict_onnx
from twinned import TwinRegressor
from twinned.app.cli import app

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


@pytest.fixture
def model(tmp_path):
    """A saved twin."""
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"area": rng.uniform(size=40), "wall": rng.choice(["brick", "wood"], 40)})
    twin = TwinRegressor(HistGradientBoostingRegressor(max_iter=5), random_state=0)
    twinned.save(twin.fit(X, X["area"]), tmp_path / "houses.twin")
    return str(tmp_path / "houses.twin")


def run(*arguments):
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def test_size_and_type_are_printed(model, tmp_path):
    result = run(model, "-o", tmp_path / "houses.onnx")
    assert result.exit_code == 0, result.output
    size = (tmp_path / "houses.onnx").stat().st_size
    assert f"houses.onnx: {size:,} bytes" in result.stdout
    new = pd.DataFrame({"area": [0.5], "wall": ["wood"]})
    found = predict_onnx(tmp_path / "houses.onnx", new)
    assert list(found) == ["mean", "std"]
    np.testing.assert_allclose(found["mean"], twinned.load(model).predict(new))


def test_json(model, tmp_path):
    result = run(model, "-o", tmp_path / "a.onnx", "--json", "--outputs", "mean")
    facts = json.loads(result.stdout)
    assert set(facts) == {"model", "output", "bytes", "model_bytes", "dtype"}
    assert facts["dtype"] == "float64"


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["-o", "model.pmml"], "the name must end in .onnx"),
        (["-o", "missing/model.onnx"], "there is no folder missing"),
        (["-o", "model.onnx", "--outputs", "median"], "outputs must be one of 'mean', 'std'"),
        (["-o", "model.onnx", "--confidence", "0.9"], "stores no calibration"),
        (["-o", "model.onnx", "--dtype", "float16"], "--dtype must be one of 'float64', 'float32'"),
    ],
)
def test_bad_input_is_one_line(model, tmp_path, monkeypatch, arguments, reason):
    monkeypatch.chdir(tmp_path)
    result = run(model, *arguments)
    assert result.exit_code == 2
    assert reason in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not list(tmp_path.glob("*.onnx"))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_type_of_the_inputs(model, tmp_path, dtype):
    result = run(model, "-o", tmp_path / "a.onnx", "--dtype", dtype)
    assert result.exit_code == 0, result.output
    assert f"numeric inputs: {dtype}" in result.stdout


def test_c_header(model, tmp_path):
    result = run(model, "-o", tmp_path / "houses.h", "--anchors", 5, "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["anchors"] == 5
    assert facts["largest_difference"] < 1e-5
    assert "houses_predict(" in (tmp_path / "houses.h").read_text()
    result = run(model, "-o", tmp_path / "2.h")
    assert "twin_interval gives no intervals" in result.stderr
    assert f"{facts['ram_bytes']:,} bytes of RAM" in result.stdout
    assert "tables of 40 anchors" in result.stdout
    assert "twin_predict(" in (tmp_path / "2.h").read_text()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("a.h", ["--dtype", "float32"], "--dtype is for ONNX"),
        ("a.h", ["--confidence", "0.9"], "--confidence is for ONNX"),
        ("a.h", ["--anchors", "0"], "--anchors"),
    ],
)
def test_options_of_the_other_format_are_refused(model, tmp_path, name, options, message):
    result = run(model, "-o", tmp_path / name, *options)
    assert result.exit_code != 0
    assert message in result.output
    assert not (tmp_path / name).exists()
