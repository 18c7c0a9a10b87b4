"""Checks that the node arrays of a decision tree form one valid tree.

Compiled prediction code follows `left`, `right` and `feature` without checks, so that a crafted
index would read foreign memory and a cycle would never end. scikit-learn numbers a child after its
parent. With that, and if every node except the root is the child of exactly one node, each path
from the root ends at a leaf.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.tree._tree import NODE_DTYPE

from twinned.persistence.archive import ensure

TREE_STATE = ("max_depth", "node_count", "nodes", "values")
_LEAF = -1
_NO_FEATURE = -2
_BITSET_SIZE = 8  # integers of 32 bits each, for 256 categories


def check_tree(arguments: list[Any], state: dict[str, Any]) -> None:
    """Check the arguments and the state of a regressor's `sklearn.tree._tree.Tree`."""
    n_features, n_classes, n_outputs = arguments
    max_depth, node_count, nodes, values = (state[name] for name in TREE_STATE)
    sizes = {"n_features": n_features, "n_outputs": n_outputs, "node_count": node_count}
    for name, size in sizes.items():
        _ensure_tree(is_integer(size) and size >= 1, f"{name} is {size!r}, not a positive integer")
    _ensure_tree(is_integer(max_depth) and max_depth >= 0, f"max_depth is {max_depth!r}")
    _check_array(n_classes, "n_classes", np.intp, (n_outputs,))
    _ensure_tree((n_classes == 1).all(), f"n_classes is {n_classes!r}, not ones")
    _check_array(nodes, "nodes", NODE_DTYPE, (node_count,))
    _check_array(values, "values", np.float64, (node_count, n_outputs, 1))

    left, right, feature = nodes["left_child"], nodes["right_child"], nodes["feature"]
    inner = left != _LEAF
    _ensure_tree((right[~inner] == _LEAF).all(), "a leaf has a right child")
    _ensure_tree((feature[~inner] == _NO_FEATURE).all(), "a leaf splits on a feature")
    depth = check_children(left, right, inner)
    _ensure_tree(max_depth == depth, f"max_depth is {max_depth}, but its depth is {depth}")
    _check_split_features(feature[inner], n_features)
    _ensure_tree(not np.isnan(nodes["threshold"]).any(), "a threshold is NaN")
    _ensure_tree((nodes["n_node_samples"] >= 0).all(), "a node has a negative number of samples")
    weights = nodes["weighted_n_node_samples"]
    _ensure_tree((np.isfinite(weights) & (weights >= 0)).all(), "a node's weight is invalid")
    _ensure_tree((nodes["missing_go_to_left"] <= 1).all(), "missing_go_to_left is neither 0 nor 1")
    _ensure_tree(np.isfinite(values).all(), "a node's value is not finite")


def check_predictor(predictor: Any, *, n_features: int, is_categorical: np.ndarray) -> None:
    """Check one `TreePredictor` of histogram boosting; `is_categorical` is a flag per feature."""
    nodes: Any = getattr(predictor, "nodes", None)
    _ensure_tree(isinstance(nodes, np.ndarray) and nodes.ndim == 1 and nodes.size > 0, "no nodes")
    _check_array(nodes, "nodes", PREDICTOR_RECORD_DTYPE, nodes.shape)
    for flag in ("is_leaf", "is_categorical", "missing_go_to_left"):
        _ensure_tree((nodes[flag] <= 1).all(), f"{flag} is neither 0 nor 1")
    inner = nodes["is_leaf"] == 0
    check_children(nodes["left"].astype(np.int64), nodes["right"].astype(np.int64), inner)
    splits = nodes[inner]
    _check_split_features(splits["feature_idx"], n_features)
    categorical = splits["is_categorical"] == 1
    _ensure_tree(not np.isnan(splits["num_threshold"][~categorical]).any(), "a threshold is NaN")
    _ensure_tree(np.isfinite(nodes["value"]).all(), "a node's value is not finite")

    bitsets = getattr(predictor, "raw_left_cat_bitsets", None)
    n_bitsets = bitsets.shape[0] if isinstance(bitsets, np.ndarray) and bitsets.ndim else 0
    for name in ("raw_left_cat_bitsets", "binned_left_cat_bitsets"):
        value = getattr(predictor, name, None)
        _check_array(value, name, np.uint32, (n_bitsets, _BITSET_SIZE))
    in_range = (splits["bitset_idx"][categorical] < n_bitsets).all()
    _ensure_tree(in_range, f"a categorical split has a bitset index beyond its {n_bitsets}")
    has_bitset = is_categorical[splits["feature_idx"][categorical]].all()
    _ensure_tree(has_bitset, "a categorical split uses a numeric feature")


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
    in_range = ((children > 0) & (children < n_nodes)).all()
    _ensure_tree(in_range, f"a child index is outside its {n_nodes} nodes")
    after_parent = (children > np.concatenate([parents, parents])).all()
    _ensure_tree(after_parent, "a node's child does not come after it")
    each_once = np.array_equal(np.sort(children), np.arange(1, n_nodes))
    _ensure_tree(each_once, "a node has no parent, or several")
    depth, level = 0, np.zeros(1, dtype=np.int64)
    while (level := level[inner[level]]).size:
        level = np.concatenate([left[level], right[level]])
        depth += 1
    return depth


def is_integer(value: Any) -> bool:
    """Return whether value is an integer of Python or numpy, and not a boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def has_layout(value: Any, dtype: npt.DTypeLike, shape: tuple[int | None, ...]) -> bool:
    """Return whether value is a C-contiguous array of this dtype and shape; None is any length."""
    return (
        isinstance(value, np.ndarray)
        and value.dtype == dtype
        and value.ndim == len(shape)
        and all(expected in (None, size) for expected, size in zip(shape, value.shape, strict=True))
        and value.flags.c_contiguous
    )


def _check_split_features(features: np.ndarray, n_features: int) -> None:
    in_range = ((features >= 0) & (features < n_features)).all()
    _ensure_tree(in_range, f"a split uses a feature outside its {n_features}")


def _check_array(value: Any, name: str, dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
    is_array = isinstance(value, np.ndarray)
    found = f"{value.dtype} of shape {value.shape}" if is_array else type(value).__name__
    fault = f"{name} is {found}, not {np.dtype(dtype)} of shape {shape}"
    _ensure_tree(has_layout(value, dtype, shape), fault)


def _ensure_tree(condition: bool | np.bool_, fault: str) -> None:
    ensure(condition, f"a tree is damaged: {fault}")
