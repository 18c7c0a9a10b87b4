"""Comparable anchors that explain a prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from twinned.pairing.differences import difference
from twinned.rows.formatting import ResultTable
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

COLUMNS = ("query", "anchor", "anchor_y", "difference", "estimate", "weight", "distance")
_FORMATS = {"weight": ".1%", "distance": ".3g"}


def comparables(
    anchors: Indices,
    anchor_y: Floats,
    estimates: Floats,
    weights: Floats,
    distances: Floats,
    n: int,
) -> pd.DataFrame:
    """Table of the `n` anchors of largest weight of each query, nearest first among equals.

    All arrays are (query, anchor); `anchor_y` and `estimates` have an output axis last. Several
    outputs have rows of their own and a column `output`.
    """
    share = weights / weights.sum(axis=1, keepdims=True)
    order = np.lexsort((anchors, distances, -share), axis=-1)[:, :n]
    n_queries, n_chosen = order.shape
    n_outputs = estimates.shape[-1]

    def chosen(values: Floats | Indices) -> Floats | Indices:
        """(query, anchor) → one value per row of the table, repeated for each output."""
        best = np.take_along_axis(values, order, axis=1)
        return np.repeat(best[:, None], n_outputs, axis=1).ravel()

    def chosen_outputs(values: Floats) -> Floats:
        best = np.take_along_axis(values, order[..., None], axis=1)
        return best.transpose(0, 2, 1).ravel()

    known, estimated = chosen_outputs(anchor_y), chosen_outputs(estimates)
    table = pd.DataFrame(
        {
            "query": np.repeat(np.arange(n_queries), n_outputs * n_chosen),
            "output": np.tile(np.repeat(np.arange(n_outputs), n_chosen), n_queries),
            "anchor": chosen(anchors),
            "anchor_y": known,
            "difference": difference(estimated, known),
            "estimate": estimated,
            "weight": chosen(share),
            "distance": chosen(distances),
        }
    )
    return table if n_outputs > 1 else table.drop(columns="output")


def no_comparables(
    anchors_y: Floats, labels: list[Any] | None, features: list[str] | None
) -> pd.DataFrame:
    """A table of comparables without rows, of which the columns and dtypes are known.

    `labels` are those of the anchors, and `features` the names of the columns of adjustments.
    """
    values, indices = np.empty((0, 1)), np.empty((0, 1), dtype=np.intp)
    outputs = np.empty((0, 1, 1 if anchors_y.ndim == 1 else anchors_y.shape[1]))
    table = comparables(indices, outputs, outputs, values, values, 1)
    adjustments = None if features is None else np.empty((0, len(features)))
    table = label_rows(table, None, labels, features, adjustments)
    return table if labels is None else table.astype({"label": pd.Series(labels).dtype})


def feature_labels(estimator: Any, n_features: int) -> list[str]:
    """Names of the features, or x0, x1, … where the training table had none."""
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{j}" for j in range(n_features)] if names is None else [str(name) for name in names]


def label_rows(
    table: pd.DataFrame,
    queries: list[Any] | None,
    anchors: list[Any] | None,
    features: list[str] | None,
    adjustments: Floats | None,
) -> pd.DataFrame:
    """The table of comparables with the labels of the user's rows, and with adjustments.

    `queries` and `anchors` are labels of rows; `adjustments` are (row of the table, feature).
    """
    if queries is not None:
        table = table.assign(query=[queries[i] for i in table["query"]])
    if anchors is not None:
        table = table.assign(label=[anchors[i] for i in table["anchor"]])
    if features is None or adjustments is None:
        return ResultTable.create(table, _FORMATS)
    reserved = {*COLUMNS, "label", "output"}
    names = [f"{name} (feature)" if name in reserved else name for name in features]
    own = pd.DataFrame(adjustments, columns=names)
    return ResultTable.create(pd.concat([table, own], axis=1), _FORMATS)
