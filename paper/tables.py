"""The rows of tables T1 to T5, from the records of their studies.

Each table function returns a DataFrame with the columns dataset, split, method and rmse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from paper.forests import METHODS, forest_errors
from paper.loop_relabelling import weight_name
from paper.records import Record

RecordsByStudy = dict[str, list[Record]]


def table1(records: RecordsByStudy) -> pd.DataFrame:
    """One network, and the largest ensemble."""

    def methods(result: dict[str, Any]) -> dict[str, float]:
        size = _largest(result["members"])
        return {
            "ann_single": result["members"]["1"],
            f"ann_ensemble_{size}": result["members"][size],
        }

    return _rows((record, methods(record["result"])) for record in records["plain-networks"])


def _largest(sizes: dict[str, float]) -> str:
    return max(sizes, key=int)


def table2(records: RecordsByStudy) -> pd.DataFrame:
    """One twin with one anchor and with all, and the largest ensemble.

    The one anchor is drawn for each row, as in the author's code.
    """

    def methods(result: dict[str, Any]) -> dict[str, float]:
        size = _largest(result["members"])
        return {
            "tnnr_1_anchor": result["members_one_anchor"]["1"],
            "tnnr_all_anchors": result["members"]["1"],
            f"tnnr_ensemble_{size}": result["members"][size],
        }

    return _rows((record, methods(record["result"])) for record in records["twin-networks"])


def table3(records: RecordsByStudy) -> pd.DataFrame:
    """All anchors, the nearest ones, and nearest pairs too, with the best number of neighbors.

    One number for each data set. The paper's are "best estimates": the lowest test error, as here
    for `as_published` and `as_written`; `modern` takes the lowest error of validation rows.
    """
    twins = all_pair_results(records)
    all_anchors = _rows((record, {"tnnr_all_anchors": error}) for record, error, _ in twins)
    curves = neighbor_curves(records)
    is_modern = {record["config"]["variant"] for record, *_ in twins} == {"modern"}
    best = best_neighbors(curves, "validation" if is_modern else "test").reset_index()
    chosen = curves.merge(best, on=["dataset", "method", "neighbors"])
    return pd.concat([all_anchors, chosen[["dataset", "split", "method", "rmse"]]])


def all_pair_results(records: RecordsByStudy) -> list[tuple[Record, float, dict[str, Any]]]:
    """Return record, error with all anchors and errors with nearest ones, of twins of all pairs.

    Those with the members of the twins of some pairs, where they were run; else all members.
    """
    same = [r for r in records["paired-networks"] if r["config"]["settings"]["pairs"] == "all"]
    if same:
        return [(r, r["result"]["test"], r["result"]["nearest"]) for r in same]
    twins = [(r, r["result"]) for r in records["twin-networks"]]
    return [(record, result["members"]["1"], result["nearest"]) for record, result in twins]


def shown_records(records: RecordsByStudy) -> RecordsByStudy:
    """Return the records that a table or figure shows: those that `all_pair_results` uses."""
    pairs = {r["config"]["settings"]["pairs"] for r in records.get("paired-networks", ())}
    unused = {"twin-networks"} if "all" in pairs else set()
    return {study: own for study, own in records.items() if study not in unused}


def neighbor_curves(records: RecordsByStudy) -> pd.DataFrame:
    """Return dataset, split, method, neighbors, validation (error) and rmse (of test rows)."""
    rows = []
    for record, _, nearest in all_pair_results(records):
        for k, error in nearest["test"].items():
            rows.append((record, "nn_inference", int(k), nearest["validation"][k], error))
    for record in records["paired-networks"]:
        settings, result = record["config"]["settings"], record["result"]
        if settings["pairs"] == "nearest":
            method, k = "nn_train_and_inference", settings["partners"]
            rows.append((record, method, k, result["validation"], result["test"]))
    return pd.DataFrame(
        [(record["config"]["dataset"], record["config"]["split"], *rest) for record, *rest in rows],
        columns=["dataset", "split", "method", "neighbors", "validation", "rmse"],
    )


def best_neighbors(curves: pd.DataFrame, by: str) -> pd.Series:
    """Return (dataset, method) → the number of neighbors with the lowest mean error.

    `by` is "validation" or "test".
    """
    means = curves.rename(columns={"rmse": "test"})
    means = means.groupby(["dataset", "method", "neighbors"])[by].mean().reset_index()
    lowest = means.loc[means.groupby(["dataset", "method"])[by].idxmin()]
    return lowest.set_index(["dataset", "method"])["neighbors"]


def table4(records: RecordsByStudy) -> pd.DataFrame:
    """The twinned forest without loops, and with loops of Λ = 0 and of the Λ of the data set."""
    chosen = chosen_loop_weights(records)
    rows = []
    for record in records["semi-supervised-forests"]:
        dataset, loops = record["config"]["dataset"], record["result"]["loops"]
        if "fold" in record["config"]["settings"] or dataset not in chosen:
            continue
        methods = {}
        if weight_name(0.0) in loops:  # the Λ of a split may be in two records
            methods["twinned_rf_supervised"] = record["result"]["supervised"]
            methods["twinned_rf_weight_0"] = loops[weight_name(0.0)]
        if chosen[dataset] in loops:
            methods["twinned_rf_semi_supervised"] = loops[chosen[dataset]]
        rows.append((record, methods))
    return _rows(rows)


def chosen_loop_weights(records: RecordsByStudy) -> dict[str, str]:
    """Return data set → the Λ with the lowest mean error of test rows, as in the paper.

    `modern` takes the lowest mean squared error of folds of labelled rows. Only the Λ that all
    splits, and all folds, of all data sets have are compared.
    """
    is_modern = {r["config"]["variant"] for r in records["semi-supervised-forests"]} == {"modern"}
    rows = []
    for record in records["semi-supervised-forests"]:
        config = record["config"]
        trial = (config["split"], config["settings"].get("fold"))
        for name, error in record["result"]["loops"].items():
            rows.append((config["dataset"], trial, name, error**2 if is_modern else error))
    errors = pd.DataFrame(rows, columns=["dataset", "trial", "weight", "error"])
    counts = errors.groupby("weight").size()
    errors = errors[errors["weight"].isin(counts.index[counts == counts.max()])]
    of_fold = errors["trial"].map(lambda trial: trial[1] is not None)
    means = errors[of_fold == is_modern].pivot_table(
        index="dataset", columns="weight", values="error"
    )
    return {str(key): str(row.idxmin()) for key, row in means.iterrows()}


def table5(records: RecordsByStudy) -> pd.DataFrame:
    """The forest and its twin."""
    rows = _rows((record, forest_errors(record)) for record in records["forests"])
    return rows.sort_values("method", key=lambda own: own.map(METHODS.index), kind="stable")


def _rows(methods: Iterable[tuple[Record, dict[str, float]]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            (record["config"]["dataset"], record["config"]["split"], method, error)
            for record, errors in methods
            for method, error in errors.items()
        ],
        columns=["dataset", "split", "method", "rmse"],
    )
