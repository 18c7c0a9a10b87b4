"""Search, download and verification of data files."""

import dataclasses
import hashlib
import importlib
import logging
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from twinned.datasets import fetch, info, load
from twinned.datasets.files import ARCHIVE, parse
from twinned.exceptions import IntegrityError

registry = importlib.import_module("twinned.datasets.registry")

ROWS = b"-2.3 0.5 4 3 3 0.1 0.25\n-2.3 0.6 4 3 3 0.2 0.5\n\n"
NOWHERE = "http://127.0.0.1:9/"  # the discard port: nothing listens there


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *args):
        self.server.requests.append(self.path)


@pytest.fixture(autouse=True)
def isolated(tmp_path, monkeypatch):
    """No real cache and no network; YH is a file of two rows with a known hash."""
    small = dataclasses.replace(
        info("YH"), rows=2, sha256=hashlib.sha256(ROWS).hexdigest(), file="yacht.data"
    )
    monkeypatch.setitem(registry.RECORDS, "YH", small)
    monkeypatch.setattr(registry, "BASE_URL", NOWHERE)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("TWINNED_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("TWINNED_DATA", raising=False)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    path = tmp_path / "data"
    path.mkdir()
    monkeypatch.setenv("TWINNED_DATA", str(path))
    return path


@pytest.fixture
def cache(tmp_path):
    path = tmp_path / "cache"
    path.mkdir()
    return path


@pytest.fixture
def server(tmp_path, monkeypatch):
    root = tmp_path / "served"
    root.mkdir()
    (root / "yacht.data").write_bytes(ROWS)
    handler = partial(QuietHandler, directory=str(root))
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.requests, http.root = [], root
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setattr(registry, "BASE_URL", f"http://127.0.0.1:{http.server_port}/")
    yield http
    http.shutdown()
    http.server_close()
    thread.join()


def test_data_folder_is_searched_first(folder, cache, server):
    for path in (folder, cache):
        (path / "yacht.data").write_bytes(ROWS)
    assert fetch("YH") == folder / "yacht.data"
    assert server.requests == []


def test_cache_is_searched_next(folder, cache, server):
    (cache / "yacht.data").write_bytes(ROWS)
    assert fetch("yh") == cache / "yacht.data"
    assert server.requests == []


def test_absent_file_is_downloaded_once(folder, tmp_path, server):
    path = fetch("YH")
    assert path == tmp_path / "cache" / "yacht.data"
    assert path.read_bytes() == ROWS
    assert fetch("YH") == path
    assert len(server.requests) == 1
    X, y = load("YH")
    assert X.shape == (2, 6)
    assert y.tolist() == [0.25, 0.5]


def test_wrong_file_in_the_data_folder_is_refused_by_name(folder, cache, server):
    wrong = folder / "yacht.data"
    wrong.write_bytes(ROWS + b"1 2 3 4 5 6 7\n")
    (cache / "yacht.data").write_bytes(ROWS)  # must not be used instead
    for function in (fetch, load):
        with pytest.raises(IntegrityError) as caught:
            function("YH")
        message = str(caught.value)
        assert str(wrong) in message
        assert hashlib.sha256(wrong.read_bytes()).hexdigest() in message
        assert info("YH").sha256 in message
        assert "\n" not in message
    assert server.requests == []


def test_file_changed_after_loading_is_refused(folder):
    path = folder / "yacht.data"
    path.write_bytes(ROWS)
    load("YH")
    path.write_bytes(ROWS.replace(b"0.25", b"0.26"))
    with pytest.raises(IntegrityError):
        load("YH")


def test_file_is_parsed_once(folder):
    (folder / "yacht.data").write_bytes(ROWS)
    load("YH")
    n_parsed = parse.cache_info().misses
    assert load("YH")[1].tolist() == [0.25, 0.5]
    assert parse.cache_info().misses == n_parsed


def test_damaged_cached_file_is_replaced(cache, server):
    (cache / "yacht.data").write_bytes(b"half a fi")
    assert fetch("YH").read_bytes() == ROWS
    assert len(server.requests) == 1


def test_wrong_download_is_refused_and_deleted(tmp_path, server):
    (server.root / "yacht.data").write_bytes(b"<html>log in first</html>")
    with pytest.raises(IntegrityError) as caught:
        fetch("YH")
    message = str(caught.value)
    assert info("YH").url in message
    assert info("YH").sha256 in message
    assert hashlib.sha256(b"<html>log in first</html>").hexdigest() in message
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("served", [True, False])
def test_error_of_a_failed_download_names_the_solution(served, request, tmp_path, caplog):
    if served:
        (
            request.getfixturevalue("server").root / "yacht.data"
        ).unlink()  # so that the status is 404
    with pytest.raises(OSError) as caught:
        load("YH")
    message = str(caught.value)
    assert "yacht.data" in message
    assert info("YH").url in message
    assert "TWINNED_DATA" in message
    assert "\n" not in message
    assert ("404" in message) is served


def test_unwritable_cache_is_an_os_error(tmp_path, monkeypatch):
    blocked = tmp_path / "a file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("TWINNED_CACHE", str(blocked))
    with pytest.raises(OSError) as caught:
        fetch("YH")
    assert str(blocked) in str(caught.value)


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_data_folder_must_be_a_folder(kind, tmp_path, monkeypatch, cache):
    (cache / "yacht.data").write_bytes(ROWS)
    data_folder = tmp_path / "nowhere"
    if kind == "file":
        data_folder.write_bytes(ROWS)
    monkeypatch.setenv("TWINNED_DATA", str(data_folder))
    with pytest.raises(ValueError, match="TWINNED_DATA") as caught:
        fetch("YH")
    assert str(data_folder) in str(caught.value)


def test_empty_variable_counts_as_unset(monkeypatch, cache):
    import pooch

    (cache / "yacht.data").write_bytes(ROWS)
    monkeypatch.setenv("TWINNED_DATA", "")
    assert fetch("YH") == cache / "yacht.data"
    monkeypatch.setenv("TWINNED_CACHE", "")
    monkeypatch.setattr(pooch, "os_cache", lambda name: cache)
    assert fetch("YH") == cache / "yacht.data"


def test_log_level_of_pooch_is_restored(server, caplog, capsys):
    import pooch

    level = pooch.get_logger().level
    fetch("YH")
    assert pooch.get_logger().level == level
    assert capsys.readouterr().err == ""
    assert not [record for record in caplog.records if record.levelno >= logging.INFO]


@pytest.fixture
def standard(server, monkeypatch):
    """Yachts of the standard splits on the server, in the folders of their repository."""
    small = dataclasses.replace(info("yacht"), rows=2, sha256=info("YH").sha256)
    monkeypatch.setitem(registry.RECORDS, "yacht", small)
    monkeypatch.setattr(registry, "UCI_URL", registry.BASE_URL)
    path = server.root / "UCI_Datasets" / "yacht" / "data" / "data.txt"
    path.parent.mkdir(parents=True)
    path.write_bytes(ROWS)
    return path


def test_set_of_the_standard_splits_is_downloaded_once(standard, tmp_path, server):
    for _ in range(2):
        X, y = load("Yacht")
        assert X.shape == (2, 6)
        assert y.tolist() == [0.25, 0.5]
    assert (tmp_path / "cache" / "yacht.txt").read_bytes() == ROWS
    assert server.requests == ["/UCI_Datasets/yacht/data/data.txt"]


def test_wrong_file_of_the_standard_splits_is_refused(standard, tmp_path, monkeypatch):
    expected = info("yacht").sha256
    standard.write_bytes(b"<html>log in first</html>")
    with pytest.raises(IntegrityError) as caught:
        load("yacht")
    for text in (info("yacht").url, expected, "yacht.txt", "TWINNED_DATA"):
        assert text in str(caught.value)
    monkeypatch.setenv("TWINNED_DATA", str(tmp_path))
    (tmp_path / "yacht.txt").write_bytes(ROWS + b"1 2 3 4 5 6 7\n")
    with pytest.raises(IntegrityError, match=rf"yacht\.txt is not .* expected {expected}"):
        load("yacht")


def test_archive_of_the_standard_splits(standard, folder, monkeypatch, server):
    path = folder / ARCHIVE
    values = np.array([[float(text) for text in row.split()] for row in ROWS.split(b"\n")[:2]])
    np.savez(path, yacht_X=values[:, :6].astype(np.float32), yacht_y=values[:, 6])
    with pytest.raises(IntegrityError, match=ARCHIVE):
        load("yacht")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr("twinned.datasets.files.ARCHIVE_SHA256", digest)
    X, y = load("yacht")
    assert fetch("yacht") == path
    np.testing.assert_array_equal(X, values[:, :6].astype(np.float32))
    assert (X.dtypes == np.float64).all()
    assert y.tolist() == [0.25, 0.5]
    assert fetch("YH").name == "yacht.data"  # the archive has no set of the paper
    (folder / "yacht.txt").write_bytes(ROWS)  # the file itself comes first
    assert fetch("yacht") == folder / "yacht.txt"
    assert len(server.requests) == 1
