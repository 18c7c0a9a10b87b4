"""Records of finished trials: identity, packing, atomic writing."""

import pytest

from paper import records as records_module
from paper.records import Records, Trial, reproducible_part

TRIAL = Trial("T9", "modern", "YH", 3, {"trees": 5, "sizes": [1, 2]})


def test_a_record_is_read_as_written(tmp_path):
    records = Records(tmp_path)
    records.write(TRIAL, {"rmse": 0.1 + 0.2}, seconds=1.5)
    (record,) = records.read("T9", "modern")
    assert record["config"]["settings"] == {"trees": 5, "sizes": [1, 2]}
    assert record["result"]["rmse"] == 0.1 + 0.2  # to the last bit
    assert record["identity"] == TRIAL.identity
    assert set(record["versions"]) >= {"twinned", "python", "numpy"}
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
    assert reproducible_part(first[0]) == reproducible_part(second[0])
