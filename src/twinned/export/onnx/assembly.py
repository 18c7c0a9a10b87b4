"""Assembly of a model file: inputs, the steps before and after the model, outputs, metadata."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from onnx import ModelProto, TensorProto, checker, helper
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from twinned._version import __version__
from twinned.estimators.base import BaseTwin
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor
from twinned.export.onnx.graph import ML_DOMAIN, Graph, Tensor
from twinned.export.onnx.inputs import BATCH, add_inputs, table_columns
from twinned.export.onnx.models import add_model
from twinned.export.onnx.refusal import refuse
from twinned.export.onnx.regressors import add_scaler

_OPSET, _ML_OPSET, _IR_VERSION = 21, 5, 10
_MAX_CHECKED_BYTES = 1_000_000_000


class Parts(NamedTuple):
    """A model of twinned and what surrounds it."""

    scalers: list[Any]  # steps of a pipeline before the model
    model: Any
    has_log_target: bool  # whether the model predicts the logarithm of y


def unwrap(model: Any) -> Parts:
    """Return the model of twinned inside pipelines and transformed targets."""
    check_is_fitted(model)
    scalers: list[Any] = []
    has_log_target = False
    while True:
        if type(model) is Pipeline:
            scalers += [step for _, step in model.steps[:-1]]
            model = model.steps[-1][1]
        elif type(model) is TransformedTargetRegressor:
            if model.transformer is not None or model.inverse_func is not np.exp:
                refuse(
                    "its target is transformed by another function than the logarithm",
                    "use func=np.log and inverse_func=np.exp, or export its regressor_",
                )
            model, has_log_target = model.regressor_, True
        elif isinstance(model, SemiSupervisedTwinRegressor):
            model = model.twin_
        else:
            break
    if not isinstance(model, BaseTwin) and not hasattr(model, "_networks"):
        refuse(
            f"{type(model).__name__} is not a model of twinned",
            "use skl2onnx for a model of scikit-learn",
        )
    return Parts(scalers, model, has_log_target)


def assemble(
    model: Any, names: tuple[str, ...], confidence: float | None, dtype: str
) -> ModelProto:
    """Return a model file with these outputs and, with a confidence, `lower` and `upper`."""
    parts = unwrap(model)
    columns = table_columns(parts.model, dtype)
    graph = Graph()
    infos, matrix = add_inputs(graph, columns, dtype)
    if parts.scalers and any(column.kind != "numeric" for column in columns):
        refuse("its pipeline has steps before categorical features", "export its last step")
    for scaler in parts.scalers:
        matrix = add_scaler(graph, scaler, matrix)
    if parts.has_log_target:
        tensors = add_model(graph, parts.model, matrix, ("mean", "std"), confidence)
        tensors = _add_exponentials(graph, tensors)
    else:
        tensors = add_model(graph, parts.model, matrix, names, confidence)
    tensors = {name: tensors[name] for name in (*names, "lower", "upper") if name in tensors}
    if clash := {info.name for info in infos} & set(tensors):
        refuse(f"the table has a column {min(clash)!r}, as an output", "rename the column")
    y = getattr(parts.model, "anchors_y_", None)
    is_1d = parts.model._one_dimensional if y is None else y.ndim == 1
    for name, tensor in tensors.items():
        _add_output(graph, name, tensor, is_1d=is_1d)
    shape = [BATCH] if is_1d else [BATCH, None]
    proto = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "twinned",
            infos,
            [helper.make_tensor_value_info(name, TensorProto.DOUBLE, shape) for name in tensors],
            list(graph.constants.values()),
        ),
        producer_name="twinned",
        producer_version=__version__,
        ir_version=_IR_VERSION,
        opset_imports=[helper.make_opsetid("", _OPSET), helper.make_opsetid(ML_DOMAIN, _ML_OPSET)],
    )
    helper.set_model_props(proto, {"model": type(parts.model).__name__})
    if proto.ByteSize() < _MAX_CHECKED_BYTES:
        checker.check_model(proto)
    return proto


def _add_exponentials(graph: Graph, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Outputs of y from those of its logarithm; the standard deviation by the delta method."""
    found = {name: graph.add("Exp", tensor) for name, tensor in tensors.items() if name != "std"}
    return {**found, "std": graph.add("Mul", found["mean"], tensors["std"])}


def _add_output(graph: Graph, name: str, tensor: Tensor, *, is_1d: bool) -> None:
    """Name a result (row, output); drop the axis of outputs where y is one-dimensional."""
    if is_1d:
        tensor = graph.reshape(tensor, -1)
    graph.nodes.append(helper.make_node("Identity", [tensor], [name]))
