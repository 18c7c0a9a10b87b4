"""Kinds of the estimators of twinned: twins, networks, Gaussian processes and blends."""

from itertools import pairwise

import numpy as np
from sklearn.base import BaseEstimator

from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.preparation import FeaturePreparation
from twinned.estimators.power import TransformedModel
from twinned.fitted.calibration import count_scale_features
from twinned.models.gaussian_process import GaussianProcess
from twinned.pairing.pairs import PairFeatures
from twinned.persistence.archive import feature_attributes
from twinned.persistence.schema import RECORDS, At
from twinned.persistence.sklearn_kinds import METRICS
from twinned.persistence.values import READ, State, builder, set_state
from twinned.rows.neighbors import LearnedMetric
from twinned.rows.scaling import PowerScaling
from twinned.rows.schema import CATEGORICAL, NUMERIC, TableSchema
from twinned.rows.validation import check_finite

# memory of an element, with its copies
_COVARIANCE_BYTES, _INDICATOR_BYTES = 16, 32


def _build_table(parts: State, at: At) -> TableSchema:
    table = TableSchema(**parts)
    for kind, known, n in zip(table.kinds, table.categories, table.n_indicators, strict=True):
        at.ensure(len(set(known)) == len(known), "has a category twice")
        at.ensure(n <= (len(known) if kind == CATEGORICAL else 1), f"has {n} indicators")
        at.ensure(kind != NUMERIC or not known, "has categories of a numeric feature")
    at.bind("encoded", table.n_encoded)
    return table


def _build_twin(twin: BaseEstimator, state: State, at: At) -> None:
    """Set the attributes, after checks of the anchors by the table and the tags of the twin."""
    table, X, weights = state["_schema"], state["anchors_X_"], state["anchor_weights_"]
    n_rows = sum(len(rows) for rows in (X, state["_censored_X"]) if rows is not None)
    at.reserve(_INDICATOR_BYTES * n_rows * sum(table.n_indicators), "indicators of categories")
    check_finite(X, None, bool(twin.__sklearn_tags__().input_tags.allow_nan), state["_pair_dtype"])
    for j, (kind, known) in enumerate(zip(table.kinds, table.categories, strict=True)):
        has_code = np.isin(X[:, j], np.arange(len(known))) | np.isnan(X[:, j])
        at.ensure(kind == NUMERIC or has_code.all(), f"has unknown categories of feature {j}")
    at.ensure(weights is None or weights.sum() > 0, "has no anchor of positive weight")
    batches, codes = state["_batches"], state["anchor_batches_"]
    if batches is not None or codes is not None:
        has_both = batches is not None and codes is not None
        known = has_both and codes.max() < len(batches[0]) and batches[2].max() > 0
        at.ensure(known, "has anchors of unknown batches")
    metrics = [v for k, v in twin.get_params().items() if k in ("pairs__metric", "anchors__metric")]
    at.ensure(set(metrics) <= {*METRICS}, f"has a metric that is not one of {', '.join(METRICS)}")
    if (intervals := state["intervals_"]) is not None:
        at.ensure(state["anchors_y_"].ndim == 1, "has intervals, but several outputs")
        if (regressor := intervals["regressor"]) is not None:
            parts = intervals["columns"], intervals["codes"]
            n_features = count_scale_features(*map(len, parts))
            fits = regressor.n_features_in_ == n_features and regressor.n_outputs_ == 1
            at.ensure(fits, f"has an error scale of other features than its {n_features}")
            least = min(tree.tree_.value.min() for tree in regressor.estimators_)
            at.ensure(least >= 0, "has an error scale that is negative")
    set_state(twin, state)
    twin.restore_anchors()


# --- twins of scikit-learn regressors -------------------------------------------------------------


@builder("TwinRegressor")
def _build_sklearn_twin(twin: BaseEstimator, state: State, at: At) -> None:
    base, selected = state["estimator_"], state["selected_features_"]
    table, dtype = _build_table(state["_schema"], at), np.dtype(state["_pair_dtype"])
    # made from the columns of the table, not from what a file claims
    every = len(selected) == twin.n_features_in_
    features = PairFeatures(twin.pair_features, table, dtype, None if every else selected)
    rebuilt = {"_schema": table, "_pair_dtype": dtype, "_features": features}
    _build_twin(twin, {**state, **rebuilt}, at)
    width = feature_attributes(base)[0] or features.width
    at.ensure(width == features.width, f"has pair features of width {width}, not {features.width}")
    anchor = table.to_rows(state["anchors_X_"][:1])
    n_outputs = base.predict(features.build(anchor, anchor)).size
    at.ensure(n_outputs == at.sizes.get("output", 1), f"predicts {n_outputs} outputs")


# --- networks -------------------------------------------------------------------------------------


@builder("NeuralRegressor", "TwinNeuralRegressor")
def _build_networks(model: BaseEstimator, state: State, at: At) -> None:
    table, shape = _build_table(state["_schema"], at), state["_shape"]
    at.bind("numeric", len(table.numeric))
    at.bind("output", shape["n_outputs"])
    n_inputs = len(table.encoded_columns(state["selected_features_"]))
    at.ensure(0 < n_inputs <= shape["n_features"], "has fewer inputs than features")
    at.ensure(shape["twin"] == isinstance(model, BaseTwin), "is a network of another kind")
    flat = shape["n_outputs"] == 1 or not state["_one_dimensional"]
    at.ensure(flat and shape["hidden_sizes"], "has other outputs, or no hidden layer")
    shapes = {name: parameter.shape for name, parameter in state["_parameters"].items()}
    expected = _parameter_shapes(shape, len(state["_gates"]))
    at.ensure(shapes == expected, "has network parameters of other shapes")
    state = {**state, "_schema": table}
    if not shape["twin"]:
        set_state(model, state)
        return
    at.ensure((state["anchors_y_"].ndim == 1) == state["_one_dimensional"], "has other outputs")
    _build_twin(model, {**state, "_pair_dtype": np.dtype(np.float64)}, at)


def _parameter_shapes(shape: State, n_members: int) -> dict[str, tuple[int, ...]]:
    """The shape of each parameter; compare `models.neural.network.initial_parameters`."""
    n_features, n_waves = shape["n_features"], shape["n_frequencies"]
    sizes = (*shape["hidden_sizes"], shape["n_outputs"])
    shapes: dict[str, tuple[int, ...]] = {"frequency": (n_features, n_waves)} if n_waves else {}
    rows = {"linear": n_features} | ({"periodic": 2 * n_features * n_waves} if n_waves else {})
    for side in range(1 + shape["twin"]):
        shapes |= {f"{name}_{side}": (n_rows, sizes[0]) for name, n_rows in rows.items()}
    shapes |= {f"bias_{layer}": (size,) for layer, size in enumerate(sizes)}
    shapes |= {f"weight_{layer}": pair for layer, pair in enumerate(pairwise(sizes), start=1)}
    return {name: (n_members, *of_member) for name, of_member in shapes.items()}


# --- Gaussian processes and blends ----------------------------------------------------------------


@builder("GPRegressor")
def _build_process(model: BaseEstimator, state: State, at: At) -> None:
    process, n_rows = GaussianProcess(**state["process_"]), at.sizes["row"]
    at.reserve(_COVARIANCE_BYTES * n_rows**2, "covariance")
    at.ensure(at.sizes["output"] == 1 or not process.single_output, "has several outputs")
    set_state(model, {**state, "process_": process})


@builder("PowerRegressor")
def _build_power(model: BaseEstimator, state: State, at: At) -> None:
    parts, n_features = state["model_"], model.n_features_in_
    same = feature_attributes(parts["regressor"])[0] in (None, n_features)
    at.ensure(same, f"has a regressor of other features than its {n_features}")
    scalings = {name: PowerScaling(*parts[name]) for name in ("features", "target")}
    set_state(model, {**state, "model_": TransformedModel(**{**parts, **scalings})})


@builder("InverseTwinRegressor")
def _build_inverse(model: BaseEstimator, state: State, at: At) -> None:
    n_features, n_targets = at.sizes["feature"], at.sizes["output"]
    parts = {"forward_": (n_features, n_targets)}
    parts["estimator_"] = 2 * n_targets + n_features, n_features
    for name, (width, n_outputs) in parts.items():
        same = feature_attributes(state[name])[0] in (None, width)
        same = same and state[name].predict(np.zeros((1, width))).size == n_outputs
        at.ensure(same, f"has {name} of other features or outputs")
    names = state["target_names_"]
    at.ensure(len(names) == (n_targets if n_targets > 1 else 0), "has names of other targets")
    rebuilt = {"scaling_": PowerScaling(*state["scaling_"])}
    set_state(model, {**state, **rebuilt, "metric_": LearnedMetric(*state["metric_"])})


@builder("AutoTwinRegressor")
def _build_blend(model: BaseEstimator, state: State, at: At) -> None:
    if targets := state["targets_"]:
        known = [vars(each).get("target_name_") for each in targets]
        same = all(each.n_features_in_ == model.n_features_in_ for each in targets)
        at.ensure(same and len({*known} - {None}) == len(known) > 1, "has targets that differ")
        vars(model).update(targets_=targets, joint_scores_=state["joint_scores_"])
        return
    members, table = state["members_"], _build_table(state["_schema"], at)
    at.bind("row", int((state["anchor_rows_"] >= 0).sum()))
    at.bind("score", int(np.isfinite(state["out_of_fold_prediction_"]).sum()))
    same = sorted(state["_leaderboard"]["member"]) == sorted(members)
    at.ensure(same, "has a leaderboard of other members")
    preparations = []
    for parts, (name, member) in zip(state["_preparations"], members.items(), strict=True):
        prepared = _build_preparation(parts, table, at / "_preparations" / name)
        preparations.append(prepared)
        same = feature_attributes(member)[0] in (None, prepared.n_columns)
        at.ensure(same, f"has other columns than the features of {name!r}")
        at.ensure(np.ndim(vars(member).get("anchors_y_", [0.0])) == 1, f"has outputs of {name!r}")
    listed = () if isinstance(model.members, str) else model.members
    given = {entry[0]: entry for entry in listed if not isinstance(entry, str)}
    model.plan_ = [given.get(name, name) for name in members]
    rebuilt = {"_preparations": preparations, "_schema": table, "_pair_dtype": np.dtype(np.float64)}
    _build_twin(model, {**state, **rebuilt}, at)


def _build_preparation(parts: State, table: TableSchema, at: At) -> FeaturePreparation:
    n_categories = [table.n_indicators[j] for j in table.categorical]
    derived: State = {"n_features": table.n_features, "categorical": table.categorical}
    built = FeaturePreparation(**parts, **derived, n_categories=n_categories)
    for columns in (built.empty, built.marked):
        numeric = set(columns) <= set(table.numeric) and sorted(set(columns)) == columns
        at.ensure(numeric, "has columns that are not distinct numeric features")
    n_dense = len(table.numeric) + len(built.marked) + sum(n_categories) + len(n_categories)
    n_scaled = n_dense if built.kind == "dense" else 0
    fits = len(built.center) == len(built.spread) == n_scaled
    at.ensure(fits, f"does not scale {n_scaled} columns")
    return built


def _read_twin(twin: BaseEstimator) -> State:
    """Return the attributes, with the type of pairs by its name and preparations by the schema."""
    state = twin.__getstate__()
    names, preparations = RECORDS["preparation"], state.get("_preparations", ())
    return {
        **state,
        "_pair_dtype": state["_pair_dtype"].name,
        "_preparations": [{name: vars(part)[name] for name in names} for part in preparations],
    }


READ |= dict.fromkeys(("TwinRegressor", "TwinNeuralRegressor", "AutoTwinRegressor"), _read_twin)
