"""Ours beside the published figures, in Markdown."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from io import StringIO
from typing import Any

import numpy as np
import pandas as pd

FAR = 2.0  # standard errors of both together, beyond which a difference is marked
NEAR, NEAR_ERRORS = 0.03, 2.0  # of the published figure, or of its standard errors: it is the same


@cache
def published() -> pd.DataFrame:
    """What the paper prints: table, dataset, method, rmse, standard_error."""
    text = files("paper").joinpath("published.csv").read_text("utf-8")
    return pd.read_csv(StringIO(text))


def comparison(key: str, errors: pd.DataFrame) -> pd.DataFrame:
    """A row for each data set and method: ours, published, their ratio, and whether they are far.

    `errors` has dataset, split, method and rmse. Standard errors are the paper's: the standard
    deviation over splits by the root of their number.
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
    together = np.sqrt(both["error"] ** 2 + both["published_error"] ** 2)
    both["far"] = (both["rmse"] - both["published"]).abs() > FAR * together
    return both


def as_markdown(key: str, title: str, flavour: str, compared: pd.DataFrame) -> str:
    """A table of a method after the other; ⚠ marks what is more than two standard errors apart."""
    least, most = int(compared["splits"].min()), int(compared["splits"].max())
    n_splits = f"{least}" if least == most else f"{least} to {most}"
    lines = [
        f"# {key}, {flavour}: {title}",
        "",
        f"Test RMSE, mean over {n_splits} splits ± standard error; published; ratio. ⚠: further "
        "apart than two standard errors of both together.",
        "",
    ]
    methods = list(dict.fromkeys(compared["method"]))
    lines += ["| | " + " | ".join(methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for dataset, own in compared.groupby("dataset"):
        cells = {row.method: _cell(row) for row in own.itertuples()}
        lines.append(f"| {dataset} | " + " | ".join(cells.get(m, "") for m in methods) + " |")
    known = compared.dropna(subset="published")
    apart = (known["rmse"] - known["published"]).abs()
    near = (apart <= NEAR * known["published"]) | (apart <= NEAR_ERRORS * known["published_error"])
    lines += [
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
