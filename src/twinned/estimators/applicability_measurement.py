"""Measured error and coverage of the classes of applicability, from rows that are held out."""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from twinned.estimators.base import BaseTwin
from twinned.estimators.conformal import cross_errors, replace_groups
from twinned.exceptions import TableWarning
from twinned.fitted.applicability import ClassStatistics
from twinned.fitted.calibration import NeighborFeatures
from twinned.fitted.held_out import HeldOutErrors
from twinned.fitted.quantiles import tails
from twinned.fitted.twin import FittedTwin
from twinned.rows.folds import encode_groups, row_folds
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TrainingRows
from twinned.rows.validation import check_integer, count_rows, validate_target

_EXTREME_SHARE = 0.2  # of the rows, held out at each end


# (row,) each, of held-out rows: classes, errors, and whether their intervals cover y
HeldOut = tuple[Indices, Floats, NDArray[np.bool_]]

_Twin = TypeVar("_Twin", bound=BaseTwin)


def measure_applicability(
    twin: _Twin,
    X: ArrayLike,
    y: ArrayLike,
    *,
    groups: ArrayLike | None = None,
    confidence: float = 0.9,
    cv: int = 5,
    random_state: int | np.random.RandomState | None = None,
) -> _Twin:
    """Measure error and coverage of each class of `applicability`.

    Held out are random folds and, as these hold few rows outside, the lowest and highest fifth of y
    and of the most relevant numeric feature; of rows in groups, whole groups, by their means. A
    clone of the twin is fitted without each of these
    four, and without each random fold; the blend has predictions of random folds already.
    The classes are pooled over all held-out rows, of which a little less than half are extreme.

    Parameters
    ----------
    twin : a fitted twin with a single output
        Its anchors must be all rows of X. It is not changed.
    X : table or array of shape (n, n_features)
        The training rows.
    y : array of shape (n,)
        Their target values.
    groups : array of shape (n,), default=None
        Groups of rows of a twin; a blend has those of its `fit`.
    confidence : float, default=0.9
        Confidence of the intervals whose coverage is measured.
    cv : int, default=5
        Number of random folds.
    random_state : int, RandomState or None, default=None
        Draws the random folds.

    Returns
    -------
    fitted twin
        A copy of the twin, whose attribute `applicability_` is a DataFrame with the index `inside`,
        `edge`, `outside` and the columns `rows`, their number, `error`, the root mean square error,
        and `coverage`. It stores prediction intervals, too.

    Examples
    --------
    >>> from sklearn.ensemble import ExtraTreesRegressor
    >>> from twinned import TwinRegressor, measure_applicability
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(60, random_state=0)
    >>> twin = TwinRegressor(ExtraTreesRegressor(10, random_state=0)).fit(X, y)
    >>> measured = measure_applicability(twin, X, y, cv=3, random_state=0)
    >>> error = measured.applicability_["error"]
    >>> bool(error["outside"] > error["inside"])
    True
    >>> measured.applicability(X[:2]).columns.tolist()
    ['score', 'label', 'error', 'coverage']
    """
    if not isinstance(twin, BaseTwin):
        raise TypeError(f"twin must be a twin or a blend, not {type(twin).__name__}.")
    twin.require_single_target()
    check_integer("cv", cv, 2)
    values = validate_target(None, y, count_rows(X), multi_output=False)
    fitted = twin.fitted_
    if not np.array_equal(fitted.anchors.table_rows, np.arange(len(values))):
        raise ValueError("The anchors of the twin must be all rows of X, in their order.")
    if not np.allclose(fitted.known_y, values, rtol=1e-6):
        raise ValueError("y must have the values of the fit of the twin.")
    if groups is not None:
        if twin.is_blend:
            raise ValueError("A blend has the groups of its fit; give them to fit.")
        fitted = replace_groups(fitted, encode_groups(groups, len(values)))
    with warnings.catch_warnings(action="ignore", category=TableWarning):
        rows = twin.training_rows() if twin.is_blend else fitted.training_rows()
        errors = None
        if not twin.is_blend:
            folds = row_folds(len(rows), cv, random_state, rows.groups)
            models = [twin.refit(rows.take(training), for_fold=True) for training, _ in folds]
            final = twin.with_fitted(fitted)
            errors = cross_errors(
                models, final, X, rows.y, folds, batch=rows.batch, y_std=rows.y_std
            )
            width = "learned" if fitted.calibration is None else fitted.calibration.scale.width
            calibration = errors.calibrate(width, random_state, np.arange(len(rows)))
            fitted = replace(fitted, calibration=calibration)
        measured = [_measure_random_rows(twin, fitted, errors, confidence)]
        for held_out in extreme_rows(twin, fitted):
            model = twin.refit(rows.take(np.setdiff1d(np.arange(len(rows)), held_out))).fitted_
            if errors is not None:
                model = _calibrate_without(model, fitted, rows, errors, held_out, random_state)
            measured.append(_measure(model, rows.take(held_out), confidence))
    classes, sizes, covered = map(np.concatenate, zip(*measured, strict=True))
    statistics = ClassStatistics.of_rows(classes, sizes, covered, confidence)
    return twin.with_fitted(replace(fitted, applicability=statistics))


def extreme_rows(twin: BaseTwin, fitted: FittedTwin) -> Iterator[Indices]:
    """Yield the rows with the lowest and highest y, and values of the most relevant feature.

    Groups are not divided: they are ordered by their means.
    """
    anchors = fitted.anchors
    groups = np.arange(len(anchors)) if anchors.groups is None else anchors.groups
    columns = [fitted.known_y]
    if numeric := fitted.schema.numeric:
        relevant = numeric[int(np.argmax(twin.feature_relevance_[numeric]))]
        columns.append(anchors.matrix[:, relevant])
    n_extreme = max(1, int(_EXTREME_SHARE * len(np.unique(groups))))
    for values in columns:
        means = pd.Series(values).groupby(groups).mean().dropna().sort_values(kind="stable")
        for extreme in (means.index[:n_extreme], means.index[-n_extreme:]):
            yield np.flatnonzero(np.isin(groups, extreme))


def _measure_random_rows(
    twin: BaseTwin, fitted: FittedTwin, errors: HeldOutErrors | None, confidence: float
) -> HeldOut:
    """The rows of random folds, classified each without itself or its group.

    Their errors are given, or those of a blend.
    """
    calibration, domain = fitted.calibration, fitted.anchors.domain
    assert calibration is not None, "the twin is calibrated"
    scores, sizes = np.full((2, len(fitted.anchors)), np.nan)
    scores[np.asarray(calibration.rows)] = calibration.scores
    if errors is not None:
        sizes[errors.rows] = np.abs(errors.errors)
    else:
        table = twin.out_of_fold()
        sizes[table.index] = (table["y"] - table["prediction"]).abs()
    low, high = calibration.distribution.quantile(tails(confidence))
    held_out = np.isfinite(sizes[domain.known_rows])
    rows = domain.known_rows[held_out]
    covered = (low <= scores[rows]) & (scores[rows] <= high)
    return domain.classify_known()[held_out], sizes[rows], covered


def _measure(fitted: FittedTwin, rows: TrainingRows, confidence: float) -> HeldOut:
    """Rows that a calibrated twin is not fitted to."""
    queries = fitted.in_batches(fitted.queries(rows.matrix), rows.batch)
    prediction = fitted.predict(queries)
    low, high = prediction.interval(confidence).T
    classes = fitted.anchors.domain.rate(queries)[1]
    return classes, np.abs(rows.y - prediction.mean), (low <= rows.y) & (rows.y <= high)


def _calibrate_without(
    model: FittedTwin,
    fitted: FittedTwin,
    rows: TrainingRows,
    errors: HeldOutErrors,
    held_out: Indices,
    random_state: int | np.random.RandomState | None,
) -> FittedTwin:
    """A state that is fitted to other rows, calibrated by the errors of these."""
    if rows.groups is not None:
        model = replace_groups(model, rows.groups)
    neighbors = NeighborFeatures.of(model.anchors.matrix, model.anchors.y, model.schema.categorical)
    assert fitted.calibration is not None, "the twin is calibrated"
    calibration = errors.calibrate_without(held_out, fitted.calibration, neighbors, random_state)
    return replace(model, calibration=calibration)
