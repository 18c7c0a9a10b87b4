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
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor
from sklearn.tree._tree import NODE_DTYPE, Tree

from twinned import _compat
from twinned.persistence.schema import KINDS, LINEAR, RECORDS, At
from twinned.persistence.values import READ, State, builder, set_state
from twinned.rows.neighbors import LEARNED, TRANSLATION_INVARIANT

METRICS = sorted({*TRANSLATION_INVARIANT, "cosine", LEARNED})
# memory of a number, an object or a character in the table of an encoder, with its copies
_CELL_BYTES = 32
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
_ENSEMBLES = [name for name, kind in KINDS.items() if kind.fields.get("trees") == "trees"]

# --- trees ----------------------------------------------------------------------------------------


def tree_columns(trees: list[BaseEstimator]) -> State:
    """Return the columns of fitted trees of scikit-learn."""
    states = [tree.tree_.__getstate__() for tree in trees]
    seeds = [tree.random_state if isinstance(tree.random_state, int) else -1 for tree in trees]
    return {
        "seeds": np.array(seeds, dtype=np.int64),
        "value": np.concatenate([state["values"][:, :, 0] for state in states]),
        **_columns([state["nodes"] for state in states], _NODES, "trees"),
    }


def build_trees(
    owner: BaseEstimator, cls: type[BaseEstimator], columns: State, at: At
) -> list[BaseEstimator]:
    """Return fitted trees of a class, which share the parameters of their owner."""
    n_features, sizes, values = owner.n_features_in_, columns["n_nodes"], columns["value"]
    depths = check_structure(columns, n_features, at)
    at.ensure(not np.isnan(columns["threshold"]).any(), "has a threshold that is NaN")
    shared, trees, n_outputs = owner.get_params(deep=False), [], values.shape[1]
    parameters = {name: shared[name] for name in cls._get_param_names() if name in shared}
    ends = np.cumsum(sizes)
    for seed, depth, end, size in zip(columns["seeds"], depths, ends, sizes, strict=True):
        tree = cls(**parameters).set_params(random_state=None if seed < 0 else int(seed))
        tree.n_features_in_, tree.n_outputs_ = n_features, n_outputs
        tree.tree_ = Tree(n_features, np.ones(n_outputs, dtype=np.intp), n_outputs)
        nodes = np.zeros(size, NODE_DTYPE)  # of one tree, which fits into the cache
        for column, name in _NODES.items():
            nodes[name] = columns[column][end - size : end]
        leaf_values = np.ascontiguousarray(values[end - size : end, :, None])
        state = {"node_count": int(size), "max_depth": int(depth), "nodes": nodes}
        tree.tree_.__setstate__({**state, "values": leaf_values})
        trees.append(tree)
    return trees


def histogram_tree_columns(model: BaseEstimator) -> State:
    """Return the columns of the trees of histogram gradient boosting."""
    (nodes, _), bitsets = _compat.boosting_trees(model), _compat.boosting_bitsets(model)
    columns = _columns(nodes, _HISTOGRAM_NODES, "histogram_trees")
    is_leaf = np.concatenate([tree["is_leaf"] for tree in nodes]) == 1
    return {
        **columns,
        **{side: np.where(is_leaf, _NO_CHILD, columns[side]) for side in ("left", "right")},
        "value": columns["value"][:, None],
        "n_bitsets": np.array([len(tree) for tree in bitsets], dtype=np.int64),
        "bitsets": np.concatenate(bitsets),
    }


def build_histogram_trees(
    columns: State, n_features: int, is_categorical: np.ndarray, at: At
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


def check_structure(columns: State, n_features: int, at: At) -> np.ndarray:
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
    """Return the fields of records, in the types of the schema, and the number of each tree."""
    return {"n_nodes": np.array([len(tree) for tree in nodes], dtype=np.int64)} | {
        column: np.concatenate([tree[name] for tree in nodes]).astype(RECORDS[record][column][:2])
        for column, name in names.items()
    }


def _split(array: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    return [part.copy() for part in np.split(array, np.cumsum(sizes)[:-1])]


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
        columns = [{"dtype": "float64", "values": [0.0]}] * model.n_features_in_
        for j, known in zip(np.flatnonzero(flags).tolist(), categories, strict=True):
            columns[j] = known
        table = _category_table(columns, model, at)
        if isinstance(table, pd.DataFrame):
            table = table.astype(dict.fromkeys(table.columns[flags], "category"))
    is_categorical = _compat.set_boosting_categories(model, table)
    at.ensure(np.array_equal(model.is_categorical_, flags), "has other categorical features")
    if categories is not None:
        _check_categories(_compat.boosting_encoder(model), categories, at)
    trees = build_histogram_trees(state["trees"], model.n_features_in_, is_categorical, at)
    _compat.set_boosting_trees(model, trees, state["baseline"])


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


def read_categories(encoder: BaseEstimator) -> list[State]:
    """Return the categories of the features of an encoder, each with the type of its column."""
    return [
        {"dtype": "str" if known.dtype.kind == "U" else known.dtype.name, "values": known.tolist()}
        for known in encoder.categories_
    ]


def _category_table(
    categories: list[State], model: BaseEstimator, at: At
) -> np.ndarray | pd.DataFrame:
    """Return a table of the features of a model with these values, some of them repeated."""
    length, names = max(len(k["values"]) for k in categories), vars(model).get("feature_names_in_")
    texts = [map(str, k["values"] if k["dtype"] == "str" else "-") for k in categories]
    widths = [max(map(len, column), default=1) for column in texts]
    width = sum(widths) if names is not None else len(widths) * max(widths)  # an array has one type
    at.reserve(_CELL_BYTES * length * width, "categories")
    columns = [np.resize(np.array(k["values"], dtype=k["dtype"]), length) for k in categories]
    if names is None:
        return np.column_stack(columns)
    series = (pd.Series(column, dtype=column.dtype) for column in columns)  # not as inferred
    return pd.DataFrame(dict(zip(names, series, strict=True)))


def _check_categories(encoder: BaseEstimator, stored: list[State], at: At) -> None:
    """Raise unless an encoder has the stored categories, which are sorted and distinct."""
    same = repr(read_categories(encoder)) == repr(stored)
    at.ensure(same, "has categories that are not sorted and distinct")


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
    return {"trees": tree_columns([*np.ravel(members)]), "init_": None if init == "zero" else init}


def _read_linear(model: BaseEstimator) -> State:
    return {"coef_": model.coef_, "intercept_": np.asarray(model.intercept_, dtype=float)}


def _read_histogram_boosting(model: BaseEstimator) -> State:
    encoder, (_, baseline) = _compat.boosting_encoder(model), _compat.boosting_trees(model)
    return {
        "baseline": np.reshape(baseline, (1, 1)),
        "is_categorical_": model.is_categorical_,
        "categories": encoder and read_categories(encoder),
        "trees": histogram_tree_columns(model),
    }


READ |= {
    **dict.fromkeys(_ENSEMBLES, _read_ensemble),
    **dict.fromkeys(LINEAR, _read_linear),
    "HistGradientBoostingRegressor": _read_histogram_boosting,
    "Pipeline": lambda model: {"steps": dict(model.steps)},
}
