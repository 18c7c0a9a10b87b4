"""Features of pairs, the sign convention F(a, b) = y(a) − y(b), and the mean of estimates.

No other module adds, subtracts or negates differences by itself.
"""

from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twinned.rows.schema import Floats, Indices, Rows, TableSchema
from twinned.rows.validation import check_choice


def difference(first: Floats, second: Floats) -> Floats:
    """y(a) − y(b), the target of F(a, b)."""
    return first - second


def both_orders(forward: Floats, backward: Floats) -> Floats:
    """(2, ...): F(a, b) and −F(b, a), two estimates of y(a) − y(b).

    Their mean is antisymmetric to the last bit.

    >>> both_orders(np.array([3.0]), np.array([-2.0])).mean(axis=0)
    array([2.5])
    """
    return np.stack([forward, -backward])


def estimate(predicted_difference: Floats, anchor_y: Floats) -> Floats:
    """y(x) = F(x, anchor) + y(anchor)."""
    return predicted_difference + anchor_y


def combine(
    estimates: Floats, member_weights: Floats, weights: Floats | None
) -> tuple[Floats, Floats]:
    """Weighted mean and standard deviation of the estimates of all anchors by all members.

    `estimates` is (member, query, anchor, output), `member_weights` (member,) sum to one, and
    `weights` is (query, anchor), or None for equal weights. Both results are (query, output).

    >>> combine(np.array([[[[1.0], [3.0]]]]), np.ones(1), None)
    (array([[2.]]), array([[1.]]))
    >>> combine(np.array([[[[1.0], [3.0]]]]), np.ones(1), np.array([[3.0, 1.0]]))[0]
    array([[1.5]])
    """
    n_anchors = estimates.shape[2]
    if weights is None:
        share = np.full((1, n_anchors, 1), 1.0 / n_anchors)
    else:
        share = (weights / weights.sum(axis=1, keepdims=True))[..., None]
    # member by member, so that no temporary array is larger than one member's estimates
    members = list(zip(member_weights, estimates, strict=True))
    mean: Floats = np.zeros_like(estimates[0, :, 0])
    variance = mean
    for weight, values in members:
        mean = mean + weight * (share * values).sum(axis=1)
    for weight, values in members:
        variance = variance + weight * (share * (values - mean[:, None]) ** 2).sum(axis=1)
    return mean, np.sqrt(variance)


def check_anchor_weights(weights: ArrayLike, shape: tuple[int, ...]) -> Floats:
    """Validate (query, anchor) weights and scale the largest of each query to one."""
    weights = np.asarray(weights, dtype=np.float64)
    if weights.shape != shape:
        raise ValueError(f"weights returned shape {weights.shape} for anchors of shape {shape}.")
    bad = weights[~(np.isfinite(weights) & (weights >= 0))]
    if bad.size:
        raise ValueError(f"weights must be finite and not negative, but hold {bad[0]}.")
    # only ratios count, so that neither their sum nor their product with others can overflow
    largest = weights.max(axis=1, keepdims=True)
    if (largest <= 0).any():
        row = int(np.argmax(largest[:, 0] <= 0))
        raise ValueError(f"weights of query {row} are all 0; at least one must be positive.")
    return weights / largest


def loop_sum(first_second: Floats, second_third: Floats, third_first: Floats) -> Floats:
    """F(i, j) + F(j, k) + F(k, i), which is zero for a consistent model.

    >>> float(loop_sum(np.float64(2.0), np.float64(-3.0), np.float64(1.0)))
    0.0
    """
    return first_second + second_third + third_first


def draw_loops(
    n_queries: int, n_anchors: int, n_loops: int, rng: np.random.RandomState
) -> tuple[Indices, Indices]:
    """Draw two distinct anchors for each loop through each query; both (query, loop).

    With a single anchor, both are that one: the loop query → anchor → anchor → query.
    """
    second = rng.randint(0, n_anchors, size=(n_queries, n_loops))
    if n_anchors == 1:
        return second, second
    other = rng.randint(0, n_anchors - 1, size=(n_queries, n_loops))
    return second, other + (other >= second)


# --- features of pairs ---


PAIR_FEATURES = ("concat", "concat+difference", "difference")


class PairColumn(IntEnum):
    """Role of a pair column: a feature of either row, a difference, or a category mismatch."""

    FIRST = 0
    SECOND = 1
    DIFFERENCE = 2
    MISMATCH = 3


class PairFeatures:
    """Builder of pair features.

    `"concat"` is (a, b); `"difference"` is a − b; `"concat+difference"` is (a, b, a − b), in that
    order; a callable gets both sides as (n_pairs, n_encoded) arrays and returns
    (n_pairs, width). Differences are subtracted in float64, then rounded to `dtype`.
    `selected` are the features of the table that pairs are made of; None for all of them.
    """

    def __init__(
        self, kind: Any, schema: TableSchema, dtype: np.dtype, selected: Indices | None = None
    ) -> None:
        if not callable(kind) or isinstance(kind, type):
            check_choice("pair_features", kind, PAIR_FEATURES, " or a callable")
        self.kind = kind
        self.dtype = dtype
        n_features = len(schema.kinds)
        self.selected: Indices = np.arange(n_features) if selected is None else selected
        self._selected = None
        if selected is not None and len(selected) < n_features:
            self._selected = schema.row_columns(selected)
        example = schema.to_rows(np.zeros((2, n_features)))
        if self._selected is not None:
            example = example.take_columns(*self._selected)
        n_numeric, n_codes = example.numeric.shape[1], example.codes.shape[1]
        self._n_encoded = n_numeric + example.one_hot.shape[1]
        if callable(kind):
            self.width: int = self._call(example, example).shape[1]
        else:
            self.width = 2 * self._n_encoded * ("concat" in kind)
            self.width += (n_numeric + n_codes) * ("difference" in kind)
        self.bytes_per_pair: int = self.width * dtype.itemsize

    def build(self, first: Rows, second: Rows) -> Floats:
        """(..., width) in C order, for sides whose leading axes broadcast against each other."""
        if self._selected is not None:
            first, second = (side.take_columns(*self._selected) for side in (first, second))
        leading = np.broadcast_shapes(first.codes.shape[:-1], second.codes.shape[:-1])
        if callable(self.kind):
            flat = [_flatten(side, leading) for side in (first, second)]
            return self._call(*flat).reshape(*leading, self.width)
        out = np.empty((*leading, self.width), dtype=self.dtype)
        column = 0
        if "concat" in self.kind:
            for features in (first.numeric, first.one_hot, second.numeric, second.one_hot):
                out[..., column : column + features.shape[-1]] = features
                column += features.shape[-1]
        if "difference" in self.kind:
            n_numeric = first.numeric.shape[-1]
            np.subtract(
                first.numeric,
                second.numeric,
                out=out[..., column : column + n_numeric],
                casting="same_kind",
                dtype=np.float64,
            )
            if first.codes.shape[-1]:
                out[..., column + n_numeric :] = category_mismatch(first.codes, second.codes)
        return out

    def layout(self, rows: Rows) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(width,) role of each pair column, and the index of the feature it is made of.

        Features are counted over numeric features, indicators and codes, in the order of `rows`.
        Used for prediction without building pairs.
        """
        ends = np.cumsum([array.shape[-1] for array in rows])
        numeric, indicators, codes = np.split(np.arange(ends[-1]), ends[:-1])
        if self._selected is not None:
            selected_numeric, selected_indicators, selected_codes = self._selected
            numeric = numeric[selected_numeric]
            indicators = indicators[selected_indicators]
            codes = codes[selected_codes]
        encoded = [*numeric, *indicators]
        role: list[int] = []
        source: list[int] = []
        if "concat" in self.kind:
            role += [PairColumn.FIRST] * len(encoded) + [PairColumn.SECOND] * len(encoded)
            source += encoded * 2
        if "difference" in self.kind:
            role += [PairColumn.DIFFERENCE] * len(numeric) + [PairColumn.MISMATCH] * len(codes)
            source += [*numeric, *codes]
        return np.array(role, dtype=np.int64), np.array(source, dtype=np.int64)

    def _call(self, first: Rows, second: Rows) -> Floats:
        rows = np.asarray(self.kind(first.features, second.features))
        if rows.ndim != 2 or len(rows) != len(first) or rows.dtype.kind not in "fiub":
            raise ValueError(
                f"pair_features must return a numeric array of shape ({len(first)}, width), but "
                f"{self.kind!r} returned {rows.dtype} of shape {rows.shape}."
            )
        return rows.astype(self.dtype, copy=False)


def category_mismatch(first: Floats, second: Floats) -> Floats:
    """1 where two categories differ, 0 where they are equal, NaN where one is missing.

    >>> category_mismatch(np.array([0.0, 0.0, np.nan]), np.array([0.0, 3.0, 1.0]))
    array([ 0.,  1., nan])
    """
    differs = (first != second).astype(np.float64)
    return np.where(np.isnan(first) | np.isnan(second), np.nan, differs)


def _flatten(side: Rows, leading: tuple[int, ...]) -> Rows:
    """Rows with all leading axes merged into one."""

    def flatten(array: Floats) -> Floats:
        width = array.shape[-1]
        return np.broadcast_to(array, (*leading, width)).reshape(int(np.prod(leading)), width)

    return Rows(flatten(side.numeric), flatten(side.one_hot), flatten(side.codes))
