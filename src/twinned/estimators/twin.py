"""TwinRegressor: twin regression over any scikit-learn regressor."""

from __future__ import annotations

import copy
import time
import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import check_random_state, get_tags

from twinned._compat import unwrap_search
from twinned.estimators.base import BaseTwin
from twinned.exceptions import (
    IgnoredValidationSetWarning,
    MemoryLimitError,
    ignore_table_warnings,
)
from twinned.fitted.twin import LocalErrors
from twinned.models.base_estimator import (
    MAX_FEATURES,
    check_base_estimator,
    default_estimator,
    default_n_pairs,
    early_stopping_fraction,
    pair_dtype,
    supports_validation_set,
    supports_weights,
)
from twinned.models.batches import remove_offsets
from twinned.models.imputation import impute_target
from twinned.models.learned_metric import learn_metric
from twinned.models.measurement_errors import weigh_by_error
from twinned.models.resources import limit_threads, parse_memory_limit
from twinned.models.sklearn import (
    LazyPairMatrix,
    PairTrainingSet,
    SklearnDifferenceModel,
    bytes_per_binned_pair,
    fit_on_pairs,
    normalize_weights,
    supports_blocks,
    target_unit,
)
from twinned.models.wide_tables import important_features
from twinned.pairing.anchors import (
    N_NEAREST,
    as_anchor_strategy,
    as_weight_strategy,
    store_rows,
    uses_learned_metric,
)
from twinned.pairing.differences import difference
from twinned.pairing.pairs import (
    AUTO_PAIRS,
    HalfPairs,
    MetricIndex,
    PairFeatures,
    PairStrategy,
    as_pair_strategy,
    check_drawn_pairs,
    draw_by_weight,
)
from twinned.rows.folds import draw_folds, encode_groups, equal_features, given_folds, held_out_rows
from twinned.rows.neighbors import NeighborIndex
from twinned.rows.schema import Floats, Indices, Rows
from twinned.rows.training import TargetBounds, TrainingRows, validate_training_rows
from twinned.rows.validation import (
    check_bool,
    check_integer,
    check_n_jobs,
    restore_on_failure,
    validate_table,
    validate_target,
)

_N_FOLDS = 5
_FOLD_PAIR_SHARE = 0.4  # of the training pairs of the default estimator, in each fold
_CACHE_BYTES = 160_000_000  # of packed trees, stored for the next prediction
_MAX_MATRIX_BYTES = 64_000_000  # of pairs; beyond, LightGBM gets them in blocks


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
    anchors : {"all", "auto"} or strategy, default="all"
        Known rows from which a query is predicted: all, `NearestAnchors(k)`, or
        `RandomAnchors(n)`. `"auto"` is the 4, 8, 16 or 32 nearest ones by the learned metric where
        models of the folds of `cv` predict held-out rows from them clearly better than from all,
        and else all anchors (see the user guide).
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
        estimator and at least 20 rows, if `anchors` is "all" or "auto" and `weights` is "uniform",
        and else 0.
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
    anchor_errors_ : ndarray like `anchors_y_`, or None
        Out-of-fold errors of the anchors, minus their mean; None without folds.
    local_power_ : float
        Power of `GPWeights` that weights the estimates where there are out-of-fold errors; 0 where
        equal weights predict the errors of other folds as well.
    n_nearest_anchors_ : int or None
        Number of nearest anchors that `anchors="auto"` chose; None for all anchors.
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
    pairs: Any = "auto"
    pair_features: Any = "concat+difference"
    anchors: Any = "all"
    weights: Any = "uniform"
    symmetric: bool = True
    cv: Any = None
    categorical_features: Any = "from_dtype"
    n_jobs: int | None = None
    memory_limit: Any = "512MB"
    random_state: Any = None
    verbose: int = 0

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        is_estimator = isinstance(self.estimator, BaseEstimator)
        base = get_tags(self.estimator if is_estimator else self._base_estimator())
        tags.input_tags.allow_nan = base.input_tags.allow_nan
        # the default estimator is wrapped for several outputs
        tags.target_tags.multi_output = self.estimator is None or base.target_tags.multi_output
        tags.non_deterministic = base.non_deterministic
        return tags

    def fit(
        self,
        X,
        y,
        sample_weight=None,
        X_val=None,
        y_val=None,
        y_lower=None,
        y_upper=None,
        groups=None,
        batch=None,
        y_std=None,
    ):
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
        options = {"X_val": X_val, "y_val": y_val, "with_folds": True}
        arguments = sample_weight, groups, y_lower, y_upper, y_std
        self.fit_pairs(X, y, *arguments, batch=batch, **options)
        return self

    def fit_pairs(
        self, X, y, *arguments, X_val=None, y_val=None, imputed=None, with_folds=False, batch=None
    ):
        """`fit` that returns the training set of the base estimator.

        `imputed` (n,) are rows whose y is imputed already; they are no anchors.
        """
        start = time.perf_counter()
        with restore_on_failure(self), limit_threads(self.n_jobs):
            self.check_parameters()
            self._pair_dtype = pair_dtype(self._base_estimator(), X)
            multi_output = self.__sklearn_tags__().target_tags.multi_output
            options = {"pair_dtype": self._pair_dtype, "multi_output": multi_output}
            data = validate_training_rows(self, X, y, *arguments, **options, batch=batch)
            data = weigh_by_error(remove_offsets(data, self.shrinks_offsets))
            if with_folds and self.cv is not None:
                data = data.with_folds(given_folds(self.cv, data.matrix, data.targets, data.groups))
            if data.weight is not None:
                data = data.of_positive_weight()
                data = replace(data, weight=normalize_weights(np.asarray(data.weight)))
            if imputed is not None:  # bounds that differ mark a row as censored
                lower = np.where(imputed[data.table_rows], -np.inf, data.y)
                data = replace(data, bounds=TargetBounds(lower, data.y))
            elif data.bounds is not None:
                values = impute_target(data.rows.features, data.bounds, data.weight)
                data = replace(data, y=values.y)
            training = self._fit_rows(data, X_val, y_val)
            if with_folds and (self.estimator is None or self.cv is not None):
                self._fit_folds(data)
            self.set_offsets(data.offsets)
        if self.verbose:
            seconds = time.perf_counter() - start
            print(f"[TwinRegressor] {self.n_pairs_:,} pairs fitted in {seconds:.1f} s")
        return training

    def _fit_rows(self, data, X_val=None, y_val=None, pair_share=1.0):
        """Fit to validated rows; the training set of the base estimator."""
        rng = check_random_state(self.random_state)
        n_outputs = 1 if data.targets.ndim == 1 else data.targets.shape[1]
        selected = np.arange(data.matrix.shape[1])
        if self.estimator is None and not callable(self.pair_features):
            selected = important_features(data.matrix, data.y, MAX_FEATURES, data.weight)
        self.selected_features_ = selected
        self._features = PairFeatures(self.pair_features, data.schema, self._pair_dtype, selected)
        base = self._base_estimator(len(data), n_outputs, len(selected))
        self._y_unit = target_unit(data.targets)
        max_pairs = self.max_pairs_in_memory(n_outputs, binned=supports_blocks(base))
        if X_val is not None:
            max_pairs = max_pairs * 3 // 4  # the rest is for the validation pairs
        learned = None
        if uses_learned_metric(self.pairs, self.anchors, self.weights):
            learned = learn_metric(data.rows.features, data.targets, data.weight)
        builder = TrainingPairBuilder(base, self._features, data, self._y_unit, max_pairs, rng)
        pairs = builder.draw(
            *self._pair_strategy(len(data), max_pairs, pair_share),
            lambda metric: NeighborIndex(data.rows.features, metric, self.n_jobs, learned),
        )
        anchors = data.take(store_rows(as_anchor_strategy(self.anchors), data.known, rng))
        validation: tuple[TrainingRows, TrainingRows] | None = None
        if X_val is not None or y_val is not None:
            given = self._validate_validation_rows(base, X_val, y_val, data)
            validation = None if given is None else (given, anchors)
        elif (fraction := early_stopping_fraction(base, len(pairs.first))) is not None:
            pairs, validation = builder.hold_out_rows(pairs, fraction)
        fit_params = {} if validation is None else builder.validation_pairs(*validation)
        training = builder.training_set(pairs, fit_params)
        seeds = None if self.random_state is None else rng
        self.estimator_ = fit_on_pairs(base, training, rng=seeds, n_jobs=self.n_jobs)
        self.n_pairs_ = len(pairs.first)
        self._store_rows(data, replace(anchors, groups=None), learned)
        self.restore_anchors()
        return training

    def _fit_folds(self, data: TrainingRows) -> None:
        """Fit the models of the folds, and store the out-of-fold errors of the anchors."""
        rows = data.take(data.known)
        fold = self._draw_folds(rows)
        if fold is None:
            return
        rows, of_data = replace(rows, fold=fold), np.full(len(data), -1)
        of_data[data.known] = fold  # no fold holds out censored rows
        data = replace(data, fold=of_data)
        counts = N_NEAREST if self.anchors == "auto" else ()
        predicted = np.full((1 + len(counts), *self.anchors_y_.shape), np.nan)
        for number in np.unique(fold[fold >= 0]):
            twin, held_out = copy.copy(self), fold == number
            with ignore_table_warnings():
                twin._fit_rows(data.without(number), pair_share=_FOLD_PAIR_SHARE)
                fitted = twin.fitted_
                queries = fitted.queries(rows.matrix[held_out])
                near = [as_anchor_strategy("auto", min(n, len(fitted.anchors))) for n in counts]
                each = [fitted, *(replace(fitted, anchor_strategy=own) for own in near)]
                predicted[:, held_out] = [fitted.squeeze(own.predict(queries)[0]) for own in each]
        self.set_out_of_fold(predicted[0], rows.folds)
        errors = np.nan_to_num(self.anchors_y_ - predicted[0])
        local = LocalErrors(self._anchors, errors, rows.folds)
        if counts and (best := local.best_nearest(self.local_power_, predicted[1:])):
            self.n_nearest_anchors_, self.local_power_ = best, 0.0

    def _draw_folds(self, rows: TrainingRows) -> Indices | None:
        """The fold of each of the known rows, or None."""
        has_defaults = self.anchors in ("all", "auto") and self.weights == "uniform"
        n_folds = self.cv
        if n_folds is None:
            n_folds = _N_FOLDS if has_defaults and len(rows) >= 20 else 0
        if not n_folds:
            return None
        if not has_defaults:
            raise ValueError("cv needs anchors='all' or 'auto' and weights='uniform'; else cv=0.")
        if rows.fold is not None:  # those of a splitter
            return rows.fold
        n_folds = min(check_integer("cv", n_folds, 2), len(rows))
        if rows.groups is None:
            codes = equal_features(rows.matrix, n_folds)
        else:
            codes = encode_groups(rows.groups, len(rows))
        return draw_folds(len(rows), n_folds, self.random_state or 0, codes)

    def clone_for_folds(self) -> TwinRegressor:
        """An unfitted clone for the folds of another method, with those of its own for "auto"."""
        return clone(self) if self.anchors == "auto" else clone(self).set_params(cv=0)

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

    def _base_estimator(self, n_rows: int = 1, n_outputs: int = 1, n_features: int = 1) -> Any:
        if self.estimator is None:
            return default_estimator(n_rows, n_outputs, n_features)
        return check_base_estimator(self.estimator)

    def _pair_strategy(
        self, n_rows: int, max_pairs: int, pair_share: float
    ) -> tuple[PairStrategy, bool]:
        """The pair strategy, and whether its pairs are fitted in both orders."""
        if self.estimator is None and self.symmetric and self.pairs == "auto":
            n_pairs = int(pair_share * default_n_pairs(len(self.selected_features_)))
            strategy: PairStrategy = HalfPairs(min(n_pairs, max_pairs))
        else:
            strategy = as_pair_strategy(self.pairs, n_rows, max_pairs, mirrored=self.symmetric)
        as_drawn = getattr(strategy, "both_orders", False) or getattr(strategy, "one_order", False)
        mirrored = self.symmetric and not as_drawn
        count = strategy.count(n_rows) * (2 if mirrored else 1)
        if count > max_pairs:
            partners = max_pairs // (n_rows * (2 if self.symmetric else 1))
            fewer = f"pairs={partners} (random partners per row), pairs='auto' or "
            raise MemoryLimitError(
                f"{count:,} pairs of {n_rows:,} rows do not fit into memory_limit="
                f"{self.memory_limit!r} (at most {max_pairs:,} do); use "
                f"{fewer if partners else ''}a larger limit."
            )
        return strategy, mirrored

    def max_pairs_in_memory(self, n_outputs: int, *, binned: bool = False) -> int:
        """The number of pairs that fit into memory, with their targets, indices and weights."""
        limit, features = parse_memory_limit(self.memory_limit), self._features
        if limit is None:
            return 2**62
        each = bytes_per_binned_pair(features.width) if binned else features.bytes_per_pair
        return limit // (each + 8 * n_outputs + 3 * 8)

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
        matrix, schema = validate_table(self, X_val, data.schema, self._pair_dtype)
        y = validate_target(self, y_val, len(matrix), multi_output=data.targets.ndim == 2)
        return TrainingRows(schema, matrix, y)

    # --- prediction ---------------------------------------------------------------------------

    def _make_model(self) -> SklearnDifferenceModel:
        """The difference model; the same object as long as nothing has changed."""
        limit = parse_memory_limit(self.memory_limit)
        cache_bytes = _CACHE_BYTES if limit is None else min(_CACHE_BYTES, limit // 3)
        models, kind = self._anchors.models, (self.estimator_, self.symmetric)
        if not models or (models[0].estimator, models[0].symmetric) != kind:
            parts = self.estimator_, self._features, self._y_unit, self.symmetric, cache_bytes
            models[:] = [SklearnDifferenceModel(*parts)]
        return models[0]

    def prepare_fast_path(self) -> None:
        """Read and pack trees now, for many small predictions to come."""
        fitted = self.fitted_
        trees = self._make_model().trees_at(fitted.anchors.rows, fitted.anchors.targets)
        if trees is not None:
            trees.pack_now()


# --- training pairs ---


class Pairs(NamedTuple):
    """(n_pairs,) first rows, second rows and weights."""

    first: Indices
    second: Indices
    weight: Floats | None

    def take(self, chosen: Any) -> Pairs:
        weight = None if self.weight is None else self.weight[chosen]
        return Pairs(self.first[chosen], self.second[chosen], weight)


@dataclass(frozen=True)
class TrainingPairBuilder:
    """Builder of the training set of a base estimator."""

    base: Any  # the base estimator, not fitted
    features: PairFeatures
    data: TrainingRows
    unit: float  # divisor of the targets (see `target_unit`)
    max_pairs: int  # that fit into memory
    rng: np.random.RandomState

    def draw(self, strategy: PairStrategy, mirrored: bool, make_index: MetricIndex) -> Pairs:
        """Draw training pairs, in both orders if `mirrored`."""
        n_rows, weight = len(self.data), self.data.weight
        first, second = strategy.draw(n_rows, make_index, self.rng)
        check_drawn_pairs(first, second, n_rows, strategy.count(n_rows))
        if mirrored:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        if weight is None:
            return Pairs(first, second, None)
        pair_weight = weight[first] * weight[second]
        if supports_weights(self.base):
            return Pairs(first, second, pair_weight)
        most = min(self.max_pairs, max(AUTO_PAIRS, len(first)))
        return Pairs(first, second, None).take(draw_by_weight(pair_weight, most, self.rng))

    def hold_out_rows(
        self, pairs: Pairs, fraction: float
    ) -> tuple[Pairs, tuple[TrainingRows, TrainingRows]]:
        """Pairs without the rows held out for early stopping, and these rows and the others."""
        held_out = held_out_rows(len(self.data), fraction, self.rng)
        pairs = pairs.take(~(held_out[pairs.first] | held_out[pairs.second]))
        check_drawn_pairs(pairs.first, pairs.second, len(self.data), len(pairs.first))
        return pairs, (self.data.take(held_out), self.data.take(~held_out))

    def validation_pairs(self, validation: TrainingRows, anchors: TrainingRows) -> dict[str, Any]:
        """Pairs of validation rows, each with all anchors or as many as fit, as fit parameters."""
        n_rows, used = len(validation), np.arange(len(anchors))
        n_used = max(1, self.max_pairs // 3 // n_rows)
        if n_used < len(used):
            used = self.rng.choice(used, size=n_used, replace=False)
        first, second = np.repeat(np.arange(n_rows), len(used)), np.tile(used, n_rows)
        pairs = LazyPairMatrix(self.features, validation.rows, anchors.rows, first, second)
        return {
            "X_val": np.asarray(pairs),
            "y_val": difference(validation.targets[first], anchors.targets[second]) / self.unit,
        }

    def training_set(self, pairs: Pairs, fit_params: dict[str, Any]) -> PairTrainingSet:
        """The training set; for LightGBM with a lazy pair matrix, where it is large."""
        rows, y = self.data.rows, self.data.targets
        matrix = LazyPairMatrix(self.features, rows, rows, pairs.first, pairs.second)
        n_bytes = len(pairs.first) * self.features.bytes_per_pair
        lazy = n_bytes > _MAX_MATRIX_BYTES and supports_blocks(self.base)
        if pairs.weight is not None:
            fit_params = {**fit_params, "sample_weight": pairs.weight}
        return PairTrainingSet(
            pairs=matrix if lazy else np.asarray(matrix),
            target=difference(y[pairs.first], y[pairs.second]) / self.unit,
            fit_params=fit_params,
            first=pairs.first,
            second=pairs.second,
            y=y,
            groups=self.data.groups,
        )
