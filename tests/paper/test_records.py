"""A record is there whole, or not at all."""

import json

import pytest

from paper.records import Records, Run, lasting, write_whole

RUN = Run("T9", "modern", "YH", 3, {"trees": 5, "sizes": [1, 2]})


def test_a_record_comes_back(tmp_path):
    records = Records(tmp_path)
    records.write(RUN, {"rmse": 0.1 + 0.2}, seconds=1.5)
    (record,) = records.read("T9", "modern")
    assert record["config"]["settings"] == {"trees": 5, "sizes": [1, 2]}
    assert record["result"]["rmse"] == 0.1 + 0.2  # to the last bit
    assert record["identity"] == RUN.identity
    assert set(record["versions"]) >= {"twinned", "python", "numpy"}
    assert records.done("T9", "modern") == {RUN.identity}
    assert records.done("T9", "as_published") == set()


@pytest.mark.parametrize(
    "other",
    [
        Run("T8", "modern", "YH", 3, RUN.settings),
        Run("T9", "as_written", "YH", 3, RUN.settings),
        Run("T9", "modern", "BC", 3, RUN.settings),
        Run("T9", "modern", "YH", 4, RUN.settings),
        Run("T9", "modern", "YH", 3, {"trees": 6, "sizes": [1, 2]}),
    ],
)
def test_a_changed_config_is_a_new_run(other):
    assert other.identity != RUN.identity


def test_the_order_of_settings_does_not_matter():
    turned = Run("T9", "modern", "YH", 3, {"sizes": [1, 2], "trees": 5})
    assert turned.identity == RUN.identity


def test_packing_keeps_everything_and_is_the_same_bytes_again(tmp_path):
    records = Records(tmp_path)
    runs = [Run("T9", "modern", key, split) for key in ("YH", "BC") for split in range(3)]
    for run in runs:
        records.write(run, {"rmse": run.split}, 0.0)
    before = records.read("T9", "modern")
    place = records.pack("T9", "modern")
    assert records.read("T9", "modern") == before
    assert [(r["config"]["dataset"], r["config"]["split"]) for r in before] == [
        (key, split) for key in ("BC", "YH") for split in range(3)
    ]
    assert not list((tmp_path / "running").rglob("*.json"))
    content = place.read_bytes()
    records.pack("T9", "modern")
    assert place.read_bytes() == content
    # what comes after the packing is found beside it
    records.write(Run("T9", "modern", "TF", 0), {"rmse": 1}, 0.0)
    assert len(records.read("T9", "modern")) == 7


def test_packing_leaves_what_comes_meanwhile(tmp_path, monkeypatch):
    records, late = Records(tmp_path), Run("T9", "modern", "TF", 0)
    records.write(RUN, {"rmse": 1.0}, 0.0)
    whole = write_whole

    def write_and_be_joined(place, content):
        whole(place, content)
        if place.name.endswith(".gz"):
            Records(tmp_path).write(late, {"rmse": 2.0}, 0.0)

    monkeypatch.setattr("paper.records.write_whole", write_and_be_joined)
    records.pack("T9", "modern")
    assert records.done("T9", "modern") == {RUN.identity, late.identity}


def test_nothing_is_packed_where_nothing_is(tmp_path):
    assert Records(tmp_path).pack("T9", "modern") is None


def test_a_writer_that_dies_leaves_no_half_file(tmp_path, monkeypatch):
    def dies(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("paper.records.os.fsync", dies)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "record.json", b"{}")
    assert not (tmp_path / "record.json").exists()


def test_what_passes_is_left_out_of_comparisons(tmp_path):
    records = Records(tmp_path)
    first = json.loads(records.write(RUN, {"rmse": 1.0}, 1.0).read_bytes())
    second = json.loads(records.write(RUN, {"rmse": 1.0}, 2.0).read_bytes())
    assert first != second
    assert lasting(first) == lasting(second)
