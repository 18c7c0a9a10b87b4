"""CalibratedRegressor: a pipeline, or a regressor that is no twin, with prediction intervals."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from pandas import DataFrame
from sklearn.base import BaseEstimator as SklearnEstimator  # without types
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from twinned._compat import BaseEstimator, RegressorMixin
from twinned.estimators.methods import PredictionMethods, TwinMethods
from twinned.estimators.pipelines import explain, unwrap
from twinned.fitted.anchors import Queries
from twinned.fitted.calibration import Calibration
from twinned.fitted.prediction import Prediction
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.rows.schema import Floats
from twinned.rows.validation import count_rows


class CalibratedRegressor(PredictionMethods, RegressorMixin, BaseEstimator):
    """A fitted pipeline, or a regressor that is no twin, with calibrated prediction intervals.

    `conformal` and `cross_conformal` return it.

    Parameters
    ----------
    regressor : a regressor
        The model.

    Attributes
    ----------
    regressor_ : a fitted regressor
        The fitted model.
    calibration_ : Calibration
        Scores of held-out rows.
    """

    def __init__(self, regressor: SklearnEstimator) -> None:
        self.regressor = regressor

    @classmethod
    def around(cls, regressor: SklearnEstimator, calibration: Calibration) -> CalibratedRegressor:
        """Around a fitted regressor."""
        model = cls(clone(regressor))
        model.regressor_, model.calibration_ = regressor, calibration
        return model

    def fit(self, X: ArrayLike, y: ArrayLike, **fit_params: Any) -> Self:
        """Fit the regressor and calibrate it by `cross_conformal`."""
        from twinned.estimators.conformal import cross_conformal  # which returns this class

        calibrated = cross_conformal(self.regressor, X, y, **fit_params)
        self.regressor_: SklearnEstimator = calibrated.regressor_
        self.calibration_: Calibration = calibrated.calibration_
        return self

    def explain(self, X: ArrayLike, n: int = 5, **options: Any) -> DataFrame:
        """Comparable anchors of each query, of a pipeline that ends with a twin."""
        check_is_fitted(self)
        return explain(self.regressor_, X, n, **options)

    def predict_distribution(
        self,
        X: ArrayLike,
        *,
        batch: ArrayLike | None = None,
        of: str = "measurement",
        y_std: ArrayLike | None = None,
    ) -> Prediction:
        """The predictive distribution of each row; `batch` is for a pipeline that ends with a twin.

        The arguments are those of `TwinRegressor.predict_interval`.
        """
        check_is_fitted(self)
        prediction = predict_raw(self.regressor_, X, batch)
        if isinstance(prediction.queries, Queries):
            return prediction.fitted.predict(prediction.queries, of=of, y_std=y_std)
        calibration = self.calibration_.with_errors(of, y_std, count_rows(X))
        return replace(prediction, calibration=calibration)


class TableQueries:
    """Rows to predict of a model that is no twin: a table that is not encoded."""

    offset = offset_std = error_ratio = batch = None

    def __init__(self, matrix: ArrayLike) -> None:
        self.matrix = matrix

    def __len__(self) -> int:
        return count_rows(self.matrix)


@dataclass(frozen=True, eq=False)
class FittedRegressor:
    """A fitted regressor that is no twin, as the model of a `Prediction`."""

    regressor: SklearnEstimator
    target: TargetTransform = IDENTITY

    def moments(self, queries: TableQueries, *, return_std: bool = False) -> tuple[Floats, Floats]:
        """(query, output): prediction and raw standard deviation, ones where there is none."""
        last, X = self.regressor, queries.matrix
        while isinstance(last, Pipeline):
            last = last.steps[-1][1]
        if return_std and "return_std" in inspect.signature(last.predict).parameters:
            moments = self.regressor.predict(X, return_std=True)
        else:
            moments = self.regressor.predict(X), np.ones(len(queries))
        mean, std = (np.asarray(part, dtype=float).reshape(len(part), -1) for part in moments)
        return mean, std

    def completions(self, queries: TableQueries, calibration: Calibration) -> list[object]:
        """None: the regressor handles missing values itself."""
        return []

    def squeeze(self, values: Floats) -> Floats:
        return values[:, 0]

    def predict_mean(self, queries: TableQueries) -> Floats:
        return self.moments(queries)[0]


def predict_raw(
    model: SklearnEstimator, X: ArrayLike, batch: ArrayLike | None = None
) -> Prediction:
    """The prediction of a model without a calibration; a pipeline may end with it."""
    twin, transform = unwrap(model)
    if isinstance(twin, TwinMethods):
        return Prediction(twin.fitted_, twin.encode(transform(X), batch=batch))
    if batch is not None:
        raise ValueError(f"batch needs a twin, not {type(twin).__name__}.")
    return Prediction(FittedRegressor(model), TableQueries(X))
