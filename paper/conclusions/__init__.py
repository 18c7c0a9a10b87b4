"""The paper's conclusions, each with a result that is computed from records.

A conclusion quotes the paper and has a check, which is evaluated for each variant, on the data sets
that have the records it needs. Where these are few, it gives "not run yet" and what is missing; it
is filled in once the records exist.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path

from paper.conclusions.evaluation import evaluate_check
from paper.conclusions.measured import Measured, Outcome
from paper.experiments import STUDIES, current_records
from paper.records import Record, Records

VARIANTS = ("as_published", "modern", "as_written")
# Networks as written store the same numbers as those as published.
SAME_RECORDS = {("as_written", "storage"): "as_published"}


@dataclass(frozen=True)
class Conclusion:
    """A statement of the paper.

    Parameters
    ----------
    source : str
        Section, table or figure of the paper.
    quote : str
        The paper's own words; "…" where words are omitted, brackets where they are added.
    check : callable (Measured) → Outcome
    note : str, default=""
        What a reader must know about the statement itself.
    """

    source: str
    quote: str
    check: Callable[[Measured], Outcome]
    note: str = ""

    def evaluate(self, measured: Measured) -> Outcome:
        """Return the outcome for one variant."""
        return evaluate_check(self.check, measured)


def read_conclusions() -> Iterator[Conclusion]:
    """Yield the rows of `paper/conclusions.csv`, in the order of the paper."""
    with Path(__file__).parents[1].joinpath("conclusions.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            module, name = row["check"].split(".")
            check = getattr(import_module(f"{__name__}.{module}"), name)
            yield Conclusion(row["source"], row["quote"], check, row["note"])


CONCLUSIONS = tuple(read_conclusions())


def evaluate(records: Records) -> dict[Conclusion, dict[str, Outcome]]:
    """Return the outcome of each conclusion in each variant."""

    @cache
    def read(variant: str, study: str) -> list[Record]:
        if (variant, study) in SAME_RECORDS:
            variant = SAME_RECORDS[variant, study]
        if variant not in STUDIES[study].variants:
            return []
        return current_records(records, study, variant)

    measured = {
        variant: Measured(
            variant,
            partial(read, variant),
            not_studied=frozenset(
                study
                for study in STUDIES
                if variant not in STUDIES[study].variants and (variant, study) not in SAME_RECORDS
            ),
        )
        for variant in VARIANTS
    }
    return {
        conclusion: {
            variant: conclusion.evaluate(replace(own, studies=set(), files=set()))
            for variant, own in measured.items()
        }
        for conclusion in CONCLUSIONS
    }
