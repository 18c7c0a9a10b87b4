"""`twinned predict` of several files on a Dask cluster: results, resumption and bad input."""

import errno
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.tree import DecisionTreeRegressor
from typer.testing import CliRunner

import twinned
from twinned.app.cli import app, partitions
from twinned.app.cli.partitions import MANIFEST, connect
from twinned.app.tables.reader import table_from_text
from twinned.app.tables.table import ReadOptions

distributed = pytest.importorskip("distributed")
parquet = pytest.importorskip("pyarrow.parquet")


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 2)), columns=["area", "age"])
    frame.insert(0, "kind", rng.choice(["brick", "wood"], n))
    return frame.assign(id=[f"{seed}/{i}" for i in range(n)])


@pytest.fixture(scope="module")
def model() -> Any:
    frame = rows(30, 0)
    X = frame.drop(columns="id").astype({"kind": "category"})
    twin = twinned.TwinRegressor(DecisionTreeRegressor(random_state=0), random_state=0)
    return twin.fit(X, frame["area"] + (frame["kind"] == "wood"))


@pytest.fixture(scope="module")
def address() -> Any:
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def folder(tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    twinned.save(model, tmp_path / "m.twin")
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def predict(address: str, folder: Path) -> Any:
    def run(*arguments: str, scheduler: str = address) -> Any:
        arguments = arguments or ("data/*.parquet",)
        command = ["predict", "m.twin", *arguments, "-o", "out", "--scheduler", scheduler]
        command += ["--digits", "17"]
        return CliRunner().invoke(app, command, env={"COLUMNS": "200"})

    return run


def write(folder: Path, frame: pd.DataFrame, name: str, **options: Any) -> None:
    path = folder / "data" / name
    if path.suffix == ".csv":
        frame.to_csv(path, index=False, **options)
    else:
        frame.to_parquet(path, index=False, **options)


def expected(model: Any, frame: pd.DataFrame) -> np.ndarray:
    return model.predict(frame[["kind", "area", "age"]].astype({"kind": "category"}))


def results(folder: Path, suffix: str) -> pd.DataFrame:
    exact = partial(pd.read_csv, float_precision="round_trip")
    read = pd.read_parquet if suffix == "parquet" else exact
    parts = [read(path) for path in sorted((folder / "out").glob(f"*.{suffix}"))]
    return pd.concat([part for part in parts if len(part)])


def error_line(result: Any) -> str:
    assert result.exit_code == 2, result.output
    lines = [line for line in result.stderr.splitlines() if "error:" in line]
    assert len(lines) == 1
    assert "Traceback" not in result.stderr
    return lines[0]


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_partitions_equal_predict(
    predict: Any, folder: Path, model: Any, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "ROWS_PER_PARTITION", 25)
    monkeypatch.setattr(partitions, "BYTES_PER_PARTITION", 1500)
    monkeypatch.setattr(partitions, "ROWS_PER_BATCH", 7)
    frames = [rows(n, seed) for seed, n in ((1, 70), (2, 10), (3, 0), (4, 31))]
    for i, frame in enumerate(frames):
        options = {"row_group_size": 11} if suffix == "parquet" else {}
        write(folder, frame, f"{i}.{suffix}", **options)
    result = predict(f"data/*.{suffix}", "--std", "--keep", "id", "--json")
    assert result.exit_code == 0, result.output
    facts = json.loads(result.stdout)
    assert (facts["rows"], facts["finished_before"]) == (111, 0)
    assert facts["partitions"] == len(list((folder / "out").glob(f"*.{suffix}"))) > 5
    found, known = results(folder, suffix), pd.concat([own for own in frames if len(own)])
    assert list(found.columns) == ["id", "prediction", "std"]
    assert found["id"].tolist() == known["id"].tolist()
    np.testing.assert_array_equal(found["prediction"], expected(model, known))


def test_quoted_line_breaks_and_line_numbers(
    folder: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "BYTES_PER_PARTITION", 700)
    frame = rows(60, 1).assign(id='two\nlines, "quoted"')
    write(folder, frame, "a.csv")
    own = list(partitions.split_text(folder / "data/a.csv", "a"))
    assert len(own) > 3
    text = (folder / "data/a.csv").read_bytes()
    assert b"".join(text[each.start : each.stop] for each in own) == text
    lines = []
    for each in own:
        data = partitions.read_bytes(each)
        table = table_from_text(each.path, data, ReadOptions())
        lines += [line + each.first_row for line in table.lines]
    assert lines == list(range(2, 122, 2))


def test_finished_partitions_are_not_repeated(
    predict: Any, folder: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for i in range(4):
        write(folder, rows(5, i), f"{i}.parquet")
    assert predict().exit_code == 0
    out = folder / "out"
    first = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    (out / "2-00000.parquet").unlink()
    (out / ".2-00000.parquet.0.part").write_bytes(b"half")
    result = predict("data/*.parquet", "--json")
    assert json.loads(result.stdout)["finished_before"] == 3
    second = {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}
    assert [name for name in first if first[name] != second[name]] == ["2-00000.parquet"]
    assert not list(out.glob(".*"))
    write(folder, rows(5, 4), "4.parquet")
    assert json.loads(predict("data/*.parquet", "--json").stdout)["partitions"] == 1
    assert "other options" in error_line(predict("data/*.parquet", "--std"))
    write(folder, rows(6, 9), "0.parquet")
    assert "has changed" in error_line(predict())


def test_schema_that_differs(predict: Any, folder: Path) -> None:
    write(folder, rows(5, 0), "0.parquet")
    write(folder, rows(5, 1).rename(columns={"age": "years"}), "1.parquet")
    line = error_line(predict())
    assert "1.parquet has no column 'age'" in line
    write(folder, rows(5, 1).astype({"age": str}), "1.parquet")
    line = error_line(predict())
    assert "1.parquet, column 'age' is of type" in line
    assert not (folder / "out").exists()


def test_text_in_a_numeric_column_of_one_file(predict: Any, folder: Path) -> None:
    write(folder, rows(5, 0), "0.csv")
    other = rows(5, 1).astype({"age": object})
    other.loc[2, "age"] = "old"
    write(folder, other, "1.csv")
    line = error_line(predict("data/*.csv"))
    assert "1.csv, line 4, column 'age': 'old' is text in a numeric column" in line
    assert not (folder / "out/1-00000.csv").exists()
    other.loc[2, "age"] = 3.0
    write(folder, other, "1.csv")
    assert "has changed" in error_line(predict("data/*.csv"))


def test_infinite_and_missing_numbers(predict: Any, folder: Path) -> None:
    frame = rows(5, 0)
    frame.loc[3, "age"] = np.inf
    write(folder, frame, "0.parquet")
    assert "0.parquet, row 4, column 'age'" in error_line(predict())
    shutil.rmtree(folder / "out")
    frame.loc[3, "age"] = np.nan
    write(folder, frame, "0.parquet")
    assert predict().exit_code == 0  # trees take missing values
    shutil.rmtree(folder / "out")
    write(folder, frame.assign(age=["1.5", "n.d.", "2", "3", "N.D."]), "0.parquet")
    assert "row 2, column 'age': 'n.d.' is text" in error_line(predict())
    assert predict("data/*.parquet", "--missing", "n.d.").exit_code == 0


def test_unreachable_scheduler(predict: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinned.app.cli.partitions.CONNECT_SECONDS", 0.5)
    write(folder, rows(5, 0), "0.parquet")
    assert "cannot be reached" in error_line(predict(scheduler="tcp://127.0.0.1:9"))
    assert "cannot be reached" in error_line(predict(scheduler="nonsense://x"))


def test_no_client_remains_of_an_address_that_cannot_be_reached() -> None:
    """Dask would close it at any later time, and may wait forever for its own lock then."""
    with pytest.raises(ValueError, match="cannot be reached"), connect("nonsense://x", None):
        pass
    clients = [each for each in gc.get_objects() if type(each) is distributed.Client]
    assert [each.status for each in clients if each.status != "closed"] == []


def test_full_disk(predict: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, rows(5, 0), "0.parquet")
    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", _raise_full_disk_for_results)
        assert "No space left on device" in error_line(predict())
    assert [path.name for path in (folder / "out").glob("[!.]*")] == [MANIFEST]
    (folder / "out" / ".0-00000.parquet.1.part").touch()  # of a task that was killed
    assert predict().exit_code == 0
    assert not list((folder / "out").glob(".*.part"))


def _raise_full_disk_for_results(descriptor: int) -> None:
    if not Path(f"/proc/self/fd/{descriptor}").resolve().name.startswith(f".{MANIFEST}"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_arguments(predict: Any, folder: Path) -> None:
    assert "there is no file" in error_line(predict())
    write(folder, rows(5, 0), "0.parquet")
    write(folder, rows(5, 0), "1.csv")
    assert "is a csv file, but" in error_line(predict("data/*"))
    assert "--header-row does not" in error_line(predict("data/*.csv", "--header-row", "2"))
    (folder / "out").mkdir()
    (folder / "out/other.txt").write_text("")
    assert "is not empty" in error_line(predict())
    result = CliRunner().invoke(app, ["predict", "m.twin", "data/*.parquet"])
    assert "give one with -o" in error_line(result)


def start_command(folder: Path, *arguments: str) -> Any:
    source = str(Path(twinned.__file__).resolve().parents[1])
    env = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "twinned.app.cli", "predict", "m.twin", "data", "-o", "out"]
    return subprocess.Popen(
        [*command, *arguments, "--json"], cwd=folder, env=env, stdout=subprocess.PIPE, text=True
    )


def wait_for_partitions(folder: Path, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(list((folder / "out").glob("*.parquet"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_killed_command_is_continued(folder: Path, model: Any) -> None:
    frames = [rows(2000, seed) for seed in range(30)]
    for i, frame in enumerate(frames):
        write(folder, frame, f"{i:02}.parquet")
    command = start_command(folder, "--workers", "1", "--keep", "id")
    wait_for_partitions(folder, 2)
    command.kill()
    command.wait()
    time.sleep(1)  # for the worker, which ends with its parent
    before = {path: path.stat().st_mtime_ns for path in (folder / "out").glob("*.parquet")}
    printed, _ = start_command(folder, "--workers", "1", "--keep", "id").communicate(timeout=120)
    facts = json.loads(printed)
    assert facts["finished_before"] == len(before) == 30 - facts["partitions"]
    assert {path: path.stat().st_mtime_ns for path in before} == before
    found, known = results(folder, "parquet"), pd.concat(frames)
    assert found["id"].tolist() == known["id"].tolist()
    np.testing.assert_array_equal(found["prediction"], expected(model, known))


@pytest.mark.slow
def test_killed_worker_changes_nothing(folder: Path, model: Any) -> None:
    frames = [rows(2000, seed) for seed in range(30)]
    for i, frame in enumerate(frames):
        write(folder, frame, f"{i:02}.parquet")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        pid = next(iter(client.run(os.getpid).values()))
        command = start_command(folder, "--scheduler", cluster.scheduler_address)
        wait_for_partitions(folder, 2)
        os.kill(pid, signal.SIGKILL)
        printed, _ = command.communicate(timeout=120)
    assert json.loads(printed)["rows"] == 60_000
    found = results(folder, "parquet")["prediction"]
    np.testing.assert_array_equal(found, expected(model, pd.concat(frames)))
