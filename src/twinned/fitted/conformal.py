"""Conformal prediction intervals and calibrated standard deviations.

The standard deviation σ(x) of a model is raw: it ranks predictions by their uncertainty, but its
scale is unknown. On rows that were not used in the fit, (y − ŷ) / σ are *scores*; the ends of an
interval are ŷ + (a quantile of the scores) · σ.

`conformal` uses the scores of a calibration set: for exchangeable rows the intervals of a twin, or
of constant width, have the stated coverage on average, however accurate the model is (split
conformal prediction). `cross_conformal` needs no calibration set: it fits the model without each
fold, whose rows so get scores, and once more to all rows. It can also fit σ to the size of the
out-of-fold errors (see `twinned.fitted.calibration`).
"""

from __future__ import annotations

import copy
from dataclasses import replace
from numbers import Integral

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import check_cv
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from twinned._compat import safe_indexing
from twinned.fitted.calibration import (
    EXPONENTS,
    RELATIVE_FLOOR,
    WIDTHS,
    Calibration,
    ErrorScale,
    NeighborFeatures,
    encode_table,
    is_twin,
    predict_with_std,
    scale_features,
    std_floor,
    store_calibration,
)
from twinned.fitted.quantiles import half_widths, total_log_density
from twinned.fitted.twin import LocalErrors
from twinned.models.measurement_errors import expected_sizes, remaining_std, remaining_variances
from twinned.models.resources import one_thread_if_remote
from twinned.rows.folds import encode_groups, row_folds
from twinned.rows.formatting import details, paragraph, preformatted, table, view
from twinned.rows.schema import Floats
from twinned.rows.validation import (
    check_bool,
    check_choice,
    check_integer,
    check_row_numbers,
    count_rows,
    validate_target,
)


def conformal(model, X_cal, y_cal, *, width="std"):
    """Calibrate a fitted model on held-out rows.

    Parameters
    ----------
    model : a fitted regressor
        Any twin or neural estimator, or any other regressor; its standard deviation is used where
        its `predict` has `return_std`, as that of a Gaussian process.
    X_cal : table or array of shape (n, n_features)
        Calibration rows. Each end has a resolution of 1 / (n + 1): 90 % needs at least 19 rows, or
        9 with an assumption on the tails, and 100 give a stable result.
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
    model,
    X,
    y,
    *,
    groups=None,
    batch=None,
    cv=10,
    width="learned",
    metric="euclidean",
    random_state=None,
    y_std=None,
):
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
    groups : array of shape (n,), default=None
        Groups of rows that are held out together, so that intervals hold for rows of new groups.
        The `fit` of the model gets them where it has this parameter, and `store_in` stores them.
    batch : array of shape (n,), default=None
        Batch of each row, for a twin; see `TwinRegressor`.
    cv : int or a splitter of scikit-learn, default=10
        Folds. An integer is that many random folds; with few, the models of the folds have far
        fewer training rows than the final model, and intervals are too wide.
    width : {"learned", "std", "constant"}, default="learned"
        Intervals in proportion to a fitted size of errors, and to a power of the model's standard
        deviation where errors are likelier so; to the latter alone; or of constant width.
    metric : {"euclidean", "learned"}, default="euclidean"
        Metric of the neighbor features of `width="learned"`: Euclidean on standardized features, or
        learned in each fold (see `twinned.models.learned_metric`).
    random_state : int, RandomState or None, default=None
        Draws the folds where `cv` is an integer, and seeds the regressor of the size of errors.
    y_std : float or array of shape (n,), default=None
        Known standard deviations of the errors of measurement of y, which the `fit` of the model
        must have as a parameter. Intervals are those of a further measurement, with the median of
        these errors; those of a twin may be others, see its `predict_interval`.

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
    values = validate_target(None, y, count_rows(X), multi_output=False)
    codes = None if groups is None else encode_groups(groups, len(values))
    y_std = None if y_std is None else check_row_numbers("y_std", y_std, len(values))
    if isinstance(cv, Integral):
        cv = row_folds(len(values), check_integer("cv", cv, 2), random_state, codes)
    folds = list(check_cv(cv).split(X, values, groups))
    held_out = np.concatenate([rows for _, rows in folds])
    if len(folds) < 2 or len(np.unique(held_out)) < len(held_out):
        raise ValueError(f"cv={cv!r} must hold out each row once, in at least two folds.")
    *models, final = Parallel(prefer="threads")(
        delayed(fit_clone)(model, X, values, rows, codes, batch=batch, y_std=y_std)
        for rows in [*(training for training, _ in folds), np.arange(len(values))]
    )
    predicted, options = None, {"width": width, "metric": metric, "random_state": random_state}
    if batch is not None:
        X, values, predicted = _without_offsets(models, final, X, values, batch, folds)
    options |= {"predicted": predicted, "groups": codes, "y_std": y_std}
    return CrossCalibrated(models, final, X, values, folds, **options)


def _without_offsets(models, final, X, y, batch, folds):
    """Encoded rows, y and out-of-fold predictions without the offsets of the final model.

    Errors are those of rows of large batches: divided by the factors that widen intervals.
    """
    queries, batch = final.encode(X, batch=batch), np.asarray(batch)
    errors, std = np.full((2, len(y)), np.nan)
    for model, (_, rows) in zip(models, folds, strict=True):
        own, labels = safe_indexing(X, rows), batch[rows]
        mean, std[rows] = model.predict_raw(own, labels)
        offset_std = model.encode(own, batch=labels).offset_std
        errors[rows] = (y[rows] - mean) / model.batches_.widening(offset_std)
    y = y - queries.offset
    y[final.anchor_rows_] = final.anchors_y_  # which are rounded
    return queries.matrix, y, (y - errors, std)


def fit_clone(model, X, y, rows, groups=None, **given):
    """A clone of the model, fitted to some rows and, where its `fit` has them, their groups.

    `given` are further arguments of `fit`, one value for each row, or None.
    """
    options = {name: np.asarray(own)[rows] for name, own in given.items() if own is not None}
    if groups is not None and has_fit_parameter(model, "groups") and np.ptp(groups[rows]):
        options["groups"] = groups[rows]
    with one_thread_if_remote():
        is_fold = len(rows) < len(y) and hasattr(model, "clone_for_folds")
        copied = model.clone_for_folds() if is_fold else clone(model)
        return copied.fit(safe_indexing(X, rows), y[rows], **options)


class _BaseCalibrated:
    """A fitted model, a calibration, and the (row,) scores and error scales of held-out rows."""

    model: BaseEstimator
    scores: Floats
    _scales: Floats
    _calibration: Calibration

    @property
    def width(self) -> str:
        return self._calibration.scale.width

    def predict(self, X, return_std=False):
        """The prediction and, with `return_std`, a calibrated standard deviation.

        That is the error scale times the root mean square of the scores.
        """
        check_bool("return_std", return_std)
        mean, scale = self._predict(X)
        return (mean, self._calibration.std(scale)) if return_std else mean

    def predict_interval(self, X, confidence=0.9):
        """(n, 2): lower and upper ends that cover y with this probability.

        On average with this probability by `conformal`, and about so by `cross_conformal`.
        """
        if is_twin(self.model):  # which knows its training rows
            self.model.warn_of_shift(X)
        mean, scale = self._predict(X)
        return self._calibration.interval(mean, scale, confidence)

    def predict_cdf(self, X, y):
        """(n,): probability that a measurement of each row is at most y, one value or one each."""
        mean, scale = self._predict(X)
        return self._calibration.distribution.cdf((np.asarray(y) - mean) / scale)

    def _predict(self, X):
        """(n,) predictions and error scales."""
        mean, std = predict_with_std(self.model, X)
        return mean, self._calibration.error_scale(encode_table(self.model, X), mean, std)

    def _repr_html_(self) -> str:
        n_rows = f"{len(self.scores):,} held-out rows"
        return view(
            paragraph(f"Prediction intervals calibrated by {n_rows}, width={self.width!r}."),
            table(half_widths(self.scores, self._scales), {"confidence": ".0%"}),
            paragraph("Half widths are those of the held-out rows; typical is the median.", "soft"),
            details("Model", preformatted(repr(self.model))),
        )


class Calibrated(_BaseCalibrated):
    """A fitted model with the scores of calibration rows."""

    def __init__(self, model, X_cal, y_cal, width):
        self.model = model
        mean, std = predict_with_std(model, X_cal)
        scale = ErrorScale(width, std_floor(model, std) if width == "std" else 0.0)
        neighbors = NeighborFeatures(X_cal, y_cal, columns=[])  # without any feature
        self._scales = scale.predict(scale_features(neighbors.values, mean, std, scale.floor))
        self.scores = (y_cal - mean) / self._scales
        self._calibration = Calibration(self.scores, scale, neighbors)


def _predict_held_out(models, final, X, y, folds):
    """(row,) out-of-fold predictions and their standard deviations, NaN of rows in no fold.

    Where `final` is a twin with local weights, which twins of folds do not have, the out-of-fold
    errors of the rows of other folds are added by these weights.
    """
    mean, std = np.full((2, len(y)), np.nan)
    for model, (_, rows) in zip(models, folds, strict=True):
        mean[rows], std[rows] = predict_with_std(model, safe_indexing(X, rows))
    power, *others = [getattr(model, "local_power_", 0.0) for model in (final, *models)]
    if power and not any(others) and len(final.anchors_y_) == len(y):
        errors = np.nan_to_num(y - mean)  # 0 where no fold holds out a row
        mean += LocalErrors(final.fitted_.anchors, errors, folds).predict(power)
    return mean, std


class CrossCalibrated(_BaseCalibrated):
    """A model of all rows, with the scores of all rows by the models of folds.

    Parameters
    ----------
    models : list of fitted models
        One for each fold.
    final : fitted model
        The model of all rows.
    X, y : table or array of shape (n, n_features), array of shape (n,)
        All rows and their target values.
    folds : list of (training rows, held-out rows)
        The folds.
    width, metric, random_state
        As in `cross_conformal`.
    predicted : tuple of mean and std of shape (n,), default=None
        Out-of-fold predictions, where they have been computed already. X is then the matrix of
        encoded features.
    groups : ndarray of shape (n,), default=None
        Codes of groups of rows, which `store_in` stores; None leaves those of the twin.
    y_std : ndarray of shape (n,), default=None
        Known standard deviations of the errors of y.
    """

    def __init__(
        self,
        models,
        final,
        X,
        y,
        folds,
        *,
        width="learned",
        metric="euclidean",
        random_state=None,
        predicted=None,
        groups=None,
        y_std=None,
    ):
        self.model = self.final = final
        self._groups = groups
        self.models, self._random_state, self._floors = models, random_state, []
        self._exponents, self._factor = None, 1.0
        self._rows = np.concatenate([rows for _, rows in folds])
        self._fold = np.repeat(np.arange(len(folds)), [len(rows) for _, rows in folds])
        means, stds = predicted or _predict_held_out(models, final, X, y, folds)
        X = encode_table(final, X) if predicted is None else X
        features, errors = [], []
        for training, held_out in folds:
            known, rows = safe_indexing(X, training), safe_indexing(X, held_out)
            near = NeighborFeatures.of(known, y[training], final, metric)
            mean, std = means[held_out], stds[held_out]
            floor = RELATIVE_FLOOR * float(np.mean(std))
            features.append(scale_features(near.transform(rows, mean), mean, std, floor))
            errors.append(y[held_out] - mean)
            self._floors.append(floor)
        self._features, self._errors = np.concatenate(features), np.concatenate(errors)
        self._neighbors = NeighborFeatures.of(X, y, final, metric)
        self._known = None  # errors of measurement, and the expected size of the remaining part
        if y_std is not None:
            encoded = (
                final.schema_.to_rows(X).features if is_twin(final) else self._neighbors.values
            )
            remaining, _ = remaining_variances(encoded, y, y_std)
            self._known = y_std[self._rows], remaining**0.5
        self.calibrate(width)

    def calibrate(self, width):
        """Fit the error scales and compute the scores; return self."""
        size, std = np.empty_like(self._errors), np.empty_like(self._errors)
        for k, floor in enumerate(self._floors):
            # the size of errors of a fold is fitted to the errors of the other folds
            in_fold = self._fold == k
            scale, features = self._fit_scale(width, ~in_fold, floor), self._features[in_fold]
            size[in_fold], std[in_fold] = scale.size(features), features[:, -1]
        scales = [size**of_size * std**of_std for of_size, of_std in EXPONENTS[width]]
        factors = [1.0] * len(scales)
        if self._known is not None:
            factors = [remaining_std(self._errors, *self._known, each) for each in scales]
            both = zip(factors, scales, strict=True)
            scales = [np.hypot(factor * each, self._known[0]) for factor, each in both]
        likeliest = int(np.argmax([total_log_density(self._errors, each) for each in scales]))
        self._scales, self._exponents = scales[likeliest], np.array(EXPONENTS[width][likeliest])
        self._factor = factors[likeliest]
        self.scores = self._errors / self._scales
        scale = self._fit_scale(width, slice(None))
        self._calibration = Calibration(self.scores, scale, self._neighbors, self._rows)
        return self

    def _fit_scale(self, width, rows, floor=None):
        """The error scale fitted to the errors of some of the held-out rows."""
        floor = float(np.mean(self._floors)) if floor is None else floor
        features, sizes, y_std = self._features[rows], np.abs(self._errors), None
        if self._known is not None:
            sizes = expected_sizes(self._errors, *self._known)
            y_std = float(np.median(self._known[0]))
        scale = ErrorScale.fit(width, floor, features, sizes[rows], self._random_state)
        return replace(scale, exponents=self._exponents, factor=self._factor, y_std=y_std)

    def with_width(self, width: str) -> CrossCalibrated:
        """The same models with another `width`; none is fitted again."""
        check_choice("width", width, WIDTHS)
        return copy.copy(self).calibrate(width)

    def store_in(self, twin=None):
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
        twin = self.model if twin is None else twin
        store_calibration(twin, self._calibration, self._groups)
        return twin

    def out_of_fold(self) -> tuple[Floats, Floats]:
        """(row,): errors and scores, in the order of the calibrated rows."""
        order = np.argsort(self._rows)
        return self._errors[order], self.scores[order]

    def interval_without(self, held_out, model, training, X, confidence):
        """(n,) predictions and (n, 2) intervals by a model of rows without those held out.

        `model` is fitted to the rows `training`; scores and error scale of the intervals are those
        of the same rows.
        """
        included = ~np.isin(self._rows, held_out)
        known_X, known_y = training
        neighbors = NeighborFeatures.of(encode_table(self.model, known_X), known_y, self.model)
        scale = self._fit_scale(self.width, included)
        calibration = Calibration(self.scores[included], scale, neighbors)
        mean, std = predict_with_std(model, X)
        scale = calibration.error_scale(encode_table(self.model, X), mean, std)
        return mean, calibration.interval(mean, scale, confidence)
