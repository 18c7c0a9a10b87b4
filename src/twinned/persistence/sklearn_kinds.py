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

from twinned.persistence.fields import (
    Array,
    At,
    Each,
    Integer,
    Json,
    Maybe,
    Record,
    Text,
)
from twinned.persistence.parts import KINDS, Kind, Part, set_attributes
from twinned.persistence.trees import (
    HISTOGRAM_TREES,
    TREES,
    build_histogram_trees,
    build_trees,
    take_histogram_trees,
    take_trees,
)

METRICS = (
    "chebyshev", "cityblock", "cosine", "euclidean", "l1", "l2", "learned", "manhattan",
    "minkowski", "nan_euclidean", "sqeuclidean",
)  # fmt: skip
_MAX_CELLS = 10_000_000  # of the table that an encoder is fitted to
_VECTOR = Array("feature", "f8|f4")
_SCALE = Array("feature", "f8|f4", 1e-150)


# --- trees ----------------------------------------------------------------------------------------


def _take_tree(model: Any) -> dict[str, Any]:
    return {"trees": take_trees([model])}


def _build_tree(model: Any, state: dict[str, Any], at: At) -> None:
    (tree,) = build_trees(model, type(model), {**state["trees"], "seeds": None}, at)
    model.n_outputs_, model.tree_ = tree.n_outputs_, tree.tree_


def _take_forest(model: Any) -> dict[str, Any]:
    return {"trees": take_trees(list(model.estimators_))}


def _build_forest(model: Any, state: dict[str, Any], at: At) -> None:
    is_random = type(model).__name__ == "RandomForestRegressor"
    cls = DecisionTreeRegressor if is_random else ExtraTreeRegressor
    model.estimator_, model.estimators_ = cls(), build_trees(model, cls, state["trees"], at)
    model.n_outputs_ = model.estimators_[0].n_outputs_


def _take_gradient_boosting(model: Any) -> dict[str, Any]:
    init = None if isinstance(model.init_, str) and model.init_ == "zero" else model.init_
    return {"trees": take_trees(list(model.estimators_.ravel())), "init_": init}


def _build_gradient_boosting(model: Any, state: dict[str, Any], at: At) -> None:
    trees = build_trees(model, DecisionTreeRegressor, state["trees"], at)
    at.ensure(trees[0].n_outputs_ == 1, "has trees of several outputs")
    init = state["init_"]
    at.ensure(init is None or init.n_outputs_ == 1, "starts from several outputs")
    model.init_ = "zero" if init is None else init
    model.estimators_ = np.array([[tree] for tree in trees], dtype=object)
    model.n_estimators_, model.n_trees_per_iteration_ = len(trees), 1
    model._loss = model._get_loss(sample_weight=None)


def _take_histogram_boosting(model: Any) -> dict[str, Any]:
    trees = [predictor for iteration in model._predictors for predictor in iteration]
    encoder = None
    if model._preprocessor is not None:
        encoder = model._preprocessor.named_transformers_["encoder"].categories_
    return {
        "baseline": np.reshape(model._baseline_prediction, (1, 1)),
        "is_categorical_": model.is_categorical_,
        "categories": encoder,
        "trees": take_histogram_trees(trees),
    }


def _build_histogram_boosting(model: Any, state: dict[str, Any], at: At) -> None:
    n_features, flags = model.n_features_in_, state["is_categorical_"]
    at.ensure((flags is None) == (state["categories"] is None), "has categories of no feature")
    remapped = np.zeros(n_features, dtype=bool)
    known: list[Any] = [None] * n_features
    model.is_categorical_ = model._preprocessor = model._is_categorical_remapped = None
    if flags is not None:
        at.ensure(flags.sum() == len(state["categories"]), "has other categorical features")
        at.ensure(max(map(len, state["categories"])) <= 256, "has more than 255 categories")
        columns: list[Any] = [np.zeros(1)] * n_features
        for j, categories in zip(np.flatnonzero(flags), state["categories"], strict=True):
            columns[j] = categories
        table = _category_table(columns, getattr(model, "feature_names_in_", None), at)
        if isinstance(table, pd.DataFrame):
            table = table.astype({table.columns[j]: "category" for j in np.flatnonzero(flags)})
        known = model._preprocess_X(table, reset=True)[1]
        encoder = model._preprocessor.named_transformers_["encoder"]
        at.ensure(np.array_equal(model.is_categorical_, flags), "has other categorical features")
        _check_categories(encoder.categories_, state["categories"], at)
        remapped = model._is_categorical_remapped
    bins = model._bin_mapper = _BinMapper(n_bins=model.max_bins + 1)
    # thresholds of numeric features are used in `fit` only
    bins.bin_thresholds_ = [np.empty(0) if own is None else own for own in known]
    bins.is_categorical_ = remapped.astype(np.uint8)
    bins.missing_values_bin_idx_ = bins.n_bins - 1
    model._predictors = [
        [tree] for tree in build_histogram_trees(state["trees"], n_features, remapped, at)
    ]
    model._baseline_prediction = state["baseline"]
    model._n_features, model.n_trees_per_iteration_ = n_features, 1
    model._loss = model._get_loss(sample_weight=None)


# --- linear models, neighbors and networks --------------------------------------------------------


def _take_linear(model: Any) -> dict[str, Any]:
    return {"coef_": model.coef_, "intercept_": np.asarray(model.intercept_, dtype=float)}


def _build_linear(model: Any, state: dict[str, Any], at: At) -> None:
    coef, intercept = state["coef_"], state["intercept_"]
    n_outputs = 1 if coef.ndim == 1 else len(coef)
    at.ensure(intercept.ndim == 0 or len(intercept) == n_outputs, "has intercepts of no output")
    model.coef_, model.intercept_ = coef, intercept[()]


def _take_neighbors(model: Any) -> dict[str, Any]:
    return {"X": model._fit_X, "y": model._y}


def _build_neighbors(model: Any, state: dict[str, Any], at: At) -> None:
    known = model.metric in METRICS and model.metric != "learned" and model.metric_params is None
    at.ensure(known, f"has metric={model.metric!r:.60}, not one of {', '.join(METRICS)}")
    at.ensure(model.weights in ("uniform", "distance"), "has weights of another kind")
    names = vars(model).pop("feature_names_in_", None)
    model.fit(state["X"], state["y"])
    if names is not None:
        model.feature_names_in_ = names


def _build_perceptron(model: Any, state: dict[str, Any], at: At) -> None:
    coefs, intercepts = state["coefs_"], state["intercepts_"]
    at.ensure(len(coefs) == len(intercepts) > 0, "has layers without weights")
    at.ensure(len(coefs[0]) == model.n_features_in_, "has other inputs than its features")
    matches = all(own.shape[1] == len(bias) for own, bias in zip(coefs, intercepts, strict=True))
    chained = all(before.shape[1] == len(after) for before, after in pairwise(coefs))
    at.ensure(matches and chained, "has layers of other sizes")
    set_attributes(model, state, at)
    model.n_layers_, model.n_outputs_ = len(coefs) + 1, len(intercepts[-1])


def _build_dummy(model: Any, state: dict[str, Any], at: At) -> None:
    model.constant_, model.n_outputs_ = state["constant_"], state["constant_"].shape[1]


# --- transformers and compositions ----------------------------------------------------------------


class _Categories:
    """The categories of a feature, with the type of its column."""

    _TYPES = ("object", "str", "bool", "int64", "float64", "float32")

    def encode(self, value: np.ndarray, at: At) -> Json:
        dtype = "str" if value.dtype.kind == "U" else value.dtype.name
        return [dtype, value.tolist()]

    def decode(self, value: Json, at: At) -> np.ndarray:
        known = isinstance(value, list) and len(value) == 2 and value[0] in self._TYPES
        at.ensure(known and isinstance(value[1], list) and value[1], "is no list of categories")
        plain = all(item is None or isinstance(item, str | int | float) for item in value[1])
        at.ensure(plain, "has a category that is no text or number")
        return np.array(value[1], dtype=value[0])


def _category_table(columns: list[np.ndarray], names: Any, at: At) -> Any:
    """Return a table with these values in its columns, some of them repeated."""
    length = max(map(len, columns))
    at.ensure(length * len(columns) <= _MAX_CELLS, "has too many categories")
    filled = [np.concatenate([own, np.repeat(own[:1], length - len(own))]) for own in columns]
    if names is None:
        return np.column_stack(filled)
    return pd.DataFrame(dict(zip(names, filled, strict=True)))


def _check_categories(found: list[Any], stored: list[Any], at: At) -> None:
    """Raise unless an encoder has found the stored categories, which are sorted and distinct."""
    for own, expected in zip(found, stored, strict=True):
        equal = pd.Index(own).equals(pd.Index(expected))
        at.ensure(equal, "has categories that are not sorted and distinct")


def _build_encoder(model: Any, state: dict[str, Any], at: At) -> None:
    limited = model.min_frequency is not None or model.max_categories is not None
    at.ensure(not limited, "has min_frequency or max_categories, which cannot be stored")
    names, n_features = getattr(model, "feature_names_in_", None), model.n_features_in_
    at.ensure(len(state["categories_"]) == n_features, "has categories of other features")
    model.fit(_category_table(state["categories_"], names, at))
    at.ensure(model.n_features_in_ == n_features, "has categories of other features")
    _check_categories(model.categories_, state["categories_"], at)


def _build_imputer(model: Any, state: dict[str, Any], at: At) -> None:
    at.ensure(not model.add_indicator, "has add_indicator=True, which cannot be stored")
    model.statistics_, model.indicator_ = state["statistics_"], None
    model._fit_dtype = model._fill_dtype = np.dtype(np.float64)


def _build_function(model: Any, state: dict[str, Any], at: At) -> None:
    at.ensure(not (model.kw_args or model.inv_kw_args), "has kw_args, which cannot be stored")


def _take_steps(model: Any) -> dict[str, Any]:
    return {"steps": [{"name": name, "step": step} for name, step in model.steps]}


def _build_pipeline(model: Any, state: dict[str, Any], at: At) -> None:
    at.ensure(model.memory is None, "has a memory, which cannot be stored")
    model.steps = [(step["name"], step["step"]) for step in state["steps"]]
    names = [name for name, _ in model.steps]
    at.ensure(len(set(names)) == len(names) > 0, "has a step twice, or none")
    roles = [KINDS[type(step).__name__].role for _, step in model.steps]
    expected = ["transformer"] * (len(names) - 1)
    at.ensure(roles[:-1] == expected, "has a regressor that is not its last step")


def _build_multi_output(model: Any, state: dict[str, Any], at: At) -> None:
    set_attributes(model, state, at)
    at.ensure(model.estimators_, "has no outputs")
    at.ensure(
        all(
            getattr(own, "n_features_in_", None) == model.n_features_in_
            for own in model.estimators_
        ),
        "has outputs of other features",
    )


def _take_transformed_target(model: Any) -> dict[str, Any]:
    own = None if model.transformer is None else model.transformer_
    return {"regressor_": model.regressor_, "transformer_": own, "dim": model._training_dim}


def _build_transformed_target(model: Any, state: dict[str, Any], at: At) -> None:
    model.regressor_, model.transformer_ = state["regressor_"], state["transformer_"]
    model._training_dim = state["dim"]
    has_functions = (model.func is not None, model.inverse_func is not None)
    if state["transformer_"] is None:
        at.ensure(all(has_functions) or not any(has_functions), "has one function of two")
        functions = {"func": model.func, "inverse_func": model.inverse_func}
        model.transformer_ = FunctionTransformer(**functions, validate=True)
        model.transformer_.set_output(transform="default")


_LINEAR = (
    "ElasticNet", "ElasticNetCV", "HuberRegressor", "Lars", "LarsCV", "Lasso", "LassoCV",
    "LassoLars", "LassoLarsCV", "LassoLarsIC", "LinearRegression", "MultiTaskElasticNet",
    "MultiTaskLasso", "OrthogonalMatchingPursuit", "OrthogonalMatchingPursuitCV",
    "QuantileRegressor", "Ridge", "RidgeCV", "SGDRegressor", "TheilSenRegressor",
)  # fmt: skip
_LINEAR_FIELDS = {
    "coef_": Array("feature|output feature", "f8|f4"),
    "intercept_": Array("|output"),
}
_SEVERAL_TREES = {"trees": TREES}
_SCALERS: dict[str, dict[str, Any]] = {
    "StandardScaler": {"mean_": Maybe(_VECTOR), "var_": Maybe(_VECTOR), "scale_": Maybe(_SCALE)},
    "MinMaxScaler": {"min_": _VECTOR, "scale_": _SCALE, "data_min_": _VECTOR, "data_max_": _VECTOR},
    "MaxAbsScaler": {"scale_": _SCALE, "max_abs_": _VECTOR},
    "RobustScaler": {"center_": Maybe(_VECTOR), "scale_": Maybe(_SCALE)},
}
KINDS |= {
    **dict.fromkeys(
        ["DecisionTreeRegressor", "ExtraTreeRegressor"],
        Kind("sklearn.tree", _SEVERAL_TREES, _take_tree, _build_tree),
    ),
    **dict.fromkeys(
        ["RandomForestRegressor", "ExtraTreesRegressor"],
        Kind("sklearn.ensemble", _SEVERAL_TREES, _take_forest, _build_forest),
    ),
    "GradientBoostingRegressor": Kind(
        "sklearn.ensemble",
        {"trees": TREES, "init_": Maybe(Part(("DummyRegressor",)))},
        _take_gradient_boosting,
        _build_gradient_boosting,
    ),
    "HistGradientBoostingRegressor": Kind(
        "sklearn.ensemble",
        {
            "baseline": Array("1 1"),
            "is_categorical_": Maybe(Array("feature", "b1")),
            "categories": Maybe(Each(_Categories())),
            "trees": HISTOGRAM_TREES,
        },
        _take_histogram_boosting,
        _build_histogram_boosting,
    ),
    **dict.fromkeys(
        _LINEAR, Kind("sklearn.linear_model", _LINEAR_FIELDS, _take_linear, _build_linear)
    ),
    "LinearSVR": Kind("sklearn.svm", _LINEAR_FIELDS, _take_linear, _build_linear),
    "KNeighborsRegressor": Kind(
        "sklearn.neighbors",
        {
            "X": Array("row feature", "f8|f4", missing=True),
            "y": Array("row|row output", "f8|f4|i8"),
        },
        _take_neighbors,
        _build_neighbors,
    ),
    "MLPRegressor": Kind(
        "sklearn.neural_network",
        {
            "coefs_": Each(Array("* *", "f8|f4")),
            "intercepts_": Each(Array("*", "f8|f4")),
            "out_activation_": Text(("identity", "exp")),
        },
        build=_build_perceptron,
    ),
    "DummyRegressor": Kind(
        "sklearn.dummy",
        {"constant_": Array("1 output", "f8|f4|i8")},
        build=_build_dummy,
        has_features=False,
    ),
    **{
        name: Kind("sklearn.preprocessing", fields, role="transformer")
        for name, fields in _SCALERS.items()
    },
    **dict.fromkeys(
        ["OneHotEncoder", "OrdinalEncoder"],
        Kind(
            "sklearn.preprocessing",
            {"categories_": Each(_Categories())},
            build=_build_encoder,
            role="transformer",
        ),
    ),
    "SimpleImputer": Kind(
        "sklearn.impute",
        {"statistics_": Array("feature", missing=True)},
        build=_build_imputer,
        role="transformer",
    ),
    "FunctionTransformer": Kind(
        "sklearn.preprocessing", {}, build=_build_function, role="transformer", has_features=False
    ),
    "Pipeline": Kind(
        "sklearn.pipeline",
        {"steps": Each(Record({"name": Text(), "step": Part(("regressor", "transformer"))}))},
        _take_steps,
        _build_pipeline,
        has_features=False,
        parts=("steps",),
    ),
    "MultiOutputRegressor": Kind(
        "sklearn.multioutput", {"estimators_": Each(Part())}, build=_build_multi_output
    ),
    "TransformedTargetRegressor": Kind(
        "sklearn.compose",
        {
            "regressor_": Part(),
            "transformer_": Maybe(Part(("transformer",))),
            "dim": Integer(1, 2),
        },
        _take_transformed_target,
        _build_transformed_target,
        has_features=False,
    ),
}
