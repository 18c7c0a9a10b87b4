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

from numbers import Integral
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils.validation import check_is_fitted

from twinned._compat import safe_indexing
from twinned.intervals.calibrated import Calibrated, CrossCalibrated, FoldModel
from twinned.intervals.error_scale import (
    WIDTHS,
)
from twinned.models.resources import one_thread_if_remote
from twinned.pairing.splits import Folds
from twinned.rows.schema import Floats
from twinned.rows.validation import check_choice, check_integer, count_rows, validate_target


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
        learned in each fold (see `twinned.models.learned_metric`).
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
