"""Parts of fitted models that C code and ONNX models share: networks, linear models, scalers."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from twinned.models.neural.difference_model import NeuralDifferenceModel, PlainNetworks
from twinned.persistence.schema import LINEAR
from twinned.rows.schema import Floats

Networks = NeuralDifferenceModel | PlainNetworks


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
