"""`twinned predict --applicability`."""

import io
import json

import numpy as np
import pandas as pd
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import twinned
from twinned import TwinRegressor
from twinned.cli import app


def test_rows_outside_are_marked_and_reported(tmp_path):
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(40, 2)), columns=["a", "b"])
    twinned.save(TwinRegressor(Ridge()).fit(X, X["a"] + X["b"]), tmp_path / "model.twin")
    new = X[:3].assign(a=[0.5, 50.0, 0.4])
    new.to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", str(tmp_path / "model.twin"), str(tmp_path / "new.csv")]
    result = CliRunner().invoke(app, [*command, "--applicability"])
    assert result.exit_code == 0, result.output
    table = pd.read_csv(io.StringIO(result.stdout))
    assert list(table.columns) == ["prediction", "applicability"]
    assert table["applicability"].tolist() == ["inside", "outside", "inside"]
    assert "1 of 3 rows are outside of the known rows" in result.stderr
    shown = json.loads(CliRunner().invoke(app, [*command, "--applicability", "--json"]).stdout)
    assert shown["applicability"] == table["applicability"].tolist()
    assert "applicability" not in CliRunner().invoke(app, command).stdout
