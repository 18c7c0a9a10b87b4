"""Errors of held-out rows, and the calibration of prediction intervals by them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Self

import numpy as np

from twinned._compat import safe_indexing
from twinned.fitted.calibration import (
    EXPONENTS,
    RELATIVE_FLOOR,
    Calibration,
    ErrorScale,
    NeighborFeatures,
    scale_features,
)
from twinned.fitted.quantiles import total_log_density
from twinned.models.measurement_errors import expected_sizes, remaining_std, remaining_variances
from twinned.rows.folds import Folds
from twinned.rows.schema import Floats, Indices

if TYPE_CHECKING:
    from twinned.fitted.twin import FittedTwin

_NORMAL_MAD = 1.4826  # standard deviation of normal errors, in units of their median size
_LEAST_STD = 1e-3  # of the process at the median row: smaller ones are rounding errors


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
        for training, held_out in folds:
            floor = RELATIVE_FLOOR * float(np.mean(std[held_out]))
            near = NeighborFeatures.of(safe_indexing(X, training), y[training], categorical)
            neighbor_features = near.transform(safe_indexing(X, held_out), mean[held_out])
            features.append(scale_features(neighbor_features, mean[held_out], std[held_out], floor))
            floors.append(floor)
        rows = np.concatenate([held_out for _, held_out in folds])
        neighbors, expected = NeighborFeatures.of(X, y, categorical), 0.0
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
        widening = scale.widening(self.process_std)
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
        sizes, unit = np.abs(self.errors), None
        largest_std = None
        if self.y_std is not None:
            sizes = expected_sizes(self.errors, self.y_std, self.expected)
        if self.process_std is not None and width == "learned":
            typical = _NORMAL_MAD * float(np.median(np.abs(self.errors))) / self.amplitude
            unit = max(_LEAST_STD, float(np.median(self.process_std)), typical)
            largest_std = float(self.features[:, -1].max())
        sizes = sizes / ErrorScale(width, floor, process_std=unit).widening(self.process_std)
        scale = ErrorScale.fit(width, floor, self.features[rows], sizes[rows], random_state)
        return replace(scale, process_std=unit, largest_std=largest_std)
