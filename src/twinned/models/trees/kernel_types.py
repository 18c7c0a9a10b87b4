"""Arrays and constants that the compiled kernels share with the code that prepares its input."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# A bit mask over anchors has a fixed number of 64-bit words, so that loops over it have a fixed
# length. More anchors than one mask has bits are processed in chunks.
MASK_WORDS = 16
MAX_ANCHORS = 64 * MASK_WORDS
# At most, each anchor is a set of its own in both orders of the pair; splitting a set needs two
# more.
MAX_SETS = 2 * MAX_ANCHORS + 2
# Cells of the grid that gives the approximate rank of a value: about one anchor per cell where the
# values are evenly distributed.
GRID_SIZE = 2048
# Trees with at most this many inner nodes are evaluated by `count_kernel` for the mean over all
# anchors. It writes the masks and sizes of leaves after those of the inner nodes, and does not read
# them.
MAX_INNER_NODES = 255
LEAF = MAX_INNER_NODES
# In the split of a node, the lowest bits are flags; the pair column is above them.
SPLIT_FLAG_BITS = 3

# How a pair column depends on the anchor, in one order of the pair.
QUERY_ONLY, INCREASING, DECREASING, CATEGORY = range(4)
# Fields of a record of `AnchorMasks.columns` and of `AnchorMasks.scales`. The record sizes are
# powers of two, which makes addressing fast.
KIND, ROW_COLUMN, VALUE_COLUMN, FIRST_LEVEL, N_LEVELS, FIRST_MASK, MISSING_OFFSET = range(7)
COLUMN_FIELDS = 8
SIGN, GRID_START, GRID_SCALE = range(3)
SCALE_FIELDS = 4
# Fields of a record of `PackedTrees.inner_nodes`.
SPLIT, LEFT, RIGHT, END = range(4)


class PackedTrees(NamedTuple):
    """A group of trees as flat arrays.

    `nodes` (node, 4) holds the *split* of a node and its left *child*; the right child is the node
    after that. The split is the pair column, followed by `SPLIT_FLAG_BITS` flags, from the lowest
    bit: missing values go right, the left child is a leaf, the right child is a leaf. The other
    half of the same memory is the second column of `thresholds` (node, 2), so that a node is one
    memory access. The split of a leaf is −1. Its value is stored instead of a threshold; where a
    leaf has several values, its child is their row in `leaf_values` (leaf, value), else (0, 0).
    Tree t starts at `roots[t]` and adds to the outputs from `outputs[t]` on.

    `split_id` (node,) is the index of a node's split among the distinct ones, `distinct_split` and
    `distinct_threshold`, which are sorted by pair column; those of column c start at
    `column_starts[c]`. All four are empty where there are too many to evaluate them beforehand.

    `inner_nodes` (inner node, 4) lists the inner nodes of each tree in preorder, those of tree t
    from `inner_starts[t]` on: `SPLIT`, the index of its split; `LEFT` and `RIGHT`, its children;
    `END`, the node after its last descendant. Nodes are counted from the root, and `LEAF` stands
    for a leaf, whose value is in `inner_values` (inner node, 2); the value of other children is 0.
    A tree without a split has one such node, with its value on both sides. All three are empty
    where `count_kernel` is not used.
    """

    nodes: NDArray[np.int32]
    thresholds: NDArray[np.float64]
    leaf_values: NDArray[np.float64]
    roots: NDArray[np.int64]
    outputs: NDArray[np.int64]
    split_id: NDArray[np.int32]
    distinct_split: NDArray[np.int32]
    distinct_threshold: NDArray[np.float64]
    column_starts: NDArray[np.int64]
    inner_nodes: NDArray[np.int32]
    inner_values: NDArray[np.float64]
    inner_starts: NDArray[np.int64]

    @property
    def nbytes(self) -> int:
        """Memory in bytes; the thresholds share that of the nodes."""
        return sum(array.nbytes for array in self) - self.thresholds.nbytes


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


class QueryBatch(NamedTuple):
    """Queries and their anchors within one chunk.

    `terms` (query, 2, pair column) are what the queries contribute to the pair columns, in both
    orders. `selected` (query, MASK_WORDS) masks the anchors of each query. `positions`
    (query, anchor) is the index of an anchor among those of its query; (1, 0) where the sums over
    all anchors are computed. The last two have one row where it is the same for all queries.
    """

    terms: NDArray[np.float64]
    selected: NDArray[np.uint64]
    positions: NDArray[np.int32]

    def take(self, rows: slice) -> QueryBatch:
        """Return a part of the queries."""
        selected = self.selected if len(self.selected) == 1 else self.selected[rows]
        positions = self.positions if len(self.positions) == 1 else self.positions[rows]
        return QueryBatch(self.terms[rows], selected, positions)


class LeafSums(NamedTuple):
    """Sums of leaf values, and how the orders of a pair enter them.

    `sums` (query, slot, position or 1, output). For each evaluated order, `signs` (order,) is the
    factor of its leaf values and `slots` (order,) the slot that they are added to.
    """

    sums: NDArray[np.floating[Any]]
    signs: NDArray[np.float64]
    slots: NDArray[np.int64]


class Workspace(NamedTuple):
    """Memory for intermediate results of the kernel.

    For a batch of queries: `split_masks` (query, 2, distinct split), the mask of each distinct
    split as `encoded_mask` returns it, and `n_selected` (query,), the number of anchors.

    For one query and tree: a *set* of anchors has a node, a size, an order and the mask that it is
    split by. Half of these arrays and of `masks` is for the current level of the tree, the other
    half for the next; the last two masks are the query's anchors and a spare one. `pending` holds
    four lists of sets, by what is to be done with them. `leaf_sets` (set, 3) are sets that have
    reached a leaf: leaf, size, order, with their `leaf_masks` where each anchor has its own sum.
    `single_nodes` (anchor, 2) are single anchors: a node, and twice the anchor plus the order;
    `single_leaves` are the same with their leaves.

    `count_kernel` uses `split_masks`, and `masks` and `set_size` with one row for each inner node.
    """

    split_masks: NDArray[np.int32]
    n_selected: NDArray[np.int64]
    masks: NDArray[np.uint64]
    set_node: NDArray[np.int64]
    set_size: NDArray[np.int64]
    set_order: NDArray[np.int64]
    set_mask: NDArray[np.int64]
    pending: NDArray[np.int64]
    leaf_sets: NDArray[np.int64]
    leaf_masks: NDArray[np.uint64]
    single_nodes: NDArray[np.int64]
    single_leaves: NDArray[np.int64]


def allocate_workspace(batch_size: int, n_distinct_splits: int, *, per_anchor: bool) -> Workspace:
    """Allocate memory for batches of queries; `per_anchor` where each anchor has its own sum."""

    def integers(*shape: int) -> NDArray[np.int64]:
        return np.empty(shape, dtype=np.int64)

    return Workspace(
        split_masks=np.empty((batch_size, 2, n_distinct_splits), dtype=np.int32),
        n_selected=integers(batch_size),
        masks=np.empty((2 * MAX_SETS + 2, MASK_WORDS), dtype=np.uint64),
        set_node=integers(2 * MAX_SETS),
        set_size=integers(2 * MAX_SETS),
        set_order=integers(2 * MAX_SETS),
        set_mask=integers(2 * MAX_SETS),
        pending=integers(4 * MAX_SETS),
        leaf_sets=integers(MAX_SETS, 3),
        leaf_masks=np.empty((MAX_SETS if per_anchor else 0, MASK_WORDS), dtype=np.uint64),
        single_nodes=integers(MAX_SETS, 2),
        single_leaves=integers(MAX_SETS, 2),
    )
