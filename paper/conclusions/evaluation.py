"""Evaluation of a check on the data sets that have the records it needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from paper.commits import mixed_datasets, name_earlier_commits
from paper.conclusions.measured import (
    Measured,
    MissingRecordsError,
    NotStudiedError,
    Outcome,
    Status,
    join,
)
from paper.records import Record
from twinned.datasets import KEYS

MIN_DATASETS = 5  # a majority: on fewer, figures are reported without a result


def evaluate_check(check: Callable[[Measured], Outcome], measured: Measured) -> Outcome:
    """Return the outcome on the data sets that have all records, and what the others lack.

    Records of one data set that were made by different versions of our training are not compared.
    """
    missing: list[str] = []
    while True:
        try:
            outcome = check(measured)
            mixed = mixed_datasets(_used_records(measured), measured.datasets)
            if not mixed:
                return _complete_outcome(outcome, measured, missing)
            raise MissingRecordsError(
                f"records of one commit on {join(mixed)}",
                () if len(mixed) == len(measured.datasets) else mixed,
            )
        except NotStudiedError as error:
            return Outcome(Status.NOT_STUDIED, str(error), 0)
        except MissingRecordsError as error:
            missing.append(str(error))
            if not error.datasets:
                return Outcome(Status.MISSING, f"missing: {'; '.join(missing)}", 0)
            measured = measured.without(error.datasets)


def _complete_outcome(outcome: Outcome, measured: Measured, missing: list[str]) -> Outcome:
    """The outcome with the data sets that it is of, and what the others lack."""
    details, n = outcome.details, len(measured.datasets)
    if earlier := name_earlier_commits(_used_records(measured), measured.datasets):
        details += f"; {earlier}"
    if not missing:
        return replace(
            outcome, details=details, studies=frozenset(measured.studies | measured.files)
        )
    details = f"on {n} of {len(KEYS)} sets ({join(measured.datasets)}): {details}"
    if n < MIN_DATASETS:
        return Outcome(Status.MISSING, f"missing: {'; '.join(missing)}; {details}", n)
    return Outcome(outcome.status, f"{details}; missing: {'; '.join(missing)}", n)


def _used_records(measured: Measured) -> dict[str, list[Record]]:
    return {study: measured.read(study) for study in measured.studies}
