"""Decision trees in model files: the nodes of all trees of an ensemble, as columns.

Compiled prediction code follows children and features without checks, so that a crafted index would
read foreign memory and a cycle would never end. scikit-learn numbers a child after its parent. With
that, and if every node except the root is the child of exactly one node, each path from the root
ends at a leaf. The records that scikit-learn reads are built from columns that were verified.
"""

from typing import Any

import numpy as np
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree._tree import NODE_DTYPE, Tree

from twinned.persistence.fields import ANY, Array, At, Maybe, Record

_MAX_DEPTH = 10_000
_NO_CHILD, _NO_FEATURE = -1, -2
_BITSET_SIZE = 8  # integers of 32 bits each, for 256 categories

# of a tree of scikit-learn; the names are those of its records
_NODES = {
    "left_child": Array("node", "i4", _NO_CHILD),
    "right_child": Array("node", "i4", _NO_CHILD),
    "feature": Array("node", "i4", _NO_FEATURE),
    "threshold": Array("node", "f8", *ANY),
    "impurity": Array("node", "f8", *ANY, missing=True),
    "n_node_samples": Array("node", "i8", 0),
    "weighted_n_node_samples": Array("node", "f8", 0),
    "missing_go_to_left": Array("node", "u1", 0, 1),
}
TREES = Record(
    {
        "n_nodes": Array("tree", "i8", 1, 2**31),
        "seeds": Maybe(Array("tree", "i8", 0, 2**32)),
        "value": Array("node output", "f8"),
        **_NODES,
    }
)
_HISTOGRAM_NODES = {
    "value": Array("node", "f8"),
    "count": Array("node", "u4"),
    "feature_idx": Array("node", "i4", 0),
    "num_threshold": Array("node", "f8", *ANY, missing=True),
    "missing_go_to_left": Array("node", "u1", 0, 1),
    "left": Array("node", "u4", 0, 2**31),
    "right": Array("node", "u4", 0, 2**31),
    "is_categorical": Array("node", "u1", 0, 1),
    "bitset_idx": Array("node", "u4"),
}
HISTOGRAM_TREES = Record(
    {
        "n_nodes": Array("tree", "i8", 1, 2**31),
        "n_bitsets": Array("tree", "i8", 0, 2**31),
        "bitsets": Array(f"bitset {_BITSET_SIZE}", "u4"),
        **_HISTOGRAM_NODES,
    }
)


def take_trees(trees: list[Any]) -> dict[str, Any]:
    """Return the columns of fitted trees of scikit-learn."""
    states = [tree.tree_.__getstate__() for tree in trees]
    seeds = [tree.random_state for tree in trees]
    has_seeds = all(isinstance(seed, int | np.integer) for seed in seeds)
    return {
        "n_nodes": np.array([state["node_count"] for state in states], dtype=np.int64),
        "seeds": np.array(seeds, dtype=np.int64) if has_seeds else None,
        "value": np.concatenate([state["values"][:, :, 0] for state in states]),
        **_columns([state["nodes"] for state in states], _NODES),
    }


def build_trees(owner: Any, cls: type, columns: dict[str, Any], at: At) -> list[Any]:
    """Return fitted trees of a class, which share the parameters of their owner."""
    left, right, sizes = columns["left_child"], columns["right_child"], columns["n_nodes"]
    inner = left != _NO_CHILD
    depths = check_structure(sizes, left, right, inner, at)
    at.ensure((right[~inner] == _NO_CHILD).all(), "has a leaf with a right child")
    _check_features(columns["feature"][inner], owner.n_features_in_, at)
    values, n_outputs = columns["value"], columns["value"].shape[1]
    at.ensure(n_outputs > 0, "has no outputs")
    nodes = _records(columns, _NODES, NODE_DTYPE)
    shared = owner.get_params(deep=False)
    parameters = {n: shared[n] for n in cls._get_param_names() if n in shared}  # type: ignore[attr-defined]
    trees = []
    for number, end in enumerate(np.cumsum(sizes)):
        rows = slice(end - sizes[number], end)
        tree = Tree(owner.n_features_in_, np.ones(n_outputs, dtype=np.intp), n_outputs)
        tree.__setstate__(
            {
                "max_depth": int(depths[number]),
                "node_count": int(sizes[number]),
                "nodes": nodes[rows],
                "values": np.ascontiguousarray(values[rows, :, None]),
            }
        )
        member = cls(**parameters)
        if columns["seeds"] is not None:
            member.random_state = int(columns["seeds"][number])
        member.n_features_in_, member.n_outputs_, member.tree_ = (
            owner.n_features_in_,
            n_outputs,
            tree,
        )
        trees.append(member)
    return trees


def take_histogram_trees(predictors: list[Any]) -> dict[str, Any]:
    """Return the columns of the trees of histogram gradient boosting."""
    bitsets = [predictor.raw_left_cat_bitsets for predictor in predictors]
    nodes = [predictor.nodes for predictor in predictors]
    return {
        "n_nodes": np.array([len(own) for own in nodes], dtype=np.int64),
        "n_bitsets": np.array([len(own) for own in bitsets], dtype=np.int64),
        "bitsets": np.concatenate(bitsets),
        **_columns(nodes, _HISTOGRAM_NODES),
    }


def build_histogram_trees(
    columns: dict[str, Any], n_features: int, is_categorical: np.ndarray, at: At
) -> list[TreePredictor]:
    """Return the trees of histogram gradient boosting; `is_categorical` is a flag per feature."""
    inner = columns["left"] > 0
    check_structure(columns["n_nodes"], columns["left"], columns["right"], inner, at)
    features, categorical = columns["feature_idx"], inner & (columns["is_categorical"] == 1)
    _check_features(features[inner], n_features, at)
    thresholds = columns["num_threshold"][inner & ~categorical]
    at.ensure(not np.isnan(thresholds).any(), "has a threshold that is NaN")
    at.ensure(is_categorical[features[categorical]].all(), "splits numbers by categories")
    counts, bitsets = columns["n_bitsets"], columns["bitsets"]
    at.ensure((counts <= len(bitsets)).all() and counts.sum() == len(bitsets), "lacks bitsets")
    own = np.repeat(counts, columns["n_nodes"])
    at.ensure((columns["bitset_idx"] < own)[categorical].all(), "has no bitset of a split")
    nodes = _records(columns, _HISTOGRAM_NODES, np.dtype(PREDICTOR_RECORD_DTYPE))
    nodes["is_leaf"] = ~inner
    ends, bitset_ends = np.cumsum(columns["n_nodes"]), np.cumsum(counts)
    parts = zip(np.split(nodes, ends[:-1]), np.split(bitsets, bitset_ends[:-1]), strict=True)
    return [TreePredictor(rows.copy(), np.zeros_like(raw), raw.copy()) for rows, raw in parts]


def check_structure(
    sizes: np.ndarray, left: np.ndarray, right: np.ndarray, inner: np.ndarray, at: At
) -> np.ndarray:
    """Check that consecutive nodes form one tree after the other; return the depth of each.

    >>> at, sizes, leaf = At("model", {}), np.array([5, 1]), -1
    >>> left, right = np.array([1, leaf, 3, leaf, leaf, leaf]), np.array([2, leaf, 4, leaf, leaf, 0])
    >>> check_structure(sizes, left, right, left != leaf, at)
    array([2, 0])
    >>> left[2] = 2
    >>> check_structure(sizes, left, right, left != leaf, at)
    Traceback (most recent call last):
    ...
    twinned.exceptions.IntegrityError: model has a child that does not come after its parent
    """
    n_nodes = len(left)
    at.ensure(len(sizes) > 0, "has no trees")
    at.ensure((sizes <= n_nodes).all() and sizes.sum() == n_nodes, "has nodes of no tree")
    roots, tree_of = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    # in 64 bits, with the nodes of all trees numbered consecutively
    left, right = (side.astype(np.int64) + roots[tree_of] for side in (left, right))
    parents = np.tile(np.flatnonzero(inner), 2)
    children = np.concatenate([left[inner], right[inner]])
    at.ensure((children > parents).all(), "has a child that does not come after its parent")
    in_tree = children < (roots + sizes)[tree_of[parents]]
    at.ensure(in_tree.all(), "has a child index outside its tree")
    n_parents = np.bincount(children, minlength=n_nodes)
    n_parents[roots] += 1
    at.ensure((n_parents == 1).all(), "has a node without a parent, or with several")
    depths, level = np.zeros(len(sizes), dtype=np.int64), roots
    for depth in range(_MAX_DEPTH):
        level = level[inner[level]]
        if not level.size:
            return depths
        depths[tree_of[level]] = depth + 1
        level = np.concatenate([left[level], right[level]])
    at.ensure(False, f"has a tree that is more than {_MAX_DEPTH:,} levels deep")
    return depths


def _check_features(features: np.ndarray, n_features: int, at: At) -> None:
    in_range = ((features >= 0) & (features < n_features)).all()
    at.ensure(in_range, f"splits a feature outside its {n_features}")


def _columns(nodes: list[np.ndarray], fields: dict[str, Array]) -> dict[str, np.ndarray]:
    """Return the fields of records, in the types of the file."""
    return {
        name: np.concatenate([own[name] for own in nodes]).astype(column.types)
        for name, column in fields.items()
    }


def _records(columns: dict[str, Any], fields: dict[str, Array], dtype: Any) -> np.ndarray:
    """Return records of a dtype, which are zero in all other fields."""
    records = np.zeros(len(columns["feature" if "feature" in fields else "feature_idx"]), dtype)
    for name in fields:
        records[name] = columns[name]
    return records
