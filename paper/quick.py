"""The quick run: one split of tables 1 to 3 and 5 as published, beside its records and the paper.

The networks and forests are those of the tables, in full; only their number is small. The records
of the same trials should be met to rounding, the printed means of 25 splits as far as one split
differs from the mean.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paper.comparison import published
from paper.experiments import EXPERIMENTS, STUDIES, current_records
from paper.records import Records, Trial
from paper.studies import list_trials, run_study

VARIANT, SPLIT = "as_published", 0
DATASETS = {"T1": "WSB", "T2": "WSB", "T3": "WSB", "T5": "BC"}  # small ones
HEADER = ["table", "method", "data set", "now", "recorded", "printed, mean of 25 splits"]


def quick_trials() -> dict[str, list[Trial]]:
    """Return study → the trials of its split."""
    trials: dict[str, list[Trial]] = {}
    for key, dataset in DATASETS.items():
        for study in EXPERIMENTS[key].studies:
            trials[study] = list_trials(STUDIES[study], VARIANT, [dataset], [SPLIT])
    return trials


def run_quick(records: Records, report: Callable[[int, int, Any], None]) -> None:
    """Run the trials of the split that have no record yet; `report` counts all of them."""
    work = quick_trials()
    total, before = sum(len(trials) for trials in work.values()), 0
    for study, trials in work.items():

        def report_all(finished: int, _: int, last: Any, before: int = before) -> None:
            report(before + finished, total, last)

        run_study(STUDIES[study], trials, records, report=report_all)
        before += len(trials)
        report(before, total, trials[-1])


def quick_table(now: Records, recorded: Records) -> list[list[str]]:
    """Return the rows of HEADER: the errors of the split now, recorded, and in print.

    The number of neighbors of table 3 is the best one of the split.
    """
    printed = published().set_index(["table", "method", "dataset"])["rmse"]
    rows = []
    for key, dataset in DATASETS.items():
        ours, theirs = (_errors(key, dataset, records) for records in (now, recorded))
        for method, error in ours.items():
            values = [error, theirs.get(method), printed.get((key, method, dataset))]
            texts = ["" if value is None else f"{value:.6g}" for value in values]
            rows.append([key, method, dataset, *texts])
    return rows


def _errors(key: str, dataset: str, records: Records) -> dict[str, float]:
    """Method → the error of the split."""
    experiment = EXPERIMENTS[key]
    found = {
        study: [
            record
            for record in current_records(records, study, VARIANT)
            if (record["config"]["dataset"], record["config"]["split"]) == (dataset, SPLIT)
        ]
        for study in experiment.studies
    }
    assert experiment.table is not None
    if not all(found.values()):
        return {}
    return dict(experiment.table(found).set_index("method")["rmse"])
