"""Joint samples of a fitted twin, and what follows from them: ranks and probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.utils import check_random_state

from twinned.estimators.joint import MAX_ROWS, ErrorFeatures, JointPrediction, probability_positive
from twinned.intervals.stored import StoredIntervals
from twinned.models.resources import limit_threads
from twinned.rows.schema import row_labels
from twinned.rows.validation import check_bool, check_integer, check_real

if TYPE_CHECKING:
    from twinned.estimators.blocks import Queries
    from twinned.estimators.predictor import TwinPredictor
    from twinned.rows.neighbors import Indices, LearnedMetric
    from twinned.rows.schema import Floats, Rows

# The anchors whose estimates are the functions; of more, a fixed random subset.
_MAX_ANCHORS = 200
# Root mean square error of held-out rows in units of the spread of the anchors' estimates: medians
# over tables are 1.6 for 30 rows and 2.5 for 100 (`benchmarks/results/joint_errors.md`).
SPREAD_FACTOR = 2.0


class SamplingMixin:
    """The methods of a fitted twin that regard several rows at once."""

    if TYPE_CHECKING:
        anchors_y_: Floats
        n_jobs: int | None
        random_state: Any
        _anchors: Rows

        def predict(self, X: Any, return_std: bool = False) -> Any: ...
        def _predictor(self) -> TwinPredictor: ...
        def _validate_queries(self, X: Any) -> Queries: ...
        def _metric(self) -> LearnedMetric: ...
        def _measured_features(self) -> Floats: ...
        def _predict_error_scale(
            self, X: Any, stored: StoredIntervals
        ) -> tuple[Floats, Floats, Floats]: ...

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> Floats:
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
            return self._predict_jointly(X).sample(n_samples, self._generator(random_state))

    def rank(
        self, X: Any, *, maximize: bool = True, n_samples: int = 1000, random_state: Any = None
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
        check_integer("n_samples", n_samples)
        sign = 1.0 if check_bool("maximize", maximize) else -1.0
        with limit_threads(self.n_jobs):
            joint = self._predict_jointly(X)
            samples = sign * joint.sample(n_samples, self._generator(random_state))
        best_first = np.argsort(-samples, axis=1, kind="stable")
        n_rows = len(joint.mean)
        table = pd.DataFrame(
            {
                "row": np.arange(n_rows),
                "prediction": joint.mean,
                "std": joint.std,
                "expected_rank": 1.0 + np.argsort(best_first, axis=1).mean(axis=0),
                "probability_best": np.bincount(best_first[:, 0], minlength=n_rows) / n_samples,
            },
            index=row_labels(X),
        )
        return table.iloc[np.argsort(-sign * joint.mean, kind="stable")]

    def probability_better(self, X: Any, than: Any, *, maximize: bool = True) -> Floats:
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
        mean, std = self._predict_error(X)
        if np.ndim(than) == 0 and not hasattr(than, "columns"):
            return probability_positive(sign * (mean - check_real("than", than)), std)
        other_mean, other_std = self._predict_error(than)
        own, other = self._error_features(X), self._error_features(than)
        if len(other_mean) == 1:
            other = other.repeat(len(mean))
        elif len(other_mean) != len(mean):
            raise ValueError(
                f"than has {len(other_mean)} rows and X has {len(mean)}; give one row, or as many."
            )
        covariance = own.paired_correlation(other) * std * other_std
        variance = np.maximum(std**2 + other_std**2 - 2 * covariance, 0.0)
        return probability_positive(sign * (mean - other_mean), np.sqrt(variance))

    # --- steps --------------------------------------------------------------------------------

    def _predict_jointly(self, X: Any) -> JointPrediction:
        """The joint distribution of y at the rows."""
        mean, std = self._predict_error(X)
        if len(mean) > MAX_ROWS:
            raise ValueError(f"X has {len(mean)} rows; joint samples have at most {MAX_ROWS}.")
        return JointPrediction(mean, std, self._error_features(X).correlation())

    def _predict_error(self, X: Any) -> tuple[Floats, Floats]:
        """(row,): the prediction and the standard deviation of its error."""
        self._validate_queries(X)
        if self.anchors_y_.ndim > 1:
            raise ValueError(
                f"Joint samples need a single output, but y has {self.anchors_y_.shape[1]}."
            )
        if hasattr(self, "intervals_"):
            stored = StoredIntervals(self)
            mean, _, scale = self._predict_error_scale(X, stored)
            return mean, scale * np.sqrt(np.mean(stored.scores**2))
        mean, std = self.predict(X, return_std=True)
        return mean, SPREAD_FACTOR * std

    def _error_features(self, X: Any) -> ErrorFeatures:
        queries = self._validate_queries(X)
        n_anchors = len(self._anchors)
        anchors: Indices = np.arange(n_anchors)
        if n_anchors > _MAX_ANCHORS:
            anchors = np.sort(np.random.RandomState(0).permutation(n_anchors)[:_MAX_ANCHORS])
        deviations = self._predictor().deviations(queries, anchors)
        features = queries.take(slice(None)).features
        return ErrorFeatures.of(deviations, features, self._anchors.features, self._metric())

    def _generator(self, random_state: Any) -> np.random.RandomState:
        return check_random_state(self.random_state if random_state is None else random_state)
