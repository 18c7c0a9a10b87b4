"""Prediction: the predictive distribution of y of each query.

The correlation of the errors of two rows is the mean of three. The first is that of the estimates
of anchors and members: each anchor with each member is one function of the features, and rows are
correlated where the functions deviate from their mean alike. The second is that of a Gaussian
process with the learned length scales and noise, given the anchors: rows are correlated that are
near to each other, in units of what matters, and far from the anchors. The third is independence.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypedDict

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr
from sklearn.utils import check_random_state

from twinned.fitted.calibration import Calibration
from twinned.fitted.quantiles import check_confidence, check_levels, check_values, tails
from twinned.fitted.target import IDENTITY
from twinned.rows.schema import Floats
from twinned.rows.validation import check_integer, check_numbers

MAX_ROWS = 5000  # whose correlation matrix is computed
# Root mean square error of held-out rows in units of the spread of the anchors' estimates, roughly:
# it depends on the table and grows with the number of rows.
SPREAD_FACTOR = 2.0
_JITTER = 1e-8  # in units of the amplitude of the process

NO_CALIBRATION = (
    "The model stores no calibration, which prediction intervals and quantiles need; "
    "twinned.cross_conformal(model, X, y) returns a model that does."
)


def error_correlation(deviations: Floats, by_process: Floats) -> Floats:
    """(row, row): correlations of the errors of one measurement of each row.

    From (row, function) deviations of the estimates from their mean, and (row, row) correlations
    of measurements by the process.
    """
    norm = np.linalg.norm(deviations, axis=1, keepdims=True)
    unit = np.divide(deviations, norm, out=np.zeros_like(deviations), where=norm > 0)
    correlation: Floats = (unit @ unit.T + by_process) / 3.0
    np.fill_diagonal(correlation, 1.0)
    return correlation


class JointPrediction(NamedTuple):
    """Normal distribution of y at several rows."""

    mean: Floats  # (row,)
    std: Floats  # (row,)
    correlation: Floats  # (row, row)

    def sample(self, n_samples: int, rng: np.random.RandomState) -> Floats:
        """(sample, row): joint draws.

        >>> joint = JointPrediction(np.zeros(2), np.array([1.0, 2.0]), np.ones((2, 2)))
        >>> first, second = joint.sample(5, np.random.RandomState(0)).T
        >>> bool(np.allclose(second, 2 * first, atol=1e-3))
        True
        """
        jitter = _JITTER * np.eye(len(self.mean))
        factor = np.linalg.cholesky(self.correlation + jitter) * self.std[:, None]
        normal: Floats = rng.standard_normal((n_samples, len(self.mean)))
        return self.mean + normal @ factor.T


def probability_positive(mean: Floats, std: Floats) -> Floats:
    """Probability that a normal variable is positive; where std is 0, one half counts for 0.

    >>> probability_positive(np.array([0.0, 0.0, 2.0]), np.array([1.0, 0.0, 0.0]))
    array([0.5, 0.5, 1. ])
    """
    certain = np.where(mean > 0, np.inf, np.where(mean < 0, -np.inf, 0.0))
    probability: Floats = ndtr(np.divide(mean, std, out=certain, where=std > 0))
    return probability


class PredictionOptions(TypedDict, total=False):
    """Further arguments of `predict_distribution`."""

    batch: ArrayLike | None
    of: str
    y_std: ArrayLike | None


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predictive distribution of y of each query, in units of y.

    On the scale of the fitted target it is a location plus an error scale times a random score,
    whose distribution is that of the out-of-fold scores. A transformed target is transformed
    exactly, and the location contains the deviation of the batch of the query.

    All values are computed when they are first needed. Without a stored calibration, only `mean`,
    `std` and `sample` exist.
    """

    fitted: Any  # a `FittedTwin`, or a `FittedRegressor`, which has no `error_features`
    queries: Any  # `Queries`, or `TableQueries` of another regressor
    calibration: Calibration | None = None  # for the errors of these measurements

    # --- on the scale of the fitted target ------------------------------------------------------

    @cached_property
    def moments(self) -> tuple[Floats, Floats]:
        """(query, output): location, and raw standard deviation of anchors and members."""
        return self.fitted.moments(self.queries, return_std=True)

    @cached_property
    def location(self) -> Floats:
        """(query,) or (query, output): the prediction of the fitted target."""
        if "moments" in vars(self):
            return self.fitted.squeeze(self.moments[0])
        return self.fitted.squeeze(self.fitted.moments(self.queries)[0])

    @property
    def spread(self) -> Floats:
        """(query,) or (query, output): the raw standard deviation."""
        return self.fitted.squeeze(self.moments[1])

    @cached_property
    def model_scale(self) -> Floats:
        """(query,): the error scale without the error of the deviation of the batch."""
        calibration, (mean, std) = self.require_calibration(), self.moments
        offset = 0.0 if self.queries.offset is None else self.queries.offset
        process_std = None
        if calibration.scale.process_std is not None:
            process_std = self.fitted.process_std(self.queries)
        scale = calibration.error_scale(
            self.queries.matrix, mean[:, 0] - offset, std[:, 0], process_std
        )
        known = calibration.scale.y_std
        y_std = np.broadcast_to(0.0 if known is None else known, len(scale))
        remaining = replace(calibration, scale=replace(calibration.scale, y_std=None))
        for rows, completed in self.fitted.completions(self.queries, remaining):
            scales = completed.model_scale.reshape(len(rows), -1)
            spread = completed.location.reshape(scales.shape).std(axis=1) / calibration.std(
                np.ones(1)
            )
            squares = np.mean(scales**2, axis=1) + spread**2
            scale[rows] = np.sqrt(squares + y_std[rows] ** 2)
        ratio = self.queries.error_ratio
        return scale if ratio is None else scale * ratio

    @cached_property
    def scale(self) -> Floats:
        """(query,): the error scale, in units of which scores are."""
        if self.queries.offset_std is None:
            return self.model_scale
        # the error of the deviation is the same for rows with little noise
        least_error = 1e-9 * (self.fitted.batches.within + 1e-290)
        error = np.maximum(self.model_error_std, least_error)
        return self.model_scale * np.hypot(1.0, self.queries.offset_std / error)

    @cached_property
    def model_error_std(self) -> Floats:
        """(query,): standard deviation of the error without that of the deviation of the batch."""
        if self.calibration is not None:
            return self.calibration.std(self.model_scale)
        spread = self.spread
        if spread.ndim > 1:
            raise ValueError(f"Joint samples need a single output, but y has {spread.shape[1]}.")
        return SPREAD_FACTOR * spread

    @property
    def error_std(self) -> Floats:
        """(query,): standard deviation of the error of the prediction of the fitted target."""
        if self.queries.offset_std is None:
            return self.model_error_std
        return np.hypot(self.model_error_std, self.queries.offset_std)

    @cached_property
    def joint(self) -> JointPrediction:
        """The joint normal distribution of the fitted target at the queries.

        Rows of one batch have errors of its deviation in common.
        """
        if len(self.queries) > MAX_ROWS:
            n_rows = len(self.queries)
            raise ValueError(f"X has {n_rows} rows; joint samples have at most {MAX_ROWS}.")
        correlation, std = self.fitted.error_correlation(self.queries), self.error_std
        if (batch := self.queries.batch) is not None:
            share = self.model_error_std / std
            covariance = self.fitted.batches.covariance(self.queries.encoded_features, batch)
            correlation = correlation * np.outer(share, share) + covariance / np.outer(std, std)
        return JointPrediction(self.location, std, correlation)

    def require_calibration(self) -> Calibration:
        """The calibration; raise where there is none."""
        if self.calibration is None:
            raise AttributeError(NO_CALIBRATION)
        return self.calibration

    # --- in units of y --------------------------------------------------------------------------

    @cached_property
    def mean(self) -> Floats:
        """(query,) or (query, output): the prediction, a mean in units of y."""
        if self.fitted.target == IDENTITY:
            return self.location
        return self.fitted.squeeze(self.fitted.predict_mean(self.queries))

    @property
    def std(self) -> Floats:
        """(query,) or (query, output): the standard deviation of the error.

        It is raw without a calibration: that of the estimates of anchors and members. That of a
        transformed target is by the delta method.
        """
        std = self.spread if self.calibration is None else self.calibration.std(self.scale)
        return std if self.fitted.target == IDENTITY else self.fitted.target.slope(self.mean) * std

    def interval(self, confidence: float = 0.9) -> Floats:
        """(query, 2): ends of intervals, beyond which y is equally likely."""
        calibration = self.require_calibration()
        level = check_confidence(confidence, len(calibration.scores))
        return self._of_scores(calibration.distribution.quantile(tails(level)))

    def quantiles(self, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> Floats:
        """(query, quantile): values that y does not exceed with these probabilities."""
        distribution = self.require_calibration().distribution
        return self._of_scores(distribution.quantile(check_levels(quantiles)))

    def cdf(self, y: ArrayLike) -> Floats:
        """(query,): probability that a measurement is at most y, one value or one of each query."""
        distribution = self.require_calibration().distribution
        return distribution.cdf(self._to_scores(check_values(y, len(self.queries))))

    def log_density(self, y: ArrayLike) -> Floats:
        """(query,): logarithm of the density at y, which is −∞ where y is not possible."""
        distribution = self.require_calibration().distribution
        y = check_values(y, len(self.queries))
        density = distribution.log_density(self._to_scores(y)) - np.log(self.scale)
        if self.fitted.target == IDENTITY:
            return density
        slope = self.fitted.target.slope(y)
        return np.where(slope > 0, density - np.log(np.where(slope > 0, slope, 1.0)), -np.inf)

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> Floats:
        """(sample, query): joint draws, which are normal on the scale of the fitted target."""
        check_integer("n_samples", n_samples)
        draws = self.joint.sample(n_samples, check_random_state(random_state))
        return self.fitted.target.invert(draws)

    def _of_scores(self, scores: Floats) -> Floats:
        """(query, score) values of y at these scores (score,), or (query, score)."""
        scale = self.scale[:, None]  # first, as its moments contain the location
        values = self.location[:, None] + scale * scores
        return values if self.fitted.target == IDENTITY else self.fitted.target.invert(values)

    def _to_scores(self, y: Floats) -> Floats:
        scale = self.scale  # first, as its moments contain the location
        return (self.fitted.target.apply(y) - self.location) / scale


@dataclass(frozen=True, eq=False)
class TargetPredictions:
    """The predictive distributions of several targets, with an axis of targets after the rows."""

    predictions: Sequence[Prediction]  # one for each target

    def _stack(self, values_of: Callable[[Prediction], Floats]) -> Floats:
        return np.stack([values_of(prediction) for prediction in self.predictions], axis=1)

    @property
    def mean(self) -> Floats:
        """(query, target)."""
        return self._stack(lambda prediction: prediction.mean)

    @property
    def std(self) -> Floats:
        """(query, target)."""
        return self._stack(lambda prediction: prediction.std)

    def interval(self, confidence: float = 0.9) -> Floats:
        """(query, target, 2): intervals, each of which covers its own target."""
        return self._stack(lambda prediction: prediction.interval(confidence))

    def quantiles(self, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> Floats:
        """(query, target, quantile)."""
        return self._stack(lambda prediction: prediction.quantiles(quantiles))

    def cdf(self, y: ArrayLike) -> Floats:
        """(query, target), of y (query, target) or one number."""
        columns = iter(target_columns(y, len(self.predictions)))
        return self._stack(lambda prediction: prediction.cdf(next(columns)))

    def log_density(self, y: ArrayLike) -> Floats:
        """(query, target), of y (query, target) or one number."""
        columns = iter(target_columns(y, len(self.predictions)))
        return self._stack(lambda prediction: prediction.log_density(next(columns)))

    def sample(
        self, n_samples: int = 1, random_state: int | np.random.RandomState | None = None
    ) -> Floats:
        """(sample, query, target): joint draws of each target, independent between targets."""
        rng = check_random_state(random_state)
        draws = [prediction.sample(n_samples, rng) for prediction in self.predictions]
        return np.stack(draws, axis=2)


def target_columns(y: ArrayLike, n_targets: int) -> list[Any]:
    """One number for each target, or the (row,) values of each."""
    if np.ndim(y) == 0:
        return [y] * n_targets
    values = check_numbers("y", y)
    if values.ndim != 2 or values.shape[1] != n_targets:
        raise ValueError(f"y has the shape {values.shape}, not {(len(values), n_targets)}.")
    return list(values.T)
