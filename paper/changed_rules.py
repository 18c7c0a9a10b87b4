"""The page's texts on twin networks as published with other rules of training.

The runs are those of `paper/as_published_candidates.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frame import RESULTS, markdown_table
from paper.comparison import NEAR, NEAR_ERRORS
from paper.networks import N_MEMBERS

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
# (table, method) → the column of the run; of the nearest anchors, the number with the lowest error
HYPOTHESIS_CELLS = {
    ("T2", "tnnr_1_anchor"): "1_anchor",
    ("T2", "tnnr_all_anchors"): "all_anchors",
    ("T2", "tnnr_ensemble_32"): "ensemble",
    ("T3", "tnnr_all_anchors"): "all_anchors",
    ("T3", "nn_inference"): "nearest",
}


def candidate_values(tables: dict[tuple[str, str], pd.DataFrame]) -> dict[str, str]:
    """Return the texts of the page on other rules: how each changes the errors, and how many.

    `tables` are the comparisons of the records with print; the first row is what would be needed.
    """
    runs = pd.read_csv(RESULTS / "as_published_candidates.csv")
    columns = [column for column, _, _ in CANDIDATE_KINDS.values()]
    errors = runs.set_index(["candidate", "dataset"])[columns].sort_index()
    unchanged: Any = errors.loc["none"]
    rows = [["needed to reach the paper", *map(_joined, _needed(tables).to_numpy()), ""]]
    for name in runs["candidate"].unique()[1:]:
        factors = errors.loc[name] / unchanged
        others = factors.drop(index=list(FITTED)).to_numpy()
        cells = [_joined(factors.loc[key]) for key in FITTED]
        rows.append([name, *cells, f"{others.min():.2f} to {others.max():.2f}"])
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


def hypothesis_values(tables: dict[tuple[str, str], pd.DataFrame]) -> dict[str, str]:
    """Return the cells with the two changed rules beside print and the records, and the verdict."""
    runs = pd.read_csv(RESULTS / "hypothesis.csv")
    means: Any = runs.groupby("dataset").mean()
    means["nearest"] = means.filter(like="nearest_").min(axis=1)
    cells = []
    for (table, method), column in HYPOTHESIS_CELLS.items():
        recorded = tables[table, "as_published"].query("method == @method").set_index("dataset")
        for key in means.index:
            if column == "ensemble" and means.loc[key, "members"] < N_MEMBERS:
                continue
            printed, error = recorded.loc[key, ["published", "published_error"]]
            ratios = np.array([recorded.loc[key, "rmse"], means.loc[key, column]]) / printed
            by_share = np.abs(ratios - 1) <= NEAR
            near = by_share | (np.abs(ratios - 1) <= NEAR_ERRORS * error / printed)
            cells.append([table, method, key, *ratios, by_share[0], *near])
    columns = ["table", "method", "dataset", "before", "now", "close", "was_near", "near"]
    found = pd.DataFrame(cells, columns=columns)
    far = found[~found["close"] & found["dataset"].isin(FITTED)]
    before = str(int((far["near"] & far["was_near"]).sum()))
    gained, left = int(far["near"].sum()), int((found["was_near"] & ~found["near"]).sum())
    not_run = _n_far_fitted(tables) - len(far)
    one = runs.groupby("dataset")["1_anchor"]
    shares: Any = one.std(ddof=0) / one.mean()
    most = gained + not_run
    verdict = "refuted" if most < 5 or left > 4 else "not confirmed" if most < 9 else "open"
    nearer = ((far["now"] - 1).abs() < (far["before"] - 1).abs()).groupby(far["dataset"]).all()
    shown = found[found["dataset"].isin(FITTED) | (found["was_near"] != found["near"])]
    said = {True: "yes", False: "no"}
    rows = [
        [table, f"`{method}`", key, f"{old:.3f}", f"{now:.3f}", said[was_near], said[near]]
        for table, method, key, old, now, _, was_near, near in shown.itertuples(index=False)
    ]
    header = ["table", "method", "dataset", "rules of the tables", "two rules changed"]
    header += ["near before", "near"]
    return {
        "hypothesis_verdict": verdict,
        "hypothesis_not_run": str(not_run),
        "hypothesis_most": str(most),
        "hypothesis_nearer": " and ".join(nearer.index[nearer]),
        "hypothesis_table": "\n".join(markdown_table(header, rows)),
        "hypothesis_tested": str(len(far)),
        "hypothesis_gained": str(gained),
        "hypothesis_near_before": before,
        "hypothesis_left": str(left),
        "hypothesis_members": ", ".join(f"{key} {n:.0f}" for key, n in means["members"].items()),
        "hypothesis_share_TF": f"{100 * shares['TF']:.0f} %",
        "hypothesis_share_RCL": f"{100 * shares['RCL']:.0f} %",
    }


def _n_far_fitted(tables: dict[tuple[str, str], pd.DataFrame]) -> int:
    """The number of errors on TF, RCL and WSB that are not within NEAR of print."""
    all_cells = pd.concat([tables[key, "as_published"] for key in ("T1", "T2", "T3")])
    own = all_cells[all_cells["dataset"].isin(FITTED)].dropna(subset="published")
    return int(((own["ratio"] - 1).abs() > NEAR).sum())


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
        (errors.loc[name] / unchanged - 1).drop(index=list(FITTED))[columns].abs()
        for name in scaled
    ]
    return f"{100 * max(own.to_numpy().max() for own in changes):.1f} %"


def _joined(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
