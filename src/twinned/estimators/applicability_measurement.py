"""Measured error and coverage of the classes of applicability, from rows that are held out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from twinned._compat import safe_indexing
from twinned.estimators.base import BaseTwin
from twinned.exceptions import ignore_table_warnings
from twinned.fitted.applicability import LABELS
from twinned.fitted.calibration import stored_calibration
from twinned.fitted.conformal import CrossCalibrated, fit_clone
from twinned.rows.folds import encode_groups, row_folds
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_integer, count_rows, validate_target

_EXTREME_SHARE = 0.2  # of the rows, held out at each end


# (row,) each, of held-out rows: classes, errors, and whether their intervals cover y
HeldOut = tuple[Indices, Floats, NDArray[np.bool_]]


def measure_applicability(twin, X, y, *, groups=None, confidence=0.9, cv=5, random_state=None):
    """Measure error and coverage of each class of `applicability`, and store them in the twin.

    Held out are random folds and, as these hold few rows outside, the lowest and highest fifth of y
    and of the most relevant numeric feature; of rows in groups, whole groups, by their means. A
    clone of the twin is fitted without each of these
    four, and without each random fold; the blend has predictions of random folds already.
    The classes are pooled over all held-out rows, of which a little less than half are extreme.

    Parameters
    ----------
    twin : a fitted twin with a single output
        Its anchors must be all rows of X. It then stores prediction intervals, too.
    X : table or array of shape (n, n_features)
        The training rows.
    y : array of shape (n,)
        Their target values.
    groups : array of shape (n,), default=None
        Groups of rows, which the twin then stores; a blend has those of its `fit`.
    confidence : float, default=0.9
        Confidence of the intervals whose coverage is measured.
    cv : int, default=5
        Number of random folds.
    random_state : int, RandomState or None, default=None
        Draws the random folds.

    Returns
    -------
    DataFrame with the index `inside`, `edge`, `outside` and the columns `rows`, their number,
    `error`, the root mean square error, and `coverage`.

    Examples
    --------
    >>> from sklearn.ensemble import ExtraTreesRegressor
    >>> from twinned import TwinRegressor, measure_applicability
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(60, random_state=0)
    >>> twin = TwinRegressor(ExtraTreesRegressor(10, random_state=0)).fit(X, y)
    >>> measured = measure_applicability(twin, X, y, cv=3, random_state=0)
    >>> bool(measured.loc["outside", "error"] > measured.loc["inside", "error"])
    True
    >>> twin.applicability(X[:2]).columns.tolist()
    ['score', 'label', 'error', 'coverage']
    """
    if not isinstance(twin, BaseTwin):
        raise TypeError(f"twin must be a twin or a blend, not {type(twin).__name__}.")
    check_is_fitted(twin)
    check_integer("cv", cv, 2)
    values = validate_target(None, y, count_rows(X), multi_output=False)
    if not np.array_equal(twin.anchor_rows_, np.arange(len(values))):
        raise ValueError("The anchors of the twin must be all rows of X, in their order.")
    if groups is not None:
        if twin.is_blend:
            raise ValueError("A blend has the groups of its fit; give them to fit.")
        twin.set_groups(encode_groups(groups, len(values)))
    crossed = None
    with ignore_table_warnings():
        if not twin.is_blend:
            crossed = _cross_calibrate(twin, X, values, cv, random_state)
        parts = [_random_rows(twin, crossed, confidence)]
        for rows in extreme_rows(twin, values):
            parts.append(_extreme_rows(twin, crossed, X, values, rows, confidence))
    statistics = class_statistics(*map(np.concatenate, zip(*parts, strict=True)))
    twin.applicability_ = {**statistics, "confidence": confidence}
    return pd.DataFrame(statistics, index=list(LABELS))


def class_statistics(
    classes: Indices, errors: Floats, covered: NDArray[np.bool_]
) -> dict[str, Floats]:
    """(class,) number of rows, root mean square error and coverage; NaN without rows.

    >>> covered = np.array([True, False, True])
    >>> class_statistics(np.array([0, 0, 2]), np.array([3.0, 4.0, 1.0]), covered)["coverage"]
    array([0.5, nan, 1. ])
    """
    sums = [
        np.bincount(classes, weights=values, minlength=len(LABELS))
        for values in (np.ones(len(classes)), errors**2, covered)
    ]
    with np.errstate(invalid="ignore"):
        error, coverage = np.sqrt(sums[1] / sums[0]), sums[2] / sums[0]
    return {"rows": sums[0], "error": error, "coverage": coverage}


def extreme_rows(twin: Any, y: Floats) -> Iterator[Indices]:
    """Yield the rows with the lowest and highest y, and values of the most relevant feature.

    Groups are not divided: they are ordered by their means.
    """
    groups = np.arange(len(y)) if twin.anchor_groups_ is None else twin.anchor_groups_
    columns = [y]
    if numeric := twin.fitted_.anchors.schema.numeric:
        relevant = numeric[int(np.argmax(twin.feature_relevance_[numeric]))]
        columns.append(twin.anchors_X_[:, relevant])
    n_extreme = max(1, int(_EXTREME_SHARE * len(np.unique(groups))))
    for values in columns:
        means = pd.Series(values).groupby(groups).mean().dropna().sort_values(kind="stable")
        for extreme in (means.index[:n_extreme], means.index[-n_extreme:]):
            yield np.flatnonzero(np.isin(groups, extreme))


def _cross_calibrate(twin: Any, X: Any, y: Floats, cv: int, random_state: Any) -> CrossCalibrated:
    """The calibration of the twin by random folds, which it then stores."""
    folds = row_folds(len(y), cv, random_state, twin.anchor_groups_)
    models = [fit_clone(twin, X, y, rows) for rows, _ in folds]
    crossed = CrossCalibrated(models, twin, X, y, folds, random_state=random_state)
    crossed.store_in(twin)
    return crossed


def _random_rows(twin: Any, crossed: CrossCalibrated | None, confidence: float) -> HeldOut:
    """The rows of random folds, classified each without itself or its group."""
    if crossed is None:
        table = twin.out_of_fold().reindex(range(len(twin.anchors_y_)))
        errors = (table["y"] - table["prediction"]).to_numpy()
        scores = table["score"].to_numpy()
    else:
        errors, scores = crossed.out_of_fold()
    domain, (low, high) = twin.fitted_.anchors.domain, stored_calibration(twin).ends(confidence)
    held_out = np.isfinite(errors[domain.known_rows])
    rows = domain.known_rows[held_out]
    covered = (low <= scores[rows]) & (scores[rows] <= high)
    return domain.classify_known()[held_out], np.abs(errors[rows]), covered


def _extreme_rows(twin, crossed, X, y, held_out, confidence):
    """Rows held out together, predicted by a clone of the twin that is fitted to the others."""
    training = np.setdiff1d(np.arange(len(y)), held_out)
    known = safe_indexing(X, training), y[training]
    rows, groups = safe_indexing(X, held_out), twin.anchor_groups_
    model = fit_clone(twin, X, y, training, groups)
    if crossed is not None and groups is not None:
        model.set_groups(groups[training])
    if crossed is None:
        mean, ends = model.predict(rows), model.predict_interval(rows, confidence)
    else:
        mean, ends = crossed.interval_without(held_out, model, known, rows, confidence)
    values = y[held_out]
    covered = (ends[:, 0] <= values) & (values <= ends[:, 1])
    classes = pd.Index(LABELS).get_indexer(model.applicability(rows)["label"])
    return classes, np.abs(values - mean), covered
