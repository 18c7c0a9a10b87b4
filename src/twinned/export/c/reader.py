"""Reader of fitted models: their parts, as the C code needs them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import (
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lars,
    Lasso,
    LassoCV,
    LassoLars,
    LinearRegression,
    Ridge,
    RidgeCV,
)
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler

from twinned._compat import unwrap_search
from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import NeuralRegressor
from twinned.estimators.twin import TwinRegressor
from twinned.estimators.twin_neural import TwinNeuralRegressor
from twinned.export.c.columns import ColumnEncoding
from twinned.export.c.networks import Member, NetworkCore
from twinned.export.c.pairs import LinearScore, PairCore, PairScore, TreeScore
from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.models.neural.problem import Scale
from twinned.models.trees.reader import read_trees
from twinned.pairing.anchors import as_anchor_strategy
from twinned.pairing.features import PairColumn
from twinned.pairing.weights import UniformWeights, as_weight_strategy
from twinned.rows.schema import TableSchema

_SCALERS = (RobustScaler, StandardScaler)
_LINEAR = (
    ElasticNet, ElasticNetCV, HuberRegressor, Lars, Lasso, LassoCV, LassoLars, LinearRegression,
    Ridge, RidgeCV,
)  # fmt: skip


def read_core(model: Any) -> PairCore | NetworkCore:
    """The parts of a fitted `TwinRegressor`, `TwinNeuralRegressor` or `NeuralRegressor`.

    Trees that predict y itself (scikit-learn, LightGBM, XGBoost) can be read, too.
    """
    if isinstance(model, TwinRegressor):
        return _read_pair_twin(model)
    if isinstance(model, TwinNeuralRegressor):
        return _read_neural_twin(model)
    if isinstance(model, NeuralRegressor):
        return _read_plain_networks(model)
    return _read_plain_score(model)


def schema_of(model: Any) -> TableSchema:
    """The kinds and categories of the features."""
    if hasattr(model, "_schema"):
        return model._schema
    return TableSchema.all_numeric(int(model.n_features_in_))


def anchor_weights(twin: BaseTwin) -> NDArray[np.float64]:
    """(anchor,) weights that sum to one; raises where they depend on the query."""
    strategy = as_weight_strategy(twin.weights)
    if as_anchor_strategy(twin.anchors).nearest(len(twin.anchors_X_)) is not None:
        raise ValueError(
            f"C export needs the same anchors for all queries, not anchors={twin.anchors!r}; use "
            "n_anchors=32 to replace them by 32 chosen ones."
        )
    weights = np.ones(len(twin.anchors_X_))
    if not isinstance(strategy, UniformWeights):
        raise ValueError(
            f"C export needs the same weights for all queries, not weights={twin.weights!r}; use "
            "n_anchors=32 to replace them by those of 32 chosen anchors."
        )
    if twin.anchor_weights_ is not None:
        weights = weights * twin.anchor_weights_
    return weights / weights.sum()


def _single_output(n_outputs: int) -> None:
    if n_outputs != 1:
        raise ValueError(
            f"C export needs a single output, but y has {n_outputs}; export one model for each."
        )


def _known_values(twin: BaseTwin) -> NDArray[np.float64]:
    """(anchor,) target values of a single output."""
    _single_output(int(np.prod(twin.anchors_y_.shape[1:])))
    return np.ravel(twin.anchors_y_).astype(np.float64)


def _read_score(estimator: Any, unit: float) -> PairScore:
    """The trees or the coefficients of a regressor."""
    estimator = unwrap_search(estimator)
    if (trees := read_trees(estimator)) is not None:
        _single_output(len(trees.offset))
        return TreeScore.of_ensemble(trees, unit)
    steps = [step for _, step in estimator.steps] if type(estimator) is Pipeline else [estimator]
    if type(steps[-1]) in _LINEAR and all(type(step) in _SCALERS for step in steps[:-1]):
        return _read_linear(steps, unit)
    raise TypeError(
        f"C export supports trees, their ensembles and linear models, also after scalers, not "
        f"{type(estimator).__name__}; use to_onnx, or a single twin (twinned fit --model twin)."
    )


def _read_linear(steps: list[Any], unit: float) -> LinearScore:
    """The coefficients of a linear model of the features before its scalers."""
    *scalers, model = steps
    _single_output(int(np.size(model.intercept_)))
    coefficients = np.ravel(model.coef_).astype(np.float64)
    intercept = float(np.ravel(model.intercept_)[0])
    for scaler in reversed(scalers):  # each feature is multiplied by a factor, and shifted
        if scaler.scale_ is not None:
            coefficients = coefficients / scaler.scale_
        if isinstance(scaler, RobustScaler):
            center = scaler.center_ if scaler.with_centering else None
        else:
            center = scaler.mean_ if scaler.with_mean else None
        if center is not None:
            intercept -= float(center @ coefficients)
    return LinearScore((coefficients * unit).astype(np.float32), np.float32(intercept * unit))


def _read_pair_twin(twin: TwinRegressor) -> PairCore:
    model = twin._make_model()
    if callable(model.features.kind):
        raise ValueError("C export does not support a callable pair_features; use a named one.")
    role, column = model.features.layout(twin._anchors)
    return PairCore(
        columns=ColumnEncoding.of_schema(twin._schema),
        role=role,
        source_column=column,
        score=_read_score(model.estimator, model.unit),
        symmetric=model.symmetric,
        anchors=twin.anchors_X_.astype(np.float32),
        anchors_y=_known_values(twin),
        anchor_weights=anchor_weights(twin),
    )


def _read_plain_score(model: Any) -> PairCore:
    """A regressor of y itself: pairs without anything of the second row, and one anchor of 0."""
    if not hasattr(model, "n_features_in_"):
        raise TypeError(
            f"model must be a fitted twin, NeuralRegressor, or regressor of trees, not {model!r}."
        )
    n_features = int(model.n_features_in_)
    columns = ColumnEncoding.of_schema(TableSchema.all_numeric(n_features))
    return PairCore(
        columns=columns,
        role=np.full(n_features, PairColumn.FIRST, dtype=np.int64),
        source_column=np.arange(n_features),
        score=_read_score(model, 1.0),
        symmetric=False,
        anchors=np.zeros((1, n_features), dtype=np.float32),
        anchors_y=np.zeros(1),
        anchor_weights=np.ones(1),
    )


def _read_neural_twin(twin: Any) -> NetworkCore:
    networks = twin._make_model()
    known = networks.scale.transform_y(_known_values(twin)[:, None])[:, 0]
    return _read_networks(
        twin,
        networks,
        twin.anchors_X_.astype(np.float32),
        known.astype(np.float32),
        anchor_weights(twin),
    )


def _read_plain_networks(model: Any) -> NetworkCore:
    networks = model._networks(PlainNetworks)
    _single_output(networks.shape.n_outputs)
    return _read_networks(model, networks, None, np.zeros(1, dtype=np.float32), np.ones(1))


def _read_networks(
    model: Any,
    networks: PlainNetworks | NeuralDifferenceModel,
    anchors: Any,
    anchor_estimates: Any,
    weights: NDArray[np.float64],
) -> NetworkCore:
    columns = _scaled_columns(model._schema, networks.scale, networks.columns)
    used = np.flatnonzero(networks.member_weights)
    return NetworkCore(
        columns=columns,
        members=[Member.read(networks, int(i), len(columns)) for i in used],
        activation=networks.shape.activation,
        center=float(networks.scale.y_mean[0]),
        unit=float(networks.scale.y_spread[0]),
        anchors=anchors,
        anchor_estimates=anchor_estimates,
        anchor_weights=weights,
    )


def _scaled_columns(
    schema: TableSchema, scale: Scale, selected: NDArray[np.intp] | None
) -> ColumnEncoding:
    """The scaled numeric features and the indicators that are inputs of networks."""
    every = ColumnEncoding.of_schema(schema)
    n_indicators = schema.n_encoded - len(schema.numeric)
    mean = np.concatenate([scale.X_mean, np.zeros(n_indicators)])
    spread = np.concatenate([scale.X_spread, np.ones(n_indicators)])
    no_features = np.full((1, schema.n_features), np.nan)
    fill = scale.transform(schema.to_rows(no_features)).features[0]
    used = np.arange(schema.n_encoded) if selected is None else selected
    return ColumnEncoding(
        every.feature[used], every.code[used], mean[used], spread[used], fill[used]
    )
