"""Kinds of scikit-learn estimators: the state that a file holds, and how it is rebuilt from it.

State that compiled code reads is rebuilt by scikit-learn itself where possible: neighbors are
fitted again to their rows, and encoders to a table of their categories.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeRegressor, ExtraTreeRegressor

from twinned.persistence import trees
from twinned.persistence.schema import KINDS, At
from twinned.persistence.values import BUILD, TAKE, State, hook, set_attributes

METRICS = (
    "chebyshev", "cityblock", "cosine", "euclidean", "l1", "l2", "learned", "manhattan",
    "minkowski", "nan_euclidean", "sqeuclidean",
)  # fmt: skip
_MAX_CELLS = 10_000_000  # of the table that an encoder is fitted to

_LINEAR = " ".join(name for name, kind in KINDS.items() if "intercept_" in kind.fields)

# --- trees ----------------------------------------------------------------------------------------


@hook(TAKE, "DecisionTreeRegressor ExtraTreeRegressor RandomForestRegressor ExtraTreesRegressor")
def _take_trees(model: Any) -> State:
    return {"trees": trees.take_trees(getattr(model, "estimators_", [model]))}


@hook(BUILD, "DecisionTreeRegressor ExtraTreeRegressor")
def _build_tree(model: Any, state: State, at: At) -> None:
    (tree,) = trees.build_trees(model, type(model), state["trees"], at)
    model.n_outputs_, model.tree_ = tree.n_outputs_, tree.tree_


@hook(BUILD, "RandomForestRegressor ExtraTreesRegressor")
def _build_forest(model: Any, state: State, at: At) -> None:
    is_random = type(model).__name__ == "RandomForestRegressor"
    cls = DecisionTreeRegressor if is_random else ExtraTreeRegressor
    model.estimator_, model.estimators_ = cls(), trees.build_trees(model, cls, state["trees"], at)
    model.n_outputs_ = model.estimators_[0].n_outputs_


@hook(TAKE, "GradientBoostingRegressor")
def _take_gradient_boosting(model: Any) -> State:
    init = None if isinstance(model.init_, str) else model.init_
    return {"trees": trees.take_trees(list(model.estimators_.ravel())), "init_": init}


@hook(BUILD, "GradientBoostingRegressor")
def _build_gradient_boosting(model: Any, state: State, at: At) -> None:
    members, init = (
        trees.build_trees(model, DecisionTreeRegressor, state["trees"], at),
        state["init_"],
    )
    at.ensure(members[0].n_outputs_ == 1, "has trees of several outputs")
    at.ensure(init is None or init.n_outputs_ == 1, "starts from several outputs")
    model.init_ = "zero" if init is None else init
    model.estimators_ = np.array([[tree] for tree in members], dtype=object)
    model.n_estimators_, model.n_trees_per_iteration_ = len(members), 1
    model._loss = model._get_loss(sample_weight=None)


@hook(TAKE, "HistGradientBoostingRegressor")
def _take_histogram_boosting(model: Any) -> State:
    encoder = model._preprocessor and model._preprocessor.named_transformers_["encoder"]
    return {
        "baseline": np.reshape(model._baseline_prediction, (1, 1)),
        "is_categorical_": model.is_categorical_,
        "categories": encoder and _take_categories(encoder.categories_),
        "trees": trees.take_histogram_trees([tree for (tree,) in model._predictors]),
    }


@hook(BUILD, "HistGradientBoostingRegressor")
def _build_histogram_boosting(model: Any, state: State, at: At) -> None:
    n_features, flags = model.n_features_in_, state["is_categorical_"]
    categories = state["categories"]
    at.ensure((flags is None) == (categories is None), "has categories of no feature")
    remapped, known = np.zeros(n_features, dtype=bool), [np.empty(0)] * n_features
    model.is_categorical_ = model._preprocessor = model._is_categorical_remapped = None
    if flags is not None:
        at.ensure(0 < flags.sum() == len(categories), "has other categorical features")
        columns = [{"dtype": "float64", "values": [0.0]}] * n_features
        for j, own in zip(np.flatnonzero(flags).tolist(), categories, strict=True):
            columns[j] = own
        table = _category_table(columns, getattr(model, "feature_names_in_", None), at)
        if isinstance(table, pd.DataFrame):
            table = table.astype(dict.fromkeys(table.columns[flags], "category"))
        found = model._preprocess_X(table, reset=True)[1]
        at.ensure(np.array_equal(model.is_categorical_, flags), "has other categorical features")
        encoder = model._preprocessor.named_transformers_["encoder"]
        _check_categories(encoder, categories, at)
        # thresholds of numeric features are used in `fit` only
        known = [np.empty(0) if own is None else own for own in found]
        remapped = model._is_categorical_remapped
    bins = model._bin_mapper = _BinMapper(n_bins=model.max_bins + 1)
    bins.bin_thresholds_, bins.is_categorical_ = known, remapped.astype(np.uint8)
    bins.missing_values_bin_idx_ = bins.n_bins - 1
    members = trees.build_histogram_trees(state["trees"], n_features, remapped, at)
    model._predictors, model._baseline_prediction = [[tree] for tree in members], state["baseline"]
    model.n_trees_per_iteration_ = 1
    model._loss = model._get_loss(sample_weight=None)


# --- linear models, neighbors and networks --------------------------------------------------------


@hook(TAKE, _LINEAR)
def _take_linear(model: Any) -> State:
    return {"coef_": model.coef_, "intercept_": np.asarray(model.intercept_, dtype=float)}


@hook(BUILD, _LINEAR)
def _build_linear(model: Any, state: State, at: At) -> None:
    model.coef_, model.intercept_ = state["coef_"], state["intercept_"][()]
    at.ensure(model.coef_.ndim == 2 or np.size(model.intercept_) == 1, "has too many intercepts")


@hook(BUILD, "KNeighborsRegressor")
def _build_neighbors(model: Any, state: State, at: At) -> None:
    known = model.metric in METRICS and model.metric != "learned" and model.metric_params is None
    at.ensure(known, f"has metric={model.metric!r:.60}, not one of {', '.join(METRICS)}")
    model.fit(state["_fit_X"], state["_y"])


@hook(BUILD, "MLPRegressor")
def _build_perceptron(model: Any, state: State, at: At) -> None:
    coefs, intercepts = state["coefs_"], state["intercepts_"]
    sizes = [own.shape for own in coefs]
    at.ensure(sizes and sizes[0][0] == model.n_features_in_, "has other inputs than features")
    chained = all(before[1] == after[0] for before, after in pairwise(sizes))
    matches = [size[1] for size in sizes] == [len(own) for own in intercepts]
    at.ensure(chained and matches, "has layers of other sizes")
    set_attributes(model, state, at)
    model.n_layers_, model.n_outputs_ = len(coefs) + 1, len(intercepts[-1])


@hook(BUILD, "DummyRegressor")
def _build_dummy(model: Any, state: State, at: At) -> None:
    model.constant_, model.n_outputs_ = state["constant_"], state["constant_"].shape[1]


# --- transformers and compositions ----------------------------------------------------------------


def _take_categories(found: Any) -> list[State]:
    """Return the categories of features, each with the type of its column."""
    return [
        {"dtype": "str" if own.dtype.kind == "U" else own.dtype.name, "values": own.tolist()}
        for own in found
    ]


def _category_table(categories: list[State], names: Any, at: At) -> Any:
    """Return a table with these values in its columns, some of them repeated."""
    columns = [np.array(own["values"], dtype=own["dtype"]) for own in categories]
    length = max(map(len, columns))
    at.ensure(length * len(columns) <= _MAX_CELLS, "has too many categories")
    filled = [np.concatenate([own, np.repeat(own[:1], length - len(own))]) for own in columns]
    if names is None:
        return np.column_stack(filled)
    series = (pd.Series(own, dtype=own.dtype) for own in filled)  # not as inferred from values
    return pd.DataFrame(dict(zip(names, series, strict=True)))


def _check_categories(encoder: Any, stored: list[State], at: At) -> None:
    """Raise unless an encoder has found the stored categories, which are sorted and distinct."""
    same = repr(_take_categories(encoder.categories_)) == repr(stored)
    at.ensure(same, "has categories that are not sorted and distinct")


@hook(TAKE, "OneHotEncoder OrdinalEncoder")
def _take_encoder(model: Any) -> State:
    return {"categories_": _take_categories(model.categories_)}


@hook(BUILD, "OneHotEncoder OrdinalEncoder")
def _build_encoder(model: Any, state: State, at: At) -> None:
    limited = model.min_frequency is not None or model.max_categories is not None
    at.ensure(not limited, "has min_frequency or max_categories, which cannot be stored")
    model.fit(_category_table(state["categories_"], getattr(model, "feature_names_in_", None), at))
    _check_categories(model, state["categories_"], at)


@hook(BUILD, "SimpleImputer")
def _build_imputer(model: Any, state: State, at: At) -> None:
    at.ensure(not model.add_indicator, "has add_indicator=True, which cannot be stored")
    model.statistics_, model.indicator_ = state["statistics_"], None
    model._fit_dtype = model._fill_dtype = np.dtype(np.float64)


@hook(TAKE, "Pipeline")
def _take_pipeline(model: Any) -> State:
    return {"steps": dict(model.steps)}


@hook(BUILD, "Pipeline")
def _build_pipeline(model: Any, state: State, at: At) -> None:
    at.ensure(model.memory is None, "has a memory, which cannot be stored")
    model.steps = list(state["steps"].items())
    *before, last = ["transformer" in KINDS[type(own).__name__].options for _, own in model.steps]
    at.ensure(all(before) and not last, "has a regressor that is not its last step")


@hook(TAKE, "TransformedTargetRegressor")
def _take_transformed_target(model: Any) -> State:
    return {**vars(model), "transformer_": model.transformer and model.transformer_}


@hook(BUILD, "TransformedTargetRegressor")
def _build_transformed_target(model: Any, state: State, at: At) -> None:
    set_attributes(model, state, at)
    if model.transformer_ is None:
        at.ensure((model.func is None) == (model.inverse_func is None), "has one function of two")
        functions = {"func": model.func, "inverse_func": model.inverse_func}
        model.transformer_ = FunctionTransformer(**functions, validate=True)
        model.transformer_.set_output(transform="default")
