"""Pipelines and regressors that are no twins: comparables and calibrated prediction intervals."""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator as SklearnEstimator  # without types
from sklearn.base import clone
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from twinned._compat import BaseEstimator, RegressorMixin
from twinned.estimators.base import TwinMethods
from twinned.estimators.methods import PredictionMethods
from twinned.fitted.calibration import Calibration
from twinned.fitted.prediction import Prediction
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.rows.schema import Floats, Queries, is_table, row_labels
from twinned.rows.validation import count_rows

Transform = Callable[[ArrayLike], ArrayLike]


def unwrap(model: object) -> tuple[Any, Transform]:
    """The last step of a fitted pipeline, and the transformation of the rows for it.

    Another model is returned itself.
    """
    if not isinstance(model, Pipeline):
        return model, lambda X: X
    check_is_fitted(model)
    last, inner = unwrap(model.steps[-1][1])
    steps = model[:-1]
    return last, lambda X: inner(steps.transform(X) if len(steps) else X)


def explain(
    model: object,
    X: ArrayLike,
    n: int = 5,
    *,
    adjustments: bool = False,
    batch: ArrayLike | None = None,
) -> pd.DataFrame:
    """Comparable anchors of each query, also of a twin at the end of a pipeline.

    Parameters
    ----------
    model : fitted twin or Pipeline
        A pipeline must end with a twin.
    X : table or array of shape (n_queries, n_features)
        Rows to explain, as the pipeline expects them.
    n : int, default=5
        Number of anchors per query.
    adjustments : bool, default=False
        Whether to add a column for each feature that the twin gets, that is, after the
        transformations of the pipeline.
    batch : str or array of shape (n_queries,), default=None
        Batch of all rows or of each, for a twin that was fitted with batches.

    Returns
    -------
    DataFrame as that of `TwinRegressor.explain`. `query` has the labels of X.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> from twinned import TwinRegressor, explain
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(40, random_state=0)
    >>> model = make_pipeline(StandardScaler(), TwinRegressor(Ridge())).fit(X[:30], y[:30])
    >>> explain(model, X[30:], n=2).shape  # with a row of all other cases for each query
    (30, 8)
    """
    twin, transform = unwrap(model)
    if not hasattr(twin, "explain"):
        kind = type(twin).__name__
        raise TypeError(f"model must be a twin or a pipeline that ends with one, not a {kind}.")
    rows = transform(X)
    table = twin.explain(rows, n, adjustments=adjustments, batch=batch)
    labels = row_labels(X)
    if labels is not None and not is_table(rows):
        table["query"] = [labels[i] for i in table["query"]]
    return table


def predict_interval(
    model: object,
    X: ArrayLike,
    confidence: float = 0.9,
    *,
    batch: ArrayLike | None = None,
    of: str = "measurement",
    y_std: ArrayLike | None = None,
) -> Floats:
    """Prediction intervals, also of a model at the end of a pipeline.

    Parameters
    ----------
    model : fitted model or Pipeline
        An `AutoTwinRegressor`, a twin that stores its calibration, the result of `conformal` or
        `cross_conformal`, or a pipeline that ends with one of these.
    X : table or array of shape (n_queries, n_features)
        Rows to predict, as the pipeline expects them.
    confidence : float, default=0.9
        Probability with which an interval covers y.
    batch : str or array of shape (n_queries,), default=None
        As in `TwinRegressor.predict_interval`, and so are the next two.
    of : {"measurement", "value"}, default="measurement"
        What the intervals cover.
    y_std : float or array of shape (n_queries,), default=None
        Errors of further measurements.

    Returns
    -------
    intervals : ndarray of shape (n_queries, 2)
        Lower and upper ends.
    """
    last, transform = unwrap(model)
    if not hasattr(last, "predict_interval"):
        raise TypeError(
            f"model has no prediction intervals, but is a {type(last).__name__}; use an "
            "AutoTwinRegressor, or cross_conformal(model, X, y)."
        )
    intervals: Floats = last.predict_interval(
        transform(X), confidence, batch=batch, of=of, y_std=y_std
    )
    return intervals


def replace_last_step(model: object, last: object) -> Any:
    """A copy of a pipeline with another last step, which is fitted; or this in place of a model."""
    if not isinstance(model, Pipeline):
        return last
    other = copy.copy(model)
    name, step = model.steps[-1]
    other.steps = [*model.steps[:-1], (name, replace_last_step(step, last))]
    return other


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
    def around(cls, regressor: SklearnEstimator, calibration: Calibration) -> Self:
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

    def explain(self, X: ArrayLike, n: int = 5, **options: Any) -> pd.DataFrame:
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


def predict_raw(model: object, X: ArrayLike, batch: ArrayLike | None = None) -> Prediction:
    """The prediction of a model without a calibration; a pipeline may end with it."""
    twin, transform = unwrap(model)
    if isinstance(twin, TwinMethods):
        return Prediction(twin.fitted_, twin.encode(transform(X), batch=batch))
    if batch is not None:
        raise ValueError(f"batch needs a twin, not {type(twin).__name__}.")
    return Prediction(FittedRegressor(model), TableQueries(X))
