"""TwinRegressor: the dual problem over any scikit-learn regressor."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.utils import check_random_state, get_tags

from twinned._neighbors import NeighborIndex
from twinned._table import Floats, Rows
from twinned._validation import (
    check_bool,
    check_n_jobs,
    check_sample_weight,
    parse_memory_limit,
    restore_on_failure,
    validate_table,
    validate_target,
    validate_training_table,
)
from twinned.estimators.base import BaseTwin
from twinned.estimators.blocks import Queries
from twinned.exceptions import IgnoredValidationSetWarning, MemoryLimitError
from twinned.models.lightgbm import LazyPairMatrix, bytes_per_binned_pair, supports_blocks
from twinned.models.sklearn import (
    DEFAULT_PAIRS,
    PairTrainingSet,
    check_base_estimator,
    default_estimator,
    early_stopping_fraction,
    fit_on_pairs,
    moderate,
    pair_dtype,
    takes_validation_set,
    takes_weights,
    unit_of,
)
from twinned.models.trees import AnchoredTrees, anchored_trees, enough_work
from twinned.pairing.anchors import as_anchor_strategy, check_kept
from twinned.pairing.pairs import (
    AUTO_PAIRS,
    HalfPairs,
    PairFeatures,
    PairStrategy,
    as_pair_strategy,
    check_pairs,
    difference,
    draw_by_weight,
)
from twinned.pairing.splits import held_out_rows
from twinned.pairing.weights import as_weight_strategy

_KEPT_BYTES = 160_000_000  # of packed trees kept for the next prediction
_FIT_BYTES = 64_000_000  # of pairs at once, where the learner can take them in blocks


class TwinRegressor(BaseTwin):
    """Learn differences between points with any regressor; predict from anchors.

    The base estimator learns `F(a, b) = y(a) − y(b)` over pairs of training points. A new point
    is predicted by adding predicted differences to the known values of anchor points and taking
    their weighted mean.

    Parameters
    ----------
    estimator : regressor, default=None
        What learns the differences. `TwinRegressor(RandomForestRegressor())` is a twinned random
        forest. None is gradient boosting with leaves of many pairs, the best of those tried on
        the paper's data sets (`benchmarks/tree_default.py`). A search such as `GridSearchCV` over
        a regressor is cross-validated over points, not over pairs.
    pairs : {"auto", "all"}, int or strategy, default="auto"
        Which pairs are learned: `"all"` n² of them; an integer m, that many random partners for
        each point; a strategy such as `NearestPairs(16)`. `"auto"` takes all pairs while they are
        at most 250,000 and fit into `memory_limit`, and random partners beyond; for the default
        estimator it is `HalfPairs(100_000)`. Where `symmetric`, each random or nearest pair is
        learned with its mirror image.
    pair_features : str or callable, default="concat+difference"
        What the learner sees of a pair: `"concat+difference"` (a, b, a − b), `"concat"` (a, b),
        `"difference"` a − b, or what a callable makes of two (n_pairs, n_columns) arrays. A
        nominal category enters as indicators, and its difference as "same or different".
    anchors : {"all"} or strategy, default="all"
        Which known points a prediction is made from: all, `NearestAnchors(k)`, or
        `RandomAnchors(n)`.
    weights : {"uniform", "distance"} or callable, default="uniform"
        How much each anchor counts. A callable gets `(distances, estimates, anchor_indices)`, each
        (n_queries, n_anchors), and returns weights of that shape.
    symmetric : bool, default=True
        Predict ½F(a, b) − ½F(b, a), which is exactly antisymmetric.
    categorical_features : {"from_dtype"}, list or None, default="from_dtype"
        The nominal columns: by dtype (pandas and polars categories), or instead a list of names,
        positions, or a mask. An ordered pandas category counts its levels.
    n_jobs : int or None, default=None
        Threads for predicting, for the neighbor search, and for fitting: at most so many where
        it is set, also in a base estimator that has no `n_jobs` of its own or leaves it at None.
    memory_limit : int, str or None, default="512MB"
        Bounds the pair matrix of `fit` (or what LightGBM keeps of it) and the blocks of `predict`,
        in bytes or such as "2GB".
    random_state : int, RandomState or None, default=None
        Draws random pairs and anchors, and seeds the base estimator where it has no seed of its
        own.

    Attributes
    ----------
    estimator_ : regressor
        The fitted clone. Its input columns are first, second, first − second, in that order, for
        `"concat+difference"`; within each, numbers come before indicators of names.
    anchors_X_ : ndarray of shape (n_anchors, n_features)
        The known points, with nominal categories as codes.
    anchors_y_ : ndarray of shape (n_anchors,) or (n_anchors, n_outputs)
        Their values.
    anchor_rows_ : ndarray of shape (n_anchors,)
        The rows of the training table that they were. Rows of weight 0 are not among them, and
        anchors that were added later have −1.
    n_pairs_ : int
        The pairs fitted, mirror images counted.
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

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        base = get_tags(self._base())
        tags.input_tags.allow_nan = base.input_tags.allow_nan
        # the default estimator is wrapped where it has to learn several outputs
        tags.target_tags.multi_output = self.estimator is None or base.target_tags.multi_output
        tags.non_deterministic = base.non_deterministic
        return tags

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None
    ) -> TwinRegressor:
        """Learn differences over pairs of the rows of X, and keep the anchors.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            The known points.
        y : array of shape (n,), or (n, n_outputs) where the base estimator learns several
            Their values.
        sample_weight : array of shape (n,), default=None
            A pair weighs the product of its two, an anchor its own. A base estimator that takes no
            weights gets pairs drawn in proportion to them.
        X_val, y_val : like X and y, default=None
            For a base estimator whose `fit` takes a validation set, such as
            `HistGradientBoostingRegressor(early_stopping=True)`: it gets the pairs of these points
            with the anchors. Rows are kept apart, so no pair is on both sides. Without them
            such a base gets its own `validation_fraction` of the points.
        """
        with restore_on_failure(self):
            self._fit(X, y, sample_weight, X_val, y_val)
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any = None, X_val: Any = None, y_val: Any = None
    ) -> PairTrainingSet:
        """Fit, and tell what the base estimator was taught."""
        check_bool("symmetric", self.symmetric)
        as_weight_strategy(self.weights)
        limit = parse_memory_limit(self.memory_limit)
        check_n_jobs(self.n_jobs)
        rng = check_random_state(self.random_state)
        tags = self.__sklearn_tags__()
        self._pair_dtype = pair_dtype(self._base(), X)
        matrix, columns = validate_training_table(
            self,
            X,
            self.categorical_features,
            allow_nan=tags.input_tags.allow_nan,
            pair_dtype=self._pair_dtype,
        )
        target = validate_target(self, y, len(matrix), multi_output=tags.target_tags.multi_output)
        weight = check_sample_weight(sample_weight, len(matrix))
        rows = np.arange(len(matrix)) if weight is None else np.flatnonzero(weight)
        matrix, target = matrix[rows], target[rows]
        weight = None if weight is None else moderate(weight[rows])

        self._features = PairFeatures(self.pair_features, columns, self._pair_dtype)
        # a column vector is one output: the learner gets it flat, and the anchors keep its shape
        values = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
        n_outputs = 1 if values.ndim == 1 else values.shape[1]
        base = self._base(len(matrix), n_outputs)
        most = self._most_pairs(limit, n_outputs, base)
        if X_val is not None:
            most = most * 3 // 4  # the rest is for the validation pairs
        strategy, mirrored = self._pair_strategy(len(matrix), most)
        points = columns.to_rows(matrix)
        indices: dict[str, NeighborIndex] = {}

        def index(metric: str) -> NeighborIndex:
            """One index a metric, for the pairs and, where all points are kept, the anchors."""
            if metric not in indices:
                indices[metric] = NeighborIndex(points.features, metric, self.n_jobs)
            return indices[metric]

        first, second = strategy.draw(len(points), index, rng)
        check_pairs(first, second, len(points), most)
        if mirrored:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        pair_weight = None if weight is None else weight[first] * weight[second]
        if pair_weight is not None and not takes_weights(base):
            drawn = draw_by_weight(pair_weight, min(most, max(AUTO_PAIRS, len(first))), rng)
            first, second, pair_weight = first[drawn], second[drawn], None
        kept = check_kept(as_anchor_strategy(self.anchors).keep(len(points), rng), len(points))

        options: dict[str, Any] = {}
        self._y_unit = unit_of(values)
        if X_val is not None or y_val is not None:
            options = self._validation_set(
                base, X_val, y_val, columns, points.take(kept), values[kept], most // 3, rng
            )
        elif (share := early_stopping_fraction(base, len(first))) is not None:
            held_out = held_out_rows(len(points), share, rng)
            out, stay = np.flatnonzero(held_out), np.flatnonzero(~held_out)
            options = self._validation_pairs(
                points.take(out), values[out], points.take(stay), values[stay], most // 3, rng
            )
            both_stay = ~(held_out[first] | held_out[second])
            first, second = first[both_stay], second[both_stay]
            pair_weight = None if pair_weight is None else pair_weight[both_stay]
            check_pairs(first, second, len(points), most)
        if pair_weight is not None:
            options["sample_weight"] = pair_weight
        lesson = PairTrainingSet(
            base,
            self._pairs_for(base, points, first, second),
            difference(values[first], values[second]) / self._y_unit,
            options,
            (first, second, values),
        )
        self.estimator_ = fit_on_pairs(
            lesson, rng=None if self.random_state is None else rng, n_jobs=self.n_jobs
        )
        self.n_pairs_ = len(first)
        self._remember(
            matrix[kept],
            target[kept],
            None if weight is None else weight[kept],
            columns,
            rows[kept],
            indices if len(kept) == len(points) else {},
        )
        return lesson

    def _teach(self, lesson: PairTrainingSet, sides: list[tuple[Rows, Rows]], labels: Any) -> None:
        """Fit the base estimator again: to its lesson, and to pairs with labels beside it."""
        rows = np.arange(len(labels[0]))
        more = [self._pair_matrix(first, second, rows, rows) for first, second in sides]
        target = np.concatenate(labels) / self._y_unit
        target = target[:, 0] if lesson.target.ndim == 1 else target
        lesson = lesson.with_more(self.estimator_, np.concatenate(more), target)
        self.estimator_ = fit_on_pairs(lesson, rng=None, n_jobs=self.n_jobs)
        self._read = None

    # --- the base estimator -------------------------------------------------------------------

    def _base(self, n_points: int = 1, n_outputs: int = 1) -> Any:
        if self.estimator is None:
            return default_estimator(n_points, n_outputs)
        return check_base_estimator(self.estimator)

    def _raw_differences(self, first: Rows, second: Rows) -> Floats:
        pairs = self._features.build(first, second)
        leading = pairs.shape[:-1]
        raw = np.asarray(self.estimator_.predict(pairs.reshape(-1, pairs.shape[-1])))
        if not np.isfinite(raw).all():
            raise ValueError(
                f"{type(self.estimator_).__name__} predicted a difference of "
                f"{raw[~np.isfinite(raw)][0]}; check the scale of X and y."
            )
        return raw.reshape(*leading, -1).astype(np.float64, copy=False) * self._y_unit

    def _shortcut(self, queries: Queries) -> AnchoredTrees | None:
        """The trees of the estimator at the anchors, where it has such and there is much to do."""
        orders = 2 if self.symmetric else 1
        n_pairs = len(queries) * self._n_used() * orders
        read = self._read is not None and self._read[0] is self.estimator_
        ready = read and self._read[1] is not None and self._read[1].is_packed
        if callable(self._features.kind) or not (ready or enough_work(self.estimator_, n_pairs)):
            return None
        shortcut = self._at_anchors()
        if shortcut is None or not (ready or shortcut.worthwhile(n_pairs)):
            return None
        if not shortcut.supports(queries.take(slice(None))):
            return None
        # a query of which not all estimates fit into memory at once is left to blocks of pairs
        limit = parse_memory_limit(self.memory_limit)
        each = self._shortcut_bytes(shortcut, only_mean=False) * effective_n_jobs(self.n_jobs)
        return shortcut if limit is None or each <= limit else None

    def _at_anchors(self) -> AnchoredTrees | None:
        """The trees at the anchors, read once for a fitted estimator; None where it has none."""
        if self._read is None or self._read[0] is not self.estimator_:
            limit = parse_memory_limit(self.memory_limit)
            keep = _KEPT_BYTES if limit is None else min(_KEPT_BYTES, limit // 3)
            found = anchored_trees(
                self.estimator_,
                self._features,
                self._points,
                self._anchors_y(),
                self._y_unit,
                symmetric=self.symmetric,
                cache_bytes=keep,
            )
            self._read = self.estimator_, found
        return self._read[1]

    def _get_ready(self) -> None:
        """Read and pack trees now, for many small predictions to come."""
        shortcut = self._at_anchors()
        if shortcut is not None:
            shortcut.pack_now()

    def _pair_bytes(self) -> int:
        return self._features.width * self._features.dtype.itemsize

    # --- the pair matrix ----------------------------------------------------------------------

    def _most_pairs(self, limit: int | None, n_outputs: int, base: Any) -> int:
        """How many pairs fit into the memory limit: features, target, two rows and a weight."""
        if limit is None:
            return 2**62
        each = (
            bytes_per_binned_pair(self._features.width)
            if supports_blocks(base)
            else self._pair_bytes()
        )
        return limit // (each + 8 * n_outputs + 3 * 8)

    def _pair_strategy(self, n_points: int, most: int) -> tuple[PairStrategy, bool]:
        """Which pairs, and whether each is learned with its mirror image; refused if too many."""
        if self.estimator is None and self.symmetric and self.pairs == "auto":
            strategy: PairStrategy = HalfPairs(min(DEFAULT_PAIRS, most))
        else:
            strategy = as_pair_strategy(self.pairs, n_points, most, mirrored=self.symmetric)
        as_drawn = getattr(strategy, "both_orders", False) or getattr(strategy, "one_order", False)
        mirrored = self.symmetric and not as_drawn
        count = strategy.count(n_points) * (2 if mirrored else 1)
        if count > most:
            partners = most // (n_points * (2 if self.symmetric else 1))
            way_out = (
                f"pairs={partners} (random partners per point), pairs='auto' or a larger limit"
                if partners
                else "a larger limit"
            )
            raise MemoryLimitError(
                f"{count:,} pairs of {n_points:,} points do not fit into memory_limit="
                f"{self.memory_limit!r} (at most {most:,} do); use {way_out}."
            )
        return strategy, mirrored

    def _pairs_for(self, base: Any, points: Rows, first: Any, second: Any) -> Any:
        """The pairs of the lesson: their matrix, or its rows where few of them are to be there."""
        rows = LazyPairMatrix(self._features, points, points, first, second)
        in_blocks = len(rows) * self._pair_bytes() > _FIT_BYTES and supports_blocks(base)
        return rows if in_blocks else np.asarray(rows)

    def _pair_matrix(self, left: Rows, right: Rows, first: Any, second: Any) -> NDArray[Any]:
        """(n_pairs, width) of `left[first]` with `right[second]`."""
        return np.asarray(LazyPairMatrix(self._features, left, right, first, second))

    def _validation_set(
        self,
        base: Any,
        X_val: Any,
        y_val: Any,
        columns: Any,
        anchors: Rows,
        anchors_y: Floats,
        most: int,
        rng: Any,
    ) -> dict[str, Any]:
        """The user's own validation points, as pairs with the anchors."""
        if X_val is None or y_val is None:
            raise ValueError(
                f"X_val and y_val belong together, but {'X_val' if X_val is None else 'y_val'} "
                "is None."
            )
        if not takes_validation_set(base):
            warnings.warn(
                f"{type(base).__name__} takes no validation set, so X_val and y_val are not used.",
                IgnoredValidationSetWarning,
                stacklevel=4,
            )
            return {}
        allow_nan = get_tags(base).input_tags.allow_nan
        matrix, columns = validate_table(
            self, X_val, columns, allow_nan=allow_nan, pair_dtype=self._pair_dtype
        )
        target = validate_target(self, y_val, len(matrix), multi_output=anchors_y.ndim == 2)
        points = columns.to_rows(matrix)
        return self._validation_pairs(points, target, anchors, anchors_y, most, rng)

    def _validation_pairs(
        self,
        points: Rows,
        target: Floats,
        anchors: Rows,
        anchors_y: Floats,
        most: int,
        rng: Any,
    ) -> dict[str, Any]:
        """Rows that are not learned from, each with anchors: all of them, or as many as fit."""
        used = np.arange(len(anchors))
        if len(points) * len(used) > most:
            used = rng.choice(used, size=max(1, most // len(points)), replace=False)
        first, second = np.repeat(np.arange(len(points)), len(used)), np.tile(used, len(points))
        return {
            "X_val": self._pair_matrix(points, anchors, first, second),
            "y_val": difference(target[first], anchors_y[second]) / self._y_unit,
        }
