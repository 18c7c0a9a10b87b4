"""Studies: lists of trials, and how they are executed.

Trials that can share a compiled program (all splits of a study) may be executed `together`, which
suits an accelerator; otherwise they are executed one by one, in one or several processes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from math import inf
from typing import Any

from joblib import Parallel, delayed

from benchmarks.frame import Report, run_pending
from paper.records import Records, Trial

Result = dict[str, Any]
TimedResult = tuple[Trial, Result, float]  # the float: seconds


@dataclass(frozen=True)
class Study:
    """Trials that serve one or more tables and figures.

    Parameters
    ----------
    key : str
        The name of its records: "twin-networks".
    variants : tuple of str
        Those of "as_published", "as_written" and "modern" that it has.
    trials : callable (variant, dataset, split) → list of Trial
        Its trials on one split.
    execute : callable (list of Trial) → iterator of (Trial, result)
        Executes the trials of one batch.
    uses_datasets : bool, default=True
        Whether it has trials for each data set and split; otherwise `trials` is called once, for
        the data set "none".
    together : bool, default=False
        Whether the trials of a data set may be executed as one program of an accelerator. Its
        records are written when it ends: an interruption costs those of one data set.
    """

    key: str
    variants: tuple[str, ...]
    trials: Callable[[str, str, int], list[Trial]]
    execute: Callable[[list[Trial]], Iterator[tuple[Trial, Result]]]
    uses_datasets: bool = True
    together: bool = False


def list_trials(
    study: Study, variant: str, datasets: Iterable[str], splits: Iterable[int]
) -> list[Trial]:
    """Return all trials of a study in one variant.

    The first trials of all data sets and splits come first, and those of the first splits before
    others, so that an interrupted run has the same splits of all data sets.
    """
    if variant not in study.variants:
        raise ValueError(
            f"{study.key} has no variant {variant!r}; it has {', '.join(study.variants)}."
        )
    if not study.uses_datasets:
        return study.trials(variant, "none", 0)
    datasets = list(datasets)
    of_splits = [study.trials(variant, dataset, split) for split in splits for dataset in datasets]
    return [trial for number in zip_longest(*of_splits) for trial in number if trial is not None]


def batches(study: Study, trials: Sequence[Trial], together: bool) -> list[list[Trial]]:
    """Return groups of trials that are executed at once."""
    if not (together and study.together):
        return [[trial] for trial in trials]
    groups: dict[tuple[str, str], list[Trial]] = {}
    for trial in trials:
        groups.setdefault((trial.variant, trial.dataset), []).append(trial)
    return list(groups.values())


def run_study(
    study: Study,
    trials: Sequence[Trial],
    records: Records,
    *,
    together: bool = False,
    n_jobs: int = 1,
    deadline: float = inf,
    report: Report | None = None,
) -> int:
    """Run the trials that have no record yet and return how many had none.

    `n_jobs` processes compute, and none starts a trial after the `deadline` of `time.monotonic()`.
    Records are written here.
    """

    def execute(pending: list[Trial]) -> Iterable[TimedResult]:
        work = batches(study, pending, together)
        in_time = (batch for batch in work if time.monotonic() < deadline)
        if n_jobs == 1:
            return chain.from_iterable(_execute_timed(study, batch) for batch in in_time)
        parallel = Parallel(n_jobs, return_as="generator_unordered", pre_dispatch=n_jobs)
        calls = (delayed(_execute_by_key)(study.key, batch) for batch in in_time)
        return chain.from_iterable(parallel(calls))

    return run_pending(trials, records, execute, report)


def _execute_timed(study: Study, batch: list[Trial]) -> Iterator[TimedResult]:
    """Yield the results of a batch, each with the seconds since the one before."""
    start = time.perf_counter()
    for trial, result in study.execute(batch):
        now = time.perf_counter()
        yield trial, result, now - start
        start = now


def _execute_by_key(key: str, batch: list[Trial]) -> list[TimedResult]:
    """Execute a batch in another process, which finds the study by its key."""
    from paper.experiments import STUDIES

    return list(_execute_timed(STUDIES[key], batch))
