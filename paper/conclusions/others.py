"""Checks of statements that are measured by a study of their own, in `benchmarks/results`."""

from __future__ import annotations

from typing import Any

import pandas as pd

from paper.conclusions.measured import EQUAL, Measured, Outcome, Status, grade, on
from twinned.datasets import KEYS


def answers_hold_for_other_models(m: Measured) -> Outcome:
    """Section 5: what is found for networks holds for twins of other base models.

    Four answers are checked for each base model, each by its mean errors on most sets (five): the
    twin is better than the base model; all anchors are better than one; all pairs are better than
    one partner of each row; the 16 nearest anchors are better than all. The statement holds where
    all answers hold for all models, and in part where at least half of them do.
    """
    runs = m.benchmark("other_models")
    methods = [name for name in runs if name not in ("base_model", "dataset", "seed", "seconds")]
    means: Any = runs.groupby(["base_model", "dataset"])[methods].mean()
    answers = {
        "a lower error than the base model": means["all_anchors"] < means["base"],
        "than one anchor": means["all_anchors"] < means["one_anchor"],
        "than one partner": means["all_anchors"] < means["one_partner"],
        "and with nearest anchors than with all": means["nearest_anchors"] < means["all_anchors"],
    }
    counts = pd.DataFrame(answers).groupby(level="base_model").sum()
    held = counts >= len(KEYS) / 2
    details = "; ".join(
        f"{model}: " + ", ".join(f"{name} on {n}" for name, n in own.items())
        for model, own in counts.iterrows()
    )
    share = held.to_numpy().mean()
    status = Status.HOLDS if share == 1 else Status.IN_PART if share >= 0.5 else Status.FAILS
    n_splits = runs["seed"].nunique()
    return Outcome(status, f"of {len(KEYS)} sets, {n_splits} splits, twins have: {details}")


def single_anchors_meet_beyond(m: Measured) -> Outcome:
    """Sections 5 and 13: with more than 32 members, one anchor of each twin is as good as all.

    On a set where the errors differ by no more than 3 % at the largest size, and by less than with
    32 members.
    """
    runs = m.benchmark("larger_ensembles", "as_published")
    values = ["one_anchor", "all_anchors"]
    means: Any = runs.pivot_table(index="dataset", columns="size", values=values)
    excess = means["one_anchor"] / means["all_anchors"] - 1
    largest = excess.columns.max()
    met = (excess[largest] <= EQUAL) & (excess[largest] < excess[32])
    details = (
        f"with {largest} members, {runs['seed'].nunique()} splits, the error with one anchor is "
        f"within {EQUAL:.0%} of that with all, and nearer than with 32, {on(met)}; it is higher by "
        + ", ".join(f"{100 * own:.1f} % ({key})" for key, own in excess[largest].items())
        + "; with 32 by "
        + ", ".join(f"{100 * own:.1f} % ({key})" for key, own in excess[32].items())
    )
    return Outcome(grade(met, 9, 5), details)


def relabelling_works_for_networks(m: Measured) -> Outcome:
    """Sections 11 and 13: algorithm 1 is for any twinned regression; here for networks.

    It holds where the error with Λ = 1 is below that of the supervised twin on most of the sets, in
    part where it is on one of them.
    """
    runs = m.benchmark("relabelled_networks")
    errors: Any = runs.pivot_table(index=["dataset", "seed"], columns="method", values="rmse")
    n_splits = errors.groupby("dataset").size().min()
    means = errors.groupby("dataset").mean()
    ratios = means.div(means["supervised"], axis=0).drop(columns="supervised")
    lower = ratios["Λ = 1"] < 1
    details = "; ".join(
        f"{name}: " + ", ".join(f"{key} {value:.3f}" for key, value in own.items())
        for name, own in ratios.rename(columns={"loss": "loops in the loss"}).items()
    )
    status = Status.HOLDS if lower.mean() > 0.5 else Status.IN_PART if any(lower) else Status.FAILS
    return Outcome(
        status,
        f"with Λ = 1 the error is lower on {on(lower)}, {n_splits} splits; errors as a ratio to "
        f"the supervised twin: {details}",
    )
