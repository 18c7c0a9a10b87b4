"""Kinds of the estimators of twinned: twins, networks, Gaussian processes and blends."""

from typing import Any

import numpy as np

from twinned._neighbors import LearnedMetric
from twinned._table import CATEGORICAL, NUMERIC, ORDINAL, TableSchema
from twinned._validation import check_finite
from twinned.estimators.blending.features import FeaturePreparation
from twinned.intervals.error_scale import WIDTHS, count_scale_features
from twinned.models.gaussian_process import KERNELS, GaussianProcess
from twinned.pairing.features import PairFeatures
from twinned.persistence.fields import (
    ANY,
    LARGEST,
    Array,
    At,
    Category,
    Each,
    Field,
    Flag,
    Integer,
    Maybe,
    Named,
    Real,
    Record,
    Text,
)
from twinned.persistence.parts import KINDS, Kind, Part, set_attributes
from twinned.persistence.sklearn_kinds import METRICS

_MAX_ENCODED = 250_000_000  # elements of the encoded anchors
_MAX_PROCESS_ROWS = 10_000  # the covariance of which takes 800 MB
_MAX_WEIGHT = 1e9  # of a network, so that float32 does not overflow
_LEAST = 1e-150

_TABLE = {
    "kinds": Each(Text((NUMERIC, CATEGORICAL, ORDINAL)), "feature"),
    "categories": Each(Each(Category()), "feature"),
    "n_indicators": Each(Integer(), "feature"),
}
_COUNTS = Array("*", "i8", 0, 2**31, increasing=True)  # distinct indices


def _metric(axis: str) -> Field:
    return Maybe(
        Record(
            {
                "center": Array(axis),
                "scale": Array(axis, low=0),
                "length_scales": Array(axis, "f8", _LEAST, np.inf),
                "noise": Real(0),
                "slopes": Array(axis, low=0),
            }
        )
    )


_INTERVALS = Record(
    {
        "width": Text(tuple(WIDTHS)),
        "floor": Real(0),
        "regressor": Maybe(Part(("ExtraTreesRegressor",))),
        "regressor_floor": Real(0),
        "columns": Array("column", "i8", 0, increasing=True),
        "metric": _metric("column"),
        "scores": Array("score", low=0),
        "settings": Text(),
    }
)
_TWIN = {
    "table": Record(_TABLE),
    "anchors_X_": Array("anchor feature", missing=True),
    "anchors_y_": Array("anchor|anchor output"),
    "anchor_weights_": Maybe(Array("anchor", low=0)),
    "anchor_rows_": Array("anchor", "i8", -1),
    "metric": _metric("encoded"),
    "intervals": Maybe(_INTERVALS),
}


def _take_twin(twin: Any) -> dict[str, Any]:
    intervals = getattr(twin, "intervals_", None)
    return {
        **vars(twin),
        "table": vars(twin._schema),
        "metric": _metric_parts(twin._learned_metric),
        "intervals": intervals and {**intervals, "metric": _metric_parts(intervals["metric"])},
    }


def _metric_parts(metric: Any) -> Any:
    return None if metric is None else LearnedMetric(*metric)._asdict()


def _metric_tuple(parts: Any) -> Any:
    return None if parts is None else tuple(LearnedMetric(**parts))


def _build_table(model: Any, state: dict[str, Any], at: At) -> None:
    """Set the schema of the table, before anything is allocated by it."""
    table = model._schema = TableSchema(**state["table"])
    known = [len(set(own)) for own in table.categories]
    at.ensure(known == list(map(len, table.categories)), "has a category twice, or NaN")
    for kind, size, n in zip(table.kinds, known, table.n_indicators, strict=True):
        at.ensure(n <= size if kind == CATEGORICAL else n == 0, f"has {n} indicators")
        at.ensure(kind != NUMERIC or size == 0, "has categories of a numeric feature")
    at.bind("encoded", table.n_encoded)


def _build_twin(twin: Any, state: dict[str, Any], at: At) -> None:
    """Set the anchors, verified by the table and the tags of the twin, and the intervals."""
    _build_table(twin, state, at)
    X, table = state["anchors_X_"], twin._schema
    at.ensure(len(X) > 0, "has no anchors")
    at.ensure(len(X) * (table.n_encoded + 1) <= _MAX_ENCODED, "has too many indicators")
    allow_nan = bool(twin.__sklearn_tags__().input_tags.allow_nan)
    check_finite(X, None, allow_nan, twin._pair_dtype)
    for j, kind in enumerate(table.kinds):
        codes = X[~np.isnan(X[:, j]), j]
        in_range = (codes == np.floor(codes)) & (codes >= 0) & (codes < len(table.categories[j]))
        at.ensure(kind == NUMERIC or in_range.all(), f"has unknown categories of feature {j}")
    weights = state["anchor_weights_"]
    at.ensure(weights is None or weights.sum() > 0, "has no weights of anchors")
    strategies = (getattr(twin, name, None) for name in ("pairs", "anchors"))
    known = all(getattr(own, "metric", "euclidean") in METRICS for own in strategies)
    at.ensure(known, f"has a metric that is not one of {', '.join(METRICS)}")
    for name in ("anchors_X_", "anchors_y_", "anchor_weights_", "anchor_rows_"):
        setattr(twin, name, state[name])
    twin._learned_metric = _metric_tuple(state["metric"])
    if (intervals := state["intervals"]) is not None:
        _check_intervals(intervals, state["anchors_y_"].ndim, at)
        twin.intervals_ = {**intervals, "metric": _metric_tuple(intervals["metric"])}
    twin._set_derived_state(None)


def _check_intervals(parts: dict[str, Any], n_axes: int, at: At) -> None:
    at.ensure(n_axes == 1, "has intervals, but several outputs")
    columns, regressor, scores = parts["columns"], parts["regressor"], parts["scores"]
    at.ensure((columns < at.sizes["feature"]).all(), "has intervals of unknown features")
    at.ensure(len(scores) > 0 and (np.diff(scores) >= 0).all(), "has scores that are not sorted")
    if regressor is not None:
        expected = count_scale_features(len(columns))
        fits = regressor.n_features_in_ == expected and regressor.n_outputs_ == 1
        at.ensure(fits, f"has an error scale of other features than its {expected}")
        at.ensure(_least_value(regressor) >= 0, "has an error scale that is negative")


def _least_value(forest: Any) -> float:
    return min(float(tree.tree_.value.min()) for tree in forest.estimators_)


# --- twins of scikit-learn regressors -------------------------------------------------------------


def _take_sklearn_twin(twin: Any) -> dict[str, Any]:
    return {**_take_twin(twin), "float32": twin._pair_dtype == np.float32, "unit": twin._y_unit}


def _build_sklearn_twin(twin: Any, state: dict[str, Any], at: At) -> None:
    estimator, selected = state["estimator_"], state["selected_features_"]
    at.ensure(
        twin.estimator is None or type(twin.estimator) is type(estimator),
        "has another base estimator than its parameter",
    )
    n_features = twin.n_features_in_
    in_range = len(selected) > 0 and (selected < n_features).all()
    at.ensure(in_range, "has selected features that it does not have")
    twin._pair_dtype = np.dtype(np.float32 if state["float32"] else np.float64)
    twin._y_unit, twin.n_pairs_ = state["unit"], state["n_pairs_"]
    twin.selected_features_ = selected
    _build_twin(twin, state, at)
    twin.estimator_ = estimator
    # made from the columns of the table, not from what a file claims
    every = len(selected) == n_features
    features = PairFeatures(
        twin.pair_features, twin._schema, twin._pair_dtype, None if every else selected
    )
    width = getattr(estimator, "n_features_in_", features.width)
    at.ensure(width == features.width, f"has a base estimator of {width} pair features, not "
              f"{features.width}")  # fmt: skip
    twin._features = features
    anchor = twin._anchors.take(slice(0, 1))
    found = twin._make_model().differences(anchor, anchor).shape
    expected = 1 if state["anchors_y_"].ndim == 1 else state["anchors_y_"].shape[1]
    at.ensure(found[1:] == (1, expected), f"predicts {found[-1]} outputs, not {expected}")


def _build_semi_supervised(model: Any, state: dict[str, Any], at: At) -> None:
    set_attributes(model, state, at)
    at.ensure(model.twin_.n_features_in_ == model.n_features_in_, "has a twin of other features")


# --- networks -------------------------------------------------------------------------------------

_NETWORK = {
    "table": Record(_TABLE),
    "shape": Record(
        {
            "n_features": Integer(1, 2**20),
            "n_outputs": Integer(1, 2**20),
            "hidden_sizes": Each(Integer(1, 2**20)),
            "n_frequencies": Integer(0, 2**20),
            "activation": Text(("silu", "relu", "mish", "tanh")),
            "twin": Flag(),
        }
    ),
    "parameters": Named(Array("*|* *|* * *", "f4", -_MAX_WEIGHT, _MAX_WEIGHT)),
    "gates": Array("member", "f4", 0, 1),
    "scale": Record(
        {
            "X_mean": Array("numeric"),
            "X_spread": Array("numeric", low=_LEAST),
            "y_mean": Array("output"),
            "y_spread": Array("output", low=_LEAST),
        }
    ),
    "selected_features_": _COUNTS,
    "one_dimensional": Flag(),
    "member_weights_": Array("member", low=0, high=1 + 1e-9),
    "n_members_": Integer(1, 2**31),
    "learning_curve_": Maybe(Array("* *", "f8|f4", *ANY, missing=True), absent=True),
    "out_of_fold_prediction_": Maybe(Array("*|* output", *("f8", *ANY), missing=True), absent=True),
}


def _take_network(model: Any) -> dict[str, Any]:
    scale = dict(zip(_NETWORK["scale"].fields, model._scale, strict=True))  # type: ignore[attr-defined]
    return {
        **dict.fromkeys(["learning_curve_", "out_of_fold_prediction_"]),
        **vars(model),
        "table": vars(model._schema),
        "shape": model._shape,
        "parameters": {name: np.asarray(own) for name, own in model._parameters.items()},
        "gates": np.asarray(model._gates),
        "scale": scale,
        "one_dimensional": model._one_dimensional,
    }


def _build_network(model: Any, state: dict[str, Any], at: At) -> None:
    shape, selected = state["shape"], state["selected_features_"]
    _build_table(model, state, at)
    table = model._schema
    in_range = len(selected) > 0 and (selected < table.n_features).all()
    at.ensure(in_range, "has selected features that it does not have")
    at.bind("numeric", len(table.numeric))
    at.bind("output", shape["n_outputs"])
    n_inputs = len(table.encoded_columns(selected))
    at.ensure(0 < n_inputs <= shape["n_features"], "has fewer inputs than features")
    at.ensure(shape["hidden_sizes"], "has no hidden layer")
    at.ensure(shape["twin"] == model._twin, "is a network of another kind")
    single = shape["n_outputs"] == 1 or not state["one_dimensional"]
    at.ensure(single, "has several outputs for one")
    found = {name: own.shape for name, own in state["parameters"].items()}
    expected = _parameter_shapes(shape, len(state["gates"]))
    at.ensure(found == expected, "has network parameters of other shapes")
    at.ensure(_is_share(state["member_weights_"]), "has member weights that do not sum to one")
    shape["hidden_sizes"] = tuple(shape["hidden_sizes"])
    model._shape, model._parameters, model._gates = shape, state["parameters"], state["gates"]
    model._scale = tuple(state["scale"].values())
    model._one_dimensional = state["one_dimensional"]
    for name in ("selected_features_", "member_weights_", "n_members_"):
        setattr(model, name, state[name])
    for name in ("learning_curve_", "out_of_fold_prediction_"):
        setattr(model, name, state[name])


def _parameter_shapes(shape: dict[str, Any], n_members: int) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter; compare `models.neural.network.initial_parameters`."""
    d, frequencies, hidden = shape["n_features"], shape["n_frequencies"], shape["hidden_sizes"]
    shapes: dict[str, tuple[int, ...]] = {"bias_0": (hidden[0],)}
    for side in range(2 if shape["twin"] else 1):
        shapes[f"linear_{side}"] = (d, hidden[0])
        if frequencies:
            shapes[f"periodic_{side}"] = (d * 2 * frequencies, hidden[0])
            shapes["frequency"] = (d, frequencies)
    sizes = (*hidden, shape["n_outputs"])
    for layer in range(1, len(sizes)):
        shapes[f"weight_{layer}"] = (sizes[layer - 1], sizes[layer])
        shapes[f"bias_{layer}"] = (sizes[layer],)
    return {name: (n_members, *own) for name, own in shapes.items()}


def _take_neural_twin(model: Any) -> dict[str, Any]:
    return {**_take_twin(model), **_take_network(model)}


def _build_neural_twin(model: Any, state: dict[str, Any], at: At) -> None:
    _build_network(model, state, at)
    model.n_pairs_, model._pair_dtype = state["n_pairs_"], np.dtype(np.float64)
    at.ensure((state["anchors_y_"].ndim == 1) == state["one_dimensional"], "has other outputs")
    _build_twin(model, state, at)


# --- Gaussian processes ---------------------------------------------------------------------------

_PROCESS = Record(
    {
        "kernel": Text(tuple(KERNELS)),
        "length_scales": Array("feature", "f8", _LEAST, np.inf),
        "amplitude": Real(_LEAST),
        "noise": Real(1e-15),
        "X": Array("row feature"),
        "weight": Array("row", low=_LEAST),
        "target": Array("row output"),
        "dual": Array("row output"),
        "mean": Array("output"),
        "scale": Array("output", low=_LEAST),
        "log_marginal_likelihood_": Real(*ANY),
        "single_output": Flag(),
    }
)


def _take_process(model: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(["out_of_fold_prediction_"]),
        **vars(model),
        "process": vars(model.process_),
    }


def _build_process(model: Any, state: dict[str, Any], at: At) -> None:
    parts = state["process"]
    n_rows, n_outputs = parts["dual"].shape
    at.ensure(
        0 < n_rows <= _MAX_PROCESS_ROWS, f"has {n_rows:,} rows, not 1 … {_MAX_PROCESS_ROWS:,}"
    )
    at.ensure(n_outputs == 1 or (n_outputs and not parts["single_output"]), "has other outputs")
    model.process_ = GaussianProcess(**parts)
    if state["out_of_fold_prediction_"] is not None:
        model.out_of_fold_prediction_ = state["out_of_fold_prediction_"]


# --- blends ---------------------------------------------------------------------------------------

_PREPARATION = Record(
    {
        "kind": Text(("encoded", "complete", "dense")),
        "empty": Each(Integer()),
        "marked": Each(Integer()),
        "medians": Array("feature"),
        "center": Array("*"),
        "spread": Array("*", low=_LEAST),
    }
)
_SHARES = Array("member", low=0, high=1 + 1e-9)
_SCORE = Array("member", low=0)
_BLEND = {
    **_TWIN,
    "members_": Named(Part()),
    "preparations": Each(_PREPARATION, "member"),
    "member_weights_": _SHARES,
    "_spread_weights": _SHARES,
    "out_of_fold_prediction_": Array("row"),
    "_leaderboard": Record(
        {
            "member": Each(Text(), "member"),
            **dict.fromkeys(
                ["rmse", "rmse_se", "weight", "fit_seconds", "predict_seconds"], _SCORE
            ),
            "bytes": Array("member", "i8", 0),
        }
    ),
    "contribution_": Maybe(
        Record(
            {
                **dict.fromkeys(["ratio", "lower", "upper"], Real(0, np.inf)),
                **dict.fromkeys(["rmse", "baseline_rmse"], Real(0)),
                "baseline_weights": _SHARES,
            }
        )
    ),
    "blend_": Record(
        {
            "method": Text(("single", "greedy", "simplex")),
            "rmse": Real(0),
            "nested_rmse": Named(Real(0)),
        }
    ),
    "skipped_": Named(Text()),
}


def _take_blend(model: Any) -> dict[str, Any]:
    return {**_take_twin(model), "preparations": [vars(own) for own in model._preparations]}


def _build_blend(model: Any, state: dict[str, Any], at: At) -> None:
    model._pair_dtype = np.dtype(np.float64)
    _build_twin(model, state, at)
    members = state["members_"]
    at.bind("member", len(members))
    at.bind("row", int((model.anchor_rows_ >= 0).sum()))
    at.ensure(len(state["anchors_y_"].shape) == 1, "has several outputs")
    for name in ("member_weights_", "_spread_weights"):
        at.ensure(_is_share(state[name]), f"has {name} that do not sum to one")
    names = state["_leaderboard"]["member"]
    at.ensure(sorted(names) == sorted(members), "has a leaderboard of other members")
    at.ensure(hasattr(model, "intervals_"), "has no stored intervals")
    at.bind("row", len(model.intervals_["scores"]))
    for name in _BLEND.keys() - _TWIN.keys() - {"preparations"}:
        setattr(model, name, state[name])
    model._preparations = []
    for own, (name, estimator) in zip(state["preparations"], members.items(), strict=True):
        part = at / f"preparations of {name!r:.60}"
        model._preparations.append(_build_preparation(own, model._schema, part))
        columns = model._preparations[-1].n_columns
        n_features = getattr(estimator, "n_features_in_", columns)
        part.ensure(n_features == columns, f"have {columns} columns for {n_features} features")
        single = (
            not isinstance(y := getattr(estimator, "anchors_y_", None), np.ndarray) or y.ndim == 1
        )
        part.ensure(single, "belong to a member of several outputs")
    given = {entry[0]: entry for entry in _own_members(model)}
    model.plan_ = [given.get(name, name) for name in members]


def _own_members(model: Any) -> list[Any]:
    """The members with estimators of their own, in the parameter `members`."""
    members = [] if isinstance(model.members, str) else model.members
    return [entry for entry in members if not isinstance(entry, str)]


def _build_preparation(state: dict[str, Any], schema: TableSchema, at: At) -> FeaturePreparation:
    own = FeaturePreparation(
        **state,
        n_features=schema.n_features,
        categorical=schema.categorical,
        n_categories=[schema.n_indicators[j] for j in schema.categorical],
    )
    for columns in (own.empty, own.marked):
        numeric = set(columns) <= set(schema.numeric) and sorted(set(columns)) == columns
        at.ensure(numeric, "have columns that are not distinct numeric features")
    n_dense = len(schema.numeric) + len(own.marked) + sum(n + 1 for n in own.n_categories)
    n_scaled = n_dense if own.kind == "dense" else 0
    at.ensure(len(own.center) == len(own.spread) == n_scaled, f"do not scale {n_scaled} columns")
    return own


def _is_share(weights: np.ndarray) -> bool:
    return bool(abs(weights.sum() - 1.0) < 1e-6)


_N_PAIRS = Integer(1)
KINDS |= {
    "TwinRegressor": Kind(
        "twinned.estimators.twin",
        {
            **_TWIN,
            "estimator_": Part(),
            "selected_features_": _COUNTS,
            "float32": Flag(),
            "unit": Real(_LEAST),
            "n_pairs_": _N_PAIRS,
        },
        _take_sklearn_twin,
        _build_sklearn_twin,
    ),
    "SemiSupervisedTwinRegressor": Kind(
        "twinned.estimators.semi_supervised",
        {
            "twin_": Part(("TwinRegressor",)),
            "loop_inconsistency_": Array("*", low=0, missing=True),
            "n_rounds_": Integer(0),
            "n_unlabelled_": Integer(0),
            "round_errors_": Maybe(Array("*", low=0)),
        },
        build=_build_semi_supervised,
    ),
    "NeuralRegressor": Kind("twinned.estimators.neural", _NETWORK, _take_network, _build_network),
    "TwinNeuralRegressor": Kind(
        "twinned.estimators.twin_neural",
        {**_TWIN, **_NETWORK, "n_pairs_": _N_PAIRS},
        _take_neural_twin,
        _build_neural_twin,
    ),
    "GPRegressor": Kind(
        "twinned.estimators.gaussian_process",
        {"process": _PROCESS, "out_of_fold_prediction_": Maybe(Array("*|* *"))},
        _take_process,
        _build_process,
    ),
    "AutoTwinRegressor": Kind("twinned.estimators.auto", _BLEND, _take_blend, _build_blend),
}
