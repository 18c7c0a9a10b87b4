"""Comparison of our errors with the published ones, as a Markdown table."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.frame import markdown_table

FAR = 2.0  # combined standard errors, beyond which a difference is marked
# A value counts as reproduced within this share of the published one, or so many standard errors.
NEAR, NEAR_ERRORS = 0.03, 2.0
# The gains that the paper prints: table → method and the methods that it is compared with.
GAINS: dict[str, dict[str, tuple[str, ...]]] = {
    "T1": {"ann_ensemble_32": ("ann_single",)},
    "T2": {"tnnr_all_anchors": ("tnnr_1_anchor",), "tnnr_ensemble_32": ("tnnr_all_anchors",)},
    "T3": dict.fromkeys(("nn_inference", "nn_train_and_inference"), ("tnnr_all_anchors",)),
    "T4": {"twinned_rf_semi_supervised": ("twinned_rf_supervised", "twinned_rf_weight_0")},
    "T5": {"twinned_rf": ("rf",)},
}


@cache
def published() -> pd.DataFrame:
    """Return the values that the paper prints: table, dataset, method, rmse, standard_error."""
    return pd.read_csv(Path(__file__).with_name("published.csv"))


@cache
def published_gains() -> dict[tuple[str, str, str], float]:
    """Return (table, dataset, method) → the gain that the paper prints, in per cent."""
    table = pd.read_csv(Path(__file__).with_name("published_gains.csv"))
    index = zip(table["table"], table["dataset"], table["method"], strict=True)
    return dict(zip(index, table["percent"].astype(float), strict=True))


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


def gain_columns(key: str, compared: pd.DataFrame) -> dict[str, dict[str, str]]:
    """Return heading → data set → our gain and the printed one, for the gains of the paper."""
    errors = compared.pivot_table(index="dataset", columns="method", values="rmse")
    columns: dict[str, dict[str, str]] = {}
    pairs = [(method, own) for method, others in GAINS.get(key, {}).items() for own in others]
    for method, reference in pairs:
        if method not in errors or reference not in errors:
            continue
        ours = 100 * (1 - errors[method] / errors[reference])
        over = f" over {reference}" if len(GAINS[key][method]) > 1 else ""
        columns[f"gain of {method}{over}"] = {
            str(dataset): _gain_cell(gain, published_gains().get((key, str(dataset), method)))
            for dataset, gain in ours.dropna().items()
        }
    return columns


def _gain_cell(ours: float, printed: float | None) -> str:
    """Our gain and the printed one.

    >>> _gain_cell(-1.234, 0.5)
    '−1.23 %; 0.5 %'
    """
    texts = [f"{ours:.2f} %"] + ([] if printed is None else [f"{printed:g} %"])
    return "; ".join(texts).replace("-", "−")


def geometric_mean(ratios: Any) -> float:
    """Return the geometric mean of a Series."""
    return float(np.exp(np.log(ratios).mean()))


def count_near(compared: pd.DataFrame) -> tuple[int, int, int]:
    """Return how many values are near the published ones by share or errors, by share, of all."""
    known = compared.dropna(subset="published")
    apart = (known["rmse"] - known["published"]).abs()
    by_share = apart <= NEAR * known["published"]
    near = by_share | (apart <= NEAR_ERRORS * known["published_error"])
    return int(near.sum()), int(by_share.sum()), len(known)


def as_markdown(
    key: str, title: str, variant: str, compared: pd.DataFrame, note: str | None = None
) -> str:
    """Return a page with one column per method; ⚠ marks differences of over two standard errors.

    `note` names which records are of an earlier commit.
    """
    fewest, most = int(compared["splits"].min()), int(compared["splits"].max())
    n_splits = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    methods = list(dict.fromkeys(compared["method"]))
    gains = gain_columns(key, compared)
    rows = []
    for dataset, own in compared.groupby("dataset"):
        cells = {row.method: _cell(row) for row in own.itertuples()}
        own_gains = [column.get(str(dataset), "") for column in gains.values()]
        rows.append([str(dataset), *(cells.get(method, "") for method in methods), *own_gains])
    near, by_share, n_known = count_near(compared)
    lines = [
        f"# {key}, {variant}: {title}",
        "",
        f"Test RMSE, mean over {n_splits} splits ± standard error; published; ratio. ⚠: further "
        "apart than two standard errors of both together. Gains: ours; printed.",
        "",
        *markdown_table(["", *methods, *gains], rows),
        "",
        f"{near} of {n_known} errors are within {NEAR:.0%} of the published one, or within two of "
        f"its standard errors; {by_share} are within {NEAR:.0%}.",
    ]
    if note:
        lines += ["", f"Records {note}."]
    return "\n".join([*lines, ""])


def _cell(row: Any) -> str:
    ours = f"{row.rmse:.4g} ± {row.error:.2g}"
    if np.isnan(row.published):
        return ours
    mark = " ⚠" if row.far else ""
    return f"{ours}; {row.published:.4g} ± {row.published_error:.2g}; {row.ratio:.3f}{mark}"
