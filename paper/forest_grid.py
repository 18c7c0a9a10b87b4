"""The author's grid search of random forests, with one forest for the points that differ by a cut.

Trees of equal `max_features` and `min_samples_leaf` differ only in where they stop. So one forest
is grown for each of these six settings, to the largest `max_depth` and the smallest
`min_samples_split` of the grid, and the prediction of a point of the grid is the value of the first
node on a row's path that is at the point's `max_depth` or has fewer than its `min_samples_split`
samples: the same as of a tree that was stopped there. All 54 points are evaluated by six growths
instead of 54. They share their trees, so the errors of two points differ less by chance than those
of forests that are grown apart.

Trees are grown as those of scikit-learn, with all columns sorted once for all trees of a search.
"""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
from numba import njit
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold

GRID = {
    "max_depth": (8, 16, 32),
    "max_features": (0.33, 0.667, 1.0),
    "min_samples_leaf": (1, 2),
    "min_samples_split": (2, 3, 4),
}
N_FOLDS = 5
EQUAL = np.float32(1e-7)  # values of a feature that differ by no more are not separated
PURE = np.finfo(np.float64).eps  # nodes of no larger variance are not split


def search_grid(X: Any, y: Any, n_trees: int, seed: int) -> dict[str, Any]:
    """Return the point of the grid with the highest mean R² of five folds.

    The folds are of consecutive rows, as those of `GridSearchCV`; the first of equal points is
    returned.
    """
    scores = grid_scores(X, y, n_trees, seed)
    best = max(scores, key=scores.__getitem__)
    return dict(zip(GRID, best, strict=True))


def grid_scores(X: Any, y: Any, n_trees: int, seed: int) -> dict[tuple[Any, ...], float]:
    """Return point of the grid → mean R² of five folds."""
    columns = np.ascontiguousarray(X.T, dtype=np.float32)
    order = sort_columns(columns)
    y = np.asarray(y, dtype=np.float64)
    depths, splits = (np.array(GRID[name]) for name in ("max_depth", "min_samples_split"))
    rng = np.random.default_rng(seed)
    scores: dict[tuple[Any, ...], list[float]] = {point: [] for point in product(*GRID.values())}
    for share, leaf in product(GRID["max_features"], GRID["min_samples_leaf"]):
        n_tried = max(1, int(share * len(columns)))
        for train, test in KFold(N_FOLDS).split(columns[0]):
            predicted = predict_cuts(
                columns, y, order, train, test, depths, splits, (n_trees, n_tried, leaf), rng
            )
            for i, depth in enumerate(GRID["max_depth"]):
                for j, split in enumerate(GRID["min_samples_split"]):
                    score = r2_score(y[test], predicted[i, j])
                    scores[depth, share, leaf, split].append(score)
    return {point: float(np.mean(own)) for point, own in scores.items()}


def sort_columns(columns: Any) -> Any:
    """Return the rows of each column from its smallest to its largest value."""
    if columns.shape[1] > np.iinfo(np.uint16).max:
        raise ValueError("The search is for at most 65,535 rows or pairs.")
    return np.argsort(columns, axis=1, kind="stable").astype(np.uint16)  # fits into a cache


@njit(cache=True)
def predict_cuts(columns, y, order, train, test, depths, splits, forest, rng):
    """Return depth × split × test row: the prediction of the forest that is cut there.

    `forest` has the number of trees, of the features that are tried and `min_samples_leaf`.
    """
    n_trees, n_tried, min_leaf = forest
    predicted = np.zeros((len(depths), len(splits), len(test)))
    for _ in range(n_trees):
        counts = np.zeros(len(y))
        for _ in range(len(train)):
            counts[train[rng.integers(0, len(train))]] += 1
        tree = grow_tree(columns, y, order, counts, depths.max(), n_tried, min_leaf, rng)
        add_cuts(columns, tree, test, depths, splits, predicted)
    return predicted / n_trees


@njit(cache=True)
def grow_tree(columns, y, order, counts, max_depth, n_tried, min_leaf, rng):
    """Return the nodes of a tree: feature, threshold, left child, value, samples and depth.

    `counts` says how often each row was drawn. The right child is next to the left one; leaves have
    the left child 0.
    """
    n_features, n_rows = len(columns), np.count_nonzero(counts)
    # those of a node are together, in the order of each column
    rows = np.empty((n_features, n_rows), dtype=order.dtype)
    for f in range(n_features):
        rows[f] = order[f][counts[order[f]] > 0]
    features, totals = np.arange(n_features), counts * y
    is_left, buffer = np.zeros(len(y), dtype=np.bool_), np.empty(n_rows + 1, dtype=order.dtype)
    feature, left, samples, depth = np.zeros((4, 2 * n_rows), dtype=np.int32)
    threshold, value = np.zeros((2, 2 * n_rows))
    n_nodes, stack = 1, [(0, 0, n_rows)]
    while stack:
        node, start, end = stack.pop()
        weight, total, squares = 0.0, 0.0, 0.0
        for row in rows[0, start:end]:
            weight += counts[row]
            total += totals[row]
            squares += totals[row] * y[row]
        value[node], samples[node] = total / weight, end - start
        is_pure = squares / weight - value[node] ** 2 <= PURE
        if depth[node] >= max_depth or end - start < max(2, 2 * min_leaf) or is_pure:
            continue
        own = rows[:, start:end]
        f, n_left = choose_split(
            columns, totals, counts, own, weight, total, features, n_tried, min_leaf, rng
        )
        if n_left == 0:
            continue
        low, high = columns[f, own[f, n_left - 1]], columns[f, own[f, n_left]]
        middle = low / 2.0 + high / 2.0
        feature[node], threshold[node] = f, low if middle == high else middle
        for p in range(end - start):
            is_left[own[f, p]] = p < n_left
        # parts that will not be split need no sorted columns
        will_split = max(n_left, end - start - n_left) >= max(2, 2 * min_leaf)
        partition(own if will_split else own[:1], is_left, buffer)
        left[node] = n_nodes
        depth[n_nodes : n_nodes + 2] = depth[node] + 1
        stack.append((n_nodes + 1, start + n_left, end))
        stack.append((n_nodes, start, start + n_left))
        n_nodes += 2
    nodes = slice(0, n_nodes)
    return feature[nodes], threshold[nodes], left[nodes], value[nodes], samples[nodes], depth[nodes]


@njit(cache=True)
def choose_split(columns, totals, counts, rows, weight, total, features, n_tried, min_leaf, rng):
    """Return the feature of the best split and the size of its left part, 0 where there is none.

    Features are tried in random order: `n_tried` of them, and more until one is not constant.
    """
    best, feature, position = -np.inf, 0, 0
    is_constant = True
    for i in range(len(features)):
        if i >= n_tried and not is_constant:
            break
        j = rng.integers(i, len(features))
        features[i], features[j] = features[j], features[i]
        f = features[i]
        column, own = columns[f], rows[f]
        if column[own[-1]] <= column[own[0]] + EQUAL:
            continue
        is_constant = False
        left_weight, left_total = 0.0, 0.0
        for p in range(len(own) - 1):
            row = own[p]
            left_weight += counts[row]
            left_total += totals[row]
            if column[own[p + 1]] <= column[row] + EQUAL:
                continue
            if p + 1 < min_leaf or len(own) - p - 1 < min_leaf:
                continue
            # largest where the squares within the two parts are lowest
            rest_weight, rest_total = weight - left_weight, total - left_total
            squares = left_total**2 * rest_weight + rest_total**2 * left_weight
            score = squares / (left_weight * rest_weight)
            if score > best:
                best, feature, position = score, f, p + 1
    return feature, position


@njit(cache=True)
def partition(rows, is_left, buffer):
    """Move the rows of the left part before the others, in the order of each column."""
    for own in rows:
        n_left, n_right = 0, 0
        for p in range(len(own)):  # without a branch, which the processor could not predict
            row = own[p]
            own[n_left] = buffer[n_right] = row
            n_left += is_left[row]
            n_right += not is_left[row]
        own[n_left:] = buffer[:n_right]


@njit(cache=True)
def add_cuts(columns, tree, test, depths, splits, predicted):
    """Add the predictions of a tree that is cut at each depth and number of samples."""
    feature, threshold, left, value, samples, depth = tree
    cut = np.empty((len(left), len(depths), len(splits)))
    cut[0] = value[0]
    for node in range(len(left)):  # a child follows its parent
        if left[node] == 0:
            continue
        for i in range(len(depths)):
            for j in range(len(splits)):
                is_cut = depth[node] >= depths[i] or samples[node] < splits[j]
                for child in range(left[node], left[node] + 2):
                    cut[child, i, j] = cut[node, i, j] if is_cut else value[child]
    for t in range(len(test)):
        node = 0
        while left[node] > 0:
            goes_right = columns[feature[node], test[t]] > threshold[node]
            node = left[node] + goes_right
        predicted[:, :, t] += cut[node]
