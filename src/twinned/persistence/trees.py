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

from twinned.persistence.schema import RECORDS, At

_MAX_DEPTH = 10_000
_NO_CHILD = -1
# name of a column: its name in the records of scikit-learn
_NODES = {
    "left": "left_child", "right": "right_child", "feature": "feature", "threshold": "threshold",
    "missing_left": "missing_go_to_left", "impurity": "impurity", "n_samples": "n_node_samples",
    "weight": "weighted_n_node_samples",
}  # fmt: skip
_HISTOGRAM_NODES = {
    "left": "left", "right": "right", "feature": "feature_idx", "threshold": "num_threshold",
    "missing_left": "missing_go_to_left", "value": "value", "count": "count",
    "bitset": "bitset_idx", "categorical": "is_categorical",
}  # fmt: skip


def take_trees(trees: list[Any]) -> dict[str, Any]:
    """Return the columns of fitted trees of scikit-learn."""
    states = [tree.tree_.__getstate__() for tree in trees]
    seeds = [own.random_state if isinstance(own.random_state, int) else -1 for own in trees]
    return {
        "n_nodes": np.array([state["node_count"] for state in states], dtype=np.int64),
        "seeds": np.array(seeds, dtype=np.int64),
        "value": np.concatenate([state["values"][:, :, 0] for state in states]),
        **_columns([state["nodes"] for state in states], _NODES, "trees"),
    }


def build_trees(owner: Any, cls: Any, columns: dict[str, Any], at: At) -> list[Any]:
    """Return fitted trees of a class, which share the parameters of their owner."""
    n_features, sizes, values = owner.n_features_in_, columns["n_nodes"], columns["value"]
    depths = check_structure(columns, n_features, at)
    at.ensure(not np.isnan(columns["threshold"]).any(), "has a threshold that is NaN")
    shared, trees = owner.get_params(deep=False), []
    parameters = {name: shared[name] for name in cls._get_param_names() if name in shared}
    for number, end in enumerate(np.cumsum(sizes)):
        rows = slice(end - sizes[number], end)
        member, n_outputs = cls(**parameters), values.shape[1]
        seed = int(columns["seeds"][number])
        member.random_state = None if seed < 0 else seed
        member.n_features_in_, member.n_outputs_ = n_features, n_outputs
        member.tree_ = Tree(n_features, np.ones(n_outputs, dtype=np.intp), n_outputs)
        own_values = np.ascontiguousarray(values[rows, :, None])
        nodes = np.zeros(sizes[number], NODE_DTYPE)  # of one tree, which fits into the cache
        for column, name in _NODES.items():
            nodes[name] = columns[column][rows]
        state = {"node_count": int(sizes[number]), "max_depth": int(depths[number])}
        member.tree_.__setstate__({**state, "nodes": nodes, "values": own_values})
        trees.append(member)
    return trees


def take_histogram_trees(predictors: list[Any]) -> dict[str, Any]:
    """Return the columns of the trees of histogram gradient boosting."""
    bitsets = [predictor.raw_left_cat_bitsets for predictor in predictors]
    nodes = [predictor.nodes for predictor in predictors]
    columns = _columns(nodes, _HISTOGRAM_NODES, "histogram_trees")
    is_leaf = np.concatenate([own["is_leaf"] for own in nodes]) == 1
    return {
        **columns,
        **{side: np.where(is_leaf, _NO_CHILD, columns[side]) for side in ("left", "right")},
        "value": columns["value"][:, None],
        "n_nodes": np.array([len(own) for own in nodes], dtype=np.int64),
        "n_bitsets": np.array([len(own) for own in bitsets], dtype=np.int64),
        "bitsets": np.concatenate(bitsets),
    }


def build_histogram_trees(
    columns: dict[str, Any], n_features: int, is_categorical: np.ndarray, at: At
) -> list[TreePredictor]:
    """Return the trees of histogram gradient boosting; `is_categorical` is a flag per feature."""
    check_structure(columns, n_features, at)
    inner, counts, bitsets = columns["left"] >= 0, columns["n_bitsets"], columns["bitsets"]
    categorical = inner & (columns["categorical"] == 1)
    unknown = np.isnan(columns["threshold"][inner & ~categorical])
    at.ensure(not unknown.any(), "has a threshold that is NaN")
    by_category = is_categorical[columns["feature"][categorical]]
    at.ensure(by_category.all(), "splits a numeric feature by categories")
    at.ensure((counts <= len(bitsets)).all() and counts.sum() == len(bitsets), "lacks bitsets")
    has_bitset = columns["bitset"] < np.repeat(counts, columns["n_nodes"])
    at.ensure(has_bitset[categorical].all(), "has a split without its bitset")
    nodes = np.zeros(len(inner), PREDICTOR_RECORD_DTYPE)
    for column, name in _HISTOGRAM_NODES.items():
        nodes[name] = np.where(inner | (name not in ("left", "right")), columns[column].ravel(), 0)
    nodes["is_leaf"] = ~inner
    parts = zip(_split(nodes, columns["n_nodes"]), _split(bitsets, counts), strict=True)
    return [TreePredictor(rows, np.zeros_like(raw), raw) for rows, raw in parts]


def check_structure(columns: dict[str, Any], n_features: int, at: At) -> np.ndarray:
    """Check that the nodes form one tree after the other; return the depth of each.

    >>> columns = {"n_nodes": np.array([5, 1]), "feature": np.array([1, -2, 0, -2, -2, -2])}
    >>> columns["left"] = np.array([1, -1, 3, -1, -1, -1])
    >>> columns["right"] = np.array([2, -1, 4, -1, -1, -1])
    >>> check_structure(columns, 2, At("trees", {}))
    array([2, 0])
    >>> columns["left"][2] = 2
    >>> check_structure(columns, 2, At("trees", {}))
    Traceback (most recent call last):
    ...
    twinned.exceptions.IntegrityError: trees has a child that does not come after its parent
    """
    sizes, n_nodes = columns["n_nodes"], len(columns["left"])
    at.ensure((sizes <= n_nodes).all() and sizes.sum() == n_nodes, "has nodes of no tree")
    inner = columns["left"] != _NO_CHILD
    at.ensure((columns["right"][~inner] == _NO_CHILD).all(), "has a leaf with a right child")
    features = columns["feature"][inner]
    in_range = ((features >= 0) & (features < n_features)).all()
    at.ensure(in_range, f"splits a feature outside its {n_features}")
    roots, tree_of = np.cumsum(sizes) - sizes, np.repeat(np.arange(len(sizes)), sizes)
    # in 64 bits, with the nodes of all trees numbered consecutively
    left, right = (columns[side].astype(np.int64) + roots[tree_of] for side in ("left", "right"))
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
            break
        depths[tree_of[level]] = depth + 1
        level = np.concatenate([left[level], right[level]])
    at.ensure(not level.size, f"has a tree that is more than {_MAX_DEPTH:,} levels deep")
    return depths


def _columns(nodes: list[np.ndarray], names: dict[str, str], record: str) -> dict[str, np.ndarray]:
    """Return the fields of records, in the types of the schema."""
    return {
        column: np.concatenate([own[name] for own in nodes]).astype(RECORDS[record][column][:2])
        for column, name in names.items()
    }


def _split(array: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    return [part.copy() for part in np.split(array, np.cumsum(sizes)[:-1])]
