"""Measured error and coverage of the classes of applicability, from rows that are held out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from twinned._compat import safe_indexing
from twinned.estimators.conformal import cross_errors, replace_groups
from twinned.estimators.methods import BaseTwin
from twinned.exceptions import ignore_table_warnings
from twinned.fitted.applicability import LABELS, ClassStatistics
from twinned.fitted.calibration import Calibration, NeighborFeatures
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
    A copy of the twin, whose attribute `applicability_` is a DataFrame with the index `inside`,
    `edge`, `outside` and the columns `rows`, their number, `error`, the root mean square error, and
    `coverage`. It stores prediction intervals, too.

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
    with ignore_table_warnings():
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
        measurement = _Measurement(twin, fitted, X, rows, errors, confidence, random_state)
        held_out_rows = [measurement.random_rows()]
        for held_out in extreme_rows(twin, fitted):
            held_out_rows.append(measurement.rows_held_out_together(held_out))
    classes, sizes, covered = map(np.concatenate, zip(*held_out_rows, strict=True))
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


@dataclass(frozen=True, eq=False)
class _Measurement:
    """Errors and intervals of held-out rows of a calibrated twin."""

    twin: BaseTwin
    fitted: FittedTwin
    X: ArrayLike
    rows: TrainingRows
    errors: HeldOutErrors | None  # of random folds; a blend has its own
    confidence: float
    random_state: int | np.random.RandomState | None

    @property
    def calibration(self) -> Calibration:
        assert self.fitted.calibration is not None, "the twin is calibrated"
        return self.fitted.calibration

    def random_rows(self) -> HeldOut:
        """The rows of random folds, classified each without itself or its group."""
        calibration = self.calibration
        scores, sizes = np.full((2, len(self.rows)), np.nan)
        scores[np.asarray(calibration.rows)] = calibration.scores
        if self.errors is not None:
            sizes[self.errors.rows] = np.abs(self.errors.errors)
        else:
            table = self.twin.out_of_fold()
            sizes[table.index] = (table["y"] - table["prediction"]).abs()
        low, high = calibration.distribution.quantile(tails(self.confidence))
        domain = self.fitted.anchors.domain
        held_out = np.isfinite(sizes[domain.known_rows])
        rows = domain.known_rows[held_out]
        covered = (low <= scores[rows]) & (scores[rows] <= high)
        return domain.classify_known()[held_out], sizes[rows], covered

    def rows_held_out_together(self, held_out: Indices) -> HeldOut:
        """Rows that are predicted by a twin that is fitted to the others."""
        rows, model = self.rows, self.fit_without(held_out)
        batch = None if rows.batch is None else rows.batch[held_out]
        X, y = safe_indexing(self.X, held_out), rows.y[held_out]
        prediction = model.predict_distribution(X, batch=batch)
        ends = prediction.interval(self.confidence)
        covered = (ends[:, 0] <= y) & (y <= ends[:, 1])
        classes = pd.Index(LABELS).get_indexer(pd.Index(model.applicability(X)["label"]))
        return classes, np.abs(y - prediction.mean), covered

    def fit_without(self, held_out: Indices) -> BaseTwin:
        """A calibrated twin that is fitted to the other rows."""
        rows, errors = self.rows, self.errors
        model = self.twin.refit(rows.take(np.setdiff1d(np.arange(len(rows)), held_out)))
        if errors is None:
            return model
        refitted = model.fitted_
        if rows.groups is not None:
            refitted = replace_groups(refitted, rows.groups)
        anchors = refitted.anchors
        neighbors = NeighborFeatures.of(anchors.matrix, anchors.y, refitted.schema.categorical)
        calibration = errors.calibrate_without(
            held_out, self.calibration, neighbors, self.random_state
        )
        return model.with_fitted(replace(refitted, calibration=calibration))
