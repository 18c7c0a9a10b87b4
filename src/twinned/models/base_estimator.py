"""The base estimator of a twin: its default, its validation and its capabilities."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from sklearn.base import BaseEstimator, is_regressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import has_fit_parameter

from twinned._compat import is_search
from twinned.exceptions import LeakingValidationWarning

DEFAULT_PAIRS = 100_000
"""Maximum number of pairs of the default estimator with `pairs="auto"`, each in one order only."""

MAX_FEATURES = 80
"""Maximum number of features of the default estimator (see `models.wide_tables`)."""

# Beyond, pairs are fewer, as the seconds of a fit grow with pairs times features, and bins are
# wider. On held-out training rows of 80 features, 15,000 pairs are as good as 25,000 of them, and
# better than 25,000 pairs of 60 features.
_NARROW_FEATURES, _EXPONENT = 20, 4 / 3
_WIDE_BINS = 63

DEFAULT_ITERATIONS = 500  # at most
_LEAST_ROWS = 300  # of fewer rows, there are as many pairs as of these

# scikit-learn's own trees and XGBoost compare in float32: pairs in that type take half the memory
# and give the same trees to the last bit, since differences are rounded after the subtraction.
_FITS_IN_FLOAT32 = (
    DecisionTreeRegressor,  # and its subclass ExtraTreeRegressor
    RandomForestRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
)
_EARLY_STOPPING_PAIRS = 10_000  # beyond, early_stopping="auto" of HistGradientBoosting stops early


@dataclass(frozen=True)
class TreeSizes:
    """Pairs, trees and bins of the base estimator of `TwinRegressor(estimator=None)`."""

    pairs_per_row: float
    max_pairs: int  # of a narrow table
    trees_per_row: float
    least_trees: int
    learning_rate: float
    bins: int

    def n_pairs(self, n_rows: int, n_features: int) -> int:
        """Maximum number of pairs: fewer where there are many features.

        >>> [THOROUGH.n_pairs(1000, n_features) for n_features in (20, 40, 80)]
        [100000, 39685, 15749]
        """
        ratio = _NARROW_FEATURES / max(n_features, _NARROW_FEATURES)
        wanted = self.pairs_per_row * max(n_rows, _LEAST_ROWS)
        return int(min(wanted, self.max_pairs * ratio**_EXPONENT))

    def n_trees(self, n_rows: int) -> int:
        """Number of trees: fewer of few rows, which need no more."""
        return int(min(max(self.trees_per_row * n_rows, self.least_trees), DEFAULT_ITERATIONS))

    def make_estimator(self, n_rows: int, n_outputs: int, n_features: int = 1) -> BaseEstimator:
        """The base estimator.

        A leaf holds at least n/4 of the n pairs that a row is part of, so that no leaf describes a
        single row; fewer where there are fewer pairs.
        """
        every = max(1, n_rows * (n_rows - 1) // 2)
        share = min(1.0, self.n_pairs(n_rows, n_features) / min(every, DEFAULT_PAIRS))
        boosting = HistGradientBoostingRegressor(
            max_iter=self.n_trees(n_rows),
            learning_rate=self.learning_rate,
            min_samples_leaf=max(1, int(n_rows // 4 * share)),
            max_bins=self.bins if n_features <= _NARROW_FEATURES else _WIDE_BINS,
            early_stopping=False,
        )
        return boosting if n_outputs == 1 else MultiOutputRegressor(boosting)


# For errors that are mostly noise. On random splits of seven tables of 300 rows, 100 trees have
# 1.004 times the error of 200 (with 12,000 pairs), and 50 trees of a rate of 0.3 and half the pairs
# 1.01 times: enough for folds. On 824 rows of concrete, 206 trees have 1.01 times that of 412.
SMALL = TreeSizes(20, 40_000, 0.0, 50, 0.3, 63)
FAST = TreeSizes(40, DEFAULT_PAIRS, 0.4, 100, 0.2, 63)
THOROUGH = TreeSizes(np.inf, DEFAULT_PAIRS, 1.0, 350, 0.2, 255)
THOROUGH_FOLDS = replace(THOROUGH, max_pairs=40_000)

SIZES = {"small": SMALL, "fast": FAST, "balanced": THOROUGH, "thorough": THOROUGH}
"""Sizes of the default estimator by the effort; "balanced" chooses between "fast" and these."""


def check_base_estimator(estimator: object) -> BaseEstimator:
    """Validate the user's base estimator."""
    needed = ("fit", "predict", "get_params", "__sklearn_tags__")
    if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in needed):
        raise TypeError(f"estimator must be a scikit-learn regressor, not {estimator!r}.")
    if not is_regressor(estimator):
        raise TypeError(f"estimator must be a regressor, but {estimator!r} is not one.")
    return estimator


def make_base_estimator(estimator: object) -> BaseEstimator:
    """The validated base estimator, or one of the kind of the default where it is None."""
    return THOROUGH.make_estimator(1, 1) if estimator is None else check_base_estimator(estimator)


def pair_dtype(base: BaseEstimator, X: object) -> np.dtype[np.floating]:
    """float32 where the estimator computes in it anyway, or where X is float32."""
    base = base.estimator if is_search(base) else base
    is_float32 = isinstance(X, np.ndarray) and X.dtype == np.float32
    is_xgboost = type(base).__module__.partition(".")[0] == "xgboost"
    in_float32 = is_float32 or is_xgboost or isinstance(base, _FITS_IN_FLOAT32)
    return np.dtype(np.float32 if in_float32 else np.float64)


def supports_weights(base: BaseEstimator) -> bool:
    """Whether `fit` has sample_weight; else pairs are drawn in proportion to their weights."""
    inner = base.estimator if isinstance(base, MultiOutputRegressor) else base
    return has_fit_parameter(inner, "sample_weight")


def early_stopping_fraction(base: BaseEstimator, n_pairs: int) -> float | None:
    """The fraction of rows to hold out for early stopping; None without early stopping.

    By itself, the estimator would hold out pairs whose rows are in other training pairs, and would
    stop too late.
    """
    parameters = base.get_params(deep=False)
    if isinstance(base, HistGradientBoostingRegressor):
        early_stopping = parameters["early_stopping"]
        if early_stopping is True or (early_stopping == "auto" and n_pairs > _EARLY_STOPPING_PAIRS):
            fraction = parameters["validation_fraction"]
            # None monitors the training loss, and an integer is a number of rows
            return 0.1 if fraction is not None and fraction >= 1 else fraction
        return None
    has_patience = parameters.get("n_iter_no_change") is not None
    if parameters.get("early_stopping", has_patience) is True:
        warnings.warn(
            f"{type(base).__name__} stops early by a validation set of pairs whose rows are also "
            "in its training pairs, so it stops too late. Fix its number of iterations, or use "
            "HistGradientBoostingRegressor(early_stopping=True).",
            LeakingValidationWarning,
            stacklevel=4,
        )
    return None


def set_unset_seeds(estimator: BaseEstimator, draw: Callable[[], int]) -> BaseEstimator:
    """Set each `random_state` of an estimator and its parts that is None to `draw()`."""
    parameters = sorted(estimator.get_params().items())
    unset = [name for name, value in parameters if name.endswith("random_state") and value is None]
    return estimator.set_params(**{name: draw() for name in unset})
