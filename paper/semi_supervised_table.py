"""The table of study S: semi-supervised TNNR and co-training, by the share of labelled rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frame import markdown_table
from paper.comparison import geometric_mean
from paper.semi_supervised_networks import STUDY
from paper.tables import RecordsByStudy

SUPERVISED, CHOSEN, PLAIN, CO_TRAINING = "supervised", "loops, chosen", "plain", "co-training"


def method_errors(records: RecordsByStudy) -> pd.DataFrame:
    """Return (share, dataset, split) × method: test errors.

    The methods are supervised, the loop weights ("loops 0.1"), the loop weight with the lowest
    out-of-fold error of the labelled rows of all splits of a data set, plain and co-training.
    """
    test, out_of_fold = (_errors(records, name) for name in ("test", "out_of_fold"))
    weights = [name for name in test if str(name).startswith("loops")]
    squares: Any = (out_of_fold[weights] ** 2).groupby(["share", "dataset"]).mean()
    chosen = squares.idxmin(axis=1)
    groups: Any = test.index
    of_rows = test.columns.get_indexer(chosen.reindex(groups.droplevel("split")))
    test.insert(1 + len(weights), CHOSEN, test.to_numpy()[np.arange(len(test)), of_rows])
    return test


def _errors(records: RecordsByStudy, name: str) -> pd.DataFrame:
    """(share, dataset, split) × method: errors of test rows, or out of fold."""
    rows = {}
    for record in records[STUDY]:
        config, result = record["config"], record["result"]
        loops = {f"loops {weight}": errors for weight, errors in result["loops"].items()}
        methods = {SUPERVISED: result[SUPERVISED], **loops}
        methods |= {PLAIN: result[PLAIN], CO_TRAINING: result[CO_TRAINING]}
        row = (config["settings"]["share"], config["dataset"], config["split"])
        rows[row] = {method: errors.get(name, np.nan) for method, errors in methods.items()}
    index = pd.MultiIndex.from_tuples(rows, names=["share", "dataset", "split"])
    return pd.DataFrame(list(rows.values()), index=index).sort_index()


def table_s(records: RecordsByStudy) -> pd.DataFrame:
    """Return dataset, split, method (with the share of labelled rows) and rmse."""
    rows = method_errors(records).reset_index()
    rows = rows.melt(["share", "dataset", "split"], var_name="method", value_name="rmse")
    rows["method"] += rows["share"].map(", {:.0%} labelled".format)
    return rows[["dataset", "split", "method", "rmse"]]


def text_s(records: RecordsByStudy) -> str:
    """Return a Markdown table for each share, of ratios to the supervised twin."""
    errors = method_errors(records)
    n_splits = errors.groupby(["share", "dataset"]).size()
    parts = [
        "Mean test RMSE of the supervised twin; of the other methods as a ratio to it, in brackets "
        f"the standard error of the paired difference over {n_splits.max()} splits."
    ]
    for share, own in errors.groupby("share"):
        means: Any = own.groupby("dataset").mean()
        ratios = means.div(means[SUPERVISED], axis=0).drop(columns=SUPERVISED)
        apart: Any = own.sub(own[SUPERVISED], axis=0).groupby("dataset")
        spread = (apart.std(ddof=0) / np.sqrt(apart.count())).div(means[SUPERVISED], axis=0)
        rows = [
            [str(key), f"{means.loc[key, SUPERVISED]:.4g}"]
            + [f"{ratios.loc[key, m]:.3f} ({spread.loc[key, m]:.3f})" for m in ratios]
            for key in ratios.index
        ]
        overall = [f"**{geometric_mean(ratios[method]):.3f}**" for method in ratios]
        rows.append(["geometric mean", "", *overall])
        table = markdown_table(["", SUPERVISED, *ratios], rows)
        parts.append(
            "\n".join([f"{100 * float(str(share)):g} % of the rows labelled:", "", *table])
        )
    return "\n\n".join(parts) + "\n"
