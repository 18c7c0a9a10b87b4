"""Errors of twin networks as published with other rules of training: the scale of the loss, etc.

The author's plateau rule and optimizer have absolute thresholds, so the scale of the loss, which
the text does not state, may change the errors. The runs are those of `benchmarks/as_published.py`,
and for other rules those of `benchmarks/as_published_candidates.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from paper.comparison import compare, count_near
from paper.harness import RESULTS, markdown_table

METHODS = ("tnnr_all_anchors", "tnnr_1_anchor")
FITTED = ("TF", "RCL", "WSB")  # little or no noise: their losses are as small as the thresholds
CANDIDATE_KINDS = {
    "one": ("rmse_1_anchor", "T2", "tnnr_1_anchor"),
    "all": ("rmse_all_anchors", "T2", "tnnr_all_anchors"),
    "nearest": ("rmse_nearest", "T3", "nn_inference"),
}
ORDERS = {"first": "prediction by F(x, a) alone", "second": "prediction by −F(a, x) alone"}
COLUMNS = ["loss_scale", "dataset", "method", "rmse"]


def loss_scale_values() -> dict[str, str]:
    """Return the texts of the page: the table of ratios to print, and the largest changes."""
    compared = compared_by_scale()
    ratios = compared.pivot_table(
        index=["dataset", "method"], columns="loss_scale", values="ratio", sort=False
    ).sort_index(axis=1)
    rows = [
        [*map(str, key), *(f"{ratio:.3f}" for ratio in row)]
        for key, row in zip(ratios.index, ratios.to_numpy(), strict=True)
    ]
    near = [count_near(own) for _, own in compared.groupby("loss_scale")]
    rows.append(["near print", f"of {near[0][2]}", *(str(count) for count, _, _ in near)])
    header = ["data set", "method", *(f"{scale:g}" for scale in ratios)]
    changes = (ratios.div(ratios[1.0], axis=0) - 1).abs()
    others = changes.drop(index=list(FITTED), level="dataset")
    return {
        "loss_scale_table": "\n".join(markdown_table(header, rows)),
        "loss_scale_RCL": f"{ratios.loc[('RCL', 'tnnr_all_anchors'), 0.333]:.3f}",
        "loss_scale_TF": f"{ratios.loc[('TF', 'tnnr_all_anchors'), 0.125]:.3f}",
        "loss_scale_others": f"{100 * others.to_numpy().max():.1f} %",
    }


def candidate_values(tables: dict[tuple[str, str], pd.DataFrame]) -> dict[str, str]:
    """Return the texts of the page on other rules: how each changes the errors, and how many.

    `tables` are the comparisons of the records with print; the first row is what would be needed.
    """
    runs = pd.read_csv(RESULTS / "as_published_candidates.csv")
    columns = [column for column, _, _ in CANDIDATE_KINDS.values()]
    errors = runs.set_index(["candidate", "prediction", "dataset"])[columns].sort_index()
    unchanged: Any = errors.loc["none", "mean"]
    rows = [["needed to reach print", *map(_joined, _needed(tables).to_numpy()), ""]]
    rules = [(name, "mean") for name in runs["candidate"].unique() if name != "none"]
    for name, order in [*rules, *(("none", order) for order in ORDERS)]:
        factors = errors.loc[name, order] / unchanged
        others = factors.drop(index=list(FITTED)).to_numpy()
        cells = [_joined(factors.loc[key]) for key in FITTED]
        label = name if order == "mean" else ORDERS[order]
        rows.append([label, *cells, f"{others.min():.2f} to {others.max():.2f}"])
    others = [str(key) for key in unchanged.index if key not in FITTED]
    return keras_values() | {
        "candidate_table": "\n".join(markdown_table(["changed rule", *FITTED, "others"], rows)),
        "candidate_others": ", ".join(sorted(others)),
        "n_candidates": str(len(rows) - 1),
        "candidate_splits": str(runs["splits"].max()),
        "candidate_members": str(runs["members"].max()),
    }


def keras_values() -> dict[str, str]:
    """Return the errors of the training that was written anew with Keras, over those of ours."""
    runs = pd.read_csv(RESULTS / "keras_training.csv")
    columns = ["rmse_1_anchor", "rmse_all_anchors"]
    means = runs.groupby(["dataset", "training"])[columns].mean()
    values = {}
    for key in runs["dataset"].unique():
        one, every = (means.loc[key, "Keras"] / means.loc[key, "ours"]).to_numpy()
        values[f"keras_{key}"] = f"{one:.2f} with one anchor and {every:.2f} with all"
        values[f"keras_splits_{key}"] = str(runs[runs["dataset"] == key]["split"].nunique())
    return values


def _needed(tables: dict[tuple[str, str], pd.DataFrame]) -> pd.DataFrame:
    """Data set × kind of prediction: printed errors over those of the tables as published."""
    ratios = {
        kind: tables[table, "as_published"].set_index(["method", "dataset"])["ratio"][method]
        for kind, (_, table, method) in CANDIDATE_KINDS.items()
    }
    return 1 / pd.DataFrame(ratios).loc[list(FITTED)]


def _joined(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)


def compared_by_scale() -> pd.DataFrame:
    """Return the comparison with table 2 for each scale; scale 1 is the training as published."""
    scaled = pd.read_csv(RESULTS / "as_published_loss_scale.csv")
    plain = pd.read_csv(RESULTS / "as_published.csv")
    means = plain.groupby(["dataset", "method"], as_index=False)["rmse"].mean()
    runs = pd.concat([scaled[COLUMNS], means.assign(loss_scale=1.0)[COLUMNS]])
    runs = runs[runs["method"].isin(METHODS)].sort_values(["dataset", "method"]).assign(split=0)
    return pd.concat(
        [
            compare("T2", own).assign(loss_scale=scale)
            for scale, own in runs.groupby("loss_scale", sort=True)
        ]
    )
