"""GPRegressor: a Gaussian process as a scikit-learn estimator."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike
from sklearn.base import clone
from sklearn.utils import Tags
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from twinned._compat import BaseEstimator, RegressorMixin
from twinned.models.gaussian_process import GaussianProcess, fit_gaussian_process
from twinned.rows.folds import Folds
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_bool, restore_on_failure


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

    def __init__(
        self,
        kernel: str = "matern",
        *,
        n_counts: int = 0,
        max_rows: int = 2000,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_counts = n_counts
        self.max_rows = max_rows
        self.random_state = random_state

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
