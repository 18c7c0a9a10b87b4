"""Assembly of a model file: inputs, the steps before and after the model, its outputs."""

from dataclasses import replace

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from twinned._version import __version__
from twinned.estimators.base import TwinMethods
from twinned.estimators.blending.model import BlendModel, FittedMember
from twinned.estimators.neural import BaseNeural
from twinned.estimators.target import TransformedTargetTwin
from twinned.export.model_parts import NotExportableError, read_feature_names, read_fitted, refuse
from twinned.export.onnx.graph import DOUBLE, ML_DOMAIN, Graph, Tensor, concatenate
from twinned.export.onnx.inputs import BATCH, add_inputs, add_preparation, encode_matrix
from twinned.export.onnx.regressors import add_nearest, add_regressor, add_scaler, add_squares
from twinned.export.onnx.twins import (
    AnchorGraph,
    Moments,
    add_networks,
    add_residuals,
    add_twin,
    weighted_moments,
)
from twinned.fitted.calibration import MAX_FLOAT32, N_NEIGHBORS, SPREAD_POWER, Calibration
from twinned.fitted.quantiles import check_confidence, tails
from twinned.fitted.target import IDENTITY
from twinned.fitted.twin import FittedTwin
from twinned.rows.schema import NUMERIC

_OPSET, _ML_OPSET, _IR_VERSION = 21, 5, 10
_MAX_BYTES = 2**31 - 1  # of a protocol buffer
Model = TwinMethods | BaseNeural


def assemble(
    model: BaseEstimator, names: tuple[str, ...], confidence: float | None, dtype: str
) -> ModelProto:
    """Return a model file with these outputs and, with a confidence, `lower` and `upper`."""
    scalers, model, states = _unwrap(model)
    graph, schema = Graph(dtype), model.schema_
    infos, matrix = add_inputs(graph, schema, read_feature_names(model, schema.n_features))
    if scalers and {*schema.kinds} != {NUMERIC}:
        refuse("its pipeline has steps before categorical features", "export its last step")
    for scaler in scalers:
        matrix = add_scaler(scaler, matrix)
    if confidence is not None:
        names = (*names, "lower", "upper")
        if any(not isinstance(state, FittedTwin) or not state.calibration for state in states):
            reason = f"{type(model).__name__} stores no calibration for prediction intervals"
            refuse(reason, "use twinned.cross_conformal(twin, X, y), or confidence=None")
    if clash := {info.name for info in infos} & set(names):
        refuse(f"the table has a column {min(clash)!r}, as an output", "rename the column")
    needs_std = names != ("mean",)
    outputs_of_states = [_add_outputs(state, matrix, confidence, needs_std) for state in states]
    is_1d = model.n_outputs_ is None
    for name in names:
        output = concatenate([outputs[name] for outputs in outputs_of_states])
        output = output.reshape(-1) if is_1d else output
        graph.nodes.append(helper.make_node("Identity", [output.name], [name]))
    shape = [BATCH] if is_1d else [BATCH, None]
    outputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name in names]
    proto = helper.make_model(
        helper.make_graph(graph.nodes, "twinned", infos, outputs, list(graph.constants.values())),
        producer_name="twinned",
        producer_version=__version__,
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(ML_DOMAIN, _ML_OPSET)],
    )
    helper.set_model_props(proto, {"model": type(model).__name__})
    if (size := proto.ByteSize()) > _MAX_BYTES:
        reason = f"it would have {size:,} bytes, more than the {_MAX_BYTES:,} of an ONNX file"
        refuse(reason, "use fewer or smaller trees, or fewer anchors")
    checker.check_model(proto)
    return proto


def _unwrap(
    model: BaseEstimator,
) -> tuple[list[BaseEstimator], Model, list[FittedTwin] | list[BaseNeural]]:
    """Return the steps of pipelines before a model of twinned, the model, and what predicts."""
    check_is_fitted(model)
    scalers: list[BaseEstimator] = []
    target = IDENTITY
    while isinstance(model, Pipeline | TransformedTargetTwin):
        if isinstance(model, Pipeline):
            scalers += [step for _, step in model.steps[:-1]]
            model = model.steps[-1][1]
        else:
            model, target = model.regressor_, model.target_
    if target.scaling is not None:
        refuse("a power of its target is fitted", "use target_transform='log', or None")
    if isinstance(model, BaseNeural) and not isinstance(model, TwinMethods):
        return scalers, model, [model]
    if not isinstance(model, TwinMethods):
        reason = f"{type(model).__name__} is not a model of twinned"
        refuse(reason, "use skl2onnx, or a TransformedTargetTwin")
    twins = model.targets_ or [model]
    return scalers, model, [replace(read_fitted(twin), target=target) for twin in twins]


def _add_outputs(
    model: FittedTwin | BaseNeural, matrix: Tensor, confidence: float | None, needs_std: bool
) -> dict[str, Tensor]:
    """Outputs of a model for encoded rows: mean, std and, with a confidence, lower and upper."""
    mean, std, value = _add_prediction(model, matrix, needs_std)
    if not isinstance(model, FittedTwin):
        return {"mean": value, "std": std}
    intervals: dict[str, Tensor] = {}
    if model.calibration is not None and needs_std:
        scale = _add_scale(model, model.calibration, matrix, mean, std)
        std = scale * np.sqrt(np.mean(model.calibration.scores**2))
        if confidence is not None:
            level = check_confidence(confidence, model.calibration.n_rows)
            low, high = model.calibration.distribution.quantile(tails(level))
            intervals = {"lower": mean + scale * low, "upper": mean + scale * high}
    if model.target.is_log:
        intervals = {name: end.apply("Exp") for name, end in intervals.items()}
        std = value * std  # by the delta method
    tensors = {"mean": value, "std": std, **intervals}
    if not model.anchors.always_known.any():
        return tensors
    # rows without these values are completed by `FittedTwin.complete`, which a graph does not have
    known = matrix.columns(np.flatnonzero(model.anchors.always_known))
    n_missing = known.is_nan().cast(DOUBLE).sum(-1, keepdims=True)
    is_incomplete = n_missing.apply("Greater", 0.0)
    return {name: is_incomplete.apply("Where", np.nan, tensor) for name, tensor in tensors.items()}


def _add_prediction(model, matrix, needs_std=True):
    """The prediction (row, output) of encoded rows by a twin, or by networks that predict y."""
    if not isinstance(model, FittedTwin):
        return add_networks(model.networks(), model.schema_, matrix)
    if isinstance(model.model, BlendModel):
        return _add_blend(model, model.model, matrix, needs_std)
    return add_twin(model, matrix)


def _add_blend(fitted: FittedTwin, blend: BlendModel, matrix: Tensor, needs_std: bool) -> Moments:
    """Weighted mean of the members plus residuals, and their weighted standard deviation."""
    weights, spread_weights = blend.weights, blend.spread_weights
    needs_std = needs_std and len(blend.members) > 1
    used = np.flatnonzero((weights != 0) | (needs_std & (spread_weights != 0)))
    predictions = concatenate([_add_member(blend.members[i], matrix) for i in used])
    mean = predictions @ weights[used][:, None]
    std = mean * 0.0
    if needs_std:
        deviations = predictions - mean
        std = (deviations * deviations @ spread_weights[used][:, None]).apply("Sqrt")
    return add_residuals(fitted, matrix, mean, std) or Moments(mean, std, mean)


def _add_member(member: FittedMember, matrix: Tensor) -> Tensor:
    """(row, 1): the prediction of a member of a blend."""
    features = add_preparation(member.preparation, matrix)
    estimator: BaseEstimator = member.estimator
    try:
        if not isinstance(estimator, Model):
            return add_regressor(estimator, features)
        encoded = encode_matrix(estimator.schema_, features)
        model = read_fitted(estimator) if isinstance(estimator, TwinMethods) else estimator
        return _add_prediction(model, encoded).mean
    except NotExportableError as error:
        raise NotExportableError(f"the member {member.label!r}: {error}") from None


# --- the error scale of stored intervals: nearest known rows, and trees fitted to errors ----------


def _add_scale(
    fitted: FittedTwin, stored: Calibration, matrix: Tensor, mean: Tensor, std: Tensor
) -> Tensor:
    """(row, 1): the error scale, which grows away from known rows, with errors of measurement."""
    scale = _add_error_scale(stored, matrix, mean, std)
    if (unit := stored.scale.process_std) is not None:
        process_std = AnchorGraph(fitted, matrix).process_std()
        scale = scale * (process_std / unit).apply("Max", 1.0)
    if (y_std := stored.scale.y_std) is not None:
        model_scale = scale * stored.scale.factor
        scale = (model_scale * model_scale + y_std**2).apply("Sqrt")
    score_std = np.sqrt(np.mean(stored.scores**2))
    largest, floor = stored.scale.largest_std, stored.scale.floor
    if largest is not None and floor > 0 and score_std > 0:
        ratio = (std + floor) / largest
        growth = ratio.apply("Pow", SPREAD_POWER) * (largest / score_std)
        excess = (ratio - 1.0).apply("Max", 0.0) * growth
        scale = (scale * scale + excess * excess).apply("Sqrt")
    return scale


def _add_error_scale(stored: Calibration, matrix: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(row, 1): the error scale of encoded rows with predictions (row, 1)."""
    error_scale = stored.scale
    size = mean * 0.0 + 1.0
    std = std + error_scale.floor if error_scale.floor > 0 else size
    of_size, of_std = error_scale.exponents.tolist()
    if error_scale.regressor is None:
        return std.apply("Pow", of_std)
    scale_features = [matrix.columns(stored.neighbors.codes)]
    if stored.neighbors.columns:
        values = matrix.columns(stored.neighbors.columns)
        scale_features += [values, _add_neighbor_features(stored, values, mean)]
    features = concatenate([*scale_features, mean, std]).apply("Clip", -MAX_FLOAT32, MAX_FLOAT32)
    if error_scale.regressor_floor > 0:
        size = add_regressor(error_scale.regressor, features) + error_scale.regressor_floor
    return size.apply("Pow", of_size) * std.apply("Pow", of_std)


def _add_neighbor_features(stored: Calibration, values: Tensor, mean: Tensor) -> Tensor:
    """(row, feature): distances and target values of the nearest known rows."""
    neighbors, graph = stored.neighbors, values.graph
    k = min(max(N_NEIGHBORS), len(neighbors.y))

    def standardized(values: Tensor) -> Tensor:
        """Features for distances, with missing values replaced by the mean."""
        return ((values - neighbors.scaler.mean_) / neighbors.scaler.scale_).fill_nan(0.0)

    def features_of_row(row: Tensor, mean: Tensor) -> list[Tensor]:
        distances, indices = add_nearest(add_squares(standardized(row), rows).apply("Sqrt"), k)
        y = known_y.take(indices).reshape(-1)

        def mean_of(values: Tensor) -> Tensor:
            return values.mean(0, keepdims=True)

        mean_of_five = mean_of(y.columns(range(min(5, k))))
        features = [
            distances.columns([0]),
            distances.columns([min(N_NEIGHBORS[1], k) - 1]),
            *(weighted_moments(y.columns(range(min(n, k))), mean_of)[1] for n in N_NEIGHBORS),
            (y.columns([0]) - mean).apply("Abs"),
            (mean_of_five - mean).apply("Abs"),
        ]
        return [concatenate(features, axis=0)]

    rows = standardized(graph.constant(neighbors.values))
    known_y = graph.constant(neighbors.y[:, None])
    return graph.map_rows(features_of_row, values, mean)[0]
