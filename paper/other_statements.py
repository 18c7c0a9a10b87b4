"""The page's texts on statements of the paper that benchmarks measure, and no study."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from benchmarks.accuracy.accuracy_neural import TWIN_METHODS
from benchmarks.frame import RESULTS
from paper.comparison import geometric_mean, published
from paper.conclusions.measured import on


def other_values() -> dict[str, str]:
    """Return the texts of all of these statements."""
    return dropout_values() | uncertainty_values() | boosting_values() | relabelled_network_values()


def dropout_values() -> dict[str, str]:
    """Return correlations of the errors of two members, and where they exceed those of anchors."""
    runs = pd.read_csv(RESULTS / "dropout_members.csv")
    means = runs.pivot_table(index="dataset", columns="ensemble", values="correlation")
    values = {"dropout_splits": str(runs["seed"].nunique())}
    for name, own in means.items():
        key = re.sub(r"\W", "_", str(name))
        values[f"correlation_{key}"] = ", ".join(f"{own[i]:.2f} ({i})" for i in means.index)
        if key != "anchors":
            values[f"more_{key}"] = on(own > means["anchors"])
    return values


def uncertainty_values() -> dict[str, str]:
    """Return how measures of uncertainty rank errors, and the error by active learning."""
    ranks = pd.read_csv(RESULTS / "loop_uncertainty.csv")
    means: Any = ranks.groupby("dataset")[["spread", "loops"]].mean()
    runs = pd.read_csv(RESULTS / "active_learning.csv").query("model == 'twin'")
    areas: Any = runs.pivot_table(index=["dataset", "seed"], columns="choice", values="rmse")
    areas = areas.groupby("dataset").mean()
    ratio = areas["spread"] / areas["random"]
    return {
        "rank_splits": str(ranks["seed"].nunique()),
        "rank_spread": f"{means['spread'].mean():.2f}",
        "rank_loops": f"{means['loops'].mean():.2f}",
        "rank_larger": on(means["spread"] > means["loops"]),
        "active_below": on(ratio < 1),
        "active_ratio": f"{geometric_mean(ratio):.2f}",
    }


def boosting_values() -> dict[str, str]:
    """Return where printed twins, and ours, have lower errors than boosting."""
    runs = pd.read_csv(RESULTS / "accuracy_neural.csv")
    means: Any = runs.pivot_table(index="dataset", columns="model", values="rmse")
    twins = published()[published()["method"].isin(TWIN_METHODS)]
    printed = twins.groupby("dataset")["rmse"].min()
    return {
        "printed_below_boosting": on(printed < means["catboost"]),
        "twins_below_boosting": on(means["twin:balanced"] < means["catboost"]),
    }


def relabelled_network_values() -> dict[str, str]:
    """Return the errors of networks by algorithm 1 and by loops in the loss."""
    runs = pd.read_csv(RESULTS / "relabelled_networks.csv")
    errors: Any = runs.pivot_table(index=["dataset", "seed"], columns="method", values="rmse")
    own: Any = errors.dropna().groupby("dataset").mean()
    ratios = own.div(own["supervised"], axis=0)

    def listed(method: str) -> str:
        return ", ".join(f"{key} {value:.3f}" for key, value in ratios[method].items())

    return {
        "network_splits": str(errors.dropna().groupby("dataset").size().min()),
        "network_loss": listed("loss"),
        "network_zero": listed("Λ = 0"),
        "network_third": listed("Λ = 1/3"),
        "network_one": listed("Λ = 1"),
    }
