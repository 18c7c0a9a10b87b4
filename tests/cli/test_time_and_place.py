"""`--time-column` and `--group`: what is held out, and the comparison with it."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from twinned import ForwardFolds, load
from twinned.app.cli import app

N = 160


@pytest.fixture(scope="module", autouse=True)
def _fast():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("twinned.estimators.blending.members.AUTO", ("ridge", "gp_matern"))
        yield


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "300"})


@pytest.fixture(scope="module")
def frame():
    """Rows with a level that drifts, which a feature shows that follows the time."""
    rng = np.random.RandomState(0)
    days, x = np.arange(N), rng.normal(size=(N, 2))
    level = np.cumsum(rng.normal(size=N))
    dates = (pd.Timestamp("2021-03-01") + pd.to_timedelta(days, unit="D")).strftime("%Y-%m-%d")
    table = pd.DataFrame({"date": dates, "a": x[:, 0], "hours": days + 0.3 * x[:, 1]})
    table["y"] = (x[:, 0] + level + 0.1 * rng.normal(size=N)).round(4)
    return table.iloc[rng.permutation(N)].round(4)


@pytest.fixture
def table(frame, tmp_path):
    frame.to_csv(tmp_path / "rows.csv", index=False)
    return tmp_path / "rows.csv"


def test_advice_of_a_drifting_level_is_that_of_later_rows(table, frame, tmp_path):
    model, page = tmp_path / "m.twin", tmp_path / "page.html"
    result = run("advise", table, "-t", "y", "--time-column", "date", "--budget", "5s", "--json",
                 "-o", model, "-r", page)  # fmt: skip
    assert result.exit_code == 0, result.output
    content = json.loads(result.stdout)
    assert content["columns"] == ["a", "hours"]
    assert "from twinned import AutoTwinRegressor, ForwardFolds" in content["code"]
    assert "time-column" not in page.read_text("utf-8")
    saved = load(model)
    assert isinstance(saved.cv, ForwardFolds)
    dates = pd.to_datetime(frame["date"]).to_numpy()
    is_later = dates >= np.sort(dates)[N // 2]
    np.testing.assert_array_equal(np.isfinite(saved.out_of_fold_prediction_), is_later)
    np.testing.assert_array_equal(np.sort(saved.fitted_.calibration.rows), np.flatnonzero(is_later))
    predicted = saved.out_of_fold_prediction_[is_later]
    rmse = np.sqrt(np.mean((predicted - frame["y"].to_numpy()[is_later]) ** 2))
    assert content["errors"]["rmse"] == pytest.approx(rmse)
    # the mean of earlier rows, not of the rows that are predicted
    assert content["errors"]["mean_rmse"] > np.std(frame["y"].to_numpy()[is_later])


def test_time_is_a_feature_on_request(table, tmp_path):
    model = tmp_path / "m.twin"
    fit = ["fit", table, "-t", "y", "--time-column", "date", "-m", "ridge", "-o", model]
    for options, expected in (([], []), (["--date", "date"], ["date (days)", "date (month)"])):
        result = run(*fit, *options)
        assert result.exit_code == 0, result.output
        names = list(load(model).feature_names_in_)
        assert names[:4] == ["a", "hours", *expected]


def test_a_twin_is_checked_by_later_rows(frame, table, tmp_path):
    model = tmp_path / "m.twin"
    fit = ["fit", table, "-t", "y", "-m", "ridge", "--json", "-o"]
    result = run(*fit, model, "--time-column", "date")
    assert result.exit_code == 0, result.output
    forward = json.loads(result.stdout)["check"]
    random = json.loads(run(*fit, tmp_path / "r.twin", "--drop", "date").stdout)["check"]
    assert forward["rmse_twin"] > random["rmse_twin"]
    y, times = frame["y"].to_numpy(), pd.to_datetime(frame["date"]).to_numpy()
    folds = ForwardFolds().split(y, groups=times)
    errors = [y[held_out] - y[training].mean() for training, held_out in folds]
    assert forward["rmse_mean"] == pytest.approx(np.sqrt(np.mean(np.concatenate(errors) ** 2)))
    saved = load(model)
    assert len(saved.fitted_.calibration.scores) == N // 2


def test_numbers_are_times(frame, tmp_path):
    path, model = tmp_path / "rows.csv", tmp_path / "m.twin"
    frame.assign(year=1990 + np.argsort(np.argsort(frame["date"])) // 10).to_csv(path, index=False)
    result = run("fit", path, "-t", "y", "--time-column", "year", "--budget", "2s", "-o", model)
    assert result.exit_code == 0, result.output
    saved = load(model)
    assert len(np.unique(saved.fitted_.anchors.groups)) == 16
    assert list(saved.feature_names_in_) == ["a", "hours"]


@pytest.mark.parametrize(
    ("change", "options", "words"),
    [
        ({}, ["--time-column", "day"], ["--time-column", "'day'"]),
        ({}, ["--time-column", "y"], ["--time-column names 'y', which is the --target"]),
        ({}, ["--time-column", "date", "--group", "a"], ["--group and --time-column cannot"]),
        ({"date": "soon"}, ["--time-column", "date"], ["line 2, column 'date'", "is no date"]),
        ({"date": 2020}, ["--time-column", "date"], ["too few times", "(1 differ)"]),
    ],
)
def test_wrong_options_have_one_line(frame, tmp_path, change, options, words):
    path = tmp_path / "rows.csv"
    frame.assign(**change).to_csv(path, index=False)
    result = run("fit", path, "-t", "y", "-o", tmp_path / "m.twin", *options)
    assert result.exit_code == 2, result.output
    for word in words:
        assert word in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_missing_times_are_refused(frame, tmp_path):
    path = tmp_path / "rows.csv"
    frame.assign(date=[None, *frame["date"][1:]]).to_csv(path, index=False)
    result = run("advise", path, "-t", "y", "--time-column", "date")
    assert result.exit_code == 2
    assert "line 2, column 'date' has no value, and it is the --time-column" in result.stderr
