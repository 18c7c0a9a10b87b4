"""Checks of a regressor by its fits in folds: the error by the number of pairs and of labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import sem, spearmanr
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingRegressor

from twinned._compat import safe_indexing
from twinned.diagnostics.errors import Numbers, format_percent, rmse, rmse_ratio
from twinned.diagnostics.findings import check_diagnosable
from twinned.estimators.methods import BaseTwin
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import ignore_table_warnings
from twinned.rows.folds import Folds, row_folds
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import count_rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.container import ErrorbarContainer

_N_FOLDS = 5
_PARTNERS = (1, 4, 16, 64)
_BOOSTING_ITERATIONS = 200  # of the default estimator with few pairs
_TRAIN_SHARES = (0.25, 0.5, 0.75, 1.0)
_LEAST_ERROR = 1e-3  # of a learning curve, relative to the largest: an error may be 0


@dataclass(frozen=True)
class CheckResult:
    """Result of one check.

    Parameters
    ----------
    key : str
        The name of the check, such as "learning".
    title : str
        The heading of its plot.
    summary : str
        One sentence.
    numbers : dict
        The numbers behind the summary; they can be written as JSON.
    model : str, default=""
        The name of the model to which the numbers belong; empty where they belong to the data.
    """

    key: str
    title: str
    summary: str
    numbers: Numbers
    model: str = ""

    @property
    def heading(self) -> str:
        """The title and the model."""
        return f"{self.title} ({self.model})" if self.model else self.title

    def plot(self, axes: Axes | None = None) -> Axes:
        """Draw into these matplotlib axes, or those of a new figure, with a title; return them."""
        if axes is None:
            from matplotlib import pyplot

            axes = pyplot.subplots(figsize=(5.6, 3.6), layout="constrained")[1]
        draw_curve(axes, self.numbers)
        axes.set_title(self.heading)
        return axes

    def __str__(self) -> str:
        return f"{self.heading} {self.summary}"


def draw_curve(axes: Axes, numbers: Numbers, **options: Any) -> ErrorbarContainer:
    """Draw RMSE with standard errors against `numbers["x"]`, on a logarithmic scale.

    Returns the container of the error bars; `options` are those of `Axes.errorbar`.
    """
    style = {"marker": "o", "capsize": 3, **options}
    bars = axes.errorbar(numbers["x"], numbers["rmse"], numbers["standard_error"], **style)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set(xlabel=numbers["x_label"], ylabel="RMSE of held-out rows")
    return bars


# --- the fits of a twin in folds ------------------------------------------------------------------


@dataclass
class CrossValidation:
    """Folds of n rows, and a regressor that is fitted in each."""

    X: ArrayLike
    y: Floats  # (n,)
    twin: BaseEstimator  # not fitted
    folds: Folds
    groups: Indices | None = None  # (n,) rows of one group are held out together
    name: str = ""  # of the model, in the results of checks

    def groups_of(self, indices: Indices) -> Indices | None:
        """Return the groups of these rows, or None without groups."""
        return None if self.groups is None else self.groups[indices]

    def fit_and_predict(self, model: BaseEstimator, fold: int, train: Indices) -> Floats:
        """Fit a model to these rows and predict the held-out rows of a fold."""
        held_out = self.folds[fold][1]
        with ignore_table_warnings():
            model.fit(safe_indexing(self.X, train), self.y[train])
            return np.asarray(model.predict(safe_indexing(self.X, held_out)), dtype=np.float64)

    @property
    def n_training_rows(self) -> int:
        """The least number of training rows of a fold."""
        return min(len(train) for train, _ in self.folds)


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


def multiplier_check(
    X: ArrayLike,
    y: ArrayLike,
    twin: BaseEstimator | None = None,
    *,
    cross_validation: CrossValidation | None = None,
) -> CheckResult:
    """Compute the error with 1, 4, 16, … random partners per row: the paper's check.

    Where the error grows with the number of pairs, twinning does not suit the data.

    Parameters
    ----------
    X : table or array of shape (n, n_features)
        All rows.
    y : array of shape (n,)
        Their values.
    twin : unfitted twin, default=None
        None is `TwinRegressor()`.
    cross_validation : CrossValidation, default=None
        The folds, where they are drawn already.

    Returns
    -------
    CheckResult
        With `summary`, `plot` and `numbers`, whose `"trend"` is "falls", "grows" or "level".
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
    errors = [
        [rmse(predicted, cv.y[rows_of_fold]) for predicted in of_fold]
        for rows_of_fold, of_fold in zip(held_out, predictions, strict=True)
    ]
    ratio = rmse_ratio(most, fewest, cv.y[rows], cv.groups_of(rows))
    trend = "falls" if ratio.high < 1 else "grows" if ratio.low > 1 else "level"
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
) -> CheckResult:
    """Compute the error with a quarter, half, three quarters and all of the training rows.

    The model may be any regressor. See `multiplier_check` for the parameters. `numbers["doubled"]`
    is the expected ratio of errors with twice as many labels, if the error goes on falling as a
    power of their number as it does from half of the rows on, at most 1. `numbers["interval"]` has
    the ratios of powers two standard errors of the folds lower and higher.
    """
    cv = cross_validation or cross_validate_twin(X, y, twin)
    rng, errors = np.random.RandomState(0), []
    sizes = [max(4, round(share * cv.n_training_rows)) for share in _TRAIN_SHARES]
    for fold, (train, held_out) in enumerate(cv.folds):
        order = _order_by_groups(cv, rng.permutation(train))
        by_size = [cv.fit_and_predict(clone(cv.twin), fold, order[:size]) for size in sizes]
        errors.append([rmse(predicted, cv.y[held_out]) for predicted in by_size])
    powers = [_power(np.array(sizes, float), np.array(of_fold)) for of_fold in errors]
    power, error = float(np.mean(powers)), float(sem(powers))
    doubled = 2.0 ** min(power, 0.0)
    low, high = 2.0 ** (power - 2 * error), 2.0 ** (power + 2 * error)
    trend = "falls" if doubled < 0.95 and high < 1 else "level" if low >= 0.9 else "unclear"
    by = f"{format_percent(1 - doubled)} ({format_percent(1 - high)} to {format_percent(1 - low)})"
    summary = {
        "falls": f"Twice as many labels would lower the error by about {by}.",
        "level": "More labels would change little; better features or less noise might help.",
        "unclear": "Whether more labels would help is not clear: the folds differ too much.",
    }[trend]
    results = {"trend": trend, "doubled": doubled, "interval": [low, high]}
    numbers = _curve_numbers(sizes, errors, "labelled rows", **results)
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


def _curve_numbers(
    x: list[int], errors: list[list[float]], x_label: str, **results: object
) -> Numbers:
    """Numbers of a curve from (fold, x) errors: their mean over folds, and its standard error."""
    means, standard_errors = np.mean(errors, axis=0).tolist(), sem(errors, axis=0).tolist()
    return {"x": x, "rmse": means, "standard_error": standard_errors, "x_label": x_label, **results}


def rank_correlation(first: Floats, second: Floats) -> float:
    """Return Spearman's correlation, or 0 where one of the (n,) variables is constant."""
    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return 0.0
    return float(spearmanr(first, second)[0])
