"""Methods of every fitted twin: predictions, intervals, scores and further anchors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, Self, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike
from pandas import DataFrame
from sklearn.base import clone
from sklearn.metrics import r2_score

from twinned._compat import BaseEstimator, RegressorMixin
from twinned.estimators.explanation_methods import ExplanationMethods, JointMethods
from twinned.fitted.applicability import warn_of_shift
from twinned.fitted.prediction import (
    NO_CALIBRATION,
    Prediction,
    PredictionOptions,
    TargetPredictions,
    target_columns,
)
from twinned.fitted.updating import add_rows
from twinned.pairing.anchors import as_anchor_strategy, as_weight_strategy
from twinned.rows.dask import map_rows, predict_lazily
from twinned.rows.schema import Floats, is_dask, row_labels
from twinned.rows.training import VALIDATED, TrainingRows
from twinned.rows.validation import check_bool, validate_target


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
        *,
        batch: ArrayLike | None = None,
        of: str = "measurement",
        y_std: ArrayLike | None = None,
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
        batch, of, y_std
            As in `predict_interval`.

        Returns
        -------
        values : ndarray of shape (n_queries, n_quantiles) or (n_queries, n_targets, n_quantiles)
        """
        options: PredictionOptions = {"batch": batch, "of": of, "y_std": y_std}
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


class TwinMethods(ExplanationMethods, JointMethods, PredictionMethods, RegressorMixin):
    """Methods of a fitted twin, each of which is a function of its `FittedTwin`."""

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
        if not self.targets_ and self.calibration_ is None:
            raise AttributeError(NO_CALIBRATION)

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        batch: ArrayLike | None = None,
    ) -> float:
        """R² of the prediction; rows whose y is NaN are ignored.

        With several targets, the mean of those of all targets.
        """
        predicted, known = np.asarray(self.predict(X, batch=batch)), np.asarray(y, dtype=np.float64)
        pairs = [(known, predicted)]
        if self.targets_:
            pairs = list(zip(target_columns(y, len(self.targets_)), predicted.T, strict=True))
        scores = []
        for known, predicted in pairs:
            labelled = ~np.isnan(known.reshape(len(known), -1)).any(axis=1)
            if not labelled.any():
                raise ValueError(f"y has no labelled row to score: all {len(known)} are NaN.")
            weight = None if sample_weight is None else np.asarray(sample_weight)[labelled]
            scores.append(r2_score(known[labelled], predicted[labelled], sample_weight=weight))
        return float(np.mean(scores))

    def _warn_of_shift(self, prediction: Any) -> None:
        """Warn where more rows are outside than exchangeable rows would be."""
        first = prediction.predictions[0] if self.targets_ else prediction
        domain = first.fitted.anchors.domain
        warn_of_shift(domain, first.queries, self.feature_labels, stacklevel=4)

    # --- further known rows -------------------------------------------------------------------

    def add_anchors(self, X: ArrayLike, y: ArrayLike, *, batch: ArrayLike | None = None) -> Self:
        """A new fitted model with the same trained model and further anchors.

        The original is unchanged, and the learned metric is the same. The new anchors have weight 1
        where the fit had sample weights, and are groups of one row. Intervals stay calibrated by
        the rows of the fit. A model with batches needs their `batch`, a label for all or for each:
        the deviation of a new batch is estimated from them, and that of a known batch again.
        """
        fitted = self.fitted_
        queries = self.validate_queries(X, learn_categories=True)
        known_y = fitted.anchors.y
        new_y = validate_target(self, y, len(queries), multi_output=known_y.ndim == 2)
        if new_y.shape[1:] != known_y.shape[1:]:
            raise ValueError(f"y has shape {new_y.shape}, but that of the fit {known_y.shape}.")
        fitted.target.check(new_y)
        new_y = fitted.target.apply(new_y)
        return self.with_fitted(add_rows(fitted, queries, new_y, row_labels(X), batch))


class BaseTwin(TwinMethods, BaseEstimator):
    """Base class of regressors that predict from differences to anchors.

    A subclass has the parameters `anchors`, `weights`, `symmetric`, `memory_limit`, `n_jobs` and
    `random_state`. Its `fit` sets `_pair_dtype` and, at its end, the fitted state.
    """

    weights: object
    refit: Callable[..., Self]  # of a fit that can be repeated with some of the rows
    training_rows: Callable[[], TrainingRows]  # of blends, as the next
    out_of_fold: Callable[[], DataFrame]
    target_name_: str  # only of a model that the command line fitted
    batch_name_: str | None  # column of batches, of a fit with a Series or by the command line

    def with_strategies(self, *, anchors: object = None, weights: object = None) -> Self:
        """The same fitted model with other strategies of anchors or weights; None keeps one.

        Nothing is fitted again. Out-of-fold residuals and a calibration belong to the strategies of
        the fit, so the result has none.

        Examples
        --------
        >>> from sklearn.linear_model import Ridge
        >>> from twinned import NearestAnchors, TwinRegressor
        >>> twin = TwinRegressor(Ridge()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> twin.with_strategies(anchors=NearestAnchors(1)).predict_anchors([[0.1]])[0]
        array([[0]])
        """
        chosen = {"anchors": anchors, "weights": weights}
        other = self.with_fitted(self.fitted_)
        vars(other).update({name: value for name, value in chosen.items() if value is not None})
        return other.with_fitted(
            replace(
                other.fitted_,
                anchor_strategy=as_anchor_strategy(other.anchors),
                weight_strategy=as_weight_strategy(other.weights),
                residuals=None,
                local_weights=None,
                calibration=None,
                applicability=None,
            )
        )

    def unfitted_copy(self, **attributes: Any) -> Any:
        """A clone that has the features of this estimator, and these attributes."""
        other = clone(self)
        of_table = {name: vars(self)[name] for name in VALIDATED & vars(self).keys()}
        vars(other).update(of_table | attributes)
        return other

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.targets_) or self._fitted is not None
