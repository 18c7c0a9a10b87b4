"""Records of finished trials: identity, packing, atomic writing."""

import gzip
import json
import os
import sys
from datetime import datetime
from types import SimpleNamespace

import pytest

from benchmarks import frame
from paper import records as records_module
from paper.records import NOT_RECORDED, DamagedRecordWarning, Records, Trial, device_name, origin
from tests.paper import processes

TRIAL = Trial("T9", "modern", "YH", 3, {"trees": 5, "sizes": [1, 2]})


def test_a_record_is_read_as_written(tmp_path):
    records = Records(tmp_path)
    records.write(TRIAL, {"rmse": 0.1 + 0.2}, seconds=1.5)
    (record,) = records.read("T9", "modern")
    assert record["config"]["settings"] == {"trees": 5, "sizes": [1, 2]}
    assert record["result"]["rmse"] == 0.1 + 0.2  # to the last bit
    assert record["identity"] == TRIAL.identity
    assert set(record["versions"]) >= {"twinned", "python", "numpy"}
    assert set(origin(record)) == {"device", "date", "commit"}
    assert datetime.fromisoformat(record["date"]).tzinfo is not None
    assert NOT_RECORDED not in origin(record).values()
    assert set(origin({}).values()) == {NOT_RECORDED}
    assert records.finished("T9", "modern") == {TRIAL.identity}
    assert records.finished("T9", "as_published") == set()


def test_trials_with_a_record_are_not_pending(tmp_path):
    records, other = Records(tmp_path), Trial("T9", "as_written", "YH", 3)
    records.write(TRIAL, {}, 0.0)
    assert records.pending([TRIAL, other]) == [other]
    assert records.pending([]) == []


@pytest.mark.parametrize(
    "other",
    [
        Trial("T8", "modern", "YH", 3, TRIAL.settings),
        Trial("T9", "as_written", "YH", 3, TRIAL.settings),
        Trial("T9", "modern", "BC", 3, TRIAL.settings),
        Trial("T9", "modern", "YH", 4, TRIAL.settings),
        Trial("T9", "modern", "YH", 3, {"trees": 6, "sizes": [1, 2]}),
    ],
)
def test_a_changed_setting_is_a_new_trial(other):
    assert other.identity != TRIAL.identity


def test_the_order_of_settings_does_not_matter():
    reordered = Trial("T9", "modern", "YH", 3, {"sizes": [1, 2], "trees": 5})
    assert reordered.identity == TRIAL.identity


def test_packing_preserves_all_records_and_is_deterministic(tmp_path):
    records = Records(tmp_path)
    trials = [Trial("T9", "modern", key, split) for key in ("YH", "BC") for split in range(3)]
    for trial in trials:
        records.write(trial, {"rmse": trial.split}, 0.0)
    before = records.read("T9", "modern")
    path = records.pack("T9", "modern")
    assert records.read("T9", "modern") == before
    assert [(r["config"]["dataset"], r["config"]["split"]) for r in before] == [
        (key, split) for key in ("BC", "YH") for split in range(3)
    ]
    assert not list((tmp_path / "running").rglob("*.json"))
    content = path.read_bytes()
    records.pack("T9", "modern")
    assert path.read_bytes() == content
    # records written after the packing are found beside it
    records.write(Trial("T9", "modern", "TF", 0), {"rmse": 1}, 0.0)
    assert len(records.read("T9", "modern")) == 7


def test_packing_preserves_records_written_meanwhile(tmp_path, monkeypatch):
    records, late = Records(tmp_path), Trial("T9", "modern", "TF", 0)
    records.write(TRIAL, {"rmse": 1.0}, 0.0)
    write_file = records_module.write_file

    def write_and_be_joined(path, content):
        write_file(path, content)
        if path.name.endswith(".gz"):
            Records(tmp_path).write(late, {"rmse": 2.0}, 0.0)

    monkeypatch.setattr(records_module, "write_file", write_and_be_joined)
    records.pack("T9", "modern")
    assert records.finished("T9", "modern") == {TRIAL.identity, late.identity}


def test_an_empty_study_is_not_packed(tmp_path):
    assert Records(tmp_path).pack("T9", "modern") is None


def test_an_interrupted_writer_leaves_no_partial_record(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Records(tmp_path).write(TRIAL, {}, 0.0)
    assert not list(tmp_path.rglob("*.json*"))


def test_two_runs_of_a_trial_have_equal_reproducible_parts(tmp_path):
    first, second = [], []
    for seconds, found in ((1.0, first), (2.0, second)):
        records = Records(tmp_path / str(seconds))
        records.write(TRIAL, {"rmse": 1.0}, seconds)
        found.extend(records.read("T9", "modern"))
    assert first != second
    assert processes.reproducible_part(first[0]) == processes.reproducible_part(second[0])


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork processes")


@needs_fork
@pytest.mark.parametrize("n_runners", [2, 4])
def test_several_runners_lose_no_record(tmp_path, n_runners):
    assert processes.run("write_records", tmp_path, n_runners, 2) == 0


@needs_fork
@pytest.mark.slow
@pytest.mark.parametrize("n_runners", [2, 4])
def test_several_runners_lose_no_record_in_100_repetitions(tmp_path, n_runners):
    assert processes.run("write_records", tmp_path, n_runners, 100) == 0


@needs_fork
def test_several_runners_write_each_row_of_a_table_once(tmp_path):
    assert processes.run("write_rows", tmp_path, 4) == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"identity": "x"}', b"\xff\x00"])
def test_a_damaged_record_is_named_and_the_others_are_read(tmp_path, content):
    records = Records(tmp_path)
    records.write(TRIAL, {"rmse": 1.0}, 0.0)
    damaged = tmp_path / "running" / "T9-modern" / "0123456789abcdef.json"
    damaged.write_bytes(content)
    with pytest.warns(DamagedRecordWarning, match=r"0123456789abcdef\.json is damaged.*remove it"):
        assert records.finished("T9", "modern") == {TRIAL.identity}
    with pytest.warns(DamagedRecordWarning):
        records.pack("T9", "modern")
    assert damaged.exists()


def test_a_record_of_another_trial_is_damaged(tmp_path):
    records = Records(tmp_path)
    records.write(TRIAL, {"rmse": 1.0}, 0.0)
    path = next((tmp_path / "running").rglob("*.json"))
    path.write_text(json.dumps(json.loads(path.read_bytes()) | {"identity": "0" * 16}))
    with pytest.warns(DamagedRecordWarning, match="its identity is not that of its trial"):
        assert records.pending([TRIAL]) == [TRIAL]


def packed_records(folder, n=80):
    records = Records(folder)
    for split in range(n):
        records.write(Trial("T9", "modern", "YH", split), {"rmse": os.urandom(40).hex()}, 0.0)
    return records, records.pack("T9", "modern")


@pytest.mark.parametrize("damage", ["truncated", "changed", "line"])
def test_a_damaged_pack_is_named_and_not_replaced(tmp_path, damage):
    records, path = packed_records(tmp_path)
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[: len(content) // 2]
    elif damage == "changed":
        content[len(content) // 2] ^= 0xFF
    else:
        lines = gzip.decompress(content).splitlines()
        content = gzip.compress(b"\n".join([*lines[:40], b"{", *lines[41:]]))
    path.write_bytes(content)
    with pytest.warns(DamagedRecordWarning, match="jsonl.gz is damaged.*restore it"):
        found = records.read("T9", "modern")
    assert 10 <= len(found) < 80
    records.write(TRIAL, {}, 0.0)
    with pytest.warns(DamagedRecordWarning):
        assert records.pack("T9", "modern") is None
    assert path.read_bytes() == content
    with pytest.warns(DamagedRecordWarning):
        assert TRIAL.identity in records.finished("T9", "modern")


def test_a_damaged_table_is_named(tmp_path):
    table = frame.ResultTable(tmp_path / "t.csv", ("dataset", "seed"), ["dataset", "seed"])
    table.path.write_text("dataset,seed\nTF")
    with pytest.raises(ValueError, match=r"t\.csv is damaged.*remove it"):
        table.pending([("TF", 1)])


def test_forests_name_the_processor_where_jax_has_an_accelerator(monkeypatch):
    gpu = SimpleNamespace(
        default_backend=lambda: "gpu", devices=lambda: [SimpleNamespace(device_kind="NVIDIA H200")]
    )
    monkeypatch.setitem(sys.modules, "jax", gpu)
    assert device_name("twin-networks") == "NVIDIA H200"
    assert "H200" not in device_name("forests")
