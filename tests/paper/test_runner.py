"""What is killed goes on where it was, here and on a Dask cluster."""

import os
import random
import signal
import time

import numpy as np
import pytest

from paper import STUDIES
from paper.records import Records, Run, lasting
from paper.runner import Study, batches, expand, perform


def toy(folder):
    """Runs that take some milliseconds, and note when they begin and whether they were done."""

    def expand_toy(flavour, dataset, split, quick):
        return [Run("toy", flavour, dataset, split, {"power": power}) for power in (1, 2)]

    def execute(batch):
        for run in batch:
            again = list(folder.rglob(f"{run.identity}.json")) != []
            with (folder / "begun.txt").open("a") as file:
                file.write(f"{run.identity} {again}\n")
            rng = np.random.RandomState(run.split)
            time.sleep(0.002)
            yield run, {"value": float(np.sum(rng.normal(size=50) ** run.settings["power"]))}

    return Study("toy", ("modern",), expand_toy, execute, program=lambda run: run.dataset)


def toy_runs(study):
    return expand(study, "modern", ["A", "B", "C"], range(25))


def test_finished_runs_are_not_repeated(tmp_path):
    study, records = toy(tmp_path), Records(tmp_path)
    runs, told = toy_runs(study), []
    assert perform(study, runs[:20], records) == 20
    assert perform(study, runs, records, report=lambda *what: told.append(what[:2])) == 130
    assert told[0] == (21, 150)
    assert told[-1] == (150, 150)
    assert perform(study, runs, records) == 0
    assert len((tmp_path / "begun.txt").read_text().splitlines()) == 150


def n_begun(folder):
    return (folder / "begun.txt").read_text().count("\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked on this system")
@pytest.mark.filterwarnings("ignore")  # other tests of this process may have started threads
def test_killed_at_twenty_random_moments_it_ends_the_same(tmp_path):
    quiet = tmp_path / "quiet"
    quiet.mkdir()
    perform(toy(quiet), toy_runs(toy(quiet)), Records(quiet))

    killed = tmp_path / "killed"
    killed.mkdir()
    study, dice, n_kills = toy(killed), random.Random(0), 0
    runs = toy_runs(study)
    (killed / "begun.txt").touch()
    for _ in range(20):
        wanted = n_begun(killed) + dice.randint(1, 4)
        child = os.fork()
        if child == 0:
            perform(study, runs, Records(killed))
            os._exit(0)
        patience = time.monotonic() + 20
        while n_begun(killed) < wanted and time.monotonic() < patience:
            time.sleep(0.001)
        time.sleep(dice.uniform(0, 0.006))  # anywhere in a run, or while it is written
        os.kill(child, signal.SIGKILL)
        n_kills += os.WIFSIGNALED(os.waitpid(child, 0)[1])
    assert n_kills == 20
    n_left = perform(study, runs, Records(killed))
    assert 0 < n_left < len(runs)  # some were finished between the kills, some were not

    expected, found = (
        [lasting(record) for record in Records(folder).read("toy", "modern")]
        for folder in (quiet, killed)
    )
    assert found == expected
    begun = [line.split()[1] for line in (killed / "begun.txt").read_text().splitlines()]
    assert set(begun) == {"False"}  # nothing that was done was begun again
    assert not list(killed.rglob("*.json.*"))[20:]  # a kill leaves one file beside, at most


def test_batches_hold_all_runs_of_one_program(tmp_path):
    runs = toy_runs(toy(tmp_path))
    together = batches(toy(tmp_path), runs, together=True)
    assert len(together) == 3
    assert all(len({run.split for run in batch}) == 25 for batch in together)
    assert len(batches(toy(tmp_path), runs, together=False)) == len(runs)
    assert sorted(run.identity for batch in together for run in batch) == sorted(
        run.identity for run in runs
    )


def test_a_flavour_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ValueError, match="toy has no flavour 'as_written'; it has modern"):
        expand(toy(tmp_path), "as_written", ["A"], [0])


def test_a_cluster_that_loses_a_worker_ends_the_same(tmp_path):
    distributed = pytest.importorskip(
        "distributed", reason="Dask is not installed: it is in the extra `dask`"
    )
    study = STUDIES["forests"]
    runs = expand(study, "modern", ["TF"], range(4), quick=True)
    perform(study, runs, Records(tmp_path / "here"))

    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        killed = []

        def report(done, total, last):
            if not killed:  # in the midst: the first run is back, others are under way
                worker = next(iter(cluster.workers.values()))
                os.kill(worker.process.pid, signal.SIGKILL)
                killed.append(worker)

        address, records = cluster.scheduler_address, Records(tmp_path / "there")
        done = perform(study, runs, records, scheduler=address, report=report)
        assert killed
        assert done == 4
    here, there = (
        [lasting(record) for record in Records(tmp_path / name).read("forests", "modern")]
        for name in ("here", "there")
    )
    assert here == there
