"""The anchors that meet the condition of a split, compiled: rows of the table of bit masks."""

# mypy: ignore-errors
# Types of compiled functions are those that numba infers from the arguments of each call.

import numpy as np

from twinned.models.trees import anchor_masks as field
from twinned.models.trees.compilation import compiled, inlined, read
from twinned.models.trees.packing import SPLIT_FLAG_BITS


@inlined
def rounded(value, compare_type):
    """Round `value` to the type of `compare_type`."""
    return np.float64(type(compare_type)(value))


@compiled
def encoded_mask(anchors, first_column, term, split, threshold, compare_type):
    """Return the mask of a split, for one query and one order of the pair.

    Twice its row in the table of masks, plus one where its anchors go right instead of left. That
    of a split that does not depend on the anchor has all anchors, the last row. `first_column` is
    the first column of the order, and `term` the term of the query.
    """
    all_left = 2 * (len(anchors.masks) - 1)
    column, missing_right = first_column + (split >> SPLIT_FLAG_BITS), split & 1
    record = field.COLUMN_FIELDS * column
    kind = read(anchors.columns, record + field.KIND)
    if term != term:
        return all_left + missing_right
    if kind == field.QUERY_ONLY:
        return all_left + (rounded(term, compare_type) > threshold)
    if kind == field.CATEGORY:
        rank = _category_rank(anchors, record, term, threshold)
    else:
        rank = _level_rank(anchors, column, term, threshold, compare_type)
    # the first levels go left if the column increases with the anchor's value, else right
    decreasing = np.int64(kind == field.DECREASING)
    with_missing = (1 - missing_right) ^ decreasing
    row = read(anchors.columns, record + field.FIRST_MASK) + rank
    row += with_missing * read(anchors.columns, record + field.MISSING_OFFSET)
    return 2 * row + decreasing


@inlined
def _category_rank(anchors, record, category, threshold):
    """Return the index of a mask among those of a categorical feature.

    Anchors of the same category go left of a threshold from 0 on, all anchors from 1 on.
    """
    if threshold >= 1:
        return 1
    if threshold >= 0:
        start = read(anchors.columns, record + field.FIRST_LEVEL)
        for i in range(read(anchors.columns, record + field.N_LEVELS)):
            if read(anchors.levels, start + i) == category:
                return 2 + i
    return 0


@inlined
def _precedes(levels, index, term, sign, threshold, compare_type):
    """Return whether a level is one of the first: those at most, or above, the threshold."""
    value = rounded(term + sign * read(levels, index), compare_type)
    return (value <= threshold) != (sign < 0)


@inlined
def _level_rank(anchors, column, term, threshold, compare_type):
    """Return how many levels precede the threshold: approximately by the grid, then exactly."""
    levels = anchors.levels
    record, scale = field.COLUMN_FIELDS * column, field.SCALE_FIELDS * column
    sign = read(anchors.scales, scale + field.SIGN)
    start = read(anchors.columns, record + field.FIRST_LEVEL)
    cell = sign * (threshold - term) - read(anchors.scales, scale + field.GRID_START)
    cell *= read(anchors.scales, scale + field.GRID_SCALE)
    # an infinite threshold may give NaN here, which is neither above 0 nor below the last cell
    cell = cell if cell > 0.0 else 0.0
    cell = cell if cell < field.GRID_SIZE - 1.0 else field.GRID_SIZE - 1.0
    first_cell = field.GRID_SIZE * read(anchors.columns, record + field.ROW_COLUMN)
    low = np.int64(read(anchors.grid, first_cell + np.int64(cell)))
    index = start + low
    # four independent comparisons, which the processor executes at once, suffice in most cases
    before = _precedes(levels, index - 1, term, sign, threshold, compare_type)
    first = _precedes(levels, index, term, sign, threshold, compare_type)
    second = _precedes(levels, index + 1, term, sign, threshold, compare_type)
    third = _precedes(levels, index + 2, term, sign, threshold, compare_type)
    if before and not third:
        return low + first + second
    low, high = 0, read(anchors.columns, record + field.N_LEVELS)
    while low < high:
        middle = (low + high) >> 1
        if _precedes(levels, start + middle, term, sign, threshold, compare_type):
            low = middle + 1
        else:
            high = middle
    return low
