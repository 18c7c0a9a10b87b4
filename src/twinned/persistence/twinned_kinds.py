"""Kinds of the estimators of twinned: twins, networks, Gaussian processes and blends."""

from typing import Any

import numpy as np

from twinned._neighbors import LearnedMetric
from twinned._table import CATEGORICAL, NUMERIC, TableSchema
from twinned._validation import check_finite
from twinned.estimators.blending.features import FeaturePreparation
from twinned.intervals.error_scale import count_scale_features
from twinned.models.gaussian_process import GaussianProcess
from twinned.pairing.features import PairFeatures
from twinned.persistence.schema import RECORDS, At
from twinned.persistence.sklearn_kinds import METRICS
from twinned.persistence.values import HOOKS, Hooks, State, set_attributes

_MAX_ENCODED = 50_000_000  # elements of the encoded anchors
_MAX_PROCESS_ROWS = 10_000  # the covariance of which takes 800 MB


def _pick(model: Any, record: str) -> State:
    return {name: vars(model).get(name) for name in RECORDS[record]}


def _metric_dict(metric: Any) -> Any:
    return None if metric is None else LearnedMetric(*metric)._asdict()


def _metric_tuple(metric: Any) -> Any:
    return None if metric is None else tuple(LearnedMetric(**metric))


def _build_table(parts: State, at: At) -> TableSchema:
    table = TableSchema(**parts)
    for kind, known, n in zip(table.kinds, table.categories, table.n_indicators, strict=True):
        at.ensure(len(set(known)) == len(known), "has a category twice")
        at.ensure(n <= (len(known) if kind == CATEGORICAL else 0), f"has {n} indicators")
        at.ensure(kind != NUMERIC or not known, "has categories of a numeric feature")
    at.bind("encoded", table.n_encoded)
    return table


def _take_twin(twin: Any) -> State:
    parts, intervals = _pick(twin, "twin"), getattr(twin, "intervals_", None)
    parts["_learned_metric"] = _metric_dict(twin._learned_metric)
    if intervals is not None:
        parts["intervals_"] = {**intervals, "metric": _metric_dict(intervals["metric"])}
    return {**vars(twin), "twin": parts}


def _build_twin(twin: Any, parts: State, at: At) -> None:
    """Set the attributes, after checks of the anchors by the table and the tags of the twin."""
    table, X, weights = (
        _build_table(parts["_schema"], at),
        parts["anchors_X_"],
        parts["anchor_weights_"],
    )
    at.ensure(len(X) * table.n_encoded <= _MAX_ENCODED, "has too many indicators")
    check_finite(X, None, bool(twin.__sklearn_tags__().input_tags.allow_nan), twin._pair_dtype)
    for j, (kind, known) in enumerate(zip(table.kinds, table.categories, strict=True)):
        has_code = np.isin(X[:, j], np.arange(len(known))) | np.isnan(X[:, j])
        at.ensure(kind == NUMERIC or has_code.all(), f"has unknown categories of feature {j}")
    at.ensure(weights is None or weights.sum() > 0, "has no anchor of positive weight")
    for strategy in (getattr(twin, "pairs", None), twin.anchors):
        metric = getattr(strategy, "metric", "euclidean")
        at.ensure(metric in METRICS, f"has a metric that is not one of {', '.join(METRICS)}")
    if (intervals := parts["intervals_"]) is not None:
        at.ensure(parts["anchors_y_"].ndim == 1, "has intervals, but several outputs")
        twin.intervals_ = _build_intervals(intervals, at / "intervals_")
    metric = _metric_tuple(parts["_learned_metric"])
    del parts["intervals_"]
    set_attributes(twin, {**parts, "_schema": table, "_learned_metric": metric}, at)
    twin._set_derived_state(None)


def _build_intervals(parts: State, at: At) -> State:
    if (regressor := parts["regressor"]) is not None:
        expected = count_scale_features(len(parts["columns"]))
        fits = regressor.n_features_in_ == expected and regressor.n_outputs_ == 1
        at.ensure(fits, f"has an error scale of other features than its {expected}")
        least = min(tree.tree_.value.min() for tree in regressor.estimators_)
        at.ensure(least >= 0, "has an error scale that is negative")
    return {**parts, "metric": _metric_tuple(parts["metric"])}


# --- twins of scikit-learn regressors -------------------------------------------------------------


def _take_sklearn_twin(twin: Any) -> State:
    return {**_take_twin(twin), "float32": twin._pair_dtype == np.float32}


def _build_sklearn_twin(twin: Any, state: State, at: At) -> None:
    parts, base = state.pop("twin"), state["estimator_"]
    known = twin.estimator is None or type(twin.estimator) is type(base)
    at.ensure(known, "has another base estimator than its parameter")
    twin._pair_dtype = np.dtype(np.float32 if state.pop("float32") else np.float64)
    set_attributes(twin, state, at)
    _build_twin(twin, parts, at)
    # made from the columns of the table, not from what a file claims
    selected = (
        twin.selected_features_ if len(twin.selected_features_) < twin.n_features_in_ else None
    )
    features = PairFeatures(twin.pair_features, twin._schema, twin._pair_dtype, selected)
    width = getattr(base, "n_features_in_", features.width)
    fault = f"has a base estimator of {width} pair features, not {features.width}"
    at.ensure(width == features.width, fault)
    twin._features, anchor = features, twin._anchors.take(slice(0, 1))
    n_found = twin._make_model().differences(anchor, anchor).shape[-1]
    at.ensure(n_found == at.sizes.get("output", 1), f"predicts {n_found} outputs")


# --- networks -------------------------------------------------------------------------------------


def _take_networks(model: Any) -> State:
    parts = _pick(model, "networks")
    parts["_scale"] = dict(zip(RECORDS["scale"], parts["_scale"], strict=True))
    return {**vars(model), "networks": parts}


def _build_networks(model: Any, state: State, at: At) -> None:
    parts = state.pop("networks")
    table, shape = _build_table(parts["_schema"], at), parts["_shape"]
    at.bind("numeric", len(table.numeric))
    at.bind("output", shape["n_outputs"])
    n_inputs = len(table.encoded_columns(parts["selected_features_"]))
    at.ensure(0 < n_inputs <= shape["n_features"], "has fewer inputs than features")
    at.ensure(shape["twin"] == model._twin, "is a network of another kind")
    flat = shape["n_outputs"] == 1 or not parts["_one_dimensional"]
    at.ensure(flat and shape["hidden_sizes"], "has other outputs, or no hidden layer")
    found = {name: own.shape for name, own in parts["_parameters"].items()}
    expected = _parameter_shapes(shape, len(parts["_gates"]))
    at.ensure(found == expected, "has network parameters of other shapes")
    scale = tuple(parts["_scale"][name] for name in RECORDS["scale"])
    set_attributes(model, {**state, **parts, "_schema": table, "_scale": scale}, at)


def _parameter_shapes(shape: State, n_members: int) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter; compare `models.neural.network.initial_parameters`."""
    d, frequencies, hidden = shape["n_features"], shape["n_frequencies"], shape["hidden_sizes"]
    sizes = (*hidden, shape["n_outputs"])
    shapes: dict[str, tuple[int, ...]] = {"frequency": (d, frequencies)} if frequencies else {}
    for side in range(2 if shape["twin"] else 1):
        shapes[f"linear_{side}"] = (d, hidden[0])
        if frequencies:
            shapes[f"periodic_{side}"] = (d * 2 * frequencies, hidden[0])
    for layer, size in enumerate(sizes):
        shapes[f"bias_{layer}"] = (size,)
        if layer:
            shapes[f"weight_{layer}"] = (sizes[layer - 1], size)
    return {name: (n_members, *own) for name, own in shapes.items()}


def _build_neural_twin(model: Any, state: State, at: At) -> None:
    parts, model._pair_dtype = state.pop("twin"), np.dtype(np.float64)
    _build_networks(model, state, at)
    flat = (parts["anchors_y_"].ndim == 1) == model._one_dimensional
    at.ensure(flat, "has anchors with other outputs")
    at.ensure(parts["_schema"] == vars(model._schema), "has networks of another table")
    _build_twin(model, parts, at)


# --- Gaussian processes and blends ----------------------------------------------------------------


def _build_process(model: Any, state: State, at: At) -> None:
    process, n_rows = GaussianProcess(**state["process_"]), at.sizes["row"]
    at.ensure(n_rows <= _MAX_PROCESS_ROWS, f"has {n_rows:,} rows, more than {_MAX_PROCESS_ROWS:,}")
    at.ensure(at.sizes["output"] == 1 or not process.single_output, "has several outputs")
    set_attributes(model, {**state, "process_": process}, at)


def _build_blend(model: Any, state: State, at: At) -> None:
    model._pair_dtype, members = np.dtype(np.float64), state["members_"]
    _build_twin(model, state.pop("twin"), at)
    at.bind("member", len(members))
    at.bind("row", int((model.anchor_rows_ >= 0).sum()))
    at.ensure("intervals_" in vars(model) and model.anchors_y_.ndim == 1, "has no intervals")
    at.bind("row", len(model.intervals_["scores"]))
    same = sorted(state["_leaderboard"]["member"]) == sorted(members)
    at.ensure(same, "has a leaderboard of other members")
    preparations = [FeaturePreparation(**own) for own in state["_preparations"]]
    for own, (name, member) in zip(preparations, members.items(), strict=True):
        _check_preparation(own, model._schema, at / "_preparations" / name)
        n_features = getattr(member, "n_features_in_", own.n_columns)
        at.ensure(n_features == own.n_columns, f"has other columns than the features of {name!r}")
        targets = getattr(member, "anchors_y_", model.anchors_y_)
        at.ensure(targets.ndim == 1, f"has several outputs of {name!r}")
    listed = () if isinstance(model.members, str) else model.members
    given = {entry[0]: entry for entry in listed if not isinstance(entry, str)}
    plan = [given.get(name, name) for name in members]
    set_attributes(model, {**state, "_preparations": preparations, "plan_": plan}, at)


def _check_preparation(own: FeaturePreparation, table: TableSchema, at: At) -> None:
    n_categories = [table.n_indicators[j] for j in table.categorical]
    found = (own.n_features, own.categorical, own.n_categories)
    same = found == (table.n_features, table.categorical, n_categories)
    at.ensure(same, "is of another table")
    for columns in (own.empty, own.marked):
        numeric = set(columns) <= set(table.numeric) and sorted(set(columns)) == columns
        at.ensure(numeric, "has columns that are not distinct numeric features")
    n_dense = len(table.numeric) + len(own.marked) + sum(n_categories) + len(n_categories)
    n_scaled = n_dense if own.kind == "dense" else 0
    at.ensure(len(own.center) == len(own.spread) == n_scaled, f"does not scale {n_scaled} columns")


HOOKS |= {
    "TwinRegressor": Hooks(_take_sklearn_twin, _build_sklearn_twin),
    "NeuralRegressor": Hooks(_take_networks, _build_networks),
    "TwinNeuralRegressor": Hooks(
        lambda model: {**_take_twin(model), "networks": _take_networks(model)["networks"]},
        _build_neural_twin,
    ),
    "GPRegressor": Hooks(build=_build_process),
    "AutoTwinRegressor": Hooks(_take_twin, _build_blend),
}
