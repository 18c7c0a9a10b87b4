"""Comparable anchors that explain a prediction."""

from __future__ import annotations

import numpy as np
import pandas as pd

from twinned._neighbors import Indices
from twinned._table import Floats
from twinned.pairing.differences import difference


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
