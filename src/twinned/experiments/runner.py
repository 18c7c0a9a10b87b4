"""Runs what is not finished yet, and keeps each result as it comes.

Runs that can share a program (all splits of one setting) may be done `together`, as an accelerator
likes it; else they are done one by one. Whatever is killed, what was finished stays finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from twinned.experiments.records import Records, Run

Result = dict[str, Any]
Report = Callable[[int, int, Run], None]  # finished, in all, the last one


@dataclass(frozen=True)
class Experiment:
    """A table, a figure or a study of the paper.

    Parameters
    ----------
    key : str
        As on the command line: "T2", "A".
    kind : {"table", "figure", "study"}
    title : str
        What it shows, in a few words.
    flavours : tuple of str
        Which of "as_published", "as_written" and "modern" it comes in.
    expand : callable (flavour, dataset, split, quick) → list of Run
        Its runs on one split.
    execute : callable (list of Run) → iterator of (Run, result)
        Runs of one batch.
    of_data : bool, default=True
        Whether it has runs for each data set and split; otherwise it is expanded once, for the
        data set "none".
    """

    key: str
    kind: str
    title: str
    flavours: tuple[str, ...]
    expand: Callable[[str, str, int, bool], list[Run]]
    execute: Callable[[list[Run]], Iterator[tuple[Run, Result]]]
    of_data: bool = True


def expand(
    experiment: Experiment,
    flavour: str,
    datasets: Iterable[str],
    splits: Iterable[int],
    quick: bool = False,
) -> list[Run]:
    """All runs, data set by data set."""
    if flavour not in experiment.flavours:
        raise ValueError(
            f"{experiment.key} has no flavour {flavour!r}; it has {', '.join(experiment.flavours)}."
        )
    if not experiment.of_data:
        return experiment.expand(flavour, "none", 0, quick)
    splits = list(splits)
    return [
        run
        for dataset in datasets
        for split in splits
        for run in experiment.expand(flavour, dataset, split, quick)
    ]


def batches(runs: Sequence[Run], together: bool) -> list[list[Run]]:
    """Runs that differ in their split alone, together; or each alone.

    >>> runs = [Run("T1", "modern", "YH", 0), Run("T1", "modern", "YH", 1)]
    >>> len(batches(runs, together=True)), len(batches(runs, together=False))
    (1, 2)
    """
    if not together:
        return [[run] for run in runs]
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        kind = (run.experiment, run.flavour, run.dataset, str(sorted(run.settings.items())))
        groups.setdefault(kind, []).append(run)
    return list(groups.values())


def perform(
    experiment: Experiment,
    runs: Sequence[Run],
    records: Records,
    *,
    together: bool = False,
    scheduler: str | None = None,
    report: Report | None = None,
) -> int:
    """Do the runs that have no record yet; returns how many were done.

    `scheduler` is the address of a Dask scheduler. Workers compute; records are written here.
    """
    runs = list(runs)
    finished = {flavour: records.done(experiment.key, flavour) for flavour in _flavours(runs)}
    todo = [run for run in runs if run.identity not in finished[run.flavour]]
    n_done = len(runs) - len(todo)
    work = batches(todo, together)
    source = _on_dask(experiment, work, scheduler) if scheduler else _here(experiment, work)
    for count, (run, result, seconds) in enumerate(source, 1):
        records.write(run, result, seconds)
        if report is not None:
            report(n_done + count, len(runs), run)
    return len(todo)


def _flavours(runs: Iterable[Run]) -> set[str]:
    return {run.flavour for run in runs}


def _here(experiment: Experiment, work: list[list[Run]]) -> Iterator[tuple[Run, Result, float]]:
    for batch in work:
        yield from _timed(experiment, batch)


def _timed(experiment: Experiment, batch: list[Run]) -> list[tuple[Run, Result, float]]:
    """A batch's results; each run's seconds are its share."""
    start = time.perf_counter()
    results = list(experiment.execute(batch))
    share = (time.perf_counter() - start) / max(1, len(results))
    return [(run, result, share) for run, result in results]


def _on_dask(
    experiment: Experiment, work: list[list[Run]], scheduler: str
) -> Iterator[tuple[Run, Result, float]]:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise ImportError("--scheduler needs Dask: pip install 'twinned[dask]'.") from None
    with Client(scheduler) as client:
        # what a worker had when it died, Dask gives to another one
        futures = client.map(_by_key, [experiment.key] * len(work), work, pure=False)
        for future in as_completed(futures):
            yield from future.result()
            future.release()


def _by_key(key: str, batch: list[Run]) -> list[tuple[Run, Result, float]]:
    """On a worker: experiments are known there by their key."""
    from twinned.experiments import EXPERIMENTS

    return _timed(EXPERIMENTS[key], batch)
