"""PowerRegressor: a regressor of power-transformed features, target or both."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from twinned.estimators.gaussian_process import GPRegressor
from twinned.rows.folds import Folds, row_folds
from twinned.rows.scaling import PowerScaling, skewed_columns
from twinned.rows.schema import Floats
from twinned.rows.validation import restore_on_failure

_FOLDS = 5
CHOICE_ROWS = 400  # by which the transformation is chosen
# Nodes and weights of Gauss–Hermite quadrature: means over a normal distribution.
_NODES = np.polynomial.hermite_e.hermegauss(15)
QUADRATURE = _NODES[0], _NODES[1] / _NODES[1].sum()


@dataclass(frozen=True, eq=False)
class TransformedModel:
    """A regressor of scaled features and of a scaled target, which has one column."""

    features: PowerScaling
    target: PowerScaling
    regressor: Any
    lower: float  # limits of predictions
    upper: float
    error: float = 0.0  # standard deviation of the scaled target around its prediction

    def scaled_prediction(self, X: Floats) -> Floats:
        """(row,): the prediction of the scaled target."""
        return self.regressor.predict(self.features.transform(X))

    def mean(self, scaled: Floats) -> Floats:
        """(row,): means of y, where the scaled target is normal around its (row,) prediction."""
        nodes, weights = QUADRATURE
        values = self.target.invert(scaled[:, None] + self.error * nodes)
        return values.clip(self.lower, self.upper) @ weights


class PowerRegressor(RegressorMixin, BaseEstimator):
    """A regressor of Yeo–Johnson transformed features, of a transformed target or of both.

    Which of the three is chosen by out-of-fold error. Features whose skewness is small stay as
    they are, and so does such a target. All are standardized. A prediction is the mean of y: the
    transformed target is taken as normal, with the standard deviation of its out-of-fold errors.
    Predictions exceed the range of the training values by at most its width.

    Parameters
    ----------
    regressor : estimator
        A `GPRegressor`, or a linear model of scikit-learn.

    Attributes
    ----------
    transform_ : {"features", "target", "both", "none"}
        What is transformed.
    model_ : TransformedModel
        The transformations and the fitted regressor.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.linear_model import RidgeCV
    >>> X = np.random.RandomState(0).lognormal(size=(100, 2))
    >>> PowerRegressor(RidgeCV()).fit(X, X.prod(axis=1)).transform_
    'both'
    """

    def __init__(self, regressor):
        self.regressor = regressor

    def fit(self, X, y, sample_weight=None):
        """Choose the transformation by five folds, and fit to all rows.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Numeric features without missing values.
        y : array of shape (n,)
            Target values.
        sample_weight : array of shape (n,), default=None
            Weights of the rows; the transformations do not depend on them.
        """
        if len(y) < 2:
            raise ValueError(f"PowerRegressor needs at least 2 rows, not {len(y)}.")
        return self.fit_with_folds(X, y, sample_weight, row_folds(len(y), min(_FOLDS, len(y)), 0))

    def fit_with_folds(
        self, X: Floats, y: Floats, sample_weight: Floats | None, folds: Folds
    ) -> Self:
        """Fit, with out-of-fold predictions by given folds; NaN where none holds out a row.

        The transformations of a fold are fitted without its rows. Of many rows, a random subset
        chooses between features, target and both.
        """
        with restore_on_failure(self):
            X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
            weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
            rows: list[Any] = [X, y, weight, folds]
            many = len(y) > CHOICE_ROWS
            few = np.random.RandomState(0).permutation(len(y))[:CHOICE_ROWS]
            among = [tuple(np.flatnonzero(np.isin(few, part)) for part in fold) for fold in folds]
            among = [fold for fold in among if all(map(len, fold))]
            subset = [X[few], y[few], weight[few], among] if many else rows
            fits = {name: self._cross_fit(name, *subset) for name in _applicable(X, y)}
            self.transform_ = min(fits, key=lambda name: fits[name][2])
            best = self._cross_fit(self.transform_, *rows) if many else fits[self.transform_]
            self.model_, self.out_of_fold_prediction_, _ = best
        return self

    def _cross_fit(
        self, transform: str, X: Floats, y: Floats, weight: Floats, folds: Folds
    ) -> tuple[TransformedModel, Floats, float]:
        """The model of all rows, (row,) out-of-fold predictions and their error.

        The error of the scaled target in a fold is that of the other folds, so that it does not
        depend on the rows that are predicted.
        """
        model = self._fit_rows(transform, X, y, weight)
        models = Parallel(require="sharedmem")(
            delayed(self._fit_rows)(transform, X[t], y[t], weight[t], model) for t, _ in folds
        )
        scaled, errors, prediction = np.full((3, len(y)), np.nan)
        for (_, rows), other in zip(folds, models, strict=True):
            scaled[rows] = other.scaled_prediction(X[rows])
            errors[rows] = scaled[rows] - other.target.transform(y[rows, None])[:, 0]
        for (_, rows), other in zip(folds, models, strict=True):
            error = _root_mean_square(np.delete(errors, rows), np.delete(weight, rows))
            prediction[rows] = replace(other, error=error).mean(scaled[rows])
        model = replace(model, error=_root_mean_square(errors, weight))
        return model, prediction, _root_mean_square(prediction - y, weight)

    def _fit_rows(
        self, transform: str, X: Floats, y: Floats, weight: Floats, similar: Any = None
    ) -> TransformedModel:
        """Fit to rows; the search of a process starts from the model of similar rows."""
        features = PowerScaling.fit(X, powers=transform in ("features", "both"))
        target = PowerScaling.fit(y[:, None], powers=transform in ("target", "both"))
        regressor, start = clone(self.regressor), {}
        if similar is not None and isinstance(regressor, GPRegressor):
            start = {"similar": similar.regressor.process_}
        scaled = features.transform(X), target.transform(y[:, None])[:, 0]
        regressor.fit(*scaled, sample_weight=weight, **start)
        limits = 2 * y.min() - y.max(), 2 * y.max() - y.min()
        return TransformedModel(features, target, regressor, *limits)

    def predict(self, X):
        """Mean of y."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        return self.model_.mean(self.model_.scaled_prediction(rows))


def _applicable(X: Floats, y: Floats) -> list[str]:
    """The transformations of skewed features (row, feature) and of a skewed target (row,)."""
    parts = {"features": X, "target": y[:, None]}
    names = [name for name, values in parts.items() if skewed_columns(values).any()]
    return [*names, "both"] if len(names) == 2 else names or ["none"]


def _root_mean_square(errors: Floats, weight: Floats) -> float:
    known = ~np.isnan(errors)  # NaN where no fold holds out a row
    return float(np.sqrt(np.average(errors[known] ** 2, weights=weight[known])))
