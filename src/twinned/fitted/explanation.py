"""Comparable anchors that explain a prediction, as a table and as cases with feature values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from twinned.fitted.adjustments import attribute
from twinned.fitted.target import split_target
from twinned.fitted.twin import AnchorEstimates, Anchors, FittedTwin, Queries
from twinned.pairing.differences import difference
from twinned.rows.formatting import ResultTable
from twinned.rows.neighbors import Indices
from twinned.rows.schema import NUMERIC, Floats
from twinned.rows.validation import count_rows

COLUMNS = ("query", "anchor", "anchor_y", "difference", "estimate", "weight", "distance")
_FORMATS = {"weight": ".1%", "distance": ".3g"}
Value = float | str | None  # a number, a category, or None where the value is missing


def tabulate_comparables(
    fitted: FittedTwin,
    queries: Queries,
    n: int,
    metric: str,
    *,
    query_labels: list[Any] | None = None,
    features: list[str] | None = None,
) -> pd.DataFrame:
    """The `n` comparable anchors of each query, with their distances by a metric.

    With labels, they are those of the user's rows. With the names of the features, there are also
    columns of what each feature adds to the differences.
    """
    targets, anchor_labels = fitted.anchors.targets, fitted.anchors.labels

    def tabulate(rows: slice, block: AnchorEstimates) -> pd.DataFrame:
        return _most_important(rows, block, targets[block.indices], n)

    tables: list[pd.DataFrame] = fitted.map_estimates(tabulate, queries, metric)
    table = pd.concat(tables, ignore_index=True)
    parts = [table]
    if features is not None:
        reserved = {*COLUMNS, "label", "output"}
        names = [f"{name} (feature)" if name in reserved else name for name in features]
        parts.append(pd.DataFrame(_adjustments(fitted, queries, table), columns=names))
    if anchor_labels is not None:  # the dtype is that of all labels
        table["label"] = pd.Series(anchor_labels).take(table["anchor"].to_numpy()).array
    if query_labels is not None:
        table["query"] = [query_labels[i] for i in table["query"]]
    return ResultTable.create(pd.concat(parts, axis=1), _FORMATS)


def _most_important(rows: slice, block: AnchorEstimates, anchor_y: Floats, n: int) -> pd.DataFrame:
    """Table of the `n` anchors of largest weight of each query, nearest first among equals.

    `rows` are those of the queries, and `anchor_y` is (query, anchor, output). Several outputs have
    rows of their own and a column `output`.
    """
    order = np.lexsort((block.indices, block.distances, -block.weights), axis=-1)[:, :n]
    shape = n_queries, n_outputs, n_chosen = len(order), anchor_y.shape[-1], order.shape[1]

    def flatten(values: Floats | Indices) -> np.ndarray:
        """(query, anchor, output or 1) → one value per row of the table."""
        best = np.take_along_axis(values, order[..., None], axis=1)
        return np.broadcast_to(best.transpose(0, 2, 1), shape).ravel()

    known_y, estimates = flatten(anchor_y), flatten(block.estimates)
    table = pd.DataFrame(
        {
            "query": np.repeat(np.arange(rows.start, rows.stop), n_outputs * n_chosen),
            "output": np.tile(np.repeat(np.arange(n_outputs), n_chosen), n_queries),
            "anchor": flatten(block.indices[..., None]),
            "anchor_y": known_y,
            "difference": difference(estimates, known_y),
            "estimate": estimates,
            "weight": flatten(block.weights[..., None]),
            "distance": flatten(block.distances[..., None]),
        }
    )
    return table if n_outputs > 1 else table.drop(columns="output")


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
        content = {
            "anchor": self.anchor,
            "label": self.label,
            "known": self.known,
            "difference": self.difference,
            "estimate": self.estimate,
            "weight": self.weight,
            "columns": self.values,
        }
        return {**content, "adjustments": self.adjustments} if self.adjustments else content


def comparable_cases(
    model: BaseEstimator, X: Any, n: int, *, adjustments: bool = True
) -> list[list[ComparableCase]]:
    """The `n` comparable cases of each row of X, as `explain` of a twin of one output has them.

    Of a model with a transformed target, all values are those of the target itself.
    """
    twin, target = split_target(model)
    table = twin.explain(X, n=n, adjustments=adjustments)
    anchors, names = twin.fitted_.anchors, twin.feature_labels()
    known_y, estimates = target.invert(table[["anchor_y", "estimate"]].to_numpy()).T
    by_feature: list[dict[str, float]] = [{} for _ in known_y]
    if adjustments:
        parts = table.iloc[:, -len(names) :].to_numpy()
        parts = target.invert_adjustments(parts, known_y, estimates)
        by_feature = [dict(zip(names, row, strict=True)) for row in parts.tolist()]
    columns = (table["anchor"], known_y, estimates, table["weight"])
    cases = [
        ComparableCase(
            anchor=anchor,
            label=anchor_label(anchors, anchor),
            known=known,
            estimate=estimate,
            weight=weight,
            values=decode_row(anchors, anchor, names),
            adjustments=case_adjustments,
        )
        for anchor, known, estimate, weight, case_adjustments in zip(
            *(column.tolist() for column in columns), by_feature, strict=True
        )
    ]
    n_each = len(cases) // count_rows(X)
    return [cases[start : start + n_each] for start in range(0, len(cases), n_each)]


def anchor_label(anchors: Anchors, anchor: int) -> str:
    """The label of a training row, or its number, counted from 1. Added rows may have no label."""
    if anchors.labels is None:
        return f"row {anchor + 1}"
    label = anchors.labels[anchor]
    return "added row" if label == "" else str(label)


def decode_row(anchors: Anchors, anchor: int, names: list[str]) -> dict[str, Value]:
    """The values of an anchor by the names of the features."""
    schema, row = anchors.schema, anchors.X[anchor].tolist()
    values: dict[str, Value] = {}
    columns = zip(names, schema.kinds, schema.categories, row, strict=True)
    for name, kind, categories, value in columns:
        is_category = kind != NUMERIC and 0 <= value < len(categories)
        known_number = value if kind == NUMERIC and value == value else None
        values[name] = str(categories[int(value)]) if is_category else known_number
    return values
