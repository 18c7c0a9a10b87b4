"""Conclusions on semi-supervised TNNR and co-training, results of an earlier paper."""

from __future__ import annotations

from typing import Any

import pandas as pd

from paper.comparison import geometric_mean
from paper.conclusions.forests import chosen_gain
from paper.conclusions.measured import (
    CLEAR,
    NEVER,
    Measured,
    MissingRecordsError,
    Outcome,
    Status,
    each,
    grade,
    join,
    on,
    percent,
    standard_scores,
)
from paper.semi_supervised_networks import PUBLISHED_SHARES, SHARES, STUDY
from paper.semi_supervised_table import CHOSEN, CO_TRAINING, PLAIN, SUPERVISED, method_errors
from twinned.datasets import PAPER_SEEDS


def errors_by_share(m: Measured) -> dict[str, pd.DataFrame]:
    """Return share ("10 %") → (dataset, split) × method: test errors."""
    errors: Any = method_errors({STUDY: m.records(STUDY)})
    count = errors.groupby(["share", "dataset"]).size()
    complete = {cell for cell, n in count.items() if n == len(PAPER_SEEDS)}
    shares = SHARES if m.variant == "modern" else PUBLISHED_SHARES
    lacking = [key for key in m.datasets if any((s, key) not in complete for s in shares)]
    if lacking:
        is_all = len(lacking) == len(m.datasets)
        raise MissingRecordsError(f"{STUDY} on {join(lacking)}", () if is_all else lacking)
    return {percent(share): errors.loc[share].loc[list(m.datasets)] for share in shares}


def mean_ratio(errors: pd.DataFrame, method: str, reference: str) -> pd.Series:
    """Return data set → mean error of a method over that of another one."""
    means = errors.groupby("dataset").mean()
    return means[method] / means[reference]


def twins_help_with_few_rows(m: Measured) -> Outcome:
    """Section 1: twins beside plain networks on the same few labelled rows; most are five sets.

    With several shares of labelled rows, the smallest must have no fewer such sets than the
    largest.
    """
    lower, parts = [], []
    for share, errors in errors_by_share(m).items():
        ratio = mean_ratio(errors, SUPERVISED, PLAIN)
        lower.append(ratio < 1)
        parts.append(
            f"with {share} of the rows labelled, twins have {geometric_mean(ratio):.2f} of the "
            f"error of plain networks, a lower one on {on(ratio < 1)}"
        )
    is_trend = lower[0].sum() >= lower[-1].sum()
    return Outcome(grade(lower[0], 5 if is_trend else NEVER, 4), "; ".join(parts))


def loops_help_twins(m: Measured) -> Outcome:
    """Section 2: the loop loss lowers the error of TNNR; seven of nine sets with each share."""
    lower, parts = [], []
    for share, errors in errors_by_share(m).items():
        gain = 1 - mean_ratio(errors, CHOSEN, SUPERVISED)
        clear = standard_scores(errors[SUPERVISED] - errors[CHOSEN]) > CLEAR
        lower.append(gain > 0)
        parts.append(
            f"with {share} of the rows labelled, loops of the chosen weight lower the error on "
            f"{on(gain > 0)}, by more than two standard errors on {on(clear)}: {each(gain)}"
        )
    return Outcome(grade(min(lower, key=sum), 7, 5), "; ".join(parts))


def twins_gain_more(m: Measured) -> Outcome:
    """Section 11: loops of TNNR against loops of forests; "significantly" is seven of nine sets."""
    mean, gains, details = _compare_with_forests(m, CHOSEN, SUPERVISED)
    status = grade(min((larger for _, larger in gains), key=sum), 7, 5)
    if any(gain <= mean for gain, _ in gains):
        status = Status.FAILS if all(gain <= mean for gain, _ in gains) else Status.IN_PART
    return Outcome(status, details)


def co_training_gains_more(m: Measured) -> Outcome:
    """Section 11: co-training of plain networks against loops of forests.

    "Slightly less", after "significantly less" than TNNR: forests gain less than co-training, and
    co-training less than semi-supervised TNNR.
    """
    mean, gains, details = _compare_with_forests(m, CO_TRAINING, PLAIN)
    _, of_twins, _ = _compare_with_forests(m, CHOSEN, SUPERVISED)
    more = [gain > mean for gain, _ in gains]
    slightly = [gain < twin for (gain, _), (twin, _) in zip(gains, of_twins, strict=True)]
    details += "; semi-supervised TNNR gains " + ", ".join(percent(gain) for gain, _ in of_twins)
    if all(more) and all(slightly):
        return Outcome(Status.HOLDS, details)
    return Outcome(Status.IN_PART if any(more) else Status.FAILS, details)


def _compare_with_forests(
    m: Measured, method: str, reference: str
) -> tuple[float, list[tuple[float, pd.Series]], str]:
    """The mean gain of forests; for each share of labels, that of a method, and where it is larger.

    The last is the text of both.
    """
    forests = chosen_gain(m)
    mean = 1 - geometric_mean(1 - forests)
    gains, parts = [], []
    for share, errors in errors_by_share(m).items():
        ratio = mean_ratio(errors, method, reference)
        gain, larger = 1 - geometric_mean(ratio), 1 - ratio > forests
        gains.append((gain, larger))
        parts.append(
            f"{percent(gain)} with {share} of the rows labelled, more than forests on {on(larger)}"
        )
    return mean, gains, f"the mean gain of forests is {percent(mean)}, here {'; '.join(parts)}"
