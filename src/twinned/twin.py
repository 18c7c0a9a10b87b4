"""TwinRegressor: the dual problem over any scikit-learn regressor."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_regressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils import check_random_state, get_tags
from sklearn.utils.validation import has_fit_parameter

from twinned._validation import (
    all_or_nothing,
    check_flag,
    check_target,
    check_threads,
    check_weights,
    open_table,
    open_training_table,
    parse_memory,
)
from twinned.anchors import as_anchor_strategy, as_weight_strategy, check_kept
from twinned.base import BaseTwin
from twinned.columns import Floats, Points
from twinned.exceptions import IgnoredValidationSetWarning, MemoryLimitError
from twinned.neighbours import NeighbourIndex
from twinned.pairs import (
    AUTO_PAIRS,
    PairFeatures,
    PairStrategy,
    as_pair_strategy,
    check_pairs,
    difference,
    draw_by_weight,
)

# scikit-learn's own trees compare in float32: pairs in that type take half the memory and give
# the same trees to the last bit, since differences are rounded after they are subtracted.
_LEARNS_IN_FLOAT32 = (
    DecisionTreeRegressor,  # ExtraTreeRegressor is one too
    RandomForestRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
)
_FIT_BYTES = 8_000_000  # of pairs written at once while the pair matrix is filled


class TwinRegressor(BaseTwin):
    """Learn differences between points with any regressor; predict from anchors.

    The base estimator learns `F(a, b) = y(a) − y(b)` over pairs of training points. A new point
    is predicted by adding predicted differences to the known values of anchor points and taking
    their weighted mean.

    Parameters
    ----------
    estimator : regressor, default=None
        What learns the differences. `TwinRegressor(RandomForestRegressor())` is a twinned random
        forest. None is `HistGradientBoostingRegressor()`.
    pairs : {"auto", "all"}, int or strategy, default="auto"
        Which pairs are learned: `"all"` n² of them; an integer m, that many random partners for
        each point; a strategy such as `NearestPairs(16)`. `"auto"` takes all pairs while they are
        at most 250,000 and fit into `memory_limit`, and random partners beyond. Where
        `symmetric`, each random or nearest pair is learned with its mirror image.
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
        Threads for predicting, for the neighbour search, and for fitting a base estimator that
        has `n_jobs` and leaves it at None.
    memory_limit : int, str or None, default="512MB"
        Bounds the pair matrix of `fit` and the blocks of `predict`, in bytes or such as "2GB".
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
        base = get_tags(self._base(n_outputs=1))
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
            with the anchors. Points are kept apart, so no pair is on both sides.
        """
        with all_or_nothing(self):
            return self._fit(X, y, sample_weight, X_val, y_val)

    def _fit(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any) -> TwinRegressor:
        check_flag("symmetric", self.symmetric)
        as_weight_strategy(self.weights)
        limit = parse_memory(self.memory_limit)
        check_threads(self.n_jobs)
        rng = check_random_state(self.random_state)
        tags = self.__sklearn_tags__()
        self._pair_dtype = _pair_dtype(self._base(n_outputs=1), X)
        matrix, columns = open_training_table(
            self,
            X,
            self.categorical_features,
            allow_nan=tags.input_tags.allow_nan,
            pair_dtype=self._pair_dtype,
        )
        target = check_target(self, y, len(matrix), multi_output=tags.target_tags.multi_output)
        weight = check_weights(sample_weight, len(matrix))
        rows = np.arange(len(matrix)) if weight is None else np.flatnonzero(weight)
        matrix, target = matrix[rows], target[rows]
        weight = None if weight is None else _moderate(weight[rows])

        self._features = PairFeatures(self.pair_features, columns, self._pair_dtype)
        # a column vector is one output: the learner gets it flat, and the anchors keep its shape
        values = target[:, 0] if target.ndim == 2 and target.shape[1] == 1 else target
        n_outputs = 1 if values.ndim == 1 else values.shape[1]
        base = self._base(n_outputs)
        most = self._most_pairs(limit, n_outputs)
        if X_val is not None:
            most = most * 3 // 4  # the rest is for the validation pairs
        strategy, mirrored = self._pair_strategy(len(matrix), most)
        points = columns.points(matrix)
        indices: dict[str, NeighbourIndex] = {}

        def index(metric: str) -> NeighbourIndex:
            """One index a metric, for the pairs and, where all points are kept, the anchors."""
            if metric not in indices:
                indices[metric] = NeighbourIndex(points.wide, metric, self.n_jobs)
            return indices[metric]

        first, second = strategy.draw(len(points), index, rng)
        check_pairs(first, second, len(points), most)
        if mirrored:
            first, second = np.concatenate([first, second]), np.concatenate([second, first])
        pair_weight = None if weight is None else weight[first] * weight[second]
        if pair_weight is not None and not _takes_weights(base):
            drawn = draw_by_weight(pair_weight, min(most, max(AUTO_PAIRS, len(first))), rng)
            first, second, pair_weight = first[drawn], second[drawn], None
        kept = check_kept(as_anchor_strategy(self.anchors).keep(len(points), rng), len(points))

        options: dict[str, Any] = {}
        if pair_weight is not None:
            options["sample_weight"] = pair_weight
        self._y_unit = _unit(values)
        if X_val is not None or y_val is not None:
            options |= self._validation_pairs(
                base, X_val, y_val, columns, points.take(kept), values[kept], most // 3, rng
            )
        self.estimator_ = self._fit_base(
            base,
            self._pair_matrix(points, points, first, second),
            difference(values[first], values[second]) / self._y_unit,
            options,
            rng,
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
        return self

    # --- the base estimator -------------------------------------------------------------------

    def _base(self, n_outputs: int) -> Any:
        if self.estimator is None:
            default = HistGradientBoostingRegressor()
            return default if n_outputs == 1 else MultiOutputRegressor(default)
        needed = ("fit", "predict", "get_params", "__sklearn_tags__")
        if isinstance(self.estimator, type) or not all(
            hasattr(self.estimator, name) for name in needed
        ):
            raise TypeError(
                "estimator must be a scikit-learn regressor such as RandomForestRegressor(), not "
                f"{self.estimator!r}."
            )
        if not is_regressor(self.estimator):
            raise TypeError(
                f"estimator must be a regressor, but {self.estimator!r} says it is none."
            )
        return self.estimator

    def _fit_base(
        self, base: Any, pairs: NDArray[Any], target: Floats, options: dict[str, Any], rng: Any
    ) -> Any:
        base = clone(base)
        parameters = base.get_params()
        if self.random_state is not None:
            seeds = [name for name in sorted(parameters) if name.endswith("random_state")]
            base.set_params(
                **{name: rng.randint(2**31 - 1) for name in seeds if parameters[name] is None}
            )
        lend_threads = self.n_jobs is not None and parameters.get("n_jobs", 1) is None
        if lend_threads:
            base.set_params(n_jobs=self.n_jobs)
        base.fit(pairs, target, **options)
        if lend_threads:
            # back to one: threads work on blocks of queries when predicting, and a forest that
            # sums its trees on several threads rounds differently from call to call
            base.set_params(n_jobs=None)
        return base

    def _raw_differences(self, first: Points, second: Points) -> Floats:
        pairs = self._features.build(first, second)
        leading = pairs.shape[:-1]
        raw = np.asarray(self.estimator_.predict(pairs.reshape(-1, pairs.shape[-1])))
        if not np.isfinite(raw).all():
            raise ValueError(
                f"{type(self.estimator_).__name__} predicted a difference of "
                f"{raw[~np.isfinite(raw)][0]}; check the scale of X and y."
            )
        return raw.reshape(*leading, -1).astype(np.float64, copy=False) * self._y_unit

    def _pair_bytes(self) -> int:
        return self._features.width * self._features.dtype.itemsize

    # --- the pair matrix ----------------------------------------------------------------------

    def _most_pairs(self, limit: int | None, n_outputs: int) -> int:
        """How many pairs fit into the memory limit: features, target, two rows and a weight."""
        if limit is None:
            return 2**62
        return limit // (self._pair_bytes() + 8 * n_outputs + 3 * 8)

    def _pair_strategy(self, n_points: int, most: int) -> tuple[PairStrategy, bool]:
        """Which pairs, and whether each is learned with its mirror image; refused if too many."""
        strategy = as_pair_strategy(self.pairs, n_points, most, mirrored=self.symmetric)
        mirrored = self.symmetric and not getattr(strategy, "both_orders", False)
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

    def _pair_matrix(self, left: Points, right: Points, first: Any, second: Any) -> NDArray[Any]:
        """(n_pairs, width) of `left[first]` with `right[second]`.

        Filled in blocks, so that nothing of its size is made beside it.
        """
        pairs = np.empty((len(first), self._features.width), dtype=self._pair_dtype)
        at_once = max(1, _FIT_BYTES // self._pair_bytes())
        for start in range(0, len(first), at_once):
            rows = slice(start, start + at_once)
            self._features.build(left.take(first[rows]), right.take(second[rows]), pairs[rows])
        return pairs

    def _validation_pairs(
        self,
        base: Any,
        X_val: Any,
        y_val: Any,
        columns: Any,
        anchors: Points,
        anchors_y: Floats,
        most: int,
        rng: Any,
    ) -> dict[str, Any]:
        """The validation points, each paired with anchors: all of them, or as many as fit."""
        if X_val is None or y_val is None:
            raise ValueError(
                f"X_val and y_val belong together, but {'X_val' if X_val is None else 'y_val'} "
                "is None."
            )
        if not {"X_val", "y_val"} <= set(inspect.signature(base.fit).parameters):
            warnings.warn(
                f"{type(base).__name__} takes no validation set, so X_val and y_val are not used.",
                IgnoredValidationSetWarning,
                stacklevel=3,
            )
            return {}
        allow_nan = get_tags(base).input_tags.allow_nan
        matrix, columns = open_table(
            self, X_val, columns, allow_nan=allow_nan, pair_dtype=self._pair_dtype
        )
        target = check_target(self, y_val, len(matrix), multi_output=anchors_y.ndim == 2)
        points = columns.points(matrix)
        used = np.arange(len(anchors))
        if len(points) * len(used) > most:
            used = rng.choice(used, size=max(1, most // len(points)), replace=False)
        first, second = np.repeat(np.arange(len(points)), len(used)), np.tile(used, len(points))
        return {
            "X_val": self._pair_matrix(points, anchors, first, second),
            "y_val": difference(target[first], anchors_y[second]) / self._y_unit,
        }


def _pair_dtype(base: Any, X: Any) -> np.dtype[Any]:
    """float32 where the learner works in it anyway, or where the data came in it."""
    came_in_float32 = isinstance(X, np.ndarray) and X.dtype == np.float32
    learns_in_float32 = isinstance(base, _LEARNS_IN_FLOAT32)
    return np.dtype(np.float32 if came_in_float32 or learns_in_float32 else np.float64)


def _takes_weights(base: Any) -> bool:
    inner = base.estimator if isinstance(base, MultiOutputRegressor) else base
    return has_fit_parameter(inner, "sample_weight")


def _moderate(weight: Floats) -> Floats:
    """Weights of an ordinary size as they are; others by their mean, as products square them."""
    mean = weight.mean()
    return weight if 1e-3 <= mean <= 1e3 else weight / mean


def _unit(values: Floats) -> float:
    """A power of two by which extreme targets are divided for the learner, and 1 for others.

    Boosting sums squares in float32, and trees call a node pure whose spread is below 1e-8: both
    would answer a constant, without a word.
    """
    spread = float(np.max(values.max(axis=0) - values.min(axis=0)))
    if spread == 0 or 1e-6 <= spread <= 1e12:
        return 1.0
    return float(2.0 ** np.floor(np.log2(spread)))
