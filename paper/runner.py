"""Runs what is not finished yet, and keeps each result as it comes.

Runs that can share a program (all splits of a study) may be done `together`, as an accelerator
likes it; else they are done one by one. Whatever is killed, what was finished stays finished.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paper.records import Records, Run
from twinned.exceptions import MissingExtraError

Result = dict[str, Any]
Report = Callable[[int, int, Run], None]  # finished, in all, the last one


@dataclass(frozen=True)
class Study:
    """What is run, for one or more tables and figures.

    Parameters
    ----------
    key : str
        The name of its records: "twin-networks".
    flavours : tuple of str
        Which of "as_published", "as_written" and "modern" it comes in.
    expand : callable (flavour, dataset, split, quick) → list of Run
        Its runs on one split.
    execute : callable (list of Run) → iterator of (Run, result)
        Runs of one batch.
    of_data : bool, default=True
        Whether it has runs for each data set and split; otherwise it is expanded once, for the
        data set "none".
    program : callable (Run) → hashable, default=None
        Runs of which it says the same may be done together, as one program of an accelerator;
        None: each is done alone.
    """

    key: str
    flavours: tuple[str, ...]
    expand: Callable[[str, str, int, bool], list[Run]]
    execute: Callable[[list[Run]], Iterator[tuple[Run, Result]]]
    of_data: bool = True
    program: Callable[[Run], Hashable] | None = None


def expand(
    study: Study,
    flavour: str,
    datasets: Iterable[str],
    splits: Iterable[int],
    quick: bool = False,
) -> list[Run]:
    """All runs, data set by data set."""
    if flavour not in study.flavours:
        raise ValueError(
            f"{study.key} has no flavour {flavour!r}; it has {', '.join(study.flavours)}."
        )
    if not study.of_data:
        return study.expand(flavour, "none", 0, quick)
    splits = list(splits)
    return [
        run
        for dataset in datasets
        for split in splits
        for run in study.expand(flavour, dataset, split, quick)
    ]


def batches(study: Study, runs: Sequence[Run], together: bool) -> list[list[Run]]:
    """Runs that share a program, together where that is wanted; or each alone."""
    program = study.program
    if not together or program is None:
        return [[run] for run in runs]
    groups: dict[Hashable, list[Run]] = {}
    for run in runs:
        groups.setdefault((run.flavour, program(run)), []).append(run)
    return list(groups.values())


def perform(
    study: Study,
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
    finished = {flavour: records.done(study.key, flavour) for flavour in _flavours(runs)}
    todo = [run for run in runs if run.identity not in finished[run.flavour]]
    n_done = len(runs) - len(todo)
    work = batches(study, todo, together)
    source = _on_dask(study, work, scheduler) if scheduler else _here(study, work)
    for count, (run, result, seconds) in enumerate(source, 1):
        records.write(run, result, seconds)
        if report is not None:
            report(n_done + count, len(runs), run)
    return len(todo)


def _flavours(runs: Iterable[Run]) -> set[str]:
    return {run.flavour for run in runs}


def _here(study: Study, work: list[list[Run]]) -> Iterator[tuple[Run, Result, float]]:
    for batch in work:
        yield from _timed(study, batch)


def _timed(study: Study, batch: list[Run]) -> Iterator[tuple[Run, Result, float]]:
    """A batch's results as they come, each with the seconds since the last: their sum is right."""
    start = time.perf_counter()
    for run, result in study.execute(batch):
        now = time.perf_counter()
        yield run, result, now - start
        start = now


def _on_dask(
    study: Study, work: list[list[Run]], scheduler: str
) -> Iterator[tuple[Run, Result, float]]:
    try:
        from distributed import Client, as_completed
    except ImportError:
        raise MissingExtraError("--scheduler needs Dask: pip install 'twinned[dask]'.") from None
    with Client(scheduler) as client:
        # what a worker had when it died, Dask gives to another one
        futures = client.map(_by_key, [study.key] * len(work), work, pure=False)
        for future in as_completed(futures):
            yield from future.result()
            future.release()


def _by_key(key: str, batch: list[Run]) -> list[tuple[Run, Result, float]]:
    """On a worker: studies are known there by their key."""
    from paper import STUDIES

    return list(_timed(STUDIES[key], batch))
