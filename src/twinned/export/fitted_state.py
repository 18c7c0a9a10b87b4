"""The fitted state of models: what exports and thinning read, and how they replace parts of it.

This is the only module of `twinned.export` that reads private attributes of estimators.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from twinned.estimators.auto import AutoTwinRegressor
from twinned.estimators.base import BaseTwin
from twinned.estimators.blending.members import FittedMember
from twinned.estimators.blocks import Queries
from twinned.estimators.neural_base import BaseNeural
from twinned.estimators.predictor import TwinPredictor
from twinned.intervals.stored import StoredIntervals
from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.models.protocol import DifferenceModel
from twinned.pairing.anchors import AnchorStrategy
from twinned.pairing.weights import GPWeights, WeightStrategy
from twinned.persistence.schema import KINDS
from twinned.rows.neighbors import Indices, LearnedMetric
from twinned.rows.schema import Floats, Rows, TableSchema

Networks = NeuralDifferenceModel | PlainNetworks
Neural = TypeVar("Neural", bound=BaseNeural)
_LINEAR = {name for name, kind in KINDS.items() if "intercept_" in kind.fields}


@dataclass(frozen=True, eq=False)
class TwinState:
    """What a fitted twin predicts from.

    `anchors` are the anchors as the model sees them, `anchors_X` (anchor, feature) as encoded rows;
    `anchors_y` is (anchor, output), `anchor_weights` (anchor,) or None.
    """

    schema: TableSchema
    model: DifferenceModel
    anchors: Rows
    anchors_X: Floats
    anchors_y: Floats
    anchor_weights: Floats | None
    anchor_strategy: AnchorStrategy
    weight_strategy: WeightStrategy | GPWeights
    learned_metric: Callable[[], LearnedMetric]  # learned when it is first needed
    predictor: TwinPredictor
    to_rows: Callable[[TableSchema, Floats], Rows]

    @property
    def nearest(self) -> tuple[int, str] | None:
        """The number of nearest anchors used for a query and their metric; None for all."""
        return self.anchor_strategy.nearest(len(self.anchors_X))

    def queries(self, matrix: Floats) -> Queries:
        """Encoded rows (row, feature) to predict."""
        return Queries(self.to_rows, self.schema, matrix)

    def predict(self, matrix: Floats) -> Floats:
        """(row, output): predictions of encoded rows."""
        return self.predictor.predict(self.queries(matrix), return_std=False)[0]


def read_twin(twin: BaseTwin) -> TwinState:
    """The fitted state of a twin, with its present parameters."""
    predictor = twin._predictor()
    return TwinState(
        schema=twin._schema,
        model=predictor.model,
        anchors=predictor.anchors,
        anchors_X=twin.anchors_X_,
        anchors_y=predictor.anchors_y,
        anchor_weights=predictor.anchor_weights,
        anchor_strategy=predictor.anchor_strategy,
        weight_strategy=predictor.weight_strategy,
        learned_metric=predictor.learned_metric,
        predictor=predictor,
        to_rows=twin._to_rows,
    )


def read_schema(model: BaseEstimator) -> TableSchema:
    """The kinds and categories of the features; a regressor of scikit-learn has numbers only."""
    if isinstance(model, BaseTwin | BaseNeural):
        return model._schema
    return TableSchema.all_numeric(int(model.n_features_in_))


def read_queries(twin: BaseTwin, X: object) -> Floats:
    """(row, feature): the encoded rows of a table."""
    return twin._validate_queries(X).matrix


def read_networks(model: BaseNeural) -> PlainNetworks:
    """The networks of a `NeuralRegressor`, which predict y itself."""
    return model._networks(PlainNetworks)


def predict_networks(model: BaseNeural, matrix: Floats) -> Floats:
    """(row, output): predictions of encoded rows by a `NeuralRegressor`."""
    networks = read_networks(model)
    rows = networks.scale.transform(model._schema.to_rows(matrix))
    return np.tensordot(networks.member_weights, networks.predict(rows), axes=1)


def has_one_dimensional_target(model: BaseTwin | BaseNeural) -> bool:
    """Whether y was one-dimensional in the fit."""
    return model.anchors_y_.ndim == 1 if isinstance(model, BaseTwin) else model._one_dimensional


def read_intervals(model: BaseEstimator) -> StoredIntervals | None:
    """The calibration that a model stores, or None."""
    return StoredIntervals(model) if hasattr(model, "intervals_") else None


def read_members(blend: AutoTwinRegressor) -> tuple[list[FittedMember], Floats]:
    """The members of a blend, and the (member,) weights of their squared deviations."""
    return blend._members, np.asarray(blend._spread_weights)


def with_anchors(twin: BaseTwin, anchors: Indices, weights: Floats | None) -> BaseTwin:
    """A copy of the twin with some of its anchors, all of which are used for each query."""
    metric = twin._metric()  # learned from more rows than those that remain
    other = copy.copy(twin).set_params(anchors="all", weights="uniform")
    other._learned_metric, other._row_labels = tuple(metric), None
    other._set_anchors(
        twin.anchors_X_[anchors],
        twin.anchors_y_[anchors],
        weights,
        twin._schema,
        twin.anchor_rows_[anchors],
    )
    labels = twin.anchor_labels_
    other.anchor_labels_ = None if labels is None else [labels[i] for i in anchors]
    return other


def with_members(model: Neural, weights: Floats) -> Neural:
    """A copy of the model with the members of positive weight."""
    used = np.flatnonzero(weights)
    other = copy.copy(model)
    other._parameters = {name: value[used] for name, value in model._parameters.items()}
    other._gates = model._gates[used]
    other.member_weights_ = weights[used] / weights[used].sum()
    other.n_members_ = len(used)
    if isinstance(other, BaseTwin):
        for measured in {"intervals_", "applicability_"} & vars(other).keys():
            delattr(other, measured)
        other._set_derived_state(None)
    return other


# --- parts that both C and ONNX read ----------------------------------------------------------


def unpadded_parameters(networks: Networks, n_features: int) -> dict[str, NDArray[np.float32]]:
    """Parameters of networks of so many inputs, leading axis member.

    A member without periodic embedding has weights of zero there.
    """
    parameters = {name: np.asarray(value) for name, value in networks.parameters.items()}
    for name, value in parameters.items():
        if name.startswith(("linear", "frequency")):
            parameters[name] = value[:, :n_features]
        elif name.startswith("periodic"):
            rows = value[:, : 2 * networks.shape.n_frequencies * n_features]
            parameters[name] = rows * np.asarray(networks.gates, np.float32)[:, None, None]
    return parameters


def read_linear(estimator: BaseEstimator) -> tuple[Floats, Floats] | None:
    """Coefficients (output, feature) and intercepts (output,) of a linear model, or None."""
    kind = type(estimator)
    if kind.__name__ not in _LINEAR or not kind.__module__.startswith("sklearn."):
        return None
    coefficients = np.atleast_2d(np.asarray(estimator.coef_, dtype=np.float64))
    return coefficients, np.atleast_1d(np.asarray(estimator.intercept_, dtype=np.float64))


def read_scaler(scaler: BaseEstimator) -> list[tuple[str, Floats]] | None:
    """Operations, named as in ONNX, by which a fitted scaler changes features; None for others."""
    kind = type(scaler)
    if scaler is None or (kind is str and scaler == "passthrough"):
        return []
    if kind is MinMaxScaler and not scaler.clip:
        return [("Mul", scaler.scale_), ("Add", scaler.min_)]
    center = None
    if kind is StandardScaler:
        center = scaler.mean_ if scaler.with_mean else None
    elif kind is RobustScaler:
        center = scaler.center_
    elif kind is not MaxAbsScaler or scaler.get_params().get("clip"):
        return None
    steps = [("Sub", center), ("Div", scaler.scale_)]
    return [(operator, values) for operator, values in steps if values is not None]
