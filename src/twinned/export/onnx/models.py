"""Assembly of a model file: inputs, the steps before and after the model, its outputs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from twinned._version import __version__
from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.members import FittedMember
from twinned.estimators.blending.model import BlendModel
from twinned.estimators.neural import BaseNeural
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor
from twinned.estimators.target import TransformedTargetTwin, split_target
from twinned.export.exported_twin import (
    ExportedTwin,
    NotExportableError,
    read_feature_names,
    read_schema,
    refuse,
)
from twinned.export.onnx.graph import ML_DOMAIN, Graph, Tensor, concatenate
from twinned.export.onnx.inputs import BATCH, add_inputs, add_preparation, encode_matrix
from twinned.export.onnx.regressors import add_distances, add_nearest, add_regressor, add_scaler
from twinned.export.onnx.twins import (
    Moments,
    add_networks,
    add_residuals,
    add_twin,
    weighted_moments,
)
from twinned.fitted.calibration import MAX_FLOAT32, N_NEIGHBORS, Calibration
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.models.neural.difference_model import PlainNetworks
from twinned.rows.schema import NUMERIC, TableSchema

_OPSET, _ML_OPSET, _IR_VERSION = 21, 5, 10
_MAX_CHECKED_BYTES = 1_000_000_000
Model = BaseTwin | BaseNeural


class ExportedNetworks(NamedTuple):
    """Networks that predict y itself, and the schema of their features."""

    networks: PlainNetworks
    schema: TableSchema


def unwrap_model(model: BaseEstimator) -> tuple[list[BaseEstimator], Model, TargetTransform]:
    """Return the steps of pipelines before a model of twinned, the model, and its target."""
    check_is_fitted(model)
    scalers: list[BaseEstimator] = []
    target = IDENTITY
    while not isinstance(model, Model):
        if type(model) is Pipeline:
            scalers += [step for _, step in model.steps[:-1]]
            model = model.steps[-1][1]
        elif isinstance(model, TransformedTargetTwin):
            model, target = split_target(model)
            if target.scaling is not None:
                refuse("a power of its target is fitted", "use target_transform='log', or None")
        elif isinstance(model, SemiSupervisedTwinRegressor):
            model = model.twin_
        else:
            name = type(model).__name__
            refuse(f"{name} is not a model of twinned", "use skl2onnx, or a LogTargetRegressor")
    return scalers, model, target


def assemble(
    model: BaseEstimator, names: tuple[str, ...], confidence: float | None, dtype: str
) -> ModelProto:
    """Return a model file with these outputs and, with a confidence, `lower` and `upper`."""
    scalers, model, target = unwrap_model(model)
    graph, schema = Graph(), read_schema(model)
    infos, matrix = add_inputs(graph, schema, read_feature_names(model), dtype)
    if scalers and {*schema.kinds} != {NUMERIC}:
        refuse("its pipeline has steps before categorical features", "export its last step")
    for scaler in scalers:
        matrix = add_scaler(scaler, matrix)
    needs_std = "std" in names or confidence is not None
    tensors = _add_outputs(model, matrix, confidence, needs_std, target)
    tensors = {name: tensors[name] for name in (*names, "lower", "upper") if name in tensors}
    if clash := {info.name for info in infos} & set(tensors):
        refuse(f"the table has a column {min(clash)!r}, as an output", "rename the column")
    is_1d = model.has_single_target
    for name, tensor in tensors.items():
        output = tensor.reshape(-1) if is_1d else tensor
        graph.nodes.append(helper.make_node("Identity", [output.name], [name]))
    shape = [BATCH] if is_1d else [BATCH, None]
    outputs = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name in tensors]
    proto = helper.make_model(
        helper.make_graph(graph.nodes, "twinned", infos, outputs, list(graph.constants.values())),
        producer_name="twinned",
        producer_version=__version__,
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(ML_DOMAIN, _ML_OPSET)],
    )
    helper.set_model_props(proto, {"model": type(model).__name__})
    if proto.ByteSize() < _MAX_CHECKED_BYTES:
        checker.check_model(proto)
    return proto


def _add_outputs(
    model: Model, matrix: Tensor, confidence: float | None, needs_std: bool, target: TargetTransform
) -> dict[str, Tensor]:
    """Outputs of a model for encoded rows: mean, std and, with a confidence, lower and upper."""
    if isinstance(model, BaseTwin) and model.targets_:
        of_targets = [
            _add_outputs(one_target, matrix, confidence, needs_std, target)
            for one_target in model.targets_
        ]
        return {
            name: concatenate([outputs[name] for outputs in of_targets]) for name in of_targets[0]
        }
    exported = read_model(model)
    stored = exported.calibration if isinstance(exported, ExportedTwin) else None
    if confidence is not None and stored is None:
        reason = f"{type(model).__name__} stores no calibration for prediction intervals"
        refuse(reason, "use twinned.cross_conformal(twin, X, y).store_in(), or confidence=None")
    mean, std, exponential = _add_prediction(exported, matrix, needs_std, target.is_log)
    ends: dict[str, Tensor] = {}
    if stored is not None and needs_std:
        scale = _add_error_scale(stored, matrix, mean, std)
        if (y_std := stored.scale.y_std) is not None:
            model_scale = scale * stored.scale.factor
            scale = (model_scale * model_scale + y_std**2).apply("Sqrt")
        std = scale * np.sqrt(np.mean(stored.scores**2))
        if confidence is not None:
            low, high = stored.ends(confidence)
            ends = {"lower": mean + scale * low, "upper": mean + scale * high}
    if not target.is_log:
        return {"mean": mean, "std": std, **ends}
    assert exponential is not None, "a twin has anchors"
    ends = {name: end.apply("Exp") for name, end in ends.items()}
    # the standard deviation by the delta method
    return {"mean": exponential, "std": exponential * std, **ends}


def read_model(model: Model) -> ExportedTwin | ExportedNetworks:
    """What a model of twinned is predicted from."""
    if isinstance(model, BaseTwin):
        return ExportedTwin.read(model)
    return ExportedNetworks(model.plain_networks(), read_schema(model))


def _add_prediction(
    model: ExportedTwin | ExportedNetworks,
    matrix: Tensor,
    needs_std: bool = True,
    is_log: bool = False,
) -> Moments:
    """The prediction (row, output) of encoded rows.

    With `is_log`, also the mean of the exponentials of the estimates from anchors.
    """
    if isinstance(model, ExportedNetworks):
        return add_networks(model.networks, model.schema, matrix)
    if isinstance(model.model, BlendModel):
        return _add_blend(model, model.model, matrix, needs_std, is_log)
    return add_twin(model, matrix, is_log)


def _add_blend(
    twin: ExportedTwin, blend: BlendModel, matrix: Tensor, needs_std: bool, is_log: bool
) -> Moments:
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
    return add_residuals(twin, matrix, Moments(mean, std), is_log)


def _add_member(member: FittedMember, matrix: Tensor) -> Tensor:
    """(row, 1): the prediction of a member of a blend."""
    features = add_preparation(member.preparation, matrix)
    try:
        if not isinstance(member.estimator, Model):
            return add_regressor(member.estimator, features)
        encoded = encode_matrix(read_schema(member.estimator), features)
        return _add_prediction(read_model(member.estimator), encoded).mean
    except NotExportableError as error:
        raise NotExportableError(f"the member {member.label!r}: {error}") from None


# --- the error scale of stored intervals: nearest known rows, and trees fitted to errors ----------


def _add_error_scale(stored: Calibration, matrix: Tensor, mean: Tensor, std: Tensor) -> Tensor:
    """(row, 1): the error scale of encoded rows with predictions (row, 1)."""
    error_scale = stored.scale
    ones = mean * 0.0 + 1.0
    if error_scale.width == "constant":
        return ones
    std = std + error_scale.floor if error_scale.floor > 0 else ones
    if error_scale.regressor is None:
        return std
    scale_features = [mean, std]
    if stored.neighbors.columns:
        values = matrix.columns(stored.neighbors.columns)
        scale_features = [values, _add_neighbor_features(stored, values, mean), *scale_features]
    if stored.neighbors.codes:
        scale_features = [matrix.columns(stored.neighbors.codes), *scale_features]
    features = concatenate(scale_features).apply("Clip", -MAX_FLOAT32, MAX_FLOAT32)
    size = ones
    if error_scale.regressor_floor > 0:
        size = add_regressor(error_scale.regressor, features) + error_scale.regressor_floor
    of_size, of_std = error_scale.powers
    return size.apply("Pow", of_size) * std.apply("Pow", of_std)


def _add_neighbor_features(stored: Calibration, values: Tensor, mean: Tensor) -> Tensor:
    """(row, feature): distances and target values of the nearest known rows."""
    neighbors, graph = stored.neighbors, values.graph
    k = min(max(N_NEIGHBORS), len(neighbors.y))

    def standardized(values: Tensor) -> Tensor:
        """Features for distances, with missing values replaced by the mean."""
        if (learned := neighbors.learned) is not None:
            return ((values - learned.center) * learned.scale).fill_nan(0.0)
        return ((values - neighbors.scaler.mean_) / neighbors.scaler.scale_).fill_nan(0.0)

    def features_of_row(row: Tensor, mean: Tensor) -> list[Tensor]:
        distances, indices = add_nearest(add_distances(standardized(row), rows), k)
        y = known_y.take(indices).reshape(-1)

        def mean_of(values: Tensor) -> Tensor:
            return values.mean(0, keepdims=True)

        mean_of_five = mean_of(y.columns(range(min(5, k))))
        features = [
            distances.columns([0]),
            distances.columns([min(N_NEIGHBORS[1], k) - 1]),
            *(weighted_moments(y.columns(range(min(n, k))), mean_of).std for n in N_NEIGHBORS),
            (y.columns([0]) - mean).apply("Abs"),
            (mean_of_five - mean).apply("Abs"),
        ]
        return [concatenate(features, axis=0)]

    rows = standardized(graph.matrix(neighbors.values))
    known_y = graph.matrix(neighbors.y[:, None])
    return graph.map_rows(features_of_row, values, mean)[0]
