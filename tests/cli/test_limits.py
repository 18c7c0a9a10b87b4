"""Limits in the target of a table: censored labels of `twinned fit` and `twinned advise`."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from twinned import load
from twinned.cli import app
from twinned.cli.training_data import TrainingOptions, read_training_data, reading_code


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
    data = read_training_data(table, TrainingOptions("lead"))
    lower, upper = data.bounds["y_lower"], data.bounds["y_upper"]
    assert data.n_censored == 16
    assert set(upper[np.isneginf(lower)]) == {14.0}
    assert set(lower[np.isposinf(upper)]) == {26.0}
    known = ~np.isnan(data.y)
    np.testing.assert_array_equal(lower[known], data.y[known])
    np.testing.assert_array_equal(upper[known], data.y[known])


def test_printed_code_reads_the_bounds(table):
    options = TrainingOptions("lead")
    data = read_training_data(table, options)
    namespace = {}
    exec(reading_code(data, options), namespace)
    np.testing.assert_array_equal(namespace["y_lower"], data.bounds["y_lower"])
    np.testing.assert_array_equal(namespace["y_upper"], data.bounds["y_upper"])


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
    assert twin.predict_interval([[0.0, 0.0]]).shape == (1, 2)


def test_log_target_refuses_limits_in_one_line(table, tmp_path):
    result = run("fit", table, "--target", "lead", "--log-target", "-o", tmp_path / "m.twin")
    assert result.exit_code == 2
    assert "is a limit, which --log-target does not support" in result.stderr


@pytest.mark.slow
def test_advise_fits_rows_with_a_limit(table, tmp_path):
    out = tmp_path / "m.twin"
    result = run("advise", table, "--target", "lead", "--budget", "15s", "-o", out, "--json")
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout.splitlines()[-1])
    assert "y_lower=y_lower, y_upper=y_upper" in content["code"]
    assert any("16 rows whose value is only known" in note for note in content["notes"])
    assert len(load(out).anchors_y_) == 24
