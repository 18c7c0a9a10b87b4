"""Methods of every fitted twin: predictions, intervals, comparables and joint samples."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, Literal, Self, overload

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.metrics import r2_score
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from twinned._compat import RegressorMixin, safe_indexing
from twinned.estimators.several_targets import per_target, target_columns
from twinned.fitted.anchors import Queries
from twinned.fitted.applicability import applicability_columns, warn_of_shift
from twinned.fitted.calibration import Calibration
from twinned.fitted.explanation import tabulate_comparables
from twinned.fitted.prediction import NO_CALIBRATION, Prediction, TargetPredictions
from twinned.fitted.quantiles import check_levels
from twinned.fitted.sampling import probability_positive
from twinned.fitted.target import IDENTITY
from twinned.fitted.twin import FittedTwin
from twinned.fitted.updating import add_rows, in_batches
from twinned.models.learned_metric import feature_relevance
from twinned.models.resources import limit_threads
from twinned.pairing.anchors import as_anchor_strategy, as_weight_strategy
from twinned.rows.dask import check_in_memory, explain_lazily, map_rows, predict_lazily
from twinned.rows.neighbors import LEARNED, check_metric
from twinned.rows.schema import Floats, Indices, TableSchema, is_dask, row_labels
from twinned.rows.validation import (
    check_bool,
    check_choice,
    check_integer,
    check_real,
    validate_target,
)


class PredictionMethods:
    """Methods of the predictive distribution, `predict_distribution` of an estimator."""

    predict_distribution: Any

    def predict_cdf(self, X: ArrayLike, y: ArrayLike, **options: Any) -> Floats:
        """(n_queries,): probability that a measurement of each row is at most y.

        `y` is one value, or one for each row.
        """
        return self.predict_distribution(X, **options).cdf(y)

    def log_density(self, X: ArrayLike, y: ArrayLike, **options: Any) -> Floats:
        """(n_queries,): logarithm of the predictive density at y, one value or one for each row.

        It is finite everywhere, except where a transformed target makes y impossible.
        """
        return self.predict_distribution(X, **options).log_density(y)


class TwinMethods(PredictionMethods, RegressorMixin):
    """Methods of a fitted twin, each of which is a function of its `FittedTwin`."""

    n_jobs: int | None
    random_state: Any
    # whether it is a blend: its model is bound to its own anchors
    is_blend = False
    targets_: list[Any] = []  # noqa: RUF012 (fitted models of several targets, only of blends)

    @property
    @abstractmethod
    def fitted_(self) -> FittedTwin:
        """The fitted state: a difference model, its anchors, weights and calibration."""

    @abstractmethod
    def with_fitted(self, fitted: FittedTwin) -> Self:
        """A copy of the estimator with another fitted state."""

    @abstractmethod
    def validate_queries(
        self, X: Any, *, learn_categories: bool = False, schema: TableSchema | None = None
    ) -> Queries:
        """Validated rows without batches; with `learn_categories`, new ones are in their schema.

        The schema is that of the anchors, or a given one.
        """

    def encode(self, X: Any, *, batch: Any = None) -> Queries:
        """Validated rows to predict."""
        check_in_memory(X, "X")
        return in_batches(self.fitted_, self.validate_queries(X), batch)

    @property
    def calibration_(self) -> Calibration | None:
        """The stored calibration of prediction intervals, or None."""
        return self.fitted_.calibration

    @property
    def applicability_(self) -> pd.DataFrame | None:
        """`rows`, `error` and `coverage` of each class, as by `measure_applicability`, or None."""
        measured = self.fitted_.applicability
        return None if measured is None else measured.table()

    @property
    def anchors_X_(self) -> Floats:
        """(n_anchors, n_features): anchors, with categories as codes."""
        return self.fitted_.anchors.X

    @property
    def anchors_y_(self) -> Floats:
        """(n_anchors,) or (n_anchors, n_outputs): known values of the anchors."""
        return self.fitted_.anchors.y

    @property
    def anchor_weights_(self) -> Floats | None:
        """(n_anchors,): sample weights of the anchors, or None."""
        return self.fitted_.anchors.weights

    @property
    def anchor_labels_(self) -> list[Any] | None:
        """Labels of the anchors in the training table, or None where it had no index."""
        return self.fitted_.anchors.labels

    @property
    def anchor_rows_(self) -> Indices:
        """(n_anchors,): rows of the training table; −1 of anchors that were added."""
        return self.fitted_.anchors.table_rows

    @property
    def anchor_groups_(self) -> Indices | None:
        """(n_anchors,): codes of groups that are held out together, or None."""
        return self.fitted_.anchors.groups

    @property
    def anchor_residuals_(self) -> Floats | None:
        """Out-of-fold residuals like `anchors_y_`, minus their mean; None without folds."""
        residuals = self.fitted_.residuals
        return None if residuals is None else self.fitted_.squeeze(residuals)

    @property
    def local_power_(self) -> float:
        """The power of `GPWeights` that weights the estimates by residuals; 0 for equal weights."""
        weights = self.fitted_.local_weights
        return 0.0 if weights is None else float(weights.power)

    @property
    @per_target
    def batch_offsets_(self) -> pd.DataFrame:
        """`offset`, `std_error` and `n_rows` of each batch, relative to the mean of all batches."""
        batches, codes = self.fitted_.batches, self.fitted_.anchors.batch
        if batches is None or codes is None:
            raise AttributeError("The model has no batches; fit(X, y, batch=…) estimates offsets.")
        return batches.table(np.bincount(codes, minlength=len(batches.names)))

    @property
    @per_target
    def batch_effects_(self) -> pd.DataFrame:
        """What each batch deviates by, with slopes of numeric features and errors of its rows."""
        table = self.batch_offsets_
        batches, schema = self.fitted_.batches, self.fitted_.schema
        assert batches is not None, "the model has batches"
        names = self.feature_labels()
        columns = {names[j]: column for column, j in enumerate(schema.numeric)}
        return batches.details(table["n_rows"].to_numpy(), columns)

    @property
    def schema_(self) -> TableSchema:
        """Kinds and categories of the features."""
        return self.targets_[0].schema_ if self.targets_ else self.fitted_.schema

    def require_single_target(self) -> None:
        """Raise where the model is not fitted or has several targets."""
        check_is_fitted(self)
        if self.targets_:
            n = len(self.targets_)
            raise ValueError(f"The model has {n} targets; use one of them: model.targets_[0].")

    def feature_labels(self) -> list[str]:
        """Names of the features, or x0, x1, … where the training table had none."""
        names = getattr(self, "feature_names_in_", None)
        if names is not None:
            return [str(name) for name in names]
        return [f"x{j}" for j in range(self.schema_.n_features)]

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[False] = False, *, batch: ArrayLike | None = None
    ) -> Floats: ...

    @overload
    def predict(
        self, X: ArrayLike, return_std: Literal[True], *, batch: ArrayLike | None = None
    ) -> tuple[Floats, Floats]: ...

    def predict(
        self, X: ArrayLike, return_std: bool = False, *, batch: ArrayLike | None = None
    ) -> Floats | tuple[Floats, Floats]:
        """Predict by the weighted mean over anchors of predicted difference + known value.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to predict. Of a Dask DataFrame or Array, the result is lazy.
        return_std : bool, default=False
            Whether to return a standard deviation, too. That of a model which stores a calibration,
            as `AutoTwinRegressor` does, is calibrated: the error scale of `predict_interval` times
            the root mean square of the out-of-fold scores. That of others is raw: of the estimates
            of all anchors by all members of the model. `cross_conformal` calibrates it.
        batch : str or array of shape (n_queries,), default=None
            Batch of all rows or of each, for a model that was fitted with batches; that of a Dask
            collection is one of all rows. Rows of a batch without known rows, or without `batch`,
            are predicted with the mean of all offsets.

        Returns
        -------
        y : ndarray of shape (n_queries,) or (n_queries, n_outputs)
        std : ndarray of the same shape, only with `return_std`
        """
        check_bool("return_std", return_std)
        if is_dask(X):
            return predict_lazily(self, X, return_std, self.n_outputs_, batch=batch)
        prediction = self.predict_distribution(X, batch=batch)
        return (prediction.mean, prediction.std) if return_std else prediction.mean

    @property
    def n_outputs_(self) -> int | None:
        """The number of outputs, or None where y is one-dimensional."""
        if self.targets_:
            return len(self.targets_)
        y = self.fitted_.anchors.y
        return None if y.ndim == 1 else y.shape[1]

    def predict_distribution(
        self,
        X: ArrayLike,
        *,
        batch: ArrayLike | None = None,
        of: str = "measurement",
        y_std: ArrayLike | None = None,
    ) -> Prediction | TargetPredictions:
        """The predictive distribution of each row.

        `predict`, `predict_interval`, `predict_quantiles`, `predict_cdf`, `log_density` and
        `sample` are methods of it; the arguments are theirs.
        """
        check_choice("of", of, ["measurement", "value"])
        if self.targets_:
            check_in_memory(X, "X of a model of several targets")
            return TargetPredictions(
                [
                    target.predict_distribution(X, batch=batch, of=of, y_std=y_std)
                    for target in self.targets_
                ]
            )
        return self.fitted_.predict(self.encode(X, batch=batch), of=of, y_std=y_std)

    def predict_interval(
        self,
        X: ArrayLike,
        confidence: float = 0.9,
        *,
        X_shifted: ArrayLike | None = None,
        batch: ArrayLike | None = None,
        of: str = "measurement",
        y_std: ArrayLike | None = None,
    ) -> Floats:
        """Prediction intervals, of a model that stores its calibration.

        `twinned.cross_conformal(twin, X, y)` returns such a twin.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to predict. Of a Dask DataFrame or Array, the result is lazy, with the columns
            `low` and `high`.
        confidence : float, default=0.9
            Probability with which an interval covers y.
        X_shifted : table or array of shape (n, n_features), default=None
            Rows of another distribution of features, for which intervals are to hold: usually all
            rows that are to be predicted. Scores are weighted by a ratio of likelihoods, estimated
            by logistic regression (weighted conformal prediction), and intervals are infinite where
            too few calibration rows are alike. None is the distribution of the training rows.
        batch : str or array of shape (n_queries,), default=None
            As in `predict`. The fewer known rows a batch has, the wider are its intervals.
        of : {"measurement", "value"}, default="measurement"
            Whether intervals cover a further measurement, or the value that is measured. The latter
            needs a fit with `y_std`, and does not include errors of measurement; `y_std` is then
            not used.
        y_std : float or array of shape (n_queries,), default=None
            Standard deviations of the errors of further measurements, after a fit with `y_std`;
            None is the median of those of the fit.

        Returns
        -------
        intervals : ndarray of shape (n_queries, 2) or (n_queries, n_targets, 2)
            Lower and upper ends.
        """
        check_in_memory(X_shifted, "X_shifted")
        if is_dask(X):
            self._require_calibration()
            return map_rows(
                self,
                "predict_interval",
                X,
                ["low", "high"],
                confidence=confidence,
                X_shifted=X_shifted,
                batch=batch,
                of=of,
                y_std=y_std,
            )
        prediction = self.predict_distribution(X, batch=batch, of=of, y_std=y_std)
        if isinstance(prediction, TargetPredictions):
            if X_shifted is not None:
                raise ValueError("X_shifted needs a single target; use one of model.targets_.")
            self._warn_of_shift(prediction.predictions[0].queries)
            return prediction.interval(confidence)
        prediction.require_calibration()
        self._warn_of_shift(prediction.queries)
        shifted = None
        if X_shifted is not None:
            shifted = self.validate_queries(X_shifted).encode().features
        return prediction.interval(confidence, shifted)

    def _require_calibration(self) -> None:
        if not self.targets_ and self.calibration_ is None:
            raise AttributeError(NO_CALIBRATION)

    def predict_quantiles(
        self,
        X: ArrayLike,
        quantiles: ArrayLike = (0.05, 0.5, 0.95),
        *,
        batch: ArrayLike | None = None,
        of: str = "measurement",
        y_std: ArrayLike | None = None,
    ) -> Floats:
        """Quantiles of the predictive distribution of y, of a model that stores its calibration.

        Those at 0.05 and 0.95 are the ends of the 90 % interval. The distribution is that of the
        out-of-fold errors in units of their expected size; see `ScoreDistribution`.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to predict. Of a Dask DataFrame or Array, the result is lazy, with the
            probabilities as the names of its columns.
        quantiles : sequence of float, default=(0.05, 0.5, 0.95)
            Probabilities between 0 and 1.
        batch, of, y_std
            As in `predict_interval`.

        Returns
        -------
        values : ndarray of shape (n_queries, n_quantiles) or (n_queries, n_targets, n_quantiles)
        """
        if not is_dask(X):
            prediction = self.predict_distribution(X, batch=batch, of=of, y_std=y_std)
            return prediction.quantiles(quantiles)
        self._require_calibration()
        levels = check_levels(quantiles)
        return map_rows(
            self,
            "predict_quantiles",
            X,
            [f"{level}" for level in levels],
            quantiles=levels,
            batch=batch,
            of=of,
            y_std=y_std,
        )

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
        check_in_memory(A, "A")
        check_in_memory(B, "B")
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
            model: Any = fitted.model
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
        fitted, queries = self.fitted_, self.encode(X)
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
            adds to `anchor_y`; adjustments sum to `difference` − `offset`.

        Returns
        -------
        DataFrame with the columns `query, anchor, anchor_y, difference, estimate, weight,
        distance, count`: for each query the `n` anchors of largest weight, nearest first among
        equals, and a last row of all other anchors, with the anchor −1 and their weighted means. So
        the weights of a query sum to one, and the weighted estimates to its prediction. `query` is
        the label of the row in the index of X, or its number, and `anchor` the row of
        `anchors_X_`; `count` is the number of its copies, which are one case. Where the training
        table had an index of its own, the column `label` has the labels of the anchors. With
        several outputs, each has rows of its own, with a column `output`.
        """
        fitted, metric = self.fitted_, check_metric(metric)
        check_integer("n", n)
        names = self.feature_labels() if check_bool("adjustments", adjustments) else None
        if is_dask(X):
            options = {"n": n, "metric": metric, "adjustments": adjustments, "batch": batch}
            example = fitted.queries(fitted.anchors.X[:1])
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

    def score(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        batch: ArrayLike | None = None,
    ) -> float:
        """R² of the prediction; rows whose y is NaN are ignored.

        With several targets, the mean of those of all targets.
        """
        if self.targets_:
            columns = target_columns(y, len(self.targets_))
            scores = [
                target.score(X, target_y, sample_weight, batch=batch)
                for target, target_y in zip(self.targets_, columns, strict=True)
            ]
            return float(np.mean(scores))
        y = np.asarray(y)
        if y.dtype.kind == "f" and np.isnan(y).any():
            labelled = ~np.isnan(y.reshape(len(y), -1)).any(axis=1)
            if not labelled.any():
                raise ValueError(f"y has no labelled row to score: all {len(y)} are NaN.")
            X, y = safe_indexing(X, np.flatnonzero(labelled)), y[labelled]
            sample_weight = None if sample_weight is None else np.asarray(sample_weight)[labelled]
            batch = batch if batch is None or np.ndim(batch) == 0 else np.asarray(batch)[labelled]
        return r2_score(y, self.predict(X, batch=batch), sample_weight=sample_weight)

    # --- applicability ------------------------------------------------------------------------

    @per_target
    def applicability(self, X: ArrayLike) -> pd.DataFrame:
        """Whether each row is inside, at the edge, or outside of the anchors.

        The expected error of a row is the standard deviation of a Gaussian process with the learned
        length scales and noise, times the size of the errors of known rows near it; that of each
        anchor is computed without itself, or without its group where the twin has `groups`. Rows up
        to the expected error of 70 % of the anchors are `"inside"`, those beyond that of 97.5 % are
        `"outside"`, and others are at the `"edge"`. A row with a feature beyond the range of the
        anchors, or that is missing where all anchors have a value, is at least at the edge; one
        with a category that no anchor has, beyond the range by more than its width, or without any
        feature that all anchors have, is outside.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to classify.

        Returns
        -------
        DataFrame with the index of X and the columns `score`, the expected error in units of that
        of the median anchor, and `label`. After `measure_applicability`, also `error` and
        `coverage` of held-out rows of that class: their root mean square error, and the share of
        them within their prediction interval. Both are NaN for a row with a new category, which no
        held-out row has.
        """
        fitted, queries = self.fitted_, self.encode(X)
        columns = applicability_columns(fitted.anchors.domain, queries, fitted.applicability)
        return pd.DataFrame(columns, index=X.index if isinstance(X, pd.DataFrame) else None)

    def _warn_of_shift(self, queries: Queries) -> None:
        """Warn where more rows are outside than exchangeable rows would be."""
        fitted = self.targets_[0].fitted_ if self.targets_ else self.fitted_
        warn_of_shift(fitted.anchors.domain, queries, self.feature_labels(), stacklevel=4)

    # --- several rows at once -----------------------------------------------------------------

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
        others = self.fitted_.predict(self.encode(than))
        if len(others.queries) not in (1, len(prediction.queries)):
            n_rows = len(prediction.queries)
            raise ValueError(f"than has {len(others.queries)} rows; give one, or {n_rows} as in X.")
        covariance = prediction.paired_error_covariance(others)
        variance = np.maximum(std**2 + others.error_std**2 - 2 * covariance, 0.0)
        return probability_positive(sign * (location - others.location), np.sqrt(variance))

    # --- the same model with other anchors ----------------------------------------------------

    def with_strategies(self, *, anchors: Any = None, weights: Any = None) -> Self:
        """The same fitted model with other strategies of anchors or weights; None keeps one.

        Nothing is fitted again. Out-of-fold residuals and a calibration belong to the strategies of
        the fit, so the result has none.

        Examples
        --------
        >>> from sklearn.linear_model import Ridge
        >>> from twinned import NearestAnchors, TwinRegressor
        >>> twin = TwinRegressor(Ridge()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
        >>> twin.with_strategies(anchors=NearestAnchors(1)).predict_anchors([[0.1]])[0]
        array([[0]])
        """
        fitted = self.fitted_
        strategy = fitted.anchor_strategy if anchors is None else as_anchor_strategy(anchors)
        weighting = fitted.weight_strategy if weights is None else as_weight_strategy(weights)
        return self.with_fitted(
            replace(
                fitted,
                anchor_strategy=strategy,
                weight_strategy=weighting,
                residuals=None,
                local_weights=None,
                calibration=None,
                applicability=None,
            )
        )

    # --- further known rows -------------------------------------------------------------------

    def add_anchors(self, X: ArrayLike, y: ArrayLike, *, batch: ArrayLike | None = None) -> Self:
        """A new fitted model with the same trained model and further anchors.

        The original is unchanged, and the learned metric is the same. The new anchors have weight 1
        where the fit had sample weights, and are groups of one row. Intervals stay calibrated by
        the rows of the fit. A model with batches needs their `batch`, a label for all or for each:
        the offset of a new batch is estimated from them, and that of a known batch again, and
        predictions near them are corrected by what remains of their errors.
        """
        fitted = self.fitted_
        check_in_memory(X, "X")
        queries = self.validate_queries(X, learn_categories=True)
        known_y = fitted.anchors.y
        new_y = validate_target(self, y, len(queries), multi_output=known_y.ndim == 2)
        if new_y.shape[1:] != known_y.shape[1:]:
            raise ValueError(f"y has shape {new_y.shape}, but that of the fit {known_y.shape}.")
        new_y = fitted.target.apply(new_y)
        return self.with_fitted(add_rows(fitted, queries, new_y, row_labels(X), batch))

    def _generator(self, random_state: int | np.random.RandomState | None) -> np.random.RandomState:
        return check_random_state(self.random_state if random_state is None else random_state)


def require_identity(fitted: FittedTwin, method: str) -> None:
    """Raise for a method whose result has no unit where the target is transformed."""
    if fitted.target != IDENTITY:
        raise ValueError(
            f"{method} is not defined for a transformed target; use that of the twin in "
            "regressor_, which is on the scale of the transformed target."
        )
