"""Methods of one or several rows: anchors, comparables, applicability, joint samples and ranks."""

from dataclasses import replace
from typing import Literal, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils import check_consistent_length

from twinned.estimators.methods import FittedMethods, per_target
from twinned.fitted.applicability import applicability_columns
from twinned.fitted.explanation import tabulate_comparables
from twinned.fitted.prediction import probability_positive
from twinned.fitted.target import IDENTITY
from twinned.fitted.twin import FittedTwin
from twinned.models.learned_metric import feature_relevance
from twinned.models.resources import limit_threads
from twinned.rows.dask import explain_lazily
from twinned.rows.neighbors import LEARNED, check_metric
from twinned.rows.schema import Floats, Indices, is_dask, row_labels
from twinned.rows.validation import check_bool, check_integer, check_real


class ExplanationMethods(FittedMethods):
    """Methods of a fitted twin that show what predictions are made of, and compare rows."""

    def predict_members(self, X: ArrayLike, *, batch: ArrayLike | None = None) -> Floats:
        """Predict by each member of the model.

        Members are the networks of a neural twin, and those of a blend in the order of its
        `member_names_`, also those without weight. With a single model that is `symmetric`, they
        are its predictions from F(x, anchor) and from −F(anchor, x).

        Returns
        -------
        y : ndarray of shape (n_members, n_queries) or (n_members, n_queries, n_outputs)
        """
        fitted = self.fitted_
        members = fitted.predict_members(self.encode(X, batch=batch))
        return fitted.target.invert(fitted.squeeze(members))

    @overload
    def predict_difference(
        self, A: ArrayLike, B: ArrayLike, return_std: Literal[False] = False
    ) -> Floats: ...

    @overload
    def predict_difference(
        self, A: ArrayLike, B: ArrayLike, return_std: Literal[True]
    ) -> tuple[Floats, Floats]: ...

    @per_target
    def predict_difference(
        self, A: ArrayLike, B: ArrayLike, return_std: bool = False
    ) -> Floats | tuple[Floats, Floats]:
        """F(a, b), the predicted y(a) − y(b), row by row.

        Exactly antisymmetric if `symmetric`. With `return_std`, also the standard deviation over
        the members of the model; of a single model, half the distance between F(a, b) and −F(b, a).
        """
        check_bool("return_std", return_std)
        fitted = self.fitted_
        require_identity(fitted, "predict_difference")
        first = self.validate_queries(A, learn_categories=True)
        # a new category has the same code on both sides
        second = self.validate_queries(B, learn_categories=True, schema=first.schema)
        check_consistent_length(first.matrix, second.matrix)
        value, std = fitted.predict_difference(first, second)
        if not return_std:
            return fitted.squeeze(value)
        if len(fitted.model.member_weights) == 1 and not fitted.model.symmetric:
            model: BaseEstimator = fitted.model
            both_orders = replace(fitted, model=replace(model, symmetric=True))
            std = both_orders.predict_difference(first, second)[1]
        return fitted.squeeze(value), fitted.squeeze(std)

    def predict_anchors(
        self, X: ArrayLike, *, batch: ArrayLike | None = None
    ) -> tuple[Indices, Floats]:
        """Estimate y from each anchor.

        Returns
        -------
        indices : ndarray of shape (n_queries, n_anchors_used)
            Rows of `anchors_X_`.
        estimates : ndarray of shape (n_queries, n_anchors_used) or (…, n_outputs)
        """
        fitted = self.fitted_
        indices, estimates = fitted.predict_anchors(self.encode(X, batch=batch))
        return indices, fitted.squeeze(estimates)

    @per_target
    def loop_inconsistency(
        self,
        X: ArrayLike,
        *,
        n_loops: int = 32,
        random_state: int | np.random.RandomState | None = None,
    ) -> Floats:
        """Mean absolute sum of predicted differences around closed loops through each query.

        Each of `n_loops` loops goes from the query over two random anchors and back; the mean of
        |F(x, i) + F(i, j) + F(j, x)| is returned, (n_queries,) or (n_queries, n_outputs). Loops
        are drawn by `random_state`, or by the estimator's own where that is None.
        """
        fitted, queries = self.fitted_, self.validate_queries(X)
        require_identity(fitted, "loop_inconsistency")
        check_integer("n_loops", n_loops)
        rng = self._generator(random_state)
        return fitted.squeeze(fitted.loop_inconsistency(queries, n_loops, rng))

    @per_target
    def explain(
        self,
        X: ArrayLike,
        n: int = 5,
        *,
        metric: str = LEARNED,
        adjustments: bool = False,
        batch: ArrayLike | None = None,
    ) -> pd.DataFrame:
        """Comparable anchors of each query.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to explain. Of a Dask DataFrame or Array, the result is lazy and has its index.
        n : int, default=5
            Number of anchors per query.
        metric : str, default="learned"
            Metric of the distances: a name of scikit-learn's, or `"learned"`, in which features
            count by their relevance and units do not matter (see `feature_relevance_`).
        adjustments : bool, default=False
            Whether to add one column for each feature, named as the feature: what its change from
            the value of the anchor to that of the query adds. They sum to `difference`. A name that
            the table has already is followed by `" (feature)"`.
        batch : str or array of shape (n_queries,), default=None
            As in `predict`. The table then has the column `offset`, what the batch of the query
            adds to `anchor_y`; adjustments sum to `difference` − `offset`. It is the difference of
            the columns `query_deviation` and `anchor_deviation`, which are relative to the mean of
            all batches; those of a transformed target are on its scale.

        Returns
        -------
        DataFrame
            With the columns `query, anchor, anchor_y, difference, estimate, weight, distance,
            count`: for each query the `n` anchors of largest weight, nearest first among equals,
            and a last row of all other anchors, with the anchor −1 and their weighted means. So the
            weights of a query sum to one, and the weighted estimates to its prediction. `query` is
            the label of the row in the index of X, or its number, and `anchor` the row of
            `anchors_X_`; `count` is the number of its copies, which are one case. Where the
            training table had an index of its own, the column `label` has the labels of the
            anchors. With several outputs, each has rows of its own, with a column `output`.
        """
        fitted, metric = self.fitted_, check_metric(metric)
        check_integer("n", n)
        names = self.feature_labels() if check_bool("adjustments", adjustments) else None
        if is_dask(X):
            options = {"n": n, "metric": metric, "adjustments": adjustments, "batch": batch}
            example = fitted.queries(fitted.anchors.matrix[:1])
            meta = tabulate_comparables(fitted, example, n, metric, features=names).iloc[:0]
            return explain_lazily(self, X, meta, **options)
        labels, queries = row_labels(X), self.encode(X, batch=batch)
        return tabulate_comparables(fitted, queries, n, metric, query_labels=labels, features=names)

    @property
    def feature_relevance_(self) -> Floats:
        """(n_features_in_,) relevance of the features for y, which sums to 1.

        Root mean square slopes of a Gaussian process (Matérn 5/2), per standard deviation of each
        feature. The process is fitted in the fit of a blend or with folds, where a strategy needs
        the learned metric, and when intervals are stored; else when it is first needed.
        """
        anchors = self.fitted_.anchors
        return feature_relevance(anchors.metric, anchors.schema)

    @property
    def feature_importances_(self) -> Floats:
        """`feature_relevance_`, by the name that `RFECV` and `SelectFromModel` look for."""
        return self.feature_relevance_

    @per_target
    def applicability(self, X: ArrayLike) -> pd.DataFrame:
        """Whether each row is inside, at the edge, or outside of the anchors.

        The expected error of a row is the standard deviation of a Gaussian process with the learned
        length scales and noise, times the size of the errors of known rows near it; that of each
        anchor is computed without itself, or without its group where the twin has `groups`. Rows up
        to the expected error of 70 % of the anchors are `"inside"`, those beyond that of 97.5 % are
        `"outside"`, and others are at the `"edge"`. A row with a feature beyond the range of the
        anchors is at least at the edge; one with a category that no anchor has, beyond the range by
        more than its width, or without a value of a feature that all anchors have, is outside.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to classify.

        Returns
        -------
        DataFrame
            With the index of X and the columns `score`, the expected error in units of that of the
            median anchor, and `label`. After `measure_applicability`, also `error` and `coverage`
            of held-out rows of that class: their root mean square error, and the share of them
            within their prediction interval. Both are NaN for a row with a new category, which no
            held-out row has.
        """
        fitted, queries = self.fitted_, self.validate_queries(X)
        columns = applicability_columns(fitted.anchors.domain, queries, fitted.applicability)
        return pd.DataFrame(columns, index=X.index if isinstance(X, pd.DataFrame) else None)

    # --- rows whose errors are correlated --------------------------------------------------------

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
        DataFrame
            With the index of X, the best prediction first, and the columns `row`, the number of the
            row in X, `prediction`, `std`, `expected_rank`, the mean rank among the rows, which
            begins with 1, and `probability_best`, the share of samples in which the row is the
            best.

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
        if prediction.fitted.target != IDENTITY:
            error_std = prediction.fitted.target.slope(mean) * error_std
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
            correlated as in `sample`, so that there are at most 5,000 rows together.
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
        fitted, queries = self.fitted_, self.encode(X, batch=batch)
        if np.ndim(than) == 0 and not hasattr(than, "columns"):
            prediction = fitted.predict(queries)
            threshold = fitted.target.apply(np.array(check_real("than", than)))
            return probability_positive(
                sign * (prediction.location - threshold), prediction.error_std
            )
        n_rows, others = len(queries), fitted.in_batches(self.validate_queries(than), None)
        if len(others) not in (1, n_rows):
            raise ValueError(f"than has {len(others)} rows; give one, or {n_rows} as in X.")
        joint = fitted.predict(queries.append(others)).joint
        first, second = np.arange(n_rows), n_rows + np.arange(len(others))
        std, std_of_others = joint.std[first], joint.std[second]
        covariance = joint.correlation[first, second] * std * std_of_others
        variance = np.maximum(std**2 + std_of_others**2 - 2 * covariance, 0.0)
        difference = joint.mean[first] - joint.mean[second]
        return probability_positive(sign * difference, np.sqrt(variance))


def require_identity(fitted: FittedTwin, method: str) -> None:
    """Raise for a method whose result has no unit where the target is transformed."""
    if fitted.target != IDENTITY:
        raise ValueError(
            f"{method} is not defined for a transformed target; use that of the twin in "
            "regressor_, which is on the scale of the transformed target."
        )
