"""`twinned advise`: verdict, page, model, and clear refusals."""

import json

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits
from typer.testing import CliRunner

from twinned import TwinRegressor, load
from twinned.cli import app
from twinned.cli.advise import parse_budget
from twinned.datasets import make_wsb


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """One thread, and a default estimator of few rounds: the advice need not be good."""
    few = HistGradientBoostingRegressor(max_iter=40, min_samples_leaf=10)
    monkeypatch.setattr(
        "twinned.estimators.twin.default_estimator", lambda n_points, n_outputs: few
    )
    with threadpool_limits(1):
        yield


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


@pytest.fixture
def table(tmp_path):
    X, voltage = make_wsb(40, random_state=0)
    frame = X.iloc[:, :4].assign(price=np.exp(voltage))
    frame.to_csv(tmp_path / "bridge.csv", index=False)
    return tmp_path / "bridge.csv", frame


def test_verdict_page_and_model(table, tmp_path):
    path, frame = table
    page, model = tmp_path / "page.html", tmp_path / "m.twin"
    result = run("advise", path, "-t", "price", "--budget", "0.1s", "-r", page, "-o", model)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("Twinning ")
    assert "twin.fit(X, y)" in result.stdout
    assert "Left out for lack of time" in result.stdout
    assert '<section id="comparables"' in page.read_text("utf-8")
    X, y = frame.drop(columns="price"), frame["price"]
    again = TwinRegressor(random_state=0).fit(X, y).predict(X)
    np.testing.assert_allclose(load(model).predict(X), again, rtol=1e-9)


def test_rows_are_called_by_their_labels(table):
    path, frame = table
    names = [f"No. {i}" for i in range(40)]
    frame.assign(house=names).to_csv(path, index=False)
    result = run("advise", path, "-t", "price", "--budget", "0.1s", "--label", "house", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert "house" not in facts["columns"]
    for query in facts["comparables"]:
        for one in (query, *query["anchors"]):
            assert one["name"] == f"{names[one['row'] - 1]} (row {one['row']})"
    for wrong in ("nobody", "price"):
        result = run("advise", path, "-t", "price", "--label", wrong)
        assert result.exit_code == 2
        assert "--label" in result.stderr


def test_facts_for_machines_and_the_logarithm(table, tmp_path):
    path, frame = table
    model = tmp_path / "m.twin"
    result = run(
        "advise", path, "-t", "price", "--log-target", "--budget", "1", "--json", "-o", model
    )
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert facts["target"] == "log price"
    assert facts["rows"] == 40
    assert {"twin", "base", "k-NN"} <= set(facts["findings"]["comparison"]["numbers"]["rmse"])
    assert any("logarithm" in step for step in facts["next"])
    told = load(model).predict(frame.drop(columns="price"))
    assert np.all(told > 0)  # in units of the target again
    assert np.corrcoef(told, frame["price"])[0, 1] > 0.9
    low, high = np.exp(load(model).regressor_.predict_interval(frame.drop(columns="price"))).T
    assert np.all((low < told) & (told < high))
    room = {}
    exec(facts["code"], room)  # the lines that it prints open the table and make the same model
    np.testing.assert_allclose(np.exp(room["twin"].predict(room["X"])), told, rtol=1e-9)


def test_what_is_not_tried_is_told(table, tmp_path):
    path, frame = table
    wide = frame.assign(price=np.exp(2 * np.log(frame["price"])), maker=["a", "b"] * 20)
    wide.loc[3, "R1"] = np.nan
    wide.to_csv(path, index=False)
    result = run("advise", path, "-t", "price", "--budget", "0.1s", "-r", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    assert "Networks were not tried: they take no missing values." in result.stdout
    assert "times the smallest: try the logarithm (--log-target)" in result.stdout
    assert ".astype({'maker': 'category'})" in result.stdout
    assert 'href="#curves"' not in (tmp_path / "page.html").read_text("utf-8")  # nothing is there
    refused = run("advise", path, "-t", "price", "-r", tmp_path / "no" / "page.html")
    assert "--report" in refused.stderr


def test_groups_are_left_out_together_and_not_learned(table, tmp_path):
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
    ("arguments", "words"),
    [
        (("--budget", "soon"), ("--budget", "soon")),
        (("--budget", "0s"), ("--budget", "0s")),
        (("--seed", "-1"), ("--seed", "-1")),
        (("--drop", "R9"), ("--drop", "R9")),
        (("--group", "R9"), ("--group", "R9")),
        (("--group", "price"), ("--group", "price", "--target")),
        (("--report", "no/such/folder/page.html"), ("no/such/folder",)),
    ],
)
def test_what_cannot_be_done_is_one_line(table, arguments, words):
    result = run("advise", table[0], "--target", "price", *arguments)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    for word in words:
        assert word in result.stderr


def test_few_rows_are_told(tmp_path):
    (tmp_path / "few.csv").write_text("a,y\n1,2\n2,3\n3,4\n")
    result = run("advise", tmp_path / "few.csv", "--target", "y")
    assert result.exit_code == 2
    assert "20 rows at least; there are 3" in result.stderr


def test_times_are_read():
    assert [parse_budget(text) for text in ("90", "1.5s", "2 m", "3min")] == [90, 1.5, 120, 180]
