"""Run one of several parts of the trials of table 4 that have no record, on one core.

For machines with many cores, on which nothing but the libraries of the forests need be installed.
Each part writes records of its own; `--merge` adds them to those of the repository.

    python -m paper.table4_part --part 3 --of 16 --minutes 9 --output out/table4-3
    python -m paper.table4_part --merge out/table4-1 out/table4-2 out/table4-3
"""

import time
from pathlib import Path

from benchmarks.frame import parse_arguments
from paper.loop_relabelling import run_semi_supervised, semi_supervised_trials
from paper.records import RECORDS, Records
from paper.studies import Study, list_trials, run_study
from twinned.datasets import KEYS, PAPER_SEEDS

STUDY = Study(
    "semi-supervised-forests", ("as_published",), semi_supervised_trials, run_semi_supervised
)


def run_part(part: int, of: int, minutes: float, output: Path) -> None:
    """Run every `of`-th trial without a record, the first splits of all data sets first."""
    deadline = time.monotonic() + 60 * minutes
    trials = list_trials(STUDY, "as_published", KEYS, PAPER_SEEDS)
    pending = Records(RECORDS).pending(trials)
    records = Records(output)
    run_study(STUDY, pending[part % of :: of], records, deadline=deadline)
    records.pack(STUDY.key, "as_published")


def merge(folders: list[str]) -> None:
    """Add the records of folders to those of the repository."""
    records = Records(RECORDS)
    for folder in folders:
        for record in Records(folder).read(STUDY.key, "as_published"):
            records.add(record)
    records.pack(STUDY.key, "as_published")


if __name__ == "__main__":
    arguments = parse_arguments(
        __doc__, part=0, of=1, minutes=1e9, output=Path("out/table4"), merge=str
    )
    if arguments.merge:
        merge(arguments.merge)
    else:
        run_part(arguments.part, arguments.of, arguments.minutes, arguments.output)
