"""`twinned explain`: comparable known cases and adjustment grids."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import twinned
from twinned import TransformedTargetTwin, TwinRegressor
from twinned.app.cli import app
from twinned.app.cli.explanation import ExplainedRow, format_grid, select_rows
from twinned.app.report.grid import MAX_FEATURES
from twinned.app.tables.reader import read_table
from twinned.fitted.explanation import OTHERS, ComparableCase, ComparableCases


@pytest.fixture(scope="module")
def models():
    """A twin of named rows, and one of the logarithm; the features of new rows."""
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(40, 2)).round(3), columns=["a", "b"])
    X["kind"] = pd.Categorical(rng.choice(["u", "v"], 40))
    y = 2 + np.sin(6 * X["a"]) + X["b"] + (X["kind"] == "u")
    X.index = [f"S{i}" for i in range(40)]
    twin = TwinRegressor(ExtraTreesRegressor(5, random_state=0), random_state=0)
    log = TransformedTargetTwin(twin)
    twin.fit(X[:30], y[:30].to_numpy())
    log.fit(X[:30], y[:30].to_numpy())
    return twin, log, X[30:]


@pytest.fixture
def files(models, tmp_path, monkeypatch):
    """The models and the table of new rows in the current folder."""
    monkeypatch.chdir(tmp_path)
    twin, log, new = models
    twinned.save(twin, "model.twin")
    twinned.save(log, "log.twin")
    new.rename_axis("sample").reset_index()[["sample", "kind", "b", "a"]].to_csv("new.csv")
    return models


def run(*arguments, columns=200):
    return CliRunner().invoke(app, ["explain", *arguments], env={"COLUMNS": str(columns)})


def read_json(*arguments):
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["rows"]


def test_cases_are_those_of_explain(files):
    twin, _, new = files
    rows = read_json("model.twin", "new.csv", "--label", "sample", "-k", "3")
    table = twin.explain(new, n=3, adjustments=True)
    assert [row["name"] for row in rows] == list(new.index)
    assert [row["row"] for row in rows] == list(range(2, 12))
    np.testing.assert_allclose([row["prediction"] for row in rows], twin.predict(new))
    cases = [case for row in rows for case in row["comparables"]]
    table = table[table["anchor"] >= 0]
    assert [case["label"] for case in cases] == table["label"].tolist()
    for case, (_, expected) in zip(cases, table.iterrows(), strict=True):
        assert case["known"] == pytest.approx(expected["anchor_y"])
        assert case["estimate"] == pytest.approx(expected["estimate"])
        assert case["adjustments"] == pytest.approx(expected[["a", "b", "kind"]].to_dict())


def test_adjustments_of_a_logarithm_sum_to_the_difference_of_values(files):
    _, log, new = files
    rows = read_json("log.twin", "new.csv")
    np.testing.assert_allclose([row["prediction"] for row in rows], log.predict(new))
    for case in (case for row in rows for case in row["comparables"]):
        total = case["known"] + sum(case["adjustments"].values())
        assert total == pytest.approx(case["estimate"], rel=1e-9)


@pytest.mark.parametrize("width", [60, 200])
def test_grid_has_all_columns_and_fits_the_terminal(files, width):
    result = run("model.twin", "new.csv", "--label", "sample", "--rows", "S33", columns=width)
    assert result.exit_code == 0, result.output
    *grid, _, last = result.stdout.splitlines()
    assert last.endswith("The weighted mean of all adjusted values is the prediction.")
    (row,) = read_json("model.twin", "new.csv", "--label", "sample", "--rows", "S33")
    for case in row["comparables"]:
        assert case["label"] in result.stdout
        assert f"{case['estimate']:.3f}" in result.stdout
    assert "all other cases (25 rows)" in result.stdout
    assert result.stdout.startswith("S33: predicted y ")
    assert max(map(len, grid)) <= width
    assert sum(line.startswith("  known value") for line in grid) == (1 if width == 200 else 4)


def test_files_have_a_row_for_each_case(files):
    rows = read_json("model.twin", "new.csv", "--rows", "3-4", "--rows", "7")
    assert [row["name"] for row in rows] == ["line 3", "line 4", "line 7"]
    tables = []
    for name in ("out.csv", "out.xlsx"):
        result = run("model.twin", "new.csv", "--rows", "3-4,7", "-o", name)
        expected = f"3 rows in {name}, with at most 5 known cases each\n"
        assert result.stdout == expected, result.output
        tables.append((pd.read_csv if name.endswith("csv") else pd.read_excel)(name))
    pd.testing.assert_frame_equal(*tables, check_dtype=False)
    table = tables[0]
    assert table["row"].tolist() == [row["name"] for row in rows for _ in range(6)]
    assert table["a (this row)"].tolist() == [row["values"]["a"] for row in rows for _ in range(6)]
    is_case = table["known case"] != OTHERS
    assert is_case.tolist() == [*[True] * 5, False] * 3
    assert table["kind (known case)"][is_case].isin(["u", "v"]).all()
    total = table["known value"] + table.filter(like="(adjustment)").sum(axis=1)
    np.testing.assert_allclose(total[is_case], table["adjusted value"][is_case], rtol=1e-4)
    assert table[~is_case].filter(regex="known case\\)|adjustment").isna().all(axis=None)
    assert table.groupby("row")["rows"].sum().tolist() == [30] * 3
    means = (table["weight"] * table["adjusted value"]).groupby(table["row"]).sum()
    np.testing.assert_allclose(means, table.groupby("row")["prediction"].first(), rtol=1e-5)
    alone = [row["comparables_estimate"] for row in rows for _ in range(6)]
    np.testing.assert_allclose(table["mean of shown cases"], alone, rtol=1e-5)


def test_bad_input_is_one_line(files):
    for arguments, message in (
        (("--rows", "99"), "are in lines 2 to 11"),
        (("--rows", "S33"), "has no such row"),
        (("--label", "name"), "no column 'name' (--label)"),
        (("-o", "out.json"), "use .csv or .xlsx"),
    ):
        result = run("model.twin", "new.csv", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.count("\n") == 1


def test_many_rows_are_shortened_in_the_terminal_only(files):
    table = pd.read_csv("new.csv")
    pd.concat([table, table]).to_csv("many.csv", index=False)
    result = run("model.twin", "many.csv", "-k", "1")
    assert result.stdout.count("known value  ") == 10
    assert "the first 10 of 20 rows are explained" in result.stderr
    assert len(read_json("model.twin", "many.csv", "-k", "1")) == 20


def test_rows_are_selected_by_label_number_and_range(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,name\n1,x\n2,4\n\n3,y\n4,x\n")
    table = read_table(path)
    lines = ["line 2", "line 3", "line 5", "line 6"]
    assert select_rows(table, lines, ["5,2-3"]) == [2, 0, 1]
    assert select_rows(table, lines, ["3-2"]) == [0, 1]
    names = table.column("name")
    assert select_rows(table, names, ["x", "4"]) == [0, 3, 1]  # a label before a number
    assert select_rows(table, names, ["y, 6"]) == [2, 3]
    assert select_rows(table, names, ["2,"]) == [0]
    assert select_rows(table, names, []) == [0, 1, 2, 3]


def test_rows_outside_of_the_known_rows_are_marked(files):
    twin, _, new = files
    far = new.iloc[:2].assign(a=[0.5, 40.0])
    far.to_csv("far.csv", index=False)
    expected = twin.applicability(far)["label"].tolist()
    assert expected[1] == "outside"
    assert [row["applicability"] for row in read_json("model.twin", "far.csv")] == expected
    text = run("model.twin", "far.csv", "--rows", "3").stdout
    assert "; outside of the known rows, so an extrapolation\n" in text
    run("model.twin", "far.csv", "-o", "out.csv")
    assert pd.read_csv("out.csv").groupby("row")["applicability"].first().tolist() == expected


def test_long_names_and_years():
    name = "an address that is much longer than the line of a terminal, with a house number 12b"
    case = ComparableCase(0, name, 1.0, 1.5, 1.0, 3, {"built": 1998.0}, {"built": 0.5})
    found = ComparableCases([case], None)
    row = ExplainedRow(2, name, {"prediction": 1.5}, "inside", {"built": 2019.0}, found)
    heading, *grid = format_grid(row, "price", 80)
    assert heading.startswith(f"{name[:59]}…: predicted price ")
    assert "an address that is much… (3 rows)" in "\n".join(grid)
    (line,) = [line for line in grid if "built" in line]
    assert line.split()[:3] == ["built", "2019", "1998"]


def test_features_beyond_the_largest_are_summed():
    names = [f"f{i}" for i in range(MAX_FEATURES + 3)]
    adjustments = {name: float(len(names) - i) for i, name in enumerate(names)}
    estimate = 10.0 + sum(adjustments.values())
    values = dict.fromkeys(names, 1.0)
    case = ComparableCase(0, "row 1", 10.0, estimate, 0.5, 1, values, adjustments)
    found = ComparableCases([case], None)
    row = ExplainedRow(2, "line 2", {"prediction": 130.0}, "inside", values, found)
    lines = format_grid(row, "y", 100)
    others = next(line for line in lines if "other features" in line)
    assert float(others.split()[-1]) == sum(list(adjustments.values())[MAX_FEATURES:])
    (adjusted,) = [line for line in lines if "adjusted value" in line]
    assert adjusted.split()[-1] == f"{estimate:.1f}"


@pytest.mark.parametrize(("model", "k"), [("model", 3), ("log", 3), ("model", 99)])
def test_weighted_values_sum_to_the_prediction(files, model, k):
    rows = read_json(f"{model}.twin", "new.csv", "-k", str(k), "--rows", "3-4")
    result = run(f"{model}.twin", "new.csv", "-k", str(k), "--rows", "3-4", columns=999)
    printed = re.findall(r"adjusted value(.*)\n +weight(.*)\n", result.stdout)
    alone = re.findall(r"alone: (\S+)\. They carry .* % of the weight .*, (\S+)\.", result.stdout)
    if k == 3:
        for row, (values, weights), (shown, predicted) in zip(rows, printed, alone, strict=True):
            cases = [*row["comparables"], row["others"]]
            shares, estimates = ([case[name] for case in cases] for name in ("weight", "estimate"))
            assert sum(shares) == pytest.approx(1.0, rel=1e-12)
            assert np.dot(shares, estimates) == pytest.approx(row["prediction"], rel=1e-9)
            first, *values = map(float, values.split())
            shares = np.array(weights.replace("%", "").split(), dtype=float) / 100
            assert first == float(predicted) == pytest.approx(row["prediction"], abs=6e-4)
            assert np.dot(shares, values) == pytest.approx(first, abs=2e-3)
            assert float(shown) == pytest.approx(row["comparables_estimate"], abs=6e-4)
    else:  # all cases are shown
        assert [row["others"] for row in rows] == [None, None]
        assert "other cases" not in result.stdout
        assert [predicted == shown for shown, predicted in alone] == [True, True]
        assert result.stdout.count("They carry 100 % of the weight") == 2


def test_features_named_as_columns_of_the_result_have_columns_of_their_own(files):
    names = {"a": "weight", "b": "prediction", "kind": "row"}
    twin, _, new = files
    table = new.rename(columns=names)
    twinned.save(clone(twin).fit(table, np.arange(10.0)), "named.twin")
    table.to_csv("named.csv", index=False)
    assert run("named.twin", "named.csv", "-o", "out.csv").exit_code == 0
    with open("out.csv") as file:
        header = file.readline().strip().split(",")
    assert len(set(header)) == len(header)


def test_a_workbook_has_no_control_characters(files):
    table = pd.read_csv("new.csv")
    table["sample"] = "S\x0b1"
    table.to_csv("new.csv", index=False)
    result = run("model.twin", "new.csv", "--label", "sample", "-o", "out.xlsx")
    assert result.exit_code == 0, result.output
    assert set(pd.read_excel("out.xlsx")["row"]) == {"S1"}


def test_a_prediction_that_is_not_finite_is_an_error(tmp_path):
    X = pd.DataFrame({"a": np.linspace(0, 1, 20)})
    log = TransformedTargetTwin(TwinRegressor(Ridge()))
    twinned.save(log.fit(X, np.exp(5 * X["a"])), tmp_path / "m.twin")
    (tmp_path / "t.csv").write_text("a\n0.5\n1e6\n")
    arguments = str(tmp_path / "m.twin"), str(tmp_path / "t.csv"), "--json"
    result = run(*arguments)
    assert result.exit_code == 2
    assert "line 3: the prediction is not a finite number." in result.stderr
    predicted = CliRunner().invoke(app, ["predict", *arguments])
    assert json.loads(predicted.stdout)["prediction"][1] is None
