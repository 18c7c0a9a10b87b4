"""Kinds of scikit-learn estimators: the state that a file holds, and how it is rebuilt from it.

State that compiled code reads is rebuilt by scikit-learn itself where possible: neighbors are
fitted again to their rows, and encoders to a table of their categories.

Trees are stored as columns, the nodes of all trees of an ensemble together. Compiled prediction
code follows children and features without checks, so that a crafted index would read foreign memory
and a cycle would never end. scikit-learn numbers a child after its parent. With that, and if every
node except the root is the child of exactly one node, each path from the root ends at a leaf. The
records that scikit-learn reads are built from columns that were verified.
"""

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor
from sklearn.tree._tree import NODE_DTYPE, Tree

from twinned import _compat
from twinned.persistence.values import KINDS, LINEAR, READ, RECORDS, At, State, builder, set_state
from twinned.rows.neighbors import LEARNED, TRANSLATION_INVARIANT

METRICS = sorted({*TRANSLATION_INVARIANT, "cosine", LEARNED})
_CELL_BYTES = 32  # memory of a number in the table of an encoder, with its copies
_MAX_DEPTH = 10_000
_LEAF = -1  # the children of a leaf
_ENSEMBLES = [name for name, kind in KINDS.items() if kind.fields.get("trees") == "trees"]

# --- trees ----------------------------------------------------------------------------------------


def _columns(nodes: list[np.ndarray], record: str) -> State:
    """Return the number of nodes of each tree, and the fields of all nodes that a record names."""
    return {"n_nodes": np.array([len(tree) for tree in nodes], dtype=np.int64)} | {
        name: np.concatenate([tree[name] for tree in nodes]).astype(kind[:2])
        for name, kind in RECORDS[record].items()
        if name in (nodes[0].dtype.names or ())
    }


def _nodes(columns: State, dtype: np.dtype) -> list[np.ndarray]:
    """Return the nodes of each tree, with zeros in the fields that have no column."""
    ends = np.cumsum(columns["n_nodes"])
    # one array for each tree, which fits into the cache
    trees = [np.zeros(size, dtype) for size in columns["n_nodes"]]
    for nodes, end in zip(trees, ends, strict=True):
        for name in columns.keys() & set(dtype.names or ()):
            nodes[name] = columns[name][end - len(nodes) : end]
    return trees


def build_trees(
    owner: BaseEstimator, cls: type[BaseEstimator], columns: State, at: At
) -> list[BaseEstimator]:
    """Return fitted trees of a class, which share the parameters of their owner."""
    n_features, values = owner.n_features_in_, columns["value"]
    left, right = columns["left_child"], columns["right_child"]
    depths = check_structure(columns["n_nodes"], left, right, columns["feature"], n_features, at)
    at.ensure(not np.isnan(columns["threshold"]).any(), "has a threshold that is NaN")
    shared, trees, n_outputs = owner.get_params(deep=False), [], values.shape[1]
    parameters = {name: shared[name] for name in cls._get_param_names() if name in shared}
    all_nodes, start = _nodes(columns, NODE_DTYPE), 0
    for nodes, depth in zip(all_nodes, depths, strict=True):
        tree = cls(**parameters)
        tree.n_features_in_, tree.n_outputs_ = n_features, n_outputs
        tree.tree_ = Tree(n_features, np.ones(n_outputs, dtype=np.intp), n_outputs)
        leaf_values = np.ascontiguousarray(values[start : start + len(nodes), :, None])
        state = {"node_count": len(nodes), "max_depth": int(depth), "nodes": nodes}
        tree.tree_.__setstate__({**state, "values": leaf_values})
        trees.append(tree)
        start += len(nodes)
    return trees


def check_structure(
    sizes: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    feature: np.ndarray,
    n_features: int,
    at: At,
) -> np.ndarray:
    """Check that nodes form trees of these sizes, one after the other; return their depths.

    >>> left, right = np.array([1, -1, 3, -1, -1, -1]), np.array([2, -1, 4, -1, -1, -1])
    >>> sizes, feature = np.array([5, 1]), np.array([1, -2, 0, -2, -2, -2])
    >>> check_structure(sizes, left, right, feature, 2, At("trees", {}))
    array([2, 0])
    >>> left[2] = 2
    >>> check_structure(sizes, left, right, feature, 2, At("trees", {}))
    Traceback (most recent call last):
    ...
    twinned.exceptions.IntegrityError: trees has a child that does not come after its parent
    """
    n_nodes, inner = len(left), left != _LEAF
    at.ensure((sizes <= n_nodes).all() and sizes.sum() == n_nodes, "has nodes of no tree")
    at.ensure((right[~inner] == _LEAF).all(), "has a leaf with a right child")
    in_range = ((feature[inner] >= 0) & (feature[inner] < n_features)).all()
    at.ensure(in_range, f"splits a feature outside its {n_features}")
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
            break
        depths[tree_of[level]] = depth + 1
        level = np.concatenate([left[level], right[level]])
    at.ensure(not level.size, f"has a tree that is more than {_MAX_DEPTH:,} levels deep")
    return depths


@builder(*_ENSEMBLES)
def _build_ensemble(model: BaseEstimator, state: State, at: At) -> None:
    is_extra = type(model).__name__.startswith("ExtraTree")
    cls = ExtraTreeRegressor if is_extra else DecisionTreeRegressor
    trees = build_trees(model, cls, state["trees"], at)
    model.n_outputs_ = trees[0].n_outputs_
    if isinstance(model, DecisionTreeRegressor):  # or an ExtraTreeRegressor
        at.ensure(len(trees) == 1, "has several trees")
        model.tree_ = trees[0].tree_
    elif "init_" not in state:
        model.estimator_, model.estimators_ = cls(), trees
    else:
        init = state["init_"]
        at.ensure(model.n_outputs_ == 1, "has trees of several outputs")
        at.ensure(init is None or init.n_outputs_ == 1, "starts from several outputs")
        model.init_ = "zero" if init is None else init
        model.estimators_ = np.array([[tree] for tree in trees], dtype=object)
        model.n_estimators_ = len(trees)
        _compat.set_boosting_loss(model)


@builder("HistGradientBoostingRegressor")
def _build_histogram_boosting(model: BaseEstimator, state: State, at: At) -> None:
    flags, categories, table = state["is_categorical_"], state["categories"], None
    at.ensure((flags is None) == (categories is None), "has categories of no feature")
    if flags is not None:
        at.ensure(0 < flags.sum() == len(categories), "has other categorical features")
        length = max(map(len, categories))
        at.reserve(_CELL_BYTES * length * len(flags), "categories")
        table = np.zeros((length, len(flags)))
        table[:, flags] = np.column_stack([np.resize(known, length) for known in categories])
    is_categorical = _compat.set_boosting_categories(model, table)
    at.ensure(np.array_equal(model.is_categorical_, flags), "has other categorical features")
    if categories is not None:
        encoded = _compat.boosting_encoder(model).categories_
        at.ensure(repr(categories) == repr(encoded), "has categories that are not sorted")
    trees = _build_histogram_trees(state["trees"], is_categorical, at)
    _compat.set_boosting_trees(model, trees, state["baseline"])


def _build_histogram_trees(
    columns: State, is_categorical: np.ndarray, at: At
) -> list[TreePredictor]:
    """Return the trees; `is_categorical` is a flag of each of their features."""
    is_leaf = columns["is_leaf"] == 1
    left, right = (np.where(is_leaf, _LEAF, columns[side]) for side in ("left", "right"))
    sizes, feature = columns["n_nodes"], columns["feature_idx"]
    check_structure(sizes, left, right, feature, len(is_categorical), at)
    categorical = ~is_leaf & (columns["is_categorical"] == 1)
    unknown = np.isnan(columns["num_threshold"][~is_leaf & ~categorical])
    at.ensure(not unknown.any(), "has a threshold that is NaN")
    by_category = is_categorical[feature[categorical]]
    at.ensure(by_category.all(), "splits a numeric feature by categories")
    counts, bitsets = columns["n_bitsets"], columns["bitsets"]
    at.ensure((counts <= len(bitsets)).all() and counts.sum() == len(bitsets), "lacks bitsets")
    has_bitset = columns["bitset_idx"] < np.repeat(counts, sizes)
    at.ensure(has_bitset[categorical].all(), "has a split without its bitset")
    for side in ("left", "right"):
        columns[side][is_leaf] = 0
    nodes = _nodes(columns, PREDICTOR_RECORD_DTYPE)
    of_trees = np.split(bitsets, np.cumsum(counts)[:-1])
    return [
        TreePredictor(tree, np.zeros_like(raw), raw.copy())
        for tree, raw in zip(nodes, of_trees, strict=True)
    ]


# --- linear models, neighbors and networks --------------------------------------------------------


@builder("KNeighborsRegressor")
def _build_neighbors(model: BaseEstimator, state: State, at: At) -> None:
    allowed = [metric for metric in METRICS if metric != LEARNED]
    is_allowed = model.metric in allowed and model.metric_params is None
    at.ensure(is_allowed, f"has metric={model.metric!r:.60}, not one of {', '.join(allowed)}")
    model.fit(state["_fit_X"], state["_y"])


@builder("MLPRegressor")
def _build_perceptron(model: BaseEstimator, state: State, at: At) -> None:
    set_state(model, state)
    model.n_layers_, model.n_outputs_ = len(model.coefs_) + 1, len(model.intercepts_[-1])


@builder("DummyRegressor")
def _build_dummy(model: BaseEstimator, state: State, at: At) -> None:
    model.constant_, model.n_outputs_ = state["constant_"], state["constant_"].shape[1]


# --- transformers and compositions ----------------------------------------------------------------


@builder("SimpleImputer")
def _build_imputer(model: BaseEstimator, state: State, at: At) -> None:
    at.ensure(not model.add_indicator, "has add_indicator=True, which cannot be stored")
    dtypes = dict.fromkeys(("_fit_dtype", "_fill_dtype"), np.dtype(np.float64))
    set_state(model, {**state, **dtypes, "indicator_": None})


@builder("Pipeline")
def _build_pipeline(model: BaseEstimator, state: State, at: At) -> None:
    at.ensure(model.memory is None, "has a memory, which cannot be stored")
    model.steps = list(state["steps"].items())
    *before, last = ["transformer" in KINDS[type(step).__name__].options for _, step in model.steps]
    at.ensure(all(before) and not last, "has a regressor that is not its last step")


# --- what is read from models, where it is not their attributes -----------------------------------


def _read_ensemble(model: BaseEstimator) -> State:
    members, init = vars(model).get("estimators_", [model]), vars(model).get("init_")
    trees = [tree.tree_.__getstate__() for tree in np.ravel(members)]
    values = np.concatenate([tree["values"][:, :, 0] for tree in trees])
    columns = _columns([tree["nodes"] for tree in trees], "trees")
    return {"trees": {**columns, "value": values}, "init_": None if init == "zero" else init}


def _read_linear(model: BaseEstimator) -> State:
    return {"coef_": model.coef_, "intercept_": np.asarray(model.intercept_, dtype=float)}


def _read_histogram_boosting(model: BaseEstimator) -> State:
    nodes, baseline = _compat.boosting_trees(model)
    encoder, bitsets = _compat.boosting_encoder(model), _compat.boosting_bitsets(model)
    if encoder and {known.dtype.kind for known in encoder.categories_} != {"f"}:
        fault = "HistGradientBoostingRegressor with categories that are not floats"
        raise TypeError(f"{fault} is not stored; store the model with skops.io.dump instead")
    trees = _columns(nodes, "histogram_trees") | {
        "n_bitsets": np.array([len(tree) for tree in bitsets], dtype=np.int64),
        "bitsets": np.concatenate(bitsets),
    }
    return {
        "baseline": np.reshape(baseline, (1, 1)),
        "is_categorical_": model.is_categorical_,
        "categories": encoder and encoder.categories_,
        "trees": trees,
    }


READ |= {
    **dict.fromkeys(_ENSEMBLES, _read_ensemble),
    **dict.fromkeys(LINEAR, _read_linear),
    "HistGradientBoostingRegressor": _read_histogram_boosting,
    "Pipeline": lambda model: {"steps": dict(model.steps)},
}
