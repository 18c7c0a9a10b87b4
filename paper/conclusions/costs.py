"""Conclusions on storage, time, weights of anchors, and the appendix on bias and variance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from paper.comparison import geometric_mean
from paper.conclusions.measured import (
    CLEAR,
    NEVER,
    Measured,
    MissingRecordsError,
    NotStudiedError,
    Outcome,
    Status,
    each,
    grade,
    names,
    on,
    percent,
    spread,
    standard_scores,
)
from paper.conclusions.neighbors import best_nearest_pairs
from paper.decomposition import expected_error
from paper.published import SCHEDULES
from paper.records import Record
from twinned.datasets import KEYS, PAPER_SEEDS


def twins_need_less_storage(m: Measured) -> Outcome:
    """Figure F: E networks against one twin with E anchors."""
    (record,) = m.records("storage")
    sizes, numbers = record["config"]["settings"]["sizes"], record["result"]["numbers"]
    ratio: Any = pd.DataFrame(
        {int(f): {s: twin / plain for s, (plain, twin) in zip(sizes, own, strict=True)}
         for f, own in numbers.items()}
    )  # fmt: skip
    first = {f: min(s for s in sizes if ratio.loc[s, f] < 1) for f in ratio}
    files = [twin / plain for plain, twin in record["result"]["bytes"]]
    measured = record["config"]["settings"]["measured"]
    half = {f: min(s for s in sizes if ratio.loc[s, f] < 0.5) for f in ratio}
    details = (
        "a twin with anchors stores fewer numbers than networks from "
        + ", ".join(f"{s} on ({f} feature{'s' * (f > 1)})" for f, s in first.items())
        + ", and less than half from "
        + ", ".join(str(s) for s in half.values())
        + f" on; with 32 members {percent(ratio.loc[32].min())} to {percent(ratio.loc[32].max())}; "
        "saved files: "
        + ", ".join(f"{percent(r)} for {s}" for s, r in zip(measured, files, strict=True))
    )
    holds = max(first.values()) <= 2 and ratio.loc[32].max() < 0.5
    return Outcome(Status.HOLDS if holds else Status.IN_PART, details)


def storage_trend_is_general(m: Measured) -> Outcome:
    """Section 10: one more anchor is cheaper than one more network."""
    (record,) = m.records("storage")
    sizes, numbers = record["config"]["settings"]["sizes"], record["result"]["numbers"]
    slopes = {
        int(f): (np.diff([plain for plain, _ in own]) / np.diff([twin for _, twin in own])).min()
        for f, own in numbers.items()
    }
    details = f"up to {sizes[-1]} members, one more network stores " + ", ".join(
        f"{slope:.0f} times (f = {f})" for f, slope in slopes.items()
    )
    details += " the numbers of one more anchor"
    return Outcome(Status.HOLDS if min(slopes.values()) > 1 else Status.FAILS, details)


def networks_need_linear_storage(m: Measured) -> Outcome:
    """Section 10: each further network stores as many numbers as the first."""
    (record,) = m.records("storage")
    sizes, numbers = record["config"]["settings"]["sizes"], record["result"]["numbers"]
    each_network = {
        int(f): {plain / size for size, (plain, _) in zip(sizes, own, strict=True)}
        for f, own in numbers.items()
    }
    linear = all(len(own) == 1 for own in each_network.values())
    details = f"for {sizes[0]} to {sizes[-1]} networks, each stores " + ", ".join(
        f"{max(own):.0f} (f = {f})" for f, own in each_network.items()
    )
    return Outcome(Status.HOLDS if linear else Status.FAILS, f"{details} numbers")


def training_stops_early(m: Measured) -> Outcome:
    """Appendix C: the limit of epochs is not reached."""
    if (m.variant, True) not in SCHEDULES:
        raise NotStudiedError("our training has a fixed number of steps, without early stopping")
    of_pairs = pd.Series([r["result"]["epochs"] for r in m.records("paired-networks")])
    plain = pd.Series([r["result"]["epochs"] for r in m.records("plain-networks")])
    twin_limit, plain_limit = (SCHEDULES[m.variant, twin].max_epochs for twin in (True, False))
    reached = (of_pairs >= twin_limit).sum()
    details = (
        f"of {len(of_pairs)} twins of nearest or random pairs, {reached} reach the limit of "
        f"{twin_limit} epochs, and the longest training has {of_pairs.max():.0f}; the largest mean "
        f"of the plain networks of a split is {plain.max():.0f} epochs, with a limit of "
        f"{plain_limit}"
    )
    holds = reached == 0 and plain.max() < plain_limit
    return Outcome(Status.HOLDS if holds else Status.FAILS, details)


def neighbors_train_faster(m: Measured) -> Outcome:
    """Figure C: training with nearest pairs against all pairs, in seconds; or else in epochs.

    "Most data sets" are five, with few neighbors and with many; in part with one of the two, and
    where epochs stand for seconds.
    """
    if m.read("timing"):
        what, every, nearest = "seconds", *_training_seconds(m)
    elif m.variant == "modern":
        raise MissingRecordsError(
            "measured times of whole trainings; the number of steps is fixed here, so that "
            "neighbors change only the time of prediction"
        )
    else:
        what, every, nearest = "epochs, as seconds were not measured,", *_training_epochs(m)
    shares = {k: nearest[k] / every for k in (8, max(nearest.columns))}
    details = "; ".join(
        f"{what} with {k} neighbors, as a share of those with all pairs, {spread(share)}, fewer on "
        f"{on(share < 1)}"
        for k, share in shares.items()
    )
    most = [grade(share < 1, 5, 5) == Status.HOLDS for share in shares.values()]
    in_seconds = what == "seconds"
    if in_seconds:
        details += _prediction_seconds(m)
    holds = all(most) and in_seconds
    return Outcome(
        Status.HOLDS if holds else Status.IN_PART if any(most) else Status.FAILS, details
    )


def _prediction_seconds(m: Measured) -> str:
    """The seconds of predictions with nearest anchors, of the twins of all pairs."""
    shares = {}
    for record in m.records("timing"):
        seconds = record["result"].get("prediction", {})
        if record["config"]["settings"]["pairs"] == "all" and "16" in seconds:
            dataset = record["config"]["dataset"]
            shares[dataset] = float(np.mean(seconds["16"]) / np.mean(seconds["all"]))
    if not shares:
        return ""
    share = pd.Series(shares)
    return (
        f"; seconds of predictions with 16 nearest anchors, as a share of those with all, "
        f"{spread(share)}, fewer on {on(share < 1)}"
    )


def neighbors_are_accurate_and_fast(m: Measured) -> Outcome:
    """Abstract: nearest pairs against all pairs, and against k-NN, and their training time."""
    own = best_nearest_pairs(m)
    lower = (own < m.all_pairs) & (own < m.knn.min(axis=1))
    time = neighbors_train_faster(m)
    accurate = grade(lower, 5, 5) == Status.HOLDS
    details = (
        f"nearest pairs have a lower error than all pairs and than k-NN on {on(lower)}; "
        f"{time.details}"
    )
    if accurate and time.status == Status.HOLDS:
        return Outcome(Status.HOLDS, details)
    is_part = accurate or time.status != Status.FAILS
    return Outcome(Status.IN_PART if is_part else Status.FAILS, details)


def _training_seconds(m: Measured) -> tuple[pd.Series, pd.DataFrame]:
    """Seconds of a training with all pairs, and by the number of nearest pairs; means of seeds."""
    rows = [
        (r["config"]["dataset"], r["config"]["settings"], float(np.mean(r["result"]["training"])))
        for r in m.records("timing")
        if r["config"]["dataset"] in m.datasets
    ]
    table = pd.DataFrame(
        [
            (key, own["partners"] if own["pairs"] == "nearest" else own["pairs"], seconds)
            for key, own, seconds in rows
        ],
        columns=["dataset", "pairs", "seconds"],
    ).pivot_table(index="dataset", columns="pairs", values="seconds")
    table = table.reindex(list(m.datasets))
    lacking = table.isna().any(axis=1)
    if lacking.any():
        raise MissingRecordsError(f"timing on {', '.join(names(lacking))}", names(lacking))
    return table["all"], table[sorted(k for k in table if isinstance(k, int))]


def _training_epochs(m: Measured) -> tuple[pd.Series, pd.DataFrame]:
    """Epochs of a training with all pairs, and by the number of nearest pairs."""

    def pick(record: Record) -> dict[int, float]:
        settings = record["config"]["settings"]
        if settings["pairs"] != "nearest":
            return {}
        return {settings["partners"]: record["result"]["epochs"]}

    every = m.means("twin-networks", lambda r: {1: r["result"]["epochs"]})[1]
    return every, m.means("paired-networks", pick, [8, 64])


def uncertainty_weights(m: Measured) -> pd.DataFrame:
    """Return data set × kind of weight: the ratio of errors to that of equal weights."""

    def pick(record: Record) -> dict[str, float]:
        return {k: v / record["result"]["equal"] for k, v in record["result"].items()}

    return m.means("weighted-anchors", pick)


def uncertainty_weights_do_not_help(m: Measured) -> Outcome:
    """Section 12: weights by the members' variance and by loop inconsistency.

    Consistent would be a gain of more than two standard errors on seven of nine sets.
    """
    ratio = uncertainty_weights(m)
    clear, parts = {}, []
    for kind, text in (("members", "members' variance"), ("loops", "loop inconsistency")):
        scores = _standard_scores(m, kind)
        clear[kind] = scores < -CLEAR
        parts.append(
            f"by {text} {ratio[kind].min():.3f} ({ratio[kind].idxmin()}) to "
            f"{ratio[kind].max():.3f} ({ratio[kind].idxmax()}) of the error with equal weights, "
            f"geometric mean {geometric_mean(ratio[kind]):.3f}, lower by more than two standard "
            f"errors on {on(clear[kind])} and higher by more on {on(scores > CLEAR)}"
        )
    most = max(clear.values(), key=sum)
    return Outcome(grade(~most, 5, 3), "; ".join(parts))


def _standard_scores(m: Measured, kind: str) -> pd.Series:
    """Data set → mean difference to equal weights, in standard errors over the splits."""
    errors = m.by_split("weighted-anchors", lambda r: r["result"])
    return standard_scores(errors[kind] - errors["equal"])


def process_weights_help(m: Measured) -> Outcome:
    """Section 12: the variance of a Gaussian process as weight, for forests and for networks.

    In part where one of them was measured on some of the splits only.
    """
    gain = _process_gain(m.benchmark("learned_metric"), "all")
    networks = m.benchmark("anchor_weights").query("twin == 'neural'")
    of_networks = _process_gain(networks, "equal")
    n_splits = networks.groupby("dataset")["seed"].nunique().max()
    details = (
        f"twinned forests: better than equal weights on {on(gain > 0)}; gains: {each(gain)}; "
        f"twinned networks, on {n_splits} of {len(PAPER_SEEDS)} splits: {on(of_networks > 0)}; "
        f"gains: {each(of_networks)}"
    )
    fewest = min(gain > 0, of_networks > 0, key=sum)
    is_complete = n_splits == len(PAPER_SEEDS)
    return Outcome(grade(fewest, 7 if is_complete else NEVER, 5), details)


def _process_gain(runs: pd.DataFrame, reference: str) -> pd.Series:
    """The mean share by which weights of a Gaussian process lower the test error, by data set."""
    errors = runs.pivot_table(index=["dataset", "seed"], columns="way", values="rmse")
    gain = (1 - errors["process"] / errors[reference]).groupby("dataset").mean()
    return gain.reindex(list(KEYS))


def ensembles_reduce_variance(m: Measured) -> Outcome:
    """Appendix B: the less correlated the members, the smaller the error of their mean."""
    rows = []
    for record in m.records("decomposition"):
        for kind, parts in record["result"].items():
            formula = expected_error(parts, parts["size"])
            single = expected_error(parts, 1)
            rows.append(
                {
                    "dataset": record["config"]["dataset"],
                    "kind": kind,
                    "off": abs(formula / parts["error"] - 1),
                    "removed": 1 - formula / single,
                    "correlation": parts["covariance"] / parts["variance"],
                }
            )
    table = pd.DataFrame(rows)
    anchors = table[table["kind"] == "anchors"].set_index("dataset")
    order = anchors.sort_values("correlation")["removed"]
    details = (
        f"the formula is within {percent(table['off'].max())} of the measured error of ensembles; "
        "the covariance of a twin's anchors is "
        + ", ".join(f"{percent(v)} ({k})" for k, v in anchors["correlation"].items())
        + " of their variance, and their mean removes "
        + ", ".join(f"{percent(v)} ({k})" for k, v in anchors["removed"].items())
        + " of the squared error of one anchor"
    )
    holds = order.is_monotonic_decreasing and (table["removed"] > 0).all()
    part = bool((table["removed"] > 0).all())
    return Outcome(Status.HOLDS if holds else Status.IN_PART if part else Status.FAILS, details)
