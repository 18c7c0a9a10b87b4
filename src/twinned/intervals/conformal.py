"""How far to trust a prediction: intervals that cover, and standard deviations that are calibrated.

A model's own standard deviation σ(x) is raw: it tells hard points from easy ones, but not by how
much. It is held against points that the model did not learn from, whose |y − ŷ| / σ are *scores*;
an interval is ŷ ± (a quantile of the scores) · σ, wide where the model is unsure.

`conformal` takes the scores of a calibration set: for exchangeable points the intervals of a twin,
or of one width, cover at least as often as they say, however good the model is (split conformal
prediction, by crepes).
`cross_conformal` needs no such set: it fits the model once for every fold that it leaves out, whose
points so have scores, and once more to all points. Or the models of the folds predict together (the
CV+ of Barber, Candès, Ramdas and Tibshirani, with scores divided by σ). It can also learn σ: a
forest learns the size of the errors out of fold (see `deviation`).
"""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from twinned._table import Floats
from twinned._validation import (
    check_bool,
    check_choice,
    check_integer,
    count_rows,
    validate_target,
)
from twinned.intervals.error_scale import (
    LEAST,
    ErrorScale,
    NeighborFeatures,
    Told,
    categorical_indices,
    error_size_regressor,
    features,
    positive,
    std_floor,
    tell,
)
from twinned.intervals.stored import WIDTHS, check_confidence, keep, rank

_BLOCK = 4_000_000  # queries × points at once


def conformal(model: Any, X_cal: Any, y_cal: Any, *, width: str = "deviation") -> Calibrated:
    """Intervals for a fitted model from points that it did not learn from.

    Parameters
    ----------
    model : a fitted regressor
        Any twin or neural estimator; or any other regressor, with a standard deviation of its own
        where its `predict` takes `return_std`, as that of a Gaussian process does.
    X_cal : table or array of shape (n, n_features)
        Calibration points. Coverage is only as fine as 1 / (n + 1): 90 % needs 9 of them at least,
        and 100 make it steady.
    y_cal : array of shape (n,)
        Their values.
    width : {"deviation", "constant"}, default="deviation"
        Intervals in proportion to the model's standard deviation, or all of one width.

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
    check_choice("width", width, ["deviation", "constant"])
    y = check_values(y_cal, count_rows(X_cal))
    return Calibrated(model, X_cal, y, width)


def cross_conformal(
    model: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 10,
    width: str = "learned",
    method: str = "refit",
    random_state: Any = 0,
) -> CrossCalibrated:
    """Intervals without a calibration set: every point calibrates the models that left it out.

    Parameters
    ----------
    model : a regressor, fitted or not
        A clone of it is fitted for each fold; as of `conformal`.
    X : table or array of shape (n, n_features)
        All the points there are.
    y : array of shape (n,)
        Their values.
    cv : int or a splitter of scikit-learn, default=10
        How the points are left out. An integer is that many folds in random order; with fewer, the
        models of the folds know less than the model of all points, and intervals are too wide. Give
        `GroupKFold(5).split(X, y, groups)` where rows come in groups.
    width : {"learned", "deviation", "constant"}, default="learned"
        Intervals in proportion to a learned size of errors and to the model's standard deviation;
        to the latter alone; or all of one width.
    method : {"refit", "plus"}, default="refit"
        Who predicts: the model fitted to all points, or, as in CV+, the models of all folds. Of CV+
        a coverage of 2 · confidence − 1, less √(2 / n), is proved for one width; it tends to cover
        more often than it says, as several models err less than each. Nothing is proved of the
        other.
    random_state : int, RandomState or None, default=0
        Draws the folds where `cv` is an integer, and seeds what learns the size of errors.

    Returns
    -------
    CrossCalibrated
        As `Calibrated`.

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
    values = check_values(y, count_rows(X))
    if isinstance(cv, Integral):
        cv = KFold(check_integer("cv", cv, 2), shuffle=True, random_state=random_state)
    folds = list(check_cv(cv).split(X, values))
    left_out = np.concatenate([rows for _, rows in folds])
    if len(folds) < 2 or len(np.unique(left_out)) < len(left_out):
        raise ValueError(f"cv={cv!r} must leave out each point once, in two folds at least.")
    models = [clone(model).fit(_safe_indexing(X, rows), values[rows]) for rows, _ in folds]
    whole = clone(model).fit(X, values) if method == "refit" else None
    return calibrate_across(models, whole, X, values, folds, width=width, random_state=random_state)


def calibrate_across(
    models: list[Any],
    whole: Any,
    X: Any,
    y: Floats,
    folds: list[tuple[Any, Any]],
    *,
    width: str = "learned",
    random_state: Any = 0,
    said: Any = None,
    learned: tuple[Any, Floats] | None = None,
) -> CrossCalibrated:
    """`cross_conformal` for models that were fitted elsewhere, as `fit_many` does.

    `folds` are the rows (learned, left out) of each model; `whole` is the model of all rows, or
    None where those of the folds predict. `said` is what the models said of the rows they left
    out, mean and standard deviation, where they have been asked; `learned` the points of `whole`,
    where these are more than X and y.
    """
    who = [
        (model, NeighborFeatures(_safe_indexing(X, own), y[own], categorical_indices(model)))
        for model, (own, _) in zip(models, folds, strict=True)
    ]
    told = [
        tell(model, _safe_indexing(X, rows), around, own)
        for (model, around), (_, rows), own in zip(
            who, folds, said or [None] * len(folds), strict=True
        )
    ]
    errors = [np.abs(y[rows] - own.mean) for own, (_, rows) in zip(told, folds, strict=True)]
    last = None
    if whole is not None:
        last = whole, NeighborFeatures(*(learned or (X, y)), categorical_indices(whole))
    return CrossCalibrated(who, last, told, errors, width, random_state)


class Calibrated:
    """A fitted model and its scores on calibration points."""

    def __init__(self, model: Any, X_cal: Any, y_cal: Floats, width: str) -> None:
        from crepes import ConformalRegressor

        self.model, self.width = model, width
        told = tell(model, X_cal)
        self._floor = std_floor(model, told.raw) if width == "deviation" else 0.0
        sigma = positive(told.raw, self._floor)
        self.scores = np.abs(y_cal - told.mean) / sigma
        self._regressor = ConformalRegressor().fit(y_cal - told.mean, sigmas=sigma)

    def _predict(self, X: Any) -> tuple[Floats, Floats]:
        told = tell(self.model, X)
        return told.mean, positive(told.raw, self._floor)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The model's prediction; with `return_std`, also a calibrated standard deviation.

        That is the raw one times the root mean square of the scores.
        """
        check_bool("return_std", return_std)
        mean, sigma = self._predict(X)
        return (mean, sigma * np.sqrt(np.mean(self.scores**2))) if return_std else mean

    def predict_interval(self, X: Any, confidence: float = 0.9) -> Floats:
        """(n, 2): lower and upper ends that cover y with at least this probability."""
        level = check_confidence(confidence, len(self.scores))
        mean, sigma = self._predict(X)
        # so that rounding loses no calibration point
        level = max(level - 1e-9, 1.0 / (len(self.scores) + 1))
        intervals: Floats = self._regressor.predict_int(mean, sigmas=sigma, confidence=level)
        return intervals


class CrossCalibrated:
    """Models that left out a fold each, the score of every point, and who predicts.

    `told` has for each fold what its model says of the points it left out, `errors` how far off.
    Who predicts is the model of all points, or, where there is none (`whole` is None), all models
    of the folds. Each model comes with the points that it learned from.
    """

    def __init__(
        self,
        models: list[tuple[Any, NeighborFeatures]],
        whole: tuple[Any, NeighborFeatures] | None,
        told: list[Told],
        errors: list[Floats],
        width: str,
        random_state: Any = 0,
    ) -> None:
        self._models, self._whole, self.width = models, whole, width
        self._told, self._errors, self._random_state = told, errors, random_state
        floors = [LEAST * float(np.mean(own.raw)) for own in told]
        # a fold's own errors stay out of what it is judged by
        judges = [
            self._judge(floors, [i for i in range(len(models)) if i != k], floors[k])
            for k in range(len(models))
        ]
        sigmas = [judge.sigma(own) for judge, own in zip(judges, told, strict=True)]
        self.scores = np.concatenate(errors) / np.concatenate(sigmas)
        if whole is None:
            self._who = [(*model, judge) for model, judge in zip(models, judges, strict=True)]
            self._fold = np.repeat(np.arange(len(models)), [len(own) for own in errors])
        else:
            everyone = list(range(len(models)))
            self._who = [(*whole, self._judge(floors, everyone, float(np.mean(floors))))]
            self._fold = np.zeros(len(self.scores), dtype=np.intp)

    @property
    def models(self) -> list[Any]:
        """Those of the folds."""
        return [model for model, _ in self._models]

    @property
    def whole(self) -> Any:
        """The model of all points, or None."""
        return None if self._whole is None else self._whole[0]

    def _judge(self, floors: list[float], folds: list[int], floor: float) -> ErrorScale:
        """Who tells the size of errors, from what happened in some folds."""
        if self.width != "learned":
            return ErrorScale(self.width, floor, None, 0.0)
        known = np.concatenate([features(self._told[i], floors[i]) for i in folds])
        errors = np.concatenate([self._errors[i] for i in folds])
        learner = error_size_regressor(self._random_state).fit(known, errors)
        return ErrorScale(self.width, floor, learner, LEAST * float(np.mean(errors)))

    def with_width(self, width: str) -> CrossCalibrated:
        """The same models with another `width`; none is fitted again."""
        check_choice("width", width, WIDTHS)
        return CrossCalibrated(
            self._models, self._whole, self._told, self._errors, width, self._random_state
        )

    def store_in(self, twin: Any = None) -> Any:
        """Let the twin of all points keep what intervals need: the scores, and what judges.

        It then has `predict_interval`, also once it is saved and loaded; the models of the folds
        are not kept. Fitting it again, or adding anchors, makes it forget; once its anchors,
        weights or symmetry are set otherwise, it refuses.

        Parameters
        ----------
        twin : a fitted twin, default=None
            Another twin of the same points; None: the one that predicts here.

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
        if self._whole is None:
            raise ValueError('Only intervals of method="refit" can be kept in a twin.')
        whole, around = self._whole
        twin = whole if twin is None else twin
        keep(twin, self._who[0][2], self.scores, around)
        return twin

    def _predict(self, X: Any) -> tuple[Floats, Floats]:
        """(n, model) predictions and standard deviations."""
        told = [tell(model, X, around) for model, around, _ in self._who]
        sigmas = [judge.sigma(own) for (_, _, judge), own in zip(self._who, told, strict=True)]
        return np.column_stack([own.mean for own in told]), np.column_stack(sigmas)

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """The prediction, of several models their mean; and a calibrated standard deviation."""
        check_bool("return_std", return_std)
        means, sigmas = self._predict(X)
        mean = means.mean(axis=1)
        if not return_std:
            return mean
        return mean, sigmas.mean(axis=1) * np.sqrt(np.mean(self.scores**2))

    def predict_interval(self, X: Any, confidence: float = 0.9) -> Floats:
        """(n, 2): lower and upper ends, which cover with about this probability."""
        level = check_confidence(confidence, len(self.scores))
        means, sigmas = self._predict(X)
        return cross_intervals(means, sigmas, self.scores, self._fold, level)


def cross_intervals(
    means: Floats, sigmas: Floats, scores: Floats, fold: Any, confidence: float
) -> Floats:
    """CV+: quantiles over all points of what the model that left each out says of the query.

    `means` and `sigmas` (query, fold); `scores` and `fold` (point,). Returns (query, 2).

    >>> means, sigmas = np.zeros((1, 1)), np.ones((1, 1))
    >>> scores = np.arange(1.0, 20.0)  # 19 of them
    >>> cross_intervals(means, sigmas, scores, np.zeros(19, dtype=int), 0.9)
    array([[-18.,  18.]])
    """
    n = len(scores)
    k = rank(confidence, n)
    out = np.empty((len(means), 2))
    step = max(1, _BLOCK // n)
    for low in range(0, len(means), step):
        rows = slice(low, low + step)
        mean, reach = means[rows][:, fold], sigmas[rows][:, fold] * scores
        out[rows, 0] = np.partition(mean - reach, k - 1, axis=1)[:, k - 1]
        out[rows, 1] = np.partition(mean + reach, n - k, axis=1)[:, n - k]
    # where folds disagree and little is asked, the quantiles may cross
    return np.sort(out, axis=1)


def check_values(y: Any, n_rows: int) -> Floats:
    """One known value for each row."""
    return validate_target(None, y, n_rows, multi_output=False)
