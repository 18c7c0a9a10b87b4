"""GPRegressor and PowerRegressor: regressors that are members of blends."""

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from twinned._compat import BaseEstimator, RegressorMixin
from twinned.models.gaussian_process import GaussianProcess, fit_gaussian_process
from twinned.rows.folds import Folds, row_folds
from twinned.rows.scaling import PowerScaling
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_bool, restore_on_failure

_FOLDS = 5
# Nodes and weights of Gauss–Hermite quadrature: means over a normal distribution.
_NODES = np.polynomial.hermite_e.hermegauss(15)
QUADRATURE = _NODES[0], _NODES[1] / _NODES[1].sum()


@dataclass(eq=False, repr=False)
class GPRegressor(RegressorMixin, BaseEstimator):
    """Exact Gaussian process regression with one length scale per feature, and of counts.

    Parameters
    ----------
    kernel : {"matern", "rbf"}, default="matern"
        Matérn 5/2 or squared exponential.
    n_counts : int, default=0
        Number of leading features that are counts, such as those of the fragments of molecules.
        The kernel is then the weighted mean of their Tanimoto similarity and of the kernel of the
        other features, which have one length scale and are not standardized.
    max_rows : int, default=2000
        Number of rows in the predictive equations; of more rows, a random subset is used. The
        hyperparameters are chosen by at most half as many, or 500.
    random_state : int, RandomState or None, default=None
        Seed of the subset.

    Attributes
    ----------
    process_ : GaussianProcess
        The fitted process, with its length scales.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(150, random_state=0)
    >>> model = GPRegressor("rbf").fit(X[:100], y[:100])
    >>> bool(model.score(X[100:], y[100:]) > 0.999)
    True
    """

    kernel: str = "matern"
    _: KW_ONLY
    n_counts: int = 0
    max_rows: int = 2000
    random_state: int | np.random.RandomState | None = None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(
        self,
        X: Floats,
        y: Floats,
        sample_weight: Floats | None = None,
        similar: GaussianProcess | None = None,
    ) -> Self:
        """Choose the hyperparameters by maximum marginal likelihood, and store the rows.

        Parameters
        ----------
        X : array of shape (n, n_features)
            Numeric features without missing values, counts first.
        y : array of shape (n,) or (n, n_outputs)
            Target values; several outputs share the hyperparameters.
        sample_weight : array of shape (n,), default=None
            Divides the noise variance of a row.
        similar : GaussianProcess, default=None
            Of similar rows, from whose length scales and noise the search starts.
        """
        with restore_on_failure(self):
            X, y = validate_data(self, X, y, multi_output=True, dtype=np.float64, y_numeric=True)
            if sample_weight is not None:
                sample_weight = _check_sample_weight(
                    sample_weight, X, dtype=np.float64, ensure_non_negative=True
                )
            self.process_: GaussianProcess = fit_gaussian_process(
                X,
                y,
                kernel=self.kernel,
                n_counts=self.n_counts,
                sample_weight=sample_weight,
                max_rows=self.max_rows,
                max_likelihood_rows=max(500, self.max_rows // 2),
                similar=similar,
                random_state=self.random_state,
            )
        return self

    def fit_with_folds(
        self, X: Floats, y: Floats, sample_weight: Floats | None, folds: Folds
    ) -> Self:
        """Fit, with out-of-fold predictions by given folds; NaN where none holds out a row.

        The hyperparameters of each fold are chosen without its rows. Their search starts at those
        of all rows, so that it does not end in another local optimum.
        """
        self.fit(X, y, sample_weight)
        prediction = np.full(y.shape, np.nan)

        def predict(training: Indices, held_out: Indices) -> None:
            weight = None if sample_weight is None else sample_weight[training]
            model = clone(self).fit(X[training], y[training], weight, self.process_)
            prediction[held_out] = model.predict(X[held_out])

        Parallel(require="sharedmem")(delayed(predict)(*fold) for fold in folds)
        self.out_of_fold_prediction_ = prediction
        return self

    def predict(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Mean of y and, with `return_std`, the standard deviation of a new observation."""
        check_is_fitted(self)
        check_bool("return_std", return_std)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        return self.process_.predict(rows, return_std=return_std)


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


@dataclass(eq=False, repr=False)
class PowerRegressor(RegressorMixin, BaseEstimator):
    """A regressor of Yeo–Johnson transformed features and of a transformed target.

    Features whose skewness is small stay as they are, and so does such a target. All are
    standardized. A prediction is the mean of y: the transformed target is taken as normal, with the
    standard deviation of its out-of-fold errors. Predictions exceed the range of the training
    values by at most its width.

    Parameters
    ----------
    regressor : estimator
        A `GPRegressor`, or a linear model of scikit-learn.

    Attributes
    ----------
    model_ : TransformedModel
        The transformations, of which those with the power 1 are the identity, and the fitted
        regressor.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.linear_model import RidgeCV
    >>> X = np.random.RandomState(0).lognormal(size=(100, 2))
    >>> model = PowerRegressor(RidgeCV()).fit(X, X.prod(axis=1))
    >>> bool(model.model_.features.power.max() < 1), bool(model.model_.target.power[0] < 1)
    (True, True)
    """

    regressor: Any

    def fit(self, X: Floats, y: Floats, sample_weight: Floats | None = None) -> Self:
        """Fit to all rows; five folds give the errors of the transformed target.

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

        The transformations of a fold are fitted without its rows. The error of the scaled target in
        a fold is that of the other folds, so that it does not depend on the rows that are
        predicted.
        """
        with restore_on_failure(self):
            X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
            weight = np.ones(len(y)) if sample_weight is None else np.asarray(sample_weight)
            model = self._fit_rows(X, y, weight)
            fold_models = Parallel(require="sharedmem")(
                delayed(self._fit_rows)(X[training], y[training], weight[training], similar=model)
                for training, _ in folds
            )
            scaled, residuals, prediction = np.full((3, len(y)), np.nan)
            for (_, held_out), fold_model in zip(folds, fold_models, strict=True):
                scaled[held_out] = fold_model.scaled_prediction(X[held_out])
                scaled_y = fold_model.target.transform(y[held_out, None])[:, 0]
                residuals[held_out] = scaled[held_out] - scaled_y
            for (_, held_out), fold_model in zip(folds, fold_models, strict=True):
                others = np.delete(np.arange(len(y)), held_out)
                error = _root_mean_square(residuals[others], weight[others])
                prediction[held_out] = replace(fold_model, error=error).mean(scaled[held_out])
            self.model_: TransformedModel = replace(
                model, error=_root_mean_square(residuals, weight)
            )
            self.out_of_fold_prediction_ = prediction
        return self

    def _fit_rows(
        self, X: Floats, y: Floats, weight: Floats, similar: TransformedModel | None = None
    ) -> TransformedModel:
        """Fit to rows; the search of a process starts from the model of similar rows."""
        features = PowerScaling.fit(X, powers=True)
        target = PowerScaling.fit(y[:, None], powers=True)
        regressor, start = clone(self.regressor), {}
        if similar is not None and isinstance(regressor, GPRegressor):
            start = {"similar": similar.regressor.process_}
        scaled_y = target.transform(y[:, None])[:, 0]
        regressor.fit(features.transform(X), scaled_y, sample_weight=weight, **start)
        return TransformedModel(
            features=features,
            target=target,
            regressor=regressor,
            lower=2 * y.min() - y.max(),
            upper=2 * y.max() - y.min(),
        )

    def predict(self, X: ArrayLike) -> Floats:
        """Mean of y."""
        check_is_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        return self.model_.mean(self.model_.scaled_prediction(rows))


def _root_mean_square(residuals: Floats, weight: Floats) -> float:
    known = ~np.isnan(residuals)  # NaN where no fold holds out a row
    return float(np.sqrt(np.average(residuals[known] ** 2, weights=weight[known])))
