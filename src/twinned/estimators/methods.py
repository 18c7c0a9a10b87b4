"""Predictions of every fitted twin: the validation of rows, and their predictive distribution."""

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Literal, Self, TypeVar, Unpack, cast, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from twinned.fitted.applicability import warn_of_shift
from twinned.fitted.prediction import (
    NO_CALIBRATION,
    Prediction,
    PredictionOptions,
    TargetPredictions,
    target_columns,
)
from twinned.fitted.twin import FittedTwin
from twinned.models.resources import MemoryBudget
from twinned.rows.dask import map_rows, predict_lazily
from twinned.rows.schema import Floats, Queries, TableSchema, is_dask, is_table
from twinned.rows.validation import check_bool, validate_table

_Method = TypeVar("_Method", bound=Callable[..., Any])


def per_target(method: _Method) -> _Method:
    """Decorator of a method that a model of several targets calls for each of them.

    An argument y is one number, or an array (row, target). Arrays are stacked, with an axis of
    targets after that of rows, and tables are concatenated, with a first column `target`.
    """
    signature = inspect.signature(method)

    @wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if not self.targets_:
            return method(self, *arguments, **options)
        given = dict(signature.bind(self, *arguments, **options).arguments)
        del given["self"]
        is_table(given.get("X"))  # which refuses a Dask collection
        n_targets = len(self.targets_)
        columns = target_columns(given["y"], n_targets) if "y" in given else [None] * n_targets
        results = [
            call(target, **(given if y is None else {**given, "y": y}))
            for target, y in zip(self.targets_, columns, strict=True)
        ]
        return _combine(results, self.target_names_)

    return cast(_Method, call)


def _combine(results, names):
    """The results of all targets as one."""
    first = results[0]
    if isinstance(first, tuple):
        return tuple(_combine(parts, names) for parts in zip(*results, strict=True))
    if not isinstance(first, pd.DataFrame):
        return np.stack(results, axis=1)
    tables = [pd.DataFrame(table) for table in results]
    for table, name in zip(tables, names, strict=True):
        table.insert(0, "target", name)
    return type(first)(pd.concat(tables))


class PredictionMethods:
    """Methods of the predictive distribution, `predict_distribution` of an estimator."""

    predict_distribution: Callable[..., Prediction | TargetPredictions]

    @property
    def n_outputs_(self) -> int | None:
        """The number of outputs, or None where y is one-dimensional."""
        return None

    def _require_calibration(self) -> None:
        """Raise where a model has no calibration."""

    def _warn_of_shift(self, prediction: Any) -> None:
        """Warn where rows are unlike those of the fit."""

    def _joint_level(self, confidence: float) -> float:
        """The confidence of intervals that cover all targets at once with this one."""
        return confidence

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[False] = False, *, batch: ArrayLike | None = None
    ) -> Floats: ...

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[True], *, batch: ArrayLike | None = None
    ) -> tuple[Floats, Floats]: ...

    def predict(
        self, X: ArrayLike, return_std: bool = False, *, batch: ArrayLike | None = None
    ) -> Floats | tuple[Floats, Floats]:
        """Predict by the weighted mean over anchors of predicted difference + known value.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to predict. Of a Dask DataFrame or Array, the result is lazy.
        return_std : bool, default=False
            Whether to return a standard deviation, too. That of a model which stores a calibration,
            as `AutoTwinRegressor` does, is calibrated: the error scale of `predict_interval` times
            the root mean square of the out-of-fold scores. That of others is raw: of the estimates
            of all anchors by all members of the model. `cross_conformal` calibrates it.
        batch : str or array of shape (n_queries,), default=None
            Batch of all rows or of each, for a model that was fitted with batches; that of a Dask
            collection is one of all rows. Rows of a batch without known rows, or without `batch`,
            are predicted with the mean of all offsets.

        Returns
        -------
        y : ndarray of shape (n_queries,) or (n_queries, n_outputs)
        std : ndarray of the same shape, only with `return_std`
        """
        check_bool("return_std", return_std)
        if is_dask(X):
            return predict_lazily(self, X, return_std, self.n_outputs_, batch=batch)
        prediction = self.predict_distribution(X, batch=batch)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    def predict_interval(
        self,
        X: ArrayLike,
        confidence: float = 0.9,
        *,
        batch: ArrayLike | None = None,
        of: str = "measurement",
        y_std: ArrayLike | None = None,
        joint: bool = False,
    ) -> Floats:
        """Prediction intervals, of a model that stores its calibration.

        `twinned.cross_conformal(twin, X, y)` returns such a twin.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to predict. Of a Dask DataFrame or Array, the result is lazy, with the columns
            `low` and `high`.
        confidence : float, default=0.9
            Probability with which an interval covers y.
        batch : str or array of shape (n_queries,), default=None
            As in `predict`. The fewer known rows a batch has, the wider are its intervals.
        of : {"measurement", "value"}, default="measurement"
            Whether intervals cover a further measurement, or the value that is measured. The latter
            needs a fit with `y_std`, and does not include errors of measurement; `y_std` is then
            not used.
        y_std : float or array of shape (n_queries,), default=None
            Standard deviations of the errors of further measurements, after a fit with `y_std`;
            None is the median of those of the fit.
        joint : bool, default=False
            Whether the intervals of several targets cover all of them at once with this
            probability, by conformal prediction on the training rows that have all targets; else
            each covers its own.

        Returns
        -------
        intervals : ndarray of shape (n_queries, 2) or (n_queries, n_targets, 2)
            Lower and upper ends.
        """
        if check_bool("joint", joint):
            confidence = self._joint_level(confidence)
        options: PredictionOptions = {"batch": batch, "of": of, "y_std": y_std}
        if is_dask(X):
            self._require_calibration()
            ends = ["low", "high"]
            return map_rows(self, "predict_interval", X, ends, confidence=confidence, **options)
        prediction = self.predict_distribution(X, **options)
        intervals = prediction.interval(confidence)
        self._warn_of_shift(prediction)
        return intervals

    def predict_quantiles(
        self,
        X: ArrayLike,
        quantiles: ArrayLike = (0.05, 0.5, 0.95),
        **options: Unpack[PredictionOptions],
    ) -> Floats:
        """Quantiles of the predictive distribution of y, of a model that stores its calibration.

        Those at 0.05 and 0.95 are the ends of the 90 % interval. The distribution is that of the
        out-of-fold errors in units of their expected size; see `ScoreDistribution`.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to predict.
        quantiles : sequence of float, default=(0.05, 0.5, 0.95)
            Probabilities between 0 and 1.
        **options
            `batch`, `of` and `y_std`, as in `predict_interval`.

        Returns
        -------
        values : ndarray of shape (n_queries, n_quantiles) or (n_queries, n_targets, n_quantiles)
        """
        return self.predict_distribution(X, **options).quantiles(quantiles)

    def predict_cdf(
        self, X: ArrayLike, y: ArrayLike, **options: Unpack[PredictionOptions]
    ) -> Floats:
        """(n_queries,): probability that a measurement of each row is at most y.

        `y` is one value, or one for each row.
        """
        return self.predict_distribution(X, **options).cdf(y)

    def log_density(
        self, X: ArrayLike, y: ArrayLike, **options: Unpack[PredictionOptions]
    ) -> Floats:
        """(n_queries,): logarithm of the predictive density at y, one value or one for each row.

        It is finite everywhere, except where a transformed target makes y impossible.
        """
        return self.predict_distribution(X, **options).log_density(y)


class FittedMethods(PredictionMethods):
    """The fitted state of a twin, and its predictive distribution."""

    n_jobs: int | None
    memory_limit: int | str | None
    anchors: object
    random_state: int | np.random.RandomState | None
    _fitted: FittedTwin | None = None  # of an estimator that is no wrapper of another
    _pair_dtype: np.dtype[np.floating]
    # whether it is a blend: its model is bound to its own anchors
    is_blend = False
    targets_: list[Any] = []  # noqa: RUF012 (fitted models of several targets, only of blends)

    @property
    def fitted_(self) -> FittedTwin:
        """The fitted state: a difference model, its anchors, weights and calibration.

        It has the present `n_jobs` and `memory_limit`.
        """
        if self._fitted is None:
            self.require_single_target()
        fitted, budget = self._fitted, MemoryBudget(self.memory_limit, self.n_jobs)
        assert fitted is not None, "the twin is fitted"
        return fitted if fitted.budget == budget else replace(fitted, budget=budget)

    def with_fitted(self, fitted: FittedTwin) -> Self:
        """A copy of the estimator with another fitted state."""
        other = type(self).__new__(type(self))
        other.__dict__.update(vars(self), _fitted=fitted)
        return other

    def validate_queries(
        self, X: ArrayLike, *, learn_categories: bool = False, schema: TableSchema | None = None
    ) -> Queries:
        """Validated rows without batches; with `learn_categories`, new ones are in their schema.

        The schema is that of the anchors, or a given one.
        """
        anchors = (self._fitted or self.fitted_).anchors
        matrix, schema = validate_table(
            self, X, schema or anchors.schema, self._pair_dtype, learn_categories=learn_categories
        )
        return Queries(schema, anchors.scale, matrix)

    def encode(
        self, X: ArrayLike, *, batch: ArrayLike | None = None, fitted: FittedTwin | None = None
    ) -> Queries:
        """Validated rows to predict by the fitted state."""
        fitted, queries = fitted or self.fitted_, self.validate_queries(X)
        if batch is None and fitted.batches is None:
            return queries
        if batch is None:
            fitted.warn_without_batch()
        return fitted.in_batches(queries, batch)

    def predict_distribution(
        self,
        X: ArrayLike,
        *,
        batch: ArrayLike | None = None,
        of: str = "measurement",
        y_std: ArrayLike | None = None,
    ) -> Prediction | TargetPredictions:
        """The predictive distribution of each row.

        `predict`, `predict_interval`, `predict_quantiles`, `predict_cdf`, `log_density` and
        `sample` are methods of it; the arguments are theirs.
        """
        if self.targets_:
            options: PredictionOptions = {"batch": batch, "of": of, "y_std": y_std}
            return TargetPredictions(
                [target.predict_distribution(X, **options) for target in self.targets_]
            )
        fitted = self.fitted_
        return fitted.predict(self.encode(X, batch=batch, fitted=fitted), of=of, y_std=y_std)

    def _require_calibration(self) -> None:
        if not self.targets_ and self.fitted_.calibration is None:
            raise AttributeError(NO_CALIBRATION)

    def _warn_of_shift(self, prediction: Any) -> None:
        """Warn where more rows are outside than exchangeable rows would be."""
        first = prediction.predictions[0] if self.targets_ else prediction
        domain = first.fitted.anchors.domain
        warn_of_shift(domain, first.queries, self.feature_labels, stacklevel=4)

    @property
    def schema_(self) -> TableSchema:
        """Kinds and categories of the features."""
        return self.targets_[0].schema_ if self.targets_ else self.fitted_.schema

    def require_single_target(self) -> None:
        """Raise where the model is not fitted or has several targets."""
        check_is_fitted(self)
        if self.targets_:
            n = len(self.targets_)
            raise ValueError(f"The model has {n} targets; use one of them: model.targets_[0].")

    def feature_labels(self) -> list[str]:
        """Names of the features, or x0, x1, … where the training table had none."""
        names = vars(self).get("feature_names_in_")
        if names is not None:
            return [str(name) for name in names]
        return [f"x{j}" for j in range(self.schema_.n_features)]

    @property
    def n_outputs_(self) -> int | None:
        """The number of outputs, or None where y is one-dimensional."""
        if self.targets_:
            return len(self.targets_)
        y = self.fitted_.anchors.y
        return None if y.ndim == 1 else y.shape[1]

    def _generator(self, random_state: int | np.random.RandomState | None) -> np.random.RandomState:
        return check_random_state(self.random_state if random_state is None else random_state)
