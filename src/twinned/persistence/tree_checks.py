"""The arrays of one tree: proof that walking them stays inside them.

Compiled prediction code follows `left`, `right` and `feature` without looking, so a crafted
index reads foreign memory and a cycle never ends. Both kinds of tree number a child after its
parent. With that, and with every node but the root named as a child exactly once, each walk
from the root ends at a leaf.
"""

from typing import Any

import numpy as np
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.tree._tree import NODE_DTYPE

from twinned.exceptions import IntegrityError

_LEAF = -1
_NO_FEATURE = -2
_BITSET_WORDS = 8  # 256 categories, 32 to a word


def check_tree(
    *,
    n_features: Any,
    n_classes: Any,
    n_outputs: Any,
    max_depth: Any,
    node_count: Any,
    nodes: Any,
    values: Any,
) -> None:
    """Check the state of a `sklearn.tree._tree.Tree` of a regressor, before it is built.

    `nodes` has shape (node_count,), `values` (node_count, n_outputs, 1), `n_classes` (n_outputs,).
    """
    for name, number in (
        ("n_features", n_features),
        ("n_outputs", n_outputs),
        ("node_count", node_count),
    ):
        _demand(is_integer(number) and number >= 1, f"{name} is {number!r}, not a positive integer")
    _demand(is_integer(max_depth) and max_depth >= 0, f"max_depth is {max_depth!r}")
    _demand(
        isinstance(n_classes, np.ndarray)
        and n_classes.shape == (n_outputs,)
        and n_classes.dtype == np.intp
        and bool((n_classes == 1).all()),
        f"n_classes is {n_classes!r}, not a one for each of {n_outputs} outputs",
    )
    _demand_array(nodes, "nodes", NODE_DTYPE, (node_count,))
    _demand_array(values, "values", np.dtype(np.float64), (node_count, n_outputs, 1))

    left, right, feature = nodes["left_child"], nodes["right_child"], nodes["feature"]
    inner = left != _LEAF
    _demand(bool((right[~inner] == _LEAF).all()), "a leaf has a right child")
    _demand(bool((feature[~inner] == _NO_FEATURE).all()), "a leaf splits on a feature")
    depth = check_children(left, right, inner)
    _demand(max_depth == depth, f"max_depth is {max_depth}, but its deepest leaf is at {depth}")
    _check_features(feature[inner], n_features)
    _demand(not np.isnan(nodes["threshold"]).any(), "a threshold is NaN")
    _demand(bool((nodes["n_node_samples"] >= 0).all()), "a node has a negative number of samples")
    weights = nodes["weighted_n_node_samples"]
    _demand(bool((np.isfinite(weights) & (weights >= 0)).all()), "a node's weight is not a weight")
    _demand(bool((nodes["missing_go_to_left"] <= 1).all()), "missing_go_to_left is neither 0 nor 1")
    _demand(bool(np.isfinite(values).all()), "a node's value is not finite")


def check_predictor(predictor: Any, *, n_features: int, is_categorical: np.ndarray) -> None:
    """Check one `TreePredictor` of a histogram gradient boosting model.

    `is_categorical`, shape (n_features,): the columns that have a bitset of known categories.
    """
    nodes = getattr(predictor, "nodes", None)
    _demand(isinstance(nodes, np.ndarray) and nodes.ndim == 1 and nodes.size > 0, "no nodes")
    assert isinstance(nodes, np.ndarray)
    _demand_array(nodes, "nodes", PREDICTOR_RECORD_DTYPE, nodes.shape)
    for flag in ("is_leaf", "is_categorical", "missing_go_to_left"):
        _demand(bool((nodes[flag] <= 1).all()), f"{flag} is neither 0 nor 1")
    inner = nodes["is_leaf"] == 0
    check_children(nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), inner)
    split = nodes[inner]
    _check_features(split["feature_idx"], n_features)
    nominal = split["is_categorical"] == 1
    _demand(not np.isnan(split["num_threshold"][~nominal]).any(), "a threshold is NaN")
    _demand(bool(np.isfinite(nodes["value"]).all()), "a node's value is not finite")

    bitsets = getattr(predictor, "raw_left_cat_bitsets", None)
    n_bitsets = bitsets.shape[0] if isinstance(bitsets, np.ndarray) and bitsets.ndim else 0
    for name in ("raw_left_cat_bitsets", "binned_left_cat_bitsets"):
        shape = (n_bitsets, _BITSET_WORDS)
        _demand_array(getattr(predictor, name, None), name, np.dtype(np.uint32), shape)
    _demand(
        bool((split["bitset_idx"][nominal] < n_bitsets).all()),
        f"a categorical split names a bitset beyond the {n_bitsets} there are",
    )
    _demand(
        bool(np.asarray(is_categorical, dtype=bool)[split["feature_idx"][nominal]].all()),
        "a categorical split uses a numerical column",
    )


def check_children(left: np.ndarray, right: np.ndarray, inner: np.ndarray) -> int:
    """Check that the nodes form one tree rooted at node 0; return its depth.

    >>> leaf = -1
    >>> left, right = np.array([1, leaf, 3, leaf, leaf]), np.array([2, leaf, 4, leaf, leaf])
    >>> check_children(left, right, left != leaf)
    2
    >>> left, right = np.array([1, 1, leaf]), np.array([2, 2, leaf])
    >>> check_children(left, right, left != leaf)
    Traceback (most recent call last):
    ...
    twinned.exceptions.IntegrityError: a tree is damaged: a node's child does not come after it
    """
    (parents,) = np.nonzero(inner)
    children = np.concatenate([left[inner], right[inner]])
    n_nodes = len(inner)
    _demand(
        bool(((children > 0) & (children < n_nodes)).all()),
        f"a child index is outside its {n_nodes} nodes",
    )
    _demand(
        bool((children > np.concatenate([parents, parents])).all()),
        "a node's child does not come after it",
    )
    _demand(
        np.array_equal(np.sort(children), np.arange(1, n_nodes)),
        "a node has no parent, or several",
    )
    depth, level = 0, np.zeros(1, dtype=np.int64)
    while (level := level[inner[level]]).size:
        level = np.concatenate([left[level], right[level]])
        depth += 1
    return depth


def is_integer(value: Any) -> bool:
    """Whether value is an integer of Python or numpy, and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _check_features(features: np.ndarray, n_features: int) -> None:
    _demand(
        bool(((features >= 0) & (features < n_features)).all()),
        f"a split uses a feature outside its {n_features}",
    )


def _demand_array(value: Any, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> None:
    found = (
        f"{value.dtype} of shape {value.shape}"
        if isinstance(value, np.ndarray)
        else type(value).__name__
    )
    _demand(
        isinstance(value, np.ndarray)
        and value.dtype == dtype
        and value.shape == shape
        and value.flags.c_contiguous,
        f"{name} is {found}, not {dtype} of shape {shape}",
    )


def _demand(condition: bool, otherwise: str) -> None:
    if not condition:
        raise IntegrityError(f"a tree is damaged: {otherwise}")
