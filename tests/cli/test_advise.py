"""`twinned advise`: summary, report, model and error messages."""

import json

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from twinned import TwinRegressor, load
from twinned.cli import app
from twinned.cli.options import parse_seconds
from twinned.datasets import make_wsb

NAMES = [f"No. {i}" for i in range(40)]


@pytest.fixture(scope="module", autouse=True)
def _fast():
    """One thread, and a default estimator of few iterations: the advice need not be good."""
    few = HistGradientBoostingRegressor(max_iter=40, min_samples_leaf=10)
    with pytest.MonkeyPatch.context() as patch, threadpool_limits(1):
        patch.setattr("twinned.estimators.twin.default_estimator", lambda *sizes: few)
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
                 "--budget", "0.1s", "--json", "-o", model)  # fmt: skip
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout), load(model)


def test_summary_report_and_model(table, tmp_path):
    path, frame = table
    page, model = tmp_path / "page.html", tmp_path / "m.twin"
    result = run("advise", path, "-t", "price", "--budget", "0.1s", "-r", page, "-o", model)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Twinning ")
    assert "twin.fit(X, y)" in result.stdout
    assert "Skipped for lack of time" in result.stdout
    # what the twin is compared with, and its settings
    line = next(line for line in result.stdout.splitlines() if "base estimator  " in line)
    assert "HistGradientBoostingRegressor(max_iter=40, min_samples_leaf=4" in line
    assert '<section id="comparables"' in page.read_text("utf-8")
    X, y = frame.drop(columns="price"), frame["price"]
    again = TwinRegressor(random_state=0).fit(X, y).predict(X)
    np.testing.assert_allclose(load(model).predict(X), again, rtol=1e-9)


def test_labels_name_the_rows(json_output):
    report, _ = json_output
    assert "house" not in report["columns"]
    assert report["comparables"]
    for query in report["comparables"]:
        for one in (query, *query["anchors"]):
            assert one["name"] == f"{NAMES[one['row'] - 1]} (row {one['row']})"


def test_json_output_and_log_target(json_output):
    report, model = json_output
    assert report["target"] == "log price"
    assert report["rows"] == 40
    errors = report["checks"]["comparison"]["numbers"]["rmse"]
    assert {"twin", "base estimator", "k-NN"} <= set(errors)
    assert any("logarithm" in step for step in report["next_steps"])
    X, price = bridge().drop(columns="price"), bridge()["price"]
    predicted = model.predict(X)
    assert np.all(predicted > 0)  # in units of the target again
    assert np.corrcoef(predicted, price)[0, 1] > 0.9
    low, high = np.exp(model.regressor_.predict_interval(X)).T
    assert np.all((low < predicted) & (predicted < high))
    namespace = {}
    exec(report["code"], namespace)  # the printed code reads the table and makes the same model
    again = np.exp(namespace["twin"].predict(namespace["X"]))
    np.testing.assert_allclose(again, predicted, rtol=1e-9)


def test_skipped_networks_and_hints_are_printed(table, tmp_path):
    path, frame = table
    wide = frame.assign(price=np.exp(2 * np.log(frame["price"])), maker=["a", "b"] * 20)
    wide.loc[3, "R1"] = np.nan
    wide.to_csv(path, index=False)
    result = run("advise", path, "-t", "price", "--budget", "0.1s", "-r", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "Networks were not tried: they do not accept missing values." in result.stdout
    assert "times the smallest: try the logarithm (--log-target)" in result.stdout
    assert ".astype({'maker': 'category'})" in result.stdout
    assert 'href="#curves"' not in (tmp_path / "page.html").read_text("utf-8")  # no curve fits
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
        (("--seed", "-1"), ("--seed", "-1")),
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


def test_parse_seconds():
    texts = ("90", "1.5s", "2 m", "3min")
    assert [parse_seconds("--budget", text) for text in texts] == [90, 1.5, 120, 180]
