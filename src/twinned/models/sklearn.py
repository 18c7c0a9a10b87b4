"""Scikit-learn regressors on pair features: training pairs, fitting, and the difference model.

Three things that an estimator would do wrongly on pairs are handled here: a search cross-validates
over folds of rows, early stopping holds out rows, and the number of threads is the user's.
"""

import logging
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.multioutput import MultiOutputRegressor
from sklearn.utils import gen_batches

from twinned._compat import bins_without_weights, boosting_trees, is_search, set_folds
from twinned.exceptions import MemoryLimitError
from twinned.models.base_estimator import (
    TreeSizes,
    early_stopping_fraction,
    set_unset_seeds,
    supports_weights,
)
from twinned.models.protocol import AnchoredModel
from twinned.models.resources import count_threads, parse_memory_limit
from twinned.models.trees import predictor
from twinned.models.trees.reader import count_trees, read_trees
from twinned.pairing.differences import PairFeatures, both_orders, difference
from twinned.pairing.pairs import (
    AUTO_PAIRS,
    RNG,
    HalfPairs,
    PairStrategy,
    as_pair_strategy,
    check_drawn_pairs,
    draw_by_weight,
    pair_folds,
)
from twinned.rows.folds import held_out_rows
from twinned.rows.neighbors import LearnedMetric, NeighborIndex
from twinned.rows.scaling import round_for_sums
from twinned.rows.schema import Floats, Indices, Rows
from twinned.rows.training import TrainingRows
from twinned.rows.validation import draw_seed

# A block of pairs of this size stays in the processor's cache; larger ones are slower.
_BLOCK_BYTES = 8_000_000
_CACHE_BYTES = 160_000_000  # of packed trees
_MOST_TREES = 5_000  # of an estimator; with fewer pairs than these make worthwhile, none are read
_LOGGER = logging.getLogger("twinned")
# Of the range of a pair column: values of boosting that are nearer to each other count as equal. It
# is far above rounding, and far below the width of a bin.
_RESOLUTION = 2.0**-30
# Of a threshold between two values of a pair column: near the middle, but irrational, so that no
# other value of an evenly spaced column is at it.
_POSITION = 0.24**0.5
# Columns of pairs that a smaller share knows are not used: boosting cannot bin a column without any
# known value, and finds its bins by a sample of the pairs. One that 1 % of the rows know has more.
_LEAST_KNOWN_SHARE = 1e-4

Pairs = NDArray[np.floating]  # (pair, pair feature)


def build_pairs(
    features: PairFeatures, left: Rows, right: Rows, first: Indices, second: Indices
) -> Pairs:
    """The matrix of pairs of rows `first` of `left` with rows `second` of `right`.

    It is filled in blocks, so that no second array of its size is allocated.
    """
    pairs = np.empty((len(first), features.width), dtype=features.dtype)
    for rows in gen_batches(len(first), max(1, _BLOCK_BYTES // features.bytes_per_pair)):
        pairs[rows] = features.build(left.take(first[rows]), right.take(second[rows]))
    return pairs


class PairTrainingSet(NamedTuple):
    """Pairs, targets and fit parameters of a base estimator.

    `pairs` is (n_pairs, width) and `target` (n_pairs,) or (n_pairs, n_outputs). `fit_params` holds
    `sample_weight`, `X_val` and `y_val` where given. A search is cross-validated over the rows
    `first`, `second` (n_pairs,) of the pairs, their values `y` and `groups`.
    """

    pairs: Pairs
    target: Floats
    fit_params: dict[str, Any]
    first: Indices
    second: Indices
    y: Floats
    groups: Indices | None = None

    def with_pseudo_labels(self, pairs: Pairs, target: Floats) -> Self:
        """The training set with further pairs, whose weight is that of the mean pair.

        They belong to no rows of the training set, so a search cannot be fitted to the result.
        """
        fit_params = dict(self.fit_params)
        if "sample_weight" in fit_params:
            weight = fit_params["sample_weight"]
            fit_params["sample_weight"] = np.append(weight, np.full(len(target), weight.mean()))
        return self._replace(
            pairs=np.concatenate([self.pairs, pairs]),
            target=np.concatenate([self.target, target]),
            fit_params=fit_params,
        )


class DrawnPairs(NamedTuple):
    """(n_pairs,) first rows, second rows and weights."""

    first: Indices
    second: Indices
    weight: Floats | None

    def take(self, chosen: Indices | NDArray[np.bool_]) -> Self:
        weight = None if self.weight is None else self.weight[chosen]
        return type(self)(self.first[chosen], self.second[chosen], weight)


@dataclass(frozen=True)
class TrainingPairBuilder:
    """Builder of the training set of the base estimator of a twin."""

    twin: BaseEstimator
    base: BaseEstimator  # not fitted
    features: PairFeatures
    rows: TrainingRows
    rng: np.random.RandomState

    @cached_property
    def unit(self) -> float:
        """The divisor of the targets."""
        return target_unit(self.rows.targets, any_unit=self.twin.estimator is None)

    @cached_property
    def max_pairs(self) -> int:
        """The number of pairs that fit into memory."""
        n_outputs = self.rows.outputs.shape[1]
        return max_pairs_in_memory(self.twin.memory_limit, self.features, n_outputs)

    def choose(self, sizes: TreeSizes) -> tuple[PairStrategy, int, bool]:
        """The pair strategy, its count, and whether its pairs are fitted in both orders."""
        twin, n_rows = self.twin, len(self.rows.matrix)
        if twin.estimator is None and twin.symmetric and twin.pairs == "auto":
            n_pairs = sizes.n_pairs(n_rows, len(self.features.selected))
            strategy: PairStrategy = HalfPairs(min(n_pairs, self.max_pairs))
        else:
            strategy = as_pair_strategy(twin.pairs, n_rows, self.max_pairs, mirrored=twin.symmetric)
        as_drawn = getattr(strategy, "both_orders", False) or getattr(strategy, "one_order", False)
        mirrored = twin.symmetric and not as_drawn
        n_drawn = strategy.count(n_rows)
        count = n_drawn * (2 if mirrored else 1)
        if count > self.max_pairs:
            partners = self.max_pairs // (n_rows * (2 if twin.symmetric else 1))
            fewer = f"pairs={partners} (random partners per row), pairs='auto' or "
            raise MemoryLimitError(
                f"{count:,} pairs of {n_rows:,} rows do not fit into memory_limit="
                f"{twin.memory_limit!r} (at most {self.max_pairs:,} do); use "
                f"{fewer if partners else ''}a larger limit."
            )
        return strategy, n_drawn, mirrored

    def draw(self, sizes: TreeSizes, learned: LearnedMetric | None) -> DrawnPairs:
        """Draw training pairs; those of the default estimator have these sizes."""
        n_rows, weight = len(self.rows.matrix), self.rows.weight
        strategy, n_drawn, mirrored = self.choose(sizes)

        def make_index(metric: str) -> NeighborIndex:
            return NeighborIndex(self.rows.rows.features, metric, self.twin.n_jobs, learned)

        first, second = strategy.draw(n_rows, make_index, self.rng)
        check_drawn_pairs(first, second, n_rows, n_drawn)
        if mirrored:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        if weight is None:
            return DrawnPairs(first, second, None)
        pair_weight = weight[first] * weight[second]
        if supports_weights(self.base):
            return DrawnPairs(first, second, pair_weight)
        most = min(self.max_pairs, max(AUTO_PAIRS, len(first)))
        return DrawnPairs(first, second, None).take(draw_by_weight(pair_weight, most, self.rng))

    def validation_pairs(self, validation: TrainingRows, others: TrainingRows) -> dict[str, object]:
        """Pairs of validation rows, each with all others or as many as fit, as fit parameters."""
        n_rows, used = len(validation), np.arange(len(others))
        n_used = max(1, self.max_pairs // 3 // n_rows)
        if n_used < len(used):
            used = self.rng.choice(used, size=n_used, replace=False)
        first, second = np.repeat(np.arange(n_rows), len(used)), np.tile(used, n_rows)
        return {
            "X_val": build_pairs(self.features, validation.rows, others.rows, first, second),
            "y_val": difference(validation.targets[first], others.targets[second]) / self.unit,
        }

    def build(self, pairs: DrawnPairs) -> PairTrainingSet:
        """The training set; where the base estimator stops early, some rows are held out."""
        fraction = early_stopping_fraction(self.base, len(pairs.first))
        fit_params: dict[str, object] = {}
        rows, targets = self.rows.rows, self.rows.targets
        y = targets / self.unit
        y = round_for_sums(y) if self.twin.estimator is None else y
        if fraction is not None:
            held_out = held_out_rows(len(self.rows), fraction, self.rng)
            pairs = pairs.take(~(held_out[pairs.first] | held_out[pairs.second]))
            check_drawn_pairs(pairs.first, pairs.second, len(self.rows), len(pairs.first))
            fit_params = self.validation_pairs(self.rows.take(held_out), self.rows.take(~held_out))
        if pairs.weight is not None:
            fit_params["sample_weight"] = pairs.weight
        return PairTrainingSet(
            pairs=build_pairs(self.features, rows, rows, pairs.first, pairs.second),
            target=difference(y[pairs.first], y[pairs.second]),
            fit_params=fit_params,
            first=pairs.first,
            second=pairs.second,
            y=targets,
            groups=self.rows.groups,
        )


def max_pairs_in_memory(
    memory_limit: int | str | None, features: PairFeatures, n_outputs: int
) -> int:
    """The number of pairs that fit into memory, with their targets, indices and weights."""
    limit = parse_memory_limit(memory_limit)
    if limit is None:
        return 2**62
    return limit // (features.bytes_per_pair + 8 * n_outputs + 3 * 8)


def fit_on_pairs(
    base: BaseEstimator, training: PairTrainingSet, *, rng: RNG | None, n_jobs: int | None
) -> BaseEstimator:
    """Fit a clone of the base estimator; `rng` seeds the parts of it that have no seed.

    HistGradientBoosting has no `n_jobs`: the caller limits the threads of OpenMP.
    Pairs of gradient boosting are rounded in place (see `round_pairs`), and columns that hardly any
    pair knows are set to 0, so that they are not used.
    """
    base, pairs = clone(base), training.pairs
    parameters, searches = base.get_params(), is_search(base)
    if rng is not None:
        set_unset_seeds(base, lambda: draw_seed(rng))
    if searches:
        folds = pair_folds(base.cv, training.first, training.second, training.y, training.groups)
        base.set_params(cv=folds)
    set_threads = parameters.get("n_jobs", 1) is None
    if set_threads:
        base.set_params(n_jobs=count_threads(n_jobs))
    _clear_unknown_columns(pairs)
    is_rounded = round_pairs(base, training)
    with bins_without_weights(base):
        base.fit(pairs, training.target, **training.fit_params)
    if searches:
        set_folds(base, parameters["cv"])  # not those of pairs, which are as large as the pairs
    if is_rounded:
        for boosting in base.estimators_ if isinstance(base, MultiOutputRegressor) else [base]:
            _separate_thresholds(boosting, pairs)
    if set_threads:
        # blocks of queries are predicted in parallel instead; and a forest that sums its trees on
        # several threads rounds differently from call to call
        # (None means one thread to scikit-learn, but all cores to LightGBM and XGBoost)
        base.set_params(n_jobs=None if type(base).__module__.startswith("sklearn.") else 1)
    return base


def _clear_unknown_columns(pairs: Pairs) -> None:
    """Set columns of pairs with too few known values to 0, in place."""
    n_known = np.count_nonzero(~np.isnan(pairs), axis=0)
    unknown = np.flatnonzero(n_known < max(1.0, _LEAST_KNOWN_SHARE * len(pairs)))
    if len(unknown):
        pairs[:, unknown] = 0.0
        _LOGGER.info("%d columns of pairs with too few known values are not used", len(unknown))


def round_pairs(base: BaseEstimator, training: PairTrainingSet) -> bool:
    """Round the pairs of gradient boosting in place; return whether they are rounded.

    Equal differences, such as 0.3 − 0.1 and 0.6 − 0.4, differ by rounding, in each unit of X in
    another way. Bins would separate them, so that predictions would depend on the unit. Pairs of a
    validation set are rounded in the same way, categories and values in float32 are not.
    """
    inner = base.estimator if isinstance(base, MultiOutputRegressor) else base
    if not isinstance(inner, HistGradientBoostingRegressor):
        return False
    pairs, categorical = training.pairs, inner.categorical_features
    if pairs.dtype != np.float64 or not (categorical is None or isinstance(categorical, str)):
        return False
    low, high = np.fmin.reduce(pairs), np.fmax.reduce(pairs)
    steps = np.where(high > low, high - low, 1.0) * _RESOLUTION
    for matrix in (pairs, training.fit_params.get("X_val")):
        if matrix is not None:
            np.rint(np.divide(matrix, steps, out=matrix), out=matrix)
            matrix *= steps
    return True


def _separate_thresholds(boosting: HistGradientBoostingRegressor, pairs: Pairs) -> None:
    """Move thresholds, which may be values of pairs, between these and the next ones.

    So no pair goes another way by rounding: not in another unit, nor in an export to float32.
    """
    trees, _ = boosting_trees(boosting)
    nodes = np.concatenate(trees)
    splits = (nodes["is_leaf"] == 0) & np.isfinite(nodes["num_threshold"])
    for column in np.unique(nodes["feature_idx"][splits]):
        chosen = splits & (nodes["feature_idx"] == column)
        known_values = pairs[~np.isnan(pairs[:, column]), column]
        values = np.append(np.sort(known_values), np.inf)
        above = np.searchsorted(values, nodes["num_threshold"][chosen], side="right")
        low, high = values[above - 1], values[above]
        nodes["num_threshold"][chosen] = low + _POSITION * (high - low)
    ends = np.cumsum([len(tree) for tree in trees])
    for tree, moved in zip(trees, np.split(nodes, ends[:-1]), strict=True):
        tree["num_threshold"] = moved["num_threshold"]


def normalize_weights(weight: Floats) -> Floats:
    """Weights divided by their mean where it is extreme, as the weight of a pair is a product."""
    mean = weight.mean()
    return weight if 1e-3 <= mean <= 1e3 else weight / mean


def target_unit(y: Floats, *, any_unit: bool = False) -> float:
    """A power of two by which extreme targets are divided for the estimator, and 1 for others.

    With `any_unit`, the spread: of an estimator whose trees do not depend on it but for rounding.

    Boosting sums squares in float32, and trees treat a node as pure whose spread is below 1e-8:
    both would silently predict a constant.
    """
    spread = float(np.max(y.max(axis=0) - y.min(axis=0)))
    if any_unit and spread:
        return spread
    if spread == 0 or 1e-6 <= spread <= 1e12:
        return 1.0
    return float(2.0 ** np.floor(np.log2(spread)))


@dataclass(eq=False)
class SklearnDifferenceModel:
    """A fitted scikit-learn regressor on pair features, as a `DifferenceModel`."""

    estimator: BaseEstimator
    features: PairFeatures
    unit: float  # factor of its predictions (see `target_unit`)
    symmetric: bool  # whether it is evaluated in both orders of a pair
    memory_limit: (
        int | str | None
    )  # of which trees that are packed for the next prediction use some
    _anchored: tuple[Rows, predictor.AnchoredTrees | None] | None = field(default=None, init=False)

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_anchored": None}

    @property
    def member_weights(self) -> Floats:
        return np.full(2, 0.5) if self.symmetric else np.ones(1)

    def with_anchors(self, rows: Rows, n_before: int) -> Self:
        """The same model: nothing of it depends on the anchors."""
        return self

    @property
    def bytes_per_pair(self) -> int:
        return self.features.bytes_per_pair

    @property
    def pairs_per_block(self) -> int:
        return max(1, _BLOCK_BYTES // self.bytes_per_pair)

    def differences(self, first: Rows, second: Rows) -> Floats:
        """(member, ..., output): F(first, second) and, where symmetric, −F(second, first)."""
        forward = self._predict(first, second)
        if not self.symmetric:
            return forward[None]
        return both_orders(forward, self._predict(second, first))

    def _predict(self, first: Rows, second: Rows) -> Floats:
        pairs = self.features.build(first, second)
        leading = pairs.shape[:-1]
        raw = np.asarray(self.estimator.predict(pairs.reshape(-1, pairs.shape[-1])))
        if not np.isfinite(raw).all():
            name, bad = type(self.estimator).__name__, raw[~np.isfinite(raw)][0]
            raise ValueError(f"{name} predicted a difference of {bad}; check the scale of X and y.")
        return raw.reshape(*leading, -1).astype(np.float64, copy=False) * self.unit

    def at_anchors(self, anchors: Rows, anchors_y: Floats, n_pairs: int) -> AnchoredModel | None:
        """The trees of the estimator bound to the anchors, where it has trees and it pays."""
        n_evaluations = n_pairs * len(self.member_weights)
        is_bound = self._anchored is not None and self._anchored[0] is anchors
        has_few = n_evaluations * _MOST_TREES < predictor.MIN_WORK
        if not is_bound and (
            has_few or n_evaluations * count_trees(self.estimator) < predictor.MIN_WORK
        ):
            return None
        trees = self.trees_at(anchors, anchors_y)
        return trees if trees is not None and trees.worthwhile(n_evaluations) else None

    def trees_at(self, anchors: Rows, anchors_y: Floats) -> predictor.AnchoredTrees | None:
        """The trees bound to the anchors, read once; None where the estimator has none."""
        if self._anchored is None or self._anchored[0] is not anchors:
            self._anchored = anchors, self._bind_trees(anchors, anchors_y)
        return self._anchored[1]

    def _bind_trees(self, anchors: Rows, anchors_y: Floats) -> predictor.AnchoredTrees | None:
        features = self.features
        trees = None if callable(features.kind) else read_trees(self.estimator)
        if trees is None or trees.n_features > features.width:
            return None
        limit = parse_memory_limit(self.memory_limit)
        return predictor.AnchoredTrees(
            trees=trees,
            features=features,
            anchors=anchors,
            anchors_y=anchors_y,
            unit=self.unit,
            symmetric=self.symmetric,
            cache_bytes=_CACHE_BYTES if limit is None else min(_CACHE_BYTES, limit // 3),
        )
