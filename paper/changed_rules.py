"""The page's texts on twin networks as published with other rules of training.

The runs are those of `paper/as_published_candidates.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frame import RESULTS, markdown_table

FITTED = ("TF", "RCL", "WSB")  # little or no noise: their losses are as small as the thresholds
CANDIDATE_KINDS = {
    "one": ("rmse_1_anchor", "T2", "tnnr_1_anchor"),
    "all": ("rmse_all_anchors", "T2", "tnnr_all_anchors"),
    "nearest": ("rmse_nearest", "T3", "nn_inference"),
}
# Fixed before the run: what confirms and what refutes that two rules together are the cause.
HYPOTHESIS = {
    "hypothesis_threshold": "1e-4",
    "hypothesis_near": "9",  # cells that come near
    "hypothesis_leave": "2",
    "hypothesis_TF": "15 to 23 %",  # relative deviation over splits
    "hypothesis_RCL": "5 to 9 %",
    "refuted_near": "5",
    "refuted_leave": "4",
    "refuted_TF": "10 %",
}
ORDERS = {"first": "prediction by F(x, a) alone", "second": "prediction by −F(a, x) alone"}


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
    return (
        HYPOTHESIS
        | _deviations(tables)
        | {
            "candidate_table": "\n".join(markdown_table(["changed rule", *FITTED, "others"], rows)),
            "candidate_others": ", ".join(sorted(others)),
            "n_candidates": str(len(rows) - 1),
            "scale_share_others": _largest_change(errors, unchanged),
            "candidate_splits": str(runs["splits"].max()),
            "candidate_members": str(runs["members"].max()),
        }
    )


def _deviations(tables: dict[tuple[str, str], pd.DataFrame]) -> dict[str, str]:
    """Deviations over splits with one anchor, as shares of the errors: in print and here."""
    own = tables["T2", "as_published"].query("method == 'tnnr_1_anchor'").set_index("dataset")
    root = np.sqrt(own["splits"])
    shares = {
        "printed": root * own["published_error"] / own["published"],
        "recorded": root * own["error"] / own["rmse"],
    }
    return {
        f"{name}_{key}": f"{100 * own_share[key]:.0f} %"
        for name, own_share in shares.items()
        for key in ("TF", "RCL")
    }


def _needed(tables: dict[tuple[str, str], pd.DataFrame]) -> pd.DataFrame:
    """Data set × kind of prediction: printed errors over those of the tables as published."""
    ratios = {
        kind: tables[table, "as_published"].set_index(["method", "dataset"])["ratio"][method]
        for kind, (_, table, method) in CANDIDATE_KINDS.items()
    }
    return 1 / pd.DataFrame(ratios).loc[list(FITTED)]


def _largest_change(errors: pd.DataFrame, unchanged: Any) -> str:
    """The largest change of the sets with noise by a scale of the loss, for one anchor or all."""
    scaled = [name for name in errors.index.unique("candidate") if str(name).startswith("loss ×")]
    columns = ["rmse_1_anchor", "rmse_all_anchors"]
    changes = [
        (errors.loc[name, "mean"] / unchanged - 1).drop(index=list(FITTED))[columns].abs()
        for name in scaled
    ]
    return f"{100 * max(own.to_numpy().max() for own in changes):.1f} %"


def _joined(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
