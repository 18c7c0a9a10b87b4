"""What the tables and figures show, from the records of the studies behind them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from paper.semi import LOOP_WEIGHTS

Found = dict[str, list[dict[str, Any]]]  # study → records


def table1(found: Found) -> pd.DataFrame:
    """One network, and the largest ensemble."""

    def methods(result: dict[str, Any]) -> dict[str, float]:
        size = _largest(result["members"])
        return {
            "ann_single": result["members"]["1"],
            f"ann_ensemble_{size}": result["members"][size],
        }

    return _rows((record, methods(record["result"])) for record in found["plain-networks"])


def _largest(sizes: dict[str, float]) -> str:
    return max(sizes, key=int)


def table2(found: Found) -> pd.DataFrame:
    """One twin with one anchor and with all, and the largest ensemble."""

    def methods(result: dict[str, Any]) -> dict[str, float]:
        size = _largest(result["members"])
        return {
            "tnnr_1_anchor": result["one_anchor"],
            "tnnr_all_anchors": result["members"]["1"],
            f"tnnr_ensemble_{size}": result["members"][size],
        }

    return _rows((record, methods(record["result"])) for record in found["twin-networks"])


def table3(found: Found) -> pd.DataFrame:
    """All anchors, the nearest ones, and pairs of neighbours too, with the best number of them.

    One number for each data set. The paper's are "best estimates": the lowest test error. So it is
    here for `as_published` and `as_written`; `modern` takes the lowest error of validation rows.
    """
    rows = []
    for record in found["twin-networks"]:
        result = record["result"]
        rows.append((record, {"tnnr_all_anchors": result["members"]["1"]}))
    curves = neighbour_curves(found)
    judges = {record["config"]["flavour"] for record in found["twin-networks"]}
    judge = "validation" if judges == {"modern"} else "test"
    best = best_neighbours(curves, judge).reset_index()
    chosen = curves.merge(best, on=["dataset", "method", "neighbours"])
    return pd.concat([_rows(rows), chosen[["dataset", "split", "method", "rmse"]]])


def neighbour_curves(found: Found) -> pd.DataFrame:
    """dataset, split, method, neighbours, validation, rmse."""
    rows = []
    for record in found["twin-networks"]:
        nearest = record["result"]["nearest"]
        for k, error in nearest["test"].items():
            rows.append((record, "nn_inference", int(k), nearest["validation"][k], error))
    for record in found["paired-networks"]:
        settings, result = record["config"]["settings"], record["result"]
        if settings["pairs"] == "nearest":
            method, k = "nn_train_and_inference", settings["partners"]
            rows.append((record, method, k, result["validation"], result["test"]))
    return pd.DataFrame(
        [(record["config"]["dataset"], record["config"]["split"], *rest) for record, *rest in rows],
        columns=["dataset", "split", "method", "neighbours", "validation", "rmse"],
    )


def best_neighbours(curves: pd.DataFrame, judge: str) -> pd.Series:
    """(dataset, method) → the number of neighbours with the lowest mean error of the `judge`."""
    means = curves.rename(columns={"rmse": "test"})
    means = means.groupby(["dataset", "method", "neighbours"])[judge].mean().reset_index()
    lowest = means.loc[means.groupby(["dataset", "method"])[judge].idxmin()]
    return lowest.set_index(["dataset", "method"])["neighbours"]


def table4(found: Found) -> pd.DataFrame:
    """The forest twin without loops, and with loops of the Λ that was chosen for the data set."""
    chosen = chosen_loop_weights(found)
    told = []
    for record in found["semi-supervised-forests"]:
        key = record["config"]["dataset"]
        if "fold" not in record["config"]["settings"] and key in chosen:
            result, weight = record["result"], chosen[key]
            methods = {
                "twinned_rf_supervised": result["supervised"],
                "twinned_rf_semi_supervised": result["loops"][weight],
            }
            told.append((record, methods))
    return _rows(told)


def chosen_loop_weights(found: Found) -> dict[str, str]:
    """Data set → Λ, by folds of labelled rows; `as_published` by test rows, as the author did."""
    few = {f"{weight:.6g}" for weight in LOOP_WEIGHTS}  # the whole list was run for one split only
    rows = []
    for record in found["semi-supervised-forests"]:
        config = record["config"]
        if ("fold" in config["settings"]) == (config["flavour"] == "modern"):
            rows += [
                (config["dataset"], name, error**2)
                for name, error in record["result"]["loops"].items()
                if name in few
            ]
    squares = pd.DataFrame(rows, columns=["dataset", "weight", "square"])
    means = squares.pivot_table(index="dataset", columns="weight", values="square")
    return {str(key): str(row.idxmin()) for key, row in means.iterrows()}


def table5(found: Found) -> pd.DataFrame:
    """The forest and its twin."""
    return _rows((record, record["result"]) for record in found["forests"])


def _rows(told: Iterable[tuple[dict[str, Any], dict[str, float]]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (record["config"]["dataset"], record["config"]["split"], method, error)
            for record, methods in told
            for method, error in methods.items()
        ],
        columns=["dataset", "split", "method", "rmse"],
    )
