"""Methods for several rows at once: joint samples, ranks and comparisons."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from twinned.estimators.fitted_attributes import FittedAttributes
from twinned.fitted.prediction import Prediction, TargetPredictions, probability_positive
from twinned.fitted.target import IDENTITY
from twinned.fitted.updating import in_batches
from twinned.models.resources import limit_threads
from twinned.rows.schema import Floats, row_labels
from twinned.rows.validation import check_bool, check_integer, check_real


class JointMethods(FittedAttributes):
    """Methods of a fitted twin for rows whose errors are correlated."""

    predict_distribution: Callable[..., Prediction | TargetPredictions]

    def sample(
        self,
        X: ArrayLike,
        n_samples: int = 1,
        *,
        random_state: int | np.random.RandomState | None = None,
        batch: ArrayLike | None = None,
    ) -> Floats:
        """Draw joint samples of y, each of which is one function at all rows.

        The samples are normal. Their mean is the prediction, and their standard deviation that of
        the errors: the error scale of the stored intervals times the root mean square of its
        scores, where the twin stores a calibration, as `AutoTwinRegressor` does, and else twice the
        raw standard deviation of `predict`, as the spread of the anchors is about half of the error
        of held-out rows. Rows are correlated where the estimates of the anchors and members deviate
        from their mean alike, and where they are near to each other in units of the learned length
        scales; a third of the correlation is independence.

        Parameters
        ----------
        X : table or array of shape (n_rows, n_features)
            Rows to sample, at most 5,000.
        n_samples : int, default=1
            Number of samples.
        random_state : int, RandomState or None, default=None
            Seed of the draws; None is that of the estimator. The first samples do not depend on
            `n_samples`. Samples of different rows are different functions, even with the same seed.
        batch : str or array of shape (n_rows,), default=None
            As in `predict`.

        Returns
        -------
        samples : ndarray of shape (n_samples, n_rows)

        Examples
        --------
        >>> from sklearn.linear_model import Ridge
        >>> from twinned import TwinRegressor
        >>> twin = TwinRegressor(Ridge()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> twin.sample([[0.5], [0.6]], 100, random_state=0).shape
        (100, 2)
        """
        check_integer("n_samples", n_samples)
        with limit_threads(self.n_jobs):
            prediction = self.predict_distribution(X, batch=batch)
            return prediction.sample(n_samples, self._generator(random_state))

    def rank(
        self,
        X: ArrayLike,
        *,
        maximize: bool = True,
        n_samples: int = 1000,
        random_state: int | np.random.RandomState | None = None,
        batch: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Rank rows by their predicted value, with the certainty of the ranks.

        Parameters
        ----------
        X : table or array of shape (n_rows, n_features)
            Rows to compare, at most 5,000.
        maximize : bool, default=True
            Whether the largest value is the best, or the smallest.
        n_samples : int, default=1000
            Number of joint samples from which ranks and probabilities are computed.
        random_state : int, RandomState or None, default=None
            As in `sample`.
        batch : str or array of shape (n_rows,), default=None
            As in `predict`.

        Returns
        -------
        DataFrame with the index of X, the best prediction first, and the columns `row`, the number
        of the row in X, `prediction`, `std`, `expected_rank`, the mean rank among the rows, which
        begins with 1, and `probability_best`, the share of samples in which the row is the best.

        Examples
        --------
        >>> from sklearn.linear_model import Ridge
        >>> from twinned import TwinRegressor
        >>> twin = TwinRegressor(Ridge()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> twin.rank([[0.5], [1.9], [0.1]])["row"].tolist()
        [1, 0, 2]
        """
        sign = 1.0 if check_bool("maximize", maximize) else -1.0
        self.require_single_target()
        check_integer("n_samples", n_samples)
        with limit_threads(self.n_jobs):
            prediction = self.fitted_.predict(self.encode(X, batch=batch))
            samples = prediction.sample(n_samples, self._generator(random_state))
        best_first = np.argsort(-sign * samples, axis=1, kind="stable")
        mean, n_rows = prediction.mean, len(prediction.mean)
        error_std = prediction.error_std
        if prediction.target != IDENTITY:
            error_std = prediction.target.slope(mean) * error_std
        table = pd.DataFrame(
            {
                "row": np.arange(n_rows),
                "prediction": mean,
                "std": error_std,
                "expected_rank": 1.0 + np.argsort(best_first, axis=1).mean(axis=0),
                "probability_best": np.bincount(best_first[:, 0], minlength=n_rows) / n_samples,
            },
            index=row_labels(X),
        )
        return table.iloc[np.argsort(-sign * mean, kind="stable")]

    def probability_better(
        self,
        X: ArrayLike,
        than: ArrayLike,
        *,
        maximize: bool = True,
        batch: ArrayLike | None = None,
    ) -> Floats:
        """Probability that a measurement of each row is better than a value or other rows.

        Parameters
        ----------
        X : table or array of shape (n_rows, n_features)
            Rows to compare.
        than : float, or table or array of shape (n_rows or 1, n_features)
            A value of y; or other rows, one for each row of X or one for all. Their errors are
            correlated as in `sample`.
        maximize : bool, default=True
            Whether the larger value is better, or the smaller.
        batch : str or array of shape (n_rows,), default=None
            Batch of the rows of X, as in `predict`; other rows have the mean of all offsets.

        Returns
        -------
        probability : ndarray of shape (n_rows,)

        Examples
        --------
        >>> from sklearn.linear_model import Ridge
        >>> from twinned import TwinRegressor
        >>> twin = TwinRegressor(Ridge()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> twin.probability_better([[0.5], [1.9]], than=[[0.5]]).round(2)
        array([0.5 , 0.99])
        """
        sign = 1.0 if check_bool("maximize", maximize) else -1.0
        self.require_single_target()
        prediction = self.fitted_.predict(self.encode(X, batch=batch))
        location, std = prediction.location, prediction.error_std
        if np.ndim(than) == 0 and not hasattr(than, "columns"):
            threshold = prediction.target.apply(np.array(check_real("than", than)))
            return probability_positive(sign * (location - threshold), std)
        of_no_batch = in_batches(self.fitted_, self.validate_queries(than), None)
        others = self.fitted_.predict(of_no_batch)
        if len(others.queries) not in (1, len(prediction.queries)):
            n_rows = len(prediction.queries)
            raise ValueError(f"than has {len(others.queries)} rows; give one, or {n_rows} as in X.")
        covariance = prediction.paired_error_covariance(others)
        variance = np.maximum(std**2 + others.error_std**2 - 2 * covariance, 0.0)
        return probability_positive(sign * (location - others.location), np.sqrt(variance))
