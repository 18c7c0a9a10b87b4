"""Checks of fitted estimators: what compiled code reads is verified, or rebuilt from plain data.

`verify_and_rebuild` runs on the built model before it is returned. It visits every object in it, so
that an estimator deep inside a pipeline is checked like the model itself.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.neighbors import (
    BallTree,
    KDTree,
    KNeighborsRegressor,
    NearestNeighbors,
    RadiusNeighborsRegressor,
)
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder
from sklearn.svm import SVR, NuSVR
from sklearn.tree import BaseDecisionTree, DecisionTreeRegressor, ExtraTreeRegressor
from sklearn.tree._tree import Tree
from sklearn.utils import check_array

from twinned.intervals.stored import find_invalid_part
from twinned.persistence.archive import ensure
from twinned.persistence.tree_checks import check_predictor, has_layout, is_integer

_MERSENNE_TWISTER_SIZE = 624
_MAX_BINS = 256
_SCALAR_TYPES = (str, int, float, slice, type, np.ufunc, np.dtype)
_SEARCH_TREES = {"kd_tree": KDTree, "ball_tree": BallTree, "brute": None}


def verify_and_rebuild(model: BaseEstimator) -> None:
    """Verify every object in the model, and rebuild what the file does not hold."""
    for part in _objects_in(model):
        attribute, check = _CHECKS.get(type(part), ("", None))
        if check is not None and hasattr(part, attribute):
            check(part)
        if "intervals_" in getattr(part, "__dict__", ()):
            fault = find_invalid_part(part)
            _ensure_sound(fault is None, part, str(fault))


def _objects_in(model: BaseEstimator) -> Iterator[Any]:
    seen: set[int] = set()
    pending: list[Any] = [model]
    while pending:
        part = pending.pop()
        if part is None or isinstance(part, _SCALAR_TYPES) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, dict):
            pending.extend(part.values())
        elif isinstance(part, list | tuple | set):
            pending.extend(part)
        elif isinstance(part, np.ndarray):
            if part.dtype == object:
                pending.extend(part.ravel())
        elif hasattr(part, "__dict__"):
            for name in vars(part):
                is_method = callable(getattr(type(part), name, None))
                _ensure_sound(not is_method, part, f"its method {name!r} is overwritten")
            pending.extend(vars(part).values())


def _check_decision_tree(model: BaseDecisionTree) -> None:
    tree = model.tree_
    _ensure_sound(type(tree) is Tree, model, f"its tree is a {type(tree).__name__}")
    _ensure_sound(tree.node_count > 0, model, "its tree has no nodes")
    _ensure_n_features(model, tree.n_features, "tree")
    _ensure_n_outputs(model, tree.n_outputs, "tree")


def _check_forest(model: RandomForestRegressor | ExtraTreesRegressor) -> None:
    for member in model.estimators_:
        _check_tree_member(model, member)
        _ensure_n_outputs(model, member.n_outputs_, "member")


def _check_gradient_boosting(model: GradientBoostingRegressor) -> None:
    members = model.estimators_
    _ensure_sound(
        isinstance(members, np.ndarray)
        and members.dtype == object
        and members.ndim == 2
        and members.shape[1] == 1
        and getattr(model, "n_trees_per_iteration_", 1) == 1,
        model,
        "it does not have one tree in each iteration",
    )
    for member in members.ravel():
        _check_tree_member(model, member)
        _ensure_sound(member.n_outputs_ == 1, model, f"a member has {member.n_outputs_} outputs")


def _check_tree_member(model: BaseEstimator, member: Any) -> None:
    _ensure_sound(
        isinstance(member, DecisionTreeRegressor | ExtraTreeRegressor) and hasattr(member, "tree_"),
        model,
        f"a member is a {type(member).__name__}, not a fitted tree",
    )
    _check_decision_tree(member)
    _ensure_n_features(model, member.n_features_in_, "member")


def _check_histogram_boosting(model: HistGradientBoostingRegressor) -> None:
    n_features: Any = getattr(model, "n_features_in_", None)
    _ensure_sound(is_integer(n_features), model, f"n_features_in_ is {n_features!r}")
    is_categorical = _check_bins(model, n_features)
    if getattr(model, "_preprocessor", None) is not None:
        _restore_preprocessor(model, n_features)
    for iteration in model._predictors:
        for predictor in iteration:
            kind = type(predictor)
            _ensure_sound(kind is TreePredictor, model, f"a member is a {kind.__name__}")
            check_predictor(predictor, n_features=n_features, is_categorical=is_categorical)


def _check_bins(model: HistGradientBoostingRegressor, n_features: int) -> np.ndarray:
    bins = model._bin_mapper
    _ensure_sound(
        has_layout(bins.is_categorical_, np.dtype(np.uint8), (n_features,)),
        model,
        f"is_categorical_ is not a flag for each of its {n_features} features",
    )
    thresholds = bins.bin_thresholds_
    _ensure_sound(
        len(thresholds) == n_features, model, f"it has bins of {len(thresholds)} features"
    )
    for edges, is_categorical in zip(thresholds, bins.is_categorical_, strict=True):
        sorted_numbers = (
            isinstance(edges, np.ndarray)
            and edges.ndim == 1
            and edges.dtype.kind == "f"
            and len(edges) <= _MAX_BINS
            and not np.isnan(edges).any()
            and (np.diff(edges) > 0).all()
        )
        _ensure_sound(sorted_numbers, model, "its bin thresholds are not sorted numbers")
        in_range = not is_categorical or ((edges >= 0) & (edges < _MAX_BINS)).all()
        _ensure_sound(in_range, model, f"a category code is not in 0 … {_MAX_BINS - 1}")
    return bins.is_categorical_


def _restore_preprocessor(model: HistGradientBoostingRegressor, n_features: int) -> None:
    """Check that the preprocessor returns the columns that the trees index; restore its function.

    Nothing between the preprocessor and the compiled trees counts the columns again.
    """
    columns = model._preprocessor
    (encoder_name, encoder, categorical), (rest_name, rest, numeric), *remainder = (
        columns.transformers_
    )
    indices = columns._transformer_to_input_indices
    mask_layout = (np.dtype(bool), (n_features,))
    _ensure_sound(
        columns.n_features_in_ == n_features
        and (encoder_name, rest_name) == ("encoder", "numerical")
        and type(encoder) is OrdinalEncoder
        and type(rest) is FunctionTransformer
        and has_layout(categorical, *mask_layout)
        and has_layout(numeric, *mask_layout)
        and np.array_equal(categorical, ~numeric)
        and list(indices["encoder"]) == list(np.flatnonzero(categorical))
        and list(indices["numerical"]) == list(np.flatnonzero(numeric))
        and all(transformer == "drop" for _, transformer, _ in remainder)
        and columns.transformer_weights is None,
        model,
        "its categorical features are not encoded one to one",
    )
    unfitted = columns.transformers[1][1]
    # They are the same object where all features are categorical, as it is never fitted then.
    for transformer in (rest,) if rest is unfitted else (rest, unfitted):
        _ensure_sound(
            type(transformer) is FunctionTransformer
            and transformer.func is None
            and not transformer.validate
            and transformer.kw_args is None,
            model,
            "its numeric features have a transformer of another kind",
        )
        transformer.func = partial(check_array, dtype=[np.float64], ensure_all_finite=False)


def _rebuild_neighbors(
    model: KNeighborsRegressor | RadiusNeighborsRegressor | NearestNeighbors,
) -> None:
    """Check the points of a neighbors model, and build its search tree from them."""
    points = model._fit_X
    _ensure_sound(
        isinstance(points, np.ndarray)
        and points.ndim == 2
        and points.dtype in (np.float32, np.float64)
        and points.flags.c_contiguous,
        model,
        "its points are not a matrix of numbers",
    )
    _ensure_n_features(model, points.shape[1], "matrix of points")
    _ensure_sound(
        model.n_samples_fit_ == len(points) and len(getattr(model, "_y", points)) == len(points),
        model,
        f"it has {len(points)} points and claims {model.n_samples_fit_!r}",
    )
    tree = getattr(model, "_tree", None)
    if type(tree) in (KDTree, BallTree):
        return  # built just now by a twin for its anchors; a file cannot name these types
    _ensure_sound(
        tree is None and isinstance(model.effective_metric_, str),
        model,
        "its search tree cannot be rebuilt",
    )
    method = model._fit_method
    _ensure_sound(method in _SEARCH_TREES, model, f"its method is {method!r}")
    if (search_tree := _SEARCH_TREES[method]) is not None:
        parameters = model.effective_metric_params_
        model._tree = search_tree(
            points, model.leaf_size, metric=model.effective_metric_, **parameters
        )


def _check_support_vectors(model: SVR | NuSVR) -> None:
    vectors = model.support_vectors_
    _ensure_sound(
        not model._sparse and model.kernel in ("linear", "poly", "rbf", "sigmoid"),
        model,
        f"kernel={model.kernel!r} on {'sparse' if model._sparse else 'dense'} data cannot be "
        "verified; use a dense 'linear', 'poly', 'rbf' or 'sigmoid' one",
    )
    _ensure_sound("_impl" not in vars(model), model, "it names another method than its own")
    is_matrix = isinstance(vectors, np.ndarray) and vectors.ndim == 2
    _ensure_sound(is_matrix, model, "its support vectors are not a matrix")
    _ensure_n_features(model, vectors.shape[1], "support vectors")
    n_vectors = len(vectors)
    layouts = {
        "support_vectors_": (np.float64, vectors.shape),
        "support_": (np.int32, (n_vectors,)),
        "_n_support": (np.int32, (2,)),
        "_dual_coef_": (np.float64, (1, n_vectors)),
        "dual_coef_": (np.float64, (1, n_vectors)),
        "_intercept_": (np.float64, (1,)),
        "intercept_": (np.float64, (1,)),
        "_probA": (np.float64, (0,)),
        "_probB": (np.float64, (0,)),
    }
    for name, (dtype, shape) in layouts.items():
        sound = has_layout(getattr(model, name, None), np.dtype(dtype), shape)
        _ensure_sound(sound, model, f"its {name} is not an array of shape {shape}")
    counts = model._n_support
    _ensure_sound(
        (counts == n_vectors).all(),
        model,
        f"it counts {counts.tolist()} support vectors and has {n_vectors}",
    )
    n_points = model.shape_fit_[0]
    _ensure_sound(
        ((model.support_ >= 0) & (model.support_ < n_points)).all(),
        model,
        f"a support vector is none of its {n_points} points",
    )


def _check_one_hot(model: OneHotEncoder) -> None:
    """Check that no code exceeds the width of the indicators, which compiled code fills."""
    _ensure_sound(
        not getattr(model, "_infrequent_enabled", False),
        model,
        "infrequent categories cannot be verified; encode without min_frequency and max_categories",
    )
    sizes = [len(categories) for categories in model.categories_]
    dropped = [None] * len(sizes) if model.drop_idx_ is None else list(model.drop_idx_)
    in_range = len(dropped) == len(sizes) and all(
        index is None or (is_integer(index) and 0 <= index < size)
        for index, size in zip(dropped, sizes, strict=False)
    )
    widths = [size - (index is not None) for size, index in zip(sizes, dropped, strict=False)]
    _ensure_sound(
        in_range and list(model._n_features_outs) == widths,
        model,
        "its number of indicators is not its number of categories",
    )


def _check_random_state(state: np.random.RandomState) -> None:
    position = state.get_state(legacy=False)["state"]["pos"]
    _ensure_sound(0 <= position <= _MERSENNE_TWISTER_SIZE, state, f"its position is {position}")


# type: (an attribute that it has once it is fitted, its check)
_CHECKS: dict[type, tuple[str, Callable[[Any], None]]] = {
    DecisionTreeRegressor: ("tree_", _check_decision_tree),
    ExtraTreeRegressor: ("tree_", _check_decision_tree),
    RandomForestRegressor: ("estimators_", _check_forest),
    ExtraTreesRegressor: ("estimators_", _check_forest),
    GradientBoostingRegressor: ("estimators_", _check_gradient_boosting),
    HistGradientBoostingRegressor: ("_predictors", _check_histogram_boosting),
    KNeighborsRegressor: ("_fit_X", _rebuild_neighbors),
    RadiusNeighborsRegressor: ("_fit_X", _rebuild_neighbors),
    NearestNeighbors: ("_fit_X", _rebuild_neighbors),
    SVR: ("support_vectors_", _check_support_vectors),
    NuSVR: ("support_vectors_", _check_support_vectors),
    OneHotEncoder: ("categories_", _check_one_hot),
    np.random.RandomState: ("get_state", _check_random_state),
}


def _ensure_n_features(model: BaseEstimator, n_features: int, part: str) -> None:
    # scikit-learn checks X against n_features_in_, and not at all where there is none.
    expected = getattr(model, "n_features_in_", None)
    _ensure_sound(
        is_integer(expected) and expected == n_features,
        model,
        f"n_features_in_ is {expected!r}, but its {part} has {n_features}",
    )


def _ensure_n_outputs(model: BaseEstimator, n_outputs: int, part: str) -> None:
    expected = getattr(model, "n_outputs_", None)
    fault = f"n_outputs_ is {expected!r}, but its {part} has {n_outputs}"
    _ensure_sound(n_outputs == expected, model, fault)


def _ensure_sound(condition: bool | np.bool_, part: Any, fault: str) -> None:
    ensure(condition, f"a {type(part).__name__} cannot be trusted: {fault}")
