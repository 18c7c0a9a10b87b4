"""Comparable anchors that explain a prediction, as a table and as cases with feature values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from twinned.fitted.adjustments import attribute, from_logarithm
from twinned.fitted.twin import AnchorEstimates, Anchors, FittedTwin, Queries
from twinned.pairing.differences import difference
from twinned.rows.formatting import ResultTable
from twinned.rows.schema import NUMERIC, Floats, TableSchema
from twinned.rows.validation import count_rows

COLUMNS = ("query", "anchor", "anchor_y", "difference", "estimate", "weight", "distance")
_FORMATS = {"weight": ".1%", "distance": ".3g"}
Value = float | str | None  # a number, a category, or None where the value is missing


def explain(
    fitted: FittedTwin,
    queries: Queries,
    n: int,
    metric: str,
    *,
    query_labels: list[Any] | None = None,
    adjustment_names: list[str] | None = None,
) -> pd.DataFrame:
    """The `n` comparable anchors of each query, with their distances by a metric.

    With the names of the features, also what each feature adds to the differences.
    """
    targets = fitted.anchors.targets

    def tabulate(rows: slice, block: AnchorEstimates) -> pd.DataFrame:
        table = comparables(block, targets[block.indices], n)
        return table.assign(query=table["query"] + rows.start)

    tables: list[pd.DataFrame] = fitted.map_estimates(tabulate, queries, metric)
    table = pd.concat(tables, ignore_index=True)
    adjustments = None
    if adjustment_names is not None:
        adjustments = _adjustments(fitted, queries, table)
    return label_rows(table, query_labels, fitted.anchors.labels, adjustment_names, adjustments)


def comparables(block: AnchorEstimates, anchor_y: Floats, n: int) -> pd.DataFrame:
    """Table of the `n` anchors of largest weight of each query, nearest first among equals.

    `anchor_y` is (query, anchor, output). Several outputs have rows of their own and a column
    `output`.
    """
    order = np.lexsort((block.indices, block.distances, -block.weights), axis=-1)[:, :n]
    n_queries, n_chosen = order.shape
    n_outputs = anchor_y.shape[-1]

    def chosen(values: Any) -> Any:
        """(query, anchor) → one value per row of the table, repeated for each output."""
        best = np.take_along_axis(values, order, axis=1)
        return np.repeat(best[:, None], n_outputs, axis=1).ravel()

    def chosen_outputs(values: Floats) -> Floats:
        best = np.take_along_axis(values, order[..., None], axis=1)
        return best.transpose(0, 2, 1).ravel()

    known_y, estimates = chosen_outputs(anchor_y), chosen_outputs(block.estimates)
    table = pd.DataFrame(
        {
            "query": np.repeat(np.arange(n_queries), n_outputs * n_chosen),
            "output": np.tile(np.repeat(np.arange(n_outputs), n_chosen), n_queries),
            "anchor": chosen(block.indices),
            "anchor_y": known_y,
            "difference": difference(estimates, known_y),
            "estimate": estimates,
            "weight": chosen(block.weights),
            "distance": chosen(block.distances),
        }
    )
    return table if n_outputs > 1 else table.drop(columns="output")


def no_comparables(anchors: Anchors, features: list[str] | None) -> pd.DataFrame:
    """A table of comparables without rows, of which the columns and dtypes are known.

    `features` are the names of the columns of adjustments.
    """
    values, outputs = np.empty((0, 1)), np.empty((0, 1, anchors.targets.shape[1]))
    block = AnchorEstimates(np.empty((0, 1), dtype=np.intp), outputs, values, values)
    adjustments = None if features is None else np.empty((0, len(features)))
    labels = anchors.labels
    table = label_rows(comparables(block, outputs, 1), None, labels, features, adjustments)
    return table if labels is None else table.astype({"label": pd.Series(labels).dtype})


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
    columns = pd.DataFrame(adjustments, columns=names)
    return ResultTable.create(pd.concat([table, columns], axis=1), _FORMATS)


def _adjustments(fitted: FittedTwin, queries: Queries, table: pd.DataFrame) -> Floats:
    """(row of the table of comparables, feature): what each feature adds to the difference."""
    n_outputs = fitted.anchors.targets.shape[1]
    by_output = np.arange(len(table)).reshape(len(queries), n_outputs, -1)
    rows = by_output.transpose(0, 2, 1).reshape(-1, n_outputs)  # (pair, output)
    query, anchor = (table[name].to_numpy()[rows[:, 0]] for name in ("query", "anchor"))
    first = replace(queries, matrix=queries.matrix[query])
    second = replace(queries, matrix=fitted.anchors.X[anchor])
    by_feature = attribute_difference(fitted, first, second, table["difference"].to_numpy()[rows])
    result = np.empty((len(table), by_feature.shape[1]))
    result[rows] = by_feature.transpose(0, 2, 1)
    return result


def attribute_difference(
    fitted: FittedTwin, first: Queries, second: Queries, differences: Floats | None = None
) -> Floats:
    """(pair, feature, output): what each feature adds to F(first, second).

    `differences` (pair, output) are F(first, second), where they are known already.
    """

    def predict(mixed: Floats, anchors: Floats) -> Floats:
        sides = (replace(first, matrix=side) for side in (mixed, anchors))
        return fitted.predict_difference(*sides)[0]

    if differences is None:
        differences = fitted.predict_difference(first, second)[0]
    return attribute(predict, first.matrix, second.matrix, differences)


# --- cases ----------------------------------------------------------------------------------------


class ComparableCase(NamedTuple):
    """A known row, its value, and its estimate of the value of a query."""

    anchor: int
    label: str
    known: float
    estimate: float
    weight: float  # share of the prediction
    values: dict[str, Value]  # of its features
    adjustments: dict[str, float]  # by feature, which sum to estimate − known; or none at all

    @property
    def difference(self) -> float:
        """What the features add to the known value together."""
        return self.estimate - self.known

    def as_dict(self) -> dict[str, Any]:
        """The case as plain values for JSON."""
        return {
            "anchor": self.anchor,
            "label": self.label,
            "known": self.known,
            "difference": self.difference,
            "estimate": self.estimate,
            "weight": self.weight,
            "columns": self.values,
            **({"adjustments": self.adjustments} if self.adjustments else {}),
        }


def comparable_cases(
    twin: Any, X: Any, n: int, *, log_target: bool = False, adjustments: bool = True
) -> list[list[ComparableCase]]:
    """The `n` comparable cases of each row of X, as `explain` of a twin of one output has them.

    With `log_target`, the twin is fitted to the logarithm of the target, and all values are those
    of the target itself.
    """
    table = twin.explain(X, n=n, adjustments=adjustments)
    anchors, names = twin.fitted_.anchors, twin.feature_labels()
    known_y, estimates = (table[name].to_numpy() for name in ("anchor_y", "estimate"))
    parts = table.iloc[:, -len(names) :].to_numpy() if adjustments else None
    if log_target:
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite estimate is one
            known_y, estimates = np.exp(known_y), np.exp(estimates)
            parts = None if parts is None else from_logarithm(parts, known_y, estimates)
    cases = [
        ComparableCase(
            anchor=int(anchor),
            label=anchor_label(anchors, int(anchor)),
            known=float(known_y[i]),
            estimate=float(estimates[i]),
            weight=float(weight),
            values=decode_row(anchors.schema, anchors.X[anchor], names),
            adjustments={} if parts is None else dict(zip(names, parts[i].tolist(), strict=True)),
        )
        for i, (anchor, weight) in enumerate(zip(table["anchor"], table["weight"], strict=True))
    ]
    n_each = len(cases) // count_rows(X)
    return [cases[start : start + n_each] for start in range(0, len(cases), n_each)]


def anchor_label(anchors: Anchors, anchor: int) -> str:
    """The label of a training row, or its number, counted from 1. Added rows may have no label."""
    if anchors.labels is None:
        return f"row {anchor + 1}"
    label = anchors.labels[anchor]
    return "added row" if label == "" else str(label)


def decode_row(schema: TableSchema, row: Floats, names: list[str]) -> dict[str, Value]:
    """The values of an encoded row (feature,) by the names of the features."""
    parts = zip(names, schema.kinds, schema.categories, row.tolist(), strict=True)
    return {name: _decode(kind, categories, value) for name, kind, categories, value in parts}


def _decode(kind: str, categories: list[Any], value: float) -> Value:
    if np.isnan(value):
        return None
    if kind == NUMERIC:
        return value
    return str(categories[int(value)]) if 0 <= value < len(categories) else None
