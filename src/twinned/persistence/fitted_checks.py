"""Checks of fitted estimators: what compiled code reads is verified, or rebuilt from plain data.

`verify_and_rebuild` runs on the built model before it is returned. It visits every object in it, so
that an estimator deep inside a pipeline is checked like the model itself.
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from sklearn import ensemble, neighbors
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, OrdinalEncoder
from sklearn.svm import SVR, NuSVR
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor
from sklearn.tree._tree import Tree
from sklearn.utils import check_array

from twinned.estimators.base import BaseTwin
from twinned.estimators.gaussian_process import GPRegressor
from twinned.intervals.stored import find_invalid_part
from twinned.models.gaussian_process import GaussianProcess
from twinned.persistence.archive import ensure
from twinned.persistence.tree_checks import check_predictor, has_layout, is_integer
from twinned.persistence.twin_checks import (
    Check,
    Checks,
    check_gp_regressor,
    check_process,
    check_twin,
)

_MERSENNE_TWISTER_SIZE = 624
_MAX_BINS = 256
_SCALAR_TYPES = (str, int, float, slice, type, np.ufunc, np.dtype)
_SEARCH_TREES = {"kd_tree": neighbors.KDTree, "ball_tree": neighbors.BallTree, "brute": None}


def verify_and_rebuild(model: BaseEstimator) -> None:
    """Verify every object in the model, and rebuild what the file does not hold."""
    seen: set[int] = set()
    pending: list[Any] = [model]
    while pending:
        part = pending.pop()
        if part is None or isinstance(part, _SCALAR_TYPES) or id(part) in seen:
            continue
        seen.add(id(part))
        _verify(part)
        if isinstance(part, dict):
            pending.extend(part.values())
        elif isinstance(part, list | tuple | set):
            pending.extend(part)
        elif isinstance(part, np.ndarray):
            pending.extend(part.ravel() if part.dtype == object else ())
        else:
            pending.extend(getattr(part, "__dict__", {}).values())


def _verify(part: Any) -> None:
    for condition, fault in _checks_of(part):
        ensure(condition, f"a {type(part).__name__} cannot be trusted: {fault}")


def _checks_of(part: Any) -> Checks:
    fitted_attribute, checks = _CHECKS.get(type(part), ("", None))
    if checks is not None and hasattr(part, fitted_attribute):
        yield from checks(part)
    attributes = getattr(part, "__dict__", {})
    if "intervals_" in attributes:
        fault = find_invalid_part(part)
        yield fault is None, str(fault)
    if isinstance(part, BaseTwin) and "anchors_X_" in attributes:
        yield from check_twin(part)
    for name in attributes:
        yield not callable(getattr(type(part), name, None)), f"its method {name!r} is overwritten"


def _check_decision_tree(model: DecisionTreeRegressor | ExtraTreeRegressor) -> Checks:
    tree = model.tree_
    yield type(tree) is Tree, f"its tree is a {type(tree).__name__}"
    yield tree.node_count > 0, "its tree has no nodes"
    yield _has_n_features(model, tree.n_features, "tree")
    yield _has_n_outputs(model, tree.n_outputs, "tree")


def _check_forest(model: ensemble.RandomForestRegressor | ensemble.ExtraTreesRegressor) -> Checks:
    for member in model.estimators_:
        yield from _check_tree_member(model, member)
        yield _has_n_outputs(model, member.n_outputs_, "member")


def _check_gradient_boosting(model: ensemble.GradientBoostingRegressor) -> Checks:
    one_per_iteration = getattr(model, "n_trees_per_iteration_", 1) == 1
    yield (
        has_layout(model.estimators_, object, (None, 1)) and one_per_iteration,
        "it does not have one tree in each iteration",
    )
    for member in model.estimators_.ravel():
        yield from _check_tree_member(model, member)
        yield member.n_outputs_ == 1, f"a member has {member.n_outputs_} outputs"


def _check_tree_member(model: BaseEstimator, member: Any) -> Checks:
    is_fitted_tree = isinstance(member, DecisionTreeRegressor) and hasattr(member, "tree_")
    yield is_fitted_tree, f"a member is a {type(member).__name__}, not a fitted tree"
    _verify(member)
    yield _has_n_features(model, member.n_features_in_, "member")


def _check_histogram_boosting(model: ensemble.HistGradientBoostingRegressor) -> Checks:
    n_features: Any = getattr(model, "n_features_in_", None)
    yield is_integer(n_features), f"n_features_in_ is {n_features!r}"
    bins = model._bin_mapper
    yield from _check_bins(bins.bin_thresholds_, bins.is_categorical_, n_features)
    if getattr(model, "_preprocessor", None) is not None:
        yield from _restore_preprocessor(model._preprocessor, n_features)
    for predictor in chain.from_iterable(model._predictors):
        yield type(predictor) is TreePredictor, f"a member is a {type(predictor).__name__}"
        check_predictor(predictor, n_features=n_features, is_categorical=bins.is_categorical_)


def _check_bins(thresholds: list[Any], is_categorical: Any, n_features: int) -> Checks:
    yield (
        has_layout(is_categorical, np.uint8, (n_features,)),
        f"is_categorical_ is not a flag for each of its {n_features} features",
    )
    yield len(thresholds) == n_features, f"it has bins of {len(thresholds)} features"
    for edges, has_categories in zip(thresholds, is_categorical, strict=True):
        yield (
            isinstance(edges, np.ndarray)
            and edges.ndim == 1
            and edges.dtype.kind == "f"
            and len(edges) <= _MAX_BINS
            and not np.isnan(edges).any()
            and (np.diff(edges) > 0).all(),
            "its bin thresholds are not sorted numbers",
        )
        in_range = not has_categories or ((edges >= 0) & (edges < _MAX_BINS)).all()
        yield in_range, f"a category code is not in 0 … {_MAX_BINS - 1}"


def _restore_preprocessor(columns: ColumnTransformer, n_features: int) -> Checks:
    """Check that the preprocessor returns the columns that the trees index; restore its function.

    Nothing between the preprocessor and the compiled trees counts the columns again.
    """
    (first, encoder, categorical), (second, rest, numeric), *remainder = columns.transformers_
    indices = columns._transformer_to_input_indices
    yield (
        columns.n_features_in_ == n_features
        and (first, second) == ("encoder", "numerical")
        and (type(encoder), type(rest)) == (OrdinalEncoder, FunctionTransformer)
        and all(has_layout(mask, bool, (n_features,)) for mask in (categorical, numeric))
        and np.array_equal(categorical, ~numeric)
        and list(indices["encoder"]) == list(np.flatnonzero(categorical))
        and list(indices["numerical"]) == list(np.flatnonzero(numeric))
        and all(transformer == "drop" for _, transformer, _ in remainder)
        and columns.transformer_weights is None,
        "its categorical features are not encoded one to one",
    )
    unfitted = columns.transformers[1][1]
    # They are the same object where all features are categorical, as it is never fitted then.
    for transformer in (rest,) if rest is unfitted else (rest, unfitted):
        yield (
            type(transformer) is FunctionTransformer
            and transformer.func is None
            and not transformer.validate
            and transformer.kw_args is None,
            "its numeric features have a transformer of another kind",
        )
        transformer.func = partial(check_array, dtype=[np.float64], ensure_all_finite=False)


def _rebuild_neighbors(model: BaseEstimator) -> Checks:
    """Check the points of a neighbors model, and build its search tree from them."""
    points = model._fit_X
    is_matrix = any(has_layout(points, kind, (None, None)) for kind in (np.float32, np.float64))
    yield is_matrix, "its points are not a matrix of numbers"
    yield _has_n_features(model, points.shape[1], "matrix of points")
    yield (
        model.n_samples_fit_ == len(points) and len(getattr(model, "_y", points)) == len(points),
        f"it has {len(points)} points and claims {model.n_samples_fit_!r}",
    )
    tree = getattr(model, "_tree", None)
    if type(tree) in _SEARCH_TREES.values():
        return  # built just now by a twin for its anchors; a file cannot name these types
    metric, method = model.effective_metric_, model._fit_method
    yield tree is None and isinstance(metric, str), "its search tree cannot be rebuilt"
    yield method in _SEARCH_TREES, f"its method is {method!r}"
    if (search_tree := _SEARCH_TREES[method]) is not None:
        parameters = model.effective_metric_params_
        model._tree = search_tree(points, model.leaf_size, metric=metric, **parameters)


def _check_support_vectors(model: SVR | NuSVR) -> Checks:
    yield (
        not model._sparse and model.kernel in ("linear", "poly", "rbf", "sigmoid"),
        f"kernel={model.kernel!r} on {'sparse' if model._sparse else 'dense'} data cannot be "
        "verified; use a dense 'linear', 'poly', 'rbf' or 'sigmoid' one",
    )
    yield "_impl" not in vars(model), "it names another method than its own"
    vectors = model.support_vectors_
    is_matrix = isinstance(vectors, np.ndarray) and vectors.ndim == 2
    yield is_matrix, "its support vectors are not a matrix"
    yield _has_n_features(model, vectors.shape[1], "support vectors")
    n_vectors = len(vectors)
    layouts = {
        "support_vectors_": (np.float64, vectors.shape),
        "support_": (np.int32, (n_vectors,)),
        "_n_support": (np.int32, (2,)),
        **dict.fromkeys(["_dual_coef_", "dual_coef_"], (np.float64, (1, n_vectors))),
        **dict.fromkeys(["_intercept_", "intercept_"], (np.float64, (1,))),
        **dict.fromkeys(["_probA", "_probB"], (np.float64, (0,))),
    }
    for name, (dtype, shape) in layouts.items():
        sound = has_layout(getattr(model, name, None), dtype, shape)
        yield sound, f"its {name} is not an array of shape {shape}"
    counts, indices, n_points = model._n_support, model.support_, model.shape_fit_[0]
    counted = (counts == n_vectors).all()
    yield counted, f"it counts {counts.tolist()} support vectors and has {n_vectors}"
    in_range = ((indices >= 0) & (indices < n_points)).all()
    yield in_range, f"a support vector is none of its {n_points} points"


def _check_one_hot(model: OneHotEncoder) -> Checks:
    """Check that no code exceeds the width of the indicators, which compiled code fills."""
    yield (
        not getattr(model, "_infrequent_enabled", False),
        "infrequent categories cannot be verified; encode without min_frequency and max_categories",
    )
    sizes = [len(categories) for categories in model.categories_]
    dropped = [None] * len(sizes) if model.drop_idx_ is None else list(model.drop_idx_)
    pairs = list(zip(sizes, dropped, strict=False))
    yield (
        len(dropped) == len(sizes)
        and all(i is None or (is_integer(i) and 0 <= i < size) for size, i in pairs)
        and list(model._n_features_outs) == [size - (i is not None) for size, i in pairs],
        "its number of indicators is not its number of categories",
    )


def _check_random_state(state: np.random.RandomState) -> Checks:
    position = state.get_state(legacy=False)["state"]["pos"]
    yield 0 <= position <= _MERSENNE_TWISTER_SIZE, f"its position is {position}"


# type: (an attribute that it has once it is fitted, its checks)
_CHECKS: dict[type, tuple[str, Callable[[Any], Checks]]] = {
    DecisionTreeRegressor: ("tree_", _check_decision_tree),
    ExtraTreeRegressor: ("tree_", _check_decision_tree),
    ensemble.RandomForestRegressor: ("estimators_", _check_forest),
    ensemble.ExtraTreesRegressor: ("estimators_", _check_forest),
    ensemble.GradientBoostingRegressor: ("estimators_", _check_gradient_boosting),
    ensemble.HistGradientBoostingRegressor: ("_predictors", _check_histogram_boosting),
    neighbors.KNeighborsRegressor: ("_fit_X", _rebuild_neighbors),
    neighbors.RadiusNeighborsRegressor: ("_fit_X", _rebuild_neighbors),
    neighbors.NearestNeighbors: ("_fit_X", _rebuild_neighbors),
    SVR: ("support_vectors_", _check_support_vectors),
    NuSVR: ("support_vectors_", _check_support_vectors),
    OneHotEncoder: ("categories_", _check_one_hot),
    GaussianProcess: ("X", check_process),
    GPRegressor: ("process_", check_gp_regressor),
    np.random.RandomState: ("get_state", _check_random_state),
}


def _has_n_features(model: BaseEstimator, n_features: int, part: str) -> Check:
    # scikit-learn checks X against n_features_in_, and not at all where there is none.
    expected: Any = getattr(model, "n_features_in_", None)
    fault = f"n_features_in_ is {expected!r}, but its {part} has {n_features}"
    return is_integer(expected) and expected == n_features, fault


def _has_n_outputs(model: BaseEstimator, n_outputs: int, part: str) -> Check:
    expected = getattr(model, "n_outputs_", None)
    return n_outputs == expected, f"n_outputs_ is {expected!r}, but its {part} has {n_outputs}"
