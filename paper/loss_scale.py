"""Errors of twin networks as published when the training loss is multiplied by a scale.

The author's plateau rule and optimizer have absolute thresholds, so the scale of the loss, which
the text does not state, may change the errors. The runs are those of `benchmarks/as_published.py`.
"""

from __future__ import annotations

import pandas as pd

from paper.comparison import compare, count_near
from paper.harness import RESULTS, markdown_table

METHODS = ("tnnr_all_anchors", "tnnr_1_anchor")
FITTED = ("TF", "RCL", "WSB")  # little or no noise: their losses are as small as the thresholds
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
