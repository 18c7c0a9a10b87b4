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

import inspect
from dataclasses import replace
from numbers import Integral
from typing import TypedDict, TypeVar, Unpack, overload

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from twinned._compat import safe_indexing
from twinned.estimators.base import TwinMethods
from twinned.estimators.pipelines import CalibratedRegressor, predict_raw, replace_last_step, unwrap
from twinned.estimators.twin import TwinRegressor
from twinned.fitted.calibration import (
    EXPONENTS,
    Calibration,
    ErrorScale,
    NeighborFeatures,
    scale_features,
    std_floor,
)
from twinned.fitted.held_out import HeldOutErrors, LocalResiduals
from twinned.fitted.target import IDENTITY, TargetTransform
from twinned.fitted.twin import FittedTwin
from twinned.models.resources import one_thread_if_remote
from twinned.rows.folds import Folds, encode_groups, row_folds
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import (
    batch_labels,
    check_choice,
    check_integer,
    check_row_numbers,
    count_rows,
    validate_target,
)

_Twin = TypeVar("_Twin", bound=TwinMethods)


class ConformalOptions(TypedDict, total=False):
    """Options of `conformal`."""

    batch: ArrayLike | None
    width: str


class CrossConformalOptions(ConformalOptions, total=False):
    """Options of `cross_conformal`."""

    groups: ArrayLike | None
    cv: object
    random_state: int | np.random.RandomState | None
    y_std: ArrayLike | None


@overload
def conformal(
    model: _Twin, X_cal: ArrayLike, y_cal: ArrayLike, **options: Unpack[ConformalOptions]
) -> _Twin: ...


@overload
def conformal(
    model: BaseEstimator, X_cal: ArrayLike, y_cal: ArrayLike, **options: Unpack[ConformalOptions]
) -> CalibratedRegressor: ...


def conformal(
    model: BaseEstimator,
    X_cal: ArrayLike,
    y_cal: ArrayLike,
    *,
    batch: ArrayLike | None = None,
    width: str = "std",
) -> BaseEstimator:
    """Calibrate a fitted model on held-out rows.

    Parameters
    ----------
    model : a fitted regressor
        Any twin or neural estimator, a pipeline, or any other regressor; its standard deviation is
        used where its `predict` has `return_std`, as that of a Gaussian process.
    X_cal : table or array of shape (n, n_features)
        Calibration rows. Each end has a resolution of 1 / (n + 1): 90 % needs at least 19 rows, or
        9 with an assumption on the tails, and 100 give a stable result.
    y_cal : array of shape (n,)
        Their target values.
    batch : str or array of shape (n,), default=None
        Their batches, for a twin that was fitted with batches.
    width : {"std", "constant"}, default="std"
        Intervals in proportion to the model's standard deviation, or of constant width.

    Returns
    -------
    fitted model
        A copy of a twin that has prediction intervals; of a pipeline or another regressor a
        `CalibratedRegressor`, which has them.

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
    fitted = _fitted_twin(model)
    errors, mean, std = raw_errors(model, X_cal, y, batch)
    floor = 0.0
    if width == "std":
        floor = std_floor(std, None if fitted is None else fitted.anchors.y)
    scale = ErrorScale(width, floor, exponents=np.array(EXPONENTS[width][0]))
    neighbors = NeighborFeatures(X_cal, y, columns=[])  # without any feature
    features = scale_features(neighbors.values, mean, std, floor)
    return with_calibration(
        model, Calibration.of_scores(errors / scale.predict(features), scale, neighbors)
    )


@overload
def cross_conformal(
    model: _Twin, X: ArrayLike, y: ArrayLike, **options: Unpack[CrossConformalOptions]
) -> _Twin: ...


@overload
def cross_conformal(
    model: BaseEstimator, X: ArrayLike, y: ArrayLike, **options: Unpack[CrossConformalOptions]
) -> CalibratedRegressor: ...


def cross_conformal(
    model: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    batch: ArrayLike | None = None,
    cv: object = 10,
    width: str = "learned",
    random_state: int | np.random.RandomState | None = None,
    y_std: ArrayLike | None = None,
) -> BaseEstimator:
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
        The `fit` of the model gets them where it has this parameter, and a twin stores them.
    batch : array of shape (n,), default=None
        Batch of each row, for a twin; see `TwinRegressor`.
    cv : int or a splitter of scikit-learn, default=10
        Folds. An integer is that many random folds; with few, the models of the folds have far
        fewer training rows than the final model, and intervals are too wide.
    width : {"learned", "std", "constant"}, default="learned"
        Intervals in proportion to a fitted size of errors, and to a power of the model's standard
        deviation where errors are likelier so; to the latter alone; or of constant width.
    random_state : int, RandomState or None, default=None
        Draws the folds where `cv` is an integer, and seeds the regressor of the size of errors.
    y_std : float or array of shape (n,), default=None
        Known standard deviations of the errors of measurement of y, which the `fit` of the model
        must have as a parameter. Intervals are those of a further measurement, with the median of
        these errors; those of a twin may be others, see its `predict_interval`.

    Returns
    -------
    The model of all rows with the calibration, as by `conformal`.

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
    check_choice("width", width, list(EXPONENTS))
    final, errors = fit_with_held_out_errors(
        model, X, y, groups=groups, batch=batch, cv=cv, random_state=random_state, y_std=y_std
    )
    fitted, anchors = _fitted_twin(final), None
    if fitted is not None and len(fitted.anchors) == len(errors.neighbors.y):
        anchors = np.argsort(fitted.anchors.table_rows)
    return with_calibration(final, errors.calibrate(width, random_state, anchors))


def fit_with_held_out_errors(
    model: BaseEstimator,
    X: ArrayLike,
    y: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    batch: ArrayLike | None = None,
    cv: object = 10,
    random_state: int | np.random.RandomState | None = None,
    y_std: ArrayLike | None = None,
) -> tuple[BaseEstimator, HeldOutErrors]:
    """The model fitted to all rows, and the errors of the rows of folds by fits without these.

    The parameters are those of `cross_conformal`.
    """
    values = validate_target(None, y, count_rows(X), multi_output=False)
    codes = None if groups is None else encode_groups(groups, len(values))
    y_std = None if y_std is None else check_row_numbers("y_std", y_std, len(values))
    if batch is not None:
        batch = np.array(batch_labels(batch, len(values)), dtype=object)
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
    fitted = _fitted_twin(final)
    if fitted is not None and codes is not None:
        final = with_fitted(final, replace_groups(fitted, codes))
    return final, cross_errors(models, final, X, values, folds, batch=batch, y_std=y_std)


def cross_errors(
    models: list[BaseEstimator],
    final: BaseEstimator,
    X: ArrayLike,
    y: Floats,
    folds: Folds,
    *,
    batch: ArrayLike | None = None,
    y_std: Floats | None = None,
) -> HeldOutErrors:
    """Errors of the rows of folds by fitted models of the folds, for the intervals of `final`.

    Those of a twin are on the scale of the target that `final` is fitted to, without the offsets
    of batches.
    """
    fitted = _fitted_twin(final)
    target = IDENTITY if fitted is None else fitted.target
    errors, std = np.full((2, len(y)), np.nan)
    for model, (_, rows) in zip(models, folds, strict=True):
        labels = None if batch is None else np.asarray(batch)[rows]
        held_out = raw_errors(model, safe_indexing(X, rows), y[rows], labels, target)
        errors[rows], _, std[rows] = held_out
    if fitted is None:
        return HeldOutErrors.of_folds(X, y, y - errors, std, folds, y_std=y_std)
    twin, transform = unwrap(final)
    queries = twin.encode(transform(X), batch=batch)
    if y_std is not None:
        y_std = y_std / target.slope(y)
    y = target.apply(y)
    if queries.offset is not None:
        y = y - queries.offset
        y[fitted.anchors.table_rows] = fitted.anchors.y  # which are rounded
    mean = y - errors + _local_residuals(models, fitted, errors, folds)
    features = queries.encode().features
    return HeldOutErrors.of_folds(
        queries.matrix, y, mean, std, folds, y_std=y_std, fitted=fitted, encoded=features
    )


def _local_residuals(models, fitted, errors, folds):
    """(row,): what the residuals of other folds add to out-of-fold predictions.

    They are added where the twin of all rows has local weights, which those of folds do not have.
    """
    twins = [twin for twin in map(_fitted_twin, models) if twin is not None]
    is_local = any(twin.local_weights is not None for twin in twins)
    if fitted.local_weights is None or is_local or len(fitted.anchors) < len(errors):
        return 0.0
    # 0 where no fold holds out a row
    local = LocalResiduals(fitted.anchors, np.nan_to_num(errors), folds)
    return local.predict(fitted.local_weights.power)


def fit_clone(
    model: BaseEstimator,
    X: ArrayLike,
    y: Floats,
    rows: Indices,
    groups: Indices | None = None,
    **arguments: ArrayLike | None,
) -> BaseEstimator:
    """A clone of the model, fitted to some rows and, where its `fit` has them, their groups.

    `arguments` are further ones of `fit`, one value for each row, or None.
    """
    prefix, last = "", model
    while isinstance(last, Pipeline):
        step, last = last.steps[-1]
        prefix += f"{step}__"
    names = inspect.signature(last.fit).parameters
    if groups is not None and "groups" in names and np.ptp(groups[rows]):
        arguments["groups"] = groups
    arguments = {name: values for name, values in arguments.items() if values is not None}
    options = {f"{prefix}{name}": np.asarray(values)[rows] for name, values in arguments.items()}
    with one_thread_if_remote():
        copied = clone(model)
        if len(rows) < len(y) and isinstance(copied, TwinRegressor):
            copied.set_params(cv=0)  # without folds of its own
        return copied.fit(safe_indexing(X, rows), y[rows], **options)


# --- models and their calibration -----------------------------------------------------------------


def raw_errors(
    model: BaseEstimator,
    X: ArrayLike,
    y: Floats,
    batch: ArrayLike | None = None,
    target: TargetTransform | None = None,
) -> tuple[Floats, Floats, Floats]:
    """(row,) errors of predictions, as of rows of large batches; predictions; and raw deviations.

    They are on the scale of the target that the model is fitted to, or of another one. Standard
    deviations are 1 where the model has none.
    """
    prediction = predict_raw(model, X, batch)
    queries, fitted_target = prediction.queries, prediction.fitted.target
    if (n_outputs := prediction.moments[0].shape[1]) > 1:
        raise ValueError(f"Intervals need a single output, but the model has {n_outputs}.")
    mean, std = (values[:, 0] for values in prediction.moments)
    widening: Floats | float = 1.0
    if queries.offset_std is not None:
        widening = prediction.fitted.batches.widening(queries.offset_std, queries.error_ratio)
    target = fitted_target if target is None else target
    if target != fitted_target and not (target.is_log and fitted_target.is_log):
        predicted_y = fitted_target.invert(mean)
        mean = target.apply(predicted_y)
        std = std * fitted_target.slope(predicted_y) / target.slope(predicted_y)
    return (target.apply(y) - mean) / widening, mean, std


def _fitted_twin(model: BaseEstimator) -> FittedTwin | None:
    """The state of a twin, or of one at the end of a pipeline; None of another model."""
    twin, _ = unwrap(model)
    return twin.fitted_ if isinstance(twin, TwinMethods) else None


def replace_groups(fitted: FittedTwin, groups: Indices) -> FittedTwin:
    """The state with groups of its anchors, by codes of the rows of the table; uncalibrated."""
    anchors = replace(
        fitted.anchors,
        groups=groups[fitted.anchors.table_rows],
        learned_metric=fitted.anchors.known_metric,
    )
    return replace(fitted, anchors=anchors, calibration=None, applicability=None)


def with_fitted(model: BaseEstimator, fitted: FittedTwin) -> BaseEstimator:
    """A copy of a twin with another state, or of a pipeline that ends with it."""
    twin, _ = unwrap(model)
    return replace_last_step(model, twin.with_fitted(fitted))


def with_calibration(model: BaseEstimator, calibration: Calibration) -> BaseEstimator:
    """A copy of a twin with a calibration; a `CalibratedRegressor` of another model or a pipeline.

    The metric of a twin is learned now, as its applicability needs it.
    """
    fitted = _fitted_twin(model)
    if fitted is None:
        return CalibratedRegressor.around(model, calibration)
    anchors = replace(fitted.anchors, learned_metric=fitted.anchors.metric)
    calibrated = with_fitted(model, replace(fitted, anchors=anchors, calibration=calibration))
    if isinstance(calibrated, Pipeline):
        return CalibratedRegressor.around(calibrated, calibration)
    return calibrated
