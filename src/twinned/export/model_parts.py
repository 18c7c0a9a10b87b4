"""What C code and ONNX models read from fitted models, and what neither can export."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

from twinned.estimators.methods import TwinMethods
from twinned.fitted.twin import FittedTwin
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.pairing.anchors import DistanceWeights, GPWeights, UniformWeights
from twinned.persistence.schema import LINEAR
from twinned.rows.schema import Floats


class NotExportableError(TypeError):
    """A model or a part of it cannot be exported."""


def refuse(reason: str, way_out: str) -> NoReturn:
    """Raise an error with the reason and a way out."""
    raise NotExportableError(f"The model cannot be exported: {reason}; {way_out}.")


def refuse_batches(model: TwinMethods) -> None:
    """Raise for a twin with batches: an export or a part of it would predict without offsets."""
    if any(twin.fitted_.batches is not None for twin in model.targets_ or [model]):
        raise NotExportableError("batch: offsets of batches cannot be exported; use twinned.save.")


def read_fitted(twin: TwinMethods) -> FittedTwin:
    """The fitted state of a twin, from which files predict; raise where none can."""
    refuse_batches(twin)
    fitted = twin.fitted_
    model, weights = fitted.model, fitted.weight_strategy
    if isinstance(model, SklearnDifferenceModel) and callable(model.features.kind):
        refuse("pair_features is a Python function", "use one of those with a name")
    if type(weights) not in (UniformWeights, DistanceWeights, GPWeights):
        way_out = "use weights='uniform', 'distance' or GPWeights()"
        refuse(f"weights={weights!r} is a Python function", way_out)
    return fitted


def read_feature_names(model: BaseEstimator, n_features: int) -> list[str]:
    """Names of the features of a model, or x0, x1, … where it was fitted to an array."""
    numbered = [f"x{j}" for j in range(n_features)]
    return [str(name) for name in getattr(model, "feature_names_in_", numbered)]


def anchor_shares(fitted: FittedTwin) -> Floats:
    """(anchor,): the sample weights of the anchors, which sum to one."""
    weights = fitted.anchors.weight
    weights = np.ones(len(fitted.anchors)) if weights is None else weights / weights.max()
    return weights / weights.sum()


def mean_residual(fitted: FittedTwin) -> Floats:
    """(output,): the weighted mean of the residuals of the anchors; zero without residuals."""
    if fitted.residuals is None:
        return np.zeros(fitted.anchors.outputs.shape[1])
    return anchor_shares(fitted) @ fitted.residuals


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
