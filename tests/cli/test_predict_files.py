"""`twinned predict` of the tables of a folder or a pattern."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression
from typer.testing import CliRunner

import twinned
from twinned.app.cli import app


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(20, 2)), columns=["area", "age"])
    twinned.save(twinned.TwinRegressor(LinearRegression()).fit(X, X["area"]), tmp_path / "m.twin")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def make_rows(n_rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame(rng.normal(size=(n_rows, 2)), columns=["area", "age"])
    return rows.assign(id=[f"{seed}/{i}" for i in range(n_rows)])


def predict(table: str, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["predict", "m.twin", table, *arguments])


def error_line(result: Any) -> str:
    assert result.exit_code == 2, result.output
    (line,) = (line for line in result.stderr.splitlines() if "error:" in line)
    return str(line)


@pytest.mark.parametrize("table", ["data", "data/*.*", "{folder}/data/?.*"])
def test_each_file_has_the_result_of_its_own(folder: Path, table: str) -> None:
    pytest.importorskip("pyarrow")
    make_rows(7, 1).to_csv("data/a.csv", index=False)
    make_rows(3, 2).to_parquet("data/b.parquet", index=False)
    options = "--std", "--keep", "id", "--digits", "17"
    result = predict(table.format(folder=folder), *options, "-o", "out", "--json")
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["rows"] for line in result.stdout.splitlines()] == [7, 3]
    assert sorted(path.name for path in Path("out").iterdir()) == ["a.csv", "b.csv"]
    for name in ("a.csv", "b.parquet"):
        alone = predict(f"data/{name}", *options)
        assert Path("out", name).with_suffix(".csv").read_text() == alone.stdout


def test_bad_files_are_named(folder: Path) -> None:
    assert "there is no file data" in error_line(predict("data", "-o", "out"))
    make_rows(5, 1).to_csv("data/a.csv", index=False)
    assert "give one with -o" in error_line(predict("data"))
    assert "no/out" in error_line(predict("data", "-o", "no/out"))
    assert "give one with -o" in error_line(predict("data", "-o", "m.twin"))
    assert "would replace the input" in error_line(predict("data", "-o", "data"))
    make_rows(5, 2).astype({"age": str}).assign(age="old").to_csv("data/b.csv", index=False)
    assert "b.csv, line 2, column 'age'" in error_line(predict("data", "-o", "out"))
    assert [path.name for path in Path("out").iterdir()] == ["a.csv"]
    Path("data/a.xlsx").write_bytes(b"")
    assert "would have the result 'a.csv'" in error_line(predict("data", "-o", "out"))
