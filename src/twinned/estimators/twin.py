"""TwinRegressor: twin regression over any scikit-learn regressor."""

import time
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state, get_tags

from twinned._compat import MetaEstimatorMixin, unwrap_search
from twinned.batches.estimation import KINDS, remove_deviations
from twinned.estimators.base import BaseTwin
from twinned.estimators.twin_folds import choose_sizes, draw_folds_of_known_rows, sizes_of_one_fold
from twinned.fitted.anchors import Anchors
from twinned.fitted.held_out import with_residuals
from twinned.fitted.twin import FittedTwin
from twinned.fitted.updating import update_effects
from twinned.models.base_estimator import (
    FAST,
    MAX_FEATURES,
    SIZES,
    TreeSizes,
    make_base_estimator,
    pair_dtype,
)
from twinned.models.censored_values import impute_target
from twinned.models.learned_metric import learn_metric
from twinned.models.measurement_errors import weigh_by_error
from twinned.models.resources import MemoryBudget, limit_threads
from twinned.models.sklearn import (
    PairTrainingSet,
    SklearnDifferenceModel,
    TrainingPairBuilder,
    build_pairs,
    fit_on_pairs,
    max_pairs_in_memory,
    normalize_weights,
)
from twinned.models.wide_tables import important_features
from twinned.pairing.anchors import as_weight_strategy, draw_anchors, uses_learned_metric
from twinned.pairing.differences import PairFeatures
from twinned.rows.folds import given_folds
from twinned.rows.schema import Floats, Indices, Rows
from twinned.rows.training import TargetBounds, TrainingRows, validate_training_rows
from twinned.rows.validation import check_bool, check_choice, check_n_jobs, restore_on_failure


@dataclass(eq=False, repr=False)
class TwinRegressor(MetaEstimatorMixin, BaseTwin):
    """Twin regression with any scikit-learn regressor as base estimator.

    The base estimator is fitted to differences `F(a, b) = y(a) − y(b)` over pairs of training rows.
    A query is predicted by adding predicted differences to the known values of anchors and taking
    the weighted mean.

    Parameters
    ----------
    estimator : regressor, default=None
        The base estimator. `TwinRegressor(RandomForestRegressor())` is a twinned random forest.
        None is gradient boosting with leaves of many pairs, chosen on the paper's data sets. Of a
        table with more than 80 features, it uses the 80 most relevant ones, without constant
        features and copies. A search such as `GridSearchCV` over a regressor is cross-validated
        over rows, not over pairs.
    pairs : {"auto", "all"}, int or strategy, default="auto"
        Training pairs: `"all"` n² of them; an integer m for m random partners per row; a strategy
        such as `NearestPairs(16)`. `"auto"` is all pairs up to 250,000 that fit into
        `memory_limit`, and random partners beyond; with the default estimator it is
        `HalfPairs(100_000)`, and fewer with less `effort` or more than 20 features. If
        `symmetric`, random and nearest pairs are fitted in both orders.
    pair_features : str or callable, default="concat+difference"
        Features of a pair: `"concat+difference"` (a, b, a − b), `"concat"` (a, b), `"difference"`
        a − b, or a callable of two (n_pairs, n_encoded) arrays. A categorical feature enters as
        indicators, and its difference is 1 where two categories differ.
    anchors : "all" or strategy, default="all"
        Known rows from which a query is predicted: all, `NearestAnchors(k)`, or
        `RandomAnchors(n)`.
    weights : {"uniform", "distance"}, strategy or callable, default="uniform"
        Anchor weights, such as `GPWeights()`. A callable gets `(distances, estimates,
        anchor_indices)`, each (n_queries, n_anchors), and returns weights of that shape.
    symmetric : bool, default=True
        Predict ½F(a, b) − ½F(b, a), which is exactly antisymmetric.
    cv : int, splitter, iterable or None, default=None
        Folds of which models are fitted, too, for the out-of-fold errors of the anchors. With them,
        the estimate from an anchor b is y(b) plus the prediction of the query minus the out-of-fold
        prediction of b, so that estimates differ as much as the model errs, and near anchors have
        more weight where that predicts the errors of other folds better. 0 is none: then the
        differences are those of a model that was fitted to the anchors. None is 5 with the default
        estimator and at least 20 rows, if `anchors` is "all" and `weights` is "uniform", and else
        0.
    effort : {"small", "fast", "balanced", "thorough"}, default="balanced"
        Number of pairs, trees and bins of the default estimator. With "balanced", they are those of
        "thorough" where the out-of-fold errors of small models are below a fifth of the standard
        deviation of y, and else those of "fast", as more work changes next to nothing where errors
        are mostly noise. With `cv=0`, one fold is held out for that choice.
    categorical_features : {"from_dtype"}, list or None, default="from_dtype"
        Categorical features: by dtype (categories and plain strings of pandas and polars), or a
        list of names or indices, or a mask. An ordered pandas category is encoded by the order of
        its levels.
    batch_effect : {"offset", "function", "auto"}, default="offset"
        As in `AutoTwinRegressor`. A constant that is added to one batch changes its predictions
        alone.
    n_jobs : int or None, default=None
        Number of threads for prediction, neighbor search and fitting; None means 1, and −1 all
        cores. It also limits OpenMP and BLAS in a base estimator, and one with `n_jobs=None`.
    memory_limit : int, str or None, default="512MB"
        Bound of the pair matrix of `fit` and of the blocks of
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
    anchor_residuals_ : ndarray like `anchors_y_`, or None
        Out-of-fold errors of the anchors, minus their mean; None without folds.
    local_power_ : float
        Power of `GPWeights` that weights the estimates where there are out-of-fold errors; 0 where
        equal weights predict the errors of other folds as well.
    batch_offsets_ : DataFrame
        Of a fit with `batch`: `offset` of each batch relative to the mean of all batches, its
        `std_error` and the number of its known rows `n_rows`. `anchors_y_` are values without
        the offsets.
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

    estimator: Any = None
    _: KW_ONLY
    pairs: object = "auto"
    pair_features: object = "concat+difference"
    anchors: object = "all"
    weights: object = "uniform"
    symmetric: bool = True
    cv: object = None
    effort: str = "balanced"
    categorical_features: object = "from_dtype"
    batch_effect: str = "offset"
    n_jobs: int | None = None
    memory_limit: int | str | None = "512MB"
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        is_estimator = isinstance(self.estimator, BaseEstimator)
        base = get_tags(self.estimator if is_estimator else make_base_estimator(self.estimator))
        tags.input_tags.allow_nan = base.input_tags.allow_nan
        # the default estimator is wrapped for several outputs
        tags.target_tags.multi_output = self.estimator is None or base.target_tags.multi_output
        tags.non_deterministic = base.non_deterministic
        return tags

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
        batch: ArrayLike | None = None,
        y_lower: ArrayLike | None = None,
        y_upper: ArrayLike | None = None,
        y_std: ArrayLike | None = None,
    ) -> Self:
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
        y_lower, y_upper : arrays of shape (n,), default=None
            Bounds of censored rows, whose y is NaN: y_upper is the limit of a value "<5", y_lower
            that of ">100", and both are finite for an interval. A bound that is None or NaN is y
            or, where y is NaN, infinite. Censored rows are fitted with the values that a Gaussian
            process expects within the bounds, and are no anchors.
        groups : array of shape (n,), default=None
            Groups of rows that are held out together, by the folds of `cv` and by a search as base
            estimator.
        batch : array of shape (n,), default=None
            Batch of each row, such as a laboratory or an instrument, whose values of y have an
            unknown offset: the twin is fitted to y without the offsets (see `batch_offsets_`).
        y_std : float or array of shape (n,), default=None
            Known standard deviations of the errors of measurement of y, in units of y, 0 for an
            exact value. Rows are weighted by the inverse of y_std² plus the variance of the
            remaining errors, which is estimated, times `sample_weight`.
        """
        start = time.perf_counter()
        with restore_on_failure(self), limit_threads(self.n_jobs):
            rows = self._validate_rows(
                X,
                y,
                sample_weight=sample_weight,
                groups=groups,
                batch=batch,
                y_lower=y_lower,
                y_upper=y_upper,
                y_std=y_std,
            )
            if self.cv is not None:
                rows = rows.with_folds(given_folds(self.cv, rows.matrix, rows.targets, rows.groups))
            self.fit_rows(rows)
        if self.verbose:
            seconds = time.perf_counter() - start
            print(f"[TwinRegressor] {self.n_pairs_:,} pairs fitted in {seconds:.1f} s")
        return self

    def refit(self, rows: TrainingRows, *, for_fold: bool = False) -> Self:
        """A twin of the same parameters, fitted to some of the rows of this one.

        With `for_fold`, for the folds of another method: without folds of its own.
        """
        twin = self.unfitted_copy()
        if for_fold:
            twin.cv = 0
        with limit_threads(twin.n_jobs):
            twin.fit_rows(rows)
        return twin

    def fit_pairs(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        imputed: NDArray[np.bool_] | None = None,
    ) -> PairTrainingSet:
        """`fit` without folds, which returns the training set of the base estimator.

        `imputed` (n,) are rows whose y is imputed already; they are no anchors.
        """
        with restore_on_failure(self), limit_threads(self.n_jobs):
            rows = self._validate_rows(X, y, sample_weight=sample_weight)
            return self.fit_rows(rows, with_folds=False, imputed=imputed)

    def choose_effort(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None
    ) -> str:
        """The effort, `"fast"` or `"thorough"`, that `"balanced"` is on these rows."""
        with limit_threads(self.n_jobs):
            rows = self._prepare(self._validate_rows(X, y, sample_weight=sample_weight))
            sizes = sizes_of_one_fold(self, rows, self._fit_model)
        return "fast" if sizes is FAST else "thorough"

    def refit_with(
        self, training: PairTrainingSet, sides: list[tuple[Rows, Rows]], labels: list[Floats]
    ) -> None:
        """Fit again to the training set and to pairs with pseudo-labels.

        The parameters that a search found are used again, as in the paper.
        """
        model, index = self.difference_model_, np.arange(len(labels[0]))
        pairs = [
            build_pairs(model.features, first, second, index, index) for first, second in sides
        ]
        target = np.concatenate(labels) / model.unit
        target = target[:, 0] if training.target.ndim == 1 else target
        training = training.with_pseudo_labels(np.concatenate(pairs), target)
        base = unwrap_search(model.estimator)
        with limit_threads(self.n_jobs):
            estimator = fit_on_pairs(base, training, rng=None, n_jobs=self.n_jobs)
        self._fitted = replace(self.fitted_, model=replace(model, estimator=estimator))

    def max_pseudo_pairs(self) -> int:
        """The number of pairs with pseudo-labels that fit into memory beside the training pairs."""
        n_outputs = self.fitted_.anchors.outputs.shape[1]
        features = self.difference_model_.features
        return max_pairs_in_memory(self.memory_limit, features, n_outputs) - self.n_pairs_

    # --- steps of fit -------------------------------------------------------------------------

    def check_parameters(self) -> None:
        """Raise for invalid parameters."""
        check_bool("symmetric", self.symmetric)
        check_choice("effort", self.effort, list(SIZES))
        check_choice("batch_effect", self.batch_effect, KINDS)
        check_n_jobs(self.n_jobs)

    def _validate_rows(self, X, y, **arguments):
        """The validated arguments of `fit`."""
        multi_output = self.__sklearn_tags__().target_tags.multi_output
        self.check_parameters()
        self._pair_dtype = pair_dtype(make_base_estimator(self.estimator), X)
        return validate_training_rows(
            self, X, y, **arguments, pair_dtype=self._pair_dtype, multi_output=multi_output
        )

    def fit_rows(
        self,
        rows: TrainingRows,
        *,
        with_folds: bool = True,
        imputed: NDArray[np.bool_] | None = None,
    ) -> PairTrainingSet:
        """Fit to validated rows, and return the training set of the base estimator."""
        rows, sizes, known_rows = self._prepare(rows), SIZES[self.effort], None
        if imputed is not None:  # bounds that differ mark a row as censored
            lower = np.where(imputed[rows.table_rows], -np.inf, rows.y)
            rows = replace(rows, bounds=TargetBounds(lower, rows.y))
        if with_folds and (self.cv is not None or self.estimator is None):
            known_rows = draw_folds_of_known_rows(self, rows)
        if known_rows is not None:
            sizes, predicted = choose_sizes(self, rows, known_rows, self._fit_model)
        elif self.estimator is None and self.effort == "balanced":
            rows = replace(rows, fold=None, fold_training=None)
            sizes = sizes_of_one_fold(self, rows, self._fit_model)
        fitted, training = self._fit_model(rows, sizes)
        if known_rows is not None:
            fitted = with_residuals(fitted, predicted, known_rows.folds)
        self._fitted = fitted if rows.batch is None else update_effects(fitted, rows.effects)
        self.n_pairs_: int = len(training.first)
        return training

    def _prepare(self, rows: TrainingRows) -> TrainingRows:
        """The rows without offsets of batches, with their weights, and with imputed values."""
        if rows.batch is not None:
            rows = remove_deviations(rows, self.batch_effect, shrinks=False)
        if rows.y_std is not None:
            rows = weigh_by_error(rows)
        if rows.weight is not None:
            rows = rows.of_positive_weight()
            rows = replace(rows, weight=normalize_weights(np.asarray(rows.weight)))
        if rows.bounds is not None:
            imputed = impute_target(rows.rows.features, rows.bounds, rows.weight)
            rows = replace(rows, y=imputed.y)
        return rows

    def _fit_model(
        self, rows: TrainingRows, sizes: TreeSizes
    ) -> tuple[FittedTwin, PairTrainingSet]:
        """The state without residuals, by these sizes of the default estimator, and its pairs."""
        has_learned_metric = uses_learned_metric(self.pairs, self.anchors, self.weights)
        weight_strategy = as_weight_strategy(self.weights)
        rng = check_random_state(self.random_state)
        selected = np.arange(rows.matrix.shape[1])
        if self.estimator is None and not callable(self.pair_features):
            selected = important_features(rows.matrix, rows.y, MAX_FEATURES, rows.weight)
        features = PairFeatures(self.pair_features, rows.schema, self._pair_dtype, selected)
        base, learned = self.estimator, None
        if base is None:
            n_outputs = rows.outputs.shape[1]
            base = sizes.make_estimator(len(rows), n_outputs, len(selected))
        if has_learned_metric:
            learned = learn_metric(rows.rows.features, rows.targets, rows.weight)
        builder = TrainingPairBuilder(self, base, features, rows, rng)
        pairs = builder.draw(sizes, learned)
        stored, nearest = draw_anchors(self.anchors, rows.known, rng)
        training = builder.build(pairs)
        seeds = None if self.random_state is None else rng
        model = SklearnDifferenceModel(
            estimator=fit_on_pairs(base, training, rng=seeds, n_jobs=self.n_jobs),
            features=features,
            unit=builder.unit,
            symmetric=self.symmetric,
            memory_limit=self.memory_limit,
        )
        anchors = Anchors.of_rows(
            replace(rows.take(stored), groups=None),
            censored_X=rows.censored_matrix,
            learned_metric=learned,
            n_jobs=self.n_jobs,
        )
        fitted = FittedTwin(
            model=model,
            anchors=anchors.prepare(nearest),
            nearest=nearest,
            weight_strategy=weight_strategy,
            budget=MemoryBudget(self.memory_limit, self.n_jobs),
        )
        return fitted, training

    # --- the fitted model ---------------------------------------------------------------------

    @property
    def difference_model_(self) -> SklearnDifferenceModel:
        """The base estimator as a model of differences."""
        model = self.fitted_.model
        assert isinstance(model, SklearnDifferenceModel), "the model of a regressor"
        return model

    @property
    def estimator_(self) -> Any:
        """The fitted base estimator."""
        return self.difference_model_.estimator

    @property
    def selected_features_(self) -> Indices:
        """Indices of the features that pairs are made of."""
        return self.difference_model_.features.selected

    def prepare_fast_path(self) -> None:
        """Read and pack trees now, for many small predictions to come."""
        fitted = self.fitted_
        trees = self.difference_model_.trees_at(fitted.anchors.rows, fitted.anchors.outputs)
        if trees is not None:
            trees.pack_now()
