"""Comparison of our errors with the published ones, as a Markdown table."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from paper.harness import markdown_table

FAR = 2.0  # combined standard errors, beyond which a difference is marked
# A value counts as reproduced within this share of the published one, or so many standard errors.
NEAR, NEAR_ERRORS = 0.03, 2.0


@cache
def published() -> pd.DataFrame:
    """Return the values that the paper prints: table, dataset, method, rmse, standard_error."""
    return pd.read_csv(Path(__file__).with_name("published.csv"))


def published_rmse(table: str) -> pd.DataFrame:
    """Return the published errors of one table: a row for each data set, a column per method."""
    rows = published().query("table == @table")
    return rows.pivot_table(index="dataset", columns="method", values="rmse")


def compare(key: str, errors: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each data set and method: ours, published, their ratio, and whether far.

    `errors` has dataset, split, method and rmse. Standard errors are the paper's: the standard
    deviation over splits divided by the root of their number.
    """
    grouped = errors.groupby(["dataset", "method"], sort=False)["rmse"]
    ours = pd.DataFrame(
        {
            "rmse": grouped.mean(),
            "error": grouped.std(ddof=0) / np.sqrt(grouped.count()),
            "splits": grouped.count(),
        }
    ).reset_index()
    theirs = published().query("table == @key").drop(columns="table")
    theirs = theirs.rename(columns={"rmse": "published", "standard_error": "published_error"})
    both = ours.merge(theirs, how="left", on=["dataset", "method"])
    both["ratio"] = both["rmse"] / both["published"]
    combined = np.sqrt(both["error"] ** 2 + both["published_error"] ** 2)
    both["far"] = (both["rmse"] - both["published"]).abs() > FAR * combined
    return both


def as_markdown(key: str, title: str, variant: str, compared: pd.DataFrame) -> str:
    """Return a page with one column per method; ⚠ marks differences of over two standard errors."""
    fewest, most = int(compared["splits"].min()), int(compared["splits"].max())
    n_splits = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    methods = list(dict.fromkeys(compared["method"]))
    rows = []
    for dataset, own in compared.groupby("dataset"):
        cells = {row.method: _cell(row) for row in own.itertuples()}
        rows.append([str(dataset), *(cells.get(method, "") for method in methods)])
    known = compared.dropna(subset="published")
    apart = (known["rmse"] - known["published"]).abs()
    near = (apart <= NEAR * known["published"]) | (apart <= NEAR_ERRORS * known["published_error"])
    lines = [
        f"# {key}, {variant}: {title}",
        "",
        f"Test RMSE, mean over {n_splits} splits ± standard error; published; ratio. ⚠: further "
        "apart than two standard errors of both together.",
        "",
        *markdown_table(["", *methods], rows),
        "",
        f"{near.sum()} of {len(known)} figures are within {NEAR:.0%} of the published one, or "
        "within two of its standard errors.",
    ]
    return "\n".join([*lines, ""])


def _cell(row: Any) -> str:
    ours = f"{row.rmse:.4g} ± {row.error:.2g}"
    if np.isnan(row.published):
        return ours
    mark = " ⚠" if row.far else ""
    return f"{ours}; {row.published:.4g} ± {row.published_error:.2g}; {row.ratio:.3f}{mark}"
