"""`twinned advise`: summary, report, model and error messages."""

import json
import re
from importlib import import_module

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from twinned import load
from twinned.app.cli import app
from twinned.app.cli.options import parse_budget
from twinned.datasets import make_wsb

NAMES = [f"No. {i}" for i in range(40)]
MEMBERS = ("ridge", "gp_rbf", "tree_twin")


@pytest.fixture(scope="module", autouse=True)
def _fast():
    """One thread, three quick members, and an error scale of two trees."""
    import_module("twinned.estimators.blending.budget")  # expects the time of the usual iterations
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1):
        patch.setattr("twinned.estimators.blending.members.AUTO", MEMBERS)
        patch.setattr("twinned.models.base_estimator.DEFAULT_ITERATIONS", 5)
        patch.setattr(
            "twinned.fitted.calibration.ExtraTreesRegressor",
            lambda n_estimators, **parameters: ExtraTreesRegressor(2, **parameters),
        )
        yield


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def bridge():
    X, voltage = make_wsb(40, random_state=0)
    return X.iloc[:, :4].assign(price=np.exp(voltage))


@pytest.fixture
def table(tmp_path):
    frame = bridge()
    frame.to_csv(tmp_path / "bridge.csv", index=False)
    return tmp_path / "bridge.csv", frame


@pytest.fixture(scope="module")
def json_output(tmp_path_factory):
    """The JSON output for the logarithm of the target, with labels, and the model."""
    folder = tmp_path_factory.mktemp("advice")
    path, model = folder / "bridge.csv", folder / "m.twin"
    bridge().assign(house=NAMES).to_csv(path, index=False)
    result = run("advise", path, "-t", "price", "--log-target", "--label", "house",
                 "--budget", "400s", "--json", "-o", model)  # fmt: skip
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), load(model)


def run_code(output, **data):
    """Return the model that the printed code makes of X and y."""
    code = output.split("To make it in Python, from features X and target y:\n")[1]
    code = code.split("\nmodel: ")[0]
    exec("\n".join(line.removeprefix("  ") for line in code.splitlines()), data)
    return data["model"]


def test_summary_report_and_model(table, tmp_path):
    path, frame = table
    page, model = tmp_path / "page.html", tmp_path / "m.twin"
    result = run("advise", path, "-t", "price", "--budget", "0.1s", "-r", page, "-o", model)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Use ridge regression, the only model that was fitted.")
    assert "Errors of price on held-out rows:\n  half of the rows within  " in result.stdout
    assert f"\nFeatures:\n  numeric  4: {', '.join(frame.columns[:4])}\n\nData" in result.stdout
    for name in ("gp_rbf", "tree_twin", "learning curve of ridge"):
        assert f"skipped {name}: expected to take" in result.stdout
    assert "[AutoTwinRegressor] ridge: RMSE" in result.stderr  # progress
    assert '<section id="comparables"' in page.read_text("utf-8")
    X = frame.drop(columns="price")
    again = run_code(result.stdout, X=X, y=frame["price"])
    np.testing.assert_allclose(load(model).predict(X), again.predict(X), rtol=1e-9)
    ends = load(model).predict_interval(X)
    np.testing.assert_allclose(ends, again.predict_interval(X), rtol=1e-9)


def test_recommended_model_is_saved_shown_and_printed(table, tmp_path):
    path, frame = table
    model, page = tmp_path / "m.twin", tmp_path / "page.html"
    frame.assign(sample=np.arange(40) // 2).to_csv(path, sep=";", index=False)
    result = run("advise", path, "-t", "price", "--budget", "600s", "-o", model, "-r", page,
                 "--group", "sample", "--separator", ";")  # fmt: skip
    assert result.exit_code == 0, result.output
    data = {"X": frame.drop(columns="price"), "y": frame["price"], "groups": np.arange(40) // 2}
    saved, again = load(model), run_code(result.stdout, **data)
    lines = result.stdout.splitlines()
    recommended = [line for line in lines if line.endswith("  recommended")]
    assert len(recommended) == 1
    name = "blend" if len(saved.member_names_) > 1 else saved.member_names_[0]
    assert recommended[0].split()[0] == name
    X = frame.drop(columns="price")
    np.testing.assert_allclose(saved.predict(X), again.predict(X), rtol=1e-9)
    np.testing.assert_allclose(saved.predict_interval(X), again.predict_interval(X), rtol=1e-9)
    rmse = np.sqrt(((saved.out_of_fold_prediction_ - frame["price"]) ** 2).mean())
    assert f" {rmse:.4g} ± " in recommended[0]
    for member in MEMBERS:
        assert f"{member}: RMSE" in result.stderr


def test_findings_and_progress(table):
    path, frame = table
    frame.assign(euros=1.2 * frame["price"]).to_csv(path, index=False)
    result = run("advise", path, "-t", "price", "--budget", "0.1s")
    assert result.exit_code == 0, result.output
    assert 'Data checks (the page "Data checks" of the documentation' in result.stdout
    assert "TW201 warning: Feature that nearly equals the target. The target is" in result.stdout
    assert "checking the data" in result.stderr  # progress, although it is no terminal


def test_labels_name_the_rows(json_output):
    report, _ = json_output
    assert "house" not in report["columns"]
    assert report["comparables"]
    for query in report["comparables"]:
        assert query["name"] == f"{NAMES[query['row'] - 2]} (line {query['row']})"
        for case in query["comparables"]:
            name, line = re.fullmatch(r"(.*) \(line (\d+)\)", case["label"]).groups()
            assert name == NAMES[int(line) - 2]


def test_json_output_and_log_target(json_output):
    report, model = json_output
    assert (report["target"], report["log_target"], report["rows"]) == ("price", True, 40)
    assert {row["model"] for row in report["leaderboard"]} >= {*MEMBERS, "mean of y"}
    X, price = bridge().drop(columns="price"), bridge()["price"]
    predicted = model.predict(X)
    assert np.all(predicted > 0)  # in units of the target again
    assert np.corrcoef(predicted, price)[0, 1] > 0.9
    low, high = np.exp(model.regressor_.predict_interval(X)).T
    assert np.all((low < predicted) & (predicted < high))
    # errors in units of the target
    out_of_fold = np.exp(model.regressor_.out_of_fold_prediction_)
    out_of_fold *= (price / out_of_fold).mean()
    rmse = np.sqrt(((out_of_fold - price) ** 2).mean())
    assert report["errors"]["rmse"] == pytest.approx(rmse)
    assert len(report["code"].splitlines()) <= 5
    namespace = {"X": X, "y": price}
    exec(report["code"], namespace)
    np.testing.assert_allclose(namespace["model"].predict(X), predicted, rtol=1e-9)


def test_fit_makes_the_choice_of_advise(json_output, tmp_path):
    report, advised = json_output
    path, output = tmp_path / "bridge.csv", tmp_path / "m.twin"
    bridge().assign(house=NAMES).to_csv(path, index=False)
    result = run("fit", path, "-t", "price", "--log-target", "--label", "house",
                 "--budget", "400s", "--json", "-o", output)  # fmt: skip
    facts, fitted = json.loads(result.stdout), load(output)
    for name in ("summary", "conclusion", "recommended"):
        assert facts[name] == report[name]
    names = [row["model"] for row in facts["leaderboard"]]
    assert names == [row["model"] for row in report["leaderboard"]]
    X = bridge().drop(columns="price")
    np.testing.assert_array_equal(fitted.predict(X), advised.predict(X))


def test_dates_of_an_unused_column_are_checked_for_their_order(table):
    path, frame = table
    days = pd.date_range("2024-01-01", periods=40).strftime("%Y-%m-%d")
    ambiguous = ["01/02/2024"] * 40  # day or month first
    frame.assign(sold=days, printed=ambiguous).to_csv(path, index=False)
    for options, expected in (((), 1), (("--date", "sold"), 1), (("--group", "sold"), 0)):
        result = run("advise", path, "-t", "price", "--budget", "0.1s", *options)
        assert result.exit_code == 0, result.output
        assert result.stdout.count("The rows are in the order of 'sold'") == expected


def test_missing_values_categories_and_hints(table, tmp_path):
    path, frame = table
    wide = frame.assign(price=np.exp(2 * np.log(frame["price"])), maker=["a", "b"] * 20)
    wide.loc[3, "R1"] = np.nan
    wide.to_csv(path, index=False)
    page = tmp_path / "page.html"
    result = run("advise", path, "-t", "price", "--budget", "0.1s", "-r", page)
    assert result.exit_code == 0, result.output
    assert "TW304 note: Skewed target." in result.stdout
    assert "  categorical  1: maker (2 categories)\n" in result.stdout
    assert "Run it again with --log-target" in page.read_text("utf-8")
    assert 'href="#curves"' not in page.read_text("utf-8")  # no curve fits
    refused = run("advise", path, "-t", "price", "-r", tmp_path / "no" / "page.html")
    assert "--report" in refused.stderr


@pytest.mark.slow
def test_groups_are_held_out_together_and_are_no_feature(table, tmp_path):
    path, frame = table
    frame.assign(sample=[f"s{i // 4}" for i in range(40)]).to_csv(path, index=False)
    model = tmp_path / "m.twin"
    for command in (("advise", "--budget", "0.1s"), ("fit", "-m", "ridge")):
        result = run(*command, path, "-t", "price", "--group", "sample", "--json", "-o", model)
        assert result.exit_code == 0, result.output
        assert list(load(model).feature_names_in_) == [*frame.columns.drop("price")]
        assert len(np.unique(load(model).fitted_.anchors.groups)) == 10
    plain = run(
        "fit", "-m", "ridge", path, "-t", "price", "--drop", "sample", "--json", "-o", model
    )
    check = [json.loads(one.stdout)["check"]["rmse_twin"] for one in (result, plain)]
    assert check[0] != check[1]
    frame.assign(sample=[None, *"ab" * 19, "a"]).to_csv(path, index=False)
    refused = run("advise", path, "-t", "price", "--group", "sample")
    assert refused.exit_code == 2
    assert "line 2, column 'sample' has no value, and it is the --group" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--budget", "soon"), ("--budget", "soon")),
        (("--budget", "0s"), ("--budget", "0s")),
        (("--drop", "R9"), ("--drop", "R9")),
        (("--label", "absent"), ("--label", "absent")),
        (("--label", "price"), ("--label",)),
        (("--group", "R9"), ("--group", "R9")),
        (("--group", "price"), ("--group", "price", "--target")),
        (("--report", "no/such/folder/page.html"), ("no/such/folder",)),
    ],
)
def test_bad_option_is_reported_on_one_line(table, arguments, parts):
    result = run("advise", table[0], "--target", "price", *arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    for part in parts:
        assert part in result.stderr


def test_too_few_rows_are_refused(tmp_path):
    (tmp_path / "few.csv").write_text("a,y\n1,2\n2,3\n3,4\n")
    result = run("advise", tmp_path / "few.csv", "--target", "y")
    assert result.exit_code == 2
    assert "at least 20 rows; there are 3" in result.stderr


def test_parse_budget():
    texts = ("90", "1.5s", "2 m", "3min")
    assert [parse_budget(text) for text in texts] == [90, 1.5, 120, 180]
