"""Bit masks of the anchors at or below each value of each feature.

For one query, a split of a tree over pairs is a condition on the anchor alone: on its own value,
or on its difference from the query, which is monotonic in the anchor's value even after rounding.
So the anchors that meet it are the first ones in the order of that value, and their mask is one
row of a table that is computed once.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned.pairing.differences import PairColumn
from twinned.rows.schema import Floats, Indices, Rows

# A bit mask over anchors has a fixed number of 64-bit words, so that loops over it have a fixed
# length. More anchors than one mask has bits are processed in chunks.
MASK_WORDS = 16
MAX_ANCHORS = 64 * MASK_WORDS
# Fewer anchors per chunk where many row columns would need large tables.
_TABLE_ROWS = 250_000
_MIN_ANCHORS = 64
# Cells of the grid that gives the approximate rank of a value: about one anchor per cell where the
# values are evenly distributed.
GRID_SIZE = 2048

# How a pair column depends on the anchor, in one order of the pair.
QUERY_ONLY, INCREASING, DECREASING, CATEGORY = range(4)
# Fields of a record of `AnchorMasks.columns` and of `AnchorMasks.scales`. The record sizes are
# powers of two, which makes addressing fast.
KIND, ROW_COLUMN, VALUE_COLUMN, FIRST_LEVEL, N_LEVELS, FIRST_MASK, MISSING_OFFSET = range(7)
COLUMN_FIELDS = 8
SIGN, GRID_START, GRID_SCALE = range(3)
SCALE_FIELDS = 4


class AnchorMasks(NamedTuple):
    """A chunk of anchors, with a table of bit masks of the anchors below each of their values.

    `values` (anchor, row column + 1) are the encoded rows, followed by a column of zeros. `masks`
    (mask, MASK_WORDS) is the table; its last row has all bits set.

    `columns` (2, pair column, COLUMN_FIELDS) and `scales` (2, pair column, SCALE_FIELDS) describe
    each pair column in both orders of the pair:

    - `KIND`: `QUERY_ONLY` where it is the query's own value; `INCREASING` or `DECREASING` with the
      anchor's value; `CATEGORY` where it is 1 for different categories and 0 for the same.
    - `FIRST_LEVEL`, `N_LEVELS`: the distinct values of the anchors in `levels`, sorted.
    - `FIRST_MASK`: mask `FIRST_MASK + r` contains the anchors with one of the first r levels. Of a
      categorical feature, mask 0 is empty, mask 1 contains all, mask 2 + i those of category i.
    - `MISSING_OFFSET`: where the value of some anchors is missing, the same masks with those
      anchors added start this many rows further on; else 0.
    - `ROW_COLUMN`, `GRID_START`, `GRID_SCALE`: `grid[ROW_COLUMN]` (GRID_SIZE,) holds the number of
      levels below each of evenly spaced values, from `GRID_START` on, `GRID_SCALE` per unit.
    - `VALUE_COLUMN`, `SIGN`: the pair column is the term of the query plus `SIGN` times column
      `VALUE_COLUMN` of `values`, rounded.
    """

    values: NDArray[np.float64]
    masks: NDArray[np.uint64]
    columns: NDArray[np.int64]
    scales: NDArray[np.float64]
    levels: NDArray[np.float64]
    grid: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return sum(array.nbytes for array in self)


class PairLayout(NamedTuple):
    """The role of each pair column and the row column that it is computed from, both (width,).

    Row columns are those of `row_matrix`.
    """

    role: NDArray[np.int64]
    row_column: NDArray[np.int64]


def row_matrix(rows: Rows) -> Floats:
    """(row, row column): numeric features, one-hot indicators, then codes of categories."""
    return np.ascontiguousarray(np.concatenate(list(rows), axis=1), dtype=np.float64)


def chunk_size(n_row_columns: int) -> int:
    """Return how many anchors are processed at once."""
    return int(np.clip(_TABLE_ROWS // max(1, n_row_columns), _MIN_ANCHORS, MAX_ANCHORS))


def query_terms(values: Floats, layout: PairLayout) -> NDArray[np.float64]:
    """(query, 2, pair column): what queries contribute to the pair columns, in both orders.

    They contribute nothing to an anchor's own value. To a difference they contribute their value
    with its sign, so that adding the anchor's value with its sign is exactly the subtraction. Codes
    of categories are compared, in both orders.
    """
    terms = np.empty((len(values), 2, len(layout.role)))
    terms[:] = values[:, None, layout.row_column]
    terms[:, 0, layout.role == PairColumn.SECOND] = 0.0
    terms[:, 1, layout.role == PairColumn.FIRST] = 0.0
    terms[:, 1, layout.role == PairColumn.DIFFERENCE] *= -1.0
    return terms


def build_anchor_masks(values: Floats, layout: PairLayout, n_ordered: int) -> AnchorMasks:
    """Build the masks of up to `MAX_ANCHORS` anchors with the rows `values` (anchor, row column).

    The first `n_ordered` row columns are numeric, the others codes of categories.
    """
    n_row_columns = values.shape[1]
    tables, levels = [], []
    grid = np.zeros((n_row_columns, GRID_SIZE), dtype=np.int32)
    records = np.zeros((n_row_columns, COLUMN_FIELDS), dtype=np.int64)
    scales = np.ones((n_row_columns, SCALE_FIELDS))
    n_levels = n_masks = 0
    for c, column in enumerate(values.T):
        distinct, masks, offset = _column_masks(column, is_category=c >= n_ordered)
        records[c, :7] = INCREASING, c, c, n_levels + 1, len(distinct), n_masks, offset
        scales[c, GRID_START : GRID_SCALE + 1] = _fill_grid(distinct, grid[c])
        # with these sentinels, a search needs no test whether it is beyond the ends
        levels.append(np.concatenate([[-np.inf], distinct, [np.inf] * 3]))
        tables.append(masks)
        n_levels, n_masks = n_levels + len(distinct) + 4, n_masks + len(masks)
    pair_records = np.stack([records[layout.row_column]] * 2)
    pair_scales = np.stack([scales[layout.row_column]] * 2)
    for order, own_role in enumerate([PairColumn.FIRST, PairColumn.SECOND]):
        kind = pair_records[order, :, KIND]
        kind[layout.role == own_role] = QUERY_ONLY
        kind[layout.role == PairColumn.MISMATCH] = CATEGORY
        if order == 0:  # with the query first, the anchor is subtracted
            kind[layout.role == PairColumn.DIFFERENCE] = DECREASING
        pair_records[order, kind == QUERY_ONLY, VALUE_COLUMN] = n_row_columns
        pair_scales[order, (kind == DECREASING) | (kind == CATEGORY), SIGN] = -1.0
    return AnchorMasks(
        np.column_stack([values, np.zeros(len(values))]),
        np.concatenate([*tables, np.full((1, MASK_WORDS), 2**64 - 1, dtype=np.uint64)]),
        pair_records,
        pair_scales,
        np.concatenate(levels),
        grid,
    )


def _fill_grid(levels: Floats, grid: NDArray[np.int32]) -> tuple[float, float]:
    """Fill one row of the grid; return its start and its cells per unit of the value."""
    if len(levels) < 2:
        return 0.0, 0.0
    scale = (GRID_SIZE - 1) / (levels[-1] - levels[0])
    if not np.isfinite(scale):
        return 0.0, 0.0
    grid[:] = np.searchsorted(levels, levels[0] + np.arange(GRID_SIZE) / scale)
    return levels[0], scale


def _column_masks(column: Floats, is_category: bool) -> tuple[Floats, NDArray[np.uint64], int]:
    """Return the distinct values of a column, their masks and the offset of those with missing."""
    missing = np.isnan(column)
    known_anchors = np.flatnonzero(~missing)
    distinct, level = np.unique(column[known_anchors], return_inverse=True)
    first = 2 if is_category else 1
    masks = np.zeros((len(distinct) + first, MASK_WORDS), dtype=np.uint64)
    _set_bits(masks, level + first, known_anchors)
    if is_category:
        _set_bits(masks, np.ones_like(known_anchors), known_anchors)
    else:
        np.bitwise_or.accumulate(masks, axis=0, out=masks)
    if not missing.any():
        return distinct, masks, 0
    missing_anchors = np.flatnonzero(missing)
    missing_mask = np.zeros((1, MASK_WORDS), dtype=np.uint64)
    _set_bits(missing_mask, np.zeros_like(missing_anchors), missing_anchors)
    return distinct, np.concatenate([masks, masks | missing_mask]), len(masks)


def _set_bits(masks: NDArray[np.uint64], row: Indices, anchor: Indices) -> None:
    bit = np.uint64(1) << (anchor % 64).astype(np.uint64)
    np.bitwise_or.at(masks, (row, anchor // 64), bit)


def select_anchors(
    indices: Indices | None, start: int, n: int, *, per_anchor: bool
) -> tuple[NDArray[np.uint64], NDArray[np.int64], NDArray[np.int32]]:
    """Return which of the `n` anchors from `start` on each query uses.

    As a mask (query or 1, MASK_WORDS); their number (query or 1,); and (query or 1, anchor) the
    position of an anchor in its query's row of `indices`, if any, or (1, 0) without `per_anchor`.
    `indices` (query, anchor) are the anchors of each query; None stands for all anchors.
    """
    first_position = 0
    if indices is None:
        indices, first_position = np.arange(start, start + n)[None], start
    is_used = (indices >= start) & (indices < start + n)
    query, position = np.nonzero(is_used)
    anchor = indices[query, position] - start
    masks = np.zeros((len(indices), MASK_WORDS), dtype=np.uint64)
    _set_bits(masks, query, anchor)
    positions = np.zeros((len(indices), n) if per_anchor else (1, 0), dtype=np.int32)
    if per_anchor:
        positions[query, anchor] = position + first_position
    return masks, is_used.sum(axis=1), positions
