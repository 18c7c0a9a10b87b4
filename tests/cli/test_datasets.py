"""`twinned datasets`: list, fetch and show."""

import json
import os

import pytest
from typer.testing import CliRunner

from twinned.app.cli import app
from twinned.datasets import KEYS, info

needs_files = pytest.mark.skipif(
    not os.environ.get("TWINNED_DATA"),
    reason="set TWINNED_DATA to the folder of the data files to run this check",
)


def run(*arguments):
    return CliRunner().invoke(app, ["datasets", *arguments], env={"COLUMNS": "200"})


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """No data files, and no network."""
    monkeypatch.setenv("TWINNED_DATA", str(tmp_path))
    monkeypatch.setenv("TWINNED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr("twinned.datasets.registry.BASE_URL", "http://127.0.0.1:9/")
    return tmp_path


def assert_refused(result, *texts):
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("twinned: error: ")
    assert result.stderr.count("\n") == 1
    for text in texts:
        assert text in result.stderr


def test_list_has_each_set():
    result = run("list")
    assert result.exit_code == 0
    for key in KEYS:
        assert info(key).name in result.stdout


def test_list_as_json():
    rows = json.loads(run("list", "--json").stdout)
    assert [row["key"] for row in rows] == list(KEYS)
    assert {row["rows"] for row in rows if row["key"] == "RCL"} == {4000}


def test_fetch_of_a_generated_set(empty):
    assert "needs no file" in run("fetch", "tf").stdout
    assert json.loads(run("fetch", "TF", "tf", "--json").stdout) == [{"key": "TF", "path": None}]


def test_fetch_needs_keys_or_all():
    assert_refused(run("fetch"), "--all", "WSB")
    assert_refused(run("fetch", "BC", "--all"), "--all", "BC")


def test_unknown_key_is_reported_in_one_line():
    assert_refused(run("fetch", "nope"), "'nope'", *KEYS)
    assert_refused(run("fetch", "nope", "--json"), "'nope'")


def test_wrong_hash_is_reported_in_one_line(empty):
    (empty / info("YH").file).write_text("not the yachts")
    assert_refused(run("fetch", "YH"), str(empty / info("YH").file), info("YH").sha256)


def test_failed_download_is_reported_in_one_line(empty):
    assert_refused(run("fetch", "BC"), info("BC").file, "http://127.0.0.1:9/", "TWINNED_DATA")
    assert_refused(run("fetch", "--all", "--json"), info("BC").file)


def test_missing_data_folder_is_reported_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setenv("TWINNED_DATA", str(tmp_path / "nowhere"))
    assert_refused(run("fetch", "BC"), "TWINNED_DATA", "nowhere")


@pytest.mark.parametrize("command", [[], ["list"], ["fetch"]])
def test_help_has_an_example(command):
    result = run(*command, "--help")
    assert result.exit_code == 0
    assert "TWINNED_DATA" in result.stdout or "Example" in result.stdout


@needs_files
def test_all_files_are_fetched_from_the_named_folder():
    folder = os.environ["TWINNED_DATA"]
    result = run("fetch", "--all")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 9
    entries = json.loads(run("fetch", "--all", "--json").stdout)
    assert [entry["key"] for entry in entries] == list(KEYS)
    paths = [entry["path"] for entry in entries if entry["key"] != "TF"]
    assert all(os.path.dirname(path) == os.path.normpath(folder) for path in paths)
