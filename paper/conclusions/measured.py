"""Mean errors from records, for the checks of the paper's conclusions.

A mean is returned only where all 25 splits have a record. Data sets that lack one raise
`MissingRecordsError`, which names them: a conclusion is then checked on the others, and reported as
not run yet where these are too few.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import isnan
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frame import RESULTS
from paper.records import LABELS, Record
from twinned.datasets import KEYS, PAPER_SEEDS

NEVER = len(KEYS) + 1  # more sets than there are, for statements that need more than a count
EQUAL = 0.03  # two errors that differ by no more than this share are called equal
CLEAR = 2.0  # a mean difference of more standard errors over the splits is called clear
Rows = Iterable[tuple[str, int, Any, float]]  # data set, split, size, value


class Status(StrEnum):
    """What the records show of a conclusion."""

    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold"
    MISSING = "not run yet"
    NOT_STUDIED = "not studied"


@dataclass(frozen=True)
class Outcome:
    """A status, the figures behind it, and on how many of the data sets it was checked.

    `other` is the status by another reading, and the name of that reading; `studies` are the keys
    of the records.
    """

    status: Status
    details: str
    n_datasets: int = len(KEYS)
    other: tuple[Status, str] | None = None
    studies: frozenset[str] = frozenset()


class MissingRecordsError(LookupError):
    """Records that a conclusion needs do not exist.

    Parameters
    ----------
    what : str
    datasets : sequence of str, default=()
        The data sets that lack them, where others have them; empty: none has them.
    """

    def __init__(self, what: str, datasets: Sequence[str] = ()) -> None:
        super().__init__(what)
        self.datasets = tuple(datasets)


class NotStudiedError(LookupError):
    """The training of a variant is not that of any study that a conclusion needs."""


@dataclass(frozen=True)
class Measured:
    """The records of one variant.

    Parameters
    ----------
    variant : str
    read : callable (study) → list of Record
        The records of the current trials of a study in this variant.
    datasets : tuple of str, default=KEYS
        The data sets that are looked at.
    not_studied : frozenset of str, default=frozenset()
        The studies that do not have this variant.
    """

    variant: str
    read: Callable[[str], list[Record]]
    datasets: tuple[str, ...] = KEYS
    not_studied: frozenset[str] = frozenset()
    studies: set[str] = field(default_factory=set)  # those that were read
    files: set[str] = field(default_factory=set)  # likewise, of benchmarks

    def without(self, datasets: Sequence[str]) -> Measured:
        """Return the same records without those of some data sets."""
        return replace(self, datasets=tuple(key for key in self.datasets if key not in datasets))

    def present(self, datasets: Sequence[str]) -> list[str]:
        """Return those of the data sets that are looked at."""
        return [key for key in datasets if key in self.datasets]

    def require_datasets(self, datasets: Sequence[str]) -> None:
        """Raise an error where a data set that the paper names is not looked at."""
        missing = [key for key in datasets if key not in self.datasets]
        if missing:
            raise MissingRecordsError(f"records of {join(missing)}, which the statement is about")

    def records(self, study: str) -> list[Record]:
        """Return the records of a study."""
        if study in self.not_studied:
            raise NotStudiedError(f"{study} has no such variant")
        found = self.read(study)
        if not found:
            raise MissingRecordsError(f"records of {study}")
        self.studies.add(study)
        return found

    def means(
        self,
        study: str,
        pick: Callable[[Record], dict[Any, float]],
        sizes: Sequence[Any] = (),
        what: str | None = None,
        keep_partial: bool = False,
    ) -> pd.DataFrame:
        """Return data set × size: the mean over splits of what `pick` takes from each record.

        Sizes that are not there for all splits of all data sets are dropped, or NaN with
        `keep_partial`; those of `sizes` are required. `what` names the records in the error.
        """
        rows = (
            (record["config"]["dataset"], record["config"]["split"], size, value)
            for record in self.records(study)
            for size, value in pick(record).items()
        )
        means = _complete_means(rows, len(PAPER_SEEDS)).reindex(list(self.datasets))
        means = means.reindex(columns=sorted({*means.columns, *sizes}))
        lacking = means[list(sizes)].isna().any(axis=1) if sizes else means.isna().all(axis=1)
        if lacking.any():
            absent = means.loc[lacking, list(sizes)].isna().any()
            found = absent.index[absent]
            numbers = ", ".join(str(s) if isinstance(s, str) else f"{s:g}" for s in found)
            raise MissingRecordsError(
                f"{what or study} {numbers} on {join(names(lacking))}".replace("  ", " "),
                () if lacking.all() else names(lacking),
            )
        return means if keep_partial else means.dropna(axis=1)

    def by_split(self, study: str, pick: Callable[[Record], dict[Any, float]]) -> pd.DataFrame:
        """Return (dataset, split) × size: what `pick` takes from the records."""
        rows = [
            (record["config"]["dataset"], record["config"]["split"], size, value)
            for record in self.records(study)
            if record["config"]["dataset"] in self.datasets
            for size, value in pick(record).items()
        ]
        frame = pd.DataFrame(rows, columns=["dataset", "split", "size", "value"])
        return frame.pivot_table(index=["dataset", "split"], columns="size", values="value")

    @cached_property
    def plain(self) -> pd.DataFrame:
        """Errors of ensembles of plain networks, by size."""
        return self._twins_or_plain("plain-networks", "members")

    @cached_property
    def twins(self) -> pd.DataFrame:
        """Errors of ensembles of twins with all anchors, by size."""
        return self._twins_or_plain("twin-networks", "members")

    @cached_property
    def single_anchor_twins(self) -> pd.DataFrame:
        """Errors of ensembles of twins with one anchor each, by size."""
        return self._twins_or_plain("twin-networks", "members_one_anchor")

    @cached_property
    def anchors(self) -> pd.DataFrame:
        """Errors of one twin, by the number of its random anchors."""
        return self._twins_or_plain("twin-networks", "anchors")

    @cached_property
    def one_anchor(self) -> pd.Series:
        """Errors of one twin with one anchor, which is drawn for each row."""
        return self.single_anchor_twins[1]

    @cached_property
    def knn(self) -> pd.DataFrame:
        """Errors of k-NN, by k."""
        return self.means("neighbors", lambda r: _by_number(r["result"]))

    def _twins_or_plain(self, study: str, name: str) -> pd.DataFrame:
        return self.means(study, lambda r: _by_number(r["result"][name]))

    def paired(self, kind: str, rows: str = "test", sizes: Sequence[int] = ()) -> pd.DataFrame:
        """Return errors of twins trained on nearest or random pairs, by the number of partners.

        The sizes are required.
        """

        def pick(record: Record) -> dict[int, float]:
            settings = record["config"]["settings"]
            if settings["pairs"] != kind:
                return {}
            return {settings["partners"]: record["result"][rows]}

        what = f"twins of {kind} pairs{', k =' * bool(sizes)}"
        return self.means("paired-networks", pick, sizes, what)

    @cached_property
    def nearest(self) -> pd.DataFrame:
        """Errors of the twins of `twins`, by the number of their nearest anchors.

        NaN where a data set has fewer training rows.
        """
        return self._nearest("test")

    @cached_property
    def nearest_validation(self) -> pd.DataFrame:
        """The same for validation rows."""
        return self._nearest("validation")

    def _nearest(self, rows: str) -> pd.DataFrame:
        return self.means(
            "twin-networks", lambda r: _by_number(r["result"]["nearest"][rows]), keep_partial=True
        )

    @cached_property
    def all_pairs(self) -> pd.Series:
        """Errors of twins of all pairs with all anchors, with the members of `paired`.

        Our ensembles vary the settings of their members, so the members must be the same ones.
        """
        if self.variant != "modern":
            return self.twins[1]
        return self._all_pairs_records(lambda r: {1: r["result"]["test"]})[1]

    def nearest_of_all_pairs(self, rows: str = "test") -> pd.DataFrame:
        """Return errors of the twins of `all_pairs` with the nearest anchors, by their number."""
        if self.variant != "modern":
            return self.nearest if rows == "test" else self.nearest_validation
        return self._all_pairs_records(lambda r: _by_number(r["result"]["nearest"][rows]))

    def _all_pairs_records(self, pick: Callable[[Record], dict[Any, float]]) -> pd.DataFrame:
        def pick_all(record: Record) -> dict[Any, float]:
            return pick(record) if record["config"]["settings"]["pairs"] == "all" else {}

        what = "twins of all pairs with the members of those of nearest pairs"
        return self.means("paired-networks", pick_all, what=what, keep_partial=True)

    def best_number(self, test: pd.DataFrame, validation: pd.DataFrame) -> pd.Series:
        """Return data set → number of neighbors: by test error as the paper, `modern` soundly."""
        return (validation if self.variant == "modern" else test).idxmin(axis=1)

    def benchmark(self, name: str, variant: str = "modern") -> pd.DataFrame:
        """Return the table of a benchmark, whose training is that of one variant."""
        if self.variant != variant:
            raise NotStudiedError(f"`benchmarks/results/{name}.csv` is of {LABELS[variant]} only")
        self.files.add(f"`benchmarks/results/{name}.csv`")
        return pd.read_csv(RESULTS / f"{name}.csv")


def _by_number(values: dict[str, float]) -> dict[int, float]:
    return {int(size): value for size, value in values.items()}


def _complete_means(rows: Rows, n_splits: int) -> pd.DataFrame:
    """Data set × size: means over splits, where there are all splits; NaN elsewhere."""
    # without pandas, which takes most of the time of an evaluation for groups of 25
    cells: dict[Any, dict[str, list[float]]] = {}
    for dataset, _, size, value in rows:
        if not isnan(value):
            cells.setdefault(size, {}).setdefault(dataset, []).append(value)
    return pd.DataFrame(
        {
            size: {key: fmean(own) for key, own in column.items() if len(own) == n_splits}
            for size, column in cells.items()
        }
    )


def grade(condition: pd.Series, needed: int, at_least: int) -> Status:
    """Return the status of a statement that is true on some data sets.

    "holds" where it is on `needed` of nine or more, "holds in part" from `at_least` on; the same
    shares of fewer data sets.

    >>> str(grade(pd.Series([True] * 6 + [False] * 3), 7, 5))
    'holds in part'
    >>> str(grade(pd.Series([True] * 5 + [False]), 7, 5))
    'holds'
    """
    n, nine = len(KEYS) * int(condition.sum()), len(condition)
    if n >= needed * nine:
        return Status.HOLDS
    return Status.IN_PART if n >= at_least * nine else Status.FAILS


def standard_scores(differences: pd.Series) -> pd.Series:
    """Return data set → the mean of differences of splits, in standard errors of the mean.

    `differences` is indexed by dataset and split.
    """
    own = differences.groupby("dataset")
    smallest = np.finfo(float).tiny  # where all splits are equal
    scores: pd.Series = own.mean() / (own.std(ddof=0) / np.sqrt(own.count())).clip(lower=smallest)
    return scores


def names(condition: Any) -> list[str]:
    """Return the data sets where a Series is true."""
    return [str(key) for key in condition.index[condition]]


def join(keys: Sequence[str]) -> str:
    """Return a list of data sets as a text.

    >>> join(["BC", "BH", "WN"]), join(["BC"]), join([])
    ('BC, BH and WN', 'BC', 'none')
    """
    if len(keys) < 2:
        return "".join(keys) or "none"
    return f"{', '.join(keys[:-1])} and {keys[-1]}"


def on(condition: Any) -> str:
    """Return on how many data sets a Series is true, and on which.

    >>> on(pd.Series({"BC": True, "BH": False}))
    '1 of 2 sets (BC)'
    """
    found = names(condition)
    if len(found) == len(condition):
        return f"all {len(found)} sets"
    return f"{len(found)} of {len(condition)} sets" + f" ({join(found)})" * bool(found)


def percent(share: float) -> str:
    """Return a share as a percentage; with decimals where it is small.

    >>> percent(0.123), percent(-0.0012), percent(-0.00004)
    ('12 %', '−0.12 %', '0.00 %')
    """
    size = abs(share)
    digits = 0 if size == 0 or size >= 0.0195 else 1 if size >= 0.0095 else 2
    return f"{100 * share:z.{digits}f} %".replace("-", "−")


def spread(shares: pd.Series) -> str:
    """Return the smallest and the largest of some shares, with their data sets.

    >>> spread(pd.Series({"BC": 0.1, "BH": 0.3}))
    '10 % (BC) to 30 % (BH)'
    """
    low, high = str(shares.idxmin()), str(shares.idxmax())
    return f"{percent(shares[low])} ({low}) to {percent(shares[high])} ({high})"


def each(shares: pd.Series) -> str:
    """Return all shares, the largest first.

    >>> each(pd.Series({"BC": 0.1, "BH": 0.3}))
    'BH 30 %, BC 10 %'
    """
    ordered = shares.sort_values(ascending=False)
    return ", ".join(f"{key} {percent(value)}" for key, value in ordered.items())
