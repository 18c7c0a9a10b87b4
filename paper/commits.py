"""Records of our training that were made with different versions of the library.

The training of `modern` is that of the library's defaults, which change; those of `as_published`
and `as_written` are fixed by their settings. So errors of `modern` of two commits may differ for
another reason than the one that a table or a conclusion is about.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from paper.records import NOT_RECORDED, Record, origin

# The studies that train networks; but for semi-supervised networks, whose methods are compared
# within a record only.
TRAINED = (
    "plain-networks", "twin-networks", "paired-networks", "weighted-anchors", "decomposition",
)  # fmt: skip
# A commit → an earlier one whose networks are the same to the last bit: twins of all pairs, twins
# of nearest pairs and plain networks were trained by both on WSB and YH, and compared. The commits
# 12c6b3d7c106 and 4ea6d67f07aa of some records are not in the history: see 59c58d6 for their code.
# Nor is 74b108157912, of forests: its code is that of "Compare twinned forests with and without
# differences as features".
SAME_TRAINING = dict.fromkeys(("76aeb362b8b5", "12c6b3d7c106"), "32d43efc5553")


def mixed_datasets(records: dict[str, list[Record]], datasets: Sequence[str]) -> list[str]:
    """Return the data sets whose records of our training are of more than one commit.

    >>> def record(commit):
    ...     return {"config": {"dataset": "BC", "variant": "modern"}, "commit": commit}
    >>> mixed_datasets({"plain-networks": [record("b")], "twin-networks": [record("a")]}, ["BC"])
    ['BC']
    >>> mixed_datasets({"twin-networks": [record("a")]}, ["BC"])
    []
    """
    n_commits = _commits(records).groupby("dataset")["commit"].nunique()
    return [key for key in datasets if n_commits.get(key, 0) > 1]


def name_earlier_commits(records: dict[str, list[Record]], datasets: Sequence[str]) -> str | None:
    """Return which records of our training are of an earlier commit than the last; None: none is.

    >>> def record(dataset, date):
    ...     config = {"dataset": dataset, "variant": "modern"}
    ...     return {"config": config, "commit": f"c{date}", "date": f"2026-01-0{date}"}
    >>> own = {"twin-networks": [record("BC", 1), record("BH", 1), record("BH", 2)]}
    >>> name_earlier_commits(own, ["BC", "BH"])
    'of an earlier commit than c2: twin-networks on BC, BH (1 of 2)'
    """
    commits = _commits(records)
    commits = commits[commits["dataset"].isin(datasets)]
    if commits["commit"].nunique() < 2:
        return None
    last = commits.sort_values("date")["commit"].iloc[-1]
    parts = []
    for study, own in commits.groupby("study", sort=False):
        count = (own["commit"] != last).groupby(own["dataset"]).agg(["sum", "count"])
        sets = [
            str(key) if n == total else f"{key} ({n} of {total})"
            for key, n, total in count[count["sum"] > 0].itertuples()
        ]
        if sets:
            parts.append(f"{study} on {', '.join(sets)}")
    return f"of an earlier commit than {last}: {'; '.join(parts)}"


def _commits(records: dict[str, list[Record]]) -> pd.DataFrame:
    """study, dataset, commit, date of the records of our training; an unknown date is the first."""
    return pd.DataFrame(
        [
            (study, record["config"]["dataset"], _commit(record), _date(record))
            for study in TRAINED
            for record in records.get(study, [])
            if record["config"].get("variant") == "modern"
        ],
        columns=["study", "dataset", "commit", "date"],
    )


def _commit(record: Record) -> str:
    """The earliest commit whose training is that of the record."""
    commit = str(origin(record)["commit"])
    return SAME_TRAINING.get(commit, commit)


def _date(record: Record) -> str:
    """The time of a record, all in one time zone, as a text that sorts by time."""
    date = str(record.get("date", NOT_RECORDED))
    return "" if date == NOT_RECORDED else date
