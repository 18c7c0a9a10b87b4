"""Transformed targets: models that are fitted to the logarithm of y, and results in units of y.

Such a model is a `LogTargetRegressor` around a twin. Only this module knows the transformation:
others split a model into its twin and its `TargetTransform`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyRegressor

from twinned.fitted.twin import FittedTwin, Queries
from twinned.rows.schema import Floats
from twinned.rows.training import validate_bounds


class TargetTransform(NamedTuple):
    """The transformation of the target of a fitted twin: its logarithm, or none."""

    is_log: bool = False

    def apply(self, y: Floats) -> Floats:
        """Values of the fitted target."""
        return np.log(y) if self.is_log else y

    def invert(self, values: Floats) -> Floats:
        """Values in units of y; an infinite value is one."""
        if not self.is_log:
            return values
        with np.errstate(over="ignore"):
            return np.exp(values)

    def predict(self, fitted: FittedTwin, queries: Queries) -> Floats:
        """(query, output): the weighted means of the estimates from the anchors in units of y."""
        if not self.is_log:
            return fitted.predict(queries)[0]
        return fitted.predict_mean_of(self.invert, queries)

    def invert_mean(self, predicted: Floats, y: Floats) -> Floats:
        """(row,): out-of-fold predictions in units of y, from those of the fitted target y.

        Those of the logarithm are multiplied by the mean of all rows of known by predicted values,
        Duan's smearing estimate, as `predict` of a twin with out-of-fold errors does.

        >>> log = TargetTransform(is_log=True)
        >>> log.invert_mean(np.log([1.0, 2.0]), np.log([2.0, 1.0]))
        array([1.25, 2.5 ])
        """
        mean = self.invert(predicted)
        return mean * self.invert(y - predicted).mean() if self.is_log else mean

    def invert_std(self, mean: Floats, std: Floats) -> Floats:
        """Standard deviations of predictions in units of y, by the delta method.

        `mean` are the predictions in units of y, and `std` is that of the fitted target.
        """
        return mean * std if self.is_log else std

    def invert_adjustments(self, adjustments: Floats, known_y: Floats, estimates: Floats) -> Floats:
        """(pair, feature) adjustments of y from those of the fitted target.

        They sum to estimate − known value, (pair,) each in units of y: those of the logarithm are
        multiplied by the logarithmic mean of the two.

        >>> log = TargetTransform(is_log=True)
        >>> log.invert_adjustments(np.log([[2.0, 2.0]]), np.array([1.0]), np.array([4.0]))
        array([[1.5, 1.5]])
        """
        if not self.is_log:
            return adjustments
        with np.errstate(invalid="ignore"):
            logarithm = np.log(estimates / known_y)
            close = np.abs(logarithm) < 1e-9
            mean = (estimates - known_y) / np.where(close, 1.0, logarithm)
        return adjustments * np.where(close, known_y, mean)[:, None]

    def wrap(self, twin: BaseEstimator) -> BaseEstimator:
        """A regressor of y, from a twin of the fitted target."""
        return LogTargetRegressor(twin) if self.is_log else twin

    def wrap_fitted(self, twin: BaseEstimator, X: object, y: Floats) -> BaseEstimator:
        """The fitted regressor of y around a twin that is fitted to the target; y is known."""
        if not self.is_log:
            return twin
        wrapper = self.wrap(DummyRegressor()).fit(X, y)
        wrapper.set_params(regressor=clone(twin))
        wrapper.regressor_ = twin
        if hasattr(twin, "feature_names_in_"):
            wrapper.feature_names_in_ = twin.feature_names_in_
        return wrapper


IDENTITY = TargetTransform()
_LOG = TargetTransform(is_log=True)


class LogTargetRegressor(TransformedTargetRegressor):
    """A twin that is fitted to the logarithm of y, which must be positive, and predicts y.

    A prediction is the weighted arithmetic mean of the estimates from the anchors in units of y:
    for equal weights the exponential of the predicted logarithm times the mean of those of the
    out-of-fold errors, Duan's smearing estimate.

    Parameters
    ----------
    regressor : estimator
        The twin.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import LogTargetRegressor, TwinRegressor
    >>> model = LogTargetRegressor(TwinRegressor(Ridge())).fit([[0], [1], [2]], [1.0, 2.0, 4.0])
    >>> model.predict([[3]]).round(1)
    array([7.4])
    """

    def __init__(self, regressor):
        super().__init__(regressor, func=np.log, inverse_func=np.exp)

    def fit(self, X, y, y_lower=None, y_upper=None, **fit_params):
        """Fit the twin to log y; bounds are those of y, and `fit_params` are of the twin."""
        y, bounds = within_bounds(y, y_lower, y_upper)
        return super().fit(X, y, **bounds, **fit_params)

    def predict(self, X, return_std=False):
        """Predict y; with `return_std`, also the standard deviation, by the delta method."""
        return predict_target(self, X, return_std=return_std)

    def predict_interval(self, X, confidence=0.9):
        """(n_queries, 2): ends of prediction intervals of y, as those of the twin."""
        return _LOG.invert(self.regressor_.predict_interval(X, confidence))

    def predict_quantiles(self, X, quantiles=(0.05, 0.5, 0.95)):
        """(n_queries, n_quantiles): quantiles of y, as those of the twin."""
        return _LOG.invert(self.regressor_.predict_quantiles(X, quantiles))

    def predict_cdf(self, X, y):
        """(n_queries,): probability that a measurement is at most y, which is positive."""
        return self.regressor_.predict_cdf(X, np.log(y))

    def log_density(self, X, y):
        """(n_queries,): logarithm of the predictive density at y, which is positive."""
        y = np.asarray(y, dtype=np.float64)
        return self.regressor_.log_density(X, np.log(y)) - np.log(y)


def within_bounds(
    y: Floats, y_lower: ArrayLike | None, y_upper: ArrayLike | None
) -> tuple[Floats, dict[str, Floats]]:
    """(row,) values of y that are known or within their bounds, and the bounds of log y.

    A `TransformedTargetRegressor` transforms y, but not its bounds, and takes no NaN. So the bounds
    are NaN where y is known, and y is a number within the bounds where it is not. A bound may be
    None or NaN, as in `validate_bounds`.

    >>> within_bounds(np.array([2, 3, np.nan, np.nan]), [2, 3, 0, 10], [2, 3, 5, np.inf])[0]
    array([ 2. ,  3. ,  2.5, 20. ])
    """
    if y_lower is None and y_upper is None:
        return y, {}
    bounds = validate_bounds(None, y, y_lower, y_upper, len(y), None)
    logarithms, censored = bounds.logarithm(), bounds.censored
    least = np.maximum(bounds.lower, 0.0)
    within = np.where(np.isposinf(bounds.upper), 2.0 * least, 0.5 * (least + bounds.upper))
    return np.where(censored, within, bounds.lower), {
        name: np.where(censored, bound, np.nan)
        for name, bound in zip(("y_lower", "y_upper"), logarithms, strict=True)
    }


def predict_target(model: BaseEstimator, X: Any, *, return_std: bool = False) -> Any:
    """Predictions in units of y, of a twin or of one with a transformed target."""
    twin, target = split_target(model)
    if not target.is_log:
        return twin.predict(X, return_std=True) if return_std else twin.predict(X)
    mean = twin.fitted_.squeeze(target.predict(twin.fitted_, twin.encode(X)))
    if not return_std:
        return mean
    return mean, target.invert_std(mean, twin.predict(X, return_std=True)[1])


def split_target(model: BaseEstimator) -> tuple[BaseEstimator, TargetTransform]:
    """The model inside a `LogTargetRegressor`, and its transformation; or another model itself.

    A `TransformedTargetRegressor` with log and exp is taken for a `LogTargetRegressor`, though its
    own `predict` is the geometric mean; a ValueError names other transformations.
    """
    if not isinstance(model, TransformedTargetRegressor):
        return model, TargetTransform()
    if (model.transformer, model.func, model.inverse_func) != (None, np.log, np.exp):
        raise ValueError("the target is transformed, but not by the logarithm.")
    return model.regressor_, TargetTransform(is_log=True)
