"""Errors of twin networks as published with other rules of training: the scale of the loss, etc.

The author's plateau rule and optimizer have absolute thresholds, so the scale of the loss, which
the text does not state, may change the errors. The runs are those of `benchmarks/as_published.py`,
and for other rules those of `benchmarks/as_published_candidates.py`.
"""

from __future__ import annotations

import pandas as pd

from paper.comparison import compare, count_near, published_rmse
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


def candidate_values() -> dict[str, str]:
    """Return the texts of the page: ratios to print of each candidate, and how many there are."""
    runs = pd.read_csv(RESULTS / "as_published_candidates.csv")
    rules = runs[runs["prediction"] == "mean"]
    orders = runs[(runs["prediction"] != "mean") & (runs["candidate"] == "none")]
    rows = []
    for (name, order), own in pd.concat([rules, orders]).groupby(
        ["candidate", "prediction"], sort=False
    ):
        ratios = candidate_ratios(own)
        others = ratios.drop(index=list(FITTED), errors="ignore")
        ranges = [f"{others[k].min():.2f} to {others[k].max():.2f}" for k in others]
        cells = [_joined(ratios.loc[key]) for key in FITTED if key in ratios.index]
        rows.append([str(name) if order == "mean" else ORDERS[str(order)], *cells, *ranges])
    header = ["changed rule", *FITTED, *(f"six others, {kind}" for kind in CANDIDATE_KINDS)]
    return {
        "candidate_table": "\n".join(markdown_table(header, rows)),
        "n_candidates": str(rules["candidate"].nunique() - 1),
        "candidate_splits": str(runs["splits"].max()),
        "candidate_members": str(runs["members"].max()),
    }


def candidate_ratios(runs: pd.DataFrame) -> pd.DataFrame:
    """Return data set × kind of prediction: ratios to the printed errors of tables 2 and 3."""
    own = runs.set_index("dataset")
    return pd.DataFrame(
        {
            kind: own[column] / published_rmse(table)[method].reindex(own.index)
            for kind, (column, table, method) in CANDIDATE_KINDS.items()
        }
    )


def _joined(ratios: pd.Series) -> str:
    return ", ".join(f"{ratio:.3f}" for ratio in ratios)


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
