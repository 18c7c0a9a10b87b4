"""What compiled code reads from a fitted estimator: verified, or rebuilt from plain data.

`settle` runs on the built model before anyone can call it. It looks at every object in it,
whoever holds it, so an estimator deep inside a pipeline is checked like the model itself.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
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

from twinned.exceptions import IntegrityError
from twinned.intervals.stored import find_invalid_part
from twinned.persistence.tree_checks import check_predictor, is_integer

_MERSENNE_WORDS = 624
_MAX_BINS = 256
_PLAIN = (str, int, float, slice, type, np.ufunc, np.dtype)


def settle(model: Any) -> None:
    """Verify every object in the model, and rebuild what the file leaves out."""
    for part in _parts(model):
        check = _CHECKS.get(type(part))
        if check is not None:
            check(part)
        if "intervals_" in getattr(part, "__dict__", ()):
            fault = find_invalid_part(part)
            _demand(fault is None, part, str(fault))


def _parts(model: Any) -> Iterator[Any]:
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        part = waiting.pop()
        if part is None or isinstance(part, _PLAIN) or id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        if isinstance(part, dict):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple | set):
            waiting.extend(part)
        elif isinstance(part, np.ndarray):
            if part.dtype == object:
                waiting.extend(part.ravel())
        elif hasattr(part, "__dict__"):
            _refuse_overridden_methods(part)
            waiting.extend(vars(part).values())


def _refuse_overridden_methods(part: Any) -> None:
    for name in vars(part):
        _demand(
            not callable(getattr(type(part), name, None)),
            part,
            f"its method {name!r} is replaced by an attribute",
        )


def _check_decision_tree(model: BaseDecisionTree) -> None:
    if not hasattr(model, "tree_"):
        return
    tree = model.tree_
    _demand(type(tree) is Tree, model, f"its tree is a {type(tree).__name__}")
    _demand(tree.node_count > 0, model, "its tree has no nodes")
    _demand_features(model, tree.n_features, "tree")
    _demand(
        tree.n_outputs == getattr(model, "n_outputs_", None),
        model,
        f"its tree has {tree.n_outputs} outputs, itself {getattr(model, 'n_outputs_', None)!r}",
    )


def _check_forest(model: Any) -> None:
    for member in getattr(model, "estimators_", ()):
        _demand_tree_member(model, member)
        _demand(
            member.n_outputs_ == getattr(model, "n_outputs_", None),
            model,
            f"a member has {member.n_outputs_} outputs, itself "
            f"{getattr(model, 'n_outputs_', None)!r}",
        )


def _check_gradient_boosting(model: GradientBoostingRegressor) -> None:
    if not hasattr(model, "estimators_"):
        return
    members = model.estimators_
    _demand(
        isinstance(members, np.ndarray)
        and members.dtype == object
        and members.ndim == 2
        and members.shape[1] == 1
        and getattr(model, "n_trees_per_iteration_", 1) == 1,
        model,
        "its members are not one tree in each iteration",
    )
    for member in members.ravel():
        _demand_tree_member(model, member)
        _demand(member.n_outputs_ == 1, model, f"a member has {member.n_outputs_} outputs")


def _demand_tree_member(model: Any, member: Any) -> None:
    _demand(
        isinstance(member, DecisionTreeRegressor | ExtraTreeRegressor) and hasattr(member, "tree_"),
        model,
        f"a member is a {type(member).__name__}, not a fitted tree",
    )
    _check_decision_tree(member)
    _demand_features(model, member.n_features_in_, "member")


def _check_histogram_boosting(model: HistGradientBoostingRegressor) -> None:
    if not hasattr(model, "_predictors"):
        return
    n_features: Any = getattr(model, "n_features_in_", None)
    _demand(is_integer(n_features), model, f"n_features_in_ is {n_features!r}")
    is_categorical = _check_bins(model, n_features)
    if getattr(model, "_preprocessor", None) is not None:
        _restore_preprocessor(model, n_features)
    for iteration in model._predictors:
        for predictor in iteration:
            _demand(
                type(predictor) is TreePredictor,
                model,
                f"a member is a {type(predictor).__name__}",
            )
            check_predictor(predictor, n_features=n_features, is_categorical=is_categorical)


def _check_bins(model: HistGradientBoostingRegressor, n_features: int) -> np.ndarray:
    bins = model._bin_mapper
    is_categorical = bins.is_categorical_
    _demand(
        isinstance(is_categorical, np.ndarray)
        and is_categorical.shape == (n_features,)
        and is_categorical.dtype == np.uint8,
        model,
        f"it does not say for each of its {n_features} features whether it is categorical",
    )
    thresholds = bins.bin_thresholds_
    _demand(len(thresholds) == n_features, model, f"it has bins of {len(thresholds)} features")
    for edges, nominal in zip(thresholds, is_categorical, strict=True):
        sorted_numbers = (
            isinstance(edges, np.ndarray)
            and edges.ndim == 1
            and edges.dtype.kind == "f"
            and len(edges) <= _MAX_BINS
            and not np.isnan(edges).any()
            and bool((np.diff(edges) > 0).all())
        )
        _demand(sorted_numbers, model, "its bin thresholds are not sorted numbers")
        if nominal:
            codes = bool(((edges >= 0) & (edges < _MAX_BINS)).all())
            _demand(codes, model, f"a category's code is not in 0 … {_MAX_BINS - 1}")
    return is_categorical


def _restore_preprocessor(model: HistGradientBoostingRegressor, n_features: int) -> None:
    """Check that as many columns leave the encoder as the trees index; put its function back.

    Nothing between this transformer and the compiled trees counts the columns again.
    """
    columns = model._preprocessor
    (encoder_name, encoder, nominal), (rest_name, rest, numbers), *remainder = columns.transformers_
    indices = columns._transformer_to_input_indices
    _demand(
        columns.n_features_in_ == n_features
        and (encoder_name, rest_name) == ("encoder", "numerical")
        and type(encoder) is OrdinalEncoder
        and type(rest) is FunctionTransformer
        and all(is_mask(mask, n_features) for mask in (nominal, numbers))
        and np.array_equal(nominal, ~numbers)
        and list(indices["encoder"]) == list(np.flatnonzero(nominal))
        and list(indices["numerical"]) == list(np.flatnonzero(numbers))
        and all(transformer == "drop" for _, transformer, _ in remainder)
        and columns.transformer_weights is None,
        model,
        "its categorical columns are not encoded one to one",
    )
    given = columns.transformers[1][1]
    # The very same one where every column is categorical, for then it is never fitted.
    for transformer in (rest,) if rest is given else (rest, given):
        _demand(
            type(transformer) is FunctionTransformer
            and transformer.func is None
            and not transformer.validate
            and transformer.kw_args is None,
            model,
            "its numerical columns are transformed by something of their own",
        )
        transformer.func = partial(check_array, dtype=[np.float64], ensure_all_finite=False)


def is_mask(value: Any, length: int) -> bool:
    """Whether value is a boolean array of this length."""
    return isinstance(value, np.ndarray) and value.dtype == bool and value.shape == (length,)


def _rebuild_neighbors(model: Any) -> None:
    """Grow the search tree of a neighbors model again, from its points."""
    if not hasattr(model, "_fit_X"):
        return
    points = model._fit_X
    _demand(
        isinstance(points, np.ndarray)
        and points.ndim == 2
        and points.dtype in (np.float32, np.float64)
        and points.flags.c_contiguous,
        model,
        "its points are not a matrix of numbers",
    )
    _demand_features(model, points.shape[1], "matrix of points")
    _demand(
        model.n_samples_fit_ == len(points) and len(getattr(model, "_y", points)) == len(points),
        model,
        f"it has {len(points)} points and claims {model.n_samples_fit_!r}",
    )
    tree = getattr(model, "_tree", None)
    if type(tree) in (KDTree, BallTree):
        return  # Grown a moment ago by a twin for its anchors; no file can name these types.
    _demand(
        tree is None and isinstance(model.effective_metric_, str),
        model,
        "its search tree is not left to be rebuilt",
    )
    growers = {"kd_tree": KDTree, "ball_tree": BallTree, "brute": None}
    method = model._fit_method
    _demand(method in growers, model, f"its method is {method!r}")
    grow = growers[method]
    if grow is not None:
        model._tree = grow(
            points,
            model.leaf_size,
            metric=model.effective_metric_,
            **model.effective_metric_params_,
        )


def _check_support_vectors(model: Any) -> None:
    if not hasattr(model, "support_vectors_"):
        return
    vectors = model.support_vectors_
    _demand(
        not model._sparse and model.kernel in ("linear", "poly", "rbf", "sigmoid"),
        model,
        f"kernel={model.kernel!r} on {'sparse' if model._sparse else 'dense'} data cannot be "
        "verified; use a dense 'linear', 'poly', 'rbf' or 'sigmoid' one",
    )
    _demand("_impl" not in vars(model), model, "it names another method than its own")
    _demand(isinstance(vectors, np.ndarray) and vectors.ndim == 2, model, "it has no vectors")
    _demand_features(model, vectors.shape[1], "support vectors")
    n_vectors = len(vectors)
    shapes = {
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
    for name, (dtype, shape) in shapes.items():
        array = getattr(model, name, None)
        _demand(
            isinstance(array, np.ndarray)
            and array.dtype == dtype
            and array.shape == shape
            and array.flags.c_contiguous,
            model,
            f"its {name} is not an array of shape {shape}",
        )
    counts = model._n_support
    _demand(
        bool((counts == n_vectors).all()),
        model,
        f"it counts {counts.tolist()} support vectors and has {n_vectors}",
    )
    n_points = model.shape_fit_[0]
    _demand(
        bool(((model.support_ >= 0) & (model.support_ < n_points)).all()),
        model,
        f"a support vector is none of its {n_points} points",
    )


def _check_one_hot(model: OneHotEncoder) -> None:
    """Check that no code exceeds the width of the indicators, which are filled by compiled code."""
    if not hasattr(model, "categories_"):
        return
    _demand(
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
    _demand(
        in_range and list(model._n_features_outs) == widths,
        model,
        "its number of indicators is not its number of categories",
    )


def _check_random_state(state: np.random.RandomState) -> None:
    position = state.get_state(legacy=False)["state"]["pos"]
    _demand(0 <= position <= _MERSENNE_WORDS, state, f"its position is {position}")


_CHECKS: dict[type, Callable[[Any], None]] = {
    DecisionTreeRegressor: _check_decision_tree,
    ExtraTreeRegressor: _check_decision_tree,
    RandomForestRegressor: _check_forest,
    ExtraTreesRegressor: _check_forest,
    GradientBoostingRegressor: _check_gradient_boosting,
    HistGradientBoostingRegressor: _check_histogram_boosting,
    KNeighborsRegressor: _rebuild_neighbors,
    RadiusNeighborsRegressor: _rebuild_neighbors,
    NearestNeighbors: _rebuild_neighbors,
    SVR: _check_support_vectors,
    NuSVR: _check_support_vectors,
    OneHotEncoder: _check_one_hot,
    np.random.RandomState: _check_random_state,
}


def _demand_features(model: Any, n_features: int, what: str) -> None:
    # scikit-learn checks X against n_features_in_, and not at all where there is none.
    expected = getattr(model, "n_features_in_", None)
    _demand(
        is_integer(expected) and expected == n_features,
        model,
        f"n_features_in_ is {expected!r}, but its {what} has {n_features}",
    )


def _demand(condition: bool, part: Any, otherwise: str) -> None:
    if not condition:
        raise IntegrityError(f"a {type(part).__name__} cannot be trusted: {otherwise}")
