"""TwinRegressor: twin regression over any scikit-learn regressor."""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.base import MetaEstimatorMixin
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, process_routing

from twinned._compat import raise_for_params, unwrap_search
from twinned.estimators.base import BaseTwin
from twinned.estimators.training_pairs import (
    Pairs,
    TrainingPairBuilder,
    check_memory,
    max_pairs_in_memory,
)
from twinned.exceptions import IgnoredValidationSetWarning, UnusedFeatureWarning
from twinned.fitted.twin import Anchors
from twinned.models.base_estimator import (
    MAX_FEATURES,
    check_base_estimator,
    default_estimator,
    default_n_pairs,
    pair_dtype,
    supports_validation_set,
)
from twinned.models.imputation import impute_target
from twinned.models.learned_metric import learn_metric, uses_learned_metric
from twinned.models.resources import limit_threads, parse_memory_limit
from twinned.models.sklearn import (
    LazyPairMatrix,
    PairTrainingSet,
    SklearnDifferenceModel,
    fit_on_pairs,
    normalize_weights,
    supports_blocks,
    target_unit,
)
from twinned.models.wide_tables import choose_pair_columns, important_features
from twinned.pairing.anchors import as_anchor_strategy, as_weight_strategy, check_stored
from twinned.pairing.pairs import HalfPairs, PairFeatures, PairStrategy, as_pair_strategy
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats, Rows
from twinned.rows.training import TargetBounds, TrainingRows, validate_training_rows
from twinned.rows.validation import (
    check_bool,
    check_integer,
    check_n_jobs,
    restore_on_failure,
    validate_table,
    validate_target,
)

_CACHE_BYTES = 160_000_000  # of packed trees, stored for the next prediction


class TwinRegressor(MetaEstimatorMixin, BaseTwin):
    """Twin regression with any scikit-learn regressor as base estimator.

    The base estimator is fitted to differences `F(a, b) = y(a) − y(b)` over pairs of training rows.
    A query is predicted by adding predicted differences to the known values of anchors and taking
    the weighted mean.

    Parameters
    ----------
    estimator : regressor, default=None
        The base estimator. `TwinRegressor(RandomForestRegressor())` is a twinned random forest.
        None is gradient boosting with leaves of many pairs, chosen on the paper's data sets
        (`benchmarks/tree_default.py`). Of a table with more than 80 features, it uses the 80 most
        relevant ones, without constant features and copies (`benchmarks/wide.py`). A search such
        as `GridSearchCV` over a regressor is cross-validated over rows, not over pairs.
    pairs : {"auto", "all"}, int or strategy, default="auto"
        Training pairs: `"all"` n² of them; an integer m for m random partners per row; a strategy
        such as `NearestPairs(16)`. `"auto"` is all pairs up to 250,000 that fit into
        `memory_limit`, and random partners beyond; with the default estimator it is
        `HalfPairs(100_000)`, and fewer for more than 20 features. If `symmetric`, random and
        nearest pairs are fitted in both orders.
    pair_features : str or callable, default="concat+difference"
        Features of a pair: `"concat+difference"` (a, b, a − b), `"concat"` (a, b), `"difference"`
        a − b, or a callable of two (n_pairs, n_encoded) arrays. A categorical feature enters as
        indicators, and its difference is 1 where two categories differ. Of more than 80 features,
        the default estimator is fitted to a − b alone where that predicts held-out rows better:
        a and b are then 0 in its training pairs.
    anchors : {"all"} or strategy, default="all"
        Known rows from which a query is predicted: all, `NearestAnchors(k)`, or
        `RandomAnchors(n)`.
    weights : {"uniform", "distance"}, strategy or callable, default="uniform"
        Anchor weights, such as `GPWeights()`. A callable gets `(distances, estimates,
        anchor_indices)`, each (n_queries, n_anchors), and returns weights of that shape.
    symmetric : bool, default=True
        Predict ½F(a, b) − ½F(b, a), which is exactly antisymmetric.
    categorical_features : {"from_dtype"}, list or None, default="from_dtype"
        Categorical features: by dtype (categories and plain strings of pandas and polars), or a
        list of names or indices, or a mask. An ordered pandas category is encoded by the order of
        its levels.
    n_jobs : int or None, default=None
        Number of threads for prediction, neighbor search and fitting; None means 1, and −1 all
        cores. It also limits OpenMP and BLAS in a base estimator, and one with `n_jobs=None`.
    memory_limit : int, str or None, default="512MB"
        Bound of the pair matrix of `fit` (or of LightGBM's binned copy) and of the blocks of
        `predict`, in bytes or as "2GB".
    random_state : int, RandomState or None, default=None
        Seed of random pairs and anchors, and of a base estimator without a seed.
    verbose : int, default=0
        With 1, the number of pairs and the seconds of the fit are printed.

    Attributes
    ----------
    estimator_ : regressor
        The fitted clone. Its input columns are first, second, first − second, in that order, for
        `"concat+difference"`; within each, numeric features come before indicators.
    anchors_X_ : ndarray of shape (n_anchors, n_features)
        Anchors, with categories as codes.
    anchors_y_ : ndarray of shape (n_anchors,) or (n_anchors, n_outputs)
        Target values of the anchors.
    anchor_weights_ : ndarray of shape (n_anchors,) or None
        Sample weights of the anchors.
    anchor_rows_ : ndarray of shape (n_anchors,)
        Rows of the training table. Rows of weight 0 are not anchors, and anchors that were added
        later have −1.
    n_pairs_ : int
        Number of training pairs, mirror images included.
    feature_relevance_ : ndarray of shape (n_features_in_,)
        Relevance of the features: slopes of y by a Gaussian process, which sum to 1.
    selected_features_ : ndarray
        Indices of the features that pairs are made of: all, or those that the default estimator
        uses of a wide table. Features that are known in less than about 1 % of the training rows
        are not used; a warning names them.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from twinned import TwinRegressor
    >>> from twinned.datasets import make_tf
    >>> X, y = make_tf(60, random_state=0)
    >>> forest = RandomForestRegressor(20, min_samples_leaf=2, random_state=0)
    >>> twin = TwinRegressor(forest).fit(X[:50], y[:50])
    >>> mean, std = twin.predict(X[50:], return_std=True)
    >>> mean.shape, std.shape, twin.n_pairs_
    ((10,), (10,), 2500)
    >>> float(np.abs(mean - y[50:]).mean() / y[50:].std()) < 0.3
    True
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        pairs: Any = "auto",
        pair_features: Any = "concat+difference",
        anchors: Any = "all",
        weights: Any = "uniform",
        symmetric: bool = True,
        categorical_features: Any = "from_dtype",
        n_jobs: int | None = None,
        memory_limit: Any = "512MB",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.pairs = pairs
        self.pair_features = pair_features
        self.anchors = anchors
        self.weights = weights
        self.symmetric = symmetric
        self.categorical_features = categorical_features
        self.n_jobs = n_jobs
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        base = get_tags(self._base_estimator())
        tags.input_tags.allow_nan = base.input_tags.allow_nan
        # the default estimator is wrapped for several outputs
        tags.target_tags.multi_output = self.estimator is None or base.target_tags.multi_output
        tags.non_deterministic = base.non_deterministic
        return tags

    def get_metadata_routing(self) -> MetadataRouter:
        """Metadata routing: `groups` are routed to a search as base estimator."""
        router = MetadataRouter(owner=self).add_self_request(self)
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return router.add(estimator=self._base_estimator(), method_mapping=mapping)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_val: Any = None,
        y_val: Any = None,
        y_lower: Any = None,
        y_upper: Any = None,
        **params: Any,
    ) -> TwinRegressor:
        """Fit the base estimator to pairs of the rows of X, and store the anchors.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            Training rows.
        y : array of shape (n,), or (n, n_outputs) where the base estimator supports it
            Target values.
        sample_weight : array of shape (n,), default=None
            The weight of a pair is the product of its two, that of an anchor its own. For a base
            estimator without sample weights, pairs are drawn in proportion to them.
        X_val, y_val : like X and y, default=None
            For a base estimator whose `fit` has a validation set, such as
            `HistGradientBoostingRegressor(early_stopping=True)`: it gets the pairs of these rows
            with the anchors. Without them, such an estimator gets its own `validation_fraction` of
            the rows, so that no row is on both sides.
        y_lower, y_upper : arrays of shape (n,), default=None
            Bounds of censored rows, whose y is NaN: y_upper is the limit of a value "<5", y_lower
            that of ">100", and both are finite for an interval. A bound that is None or NaN is y
            or, where y is NaN, infinite. Censored rows are fitted with the values that a Gaussian
            process expects within the bounds, and are no anchors.
        **params : dict
            With metadata routing enabled, `groups` of shape (n,) for a search as base estimator.
        """
        groups = self._routed_groups(params)
        bounds = y_lower, y_upper
        self.fit_pairs(X, y, sample_weight, groups, *bounds, X_val=X_val, y_val=y_val)
        return self

    def fit_pairs(self, X, y, *arguments, X_val=None, y_val=None):
        """`fit` that returns the training set of the base estimator."""
        with restore_on_failure(self), limit_threads(self.n_jobs):
            rows = self._validate(X, y, *arguments)
            if rows.bounds is not None:
                imputed = impute_target(rows.rows.features, rows.bounds, rows.weight)
                rows = replace(rows, y=imputed.y)
            return self._fit_rows(rows, X_val, y_val)

    def fit_imputed(self, X, y, sample_weight, censored):
        """Fit to values of which those of `censored` rows are imputed; these are no anchors."""
        with restore_on_failure(self), limit_threads(self.n_jobs):
            rows = self._validate(X, y, sample_weight)
            # bounds that differ mark a row as censored
            bounds = TargetBounds(np.where(censored[rows.table_rows], -np.inf, rows.y), rows.y)
            self._fit_rows(replace(rows, bounds=bounds))
        return self

    def _validate(self, X, y, *arguments):
        """Validate the parameters and the arguments of `fit`."""
        self.check_parameters()
        self._pair_dtype = pair_dtype(self._base_estimator(), X)
        multi_output = self.__sklearn_tags__().target_tags.multi_output
        rows = validate_training_rows(
            self, X, y, *arguments, pair_dtype=self._pair_dtype, multi_output=multi_output
        ).of_positive_weight()
        weight = rows.weight
        return rows if weight is None else replace(rows, weight=normalize_weights(weight))

    def _fit_rows(self, data, X_val=None, y_val=None):
        """Fit to validated rows; the training set of the base estimator."""
        start, rng = time.perf_counter(), check_random_state(self.random_state)
        selected = self.selected_features_ = self._select_features(data)
        base = self._base_estimator(len(data), data.n_outputs, len(selected))
        self._features = self._pair_features(data)
        self._y_unit = target_unit(data.targets)
        limit, binned = parse_memory_limit(self.memory_limit), supports_blocks(base)
        max_pairs = max_pairs_in_memory(limit, self._features, data.n_outputs, binned=binned)
        if X_val is not None:
            max_pairs = max_pairs * 3 // 4  # the rest is for the validation pairs
        builder = TrainingPairBuilder(base, self._features, data, self._y_unit, max_pairs, rng)
        every = self._all_as_anchors(data)
        strategy, mirrored = self._pair_strategy(len(data), max_pairs)
        pairs = builder.draw(strategy, every.index, mirrored=mirrored)
        known = data.known
        stored = as_anchor_strategy(self.anchors).store(len(known), rng)
        stored = known[check_stored(stored, len(known))]
        validation: tuple[TrainingRows, TrainingRows] | None = None
        if X_val is None and y_val is None:
            pairs, validation = builder.hold_out_rows(pairs)
        elif (given := self._validate_validation_rows(base, X_val, y_val, data)) is not None:
            validation = given, data.take(stored)
        builder = self._drop_unknown_features(builder, pairs)
        fit_params = {} if validation is None else builder.validation_pairs(*validation)
        training = builder.training_set(pairs, fit_params)
        if self.estimator is None and data.schema.n_features > MAX_FEATURES:
            training = choose_pair_columns(base, training, self._features, self.n_jobs)
        seeds = None if self.random_state is None else rng
        self.estimator_ = fit_on_pairs(base, training, rng=seeds, n_jobs=self.n_jobs)
        self.n_pairs_ = len(pairs.first)
        self._store_anchors(every, data, stored)
        if self.verbose:
            seconds = time.perf_counter() - start
            print(f"[TwinRegressor] {self.n_pairs_:,} pairs fitted in {seconds:.1f} s")
        return training

    def refit_with(
        self, training: PairTrainingSet, sides: list[tuple[Rows, Rows]], labels: list[Floats]
    ) -> None:
        """Fit again to the training set and to pairs with pseudo-labels.

        The parameters that a search found are used again, as in the paper.
        """
        index = np.arange(len(labels[0]))
        pairs = [np.asarray(LazyPairMatrix(self._features, *side, index, index)) for side in sides]
        target = np.concatenate(labels) / self._y_unit
        target = target[:, 0] if training.target.ndim == 1 else target
        training = training.with_pseudo_labels(np.concatenate(pairs), target)
        base = unwrap_search(self.estimator_)
        self.estimator_ = fit_on_pairs(base, training, rng=None, n_jobs=self.n_jobs)

    # --- steps of fit -------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Raise for invalid parameters."""
        check_bool("symmetric", self.symmetric)
        as_weight_strategy(self.weights)
        parse_memory_limit(self.memory_limit)
        check_n_jobs(self.n_jobs)
        check_integer("verbose", int(self.verbose), 0)

    def _routed_groups(self, params: dict[str, Any]) -> Any:
        """The groups that metadata routing passes to a search as base estimator."""
        raise_for_params(params, self, "fit")  # unless routing is enabled
        if not params:
            return None
        return process_routing(self, "fit", **params).estimator.fit.get("groups")

    def _base_estimator(self, n_rows: int = 1, n_outputs: int = 1, n_features: int = 1) -> Any:
        if self.estimator is None:
            return default_estimator(n_rows, n_outputs, n_features)
        return check_base_estimator(self.estimator)

    def _all_as_anchors(self, data: TrainingRows) -> Anchors:
        """All training rows as anchors, with the learned metric where a strategy needs it."""
        learned = None
        if uses_learned_metric(self.pairs, self.anchors, self.weights):
            learned = learn_metric(data.rows.features, data.targets, data.weight)
        return Anchors(
            data.schema,
            data.matrix,
            data.y,
            data.weight,
            data.labels,
            fitted_metric=learned,
            n_jobs=self.n_jobs,
        )

    def _store_anchors(self, every: Anchors, data: TrainingRows, stored: Indices) -> None:
        """Store some training rows as anchors."""
        if not np.array_equal(stored, np.arange(len(data))):
            rows = data.take(stored)
            every = replace(
                every, X=rows.matrix, y=rows.y, weights=rows.weight, labels=rows.labels, indices={}
            )
        if data.bounds is not None:
            every = replace(every, censored_X=data.matrix[data.censored])
        self._set_anchors(every, data.table_rows[stored])

    def _select_features(self, data: TrainingRows) -> Indices:
        """The features that pairs are made of: of a wide table, the relevant ones."""
        if self.estimator is not None or callable(self.pair_features):
            return np.arange(data.schema.n_features)
        return important_features(data.matrix, data.y, MAX_FEATURES, data.weight)

    def _pair_features(self, data: TrainingRows) -> PairFeatures:
        """The builder of pairs of the selected features."""
        selected = self.selected_features_
        used = None if len(selected) == data.schema.n_features else selected
        return PairFeatures(self.pair_features, data.schema, self._pair_dtype, used)

    def _drop_unknown_features(
        self, builder: TrainingPairBuilder, pairs: Pairs
    ) -> TrainingPairBuilder:
        """The builder without features that the training pairs hardly know."""
        selected = self.selected_features_
        known = builder.known_features(pairs)[selected]
        if callable(self.pair_features) or known.all():
            return builder
        names = list(getattr(self, "feature_names_in_", range(builder.data.schema.n_features)))
        unknown = [names[j] for j in selected[~known]]
        if not known.any():
            raise ValueError(
                f"X has no feature with enough known values: the {len(pairs.first):,} training "
                f"pairs hardly know {unknown}. Impute them first (sklearn.impute.SimpleImputer)."
            )
        warnings.warn(
            f"Features with too few known values in the training rows are not used: {unknown}.",
            UnusedFeatureWarning,
            stacklevel=4,
        )
        self.selected_features_ = selected[known]
        self._features = self._pair_features(builder.data)
        return replace(builder, features=self._features)

    def _pair_strategy(self, n_rows: int, max_pairs: int) -> tuple[PairStrategy, bool]:
        """The pair strategy, and whether its pairs are fitted in both orders."""
        if self.estimator is None and self.symmetric and self.pairs == "auto":
            n_pairs = default_n_pairs(len(self.selected_features_))
            strategy: PairStrategy = HalfPairs(min(n_pairs, max_pairs))
        else:
            strategy = as_pair_strategy(self.pairs, n_rows, max_pairs, mirrored=self.symmetric)
        as_drawn = getattr(strategy, "both_orders", False) or getattr(strategy, "one_order", False)
        mirrored = self.symmetric and not as_drawn
        check_memory(strategy.count(n_rows) * (2 if mirrored else 1), max_pairs, self, n_rows)
        return strategy, mirrored

    def _validate_validation_rows(
        self, base: Any, X_val: Any, y_val: Any, data: TrainingRows
    ) -> TrainingRows | None:
        """The user's validation rows; None where the base estimator cannot use them."""
        if X_val is None or y_val is None:
            missing = "X_val" if X_val is None else "y_val"
            raise ValueError(f"X_val and y_val belong together, but {missing} is None.")
        if not supports_validation_set(base):
            warnings.warn(
                f"{type(base).__name__} has no validation set, so X_val and y_val are ignored.",
                IgnoredValidationSetWarning,
                stacklevel=4,
            )
            return None
        allow_nan = bool(self.__sklearn_tags__().input_tags.allow_nan)
        matrix, schema = validate_table(
            self, X_val, data.schema, allow_nan=allow_nan, pair_dtype=self._pair_dtype
        )
        y = validate_target(self, y_val, len(matrix), multi_output=data.targets.ndim == 2)
        return TrainingRows(schema, matrix, y)

    # --- prediction ---------------------------------------------------------------------------

    def _make_model(self) -> SklearnDifferenceModel:
        """The difference model; the same object as long as nothing has changed."""
        limit = parse_memory_limit(self.memory_limit)
        cache_bytes = _CACHE_BYTES if limit is None else min(_CACHE_BYTES, limit // 3)
        parts = self.estimator_, self._features, self._y_unit, self.symmetric, cache_bytes
        return self._reuse_model(
            lambda model: model.estimator is self.estimator_ and model.symmetric == self.symmetric,
            lambda: SklearnDifferenceModel(*parts),
        )

    @property
    def pair_columns_(self) -> PairFeatures:
        """The builder of the columns of pairs."""
        return self._features

    def prepare_fast_path(self) -> None:
        """Read and pack trees now, for many small predictions to come."""
        fitted = self.fitted_
        trees = self._make_model().trees_at(fitted.anchors.rows, fitted.anchors.targets)
        if trees is not None:
            trees.pack_now()
