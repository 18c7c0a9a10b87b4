"""Conformal prediction intervals and calibrated standard deviations.

The standard deviation σ(x) of a model is raw: it ranks predictions by their uncertainty, but its
scale is unknown. On rows that were not used in the fit, |y − ŷ| / σ are *scores*; an interval is
ŷ ± (a quantile of the scores) · σ.

`conformal` uses the scores of a calibration set: for exchangeable rows the intervals of a twin, or
of constant width, have at least the stated coverage, however accurate the model is (split conformal
prediction, by crepes). `cross_conformal` needs no calibration set: it fits the model without each
fold, whose rows so get scores, and once more to all rows; or the models of the folds predict
together (the CV+ of Barber, Candès, Ramdas and Tibshirani, with normalized scores). It can also
fit σ to the size of the out-of-fold errors (see `twinned.intervals.error_scale`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils.validation import check_is_fitted

from twinned._compat import safe_indexing
from twinned._neighbors import Indices
from twinned._table import Floats
from twinned._validation import check_bool, check_choice, check_integer, count_rows, validate_target
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
from twinned.models.threads import one_thread_if_remote
from twinned.pairing.splits import Folds

_BLOCK = 4_000_000  # queries × scores at once


def conformal(model: Any, X_cal: Any, y_cal: Any, *, width: str = "std") -> Calibrated:
    """Calibrate a fitted model on held-out rows.

    Parameters
    ----------
    model : a fitted regressor
        Any twin or neural estimator, or any other regressor; its standard deviation is used where
        its `predict` has `return_std`, as that of a Gaussian process.
    X_cal : table or array of shape (n, n_features)
        Calibration rows. Coverage has a resolution of 1 / (n + 1): 90 % needs at least 9 rows, and
        100 give a stable result.
    y_cal : array of shape (n,)
        Their target values.
    width : {"std", "constant"}, default="std"
        Intervals in proportion to the model's standard deviation, or of constant width.

    Returns
    -------
    Calibrated
        With `predict`, `predict(X, return_std=True)` and `predict_interval(X, confidence)`.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from twinned import TwinRegressor, conformal
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(90, random_state=0)
    >>> twin = TwinRegressor(RandomForestRegressor(10, random_state=0)).fit(X[:40], y[:40])
    >>> intervals = conformal(twin, X[40:70], y[40:70]).predict_interval(X[70:], confidence=0.9)
    >>> intervals.shape
    (20, 2)
    """
    check_is_fitted(model)
    check_choice("width", width, ["std", "constant"])
    y = validate_target(None, y_cal, count_rows(X_cal), multi_output=False)
    return Calibrated(model, X_cal, y, width)


def cross_conformal(
    model: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 10,
    width: str = "learned",
    method: str = "refit",
    metric: str = "euclidean",
    random_state: Any = 0,
) -> CrossCalibrated:
    """Calibrate a model without a calibration set, by cross-validation.

    Fits are tasks of joblib: `joblib.parallel_config` sets where they run and how many at once.

    Parameters
    ----------
    model : a regressor, fitted or not
        A clone of it is fitted for each fold; see `conformal`.
    X : table or array of shape (n, n_features)
        Training rows.
    y : array of shape (n,)
        Their target values.
    cv : int or a splitter of scikit-learn, default=10
        Folds. An integer is that many random folds; with few, the models of the folds have far
        fewer training rows than the final model, and intervals are too wide. Pass
        `GroupKFold(5).split(X, y, groups)` for rows in groups.
    width : {"learned", "std", "constant"}, default="learned"
        Intervals in proportion to a fitted size of errors and to the model's standard deviation; to
        the latter alone; or of constant width.
    method : {"refit", "plus"}, default="refit"
        Predict by the model fitted to all rows or, as in CV+, by the models of all folds. CV+ with
        constant width has a proven coverage of 2 · confidence − 1 − √(2 / n); it tends to
        over-cover, as the mean of several models has a smaller error than each. Nothing is proven
        of "refit".
    metric : {"euclidean", "learned"}, default="euclidean"
        Metric of the neighbor features of `width="learned"`: Euclidean on standardized features, or
        learned in each fold (see `twinned.models.relevance`).
    random_state : int, RandomState or None, default=0
        Draws the folds where `cv` is an integer, and seeds the regressor of the size of errors.

    Returns
    -------
    CrossCalibrated
        With the methods of `Calibrated`, and `store_in`.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from twinned import TwinRegressor, cross_conformal
    >>> from twinned.datasets import make_wsb
    >>> X, y = make_wsb(80, random_state=0)
    >>> twin = TwinRegressor(RandomForestRegressor(10, random_state=0))
    >>> cross_conformal(twin, X[:60], y[:60], cv=3).predict_interval(X[60:], 0.9).shape
    (20, 2)
    """
    check_choice("width", width, WIDTHS)
    check_choice("method", method, ["refit", "plus"])
    values = validate_target(None, y, count_rows(X), multi_output=False)
    if isinstance(cv, Integral):
        cv = KFold(check_integer("cv", cv, 2), shuffle=True, random_state=random_state)
    folds = list(check_cv(cv).split(X, values))
    held_out = np.concatenate([rows for _, rows in folds])
    if len(folds) < 2 or len(np.unique(held_out)) < len(held_out):
        raise ValueError(f"cv={cv!r} must hold out each row once, in at least two folds.")
    trainings = [(safe_indexing(X, rows), values[rows]) for rows, _ in folds]
    trainings += [(X, values)] if method == "refit" else []
    models = Parallel(prefer="threads")(delayed(_fit_clone)(model, *each) for each in trainings)
    final = models.pop() if method == "refit" else None
    return calibrate_from_folds(
        models, final, X, values, folds, width=width, metric=metric, random_state=random_state
    )


def _fit_clone(model: Any, X: Any, y: Floats) -> Any:
    with one_thread_if_remote():
        return clone(model).fit(X, y)


def calibrate_from_folds(
    models: list[Any],
    final: Any,
    X: Any,
    y: Floats,
    folds: Folds,
    *,
    width: str = "learned",
    metric: str = "euclidean",
    random_state: Any = 0,
    predicted: list[tuple[Floats, Floats]] | None = None,
    final_training: tuple[Any, Floats] | None = None,
) -> CrossCalibrated:
    """`cross_conformal` of models that are fitted already, for example by `fit_many`.

    There is one model for each fold (training rows, held-out rows) of X and y. `final` is the model
    of all rows, or None where the models of the folds predict. `predicted` are mean and standard
    deviation by each model for its held-out rows, where they have been computed already;
    `final_training` are the (X, y) of `final`, where these are more rows.
    """
    fold_models, inputs = [], []
    for i, (model, (training, held_out)) in enumerate(zip(models, folds, strict=True)):
        fold = FoldModel.create(model, safe_indexing(X, training), y[training], metric)
        known = predicted[i] if predicted else None
        fold_models.append(fold)
        inputs.append(fold.predict(safe_indexing(X, held_out), known))
    errors = [np.abs(y[rows] - own.mean) for own, (_, rows) in zip(inputs, folds, strict=True)]
    final_model = None
    if final is not None:
        final_model = FoldModel.create(final, *(final_training or (X, y)), metric)
    # where the final model has more rows, they have another order
    rows = np.concatenate([held_out for _, held_out in folds]) if final_training is None else None
    return CrossCalibrated(fold_models, final_model, inputs, errors, width, random_state, rows)


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
    warn = getattr(model, "_warn_of_shift", None)
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
