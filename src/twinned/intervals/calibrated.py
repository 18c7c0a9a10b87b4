"""Models with calibrated standard deviations and prediction intervals: results of `conformal`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from twinned.intervals.error_scale import (
    RELATIVE_FLOOR,
    WIDTHS,
    ErrorScale,
    NeighborFeatures,
    ScaleInputs,
    categorical_columns,
    positive_scale,
    predict_with_std,
    scale_features,
    std_floor,
)
from twinned.intervals.half_widths import calibration_view
from twinned.intervals.stored import check_confidence, quantile_rank, store_intervals
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats
from twinned.rows.validation import check_bool, check_choice

_BLOCK = 4_000_000  # queries × scores at once


class FoldModel(NamedTuple):
    """A fitted model and the neighbor features of its training rows."""

    model: Any
    neighbors: NeighborFeatures

    @classmethod
    def create(cls, model: Any, X: Any, y: Floats, metric: str) -> FoldModel:
        return cls(model, NeighborFeatures(X, y, categorical_columns(model), metric))

    def predict(self, X: Any, predicted: tuple[Floats, Floats] | None = None) -> ScaleInputs:
        return predict_with_std(self.model, X, self.neighbors, predicted)


class _BaseCalibrated(ABC):
    """Base class of models with the scores of held-out rows."""

    scores: Floats  # (row,)
    _scales: Floats  # (row,) error scales of the same rows
    width: str

    @abstractmethod
    def _predict(self, X: Any) -> tuple[Floats, Floats]:
        """(n, model) predictions and error scales."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The prediction, of several models their mean; and a calibrated standard deviation.

        That is the error scale times the root mean square of the scores, only with `return_std`.
        """
        check_bool("return_std", return_std)
        means, scales = self._predict(X)
        mean = means.mean(axis=1)
        if not return_std:
            return mean
        return mean, scales.mean(axis=1) * np.sqrt(np.mean(self.scores**2))

    @abstractmethod
    def _describe(self) -> str:
        """The calibrated model, for the view in notebooks."""

    def _repr_html_(self) -> str:
        return calibration_view(self.scores, self._scales, self.width, self._describe())


class Calibrated(_BaseCalibrated):
    """A fitted model with the scores of calibration rows."""

    def __init__(self, model: Any, X_cal: Any, y_cal: Floats, width: str) -> None:
        from crepes import ConformalRegressor

        self.model, self.width = model, width
        inputs = predict_with_std(model, X_cal)
        self._floor = std_floor(model, inputs.std) if width == "std" else 0.0
        scale = positive_scale(inputs.std, self._floor)
        self._scales = scale
        self.scores = np.abs(y_cal - inputs.mean) / scale
        self._regressor = ConformalRegressor().fit(y_cal - inputs.mean, sigmas=scale)

    def _describe(self) -> str:
        return repr(self.model)

    def _predict(self, X: Any) -> tuple[Floats, Floats]:
        inputs = predict_with_std(self.model, X)
        return inputs.mean[:, None], positive_scale(inputs.std, self._floor)[:, None]

    def predict_interval(self, X: Any, confidence: float = 0.9) -> Floats:
        """(n, 2): lower and upper ends that cover y with at least this probability."""
        level = check_confidence(confidence, len(self.scores))
        _warn_of_shift(self.model, X)
        mean, scale = (part[:, 0] for part in self._predict(X))
        # the margin is for rounding, which must not skip a calibration row
        level = max(level - 1e-9, 1.0 / (len(self.scores) + 1))
        intervals: Floats = self._regressor.predict_int(mean, sigmas=scale, confidence=level)
        return intervals


class CrossCalibrated(_BaseCalibrated):
    """Models of folds with the scores of all held-out rows.

    `inputs` and `errors` are the predictions and absolute errors of the held-out rows of each fold,
    and `rows` these rows, where they are those of the final model.
    Predictions come from the final model or, where there is none, from the models of all folds.
    """

    def __init__(
        self,
        folds: list[FoldModel],
        final: FoldModel | None,
        inputs: list[ScaleInputs],
        errors: list[Floats],
        width: str,
        random_state: Any = 0,
        rows: Indices | None = None,
    ) -> None:
        self._rows = rows
        self._folds, self._final, self.width = folds, final, width
        self._inputs, self._errors, self._random_state = inputs, errors, random_state
        self._floors = [RELATIVE_FLOOR * float(np.mean(own.std)) for own in inputs]
        n_folds = len(folds)
        # the error scale of a fold is fitted to the errors of the other folds
        scales = [
            self._fit_scale([i for i in range(n_folds) if i != k], self._floors[k])
            for k in range(n_folds)
        ]
        expected = [scale.predict(own) for scale, own in zip(scales, inputs, strict=True)]
        self._scales = np.concatenate(expected)
        self.scores = np.concatenate(errors) / self._scales
        if final is None:
            self._predictors = list(zip(folds, scales, strict=True))
            self._fold = np.repeat(np.arange(n_folds), [len(own) for own in errors])
        else:
            scale = self._fit_scale(list(range(n_folds)), float(np.mean(self._floors)))
            self._predictors = [(final, scale)]
            self._fold = np.zeros(len(self.scores), dtype=np.intp)

    def _fit_scale(self, folds: list[int], floor: float) -> ErrorScale:
        """The error scale fitted to the out-of-fold errors of these folds."""
        features = [scale_features(self._inputs[i], self._floors[i]) for i in folds]
        errors = [self._errors[i] for i in folds]
        return ErrorScale.fit(
            self.width, floor, np.concatenate(features), np.concatenate(errors), self._random_state
        )

    @property
    def models(self) -> list[Any]:
        """The models of the folds."""
        return [fold.model for fold in self._folds]

    @property
    def final(self) -> Any:
        """The model of all rows, or None."""
        return None if self._final is None else self._final.model

    def with_width(self, width: str) -> CrossCalibrated:
        """The same models with another `width`; none is fitted again."""
        check_choice("width", width, WIDTHS)
        return CrossCalibrated(
            self._folds,
            self._final,
            self._inputs,
            self._errors,
            width,
            self._random_state,
            self._rows,
        )

    def store_in(self, twin: Any = None) -> Any:
        """Store the calibration in the twin of all rows, which then has `predict_interval`.

        It is saved with the twin; the models of the folds are not. Fitting the twin again or adding
        anchors discards it; changing `anchors`, `weights` or `symmetric` makes it invalid.

        Parameters
        ----------
        twin : a fitted twin, default=None
            Another twin of the same rows; None is the one that predicts here.

        Returns
        -------
        The twin.

        Examples
        --------
        >>> from sklearn.ensemble import RandomForestRegressor
        >>> from twinned import TwinRegressor, cross_conformal
        >>> from twinned.datasets import make_wsb
        >>> X, y = make_wsb(60, random_state=0)
        >>> twin = TwinRegressor(RandomForestRegressor(10, random_state=0))
        >>> twin = cross_conformal(twin, X[:40], y[:40], cv=3).store_in()
        >>> twin.predict_interval(X[40:], 0.9).shape
        (20, 2)
        """
        if self._final is None:
            raise ValueError('Only intervals of method="refit" can be stored in a twin.')
        twin = self._final.model if twin is None else twin
        scale, neighbors = self._predictors[0][1], self._final.neighbors
        store_intervals(twin, scale, self.scores, neighbors, self._rows)
        return twin

    def out_of_fold(self) -> tuple[Floats, Floats]:
        """(row,): absolute errors and scores, in the order of the calibrated rows."""
        assert self._rows is not None
        order = np.argsort(self._rows)
        return np.concatenate(self._errors)[order], self.scores[order]

    def half_width_without(
        self, held_out: Indices, model: Any, training: tuple[Any, Floats], X: Any, level: float
    ) -> tuple[Floats, Floats]:
        """(n,) predictions and half widths by a model of rows without those held out.

        `model` is fitted to the rows `training`; scores and error scale of the intervals are those
        of the same rows.
        """
        assert self._rows is not None
        included = ~np.isin(self._rows, held_out)
        features = [scale_features(*own) for own in zip(self._inputs, self._floors, strict=True)]
        scale = ErrorScale.fit(
            self.width,
            float(np.mean(self._floors)),
            np.concatenate(features)[included],
            np.concatenate(self._errors)[included],
            self._random_state,
        )
        scores = np.sort(self.scores[included])
        own = FoldModel.create(model, *training, "euclidean").predict(X)
        return own.mean, scale.predict(own) * scores[-quantile_rank(level, len(scores))]

    def _describe(self) -> str:
        models = f"{len(self._folds)} models of folds: {self.models[0]!r}"
        return models if self._final is None else repr(self.final)

    def _predict(self, X: Any) -> tuple[Floats, Floats]:
        inputs = [fold.predict(X) for fold, _ in self._predictors]
        scales = [
            scale.predict(own) for (_, scale), own in zip(self._predictors, inputs, strict=True)
        ]
        return np.column_stack([own.mean for own in inputs]), np.column_stack(scales)

    def predict_interval(self, X: Any, confidence: float = 0.9) -> Floats:
        """(n, 2): lower and upper ends, which cover y with about this probability."""
        level = check_confidence(confidence, len(self.scores))
        if self._final is not None:
            _warn_of_shift(self._final.model, X)
        means, scales = self._predict(X)
        return cross_intervals(means, scales, self.scores, self._fold, level)


def _warn_of_shift(model: Any, X: Any) -> None:
    """Warn of rows outside of the training rows, where the model is a twin, which knows them."""
    warn = getattr(model, "warn_of_shift", None)
    if warn is not None:
        warn(X)


def cross_intervals(
    means: Floats, scales: Floats, scores: Floats, fold: Indices, confidence: float
) -> Floats:
    """CV+ intervals: quantiles over all rows of the predictions of the models without them.

    `means` and `scales` are (query, model); `scores` and `fold`, the model of each score, are
    (row,). Returns (query, 2).

    >>> means, scales = np.zeros((1, 1)), np.ones((1, 1))
    >>> scores = np.arange(1.0, 20.0)  # 19 of them
    >>> cross_intervals(means, scales, scores, np.zeros(19, dtype=int), 0.9)
    array([[-18.,  18.]])
    """
    n = len(scores)
    rank = quantile_rank(confidence, n)
    out = np.empty((len(means), 2))
    step = max(1, _BLOCK // n)
    for start in range(0, len(means), step):
        rows = slice(start, start + step)
        mean, half_width = means[rows][:, fold], scales[rows][:, fold] * scores
        out[rows, 0] = np.partition(mean - half_width, rank - 1, axis=1)[:, rank - 1]
        out[rows, 1] = np.partition(mean + half_width, n - rank, axis=1)[:, n - rank]
    # where folds disagree and the confidence is low, the quantiles may cross
    return np.sort(out, axis=1)
