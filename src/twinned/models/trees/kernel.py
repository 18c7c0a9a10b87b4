"""Sums of a pair forest over anchors, compiled: no pair is ever built.

Imported only where it is used, since numba takes a second to load.
"""

# mypy: ignore-errors
# Types are what numba infers from the arguments of each call.

from __future__ import annotations

import numpy as np
from numba import types
from numba.extending import overload

from twinned.models.trees.anchor_masks import (
    BY_NAME,
    COLUMN,
    DECIDED,
    FALLING,
    FIRST_LEVEL,
    FIRST_ROW,
    GRID,
    GRID_START,
    GRID_STEP,
    KIND,
    MISSING_ROWS,
    MOST_SETS,
    N_LEVELS,
    SCALE,
    SIGN,
    SOURCE,
    TAKEN,
    WORDS,
)
from twinned.models.trees.llvm_intrinsics import at, busy, compiled, cut, fetch, lowest, move, put
from twinned.models.trees.packed import COLUMN_BITS

# A split that the query decides alone: all go left, or all go right.
_LEFT, _RIGHT = -1, -2
# Sets of so few anchors are left: the anchors walk on one by one.
_FEW = 4
_SETS = MOST_SETS


def _rounded(value, like):
    """`value` in the type of `like`."""
    raise NotImplementedError


@overload(_rounded)
def _rounded_compiled(value, like):
    if like == types.float32:
        return lambda value, like: np.float64(np.float32(value))
    return lambda value, like: value


# --- which anchors answer yes ------------------------------------------------------------------


@compiled
def _row_of(columns, scales, levels, grid, of_order, mine, split, threshold, like):
    """For one query and order, the mask that a split cuts out.

    Twice a row of the table, plus one where its anchors go right instead of left; or a verdict on
    all. `mine` is the query's part of the column.
    """
    column, missing_right = of_order + (split >> COLUMN_BITS), split & 1
    about, scale = COLUMN * column, SCALE * column
    kind = at(columns, about + KIND)
    if mine != mine:
        return _RIGHT if missing_right else _LEFT
    if kind == DECIDED:
        return _RIGHT if _rounded(mine, like) > threshold else _LEFT
    if kind == BY_NAME:
        rank = _rank_of_name(columns, levels, about, mine, threshold)
    else:
        rank = _rank(columns, scales, levels, grid, about, scale, mine, threshold, like)
    # the first few go left if the column rises with the anchor's value, and right if it falls
    falls = np.int64(kind == FALLING)
    with_missing = (1 - missing_right) ^ falls
    row = at(columns, about + FIRST_ROW) + rank + with_missing * at(columns, about + MISSING_ROWS)
    return 2 * row + falls


@compiled
def _rank_of_name(columns, levels, about, name, threshold):
    """Same names go left of a threshold from 0 up, different ones too of one from 1 up."""
    if threshold >= 1:
        return 1
    if threshold >= 0:
        start = at(columns, about + FIRST_LEVEL)
        for i in range(at(columns, about + N_LEVELS)):
            if at(levels, start + i) == name:
                return 2 + i
    return 0


@compiled
def _in_first(levels, place, mine, factor, threshold, like):
    """Whether a level is among the first few, which say yes if they rise, and no if they fall."""
    return (_rounded(mine + factor * at(levels, place), like) <= threshold) != (factor < 0)


@compiled
def _rank(columns, scales, levels, grid, about, scale, mine, threshold, like):
    """How many levels are among the first few: looked up nearly, then searched for exactly."""
    factor = at(scales, scale + SIGN)
    start = at(columns, about + FIRST_LEVEL)
    level = factor * (threshold - mine)
    cell = (level - at(scales, scale + GRID_START)) * at(scales, scale + GRID_STEP)
    # an infinite threshold may give NaN here, which is neither above 0 nor below the last
    cell = cell if cell > 0.0 else 0.0
    cell = cell if cell < GRID - 1.0 else GRID - 1.0
    low = np.int64(at(grid, GRID * at(columns, about + SOURCE) + np.int64(cell)))
    place = start + low
    # four looks at once, which the processor need not wait for one by one, mostly suffice
    under = _in_first(levels, place - 1, mine, factor, threshold, like)
    first = _in_first(levels, place, mine, factor, threshold, like)
    second = _in_first(levels, place + 1, mine, factor, threshold, like)
    third = _in_first(levels, place + 2, mine, factor, threshold, like)
    if under and not third:
        return low + first + second
    low, high = 0, at(columns, about + N_LEVELS)
    while low < high:
        middle = (low + high) >> 1
        if _in_first(levels, start + middle, mine, factor, threshold, like):
            low = middle + 1
        else:
            high = middle
    return low


# --- one tree -----------------------------------------------------------------------------------


@compiled
def _descend(
    nodes, thresholds, rule, root, columns, scales, levels, grid, table, last_row, query, width,
    rows, n_rules, n_orders, size, like, masks, set_node, set_size, set_order, set_row, todo,
    walkers, leaves, leaf_masks,
):  # fmt: skip
    """Take all anchors down one tree as sets, for one query; how many walk, how many sets ended.

    All sets go down a level before the next level's turn, and those that need the same are dealt
    with in one loop: so the processor can wait for the memory of many at once, and need not guess
    what comes next.

    A level has its sets in the one half of `set_node`, `set_size`, `set_order`, `set_row` and
    `masks`, and the next level in the other. The last of the masks are all `size` anchors of the
    query.
    """
    now, n_sets, walking, ended = 0, 0, 0, 0
    for order in range(n_orders):
        move(masks, 2 * _SETS, masks, n_sets)
        put(set_node, n_sets, root)
        put(set_size, n_sets, size)
        put(set_order, n_sets, order)
        n_sets += 1
    while n_sets:
        following = _SETS - now
        n_leaves, n_few, n_decided, n_ranked = 0, 0, 0, 0
        for i in range(now, now + n_sets):
            split = np.int64(at(nodes, 4 * at(set_node, i)))
            column = at(set_order, i) * width + max(split >> COLUMN_BITS, 0)
            leaf = split < 0
            few = (at(set_size, i) <= _FEW) & (not leaf)
            decided = (at(columns, COLUMN * column + KIND) == DECIDED) & (not leaf) & (not few)
            put(todo, n_leaves, i)
            n_leaves += leaf
            put(todo, _SETS + n_few, i)
            n_few += few
            put(todo, 2 * _SETS + n_decided, i)
            n_decided += decided
            put(todo, 3 * _SETS + n_ranked, i)
            n_ranked += not (leaf | few | decided)
        for j in range(3 * _SETS, 3 * _SETS + n_ranked):
            i = at(todo, j)
            node, order = at(set_node, i), at(set_order, i)
            if n_rules:
                row = np.int64(at(rows, order * n_rules + at(rule, node)))
            else:
                split = np.int64(at(nodes, 4 * node))
                mine = at(query, order * width + (split >> COLUMN_BITS))
                row = _row_of(
                    columns, scales, levels, grid, order * width, mine, split,
                    at(thresholds, 2 * node + 1), like,
                )  # fmt: skip
            if row < 0:
                row = 2 * last_row + (row == _RIGHT)
            put(set_row, i, row)
            fetch(table, WORDS * (row >> 1))
            fetch(table, WORDS * (row >> 1) + WORDS // 2)
        for j in range(n_leaves):
            i = at(todo, j)
            put(leaves, 3 * ended, at(set_node, i))
            put(leaves, 3 * ended + 1, at(set_size, i))
            put(leaves, 3 * ended + 2, at(set_order, i))
            if len(leaf_masks):
                move(masks, i, leaf_masks, ended)
            ended += 1
        for j in range(_SETS, _SETS + n_few):
            i = at(todo, j)
            node, order = at(set_node, i), at(set_order, i)
            words = busy(masks, i)
            while words:
                w = lowest(words)
                words &= words - np.uint64(1)
                word = at(masks, WORDS * i + w)
                while word:
                    put(walkers, 2 * walking, node)
                    put(walkers, 2 * walking + 1, 2 * (64 * w + lowest(word)) + order)
                    word &= word - np.uint64(1)
                    walking += 1
        n_next = following
        for j in range(2 * _SETS, 2 * _SETS + n_decided):
            i = at(todo, j)
            node, order = at(set_node, i), at(set_order, i)
            split = np.int64(at(nodes, 4 * node))
            mine, threshold = (
                at(query, order * width + (split >> COLUMN_BITS)),
                at(thresholds, 2 * node + 1),
            )
            right = (_rounded(mine, like) > threshold) | ((mine != mine) & (split & 1 == 1))
            child = np.int64(at(nodes, 4 * node + 1)) + right
            move(masks, i, masks, n_next)
            put(set_node, n_next, child)
            put(set_size, n_next, at(set_size, i))
            put(set_order, n_next, order)
            fetch(nodes, 4 * child)
            n_next += 1
        for j in range(3 * _SETS, 3 * _SETS + n_ranked):
            i = at(todo, j)
            order, before, row = at(set_order, i), at(set_size, i), at(set_row, i)
            child, turned = np.int64(at(nodes, 4 * at(set_node, i) + 1)), row & 1
            fetch(nodes, 4 * child)
            inside = cut(masks, i, table, row >> 1, n_next, n_next + 1)
            put(set_node, n_next, child + turned)
            put(set_size, n_next, inside)
            put(set_order, n_next, order)
            # where nobody is inside, the others take their place
            if inside == 0:
                move(masks, n_next + 1, masks, n_next)
            n_next += inside > 0
            put(set_node, n_next, child + 1 - turned)
            put(set_size, n_next, before - inside)
            put(set_order, n_next, order)
            n_next += inside < before
        now, n_sets = following, n_next - following
    return walking, ended


@compiled
def _walk(
    nodes, thresholds, columns, scales, values, n_sources, query, width, special, like, walkers, n,
    arrived,
):  # fmt: skip
    """Take single anchors to their leaves, all of them a step at a time.

    `walkers` (n, 2) are nodes, not leaves, with twice the anchor plus the order; in the end
    `arrived` has the same with the leaves.
    """
    n_arrived = 0
    while n:
        kept = 0
        for k in range(n):
            node, who = at(walkers, 2 * k), at(walkers, 2 * k + 1)
            split, child = np.int64(at(nodes, 4 * node)), np.int64(at(nodes, 4 * node + 1))
            threshold = at(thresholds, 2 * node + 1)
            column = (who & 1) * width + (split >> COLUMN_BITS)
            other = at(values, (who >> 1) * n_sources + at(columns, COLUMN * column + TAKEN))
            value = at(query, column) + at(scales, SCALE * column + SIGN) * other
            value = _rounded(value, like)
            right = value > threshold
            if special:
                if at(columns, COLUMN * column + KIND) == BY_NAME and value == value:
                    right = (0.0 if value == 0 else 1.0) > threshold
                right |= (value != value) & (split & 1 == 1)
            following = child + right
            leaf = (split >> (1 + np.int64(right))) & 1
            put(arrived, 2 * n_arrived, following)
            put(arrived, 2 * n_arrived + 1, who)
            n_arrived += leaf
            put(walkers, 2 * kept, following)
            put(walkers, 2 * kept + 1, who)
            kept += 1 - leaf
            fetch(nodes, 4 * following)
        n = kept


# --- all trees, all queries -----------------------------------------------------------------------


@compiled
def over_anchors(
    forest, sets, queries, members, places, special, like, signs, slots, at_once, work, out
):
    """Add what every tree says of every query with its anchors to `out`.

    Parameters
    ----------
    forest, sets : Packed, AnchorSets
        The trees and the anchors.
    queries : array (n_queries, 2, width)
        The queries' parts of the pair columns.
    members : array (n_queries, WORDS), or (1, WORDS) where it is the same for all
        The anchors of each query.
    places : array (n_queries or 1, n_anchors)
        Where in `out` an anchor has its own sum; (1, 0) where they have one together.
    special : bool
        Whether there are missing values, or names.
    like : float32 or float64
        Of the type in which values are compared.
    signs, slots : arrays (n_orders,)
        For each order of the pair that is asked for, the sign with which it counts and the slot of
        `out` that it is added to.
    at_once : int
        How many queries go down a tree before the next tree's turn.
    work : Work
        Memory to work in.
    out : array (n_queries, n_slots, n_places or 1, n_outputs)
        What is added to.
    """
    nodes, thresholds, rule = forest.nodes, forest.threshold, forest.rule
    columns, scales, levels, grid = sets.columns, sets.scales, sets.levels, sets.grid
    table, values = sets.table, sets.values
    n_queries, width = queries.shape[0], queries.shape[2]
    n_orders, n_rules = len(signs), len(forest.rule_split)
    sizes = work.sizes
    for start in range(0, n_queries, at_once):
        stop = min(start + at_once, n_queries)
        for q in range(start, stop):
            own = q if len(members) > 1 else 0
            move(members, own, work.masks, 2 * _SETS)
            sizes[q - start] = cut(
                work.masks, 2 * _SETS, table, len(table) - 1, 2 * _SETS, 2 * _SETS + 1
            )
            if sizes[q - start] <= _FEW:
                continue
            for order in range(n_orders):
                for u in range(n_rules):
                    split = np.int64(forest.rule_split[u])
                    mine = queries[q, order, split >> COLUMN_BITS]
                    work.rows[q - start, order, u] = _row_of(
                        columns, scales, levels, grid, order * width, mine, split,
                        forest.rule_threshold[u], like,
                    )  # fmt: skip
        for tree in range(len(forest.roots)):
            root, output = forest.roots[tree], forest.outputs[tree]
            for q in range(start, stop):
                if sizes[q - start] == 0:
                    continue
                move(members, q if len(members) > 1 else 0, work.masks, 2 * _SETS)
                n_walking, n_ended = _descend(
                    nodes, thresholds, rule, root, columns, scales, levels, grid, table,
                    len(table) - 1, queries[q], width, work.rows[q - start], n_rules, n_orders,
                    sizes[q - start], like, work.masks, work.set_node, work.set_size,
                    work.set_order, work.set_row, work.todo, work.walkers, work.leaves,
                    work.leaf_masks,
                )  # fmt: skip
                _walk(
                    nodes, thresholds, columns, scales, values, values.shape[1], queries[q], width,
                    special, like, work.walkers, n_walking, work.arrived,
                )  # fmt: skip
                _add(
                    nodes, thresholds, forest.leaf_value, work.leaves, work.leaf_masks, n_ended,
                    work.arrived, n_walking, places, q if len(places) > 1 else 0, signs, slots, q,
                    output, out,
                )  # fmt: skip


@compiled
def _add(
    nodes, thresholds, leaf_value, leaves, leaf_masks, n_ended, arrived, n_arrived, places, own,
    signs, slots, q, output, out,
):  # fmt: skip
    """Add the leaves of one tree and query: those that sets ended in, and walkers arrived at."""
    each = places.shape[1] > 0
    n_values = leaf_value.shape[1]
    for k in range(max(n_values, 1)):
        for i in range(n_ended):
            leaf, order = at(leaves, 3 * i), at(leaves, 3 * i + 2)
            value = at(thresholds, 2 * leaf + 1)
            if n_values:
                value = leaf_value[at(nodes, 4 * leaf + 1), k]
            value *= at(signs, order)
            slot = at(slots, order)
            if not each:
                out[q, slot, 0, output + k] += value * at(leaves, 3 * i + 1)
                continue
            words = busy(leaf_masks, i)
            while words:
                w = lowest(words)
                words &= words - np.uint64(1)
                word = at(leaf_masks, WORDS * i + w)
                while word:
                    out[q, slot, places[own, 64 * w + lowest(word)], output + k] += value
                    word &= word - np.uint64(1)
        for i in range(n_arrived):
            leaf, who = at(arrived, 2 * i), at(arrived, 2 * i + 1)
            value = at(thresholds, 2 * leaf + 1)
            if n_values:
                value = leaf_value[at(nodes, 4 * leaf + 1), k]
            place = places[own, who >> 1] if each else 0
            out[q, at(slots, who & 1), place, output + k] += at(signs, who & 1) * value
