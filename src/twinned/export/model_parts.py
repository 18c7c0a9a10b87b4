"""Parts of fitted models that C code and ONNX models share: networks, linear models, scalers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import BaseNeural
from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.persistence.schema import LINEAR
from twinned.rows.schema import Floats, TableSchema

Networks = NeuralDifferenceModel | PlainNetworks


def read_schema(model: BaseEstimator) -> TableSchema:
    """The kinds and categories of the features; a regressor of scikit-learn has numbers only."""
    if isinstance(model, BaseTwin | BaseNeural):
        return model.schema_
    return TableSchema.all_numeric(int(model.n_features_in_))


def refuse_batches(model: BaseEstimator) -> None:
    """Raise for a model with batches: an export or a part of it would predict without offsets."""
    models = (model, *model.targets_) if isinstance(model, BaseTwin) else ()
    if any(each.batches_ is not None for each in models):
        raise TypeError("The offsets of batches cannot be exported; use twinned.save, and predict.")


def read_feature_names(model: BaseEstimator, prefix: str = "") -> list[str]:
    """Names of the features of a model, or a prefix and their numbers."""
    numbered = [f"{prefix}{j}" for j in range(read_schema(model).n_features)]
    return [str(name) for name in getattr(model, "feature_names_in_", numbered)]


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
    if kind.__name__ not in LINEAR or not kind.__module__.startswith("sklearn."):
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
