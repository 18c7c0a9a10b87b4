"""Comparable known cases of each query in units of the target, with decoded feature values."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from twinned.estimators.adjustments import from_logarithm
from twinned.estimators.explain import feature_labels
from twinned.rows.schema import NUMERIC, Floats, TableSchema
from twinned.rows.validation import count_rows

Value = float | str | None  # a number, a category, or None where the value is missing


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
    names = feature_labels(twin, twin._schema.n_features)
    known, estimates = (table[name].to_numpy() for name in ("anchor_y", "estimate"))
    parts = table.iloc[:, -len(names) :].to_numpy() if adjustments else None
    if log_target:
        with np.errstate(over="ignore", invalid="ignore"):  # an infinite estimate is one
            known, estimates = np.exp(known), np.exp(estimates)
            parts = None if parts is None else from_logarithm(parts, known, estimates)
    cases = [
        ComparableCase(
            anchor=int(anchor),
            label=anchor_label(twin, int(anchor)),
            known=float(known[i]),
            estimate=float(estimates[i]),
            weight=float(weight),
            values=decode_row(twin._schema, twin.anchors_X_[anchor], names),
            adjustments={} if parts is None else dict(zip(names, parts[i].tolist(), strict=True)),
        )
        for i, (anchor, weight) in enumerate(zip(table["anchor"], table["weight"], strict=True))
    ]
    n_each = len(cases) // count_rows(X)
    return [cases[start : start + n_each] for start in range(0, len(cases), n_each)]


def anchor_label(twin: Any, anchor: int) -> str:
    """The label of a training row, or its number, counted from 1. Added rows may have no label."""
    labels = twin.anchor_labels_
    if labels is None:
        return f"row {anchor + 1}"
    return "added row" if labels[anchor] == "" else str(labels[anchor])


def decode_row(schema: TableSchema, row: Floats, names: list[str]) -> dict[str, Value]:
    """The values of an encoded row (feature,) by the names of the features."""
    parts = zip(names, schema.kinds, schema.categories, row.tolist(), strict=True)
    return {name: _decode(kind, known, value) for name, kind, known, value in parts}


def _decode(kind: str, categories: list[Any], value: float) -> Value:
    if np.isnan(value):
        return None
    if kind == NUMERIC:
        return value
    return str(categories[int(value)]) if 0 <= value < len(categories) else None
