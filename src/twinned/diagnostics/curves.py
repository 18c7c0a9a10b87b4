"""Error against the number of anchors, nearest anchors, pairs and labelled rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor

from twinned.diagnostics.cross_validation import (
    CrossValidation,
    cross_validate_twin,
    rmse,
)
from twinned.diagnostics.ratio import rmse_ratio
from twinned.diagnostics.result import CheckResult, Numbers, draw_curve, format_percent
from twinned.estimators.base import BaseTwin
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import ignore_table_warnings
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats

_PARTNERS = (1, 4, 16, 64)
_BOOSTING_ITERATIONS = 200  # of the default estimator with few pairs
_TRAIN_SHARES = (0.25, 0.5, 0.75, 1.0)
_LEAST_ERROR = 1e-3  # of a learning curve, relative to the largest: an error may be 0


def anchor_curve(
    X: Any, y: Any, twin: BaseTwin | None = None, *, cross_validation: CrossValidation | None = None
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
    rng = np.random.RandomState(0)
    sizes = _counts_of_folds(cv)
    errors = []
    for rows, anchors, estimates in cv.anchor_estimates:
        by_anchor = np.take_along_axis(estimates, np.argsort(anchors, axis=1), axis=1)
        totals = np.cumsum(by_anchor[:, rng.permutation(by_anchor.shape[1])], axis=1)
        errors.append([rmse(totals[:, size - 1] / size, cv.y[rows]) for size in sizes])
    means = np.mean(errors, axis=0)
    enough = sizes[int(np.argmax(means <= 1.02 * means[-1]))]
    excess = means[0] / means[-1] - 1 if means[-1] > 0 else 0.0
    summary = (
        f"The error with one random anchor is {format_percent(excess)} higher than with all "
        f"{sizes[-1]:,}; with {enough} it is within 2 % of that."
    )
    numbers = _curve_numbers(sizes, errors, "random anchors", enough=enough)
    return CheckResult("anchors", "How many anchors?", summary, numbers, draw_curve, cv.name)


def neighbor_curve(
    X: Any, y: Any, twin: BaseTwin | None = None, *, cross_validation: CrossValidation | None = None
) -> CheckResult:
    """Compute the error with the nearest 1, 2, 4, … anchors.

    The gain over all anchors is nested: for each fold, k is chosen by the errors of the other
    folds. See `anchor_curve` for the parameters.

    Returns
    -------
    CheckResult
        `numbers["best"]` is the number of nearest anchors to use, or None where all anchors are as
        good; `numbers["ratio"]` is the nested ratio of errors, `numbers["interval"]` its 95 %
        interval, and `numbers["fold_k"]` the k of each fold.
    """
    cv = cross_validation or cross_validate_twin(X, y, twin)
    sizes = _counts_of_folds(cv)
    at_k = [_predict_nearest(estimates, sizes) for _, _, estimates in cv.anchor_estimates]
    rows = [own.rows for own in cv.anchor_estimates]
    errors = np.array(
        [
            [rmse(predictions, cv.y[own]) for predictions in fold.T]
            for fold, own in zip(at_k, rows, strict=True)
        ]
    )
    chosen = choose_without_own_fold(errors)
    nested = np.concatenate([fold[:, k] for fold, k in zip(at_k, chosen, strict=True)])
    with_all = np.concatenate([fold[:, -1] for fold in at_k])
    every = np.concatenate(rows)
    ratio = rmse_ratio(nested, with_all, cv.y[every], cv.groups_of(every))
    lowest = sizes[int(np.argmin(errors.mean(axis=0)))]
    best = lowest if ratio.high < 1 and lowest < sizes[-1] else None
    if best is None:
        summary = "No number of nearest anchors is clearly better than all anchors."
    else:
        summary = (
            f"The error with the {best} nearest anchors is {format_percent(ratio.value - 1)} lower "
            f"than with all: use NearestAnchors({best})."
        )
    numbers = _curve_numbers(
        sizes,
        errors,
        "nearest anchors",
        best=best,
        lowest=lowest,
        ratio=ratio.value,
        interval=[ratio.low, ratio.high],
        fold_k=[sizes[k] for k in chosen],
    )
    return CheckResult(
        "neighbors", "All anchors, or the nearest?", summary, numbers, draw_curve, cv.name
    )


def _predict_nearest(estimates: Floats, sizes: list[int]) -> Floats:
    """(query, size) means over the nearest anchors, from (query, anchor) nearest first."""
    totals = np.cumsum(estimates, axis=1)
    return np.column_stack([totals[:, size - 1] / size for size in sizes])


def choose_without_own_fold(errors: Floats) -> Indices:
    """Return for each fold the setting of lowest mean error in the other folds.

    `errors` is (fold, setting), with at least two folds.

    >>> choose_without_own_fold(np.array([[1.0, 0.0], [1.0, 9.0], [1.0, 9.0]]))
    array([0, 0, 0])
    """
    return np.argmin(errors.sum(axis=0) - errors, axis=1)


def multiplier_check(
    X: Any, y: Any, twin: BaseTwin | None = None, *, cross_validation: CrossValidation | None = None
) -> CheckResult:
    """Compute the error with 1, 4, 16, … random partners per row: the paper's check.

    Where the error grows with the number of pairs, twinning does not suit the data. See
    `anchor_curve` for the parameters. `numbers["trend"]` is "falls", "grows" or "level".
    """
    cv = cross_validation or cross_validate_twin(X, y, twin)
    n_least = min(len(train) for train, _ in cv.folds)
    sizes = [m for m in _PARTNERS if m < n_least]
    predictions = [
        [_fit_and_predict(_with_partners(cv.twin, m), cv, fold, train) for m in sizes]
        for fold, (train, _) in enumerate(cv.folds)
    ]
    errors = [
        [rmse(own, cv.y[held_out]) for own in fold]
        for fold, (_, held_out) in zip(predictions, cv.folds, strict=True)
    ]
    rows = np.concatenate([held_out for _, held_out in cv.folds])
    most, least = (np.concatenate([fold[k] for fold in predictions]) for k in (-1, 0))
    ratio = rmse_ratio(most, least, cv.y[rows], cv.groups_of(rows))
    trend = "falls" if ratio.high < 1 else "grows" if ratio.low > 1 else "level"
    error = f"the error with {sizes[-1]} partners per row is {format_percent(ratio.value - 1)}"
    summary = {
        "falls": f"More pairs help: {error} lower than with {sizes[0]}, as it should be.",
        "grows": f"More pairs hurt: {error} higher than with {sizes[0]}. The paper advises against "
        "twinning such data.",
        "level": "The number of pairs makes no clear difference.",
    }[trend]
    numbers = _curve_numbers(
        sizes, errors, "partners per row", trend=trend, interval=[ratio.low, ratio.high]
    )
    return CheckResult("multiplier", "Do more pairs help?", summary, numbers, draw_curve, cv.name)


def _with_partners(twin: BaseTwin, partners: int) -> BaseTwin:
    """Return the twin with few pairs; the leaves of the default estimator shrink in proportion."""
    own = clone(twin).set_params(pairs=partners)
    if isinstance(own, TwinRegressor) and own.estimator is None:
        own.set_params(
            estimator=HistGradientBoostingRegressor(
                max_iter=_BOOSTING_ITERATIONS,
                min_samples_leaf=max(2, partners // 2),
                early_stopping=False,
            )
        )
    return own


def learning_curve(
    X: Any,
    y: Any,
    twin: BaseTwin | None = None,
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
    n_least = min(len(train) for train, _ in cv.folds)
    sizes = [max(4, round(share * n_least)) for share in _TRAIN_SHARES]
    for fold, (train, held_out) in enumerate(cv.folds):
        order = _order_by_groups(cv, rng.permutation(train))
        predicted = [_fit_and_predict(clone(cv.twin), cv, fold, order[:size]) for size in sizes]
        errors.append([rmse(own, cv.y[held_out]) for own in predicted])
        of_next = (time.perf_counter() - start) * (len(errors) + 1) / len(errors)
        if len(errors) > 1 and of_next > seconds:
            break
    powers = [_power(np.array(sizes, float), np.array(own)) for own in errors]
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
        errors,
        "labelled rows",
        trend=trend,
        doubled=doubled,
        interval=[low, high],
        n_folds=len(errors),
    )
    return CheckResult("learning", "Would more labels help?", summary, numbers, draw_curve, cv.name)


def _fit_and_predict(model: Any, cv: CrossValidation, fold: int, train: Indices) -> Floats:
    """Fit a model to these rows and predict the held-out rows of a fold."""
    held_out = cv.folds[fold][1]
    with ignore_table_warnings():
        model.fit(cv.rows(train), cv.y[train])
        return np.asarray(model.predict(cv.rows(held_out)), dtype=np.float64)


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


def _counts_of_folds(cv: CrossValidation) -> list[int]:
    """1, 2, 4, … and the number of anchors that the twins of all folds have."""
    return anchor_counts(min(len(twin.anchors_y_) for twin in cv.twins))


def anchor_counts(most: int) -> list[int]:
    """Return 1, 2, 4, … and the largest number of anchors.

    >>> anchor_counts(6)
    [1, 2, 4, 6]
    """
    return [2**i for i in range(int(np.log2(most)) + 1) if 2**i < most] + [most]


def _curve_numbers(
    x: list[int], errors: Floats | Sequence[Sequence[float]], x_label: str, **more: Any
) -> Numbers:
    """Numbers of a curve from (fold, x) errors: their mean over folds, and its standard error."""
    errors = np.asarray(errors)
    n_folds = len(errors)
    std = errors.std(axis=0, ddof=1) if n_folds > 1 else np.zeros(len(x))
    return {
        "x": list(x),
        "rmse": errors.mean(axis=0).tolist(),
        "standard_error": (std / np.sqrt(n_folds)).tolist(),
        "x_label": x_label,
        **more,
    }
