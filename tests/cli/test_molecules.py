"""`--smiles`: a column of molecules as features of the commands."""

import json
import re

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import twinned
from twinned import MoleculeFeatures
from twinned.app.cli import app

pytest.importorskip("rdkit", reason="RDKit is not installed: make test-chem")
CHAINS = ["C" * n for n in range(1, 9)] + ["CC(C)", "CCC(C)", "CC(C)C", "C1CCCC1"]


@pytest.fixture
def table(tmp_path):
    """A file of molecules with a dose, a salt and a repeated molecule."""
    smiles = [chain + group for chain in CHAINS for group in ("O", "N", "F")]
    table = pd.DataFrame({"structure": [*smiles, "CCN.Cl", "OCC"]})
    table["dose"] = np.arange(len(table)) % 3 + 0.5
    table["y"] = table["structure"].str.len() + table["dose"]
    table.to_csv(tmp_path / "table.csv", index=False)
    return tmp_path / "table.csv"


def run(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


@pytest.fixture
def fitted(table):
    path = table.with_name("model.twin")
    options = ("--smiles", "structure", "--budget", "1s", "-o", path)  # which names the rows, too
    result = run("fit", table, "-t", "y", *options)
    assert result.exit_code == 0, result.output
    return path, result


def test_model_knows_the_column(fitted, table):
    path, result = fitted
    assert "line 38" in result.output
    assert "the first of 1 molecules of several components, such as salts" in result.output
    assert "the first of 1 molecules that an earlier row has, too" in result.output
    new = table.with_name("new.csv")
    new.write_text("dose,structure\n1.5,CCCC(C)O\n2.5,OCCC\n")
    predicted = run("predict", path, new, "--json")
    assert predicted.exit_code == 0, predicted.output
    values = json.loads(predicted.stdout)["prediction"]
    model = twinned.load(path)
    features = MoleculeFeatures().fit_transform(["CCCC(C)O", "OCCC"]).add_prefix("structure (")
    features = features.add_suffix(")").assign(dose=[1.5, 2.5])
    expected = model.predict(features[model.feature_names_in_])
    np.testing.assert_allclose(values, expected, rtol=1e-4)
    explained = run("explain", path, new, "--rows", "2")
    assert explained.exit_code == 0, explained.output
    assert "CCCO" in explained.output


def test_notes_on_unusual_molecules_name_descriptors_alone(fitted, table):
    new = table.with_name("new.csv")
    new.write_text("dose,structure\n1.5,BrCCCCCCCCCCCCCCCCBr\n")
    result = run("predict", fitted[0], new)
    assert result.exit_code == 0, result.output
    assert "structure (MolWt) is far beyond the known ones" in result.output
    assert "fragment" not in result.output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("dose,structure\n1.5,C1CC\n", "line 2, column 'structure': 'C1CC' is no SMILES"),
        ("dose\n1.5\n", "structure"),
    ],
)
def test_faulty_table_is_named(fitted, table, content, message):
    new = table.with_name("new.csv")
    new.write_text(content)
    result = run("predict", fitted[0], new)
    assert result.exit_code == 2
    assert message in result.output
    assert "fragment" not in result.output


def test_option_is_suggested(table):
    rows = pd.read_csv(table).rename(columns={"structure": "SMILES"})
    rows.to_csv(table, index=False)
    result = run("fit", table, "-t", "y", "--model", "ridge", "-o", table.with_name("m.twin"))
    assert "--smiles SMILES describes molecules" in result.output


def test_service_takes_the_smiles(fitted):
    testclient = pytest.importorskip("starlette.testclient")
    from twinned.app.serve import make_app

    model = twinned.load(fitted[0])
    client = testclient.TestClient(make_app(model, "molecules"), base_url="http://localhost")
    inputs = client.get("/about").json()["inputs"]
    assert sorted(column["name"] for column in inputs) == ["dose", "structure"]
    [molecule] = [column for column in inputs if column["name"] == "structure"]
    assert molecule == {"name": "structure", "kind": "smiles", "middle": "CO"}
    row = {"structure": "OCCC", "dose": 2.5}
    answer = client.post("/predict", json={"rows": [row]})
    assert answer.status_code == 200, answer.text
    features = MoleculeFeatures().fit_transform(["OCCC"]).add_prefix("structure (")
    features = features.add_suffix(")").assign(dose=2.5)
    expected = model.predict(features[model.feature_names_in_])
    np.testing.assert_allclose(answer.json()["prediction"], expected)
    explained = client.post("/explain", json={"rows": [row]}).json()
    [cases], pictures = explained["comparables"], explained["pictures"]
    assert set(pictures) == {"OCCC", *(case["label"] for case in cases)}
    assert all(picture.startswith("<svg class='molecule'") for picture in pictures.values())
    pairs = {case["label"]: case.get("pair") for case in cases}
    assert pairs["CCO"] == "*[H] → *C"
    assert pairs["CCCN"] == "*N → *O"
    nameless = client.post("/predict", json={"rows": [{**row, "structure": ""}]}).json()
    assert nameless["warnings"] == [
        "1 of 1 rows have no value of structure, but all known rows have one."
    ]


def test_matched_pairs_are_explained(fitted, table):
    new = table.with_name("new.csv")
    new.write_text("dose,structure\n2.5,CCCCO\n")
    content = json.loads(run("explain", fitted[0], new, "--json").stdout)
    pairs = {case["label"]: case.get("pair") for case in content["rows"][0]["comparables"]}
    assert pairs["CCCCN"] == "*N → *O"
    printed = run("explain", fitted[0], new).output.splitlines()
    lines = [line for line in printed if line.split()[:2] == ["matched", "pair"]]
    assert any("*N → *O" in line for line in lines)


def test_report_has_pictures_and_matched_pairs(table):
    path = table.with_name("report.html")
    result = run(
        "advise", table, "-t", "y", "--smiles", "structure", "--budget", "1s", "--report", path
    )
    assert result.exit_code == 0, result.output
    [data] = re.findall(
        '<script type="application/json" id="data">(.*?)</script>', path.read_text("utf-8")
    )
    content = json.loads(data)
    for query in content["queries"]:
        labels = [case["label"] for case in query["comparables"]]
        assert {query["name"], *labels} <= content["pictures"].keys()
        titles = [title for title, *_ in query["grid"]["lines"]]
        pairs = [case.get("pair", "") for case in query["comparables"]]
        assert ("matched pair" in titles) == any(pairs)
        assert not any("fragment" in title for title in titles)
    assert any(case.get("pair") for query in content["queries"] for case in query["comparables"])
