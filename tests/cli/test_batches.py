"""Batches from the command line: fit, predict, explain and query with offsets of laboratories."""

import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import twinned
from twinned import AutoTwinRegressor, TwinRegressor
from twinned.app.cli import app, fitting

pytestmark = pytest.mark.usefixtures("quick_checks")

MEMBERS = ["ridge", "gp_matern"]
OFFSETS = {"A": 0.0, "B": 3.0, "C": -2.0, "D": 1.0}


def run(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return result


def refused(*arguments):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if not line.startswith("twinned: note")]
    assert len(lines) == 1
    return lines[0]


def laboratories(n=80, seed=0):
    """Measurements of four laboratories; the last, D, is not in the training table."""
    rng = np.random.RandomState(seed)
    table = pd.DataFrame(rng.uniform(-1, 1, (n, 2)), columns=["a", "b"])
    table["lab"] = rng.permutation(np.resize(list(OFFSETS), n))
    signal = np.sin(3 * table["a"]) + table["b"] ** 2 + table["lab"].map(OFFSETS)
    return table.assign(y=10 + signal + 0.05 * rng.normal(size=n))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with training rows, rows to predict, known rows of D, and a model."""
    folder, table = tmp_path_factory.mktemp("batches"), laboratories()
    is_new = table["lab"] == "D"
    known, new = table[is_new].iloc[:3], pd.concat([table[is_new].iloc[3:], table[~is_new][:9]])
    table[~is_new][9:].to_csv(folder / "table.csv", index=False)
    known.to_csv(folder / "known.csv", index=False)
    new.to_csv(folder / "new.csv", index=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "AutoTwinRegressor", quick_blend)
        result = run("fit", folder / "table.csv", "-t", "y", "-b", "lab", "-o", folder / "m.twin")
    (folder / "fit.txt").write_text(result.stdout)
    return folder


def quick_blend(**parameters):
    return AutoTwinRegressor(members=MEMBERS, **parameters)


def predictions(folder, *options):
    result = run("predict", folder / "m.twin", folder / "new.csv", "--json", *options)
    return json.loads(result.stdout), result.stderr


def test_fit_prints_offsets_and_stores_the_column(folder):
    model, text = twinned.load(folder / "m.twin"), (folder / "fit.txt").read_text()
    assert model.batch_name_ == "lab"
    assert list(model.feature_names_in_) == ["a", "b"]
    offsets = model.batch_offsets_["offset"]
    assert offsets["B"] - offsets["A"] == pytest.approx(3, abs=0.2)
    shown = [line.split() for line in text.splitlines() if "rows)" in line]
    assert [line[0] for line in shown] == ["B", "C", "A"]
    assert float(shown[0][1]) == pytest.approx(offsets["B"], rel=1e-3)
    assert "RMSE of rows of known batches" in text


def test_predictions_know_the_column_of_the_fit(folder):
    new, model = pd.read_csv(folder / "new.csv"), twinned.load(folder / "m.twin")
    result, stderr = predictions(folder, "--interval", "0.9", "--std")
    expected = model.predict_interval(new[["a", "b"]], batch=new["lab"])
    np.testing.assert_allclose(result["low"], expected[:, 0])
    assert stderr.count("wider intervals: D. A few known rows of a batch suffice: --known") == 1
    assert stderr.count("warning") == 1
    assert result["ignored_columns"] == ["y"]
    is_known = (new["lab"] != "D").to_numpy()
    error = np.abs(np.array(result["prediction"]) - new["y"])[is_known]
    assert error.max() < 0.5


def test_a_table_without_the_column_has_the_mean_of_batches(folder):
    new = pd.read_csv(folder / "new.csv")
    new.drop(columns="lab").to_csv(folder / "without.csv", index=False)
    result = run("predict", folder / "m.twin", folder / "without.csv", "--json")
    model = twinned.load(folder / "m.twin")
    predicted = json.loads(result.stdout)["prediction"]
    np.testing.assert_allclose(predicted, model.predict(new[["a", "b"]]))
    warning = "was fitted with batches, and none is given: predictions are those of the mean of all"
    assert result.stderr.count("warning") == result.stderr.count(warning) == 1
    new.rename(columns={"lab": "site"}).to_csv(folder / "renamed.csv", index=False)
    renamed = run("predict", folder / "m.twin", folder / "renamed.csv", "--batch", "site")
    same = run("predict", folder / "m.twin", folder / "new.csv")
    assert renamed.stdout == same.stdout


def test_models_fitted_in_python_with_batches(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = laboratories()
    table = table[table["lab"] != "D"]
    X, lab = table[["a", "b"]], table["lab"].to_numpy()
    single = TwinRegressor(Ridge(1e-3)).fit(X, table["y"], batch=lab)
    both = pd.DataFrame({"y": table["y"], "z": -table["y"]})
    several = AutoTwinRegressor(members=["ridge"], random_state=0).fit(X, both, batch=lab)
    table[:9].to_csv("new.csv", index=False)
    for model in (single, several):
        twinned.save(model, "m.twin")
        result = run("predict", "m.twin", "new.csv", "--batch", "lab", "--digits", "17")
        printed = pd.read_csv(io.StringIO(result.stdout))
        expected = model.predict(X[:9], batch=lab[:9])
        np.testing.assert_allclose(printed.to_numpy().reshape(expected.shape), expected)
        assert "warning" not in result.stderr
        for arguments in (("predict", "m.twin", "new.csv"), ("solve", "m.twin", "--goal", "max")):
            if arguments[0] == "solve" and model is several:
                arguments = (*arguments[:-1], "y:max")
            stderr = run(*arguments).stderr
            assert stderr.count("none is given: predictions are those of the mean of all") == 1
            assert "--batch" in stderr
    twinned.save(single, "m.twin")
    table[:9].assign(a=table["a"] + 0.01).to_csv("new.csv", index=False)
    assert "none is given" in run("query", "m.twin", "new.csv").stderr
    assert "none is given" not in run("query", "m.twin", "new.csv", "--batch", "A").stderr


def test_known_rows_of_a_new_batch(folder):
    new = pd.read_csv(folder / "new.csv")
    before, _ = predictions(folder)
    after, stderr = predictions(folder, "--known", folder / "known.csv", "--interval", "0.9")
    assert "warning" not in stderr
    is_new = (new["lab"] == "D").to_numpy()
    errors = [np.abs(np.array(r["prediction"]) - new["y"])[is_new].max() for r in (before, after)]
    assert errors[1] < 0.5 < errors[0]
    known = pd.read_csv(folder / "known.csv").drop(columns="lab")
    known.to_csv(folder / "no_lab.csv", index=False)
    arguments = "predict", folder / "m.twin", folder / "new.csv", "--known"
    assert "has no column 'lab'" in refused(*arguments, folder / "no_lab.csv")
    known.assign(lab="D", y="<5").to_csv(folder / "limits.csv", index=False)
    assert "has limits of 'y'" in refused(*arguments, folder / "limits.csv")


def test_explanations_have_the_offset(folder):
    arguments = "explain", folder / "m.twin", folder / "new.csv", "-k", "2"
    result = json.loads(run(*arguments, "--known", folder / "known.csv", "--json").stdout)
    row = result["rows"][0]
    assert row["values"]["batch (offset)"] == "D"
    for case in row["comparables"]:
        total = case["known"] + sum(case["adjustments"].values())
        assert total == pytest.approx(case["estimate"], abs=1e-6)
        assert case["columns"]["batch (offset)"] in OFFSETS
        expected = OFFSETS["D"] - OFFSETS[case["columns"]["batch (offset)"]]
        assert case["adjustments"]["batch (offset)"] == pytest.approx(expected, abs=0.4)
    text = run(*arguments).stdout
    assert any(line.split()[:3] == ["batch", "(offset)", "D"] for line in text.splitlines())


def test_rows_to_measure_in_a_batch(folder):
    table = {}
    for lab in ("B", "C"):
        arguments = "query", folder / "m.twin", folder / "new.csv", "-n", "2", "--batch", lab
        table[lab] = json.loads(run(*arguments, "--json").stdout)
    assert table["B"]["row"] == table["C"]["row"]
    difference = np.subtract(table["B"]["prediction"], table["C"]["prediction"])
    np.testing.assert_allclose(difference, 5, atol=0.3)
    better = [table[lab]["probability_better"] for lab in "BC"]
    np.testing.assert_allclose(*better, atol=0.1)


def test_wrong_options(folder):
    table, output = folder / "table.csv", folder / "other.twin"
    fitted = "fit", table, "-t", "y", "-o", output
    assert "--batch needs --model auto" in refused(*fitted, "-b", "lab", "-m", "ridge")
    assert "has no column 'site'" in refused(*fitted, "-b", "site")
    assert "which is the --target" in refused(*fitted, "-b", "y")
    assert "batch of its own" in refused(*fitted, "-b", "a")
    arguments = "predict", folder / "m.twin", folder / "new.csv"
    assert "has no column 'site'" in refused(*arguments, "--batch", "site")
    run("fit", table, "-t", "y", "-d", "lab", "-m", "ridge", "--no-check", "-o", output)
    message = refused("predict", output, folder / "new.csv", "--batch", "lab")
    assert "was fitted without batch" in message


def test_factors_of_batches_are_offsets_of_the_logarithm(folder, monkeypatch):
    monkeypatch.setattr(fitting, "AutoTwinRegressor", quick_blend)
    table = laboratories()
    table["y"] = np.exp(table["y"] / 4)
    table[table["lab"] != "D"].to_csv(folder / "log.csv", index=False)
    table[table["lab"] == "D"][:3].to_csv(folder / "log_known.csv", index=False)
    rest = table[table["lab"] == "D"][3:]
    rest.to_csv(folder / "log_new.csv", index=False)
    model = folder / "log.twin"
    options = "-t", "y", "--batch", "lab", "--log-target", "-o", model
    assert "offsets of the logarithm" in run("fit", folder / "log.csv", *options).stdout
    known = "--known", folder / "log_known.csv", "--json"
    result = json.loads(run("predict", model, folder / "log_new.csv", *known).stdout)
    np.testing.assert_allclose(np.log(result["prediction"]), np.log(rest["y"]), atol=0.15)


def test_advice_with_batches(folder, monkeypatch):
    monkeypatch.setattr("twinned.AutoTwinRegressor", quick_blend)
    report, model = folder / "advice.html", folder / "advised.twin"
    arguments = "advise", folder / "table.csv", "-t", "y", "--batch", "lab", "--budget", "60s"
    result = json.loads(run(*arguments, "--json", "-r", report, "-o", model).stdout)
    offsets = {row["batch"]: row["offset"] for row in result["batches"]["offsets"]}
    assert list(offsets) == ["B", "C", "A"]
    assert offsets["B"] - offsets["A"] == pytest.approx(3, abs=0.2)
    errors = result["batches"]["errors"]
    assert errors["known"] == pytest.approx(result["errors"]["rmse"])
    assert errors["known"] < 0.2 < 1 < errors["new"]
    (found,) = [each for each in result["findings"] if each["code"] == "TW107"]
    assert found["numbers"]["difference"] == pytest.approx(5, abs=0.2)
    assert found["message"].startswith("The rows of 'lab' B are")
    ignored, as_feature, with_offsets, _ = found["numbers"]["rmse"]
    assert with_offsets < 1.3 * as_feature < ignored
    assert result["code"].endswith("model.fit(X, y, batch=batch)")
    assert twinned.load(model).batch_name_ == "lab"
    page = report.read_text()
    assert 'aria-label="Offsets of batches: B ' in page
    for row in result["comparables"]:
        assert row["values"].get("batch (offset)", "A") in OFFSETS
        for case in row["comparables"]:
            total = case["known"] + sum(case["adjustments"].values())
            assert total == pytest.approx(case["estimate"], abs=1e-6)
