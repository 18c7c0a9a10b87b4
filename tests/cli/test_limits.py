"""Limits in the target of a table: censored labels of `twinned fit` and `twinned advise`."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

from twinned import load
from twinned.app.cli import app
from twinned.app.cli.options import TrainingOptions
from twinned.app.cli.training_data import read_training_data


@pytest.fixture
def table(tmp_path, rng):
    """A file of 40 rows, 12 of which have a limit."""
    a = rng.permutation(np.linspace(-1, 1, 40))
    y = 20 + 10 * a
    cells = ["<14" if v < 14 else "≥ 26" if v >= 26 else f"{v:.4f}" for v in y]
    path = tmp_path / "lab.csv"
    rows = (f"{x:.4f},{rng.normal():.3f},{cell}\n" for x, cell in zip(a, cells, strict=True))
    path.write_text("a,b,lead\n" + "".join(rows), encoding="utf-8")
    assert sum(not cell[0].isdigit() for cell in cells) == 16
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_limits_become_bounds(table):
    data = read_training_data(TrainingOptions(table=table, targets=["lead"]))
    lower, upper = data.arguments["y_lower"], data.arguments["y_upper"]
    assert data.n_censored == 16
    assert set(upper[lower == 0]) == {14.0}
    assert set(lower[np.isposinf(upper)]) == {26.0}
    known = ~np.isnan(data.y)
    np.testing.assert_array_equal(lower[known], data.y[known])
    np.testing.assert_array_equal(upper[known], data.y[known])


def test_fit_uses_rows_with_a_limit(table, tmp_path):
    result = run(
        "fit", table, "--target", "lead", "-m", "ridge", "-o", tmp_path / "m.twin", "--json"
    )
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout.splitlines()[-1])
    assert (facts["rows"], facts["censored_rows"], facts["anchors"]) == (40, 16, 24)
    assert "16 of 40 values are limits" in result.stderr
    twin = load(tmp_path / "m.twin")
    low, high = twin.predict([[-1.0, 0.0], [1.0, 0.0]])
    assert low < 13
    assert high > 27
    assert facts["check"] is None
    assert "a twin is not cross-validated with limits in the target" in result.stderr


def test_log_target_takes_the_logarithm_of_limits(table, tmp_path):
    arguments = ("fit", table, "--target", "lead", "-m", "ridge", "--log-target", "--json", "-o")
    result = run(*arguments, tmp_path / "m.twin")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout.splitlines()[-1])["censored_rows"] == 16
    data = read_training_data(TrainingOptions(table=table, targets=["lead"], log_target=True))
    known = ~np.isnan(data.y)
    upper = np.where(data.arguments["y_upper"] == 14, np.log(14), np.nan)
    lower = np.where(data.arguments["y_lower"] == 26, np.log(26), np.nan)
    saved = load(tmp_path / "m.twin").regressor_
    twin = clone(saved).fit(
        data.X,
        np.where(known, np.log(data.y), np.nan),
        y_lower=np.where(known, np.nan, lower),
        y_upper=np.where(known, np.nan, upper),
    )
    np.testing.assert_allclose(saved.predict(data.X), twin.predict(data.X))
    low, high = load(tmp_path / "m.twin").predict(pd.DataFrame({"a": [-1.0, 1.0], "b": 0.0}))
    assert low < 14
    assert high > 26


def test_log_target_refuses_limits_that_are_not_positive(tmp_path):
    path = tmp_path / "lab.csv"
    for cell in ("<0", ">-1", "<-2"):
        path.write_text(f"a,y\n1,3\n2,{cell}\n3,8\n4,5\n")
        result = run("fit", path, "--target", "y", "--log-target", "-o", tmp_path / "m.twin")
        assert result.exit_code == 2
        assert f"line 3, column 'y': {cell} has no logarithm" in result.stderr


@pytest.mark.slow
def test_advise_fits_rows_with_a_limit(table, tmp_path):
    out = tmp_path / "m.twin"
    result = run("advise", table, "--target", "lead", "--budget", "15s", "-o", out, "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout.splitlines()[-1])
    assert "y_lower=y_lower, y_upper=y_upper" in content["code"]
    assert any("uses 16 censored rows" in note for note in content["notes"])
    assert len(load(out).anchors_y_) == 24


def test_positive_values_have_the_lower_bound_0(table):
    data = read_training_data(TrainingOptions(table=table, targets=["lead"]))
    censored_below = np.isnan(data.y) & (data.arguments["y_upper"] == 14)
    assert (data.arguments["y_lower"][censored_below] == 0).all()
    assert any("at least 0, as all values are positive" in note for note in data.notes)


def test_values_of_both_signs_have_no_lower_bound(tmp_path):
    path = tmp_path / "lab.csv"
    path.write_text("a,y\n1,-3\n2,<5\n3,8\n4,0\n")
    data = read_training_data(TrainingOptions(table=path, targets=["y"]))
    assert data.arguments["y_lower"][1] == -np.inf
    assert not any("at least" in note for note in data.notes)


def test_rows_without_a_target_are_dropped_and_counted(tmp_path):
    path = tmp_path / "lab.csv"
    path.write_text("a,kind,y\n1,u,3\n2,v,\n3,u,8\n4,u,?\n5,u,4\n")
    options = TrainingOptions(table=path, targets=["y"])
    data = read_training_data(options)
    assert data.y.tolist() == [3, 8, 4]
    assert data.X["a"].tolist() == [1, 3, 5]
    assert any("2 of 5 rows have no value of 'y' and are not used" in note for note in data.notes)
    assert data.row_names == list(data.X.index) == ["line 2", "line 4", "line 6"]
    out = tmp_path / "m.twin"
    result = run("fit", path, "-t", "y", "-m", "ridge", "--no-check", "-o", out, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["dropped_rows"] == 2
    assert "2 of 5 rows have no value" in result.stderr
    path.write_text("a,y\n1,\n2,\n")
    with pytest.raises(ValueError, match="column 'y' has no value, and it is the --target"):
        read_training_data(options)


def test_known_cases_are_named_as_in_the_file(tmp_path):
    path = tmp_path / "lab.csv"
    path.write_text("name,a,y\nP,1,3\nQ,2,\nR,3,8\n,4,?\n,5,4\nU,6,5\n")
    arguments = ("fit", path, "-t", "y", "-m", "ridge", "--no-check", "-o")
    assert run(*arguments, tmp_path / "lines.twin", "--drop", "name").exit_code == 0
    assert load(tmp_path / "lines.twin").fitted_.anchors.labels == [
        "line 2",
        "line 4",
        "line 6",
        "line 7",
    ]
    assert run(*arguments, tmp_path / "names.twin", "--label", "name").exit_code == 0
    assert load(tmp_path / "names.twin").fitted_.anchors.labels == ["P", "R", "line 6", "U"]
    data = read_training_data(TrainingOptions(table=path, targets=["y"], label="name"))
    assert data.row_names == ["P (line 2)", "R (line 4)", "line 6", "U (line 7)"]
