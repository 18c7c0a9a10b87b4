"""`twinned fit` and `twinned predict`: results, output, and errors for bad input."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

import twinned
from twinned import TwinRegressor, load
from twinned.app.cli import app, main
from twinned.datasets import make_wsb
from twinned.exceptions import UnknownCategoryWarning
from twinned.fitted.target import TargetTransform

QUICK = ("--no-check", "--pairs", "3")
EXACT = ("--digits", "17")


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Threads only slow down fits to tables this small."""
    with threadpool_limits(1):
        yield


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def start(*arguments, cwd):
    """Run the command in a new process."""
    command = [sys.executable, "-m", "twinned", *map(str, arguments)]
    source = str(Path(twinned.__file__).resolve().parents[1])  # works from any folder
    env = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=env)


def succeeded(result):
    assert result.exit_code == 0, result.output
    return result


def assert_refused(result, *texts):
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("twinned: error: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr.endswith("\n")
    for text in texts:
        assert text in result.stderr


def bridge(n=40, seed=0):
    """A Wheatstone bridge with a category, and a positive target."""
    X, voltage = make_wsb(n, as_printed=True, random_state=seed)
    X["material"] = np.where(X["R1"] > 2, "wood", np.where(X["R2"] > 2, "brick", "clay"))
    return X.assign(y=np.exp(voltage) * np.where(X["R1"] > 2, 2, 1))


@pytest.fixture
def folder(tmp_path):
    """A folder with a training table, and one to predict."""
    table = bridge()
    table.iloc[:30].to_csv(tmp_path / "table.csv", index=False)
    table.iloc[30:].drop(columns="y").to_csv(tmp_path / "new.csv", index=False)
    return tmp_path


@pytest.fixture(scope="module")
def fitted_once(tmp_path_factory):
    """A model of the training table, fitted once for all tests."""
    folder = tmp_path_factory.mktemp("fitted")
    bridge().iloc[:30].to_csv(folder / "table.csv", index=False)
    path = folder / "model.twin"
    succeeded(run("fit", folder / "table.csv", "-t", "y", "-m", "ridge", "-o", path, *QUICK))
    return path


@pytest.fixture
def model(folder, fitted_once):
    """A copy of the model, which the test may change."""
    return shutil.copy(fitted_once, folder / "model.twin")


def read_exactly(path):
    """Read a CSV file without rounding, which pandas before 3 does by default."""
    return pd.read_csv(path, float_precision="round_trip")


def frame(path):
    table = read_exactly(path)
    return table.assign(material=table["material"].astype("category"))


def csv_of(result):
    return exact(io.StringIO(result.stdout))


def exact(source):
    """Read numbers to the last bit, which pandas does not promise."""
    table = pd.read_csv(source, dtype=str).drop(columns="applicability", errors="ignore")
    return table.map(float)


# --- fit, then predict ---------------------------------------------------------------------------


def test_fit_and_predict_equal_the_python_api(folder):
    from sklearn.ensemble import RandomForestRegressor

    path = folder / "forest.twin"
    succeeded(
        run("fit", folder / "table.csv", "--target", "y", "--model", "forest", "--seed", "3",
            "-o", path, *QUICK)
    )  # fmt: skip
    result = succeeded(run("predict", path, folder / "new.csv", "--std", *EXACT))
    known = frame(folder / "table.csv")
    twin = TwinRegressor(
        RandomForestRegressor(100, min_samples_leaf=2),
        pairs=3,
        random_state=3,
    ).fit(known.drop(columns="y"), known["y"])
    mean, std = twin.predict(frame(folder / "new.csv"), return_std=True)
    predicted = csv_of(result)
    assert list(predicted.columns) == ["prediction", "std"]
    np.testing.assert_allclose(predicted["prediction"], mean, rtol=1e-12)
    np.testing.assert_allclose(predicted["std"], std, rtol=1e-9)


def test_predictions_are_those_of_the_saved_model(folder, model):
    loaded = twinned.load(model)
    out = folder / "out.csv"
    result = succeeded(run("predict", model, folder / "new.csv", "-o", out, *EXACT))
    assert result.stdout == f"10 predictions in {out}\n"
    predicted = exact(out)
    assert list(predicted.columns) == ["prediction"]
    np.testing.assert_array_equal(
        predicted["prediction"], loaded.predict(frame(folder / "new.csv"))
    )


def test_numbers_have_six_digits_by_default(folder, model):
    expected = twinned.load(model).predict(frame(folder / "new.csv"))
    for digits, options in ((6, ()), (3, ("--digits", "3"))):
        predicted = csv_of(succeeded(run("predict", model, folder / "new.csv", *options)))
        rounded = [float(f"{value:.{digits}g}") for value in expected]
        assert predicted["prediction"].tolist() == rounded


def test_predictions_in_an_excel_file_are_numbers(folder, model):
    new = frame(folder / "new.csv")
    new.assign(name=["=1+1", "#N/A", "1E5", *["2.50"] * (len(new) - 3)]).to_csv(
        folder / "named.csv", index=False
    )
    options = ("--keep", "R1", "--keep", "name", "-o", folder / "p.xlsx")
    succeeded(run("predict", model, folder / "named.csv", *options))
    written = pd.read_excel(folder / "p.xlsx")
    printed = csv_of(succeeded(run("predict", model, folder / "new.csv", "--keep", "R1")))
    pd.testing.assert_frame_equal(written[["R1", "prediction"]], printed, check_dtype=False)
    names = pd.read_excel(folder / "p.xlsx", dtype=str, keep_default_na=False)["name"]
    assert set(names) == {"=1+1", "#N/A", "1E5", "2.50"}  # text, not formulas, errors or numbers


def test_keep_copies_columns(folder, model):
    new = frame(folder / "new.csv")
    names = [f'No. {i}, "B"' for i in range(len(new))]
    new.assign(name=names, prediction=1).to_csv(folder / "named.csv", index=False)
    result = succeeded(run("predict", model, folder / "named.csv", "--keep", "name"))
    predicted = pd.read_csv(io.StringIO(result.stdout), dtype=str)
    assert list(predicted.columns) == ["name", "prediction"]
    assert predicted["name"].tolist() == names
    plain = csv_of(succeeded(run("predict", model, folder / "new.csv")))
    assert predicted["prediction"].map(float).tolist() == plain["prediction"].tolist()
    result = succeeded(run("predict", model, folder / "named.csv", "--keep", "name", "--json"))
    assert json.loads(result.stdout)["copied_columns"] == {"name": names}
    assert json.loads(result.stdout)["ignored_columns"] == ["prediction"]
    refused = run("predict", model, folder / "named.csv", "--keep", "absent")
    assert_refused(refused, "--keep", "absent")


@pytest.mark.parametrize("name", ["twin", "forest", "ridge"])
def test_each_model_fits_and_predicts(folder, name):
    path = folder / "model.twin"
    succeeded(run("fit", folder / "table.csv", "-t", "y", "-m", name, "-o", path, *QUICK))
    predicted = csv_of(succeeded(run("predict", path, folder / "new.csv")))["prediction"]
    truth = bridge()["y"].iloc[30:]
    assert np.sqrt(np.mean((predicted.to_numpy() - truth) ** 2)) < 0.8 * truth.std()


def test_log_target_and_its_standard_deviation(folder):
    path = folder / "log.twin"
    succeeded(
        run(
            "fit",
            folder / "table.csv",
            "-t",
            "y",
            "-m",
            "ridge",
            "--log-target",
            "-o",
            path,
            *QUICK,
        )
    )
    predicted = csv_of(succeeded(run("predict", path, folder / "new.csv", "--std", *EXACT)))
    known = frame(folder / "table.csv")
    plain = csv_of(succeeded(run("predict", path, folder / "new.csv", *EXACT)))
    np.testing.assert_allclose(plain["prediction"], predicted["prediction"], rtol=1e-12)
    inner = twinned.load(path).regressor_
    np.testing.assert_allclose(inner.anchors_y_, np.log(known["y"]), rtol=1e-12)
    _, std = inner.predict(frame(folder / "new.csv"), return_std=True)
    _, estimates = inner.predict_anchors(frame(folder / "new.csv"))
    mean = np.exp(estimates).mean(axis=1)
    np.testing.assert_allclose(predicted["prediction"], mean, rtol=1e-12)
    np.testing.assert_allclose(predicted["std"], mean * std, rtol=1e-12)


def test_seed_determines_the_model(folder):
    def predictions(seed):
        path = folder / f"{seed}.twin"
        succeeded(run("fit", folder / "table.csv", "-t", "y", "-m", "ridge", "--seed", seed,
                      "-o", path, *QUICK))  # fmt: skip
        return csv_of(run("predict", path, folder / "new.csv"))["prediction"].tolist()

    assert predictions(1) == predictions(1)
    assert predictions(1) != predictions(2)


def test_options_are_passed_to_the_twin(folder):
    path = folder / "model.twin"
    options = ("--pairs", "all", "--drop", "R3", "-c", "U", "--no-check")
    succeeded(run("fit", folder / "table.csv", "-t", "y", "-m", "ridge", *options, "-o", path))
    twin = twinned.load(path)
    assert twin.n_pairs_ == 900
    assert list(twin.feature_names_in_) == ["U", "R1", "R2", "material"]
    assert twin.fitted_.anchors.schema.kinds == ["categorical", "numeric", "numeric", "categorical"]


@pytest.mark.parametrize("model", ["twin", "forest"])
def test_missing_values_in_models_that_take_them(folder, model):
    table = read_exactly(folder / "table.csv")
    table.loc[3, "U"] = np.nan
    table.loc[5, "material"] = None
    table.to_csv(folder / "gaps.csv", index=False)
    path = folder / "model.twin"
    succeeded(run("fit", folder / "gaps.csv", "-t", "y", "-o", path, *QUICK, "-m", model))
    result = succeeded(run("predict", path, folder / "gaps.csv"))
    assert np.isfinite(csv_of(result)["prediction"]).all()


# --- output -----------------------------------------------------------------------------------


def test_summary_of_a_fit(folder):
    path = folder / "model.twin"
    result = succeeded(run("fit", folder / "table.csv", "-t", "y", "-m", "ridge", "-o", path))
    for text in ("30 rows", "4: U, R1, R2, R3", "material (3 categories)", "900 pairs",
                 "30 anchors", "5-fold", "twin", "mean of y", str(path)):  # fmt: skip
        assert text in result.stdout
    assert result.stderr == ""


def test_fit_prints_json(folder):
    path = folder / "model.twin"
    result = succeeded(
        run("fit", folder / "table.csv", "-t", "y", "-m", "ridge", "-o", path, "--json")
    )
    facts = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1
    assert facts["rows"] == facts["anchors"] == 30
    assert facts["pairs"] == 900
    assert facts["numbers"] == ["U", "R1", "R2", "R3"]
    assert facts["categories"] == {"material": 3}
    assert facts["output"] == str(path)
    assert facts["bytes"] == path.stat().st_size
    assert facts["seconds"] > 0


@pytest.mark.parametrize("log", [False, True])
def test_the_check_is_cross_validation(folder, log):
    from sklearn.model_selection import KFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    options = ["--log-target"] if log else []
    result = run("fit", folder / "table.csv", "-t", "y", "-m", "ridge", "-o", folder / "m.twin",
                 "--json", *options)  # fmt: skip
    check = json.loads(succeeded(result).stdout)["check"]
    known = frame(folder / "table.csv")
    X, y = known.drop(columns="y"), known["y"].to_numpy()
    folds = KFold(5, shuffle=True, random_state=0)
    ridge = make_pipeline(StandardScaler(), Ridge())

    twin = TwinRegressor(ridge, random_state=0)
    predicted = cross_val_predict(twin, X, np.log(y) if log else y, cv=folds)
    if log:
        predicted = TargetTransform(is_log=True).invert_mean(predicted, np.log(y))
    rmse_twin = np.sqrt(np.mean((predicted - y) ** 2))
    assert check["rmse_twin"] == pytest.approx(rmse_twin, rel=1e-9)
    assert check["folds"] == 5
    predicted = pd.read_csv(io.StringIO(succeeded(
        run("predict", folder / "m.twin", folder / "table.csv", "--interval", "0.8", *EXACT)
    ).stdout))  # fmt: skip
    twin = load(folder / "m.twin").regressor_ if log else load(folder / "m.twin")
    ends = twin.predict_interval(X, 0.8)
    expected = np.exp(ends) if log else ends
    np.testing.assert_allclose(predicted[["low", "high"]], expected, rtol=1e-9)
    quantiles = pd.read_csv(io.StringIO(succeeded(
        run("predict", folder / "m.twin", folder / "table.csv", "--quantiles", "0.1, 0.9", *EXACT)
    ).stdout))  # fmt: skip
    np.testing.assert_allclose(quantiles[["q0.1", "q0.9"]], expected, rtol=1e-9)
    for wrong in ("0", "0.5,x", "", "0.5,"):
        result = run("predict", folder / "m.twin", folder / "table.csv", "--quantiles", wrong)
        assert "--quantiles must be between 0 and 1, such as 0.05,0.5,0.95." in result.stderr


@pytest.mark.parametrize(
    ("warning", "shown"), [(UnknownCategoryWarning, False), (UserWarning, True)]
)
def test_cross_validation_hides_only_warnings_of_unknown_categories(
    folder, monkeypatch, warning, shown
):
    fit = TwinRegressor.fit

    def fit_with_warning(self, X, y):
        if len(X) < 30:  # in a fold
            warnings.warn("a rare category", warning, stacklevel=1)
        return fit(self, X, y)

    monkeypatch.setattr(TwinRegressor, "fit", fit_with_warning)
    result = run("fit", folder / "table.csv", "-t", "y", "-m", "ridge", "-o", folder / "m.twin")
    assert succeeded(result).stderr == ("twinned: warning: a rare category\n" if shown else "")


def test_no_check_and_too_few_rows_for_a_check(folder):
    result = run("fit", folder / "table.csv", "-t", "y", "-m", "ridge", "-o", folder / "m.twin",
                 "--no-check", "--json")  # fmt: skip
    assert json.loads(succeeded(result).stdout)["check"] is None
    refused = run("predict", folder / "m.twin", folder / "table.csv", "--interval", "90")
    assert "--interval must be between 0 and 1, such as 0.9, not 90" in refused.stderr
    refused = run("predict", folder / "m.twin", folder / "table.csv", "--interval", "0.8")
    assert refused.exit_code == 2
    assert "with its check" in refused.stderr
    assert result.stderr == ""
    read_exactly(folder / "table.csv").head(9).to_csv(folder / "few.csv", index=False)
    result = succeeded(
        run("fit", folder / "few.csv", "-t", "y", "-m", "ridge", "-o", folder / "m.twin")
    )
    assert "a twin is not cross-validated with" in result.stderr
    assert "fewer than 10 rows" in result.stderr
    assert "check " not in result.stdout


def test_predict_prints_json(folder, model):
    facts = json.loads(
        succeeded(run("predict", model, folder / "new.csv", "--std", "--json")).stdout
    )
    mean, std = twinned.load(model).predict(frame(folder / "new.csv"), return_std=True)
    assert facts["prediction"] == mean.tolist()
    assert facts["std"] == std.tolist()
    out = folder / "out.csv"
    facts = json.loads(
        succeeded(run("predict", model, folder / "new.csv", "--json", "-o", out)).stdout
    )
    assert facts["output"] == str(out)
    assert facts["rows"] == 10
    assert "prediction" not in facts
    assert len(pd.read_csv(out)) == 10


def test_order_and_unknown_columns_do_not_matter(folder, model):
    expected = run("predict", model, folder / "new.csv")
    assert expected.stderr == ""
    table = read_exactly(folder / "new.csv")
    table[table.columns[::-1]].assign(note="hello").to_csv(folder / "other.csv")  # with an index
    result = succeeded(run("predict", model, folder / "other.csv"))
    assert result.stdout == expected.stdout
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("twinned: note: ")
    assert "'note'" in result.stderr


def test_an_unknown_category_is_one_warning(folder, model):
    table = read_exactly(folder / "new.csv")
    table["material"] = "straw"
    table.to_csv(folder / "straw.csv", index=False)
    result = succeeded(run("predict", model, folder / "straw.csv"))
    assert result.stderr.count("\n") == 1
    assert result.stderr.startswith("twinned: warning: ")
    assert "'straw'" in result.stderr
    assert len(csv_of(result)) == 10


def test_another_separator(folder):
    for name in ("table", "new"):
        read_exactly(folder / f"{name}.csv").to_csv(folder / f"{name}.txt", index=False, sep=";")
    path = folder / "model.twin"
    options = ("--separator", ";")
    succeeded(
        run("fit", folder / "table.txt", "-t", "y", "-m", "ridge", "-o", path, *QUICK, *options)
    )
    assert len(csv_of(succeeded(run("predict", path, folder / "new.txt", *options)))) == 10


# --- bad input to fit -------------------------------------------------------------------------

GOOD = "a,b,y\n1,2,3\n2,3,5\n4,1,5\n0,1,1\n"
IDS = "id,a,y\n" + "".join(f"row{i},{i},{i + 1}\n" for i in range(25))


@pytest.mark.parametrize(
    ("content", "options", "texts"),
    [
        ("", (), ["table.csv is empty"]),
        ("a,b,y\n", (), ["no rows"]),
        (None, (), ["No such file", "table.csv"]),
        (b"a,y\n1,\x00\n", (), ["no text, Excel (.xlsx) or Parquet file"]),
        ("a,a,y\n1,2,3\n", (), ["several columns", "'a'"]),
        ("a;y\n1;2\n", ("--separator", ","), ["no column 'y'", "'a;y'"]),
        ("a,b\n1,2\n", (), ["no column 'y'", "--target", "'a', 'b'"]),
        ("a,y\n1,2\n3,\n", (), ["has 1 values that are not limits; at least 2 are needed"]),
        ("a,y\n1,2\n3,low\n", (), ["line 3", "'low'", "number"]),
        ("a,y\n1,2\n3,inf\n", (), ["line 3", "'inf'", "finite"]),
        ("a,y\n1,2\n3,4\nx,5\n", (), ["line 4", "'x'", "--categorical a"]),
        (IDS, (), ["no feature besides 'y'", "'id' holds 25", "'row0'", "'a' counts the rows"]),
        ("a,b,y\n1,2,2\n,3,4\n", (), ["line 3", "'a'", "--model ridge takes none"]),
        ("y\n1\n2\n", (), ["no feature besides 'y'"]),
        ("a,y\n1,2\n", (), ["has 1 values that are not limits; at least 2 are needed"]),
        ("a,y\n1,2\n2,-3.5\n", ("--log-target",), ["line 3", "-3.5", "logarithm"]),
        ("a,y\n1,0\n2,3\n", ("--log-target",), ["line 2", ": 0 "]),
        (GOOD, ("--model", "tree"), ["--model must be one of", "forest", "not tree"]),
        (GOOD, ("--pairs", "many"), ["--pairs", "'many'", "auto, all"]),
        (GOOD, ("--pairs", "0"), ["--pairs", "'0'"]),
        (GOOD, ("--drop", "c"), ["no column 'c'", "--drop"]),
        (GOOD, ("--drop", "y"), ["--drop", "'y'", "--target"]),
        (GOOD, ("--categorical", "c"), ["no column 'c'", "--categorical"]),
        (GOOD, ("--separator", "ab"), ["--separator", "'ab'"]),
    ],
)
def test_bad_input_to_fit(tmp_path, content, options, texts):
    table, old = tmp_path / "table.csv", tmp_path / "old.twin"
    if isinstance(content, bytes):
        table.write_bytes(content)
    elif content is not None:
        table.write_text(content)
    old.write_text("an older model")
    before = sorted(tmp_path.iterdir())
    for output in (old, tmp_path / "new.twin"):
        # the later of two equal options takes effect
        result = run("fit", table, "-t", "y", "-m", "ridge", "-o", output, *options)
        assert_refused(result, *texts)
    assert old.read_text() == "an older model"
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_is_refused_as_a_table(tmp_path):
    assert_refused(run("fit", tmp_path, "-t", "y", "-o", tmp_path / "m.twin"), "Is a directory")


def test_a_nameless_column_can_be_dropped(tmp_path):
    (tmp_path / "table.csv").write_text(",a,y\n0,1,2\n1,2,3\n")
    path = tmp_path / "m.twin"
    succeeded(
        run("fit", tmp_path / "table.csv", "-t", "y", "-m", "ridge", "--drop", "", "-o", path)
    )
    assert list(twinned.load(path).feature_names_in_) == ["a"]


def test_output_path_is_checked_before_the_fit(folder, monkeypatch):
    monkeypatch.setattr(
        twinned.AutoTwinRegressor, "fit", lambda *_: pytest.fail("fitted before the check")
    )
    arguments = ("fit", folder / "table.csv", "-t", "y", "-o")
    before = (folder / "table.csv").read_bytes()
    assert_refused(run(*arguments, folder / "nowhere" / "m.twin"), "no folder", "nowhere")
    assert_refused(run(*arguments, folder), "is a folder")
    assert_refused(run(*arguments, folder / "table.csv"), "would replace the input")
    assert (folder / "table.csv").read_bytes() == before


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), RuntimeError("a bug")])
def test_an_interrupted_fit_leaves_the_old_model(folder, model, monkeypatch, stop):
    before, files = model.read_bytes(), sorted(folder.iterdir())

    def fit(*_):
        raise stop

    monkeypatch.setattr(TwinRegressor, "fit", fit)
    result = run("fit", folder / "table.csv", "-t", "y", "-m", "ridge", "-o", model)
    assert result.exit_code not in (0, 2)
    assert model.read_bytes() == before
    assert sorted(folder.iterdir()) == files
    if isinstance(stop, RuntimeError):
        assert result.exception is stop  # a bug shows its traceback


# --- bad input to predict ---------------------------------------------------------------------

HEADER = "U,R1,R2,R3,material\n"


@pytest.mark.parametrize(
    ("content", "texts"),
    [
        ("", ["is empty"]),
        (HEADER, ["no rows"]),
        (None, ["No such file"]),
        ("U,R1,material\n1,2,wood\n", ["no column 'R2', 'R3'", "model.twin"]),
        ("p,q\n1,2\n", ["no column 'U', 'R1', 'R2', 'R3', 'material'", "'p', 'q'"]),
        (HEADER + "1,2,3,1,wood\n1,2,soft,1,wood\n", ["line 3", "'R2'", "'soft'"]),
        (HEADER + "1,2,3,1,wood\n\n1,2,,1,wood\n", ["line 4", "'R2'", "no missing values"]),
        (HEADER + "1,2,3,1,\n", ["line 2", "'material'", "no missing values"]),
        (HEADER + "1,2,3,inf,wood\n", ["line 2", "'R3'", "'inf'"]),
        ("U;R1\n1,24;2\n", ["no column 'R2', 'R3', 'material'"]),
        (HEADER.replace(",", ";") + "1,234;2;3;1;wood\n", ["line 2, column 'U'", "--decimal ','"]),
    ],
)
def test_bad_input_to_predict(folder, model, content, texts):
    table, out = folder / "bad.csv", folder / "out.csv"
    if content is not None:
        table.write_text(content)
    out.write_text("older predictions")
    before = sorted(folder.iterdir())
    assert_refused(run("predict", model, table, "-o", out), *texts)
    assert_refused(run("predict", model, table, "-o", folder / "fresh.csv"), *texts)
    assert_refused(run("predict", model, table, "--json"), *texts)
    assert out.read_text() == "older predictions"
    assert sorted(folder.iterdir()) == before


def test_other_files_are_refused_as_models(folder):
    out = folder / "out.csv"

    def refused(name, *texts):
        assert_refused(run("predict", folder / name, folder / "new.csv", "-o", out), *texts)
        assert not out.exists()

    refused("nothing.twin", "nothing.twin: No such file")
    refused("table.csv", "table.csv", "is not loaded")
    refused("", "Is a directory")
    twinned.save(Ridge().fit([[0.0], [1.0]], [0.0, 1.0]), folder / "ridge.twin")
    refused("ridge.twin", "Ridge", "no twin")


def test_output_path_of_predict(folder, model):
    arguments = ("predict", model, folder / "new.csv", "-o")
    before = model.read_bytes(), (folder / "new.csv").read_bytes()
    assert_refused(run(*arguments, folder / "nowhere" / "out.csv"), "no folder", "nowhere")
    assert_refused(run(*arguments, model), "would replace the input")
    assert_refused(run(*arguments, folder / "new.csv"), "would replace the input")
    assert (model.read_bytes(), (folder / "new.csv").read_bytes()) == before


def test_columns_of_a_model_without_feature_names_are_numbered(folder):
    known = read_exactly(folder / "table.csv")
    twin = TwinRegressor(Ridge(), pairs=3, random_state=0).fit(
        known[["U", "R1"]].to_numpy(), known["y"].to_numpy()
    )
    twinned.save(twin, folder / "array.twin")
    (folder / "two.csv").write_text("x1,x0\n2,1\n1,2\n")
    predicted = csv_of(succeeded(run("predict", folder / "array.twin", folder / "two.csv", *EXACT)))
    np.testing.assert_array_equal(predicted["prediction"], twin.predict([[1, 2], [2, 1]]))
    assert_refused(
        run("predict", folder / "array.twin", folder / "new.csv"), "no column 'x0', 'x1'"
    )


def test_each_output_has_a_column(folder):
    known = read_exactly(folder / "table.csv")
    twin = TwinRegressor(Ridge(), pairs=3, random_state=0).fit(known[["U"]], known[["y", "R1"]])
    twinned.save(twin, folder / "two.twin")
    predicted = csv_of(succeeded(run("predict", folder / "two.twin", folder / "new.csv", "--std")))
    assert list(predicted.columns) == ["prediction_0", "prediction_1", "std_0", "std_1"]


# --- as a process -----------------------------------------------------------------------------


@pytest.mark.slow
def test_fit_and_predict_in_processes(folder):
    arguments = ("fit", "table.csv", "--target", "y", "--model", "ridge", "-o", "model.twin")
    fitted = start(*arguments, *QUICK, "--json", cwd=folder)
    assert fitted.returncode == 0, fitted.stderr
    assert json.loads(fitted.stdout)["output"] == "model.twin"
    assert fitted.stderr == ""
    predicted = start("predict", "model.twin", "new.csv", "--std", cwd=folder)
    assert predicted.returncode == 0, predicted.stderr
    assert predicted.stderr == ""
    assert predicted.stdout.splitlines()[0] == "prediction,std"
    assert len(predicted.stdout.splitlines()) == 11


def test_error_in_a_process(folder):
    refused = start("datasets", "fetch", "nothing", cwd=folder)  # which imports little
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith("twinned: error: 'nothing' is not a data set")
    assert refused.stderr.count("\n") == 1


def test_no_model_is_written_after_an_error(folder):
    table, model = folder / "table.csv", folder / "model.twin"
    refused = run("fit", table, "--target", "price", "-o", model)
    assert refused.exit_code == 2
    assert refused.stdout == ""
    assert refused.stderr.startswith(f"twinned: error: {table} has no column 'price'")
    assert refused.stderr.count("\n") == 1
    assert not model.exists()


def test_only_main_sets_the_wait_policy_of_openmp_and_before_scikit_learn_is_imported():
    code = (
        "import os, sys\n"
        "before = dict(os.environ)\n"
        "import twinned.app.cli\n"
        "assert dict(os.environ) == before, set(os.environ) - set(before)\n"
        "def app(**options):\n"
        "    assert os.environ['OMP_WAIT_POLICY'] == 'PASSIVE'\n"
        "    assert 'sklearn' not in sys.modules\n"
        "twinned.app.cli.app = app\n"
        "twinned.app.cli.main()\n"
    )
    env = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("before_command", [True, False])
def test_debug_prints_the_traceback_of_an_error(folder, monkeypatch, before_command):
    def fit(*_):
        raise ValueError("an internal error")

    monkeypatch.setattr(TwinRegressor, "fit", fit)
    call = ["fit", folder / "table.csv", "-t", "y", "-m", "ridge", "-o", folder / "model.twin"]
    assert_refused(run(*call), "an internal error")
    result = run("--debug", *call) if before_command else run(*call, "--debug")
    assert result.exit_code == 2
    assert result.stderr.startswith("Traceback (most recent call last):")
    assert "in fit\n" in result.stderr
    assert result.stderr.endswith("\ntwinned: error: an internal error\n")
    assert_refused(run(*call), "an internal error")  # and not in the next call


@pytest.mark.parametrize(
    "call",
    [
        ["advise", "absent.csv", "-t", "y"],
        ["fit", "absent.csv", "-t", "y", "-o", "model.twin"],
        ["predict", "absent.twin", "absent.csv"],
        ["serve", "absent.twin"],
        ["datasets", "fetch", "absent"],
    ],
)
def test_debug_works_with_each_command(call):
    result = run(*call, "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert "twinned: error: " in result.stderr.splitlines()[-1]
    assert "Traceback" not in run(*call).stderr


@pytest.mark.parametrize("command", ["advise", "fit", "predict"])
def test_flags_take_no_value_in_the_help(command):
    shown = succeeded(run(command, "--help")).stdout
    (line,) = [line for line in shown.splitlines() if "--json" in line]
    assert re.search(r"--json +Print", line)


def test_debug_is_in_the_help():
    assert "--debug" in succeeded(run("--help")).stdout


def test_help_imports_nothing_heavy():
    code = (
        "import sys\n"
        "from typer.testing import CliRunner\n"
        "from twinned.app.cli import app\n"
        "for command in ([], ['fit'], ['predict']):\n"
        "    assert CliRunner().invoke(app, [*command, '--help']).exit_code == 0\n"
        "print([m for m in ('numpy', 'pandas', 'sklearn', 'skops') if m in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout == "[]\n", done.stderr


def test_version_and_help():
    assert succeeded(run("--version")).stdout == f"twinned {twinned.__version__}\n"
    for command in ("fit", "predict"):
        assert f"twinned {command} houses" in succeeded(run(command, "--help")).stdout
        assert "Usage" in run(command).output
    assert "datasets" in succeeded(run("--help")).stdout
    assert run("fit").exit_code == run("predict", "only.twin").exit_code == 2


def test_datasets_subcommands():
    assert json.loads(succeeded(run("datasets", "fetch", "TF", "--json")).stdout)[0]["key"] == "TF"
    assert "fetch" in succeeded(run("datasets", "--help")).stdout
    assert_refused(run("datasets", "fetch", "nope"), "'nope'")


@pytest.mark.parametrize(
    "call",
    [
        ["nosuch"],
        ["fit", "houses.csv", "-o", "houses.twin"],
        ["fit", "houses.csv", "--colour", "red"],
        ["query", "houses.twin", "houses.csv", "--seed", "-1"],
        ["datasets", "nosuch"],
    ],
)
def test_a_wrong_call_is_reported_in_one_line(call, monkeypatch, capsys):
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")  # which `main` would set for later tests
    monkeypatch.setattr(sys, "argv", ["twinned", *call])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    output, errors = capsys.readouterr()
    assert output == ""
    assert errors.startswith("twinned: error: ")
    assert errors.count("\n") == 1
    assert "--help" in errors


# --- possible values ----------------------------------------------------------------------------


def test_intervals_are_cut_on_request(tmp_path, rng):
    a = rng.uniform(size=60)
    share = np.clip(100 * a + rng.normal(0, 15, 60), 1, 99).round(2)
    pd.DataFrame({"a": a, "yield (%)": share}).to_csv(tmp_path / "t.csv", index=False)
    fit = ("fit", tmp_path / "t.csv", "-t", "yield (%)", "-m", "ridge", "-o", tmp_path / "m.twin")
    succeeded(run(*fit))
    predict = ("predict", tmp_path / "m.twin", tmp_path / "t.csv", "--interval", "0.9")
    table = csv_of(succeeded(run(*predict)))
    assert table["low"].min() < 0
    assert table["high"].max() > 100
    cut = succeeded(run(*predict, "--bounds", "0", "100"))
    pd.testing.assert_frame_equal(csv_of(cut), table.clip(0, 100))
    assert_refused(run(*predict, "--bounds", "5", "5"), "--bounds 5 5")
