"""Checks of a twin: curves of its error, and its uncertainty.

Curves show the error against the number of anchors, pairs and labelled rows. The twin is fitted
once in each fold, when that is first needed, and all checks use these fits.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import sem, spearmanr
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingRegressor

from twinned._compat import safe_indexing
from twinned.diagnostics.errors import Numbers, format_percent, rmse, rmse_ratio
from twinned.diagnostics.findings import MIN_ROWS, CheckResult, check_diagnosable
from twinned.estimators.methods import BaseTwin
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import ignore_table_warnings
from twinned.rows.folds import Folds, row_folds
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats
from twinned.rows.validation import count_rows

_N_FOLDS = 5
MAX_ESTIMATES = 1_000_000  # of the anchors of one fold, for the curves
_PARTNERS = (1, 4, 16, 64)
_BOOSTING_ITERATIONS = 200  # of the default estimator with few pairs
_TRAIN_SHARES = (0.25, 0.5, 0.75, 1.0)
_LEAST_ERROR = 1e-3  # of a learning curve, relative to the largest: an error may be 0


# --- the fits of a twin in folds ------------------------------------------------------------------


@dataclass
class CrossValidation:
    """Folds of n rows, and a regressor that is fitted in each; most checks need a twin."""

    X: ArrayLike
    y: Floats  # (n,)
    twin: BaseEstimator  # not fitted
    folds: Folds
    groups: Indices | None = None  # (n,) rows of one group are held out together
    name: str = ""  # of the model, in the results of checks

    def rows(self, indices: Indices) -> ArrayLike:
        """Return these rows of X."""
        return safe_indexing(self.X, indices)

    def groups_of(self, indices: Indices) -> Indices | None:
        """Return the groups of these rows, or None without groups."""
        return None if self.groups is None else self.groups[indices]

    @cached_property
    def twins(self) -> list[BaseTwin]:
        """The twins fitted to the training rows of each fold."""
        with ignore_table_warnings():
            return [clone(self.twin).fit(self.rows(rows), self.y[rows]) for rows, _ in self.folds]

    def fit_and_predict(self, model: BaseEstimator, fold: int, train: Indices) -> Floats:
        """Fit a model to these rows and predict the held-out rows of a fold."""
        with ignore_table_warnings():
            model.fit(self.rows(train), self.y[train])
            return np.asarray(model.predict(self.rows(self.folds[fold][1])), dtype=np.float64)

    @property
    def n_training_rows(self) -> int:
        """The least number of training rows of a fold."""
        return min(len(train) for train, _ in self.folds)

    @cached_property
    def query_rows(self) -> list[Indices]:
        """Held-out rows of each fold for the curves: all of few rows, else a sample."""
        rng, queries = np.random.RandomState(0), []
        for twin, (_, held_out) in zip(self.twins, self.folds, strict=True):
            most = max(MIN_ROWS, MAX_ESTIMATES // len(twin.anchors_y_))
            queries.append(held_out if len(held_out) <= most else rng.permutation(held_out)[:most])
        return queries


def cross_validate_twin(
    X: ArrayLike,
    y: ArrayLike,
    twin: BaseTwin | None = None,
    random_state: int | np.random.RandomState | None = 0,
) -> CrossValidation:
    """Draw five folds for the cross-validation of a twin; None is `TwinRegressor()`."""
    values = check_diagnosable(y, count_rows(X))
    twin = TwinRegressor(random_state=random_state) if twin is None else twin
    return CrossValidation(X, values, twin, row_folds(len(values), _N_FOLDS, random_state))


# --- curves of the error --------------------------------------------------------------------------


def anchor_curve(
    X: ArrayLike,
    y: ArrayLike,
    twin: BaseEstimator | None = None,
    *,
    cross_validation: CrossValidation | None = None,
) -> CheckResult:
    """Compute the error with 1, 2, 4, … random anchors, and with all.

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        All rows.
    y : array of shape (n,)
        Their values.
    twin : unfitted twin, default=None
        None is `TwinRegressor()`.
    cross_validation : CrossValidation, default=None
        The fits of the twin in the folds, where they exist already.

    Returns
    -------
    CheckResult
        With `numbers`, `summary` and `plot`.
    """
    cv = cross_validation or cross_validate_twin(X, y, twin)
    sizes = anchor_counts(min(len(fitted.anchors_y_) for fitted in cv.twins))
    rng, predictions = np.random.RandomState(0), []
    for fitted, queries in zip(cv.twins, cv.query_rows, strict=True):
        with ignore_table_warnings():
            estimates = fitted.predict_anchors(cv.rows(queries))[1]
        totals = np.cumsum(estimates[:, rng.permutation(estimates.shape[1])], axis=1)
        predictions.append([totals[:, size - 1] / size for size in sizes])
    errors = _errors(cv, cv.query_rows, predictions)
    means = errors.mean(axis=0)
    enough = sizes[int(np.argmax(means <= 1.02 * means[-1]))]
    excess = means[0] / means[-1] - 1 if means[-1] > 0 else 0.0
    more = f"is {format_percent(excess)} higher than with all {sizes[-1]:,}"
    summary = f"The error with one random anchor {more}; with {enough} it is within 2 % of that."
    numbers = _curve_numbers(sizes, errors, "random anchors", enough=enough)
    return CheckResult("anchors", "How many anchors?", summary, numbers, cv.name)


def _errors(cv, rows, predictions):
    """(fold, size): errors of several predictions of these rows of each fold."""
    folds = zip(rows, predictions, strict=True)
    return np.array([[rmse(mean, cv.y[queries]) for mean in means] for queries, means in folds])


def multiplier_check(
    X: ArrayLike,
    y: ArrayLike,
    twin: BaseEstimator | None = None,
    *,
    cross_validation: CrossValidation | None = None,
) -> CheckResult:
    """Compute the error with 1, 4, 16, … random partners per row: the paper's check.

    Where the error grows with the number of pairs, twinning does not suit the data. See
    `anchor_curve` for the parameters. `numbers["trend"]` is "falls", "grows" or "level".
    """
    cv = cross_validation or cross_validate_twin(X, y, twin)
    sizes = [m for m in _PARTNERS if m < cv.n_training_rows]
    predictions = [
        [cv.fit_and_predict(_with_partners(cv.twin, m), fold, train) for m in sizes]
        for fold, (train, _) in enumerate(cv.folds)
    ]
    held_out = [rows for _, rows in cv.folds]
    rows = np.concatenate(held_out)
    most = np.concatenate([of_fold[-1] for of_fold in predictions])
    fewest = np.concatenate([of_fold[0] for of_fold in predictions])
    errors = _errors(cv, held_out, predictions)
    ratio = rmse_ratio(most, fewest, cv.y[rows], cv.groups_of(rows))
    trend = ratio.choose("falls", "grows", "level")
    error = f"the error with {sizes[-1]} partners per row is {format_percent(ratio.value - 1)}"
    summary = {
        "falls": f"More pairs help: {error} lower than with {sizes[0]}, as it should be.",
        "grows": f"More pairs hurt: {error} higher than with {sizes[0]}; do not twin such data.",
        "level": "The number of pairs makes no clear difference.",
    }[trend]
    numbers = _curve_numbers(
        sizes, errors, "partners per row", trend=trend, interval=ratio.interval
    )
    return CheckResult("multiplier", "Do more pairs help?", summary, numbers, cv.name)


def _with_partners(twin: BaseTwin, partners: int) -> BaseTwin:
    """Return the twin with few pairs; the leaves of the default estimator shrink in proportion."""
    with_partners = clone(twin).set_params(pairs=partners)
    if isinstance(twin, TwinRegressor) and twin.estimator is None:
        leaf = max(2, partners // 2)
        with_partners.estimator = HistGradientBoostingRegressor(
            max_iter=_BOOSTING_ITERATIONS, min_samples_leaf=leaf, early_stopping=False
        )
    return with_partners


def learning_curve(
    X: ArrayLike,
    y: ArrayLike,
    twin: BaseEstimator | None = None,
    *,
    cross_validation: CrossValidation | None = None,
    seconds: float = np.inf,
) -> CheckResult:
    """Compute the error with a quarter, half, three quarters and all of the training rows.

    The model may be any regressor. See `anchor_curve` for the parameters. After two folds, others
    follow as long as they are expected to end within `seconds`. `numbers["doubled"]` is the
    expected ratio of errors with twice as many labels, if the error goes on falling as a power of
    their number as it does from half of the rows on, at most 1. `numbers["interval"]` has the
    ratios of powers two standard errors of the folds lower and higher, and `numbers["n_folds"]` is
    the number of folds.
    """
    start = time.perf_counter()
    cv = cross_validation or cross_validate_twin(X, y, twin)
    rng, errors = np.random.RandomState(0), []
    sizes = [max(4, round(share * cv.n_training_rows)) for share in _TRAIN_SHARES]
    for fold, (train, held_out) in enumerate(cv.folds):
        order = _order_by_groups(cv, rng.permutation(train))
        by_size = [cv.fit_and_predict(clone(cv.twin), fold, order[:size]) for size in sizes]
        errors.append([rmse(predicted, cv.y[held_out]) for predicted in by_size])
        with_next_fold = (time.perf_counter() - start) * (len(errors) + 1) / len(errors)
        if len(errors) > 1 and with_next_fold > seconds:
            break
    powers = [_power(np.array(sizes, float), np.array(of_fold)) for of_fold in errors]
    power, error = float(np.mean(powers)), float(np.std(powers, ddof=1)) / len(powers) ** 0.5
    doubled = 2.0 ** min(power, 0.0)
    low, high = 2.0 ** (power - 2 * error), 2.0 ** (power + 2 * error)
    trend = "falls" if doubled < 0.95 and high < 1 else "level" if low >= 0.9 else "unclear"
    by = f"{format_percent(1 - doubled)} ({format_percent(1 - high)} to {format_percent(1 - low)})"
    summary = {
        "falls": f"Twice as many labels would lower the error by about {by}.",
        "level": "More labels would change little; better features or less noise might help.",
        "unclear": "Whether more labels would help is not clear: the folds differ too much.",
    }[trend]
    if len(errors) < len(cv.folds):
        summary += f" This is from {len(errors)} of {len(cv.folds)} folds."
    numbers = _curve_numbers(
        sizes,
        np.array(errors),
        "labelled rows",
        trend=trend,
        doubled=doubled,
        interval=[low, high],
        n_folds=len(errors),
    )
    return CheckResult("learning", "Would more labels help?", summary, numbers, cv.name)


def _order_by_groups(cv: CrossValidation, rows: Indices) -> Indices:
    """Return rows with those of one group next to each other, the groups in random order."""
    groups = cv.groups_of(rows)
    if groups is None:
        return rows
    _, codes = np.unique(groups, return_inverse=True)
    order = np.random.RandomState(0).permutation(codes.max() + 1)
    return rows[np.argsort(order[codes], kind="stable")]


def _power(sizes: Floats, errors: Floats) -> float:
    """Return the slope of log error against log size, from half of the largest size on.

    >>> round(_power(np.array([1.0, 2.0, 4.0]), np.array([9.0, 2.0, 1.0])), 6)
    -1.0
    """
    used = sizes >= 0.49 * sizes[-1]  # sizes are rounded
    sizes, errors = sizes[used], np.maximum(errors[used], _LEAST_ERROR * errors.max())
    if np.ptp(sizes) == 0 or errors.max() == 0:
        return 0.0
    return float(np.polyfit(np.log(sizes), np.log(errors), 1)[0])


def anchor_counts(most: int) -> list[int]:
    """Return 1, 2, 4, … and the largest number of anchors.

    >>> anchor_counts(6)
    [1, 2, 4, 6]
    """
    return [2**i for i in range(int(np.log2(most)) + 1) if 2**i < most] + [most]


def _curve_numbers(x: list[int], errors: Floats, x_label: str, **results: object) -> Numbers:
    """Numbers of a curve from (fold, x) errors: their mean over folds, and its standard error."""
    means, standard_errors = errors.mean(axis=0).tolist(), sem(errors, axis=0).tolist()
    return {"x": x, "rmse": means, "standard_error": standard_errors, "x_label": x_label, **results}


def rank_correlation(first: Floats, second: Floats) -> float:
    """Return Spearman's correlation, or 0 where one of the (n,) variables is constant."""
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first, second)[0])
