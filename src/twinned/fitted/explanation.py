"""Comparable anchors that explain a prediction, as a table and as cases, and their adjustments.

An adjustment is the part of a predicted difference that is attributed to a feature in which query
and anchor differ. Features are switched from the values of the anchor to those of the query, one
after the other, and the adjustment of a feature is the mean change of F over orders of switching.
Up to seven features it is the mean over all orders, the Shapley value; beyond, over fixed random
orders and their reverses. The changes of an order sum to F(query, anchor). Where the difference to
explain is another one, as that to the out-of-fold prediction of the anchor, the rest is divided
among the features in proportion to the size of their adjustments.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from math import factorial
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from twinned.batches.effects import BatchEffects
from twinned.fitted.anchors import AnchorEstimates, Anchors
from twinned.fitted.twin import FittedTwin
from twinned.pairing.differences import difference
from twinned.rows.folds import distinct_rows
from twinned.rows.formatting import ResultTable, shorten
from twinned.rows.neighbors import LEARNED, Indices
from twinned.rows.schema import NUMERIC, Floats, Queries

OTHERS = "all other cases"  # label of the last row of each query
BATCH = "batch (offset)"  # name of the value and the adjustment of a batch
COLUMNS = ("query", "anchor", "anchor_y", "difference", "estimate", "weight", "distance", "count")
_MAX_LABEL = 24  # characters
RESERVED = {*COLUMNS, "label", "output", "offset", "query_deviation", "anchor_deviation"}
Value = float | str | None  # a number, a category, or None where the value is missing
MAX_EXACT = 7  # features whose orders are all taken
_MIXTURES_PER_PAIR = 2**MAX_EXACT  # about as many for more features
_MIXTURES_PER_BLOCK = 32_768
_ROUNDING = 1e-13  # a smaller adjustment, relative to the largest difference, is none


def tabulate_comparables(
    fitted: FittedTwin,
    queries: Queries,
    n: int,
    metric: str,
    *,
    query_labels: list[object] | None = None,
    features: list[str] | None = None,
) -> pd.DataFrame:
    """The `n` comparable cases of each query, with their distances by a metric, and all others.

    With labels, they are those of the user's rows. With the names of the features, there are also
    columns of what each feature adds to the differences. All values are in units of y.
    """
    anchors, anchor_labels = fitted.anchors, fitted.anchors.labels
    known_y = fitted.known_y.reshape(len(anchors), -1)
    copies = distinct_rows(
        np.column_stack([anchors.matrix, anchors.outputs, fitted.anchor_offsets])
    )
    if fitted.nearest is not None:  # the copies of a row may not be among the anchors of a query
        copies = (np.arange(len(anchors)),) * 2

    def tabulate(rows: slice, block: AnchorEstimates) -> pd.DataFrame:
        return tabulate_estimates(rows, block, known_y, n, *copies)

    tables: list[pd.DataFrame] = fitted.map_estimates(tabulate, queries, metric)
    table = pd.concat(tables, ignore_index=True)
    if fitted.batches is not None:
        offset = np.zeros(len(queries)) if queries.offset is None else queries.offset
        table.insert(3, "offset", offset_differences(fitted, offset, table))
        query, anchor = table["query"].to_numpy(), table["anchor"].to_numpy()
        of_anchor = np.where(anchor < 0, np.nan, fitted.anchor_offsets[anchor])
        table.insert(4, "query_deviation", offset[query] - fitted.batches.center)
        table.insert(5, "anchor_deviation", of_anchor - fitted.batches.center)
    parts = [table]
    if features is not None:
        names = [f"{name} (feature)" if name in RESERVED else name for name in features]
        parts.append(pd.DataFrame(tabulate_adjustments(fitted, queries, table), columns=names))
    if anchor_labels is not None:  # the dtype is that of all labels
        is_other, anchor = table["anchor"] < 0, table["anchor"].to_numpy()
        labels = pd.Series(anchor_labels).take(anchor).array
        table["label"] = pd.Series(labels).mask(is_other, OTHERS) if is_other.any() else labels
    if query_labels is not None:
        table["query"] = [query_labels[i] for i in table["query"]]
    return ResultTable(pd.concat(parts, axis=1))


def offset_differences(fitted: FittedTwin, offset: Floats, table: pd.DataFrame) -> Floats:
    """(row of the table,): what the batch of the query adds to the value of the anchor.

    `offset` (query,) are the offsets of the queries.
    """
    anchor, known_y = table["anchor"].to_numpy(), table["anchor_y"].to_numpy()
    of_anchor = np.where(anchor < 0, np.nan, fitted.anchor_offsets[anchor])
    y = fitted.target.apply(known_y) + offset[table["query"]] - of_anchor
    return fitted.target.invert(y) - known_y


def tabulate_estimates(
    rows: slice, block: AnchorEstimates, known_y: Floats, n: int, first: Indices, codes: Indices
) -> pd.DataFrame:
    """Table of the `n` cases of largest weight of each query, nearest first among equals.

    `rows` are those of the queries, and `known_y` is (anchor, output). `first` and `codes` are
    those of copies, which are one case, selected by the weight of the first. A last row of each
    query, with the anchor −1, is the weighted mean of all other cases. Several outputs have rows of
    their own and a column `output`.
    """
    n_outputs, row_weights = known_y.shape[1], block.weights
    if len(first) < len(codes):
        block, row_weights = _merge_copies(block, first, codes), row_weights[:, first]
    counts = np.bincount(codes)[codes[block.indices]]
    order = np.lexsort((block.indices, block.distances, -row_weights), axis=-1)
    chosen, rest = order[:, :n], order[:, n:]
    rest_weights = np.take_along_axis(block.weights, rest, axis=1)

    def flatten(values: np.ndarray, last: ArrayLike | None = None) -> np.ndarray:
        """(query, anchor, output or 1) → one value per row of the table.

        `last` (query, output or 1) is that of all other cases, or None for their mean.
        """
        parts = [np.take_along_axis(values, chosen[..., None], axis=1)]
        if rest.shape[1]:
            if last is None:
                others = np.take_along_axis(values, rest[..., None], axis=1)
                last = _weighted_mean(others, rest_weights)
            parts.append(np.broadcast_to(last, (len(order), values.shape[2]))[:, None])
        each = np.concatenate(parts, axis=1).transpose(0, 2, 1)
        return np.broadcast_to(each, (len(order), n_outputs, each.shape[-1])).ravel()

    estimates, anchor_y = flatten(block.estimates), flatten(known_y[block.indices])
    n_cases = chosen.shape[1] + (rest.shape[1] > 0)
    n_rest = np.take_along_axis(counts, rest, axis=1).sum(axis=1, keepdims=True)
    table = pd.DataFrame(
        {
            "query": np.repeat(np.arange(rows.start, rows.stop), n_outputs * n_cases),
            "output": np.tile(np.repeat(np.arange(n_outputs), n_cases), len(order)),
            "anchor": flatten(block.indices[..., None], -1),
            "anchor_y": anchor_y,
            "difference": difference(estimates, anchor_y),
            "estimate": estimates,
            "weight": flatten(block.weights[..., None], rest_weights.sum(axis=1, keepdims=True)),
            "distance": flatten(block.distances[..., None], np.nan),
            "count": flatten(counts[..., None], n_rest),
        }
    )
    return table if n_outputs > 1 else table.drop(columns="output")


def _weighted_mean(values: np.ndarray, weights: Floats) -> Floats:
    """(query, anchor, output) → (query, output); the plain mean where all weights are zero."""
    total = weights.sum(axis=1, keepdims=True)
    shares = np.where(total > 0, weights / np.where(total > 0, total, 1.0), 1 / weights.shape[1])
    return np.einsum("ij,ijk->ik", shares, values)


def _merge_copies(block: AnchorEstimates, first: Indices, codes: Indices) -> AnchorEstimates:
    """The estimates of distinct rows, for queries that use all anchors."""
    order = np.argsort(codes, kind="stable")
    starts = np.searchsorted(codes[order], np.arange(len(first)))
    weights = np.add.reduceat(block.weights[:, order], starts, axis=1)
    total, counts = weights[:, codes], np.bincount(codes)[codes]
    shares = np.where(total > 0, block.weights / np.where(total > 0, total, 1.0), 1 / counts)
    estimates = np.add.reduceat((shares[..., None] * block.estimates)[:, order], starts, axis=1)
    return AnchorEstimates(block.indices[:, first], estimates, weights, block.distances[:, first])


def tabulate_adjustments(fitted: FittedTwin, queries: Queries, table: pd.DataFrame) -> Floats:
    """(row of a table of comparables, feature): what each feature adds to the difference.

    They are NaN for all other cases.
    """
    query, anchor = (table[name].to_numpy() for name in ("query", "anchor"))
    cases = np.flatnonzero(anchor >= 0)
    rows = cases[np.lexsort((anchor[cases], query[cases]))]
    rows = rows.reshape(-1, fitted.anchors.outputs.shape[1])  # (pair, output)
    known_y, estimates = table[["anchor_y", "estimate"]].to_numpy().T
    target = fitted.target
    if fitted.batches is not None:  # in the batch of the query
        known_y = known_y + table["offset"].to_numpy()
    differences = difference(target.apply(estimates), target.apply(known_y))

    def predict(mixed: Floats, anchors: Floats) -> Floats:
        sides = (replace(queries, matrix=side) for side in (mixed, anchors))
        return fitted.predict_difference(*sides)[0]

    first, second = queries.matrix[query[rows[:, 0]]], fitted.anchors.matrix[anchor[rows[:, 0]]]
    by_feature = attribute(predict, first, second, differences[rows])
    result = np.full((len(table), by_feature.shape[1]), np.nan)
    result[rows] = by_feature.transpose(0, 2, 1)
    return target.invert_adjustments(result, known_y, estimates)


# --- cases ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComparableCase:
    """A known row, its value, and its estimate of the value of a query."""

    anchor: int
    label: str
    known: float
    estimate: float
    weight: float  # share of the prediction
    count: int  # of equal rows
    values: dict[str, Value]  # of its features
    adjustments: dict[str, float]  # by feature, which sum to estimate − known; or none at all
    pair: str = ""  # of molecules that differ in one group: this one, and that of the query

    @property
    def difference(self) -> float:
        """What the features add to the known value together."""
        return self.estimate - self.known

    def as_dict(self) -> dict[str, object]:
        """The case as plain values for JSON."""
        content = {**vars(self), "difference": self.difference, "columns": self.values}
        optional = {name for name in ("adjustments", "pair") if not content[name]}
        return {name: content[name] for name in content if name not in {"values", *optional}}


@dataclass(frozen=True)
class ComparableCases:
    """The comparable cases of a query, and all other cases, whose values are weighted means."""

    cases: list[ComparableCase]
    others: ComparableCase | None  # None where all cases are shown

    @property
    def with_others(self) -> list[ComparableCase]:
        """These cases and, as the last one, all others."""
        return self.cases if self.others is None else [*self.cases, self.others]

    @property
    def share(self) -> float:
        """The share of the cases in the weight of the prediction."""
        return sum(case.weight for case in self.cases)

    @property
    def estimate(self) -> float:
        """The weighted mean of the estimates of these cases alone."""
        return sum(case.weight * case.estimate for case in self.cases) / self.share

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON."""
        return {
            "comparables": [case.as_dict() for case in self.cases],
            "share": self.share,
            "comparables_estimate": self.estimate,
            "others": None if self.others is None else self.others.as_dict(),
        }


def find_comparables(
    twin: BaseEstimator,
    X: ArrayLike,
    n: int,
    *,
    batch: ArrayLike | None = None,
    adjustments: bool = True,
) -> list[ComparableCases]:
    """The `n` comparable cases of each row of X, as `explain` of a twin of one output has them."""
    fitted, names, queries = twin.fitted_, twin.feature_labels(), twin.encode(X, batch=batch)
    table = tabulate_comparables(fitted, queries, n, LEARNED)
    by_feature = np.full((len(table), len(names)), np.nan)
    if adjustments:
        by_feature = tabulate_adjustments(fitted, queries, table)
    return group_cases(table, by_feature, fitted.anchors, names, fitted.batches)


def group_cases(
    table: pd.DataFrame,
    adjustments: Floats,
    anchors: Anchors,
    names: list[str],
    batches: BatchEffects | None = None,
) -> list[ComparableCases]:
    """The rows of a table of comparables as the cases of each query.

    `adjustments` (row, feature) are NaN in rows without them. With batches, the name of the batch
    is the last value of a case, and what the batch of the query adds the last adjustment.
    """
    numbers = "anchor", "anchor_y", "estimate", "weight", "count"
    columns = (table[name].tolist() for name in numbers)
    cases, all_names = [], names
    if batches is not None:
        adjustments = np.column_stack([adjustments, table["offset"]])
        all_names = [*names, BATCH]
    for anchor, known, estimate, weight, count, row in zip(*columns, adjustments, strict=True):
        label, values = anchor_label(anchors, anchor), decode_row(anchors, anchor, names, batches)
        parts = {} if np.isnan(row).any() else dict(zip(all_names, row.tolist(), strict=True))
        cases.append(ComparableCase(anchor, label, known, estimate, weight, count, values, parts))
    found = []
    for _, rows in sorted(table.groupby("query").indices.items()):
        shown = [cases[i] for i in rows]
        others = shown.pop() if shown[-1].anchor < 0 else None
        found.append(ComparableCases(shown, others))
    return found


def name_case(label: str, count: int) -> str:
    """A short label, with the number of rows where there are several.

    >>> name_case("house 7", 3), name_case("house 8", 1)
    ('house 7 (3 rows)', 'house 8')
    """
    return shorten(label, _MAX_LABEL) + (f" ({count:,} rows)" if count > 1 else "")


def anchor_label(anchors: Anchors, anchor: int) -> str:
    """The label of a training row, or its number, counted from 1. Added rows may have no label."""
    if anchor < 0:
        return OTHERS
    if anchors.labels is None:
        return f"row {anchor + 1}"
    label = anchors.labels[anchor]
    return "added row" if label == "" else str(label)


def decode_row(
    anchors: Anchors, anchor: int, names: list[str], batches: BatchEffects | None = None
) -> dict[str, Value]:
    """The values of an anchor by the names of the features, and its batch; none of all others."""
    if anchor < 0:
        return {}
    schema, row = anchors.schema, anchors.matrix[anchor].tolist()
    values: dict[str, Value] = {}
    columns = zip(names, schema.kinds, schema.categories, row, strict=True)
    for name, kind, categories, value in columns:
        is_category = kind != NUMERIC and 0 <= value < len(categories)
        known_number = value if kind == NUMERIC and value == value else None
        values[name] = str(categories[int(value)]) if is_category else known_number
    if batches is not None and anchors.batch is not None:
        values[BATCH] = batches.names[anchors.batch[anchor]]
    return values


class SwitchingPlan(NamedTuple):
    """Sets of switched features whose differences give the adjustments of d features.

    The adjustments are `coefficients` (d, set + 1) times the differences of the sets and that of
    all features, which comes last. No switched feature is no difference.
    """

    sets: NDArray[np.bool_]  # (set, d)
    coefficients: Floats


@lru_cache(maxsize=64)
def switching_plan(d: int) -> SwitchingPlan:
    """The plan for d features that differ.

    >>> switching_plan(2).sets
    array([[ True, False],
           [False,  True]])
    >>> switching_plan(2).coefficients
    array([[ 0.5, -0.5,  0.5],
           [-0.5,  0.5,  0.5]])
    """
    return _all_orders(d) if d <= MAX_EXACT else _random_orders(d)


def _all_orders(d: int) -> SwitchingPlan:
    """Shapley values: each set counts by the share of orders that begin with its features."""
    sets = (np.arange(1, 2**d)[:, None] >> np.arange(d)) % 2 == 1
    size = sets.sum(axis=1)
    share = [factorial(s) * factorial(d - 1 - s) / factorial(d) for s in range(d)] + [0.0]
    gains, losses = np.array([share[s - 1] for s in size]), np.array([share[s] for s in size])
    return SwitchingPlan(sets[:-1], np.where(sets, gains[:, None], -losses[:, None]).T)


def _random_orders(d: int) -> SwitchingPlan:
    """Changes along fixed random orders and their reverses."""
    rng = np.random.RandomState(0)
    drawn = [rng.permutation(d) for _ in range(max(1, _MIXTURES_PER_PAIR // (2 * (d - 1))))]
    orders = np.array([order for each in drawn for order in (each, each[::-1])])
    rank = np.argsort(orders, axis=1)[:, None]  # (order, 1, feature)
    step = np.arange(d + 1)[:, None]  # how many features are switched
    changes = (1.0 * (step == rank + 1) - (step == rank)) / len(orders)  # (order, step, feature)
    coefficients = np.vstack([changes[:, 1:d].reshape(-1, d), changes[:, d].sum(axis=0)]).T
    return SwitchingPlan((rank < step[1:d]).reshape(-1, d), coefficients)


def attribute(
    predict_difference: Callable[[Floats, Floats], Floats],
    queries: Floats,
    anchors: Floats,
    totals: Floats,
) -> Floats:
    """(pair, feature, output): adjustments, which sum to the (pair, output) totals over features.

    `predict_difference` returns the (row, output) F of two matrices, row by row. `queries` and
    `anchors` are (pair, feature), with categories as codes. Where no adjustment has a size, the
    features that differ share the total equally; where none differs, all features do.
    """
    n_features = queries.shape[1]
    differences = predict_difference(queries, anchors)
    differs = (queries != anchors) & ~(np.isnan(queries) & np.isnan(anchors))
    differing = np.flatnonzero(differs.any(axis=1))
    result = np.zeros((len(queries), n_features, totals.shape[1]))
    step = max(1, _MIXTURES_PER_BLOCK // max(_MIXTURES_PER_PAIR, 2 * n_features))
    for start in range(0, len(differing), step):
        pairs = differing[start : start + step]
        plans = [switching_plan(int(d)) for d in differs[pairs].sum(axis=1)]
        counts = [len(plan.sets) for plan in plans]
        mixtures = np.repeat(anchors[pairs], counts, axis=0)
        second = mixtures.copy()
        ends = np.cumsum(counts)
        for i, plan, rows in zip(pairs, plans, np.split(mixtures, ends[:-1]), strict=True):
            rows[:, differs[i]] = np.where(plan.sets, queries[i, differs[i]], rows[:, differs[i]])
        values = predict_difference(mixtures, second) if len(mixtures) else differences[:0]
        for i, plan, of_sets in zip(pairs, plans, np.split(values, ends[:-1]), strict=True):
            known = np.vstack([of_sets, differences[i]])
            adjustments = plan.coefficients @ known
            is_rounding = np.abs(adjustments) <= _ROUNDING * np.abs(known).max(axis=0)
            result[i, differs[i]] = np.where(is_rounding, 0.0, adjustments)
    size = np.abs(result)
    equal_shares = differs | ~differs.any(axis=1, keepdims=True)
    size = np.where(size.sum(axis=1, keepdims=True) > 0, size, equal_shares[..., None])
    share = size / size.sum(axis=1, keepdims=True)
    return result + share * (totals - result.sum(axis=1))[:, None]
