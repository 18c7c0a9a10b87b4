"""`twinned solve`."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import twinned
from twinned import TwinRegressor, solve
from twinned.app.cli import app


@pytest.fixture
def twin(tmp_path, monkeypatch):
    """A linear twin, saved in the current folder with a row to change."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(1, 9, (40, 3)), columns=["heat", "time", "load"])
    X["solvent"] = rng.choice(["water", "oil"], 40)
    y = X["heat"] + 2 * X["time"] + 3 * (X["solvent"] == "oil")
    twin = TwinRegressor(Ridge(1e-6), pairs=10, random_state=0).fit(X, y)
    twinned.save(twin, "model.twin")
    pd.DataFrame({"heat": [3.0], "time": [2.0], "load": [5.0], "solvent": ["water"]}).to_csv(
        "row.csv", index=False
    )
    return twin


def run(*arguments):
    return CliRunner().invoke(app, ["solve", "model.twin", *arguments])


def test_table_of_changes(twin):
    options = ["--near", "row.csv", "--fix", "heat", "--fix", "solvent", "--fix", "load=4"]
    result = run("--goal", ">=12", *options, "-n", "2")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(io.StringIO(result.stdout))
    assert len(table) == 2
    first = table.iloc[0]
    assert first["heat"] == 3
    assert (first["load"], first["change of load"]) == (4, -1)
    assert (first["time"], first["change of time"]) == pytest.approx((4.5, 2.5), abs=0.01)
    assert first["predicted"] == pytest.approx(12, abs=0.01)


def test_file_and_json_are_those_of_solve(twin):
    options = [
        "--bounds",
        "time:2..4",
        "--constraint",
        "heat+load=10",
        "--constraint",
        "heat - time <= 3",
    ]
    expected = solve(
        twin,
        12.0,
        bounds={"time": (2, 4)},
        constraints=["heat + load = 10", "heat - time <= 3"],
        random_state=0,
    )
    result = run("--goal", "12", *options, "--json")
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    np.testing.assert_allclose(printed["heat"], expected["heat"])
    assert printed["reached_rows"] == len(expected)
    for name, read in (("out.csv", pd.read_csv), ("out.xlsx", pd.read_excel)):
        result = run("--goal", "12", *options, "-o", name, "--digits", "17")
        assert result.exit_code == 0, result.output
        written = read(name)
        assert list(written) == list(expected)
        np.testing.assert_allclose(written["change of time"], expected["change of time"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--goal", "much"], "--goal must be"),
        (["--goal", "1", "--goal", "2"], "one target"),
        (["--goal", "12", "--fix", "heet"], "--fix names 'heet', which is none of heat"),
        (["--goal", "12", "--fix", "solvent=acid"], "known row has; known are oil, water."),
        (["--goal", "12", "--bounds", "time:3..1"], "--bounds of 'time': 3 is larger than 1"),
        (["--goal", "12", "--bounds", "time=3"], "--bounds must be such as"),
        (["--goal", "12", "--constraint", "heat+time"], "A constraint has the form"),
        (["--goal", "12", "--constraint", "heat+time=900"], "No row satisfies"),
        (
            ["--goal", "12", "--constraint", "heat,tiem=9"],
            "of the columns heat, time, load, solvent",
        ),
        (["--goal", "12", "--bounds", "time:long"], "--bounds of 'time' must be"),
        (["--goal", "12", "--near", "none.csv"], "none.csv"),
        (["--goal", "12", "--confidence", "0.9"], "--confidence needs a calibrated"),
    ],
)
def test_errors_in_one_line(twin, options, message):
    result = run(*options)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_unreached_goal_is_a_warning(twin):
    result = run("--goal", "500", "-n", "1")
    assert result.exit_code == 0
    assert "closest" in result.stderr
