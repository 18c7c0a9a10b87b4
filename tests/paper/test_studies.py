"""Interrupted studies continue where they stopped, here and on a Dask cluster."""

import random
import time
from dataclasses import replace

import pytest

from paper.experiments import STUDIES
from paper.loop_relabelling import searched_on_splits
from paper.records import ON_PROCESSOR, Records
from paper.studies import batches, list_trials, run_study
from tests.paper import processes
from tests.paper.processes import all_trials, toy_study


def test_finished_trials_are_not_repeated(tmp_path):
    study, records = toy_study(tmp_path), Records(tmp_path)
    trials, reports = all_trials(study), []
    assert run_study(study, trials[:20], records) == 20
    assert run_study(study, trials, records, report=lambda *call: reports.append(call[:2])) == 130
    assert reports[0] == (21, 150)
    assert reports[-1] == (150, 150)
    assert run_study(study, trials, records) == 0
    assert len((tmp_path / "started.txt").read_text().splitlines()) == 150


def n_started(folder):
    return (folder / "started.txt").read_text().count("\n")


@pytest.mark.slow
def test_killed_at_twenty_random_moments_the_result_is_the_same(tmp_path):
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    run_study(toy_study(quiet), all_trials(toy_study(quiet)), Records(quiet))

    killed = tmp_path / "killed"
    killed.mkdir()
    study, rng, n_kills = toy_study(killed), random.Random(0), 0
    trials = all_trials(study)
    (killed / "started.txt").touch()
    for _ in range(20):
        wanted = n_started(killed) + rng.randint(1, 4)
        with processes.start("run_toy_study", killed) as process:
            deadline = time.monotonic() + 60
            while n_started(killed) < wanted and time.monotonic() < deadline:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.006))  # anywhere in a trial, or while a record is written
            process.kill()
        n_kills += process.returncode < 0
    assert n_kills == 20
    n_pending = run_study(study, trials, Records(killed))
    assert 0 < n_pending < len(trials)  # several were finished between the kills, but not all

    expected, found = (
        [processes.reproducible_part(record) for record in Records(folder).read("toy", "modern")]
        for folder in (quiet, killed)
    )
    assert found == expected
    started = [line.split()[1] for line in (killed / "started.txt").read_text().splitlines()]
    assert set(started) == {"False"}  # no finished trial was started again
    assert not list(killed.rglob("*.json.*"))[20:]  # a kill leaves one temporary file, at most


def test_batches_hold_all_trials_of_one_key(tmp_path):
    trials = all_trials(toy_study(tmp_path))
    together = batches(toy_study(tmp_path), trials, together=True)
    assert len(together) == 3
    assert all(len({trial.split for trial in batch}) == 25 for batch in together)
    assert len(batches(toy_study(tmp_path), trials, together=False)) == len(trials)
    assert sorted(trial.identity for batch in together for trial in batch) == sorted(
        trial.identity for trial in trials
    )


@pytest.mark.parametrize("key", [key for key, study in STUDIES.items() if study.together])
def test_an_interruption_costs_one_data_set(key):
    for variant in STUDIES[key].variants:
        trials = list_trials(STUDIES[key], variant, ["TF", "YH"], range(3))
        together = batches(STUDIES[key], trials, together=True)
        assert [{trial.dataset for trial in batch} for batch in together] == [{"TF"}, {"YH"}]
        assert sum(map(len, together)) == len(trials)


def test_several_processes_give_the_same_records_until_the_deadline(tmp_path):
    study = STUDIES["forests"]
    trials = [
        replace(trial, settings=trial.settings | {"trees": 4})
        for trial in list_trials(study, "modern", ["TF"], range(2))
    ]
    run_study(study, trials, Records(tmp_path / "one"))
    late = Records(tmp_path / "late")
    assert run_study(study, trials, late, n_jobs=2, deadline=time.monotonic()) == len(trials)
    assert late.pending(trials) == trials
    run_study(study, trials, late, n_jobs=2)
    one, two = (
        [processes.reproducible_part(record) for record in records.read("forests", "modern")]
        for records in (Records(tmp_path / "one"), late)
    )
    assert one == two


def test_the_first_trials_of_all_splits_come_first():
    study = STUDIES["semi-supervised-forests"]
    trials = list_trials(study, "as_written", ["BC", "WN"], [1, 2])
    places = [(len(t.settings["loop_weights"]), t.dataset, t.split) for t in trials]
    few = [(5, key, split) for split in (1, 2) for key in ("BC", "WN")]
    assert places == few + [(6, *own[1:]) for own in few]
    for trial in list_trials(study, "as_published", ["BC", "TF"], [1, 2]):
        assert trial.settings["forest"] == searched_on_splits()[trial.dataset, trial.split]


def test_an_unknown_variant_is_an_error(tmp_path):
    with pytest.raises(ValueError, match="toy has no variant 'as_written'; it has modern"):
        list_trials(toy_study(tmp_path), "as_written", ["A"], [0])


def test_studies_of_the_processor_train_no_batches_of_networks():
    assert not [key for key in ON_PROCESSOR if STUDIES[key].together]
