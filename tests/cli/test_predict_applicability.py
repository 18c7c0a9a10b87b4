"""`twinned predict --applicability`."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from typer.testing import CliRunner

import twinned
from twinned import TwinRegressor, cross_conformal
from twinned.app.cli import app


def test_rows_outside_are_marked_and_reported(tmp_path):
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(40, 2)), columns=["a", "b"])
    twinned.save(TwinRegressor(Ridge()).fit(X, X["a"] + X["b"]), tmp_path / "model.twin")
    new = X[:3].assign(a=[0.5, 50.0, 0.4])
    new.to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", str(tmp_path / "model.twin"), str(tmp_path / "new.csv")]
    result = CliRunner().invoke(app, [*command, "--applicability"])
    assert result.exit_code == 0, result.output
    table = pd.read_csv(io.StringIO(result.stdout))
    assert list(table.columns) == ["prediction", "applicability"]
    assert table["applicability"].tolist() == ["inside", "outside", "inside"]
    assert "1 of 3 rows are outside of the known rows" in result.stderr
    shown = json.loads(CliRunner().invoke(app, [*command, "--applicability", "--json"]).stdout)
    assert shown["applicability"] == table["applicability"].tolist()
    assert "applicability" not in CliRunner().invoke(app, command).stdout


def test_one_definition_of_outside(tmp_path):
    rng = np.random.RandomState(0)
    X = pd.DataFrame(rng.uniform(size=(60, 2)), columns=["a", "b"]).assign(c=["u", "v", "w"] * 20)
    X["c"] = X["c"].astype("category")
    twin = cross_conformal(TwinRegressor(Ridge()), X, X["a"] + X["b"], cv=3)
    twinned.save(twin, tmp_path / "model.twin")
    # beyond the range of b, but not by much; far beyond that of a; a new category
    new = X[:9].assign(b=[1.0001, *X["b"][1:9]], a=[*X["a"][:8], 9.0], c=["u"] * 7 + ["new", "u"])
    new.to_csv(tmp_path / "new.csv", index=False)
    command = [
        "predict",
        str(tmp_path / "model.twin"),
        str(tmp_path / "new.csv"),
        "--interval",
        ".9",
    ]
    warned = CliRunner().invoke(app, command).stderr
    assert "2 of 9 rows are outside of the known rows" in warned
    assert "intervals may cover less than stated" in warned
    assert "'new' was not among the categories at fit" in warned
    assert re.search("a is far beyond the known ones, .* in 1 of 9 rows, such as 9", warned)
    result = CliRunner().invoke(app, [*command, "--applicability"])
    labels = pd.read_csv(io.StringIO(result.stdout))["applicability"]
    assert labels.iloc[[0, 7, 8]].tolist() == ["edge", "outside", "outside"]
    assert (labels == "outside").sum() == 2
    assert "2 of 9 rows are outside of the known rows" in result.stderr
    assert "intervals may cover less than stated" in result.stderr
    assert "lie outside" not in result.stderr  # the same fact, once


@pytest.mark.parametrize("options", [["--no-check"], []])
def test_rows_of_new_groups_are_compared_with_groups(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    rng = np.random.RandomState(0)
    table = pd.DataFrame(rng.normal(size=(25, 2)).repeat(6, axis=0), columns=["a", "b"])
    table = table.assign(day=np.tile(np.arange(6.0), 25), animal=np.arange(25).repeat(6))
    table["y"] = table["a"] + 0.1 * table["day"] + rng.normal(scale=0.3, size=25).repeat(6)
    table[:96].to_csv("known.csv", index=False)
    table[96:].drop(columns="y").to_csv("new.csv", index=False)
    fit = ["fit", "known.csv", "-t", "y", "-m", "ridge", "--group", "animal", "-o", "m.twin"]
    assert CliRunner().invoke(app, [*fit, *options]).exit_code == 0
    result = CliRunner().invoke(app, ["predict", "m.twin", "new.csv", "--applicability"])
    labels = pd.read_csv(io.StringIO(result.stdout))["applicability"]
    assert (labels == "outside").mean() < 0.25


def test_an_empty_cell_and_a_negative_area_are_marked(tmp_path):
    """A missing value that no known row has is named, and a new sign is outside."""
    rng = np.random.RandomState(0)
    X = pd.DataFrame({"area": rng.uniform(10, 200, 60), "rooms": rng.randint(1, 6, 60) * 1.0})
    blend = twinned.AutoTwinRegressor(members=["ridge"], random_state=0)
    twinned.save(blend.fit(X, X["area"] + X["rooms"]), tmp_path / "model.twin")
    pd.DataFrame({"area": [-5.0, 50.0], "rooms": [2.0, np.nan]}).to_csv(tmp_path / "new.csv")
    paths = [str(tmp_path / name) for name in ("model.twin", "new.csv")]
    result = CliRunner().invoke(app, ["predict", *paths, "--interval", ".9"])
    assert "area is far beyond the known ones" in result.stderr
    assert "1 of 2 rows have no value of rooms, but all known rows have one" in result.stderr
    labels = pd.read_csv(io.StringIO(result.stdout))["applicability"].tolist()
    assert labels[0] == "outside"
    assert labels[1] != "inside"
