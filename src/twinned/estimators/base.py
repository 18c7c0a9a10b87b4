"""BaseTwin: validation, fitted state and the methods of every fitted twin."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_consistent_length, check_random_state
from sklearn.utils.validation import check_is_fitted

from twinned._compat import safe_indexing
from twinned.estimators.applicability import ApplicabilityMixin
from twinned.estimators.blocks import Queries
from twinned.estimators.explain import feature_labels, label_rows, no_comparables
from twinned.estimators.predictor import TwinPredictor
from twinned.estimators.sampling import SamplingMixin
from twinned.intervals.applicability import ApplicabilityDomain
from twinned.intervals.stored import StoredIntervals
from twinned.models.learned_metric import feature_relevance, learn_metric
from twinned.models.protocol import DifferenceModel
from twinned.models.resources import MemoryBudget, parse_memory_limit
from twinned.pairing.anchors import as_anchor_strategy
from twinned.pairing.weights import as_weight_strategy
from twinned.rows.dask import check_in_memory, explain_lazily, is_dask, map_rows, predict_lazily
from twinned.rows.neighbors import LEARNED, Indices, LearnedMetric, NeighborIndex, check_metric
from twinned.rows.schema import Floats, Rows, TableSchema, row_labels, storable_labels
from twinned.rows.validation import (
    check_bool,
    check_integer,
    validate_table,
    validate_target,
)


class ModelCache:
    """Holder of what is derived from the fitted state when it is first needed.

    That is the difference model, the metric learned from the anchors, and their domain.

    Predictions change the holder, not the attributes of the estimator.
    """

    model: DifferenceModel | None = None
    metric: LearnedMetric | None = None
    domain: ApplicabilityDomain | None = None


class BaseTwin(SamplingMixin, ApplicabilityMixin, RegressorMixin, BaseEstimator, ABC):
    """Base class of regressors that predict from differences to anchors.

    A subclass has the parameters `anchors`, `weights`, `symmetric`, `memory_limit`, `n_jobs` and
    `random_state`. Its `fit` sets `_pair_dtype`, the trained state that `_make_model` needs and,
    by `_set_anchors`, the anchors. Predictions are computed by `TwinPredictor`.
    """

    # The parts of the metric that `fit` learned; None where no strategy needed it. Plain parts,
    # so that they can be saved.
    _learned_metric: tuple[Any, ...] | None = None
    _censored_X: Floats | None = None  # (row, feature): rows of fit whose value is not known
    # Labels of the training rows, set by the validation of `fit`, and of the anchors.
    _row_labels: list[Any] | None = None
    anchor_labels_: list[Any] | None = None
    target_name_: str  # only of a model that the command line fitted

    @abstractmethod
    def _make_model(self) -> DifferenceModel:
        """The fitted difference model, for the present parameters."""

    def predict(self, X: Any, return_std: bool = False) -> Any:
        """Predict by the weighted mean over anchors of predicted difference + known value.

        Parameters
        ----------
        X : table or array of shape (n_queries, n_features)
            Rows to predict. Of a Dask DataFrame or Array, the result is lazy.
        return_std : bool, default=False
            Whether to return a raw standard deviation, too: that of the estimates of all anchors
            by all members of the model. Use `conformal` to calibrate it.

        Returns
        -------
        y : ndarray of shape (n_queries,) or (n_queries, n_outputs)
        std : ndarray of the same shape, only with `return_std`
        """
        check_is_fitted(self)
        check_bool("return_std", return_std)
        if is_dask(X):
            return predict_lazily(self, X, return_std, self._n_outputs)
        queries = self._validate_queries(X)
        predictor = self._predictor()
        mean, std = predictor.predict(queries, return_std=return_std)
        if not return_std:
            return predictor.squeeze(mean)
        return predictor.squeeze(mean), predictor.squeeze(std)

    def predict_members(self, X: Any) -> Floats:
        """Predict by each member of the model.

        Members are the networks of a neural twin. With a single model that is `symmetric`, they
        are its predictions from F(x, anchor) and from −F(anchor, x).

        Returns
        -------
        y : ndarray of shape (n_members, n_queries) or (n_members, n_queries, n_outputs)
        """
        queries = self._validate_queries(X)
        predictor = self._predictor()
        return predictor.squeeze(predictor.predict_members(queries))

    def predict_interval(self, X: Any, confidence: float = 0.9, X_shifted: Any = None) -> Floats:
        """Prediction intervals, for a twin that stores its calibration.

        `twinned.cross_conformal(twin, X, y).store_in()` returns such a twin.

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

        Returns
        -------
        intervals : ndarray of shape (n_queries, 2)
            Lower and upper ends.
        """
        check_is_fitted(self)
        if not hasattr(self, "intervals_"):
            raise AttributeError(
                "This twin stores no calibration, which prediction intervals need; "
                "twinned.cross_conformal(twin, X, y).store_in() returns a twin that does."
            )
        if is_dask(X):
            check_in_memory(X_shifted, "X_shifted")
            options = {"confidence": confidence, "X_shifted": X_shifted}
            return map_rows(self, "predict_interval", X, ["low", "high"], **options)
        stored = StoredIntervals(self)
        mean, _, scale = self._predict_error_scale(X, stored)
        self._warn_of_shift(X)
        if X_shifted is None:
            return stored.interval(mean, scale, confidence)
        own, shifted = (
            self._validate_queries(rows).take(slice(None)).features for rows in (X, X_shifted)
        )
        features = own, self._anchors.features, shifted
        return stored.weighted_interval(mean, scale, confidence, features)

    def _predict_error_scale(
        self, X: Any, stored: StoredIntervals
    ) -> tuple[Floats, Floats, Floats]:
        """(query,): mean and std of `predict`, and the error scale of the stored intervals."""
        mean, std = self.predict(X, return_std=True)
        return mean, std, stored.error_scale(self._validate_queries(X).matrix, mean, std)

    def predict_difference(self, A: Any, B: Any, return_std: bool = False) -> Any:
        """F(a, b), the predicted y(a) − y(b), row by row.

        Exactly antisymmetric if `symmetric`. With `return_std`, also the standard deviation over
        the members of the model; of a single model, half the distance between F(a, b) and −F(b, a).
        """
        check_is_fitted(self)
        check_bool("return_std", return_std)
        first, second = self._validate_both(A, B)
        predictor = self._predictor()
        value, std = predictor.predict_difference(first, second)
        if not return_std:
            return predictor.squeeze(value)
        if not self.symmetric:
            _, std = self._with_symmetric(True)._predictor().predict_difference(first, second)
        return predictor.squeeze(value), predictor.squeeze(std)

    def predict_anchors(self, X: Any) -> tuple[Indices, Floats]:
        """Estimate y from each anchor.

        Returns
        -------
        indices : ndarray of shape (n_queries, n_anchors_used)
            Rows of `anchors_X_`.
        estimates : ndarray of shape (n_queries, n_anchors_used) or (…, n_outputs)
        """
        queries = self._validate_queries(X)
        predictor = self._predictor()
        indices, estimates = predictor.predict_anchors(queries)
        return indices, predictor.squeeze(estimates)

    def loop_inconsistency(self, X: Any, n_loops: int = 32, random_state: Any = None) -> Floats:
        """Mean absolute sum of predicted differences around closed loops through each query.

        Each of `n_loops` loops goes from the query over two random anchors and back; the mean of
        |F(x, i) + F(i, j) + F(j, x)| is returned, (n_queries,) or (n_queries, n_outputs). Loops
        are drawn by `random_state`, or by the estimator's own where that is None.
        """
        queries = self._validate_queries(X)
        check_integer("n_loops", n_loops)
        rng = check_random_state(self.random_state if random_state is None else random_state)
        predictor = self._predictor()
        return predictor.squeeze(predictor.loop_inconsistency(queries, n_loops, rng))

    def explain(
        self, X: Any, n: int = 5, metric: str = LEARNED, adjustments: bool = False
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

        Returns
        -------
        DataFrame with the columns `query, anchor, anchor_y, difference, estimate, weight,
        distance`: for each query the `n` anchors of largest weight, nearest first among equals.
        `query` is the label of the row in the index of X, or its number, and `anchor` the row of
        `anchors_X_`; the weights of all anchors of a query sum to one, so that those of the table
        are their share of the prediction. Where the training table had an index of its own, the
        column `label` has the labels of the anchors. With several outputs, each has rows of its
        own, with a column `output`.
        """
        check_is_fitted(self)
        check_integer("n", n)
        check_bool("adjustments", adjustments)
        names = feature_labels(self, self._schema.n_features) if adjustments else None
        if is_dask(X):
            meta = no_comparables(self.anchors_y_, self.anchor_labels_, names)
            options = {"n": n, "metric": check_metric(metric), "adjustments": adjustments}
            return explain_lazily(self, X, meta, **options)
        queries = self._validate_queries(X)
        predictor = self._predictor()
        table = predictor.explain(queries, n, check_metric(metric))
        anchors = self._known_queries(slice(None))
        values = predictor.adjustments(queries, table, anchors) if adjustments else None
        return label_rows(table, row_labels(X), self.anchor_labels_, names, values)

    def _known_queries(self, anchors: slice | Indices) -> Queries:
        """Anchors as rows to predict."""
        return Queries(self._to_rows, self._schema, self.anchors_X_[anchors])

    def _adjustments_of_anchors(self, first: Indices, second: Indices) -> Floats:
        """(pair, feature): what each feature adds to F between anchors, of a single output."""
        sides = self._known_queries(first), self._known_queries(second)
        predictor = self._predictor()
        differences = predictor.predict_difference(*sides)[0]
        return predictor.attribute(*sides, differences)[..., 0]

    @property
    def feature_relevance_(self) -> Floats:
        """(n_features_in_,) relevance of the features for y, which sums to 1.

        Root mean square slopes of a Gaussian process (Matérn 5/2), per standard deviation of each
        feature. The process is fitted in `fit` where a strategy needs the learned metric, and else
        to the anchors when it is first needed.
        """
        check_is_fitted(self)
        return feature_relevance(self._metric(), self._schema)

    def add_anchors(self, X: Any, y: Any) -> Any:
        """A new fitted twin with the same trained model and further anchors.

        The original is unchanged. The new anchors have weight 1 where the fit had sample weights.
        """
        check_is_fitted(self)
        new_X, schema = self._validate_table(X, self._schema, learn_categories=True)
        new_y = validate_target(self, y, len(new_X), multi_output=self.anchors_y_.ndim == 2)
        if new_y.shape[1:] != self.anchors_y_.shape[1:]:
            raise ValueError(
                f"y has shape {new_y.shape}, but the twin was fitted on {self.anchors_y_.shape}."
            )
        extended = copy.copy(self)
        weights = self.anchor_weights_
        extended._set_anchors(
            np.concatenate([self.anchors_X_, new_X]),
            np.concatenate([self.anchors_y_, new_y]),
            None if weights is None else np.concatenate([weights, np.ones(len(new_y))]),
            schema,
            np.concatenate([self.anchor_rows_, np.full(len(new_y), -1)]),
        )
        if self.anchor_labels_ is not None:
            new_labels = row_labels(X) or [""] * len(new_y)
            extended.anchor_labels_ = storable_labels(self.anchor_labels_ + new_labels)
        return extended

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R² of the prediction; rows whose y is NaN are ignored."""
        y = np.asarray(y)
        if y.dtype.kind == "f" and np.isnan(y).any():
            labelled = ~np.isnan(y.reshape(len(y), -1)).any(axis=1)
            if not labelled.any():
                raise ValueError(f"y has no labelled row to score: all {len(y)} are NaN.")
            X, y = safe_indexing(X, np.flatnonzero(labelled)), y[labelled]
            sample_weight = None if sample_weight is None else np.asarray(sample_weight)[labelled]
        return super().score(X, y, sample_weight)

    # --- fitted state -------------------------------------------------------------------------

    def _set_anchors(
        self,
        anchors_X: Floats,
        anchors_y: Floats,
        weights: Floats | None,
        schema: TableSchema,
        rows: Indices,
        make_index: Callable[[str], NeighborIndex] | None = None,
    ) -> None:
        """Store the anchors; `make_index` returns their neighbor index for a metric."""
        for measured in {"intervals_", "applicability_"} & vars(self).keys():
            delattr(self, measured)  # which belong to other anchors
        self.anchors_X_, self.anchors_y_, self.anchor_weights_ = anchors_X, anchors_y, weights
        self.anchor_rows_, self._schema = rows, schema
        labels = self._row_labels
        self.anchor_labels_ = None if labels is None else [labels[i] for i in rows]
        self._set_derived_state(make_index)

    def _set_derived_state(self, make_index: Callable[[str], NeighborIndex] | None) -> None:
        """Set what predictions need and a saved model does not store."""
        self._cache = ModelCache()
        if (metric := self.__dict__.pop("_anchor_metric", None)) is not None:  # of a saved model
            self._cache.metric = LearnedMetric(*metric)
        self._anchors = self._to_rows(self._schema, self.anchors_X_)
        self._index = None
        if nearest := as_anchor_strategy(self.anchors).nearest(len(self.anchors_X_)):
            make_index = self._make_index if make_index is None else make_index
            self._index = make_index(nearest[1])

    def _make_index(self, metric: str) -> NeighborIndex:
        """The neighbor index of the anchors."""
        learned = self._metric() if metric == LEARNED else None
        return NeighborIndex(self._anchors.features, metric, self.n_jobs, learned)

    def _measured_features(self) -> Floats:
        """(row, encoded feature): the anchors and, after them, censored rows of the fit."""
        if self._censored_X is None:
            return self._anchors.features
        censored = self._to_rows(self._schema, self._censored_X).features
        return np.concatenate([self._anchors.features, censored])

    def _metric(self) -> LearnedMetric:
        """The learned metric, of `fit` or else of the anchors."""
        if self._learned_metric is not None:
            return LearnedMetric(*self._learned_metric)
        if self._cache.metric is None:
            self._cache.metric = learn_metric(
                self._anchors.features, self.anchors_y_, self.anchor_weights_
            )
        return self._cache.metric

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        if "_cache" in state and (metric := self._cache.metric) is not None:
            state["_anchor_metric"] = tuple(metric)  # so that a copy need not learn it again
        for derived in ("_cache", "_anchors", "_index"):
            state.pop(derived, None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "anchors_X_" in state:
            self._set_derived_state(None)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "anchors_X_")

    @property
    def _n_outputs(self) -> int | None:
        """Number of outputs, None where y is one-dimensional."""
        return None if self.anchors_y_.ndim == 1 else self.anchors_y_.shape[1]

    def _predictor(self) -> TwinPredictor:
        """The model and the anchors, with the present parameters."""
        return TwinPredictor(
            model=self._difference_model(),
            anchors=self._anchors,
            anchors_y=self.anchors_y_.reshape(len(self.anchors_y_), -1),
            anchor_weights=self.anchor_weights_,
            anchor_strategy=as_anchor_strategy(self.anchors),
            weight_strategy=as_weight_strategy(self.weights),
            index=self._index,
            make_index=self._make_index,
            learned_metric=self._metric,
            budget=MemoryBudget(parse_memory_limit(self.memory_limit), self.n_jobs),
            n_jobs=self.n_jobs,
            y_is_1d=self.anchors_y_.ndim == 1,
        )

    def _difference_model(self) -> DifferenceModel:
        """The difference model, made again where the parameters have changed."""
        self._cache.model = self._make_model()
        return self._cache.model

    def _with_symmetric(self, symmetric: bool) -> Any:
        """The same fitted twin, evaluated in both orders of a pair or in one."""
        if symmetric == self.symmetric:
            return self
        other = copy.copy(self)
        other.symmetric = symmetric
        return other

    # --- validation ---------------------------------------------------------------------------

    def _to_rows(self, schema: TableSchema, matrix: Floats) -> Rows:
        """Encoded rows as the model sees them; a subclass may scale them."""
        return schema.to_rows(matrix)

    def _validate_table(
        self, X: Any, schema: TableSchema, *, learn_categories: bool = False
    ) -> tuple[Floats, TableSchema]:
        return validate_table(
            self,
            X,
            schema,
            allow_nan=bool(self.__sklearn_tags__().input_tags.allow_nan),
            pair_dtype=self._pair_dtype,
            learn_categories=learn_categories,
        )

    def _validate_queries(self, X: Any) -> Queries:
        check_is_fitted(self)
        matrix, schema = self._validate_table(X, self._schema)
        return Queries(self._to_rows, schema, matrix)

    def _validate_both(self, A: Any, B: Any) -> tuple[Queries, Queries]:
        """Both sides of row-by-row pairs; a new category has the same code on both sides."""
        first, schema = self._validate_table(A, self._schema, learn_categories=True)
        second, schema = self._validate_table(B, schema, learn_categories=True)
        check_consistent_length(first, second)
        return Queries(self._to_rows, schema, first), Queries(self._to_rows, schema, second)
