"""Errors of held-out rows: the calibration of intervals by them, and residuals of the anchors."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from twinned.fitted.anchors import Anchors
from twinned.fitted.calibration import (
    EXPONENTS,
    FITTED_WIDTHS,
    RELATIVE_FLOOR,
    Calibration,
    ErrorScale,
    NeighborFeatures,
    numeric_features,
    scale_features,
)
from twinned.fitted.quantiles import total_log_density
from twinned.fitted.twin import FittedTwin
from twinned.models.measurement_errors import expected_sizes, remaining_std, remaining_variances
from twinned.pairing.anchors import GPWeights, clearly_lowest
from twinned.rows.folds import Folds, complete_predictions
from twinned.rows.neighbors import distance_matrix
from twinned.rows.schema import Floats, Indices

_NORMAL_MAD = 1.4826  # standard deviation of normal errors, in units of their median size
_LEAST_STD = 1e-3  # of the process at the median row: smaller ones are rounding errors
# Powers of local weights that are compared, and the number of rows by which they are.
_POWERS, _MAX_COMPARED = (0.0, 1.0, 2.0, 4.0), 1000


@dataclass(frozen=True, eq=False)
class HeldOutErrors:
    """Errors of the rows of folds, by models that were not fitted to these rows."""

    errors: Floats  # (row,): y minus prediction
    features: Floats  # (row, feature): of the error scale, by the training rows of the fold
    rows: Indices  # (row,): numbers in the table
    fold: Indices  # (row,)
    floors: Floats  # (fold,): constants that are added to standard deviations
    neighbors: NeighborFeatures  # of all rows of the table
    # Known standard deviations of the errors of y (row,), and the expected standard deviation of
    # the remaining part of the errors.
    y_std: Floats | None = None
    expected: float = 0.0
    # (row,): standard deviations of y by the process of the learned metric, by the training rows of
    # the fold; None where intervals are not widened
    process_std: Floats | None = None
    amplitude: float = np.inf  # standard deviation of this process, in units of y

    @classmethod
    def of_folds(
        cls,
        X: object,
        y: Floats,
        mean: Floats,
        std: Floats,
        folds: Folds,
        *,
        y_std: Floats | None = None,
        fitted: FittedTwin | None = None,
        encoded: Floats | None = None,
    ) -> Self:
        """From out-of-fold predictions of a table.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            Of a twin, the matrix of encoded features.
        y, mean, std : ndarrays of shape (n,)
            Known values, out-of-fold predictions and their raw standard deviations.
        folds : list of tuples
            Training rows and held-out rows of each fold.
        y_std : ndarray of shape (n,), default=None
            Known standard deviations of the errors of y.
        fitted : FittedTwin, default=None
            The twin whose intervals are calibrated. They are widened by the standard deviation of
            its `MetricProcess`; where the model errs more than this process, to that only.
        encoded : ndarray of shape (n, n_encoded), default=None
            Encoded features, for a twin. By them, or else by the numeric columns of X, the part of
            errors is estimated that `y_std` does not explain.
        """
        features, floors = [], []
        categorical: list[int] = [] if fitted is None else fitted.schema.categorical
        process_std, amplitude = None, np.inf
        if fitted is not None and encoded is not None:
            process = fitted.anchors.process
            process_std = process.held_out_std(encoded, folds)
            amplitude = process.amplitude(fitted.anchors.y)
        neighbors, expected = NeighborFeatures.of(X, y, categorical), 0.0
        numeric = numeric_features(X, [*neighbors.codes, *neighbors.columns])
        n_codes = len(neighbors.codes)
        for training, held_out in folds:
            floor = RELATIVE_FLOOR * float(np.mean(std[held_out]))
            near = NeighborFeatures(
                numeric[training], y[training], range(n_codes, numeric.shape[1]), range(n_codes)
            )
            neighbor_features = near.transform(numeric[held_out], mean[held_out])
            features.append(scale_features(neighbor_features, mean[held_out], std[held_out], floor))
            floors.append(floor)
        rows = np.concatenate([held_out for _, held_out in folds])
        if y_std is not None:
            known_features = neighbors.values if encoded is None else encoded
            expected = remaining_variances(known_features, y, y_std)[0] ** 0.5
        return cls(
            errors=(y - mean)[rows],
            features=np.concatenate(features),
            rows=rows,
            fold=np.repeat(np.arange(len(folds)), [len(held_out) for _, held_out in folds]),
            floors=np.array(floors),
            neighbors=neighbors,
            y_std=None if y_std is None else y_std[rows],
            expected=expected,
            process_std=None if process_std is None else process_std[rows],
            amplitude=amplitude,
        )

    def error_scales(self, width: str, random_state: object) -> tuple[Floats, ErrorScale]:
        """(row,) error scales, each fitted to the other folds, and that fitted to all rows."""
        size, std = np.empty_like(self.errors), np.empty_like(self.errors)
        for number, floor in enumerate(self.floors):
            in_fold = self.fold == number
            scale = self._fit_scale(width, ~in_fold, floor, random_state)
            size[in_fold] = scale.size(self.features[in_fold])
            std[in_fold] = self.features[in_fold, -1]
        widening = self._widening(width)
        scales = [widening * size**of_size * std**of_std for of_size, of_std in EXPONENTS[width]]
        factors = [1.0] * len(scales)
        if self.y_std is not None:
            factors = [
                remaining_std(self.errors, self.y_std, self.expected, scale) for scale in scales
            ]
            scales = [
                np.hypot(factor * scale, self.y_std)
                for factor, scale in zip(factors, scales, strict=True)
            ]
        likeliest = int(np.argmax([total_log_density(self.errors, scale) for scale in scales]))
        of_all = self._fit_scale(width, slice(None), float(np.mean(self.floors)), random_state)
        y_std = None if self.y_std is None else float(np.median(self.y_std))
        exponents = np.array(EXPONENTS[width][likeliest])
        of_all = replace(of_all, exponents=exponents, factor=factors[likeliest], y_std=y_std)
        return scales[likeliest], of_all

    def calibrate(
        self, width: str, random_state: object = None, anchors: Indices | None = None
    ) -> Calibration:
        """The calibration of a model of all rows; `anchors` (row of the table,) are its anchors."""
        scales, of_all = self.error_scales(width, random_state)
        rows = None if anchors is None else anchors[self.rows]
        return Calibration.of_scores(self.errors / scales, of_all, self.neighbors, rows)

    def calibrate_without(
        self, held_out: Indices, calibration: Calibration, neighbors: NeighborFeatures, seed: object
    ) -> Calibration:
        """A calibration of all rows, without what is known of some of its rows.

        `neighbors` are those of the other rows.
        """
        chosen = ~np.isin(self.rows, held_out)
        width, floor = calibration.scale.width, float(np.mean(self.floors))
        scale = replace(
            self._fit_scale(width, chosen, floor, seed),
            exponents=calibration.scale.exponents,
            factor=calibration.scale.factor,
            y_std=calibration.scale.y_std,
        )
        scores = calibration.scores[~np.isin(np.asarray(calibration.rows), held_out)]
        return Calibration(scores, scale, neighbors)

    def _fit_scale(self, width, rows, floor, random_state):
        """The error scale fitted to the errors of some of the held-out rows."""
        sizes, unit = np.abs(self.errors), self._process_unit(width)
        if self.y_std is not None:
            sizes = expected_sizes(self.errors, self.y_std, self.expected)
        sizes = sizes / self._widening(width)
        scale = ErrorScale.fit(width, floor, self.features[rows], sizes[rows], random_state)
        largest_std = None if unit is None else float(self.features[:, -1].max())
        return replace(scale, process_std=unit, largest_std=largest_std)

    def _process_unit(self, width: str) -> float | None:
        """The standard deviation of the process from which on scales grow; None if they do not."""
        if self.process_std is None or width not in FITTED_WIDTHS:
            return None
        typical = _NORMAL_MAD * float(np.median(np.abs(self.errors))) / self.amplitude
        return max(_LEAST_STD, float(np.median(self.process_std)), typical)

    def _widening(self, width: str) -> Floats | float:
        """(row,): factors by which the scales of rows grow."""
        scale = ErrorScale(width, 0.0, process_std=self._process_unit(width))
        return scale.widening(self.process_std)


@dataclass(frozen=True, eq=False)
class LocalResiduals:
    """Out-of-fold errors of the anchors, and how well those of other anchors predict them.

    Only the training rows of the fold of an anchor are used: errors of the same fold are those of
    the same model, and alike also where the model that is fitted to all rows does not err so.
    """

    anchors: Anchors
    errors: Floats  # (anchor,) or (anchor, output)
    folds: Folds  # of the anchors

    @cached_property
    def scaled(self) -> Floats:
        """(anchor, encoded feature): in length scales of the process of the learned metric."""
        return self.anchors.metric.in_length_scales(self.anchors.features)

    def shares(self, power: float, rows: Indices) -> Floats:
        """(row, anchor) weights of `GPWeights` at these anchors, which sum to one.

        They are 0 for an anchor that no fold holds out.
        """
        noise, weight = self.anchors.metric.noise, self.anchors.weight
        weights = GPWeights(power).weigh(distance_matrix(self.scaled[rows], self.scaled), noise)
        is_used = np.zeros(weights.shape, dtype=bool)
        for training, held_out in self.folds:
            is_used[np.ix_(np.isin(rows, held_out), training)] = True
        weights = weights * is_used * (1.0 if weight is None else weight)
        return weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)

    def predict(self, power: float, rows: Indices | None = None) -> Floats:
        """(row,) or (row, output): weighted means of the errors, at all or these anchors."""
        rows = np.arange(len(self.errors)) if rows is None else rows
        blocks = np.array_split(rows, -(-len(rows) // _MAX_COMPARED))
        return np.concatenate([self.shares(power, block) @ self.errors for block in blocks])

    def best_power(self) -> float:
        """The power of the weights that predict the errors clearly best; 0 for equal ones."""
        weight = self.anchors.weight
        held_out = np.sort(np.concatenate([held_out for _, held_out in self.folds]))
        rows = np.random.RandomState(0).permutation(held_out)[:_MAX_COMPARED]
        remaining = [self.errors[rows] - self.predict(power, rows) for power in _POWERS]
        weight = None if weight is None else weight[rows]
        return _POWERS[clearly_lowest(remaining, self.scaled[rows], weight)]


def with_residuals(fitted: FittedTwin, predicted: Floats, folds: Folds | None = None) -> FittedTwin:
    """The state with the residuals of (anchor, …) out-of-fold predictions, and local weights.

    Predictions are NaN for anchors that no fold holds out; their residual is then the mean, 0.
    Without `folds` of the anchors, the weights are equal and predictions are not changed, as where
    models of folds err differently from the final one. A twin that does not use all anchors equally
    has no residuals.
    """
    if not fitted.uses_all_anchors_equally:
        return fitted
    anchors = fitted.anchors
    errors = anchors.y - complete_predictions(predicted, anchors.y, anchors.weight)
    errors = errors - np.average(errors, axis=0, weights=anchors.weight)
    local_weights = None
    if folds is not None and (power := LocalResiduals(anchors, errors, folds).best_power()):
        local_weights = GPWeights(power)
    residuals = errors.reshape(len(errors), -1)
    return replace(fitted, residuals=residuals, local_weights=local_weights)
