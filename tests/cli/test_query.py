"""`twinned query`."""

import io
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from typer.testing import CliRunner

import twinned
from twinned import TransformedTargetTwin, TwinRegressor, query
from twinned.app.cli import app


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A model and candidates in the current folder; returns the model and the features."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(60, 2)).round(3), columns=["a", "b"])
    y = 2 + np.sin(6 * X["a"]) + X["b"]
    twin = TwinRegressor(ExtraTreesRegressor(5, random_state=0), random_state=0)
    twinned.save(twin.fit(X[:30], y[:30]), "model.twin")
    candidates = X[30:].assign(name=[f"c{i}" for i in range(30)])[["name", "b", "a"]]
    candidates.to_csv("candidates.csv", index=False)
    log = TransformedTargetTwin(twin)
    twinned.save(log.fit(X[:30], y[:30]), "log.twin")
    return twin, X[30:]


def run(*arguments):
    return CliRunner().invoke(app, ["query", *arguments])


@pytest.mark.parametrize("options", [[], ["--minimize"], ["--strategy", "uncertainty"]])
def test_selected_rows_are_those_of_query(files, options):
    twin, pool = files
    result = run("model.twin", "candidates.csv", "-n", "3", "--digits", "17", *options)
    assert result.exit_code == 0, result.output
    table = pd.read_csv(io.StringIO(result.stdout))
    columns = ["name", "b", "a", "row", "prediction", "std", "probability_better"]
    assert list(table.columns) == columns
    maximize = "--minimize" not in options
    strategy = "uncertainty" if "--strategy" in options else "improvement"
    rows = query(twin, pool, 3, strategy=strategy, maximize=maximize, random_state=0)
    assert table["row"].tolist() == (rows + 2).tolist()  # lines of the file
    assert table["name"].tolist() == [f"c{i}" for i in rows]
    np.testing.assert_allclose(table["prediction"], twin.predict(pool.iloc[rows]))
    best = twin.anchors_y_.max() if maximize else twin.anchors_y_.min()
    expected = twin.probability_better(pool.iloc[rows], best, maximize=maximize)
    np.testing.assert_allclose(table["probability_better"], expected)


def test_columns_may_be_called_like_results(files):
    twin, pool = files
    names = {"a": "prediction", "b": "row"}
    renamed = pool.rename(columns=names)
    X = pd.DataFrame(twin.anchors_X_, columns=["prediction", "row"])
    twinned.save(twin.fit(X, twin.anchors_y_), "renamed.twin")
    renamed.assign(std=1).to_csv("renamed.csv", index=False)
    result = run("renamed.twin", "renamed.csv", "-n", "2", "--digits", "17")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(io.StringIO(result.stdout))
    results = ["row_", "prediction_", "std_", "probability_better"]
    assert list(table.columns) == ["prediction", "row", "std", *results]
    expected = twin.predict(table[["prediction", "row"]])
    np.testing.assert_allclose(table["prediction_"], expected)
    command = ["predict", "renamed.twin", "renamed.csv", "--keep", "prediction", "--std"]
    printed = CliRunner().invoke(app, command).stdout
    assert printed.startswith("prediction,prediction_,std\n")


def test_an_excel_file_has_the_same_rows(files):
    options = ["-n", "3", "--digits", "4"]
    printed = pd.read_csv(io.StringIO(run("model.twin", "candidates.csv", *options).stdout))
    result = run("model.twin", "candidates.csv", *options, "-o", "next.xlsx")
    assert result.exit_code == 0, result.output
    pd.testing.assert_frame_equal(pd.read_excel("next.xlsx"), printed, check_dtype=False)


@pytest.mark.parametrize("suffix", [".json", ".parquet", ".XLS", ".docx"])
def test_files_that_are_not_written_are_refused(files, suffix):
    for command in ("query", "predict"):
        arguments = [command, "model.twin", "candidates.csv", "-o", f"next{suffix}"]
        result = CliRunner().invoke(app, arguments)
        assert result.exit_code == 2
        assert f"a {suffix} file cannot be written; use .csv or .xlsx." in result.stderr
        assert not Path(f"next{suffix}").exists()


def test_an_absent_feature_may_be_added_empty_where_the_model_takes_missing_values(files):
    candidates = pd.read_csv("candidates.csv")
    candidates.drop(columns="a").to_csv("fewer.csv", index=False)
    refused = run("model.twin", "fewer.csv", "-n", "3")
    assert refused.exit_code == 2
    assert "has no column 'a'" in refused.stderr
    assert "an absent column may be added empty" in refused.stderr
    candidates.assign(a="").to_csv("empty.csv", index=False)
    assert run("model.twin", "empty.csv", "-n", "3").exit_code == 0


def test_best_is_the_value_to_improve_on(files):
    twin, pool = files
    for name, best, expected in (("model.twin", 2.5, 2.5), ("log.twin", np.exp(0.9), 0.9)):
        options = ["--minimize", "--best", repr(float(best)), "--digits", "17"]
        table = pd.read_csv(io.StringIO(run(name, "candidates.csv", *options).stdout))
        inner = twin if name == "model.twin" else twinned.load(name).regressor_
        rows = query(
            inner, pool, 1, strategy="improvement", maximize=False, best=expected, random_state=0
        )
        assert table["row"].tolist() == (rows + 2).tolist()
        np.testing.assert_allclose(
            table["probability_better"],
            inner.probability_better(pool.iloc[rows], expected, maximize=False),
        )
    result = run("log.twin", "candidates.csv", "--best", "0")
    assert result.exit_code == 2
    assert "--best must be positive after --log-target, not 0." in result.stderr


def test_an_earlier_result_is_pending(files):
    result = run("model.twin", "candidates.csv", "-n", "4", "-o", "next.csv")
    assert result.stdout == "4 of 30 rows in next.csv\n"
    first = pd.read_csv("next.csv")
    shown = json.loads(
        run("model.twin", "candidates.csv", "-n", "26", "--pending", "next.csv", "--json").stdout
    )
    assert set(shown["row"]) == set(range(2, 32)) - set(first["row"])
    assert shown["copied_columns"]["name"][0] == f"c{shown['row'][0] - 2}"
    result = run("model.twin", "candidates.csv", "-n", "27", "--pending", "next.csv")
    assert result.exit_code == 2
    assert "n=27 exceeds the 26 different rows of the pool" in result.stderr


def test_predictions_of_a_logarithm_are_in_units_of_the_target(files):
    _, pool = files
    result = run("log.twin", "candidates.csv", "-n", "2")
    assert result.exit_code == 0, result.output
    table = pd.read_csv(io.StringIO(result.stdout))
    expected = twinned.load("log.twin").predict(pool.iloc[table["row"] - 2])
    np.testing.assert_allclose(table["prediction"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-n", "0"], "n must be at least 1"),
        (["--strategy", "luck"], "strategy"),
        (["--pending", "none.csv"], "none.csv"),
        (["-o", "candidates.csv"], "would replace the input"),
    ],
)
def test_bad_input_is_one_line(files, arguments, message):
    result = run("model.twin", "candidates.csv", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
