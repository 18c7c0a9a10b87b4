"""Anchors as sets: for each column, which anchors lie under each of its values, as bit masks.

For one query, a split of a pair tree is a question to the anchors alone: the anchor's own value
against a threshold, or its difference from the query, which falls (or grows) with the anchor's
value even after rounding. So those who answer yes are the first few in the order of that value,
and their mask is one row of a table that is made once.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from twinned._table import Floats, Rows
from twinned.pairing.pairs import PairColumn

# Masks have this many words, so that loops over them have a fixed length, and serve this many
# anchors; more anchors are dealt with in chunks.
WORDS = 16
MOST_ANCHORS = 64 * WORDS
# While anchors go down a tree, at most each is a set of its own, in both orders of the pair; two
# more are for cutting.
MOST_SETS = 2 * MOST_ANCHORS + 2
# ... and fewer at once where many columns would need large tables.
_TABLE_ROWS = 250_000
_FEWEST_ANCHORS = 64
# Steps of the grid on which a search begins: about one anchor a step, where they lie evenly.
GRID = 2048


class Layout(NamedTuple):
    """What the pair columns are made of: a `role` and a `source` each, (width,).

    Sources are the columns of a point: numbers and indicators, then codes of names.
    """

    role: NDArray[np.int64]
    source: NDArray[np.int64]


# How the kernel asks for a pair column, in one order of the pair.
DECIDED, RISING, FALLING, BY_NAME = range(4)
# What is known of a column: whole numbers, then others.
KIND, SOURCE, TAKEN, FIRST_LEVEL, N_LEVELS, FIRST_ROW, MISSING_ROWS = range(7)
SIGN, GRID_START, GRID_STEP = range(3)
COLUMN, SCALE = 8, 4  # numbers in a record of each, a power of two for quick addressing


class AnchorSets(NamedTuple):
    """A chunk of anchors, for the kernel.

    `values` (n_anchors, n_sources + 1) are their own, and a column of zeros. `table`
    (n_rows, WORDS) are the masks, the last of which is everybody.

    `columns` (2, width, COLUMN) and `scales` (2, width, SCALE) tell of each pair column, in both
    orders. Its `KIND` is `DECIDED` where it is the query's own value; `RISING` or `FALLING` where
    it rises or falls with the anchor's; and `BY_NAME` where it tells whether names differ. The
    distinct values of the anchors are the `N_LEVELS` of `levels` from `FIRST_LEVEL` on, sorted;
    row `FIRST_ROW` + r of the table is the mask of the anchors with one of the first r. Where some
    anchors miss the value, the rows follow once more with those added, `MISSING_ROWS` further on;
    else that is 0. For names, row 0 is nobody, row 1 everybody, and row 2 + i those of the i-th
    name. `grid[SOURCE]` (GRID,) tells where in the levels to begin to look: how many lie under
    each of GRID values, evenly spaced by 1 / `GRID_STEP` from `GRID_START` on. The column itself
    is the query's part plus `SIGN` times column `TAKEN` of the values, rounded.
    """

    values: NDArray[np.float64]
    table: NDArray[np.uint64]
    columns: NDArray[np.int64]
    scales: NDArray[np.float64]
    levels: NDArray[np.float64]
    grid: NDArray[np.int32]


def sources(points: Rows) -> Floats:
    """(n, n_sources): all that is known of a point."""
    return np.ascontiguousarray(np.concatenate(list(points), axis=1), dtype=np.float64)


def chunk_size(n_sources: int) -> int:
    """How many anchors are dealt with at once."""
    return int(np.clip(_TABLE_ROWS // max(1, n_sources), _FEWEST_ANCHORS, MOST_ANCHORS))


def query_parts(values: Floats, layout: Layout) -> NDArray[np.float64]:
    """(n_queries, 2, width): what queries add to the pair columns, in both orders of the pair.

    An anchor's own value gets nothing from them. A difference gets the query's value with the sign
    that is its own, so that adding the anchor's is subtracting, to the last bit. Names are codes,
    to be compared, in both orders.
    """
    taken = values[:, layout.source]
    parts = np.empty((len(values), 2, len(layout.role)))
    parts[:] = taken[:, None]
    parts[:, 0, layout.role == PairColumn.SECOND] = 0.0
    parts[:, 1, layout.role == PairColumn.FIRST] = 0.0
    parts[:, 1, layout.role == PairColumn.DIFFERENCE] *= -1.0
    return parts


def anchor_sets(values: Floats, layout: Layout, n_ordered: int) -> AnchorSets:
    """The sets of up to `MOST_ANCHORS` anchors, whose sources are `values` (n, n_sources).

    The first `n_ordered` sources are numbers and indicators, the others names.
    """
    n_sources = values.shape[1]
    tables, levels = [], []
    grid = np.zeros((n_sources, GRID), dtype=np.int32)
    about = np.zeros((n_sources, COLUMN), dtype=np.int64)
    scales = np.ones((n_sources, SCALE))
    n_levels = n_rows = 0
    for s, column in enumerate(values.T):
        distinct, rows, gap = _ordered_rows(column) if s < n_ordered else _name_rows(column)
        about[s, :7] = RISING, s, s, n_levels + 1, len(distinct), n_rows, gap
        scales[s, GRID_START : GRID_STEP + 1] = _lay_grid(distinct, grid[s])
        # beyond the ends nothing is found, so that a search need not look whether it is there
        levels.append(np.concatenate([[-np.inf], distinct, [np.inf] * 3]))
        tables.append(rows)
        n_levels, n_rows = n_levels + len(distinct) + 4, n_rows + len(rows)
    columns = np.stack([about[layout.source]] * 2)
    scales_of = np.stack([scales[layout.source]] * 2)
    for order, decided in enumerate([PairColumn.FIRST, PairColumn.SECOND]):
        kind = columns[order, :, KIND]
        kind[layout.role == decided] = DECIDED
        kind[layout.role == PairColumn.NAMES] = BY_NAME
        if order == 0:  # with the query first, the anchor is subtracted
            kind[layout.role == PairColumn.DIFFERENCE] = FALLING
        columns[order, kind == DECIDED, TAKEN] = n_sources
        scales_of[order, (kind == FALLING) | (kind == BY_NAME), SIGN] = -1.0
    return AnchorSets(
        np.column_stack([values, np.zeros(len(values))]),
        np.concatenate([*tables, np.full((1, WORDS), 2**64 - 1, dtype=np.uint64)]),
        columns,
        scales_of,
        np.concatenate(levels),
        grid,
    )


def _lay_grid(levels: Floats, grid: NDArray[np.int32]) -> tuple[float, float]:
    """Fill a row of the grid; where it starts, and its steps for a unit of the value."""
    if len(levels) < 2:
        return 0.0, 0.0
    steps = (GRID - 1) / (levels[-1] - levels[0])
    if not np.isfinite(steps):
        return 0.0, 0.0
    grid[:] = np.searchsorted(levels, levels[0] + np.arange(GRID) / steps)
    return levels[0], steps


def _ordered_rows(column: Floats) -> tuple[Floats, NDArray[np.uint64], int]:
    """The distinct values of a source, the masks of those under each, and the gap to the second."""
    missing = np.isnan(column)
    distinct, which = np.unique(column[~missing], return_inverse=True)
    rows = np.zeros((len(distinct) + 1, WORDS), dtype=np.uint64)
    _add(rows, which + 1, np.flatnonzero(~missing))
    np.bitwise_or.accumulate(rows, axis=0, out=rows)
    return distinct, *_with_missing(rows, missing)


def _name_rows(column: Floats) -> tuple[Floats, NDArray[np.uint64], int]:
    """The distinct names of a source, the masks of nobody, everybody, and each name's own."""
    missing = np.isnan(column)
    distinct, which = np.unique(column[~missing], return_inverse=True)
    rows = np.zeros((len(distinct) + 2, WORDS), dtype=np.uint64)
    known = np.flatnonzero(~missing)
    _add(rows, np.ones(len(known), dtype=np.int64), known)
    _add(rows, which + 2, known)
    return distinct, *_with_missing(rows, missing)


def _add(rows: NDArray[np.uint64], row: NDArray[Any], anchor: NDArray[Any]) -> None:
    bit = np.uint64(1) << (anchor % 64).astype(np.uint64)
    np.bitwise_or.at(rows, (row, anchor // 64), bit)


def _with_missing(
    rows: NDArray[np.uint64], missing: NDArray[np.bool_]
) -> tuple[NDArray[np.uint64], int]:
    if not missing.any():
        return rows, 0
    mask = np.zeros((1, WORDS), dtype=np.uint64)
    lost = np.flatnonzero(missing)
    _add(mask, np.zeros(len(lost), dtype=np.int64), lost)
    return np.concatenate([rows, rows | mask]), len(rows)


class Work(NamedTuple):
    """Memory that one run of the kernel works in; see there."""

    rows: NDArray[np.int32]
    sizes: NDArray[np.int64]
    masks: NDArray[np.uint64]
    set_node: NDArray[np.int64]
    set_size: NDArray[np.int64]
    set_order: NDArray[np.int64]
    set_row: NDArray[np.int64]
    todo: NDArray[np.int64]
    walkers: NDArray[np.int64]
    arrived: NDArray[np.int64]
    leaves: NDArray[np.int64]
    leaf_masks: NDArray[np.uint64]


def work_space(at_once: int, n_rules: int, *, each: bool) -> Work:
    """Memory for `at_once` queries, with a sum for each anchor or not."""
    n = MOST_SETS

    def numbers(*shape: int) -> NDArray[np.int64]:
        return np.empty(shape, dtype=np.int64)

    return Work(
        rows=np.empty((at_once, 2, n_rules), dtype=np.int32),
        sizes=numbers(at_once),
        masks=np.empty((2 * n + 2, WORDS), dtype=np.uint64),
        set_node=numbers(2 * n),
        set_size=numbers(2 * n),
        set_order=numbers(2 * n),
        set_row=numbers(2 * n),
        todo=numbers(4 * n),
        walkers=numbers(n, 2),
        arrived=numbers(n, 2),
        leaves=numbers(n, 3),
        leaf_masks=np.empty((n if each else 0, WORDS), dtype=np.uint64),
    )


def members_of(indices: NDArray[np.intp] | None, start: int, n: int) -> NDArray[np.uint64]:
    """(n_queries, WORDS) which of the anchors from `start` on, `n` of them, each query has.

    `indices` (n_queries, k) are a query's anchors; where it is None, one row stands for all.
    """
    if indices is None:
        indices = np.arange(start, start + n)[None]
    masks = np.zeros((len(indices), WORDS), dtype=np.uint64)
    query, position = np.nonzero((indices >= start) & (indices < start + n))
    _add(masks, query, indices[query, position] - start)
    return masks


def places_of(indices: NDArray[np.intp] | None, start: int, n: int) -> NDArray[np.int32]:
    """(n_queries, n) where an anchor stands in its query's row of `indices`, if it does."""
    if indices is None:
        return np.arange(start, start + n, dtype=np.int32)[None]
    places = np.zeros((len(indices), n), dtype=np.int32)
    query, position = np.nonzero((indices >= start) & (indices < start + n))
    places[query, indices[query, position] - start] = position
    return places
