"""Kinds of the estimators of twinned: twins, networks, Gaussian processes and blends."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
from sklearn.base import BaseEstimator

from twinned.estimators.base import BaseTwin, TwinMethods
from twinned.estimators.blending.model import BlendModel, FeaturePreparation, FittedMember
from twinned.fitted.anchors import Anchors
from twinned.fitted.calibration import (
    Calibration,
    NeighborFeatures,
    count_scale_features,
    find_rows,
)
from twinned.fitted.twin import FittedTwin
from twinned.models.protocol import DifferenceModel
from twinned.models.resources import MemoryBudget
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.pairing.anchors import GPWeights, as_anchor_strategy, as_weight_strategy
from twinned.pairing.differences import PairFeatures
from twinned.persistence.archive import feature_attributes
from twinned.persistence.sklearn_kinds import METRICS
from twinned.persistence.values import READ, RECORDS, At, State, builder, set_state
from twinned.rows.schema import CATEGORICAL, NUMERIC, TableSchema
from twinned.rows.validation import check_finite

# memory of an element, with its copies
_COVARIANCE_BYTES, _INDICATOR_BYTES = 16, 32


def _check_table(table: TableSchema, at: At) -> None:
    """Raise for categories and indicators that no fit makes."""
    for kind, known, n in zip(table.kinds, table.categories, table.n_indicators, strict=True):
        at.ensure(len(set(known)) == len(known), "has a category twice")
        at.ensure(n <= (len(known) if kind == CATEGORICAL else 1), f"has {n} indicators")
        at.ensure(kind != NUMERIC or not known, "has categories of a numeric feature")
    at.bind("encoded", table.n_encoded)


def _build_anchors(twin, state, at, scale=None):
    """The anchors, after checks by the table and the tags of the twin."""
    record, batches = state.pop("anchors"), state["batches"]
    table, X, weights, codes = (record[name] for name in ("schema", "matrix", "weight", "batch"))
    _check_table(table, at)
    n_rows = sum(len(rows) for rows in (X, record["censored_X"]) if rows is not None)
    at.reserve(_INDICATOR_BYTES * n_rows * sum(table.n_indicators), "indicators of categories")
    check_finite(X, None, bool(twin.__sklearn_tags__().input_tags.allow_nan), state["_pair_dtype"])
    for j, (kind, known) in enumerate(zip(table.kinds, table.categories, strict=True)):
        has_code = np.isin(X[:, j], np.arange(len(known))) | np.isnan(X[:, j])
        at.ensure(kind == NUMERIC or has_code.all(), f"has unknown categories of feature {j}")
    at.ensure(weights is None or weights.sum() > 0, "has no anchor of positive weight")
    if batches is not None or codes is not None:
        has_both = batches is not None and codes is not None
        is_valid = has_both and codes.max() < len(batches.names) and batches.weight.any()
        at.ensure(is_valid, "has anchors of unknown batches")
        at.ensure(record["deviation"] is not None, "has no deviations of its anchors")
    metrics = [v for k, v in twin.get_params().items() if k in ("pairs__metric", "anchors__metric")]
    at.ensure(set(metrics) <= {*METRICS}, f"has a metric that is not one of {', '.join(METRICS)}")
    return Anchors(**record, scale=scale, n_jobs=twin.n_jobs)


def _build_calibration(record: State | None, anchors: Anchors, at: At) -> Calibration | None:
    """The calibration of prediction intervals, whose known rows are the anchors."""
    if record is None:
        return None
    at.ensure(anchors.y.ndim == 1, "has intervals, but several outputs")
    columns, codes = record["columns"].tolist(), record["codes"].tolist()
    if (regressor := record["scale"].regressor) is not None:
        n_features = count_scale_features(len(columns), len(codes))
        fits = regressor.n_features_in_ == n_features and regressor.n_outputs_ == 1
        at.ensure(fits, f"has an error scale of other features than its {n_features}")
        least = min(tree.tree_.value.min() for tree in regressor.estimators_)
        at.ensure(least >= 0, "has an error scale that is negative")
    neighbors = NeighborFeatures(anchors.matrix, anchors.y, columns, codes)
    return Calibration(record["scores"], record["scale"], neighbors, record["rows"])


def _set_twin(
    twin: BaseEstimator, state: State, anchors: Anchors, model: DifferenceModel, at: At
) -> None:
    """Set the fitted state of a twin, and its attributes from the rest of the state of the file."""
    residuals, power = state.pop("residuals"), state.pop("local_power")
    calibration = _build_calibration(state.pop("calibration"), anchors, at / "calibration")
    nearest = as_anchor_strategy(twin.anchors).nearest(len(anchors))
    fitted = FittedTwin(
        model=model,
        anchors=anchors.prepare(nearest),
        nearest=nearest,
        weight_strategy=as_weight_strategy(twin.weights),
        budget=MemoryBudget(twin.memory_limit, twin.n_jobs),
        replicate_correlation=state.pop("replicate_correlation"),
        batches=state.pop("batches"),
        calibration=calibration,
        applicability=state.pop("applicability"),
    )
    if residuals is not None and fitted.uses_all_anchors_equally:
        local_weights = GPWeights(power) if power else None
        fitted = replace(fitted, residuals=residuals, local_weights=local_weights)
    set_state(twin, {**state, "_fitted": fitted})


# --- twins of scikit-learn regressors -------------------------------------------------------------


@builder("TwinRegressor")
def _build_sklearn_twin(twin: BaseEstimator, state: State, at: At) -> None:
    base, selected = state.pop("estimator_"), state.pop("selected_features_")
    state["_pair_dtype"] = dtype = np.dtype(state["_pair_dtype"])
    anchors = _build_anchors(twin, state, at)
    table = anchors.schema
    # made from the columns of the table, not from what a file claims
    every = len(selected) == twin.n_features_in_
    features = PairFeatures(twin.pair_features, table, dtype, None if every else selected)
    model = SklearnDifferenceModel(
        estimator=base,
        features=features,
        unit=float(state.pop("_y_unit")),
        symmetric=twin.symmetric,
        memory_limit=twin.memory_limit,
    )
    _set_twin(twin, state, anchors, model, at)
    width = feature_attributes(base)[0] or features.width
    at.ensure(width == features.width, f"has pair features of width {width}, not {features.width}")
    anchor = table.to_rows(anchors.matrix[:1])
    n_outputs = base.predict(features.build(anchor, anchor)).size
    at.ensure(n_outputs == at.sizes.get("output", 1), f"predicts {n_outputs} outputs")


# --- networks -------------------------------------------------------------------------------------


@builder("NeuralRegressor", "TwinNeuralRegressor")
def _build_networks(model: BaseEstimator, state: State, at: At) -> None:
    shape, is_twin = state["_shape"], isinstance(model, BaseTwin)
    table = state["anchors"]["schema"] if is_twin else state["_schema"]
    _check_table(table, at)
    at.bind("numeric", len(table.numeric))
    at.bind("output", shape["n_outputs"])
    n_inputs = len(table.encoded_columns(state["selected_features_"]))
    at.ensure(0 < n_inputs <= shape["n_features"], "has fewer inputs than features")
    at.ensure(shape["twin"] == is_twin, "is a network of another kind")
    flat = shape["n_outputs"] == 1 or not state["_one_dimensional"]
    at.ensure(flat and shape["hidden_sizes"], "has other outputs, or no hidden layer")
    shapes = {name: parameter.shape for name, parameter in state["_parameters"].items()}
    expected = _parameter_shapes(shape, len(state["member_weights_"]))
    at.ensure(shapes == expected, "has network parameters of other shapes")
    set_state(model, {"_schema": table, **{name: state[name] for name in RECORDS["networks"]}})
    if not is_twin:
        return
    state["_pair_dtype"] = np.dtype(np.float64)
    anchors = _build_anchors(model, state, at, model.row_scale())
    at.ensure((anchors.y.ndim == 1) == state["_one_dimensional"], "has other outputs")
    _set_twin(model, state, anchors, model.networks(), at)


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
    process, n_rows = state["process_"], at.sizes["row"]
    at.reserve(_COVARIANCE_BYTES * n_rows**2, "covariance")
    at.ensure(at.sizes["output"] == 1 or not process.single_output, "has several outputs")
    at.ensure(process.n_counts <= at.sizes["feature"], "has more counts than features")
    set_state(model, state)


@builder("PowerRegressor")
def _build_power(model: BaseEstimator, state: State, at: At) -> None:
    n_features = model.n_features_in_
    same = feature_attributes(state["model_"].regressor)[0] in (None, n_features)
    at.ensure(same, f"has a regressor of other features than its {n_features}")
    set_state(model, state)


@builder("InverseTwinRegressor")
def _build_inverse(model: BaseEstimator, state: State, at: At) -> None:
    n_features, n_targets = at.sizes["feature"], at.sizes["output"]
    sizes = {"forward_": (n_features, n_targets)}
    sizes["estimator_"] = 2 * n_targets + n_features, n_features
    for name, (width, n_outputs) in sizes.items():
        same = feature_attributes(state[name])[0] in (None, width)
        same = same and state[name].predict(np.zeros((1, width))).size == n_outputs
        at.ensure(same, f"has {name} of other features or outputs")
    names = state["target_names_"]
    at.ensure(len(names) == (n_targets if n_targets > 1 else 0), "has names of other targets")
    set_state(model, state)


@builder("AutoTwinRegressor")
def _build_blend(model: BaseEstimator, state: State, at: At) -> None:
    if targets := state["targets_"]:
        known = [vars(each).get("target_name_") for each in targets]
        same = all(each.n_features_in_ == model.n_features_in_ for each in targets)
        at.ensure(same and len({*known} - {None}) == len(known) > 1, "has targets that differ")
        vars(model).update(targets_=targets, joint_scores_=state["joint_scores_"])
        return
    state["_pair_dtype"] = np.dtype(np.float64)
    anchors = _build_anchors(model, state, at)
    members, table = state.pop("members_"), anchors.schema
    at.bind("row", int((anchors.table_rows >= 0).sum()))
    at.bind("score", int(np.isfinite(state["out_of_fold_prediction_"]).sum()))
    same = sorted(state["_leaderboard"]["member"]) == sorted(members)
    at.ensure(same, "has a leaderboard of other members")
    preparations = []
    for record, (name, member) in zip(state.pop("_preparations"), members.items(), strict=True):
        prepared = _build_preparation(record, table, at / "_preparations" / name)
        preparations.append(prepared)
        same = feature_attributes(member)[0] in (None, prepared.n_columns)
        at.ensure(same, f"has other columns than the features of {name!r}")
        is_twin = isinstance(member, TwinMethods)
        at.ensure(not is_twin or member.anchors_y_.ndim == 1, f"has outputs of {name!r}")
    listed = () if isinstance(model.members, str) else model.members
    given = {entry[0]: entry for entry in listed if not isinstance(entry, str)}
    model.plan_ = [given.get(name, name) for name in members]
    blend = BlendModel(
        members=[
            FittedMember(name, member, prepared)
            for (name, member), prepared in zip(members.items(), preparations, strict=True)
        ],
        weights=state.pop("member_weights_"),
        spread_weights=state.pop("_spread_weights"),
        out_of_fold=state.pop("_anchor_predictions"),
        schema=table,
    )
    _set_twin(model, state, anchors, blend, at)


def _build_preparation(record: State, table: TableSchema, at: At) -> FeaturePreparation:
    if columns := record.get("columns"):
        distinct = len(set(columns)) == len(columns) and max(columns) < table.n_features
        at.ensure(distinct, "has columns that are not distinct features")
        table = table.take(columns)
    n_categories = [table.n_indicators[j] for j in table.categorical]
    derived: State = {"n_features": table.n_features, "categorical": table.categorical}
    built = FeaturePreparation(**record, **derived, n_categories=n_categories)
    at.ensure(len(built.medians) == table.n_features, "has medians of other features")
    for columns in (built.empty, built.marked):
        numeric = set(columns) <= set(table.numeric) and sorted(set(columns)) == columns
        at.ensure(numeric, "has columns that are not distinct numeric features")
    n_dense = len(table.numeric) + len(built.marked) + sum(n_categories) + len(n_categories)
    n_scaled = n_dense if built.kind == "dense" else 0
    fits = len(built.center) == len(built.spread) == n_scaled
    at.ensure(fits, f"does not scale {n_scaled} columns")
    at.ensure(built.n_counts <= n_scaled, "has more counts than columns")
    return built


def _read_twin(twin: BaseEstimator) -> State:
    """The attributes of a twin, and the parts of its fitted state."""
    if twin.targets_:
        return twin.__getstate__()
    fitted, anchors = twin.fitted_, twin.fitted_.anchors
    of_estimator, values = twin.__getstate__(), vars(anchors)
    values = values | {"learned_metric": anchors.known_metric}
    state = {
        **vars(fitted),
        **of_estimator,
        "_pair_dtype": of_estimator["_pair_dtype"].name,
        "anchors": {name: values[name] for name in RECORDS["anchors"]},
        "local_power": twin.local_power_,
        "calibration": _read_calibration(fitted),
    }
    model = fitted.model
    if isinstance(model, SklearnDifferenceModel):
        state["estimator_"], state["_y_unit"] = model.estimator, model.unit
        state["selected_features_"] = model.features.selected
    elif isinstance(model, BlendModel):
        names = RECORDS["preparation"]
        state["members_"], state["member_weights_"] = twin.members_, model.weights
        state["_spread_weights"] = model.spread_weights
        state["_anchor_predictions"] = model.out_of_fold
        state["_preparations"] = [
            {name: vars(member.preparation)[name] for name in names} for member in model.members
        ]
    return state


def _read_calibration(fitted: FittedTwin) -> State | None:
    """The calibration without its known rows, which must be the anchors."""
    calibration, anchors = fitted.calibration, fitted.anchors
    if calibration is None:
        return None
    neighbors = calibration.neighbors
    if neighbors.columns and find_rows(anchors.matrix, anchors.y, neighbors) is None:
        raise ValueError(
            "The calibration is of other rows than the anchors, which a model file does not hold; "
            "calibrate by the rows of the fit, or with width='std'."
        )
    return {
        "scale": calibration.scale,
        "columns": np.array(neighbors.columns, dtype=np.intp),
        "codes": np.array(neighbors.codes, dtype=np.intp),
        "scores": calibration.scores,
        "rows": calibration.rows,
    }


READ |= dict.fromkeys(("TwinRegressor", "TwinNeuralRegressor", "AutoTwinRegressor"), _read_twin)
