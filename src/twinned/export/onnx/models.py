"""Models of twinned: one prediction for each kind, and the outputs made from it."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.base import BaseTwin
from twinned.export.onnx.error_scale import add_error_scale
from twinned.export.onnx.graph import Graph, Tensor
from twinned.export.onnx.inputs import encode_matrix, split_rows
from twinned.export.onnx.preparation import add_preparation
from twinned.export.onnx.refusal import refusals_of, refuse
from twinned.export.onnx.regressors import add_regressor
from twinned.export.onnx.twins import Prediction, add_twin
from twinned.fitted.calibration import Calibration, stored_calibration


def add_model(
    graph: Graph, model: Any, matrix: Tensor, names: tuple[str, ...], confidence: float | None
) -> dict[str, Tensor]:
    """Add the outputs of a model for encoded rows: (row, output) each.

    `names` are of `mean` and `std`; with a confidence, `lower` and `upper` come after them.
    """
    stored = _stored_intervals(model, confidence)
    is_blend = isinstance(model, AutoTwinRegressor)
    needs_std = "std" in names or confidence is not None
    if is_blend:
        mean, std = _add_blend(graph, model, matrix, with_spread=needs_std)
    elif isinstance(model, BaseTwin):
        mean, std = add_twin(graph, model, matrix)
    else:
        mean, std = _add_networks(graph, model, matrix)
    scale = std
    if stored is not None and needs_std:
        scale = add_error_scale(graph, stored, matrix, mean, std)
        if is_blend:
            std = graph.add("Mul", scale, np.sqrt(np.mean(stored.scores**2)))
    outputs = {name: {"mean": mean, "std": std}[name] for name in names}
    if confidence is not None and stored is not None:
        half_width = graph.add("Mul", scale, stored.quantile(confidence))
        outputs["lower"] = graph.add("Sub", mean, half_width)
        outputs["upper"] = graph.add("Add", mean, half_width)
    return outputs


def _stored_intervals(model: Any, confidence: float | None) -> Calibration | None:
    """The calibration that the outputs need; None where they need none."""
    if confidence is None and not isinstance(model, AutoTwinRegressor):
        return None
    if not hasattr(model, "intervals_"):
        refuse(
            f"{type(model).__name__} stores no calibration, which prediction intervals need",
            "use twinned.cross_conformal(twin, X, y).store_in(), or confidence=None",
        )
    return stored_calibration(model)


def _add_blend(
    graph: Graph, model: AutoTwinRegressor, matrix: Tensor, *, with_spread: bool
) -> Prediction:
    """Weighted mean of the members, and their weighted standard deviation."""
    if model.replicate_correlation_ > 0:
        refuse(
            "the blend moves predictions of known rows towards their values "
            "(replicate_correlation_ > 0)",
            "set model.replicate_correlation_ = 0.0 to predict them as other rows",
        )
    weights, spread_weights = model.member_weights_, np.asarray(model._spread_weights)
    members = model.fitted_members_
    with_spread = with_spread and len(members) > 1
    used = [i for i in range(len(members)) if weights[i] or (with_spread and spread_weights[i])]
    parts = []
    for i in used:
        with refusals_of(f"the member {members[i].label!r}"):
            parts.append(_add_member(graph, members[i], matrix))
    predictions = graph.concatenate(parts)
    mean = graph.add("MatMul", predictions, weights[used][:, None])
    if not with_spread:
        return Prediction(mean, graph.add("Mul", mean, 0.0))
    apart = graph.add("Sub", predictions, mean)
    squares = graph.add("Mul", apart, apart)
    variance = graph.add("MatMul", squares, spread_weights[used][:, None])
    return Prediction(mean, graph.add("Sqrt", variance))


def _add_member(graph: Graph, member: Any, matrix: Tensor) -> Tensor:
    """(row, 1): the prediction of a member of a blend."""
    features = add_preparation(graph, member.preparation, matrix)
    estimator = member.estimator
    if isinstance(estimator, BaseTwin):
        return add_twin(graph, estimator, encode_matrix(graph, estimator._schema, features)).mean
    if hasattr(estimator, "_networks"):
        encoded = encode_matrix(graph, estimator._schema, features)
        return _add_networks(graph, estimator, encoded).mean
    return add_regressor(graph, estimator, features)


def _add_networks(graph: Graph, model: Any, matrix: Tensor) -> Prediction:
    """Weighted mean and standard deviation of plain networks."""
    from twinned.export.onnx.networks import add_features, add_plain_networks, count_features
    from twinned.models.neural.difference_model import PlainNetworks

    networks, n_encoded = model._networks(PlainNetworks), model._schema.n_encoded
    rows = split_rows(graph, model._schema, matrix)
    features = add_features(graph, networks, rows, n_encoded)
    members = add_plain_networks(graph, networks, features, count_features(networks, n_encoded))
    weights = networks.member_weights[:, None, None]
    mean = graph.reduce("ReduceSum", graph.add("Mul", members, weights), 0)
    apart = graph.add("Sub", members, mean)
    squares = graph.add("Mul", graph.add("Mul", apart, apart), weights)
    return Prediction(mean, graph.add("Sqrt", graph.reduce("ReduceSum", squares, 0)))
