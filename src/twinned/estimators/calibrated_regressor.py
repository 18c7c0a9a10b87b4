"""CalibratedRegressor: a pipeline, or a regressor that is no twin, with prediction intervals."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any, Literal, Self, Unpack, overload

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
from twinned.fitted.calibration import Calibration
from twinned.fitted.prediction import Prediction, PredictionOptions
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.rows.schema import Floats
from twinned.rows.validation import check_bool, count_rows


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

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[False] = False, **options: Unpack[PredictionOptions]
    ) -> Floats: ...

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[True], **options: Unpack[PredictionOptions]
    ) -> tuple[Floats, Floats]: ...

    def predict(
        self, X: ArrayLike, return_std: bool = False, **options: Unpack[PredictionOptions]
    ) -> Floats | tuple[Floats, Floats]:
        """The prediction and, with `return_std`, a calibrated standard deviation."""
        if not check_bool("return_std", return_std) and not options:
            return self.regressor_.predict(X)
        prediction = self.predict_distribution(X, **options)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    def explain(self, X: ArrayLike, n: int = 5, **options: Any) -> DataFrame:
        """Comparable anchors of each query, of a pipeline that ends with a twin."""
        check_is_fitted(self)
        return explain(self.regressor_, X, n, **options)

    def predict_interval(
        self, X: ArrayLike, confidence: float = 0.9, **options: Unpack[PredictionOptions]
    ) -> Floats:
        """Prediction intervals, of a model that stores its calibration.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to predict.
        confidence : float, default=0.9
            Probability with which an interval covers y.
        **options
            As of `predict_distribution`.

        Returns
        -------
        intervals : ndarray of shape (n_queries, 2)
            Lower and upper ends.
        """
        return self.predict_distribution(X, **options).interval(confidence)

    def predict_quantiles(
        self,
        X: ArrayLike,
        quantiles: ArrayLike = (0.05, 0.5, 0.95),
        **options: Unpack[PredictionOptions],
    ) -> Floats:
        """(n_queries, n_quantiles): quantiles of the predictive distribution of y."""
        return self.predict_distribution(X, **options).quantiles(quantiles)

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
        twin, transform = unwrap(self.regressor_)
        if isinstance(twin, TwinMethods):
            queries = twin.encode(transform(X), batch=batch)
            return twin.fitted_.predict(queries, of=of, y_std=y_std)
        if batch is not None:
            raise ValueError(f"batch needs a twin, not {type(twin).__name__}.")
        calibration = self.calibration_.with_errors(of, y_std, count_rows(X))
        return Prediction(FittedRegressor(self.regressor_), TableQueries(X), calibration)


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
        """(query, 1): prediction and raw standard deviation."""
        mean, std = predict_with_std(self.regressor, queries.matrix)
        return mean[:, None], std[:, None]

    def completions(self, queries: TableQueries, calibration: Calibration) -> list[object]:
        """None: the regressor handles missing values itself."""
        return []

    def squeeze(self, values: Floats) -> Floats:
        return values[:, 0]

    def predict_mean(self, queries: TableQueries) -> Floats:
        return self.moments(queries)[0]


def predict_with_std(model: SklearnEstimator, X: ArrayLike) -> tuple[Floats, Floats]:
    """(n,) predictions of a single-output model and their standard deviations; ones without."""
    last = model
    while isinstance(last, Pipeline):
        last = last.steps[-1][1]
    if "return_std" in inspect.signature(last.predict).parameters:
        mean, std = (np.asarray(part, dtype=float) for part in model.predict(X, return_std=True))
    else:
        mean = np.asarray(model.predict(X), dtype=float)
        std = np.ones_like(mean)
    if mean.ndim != 1:
        raise ValueError(f"Intervals need a single output, but the model has {mean.shape[1]}.")
    return mean, std
