"""The base estimator: which one, in which type it learns, and how it is fitted to pairs.

Three things that a learner does by itself would go wrong on pairs, and are done here instead: a
search cross-validates over folds of points, early stopping holds out points, and threads are as
many as the user asks for.
"""

from __future__ import annotations

import inspect
import warnings
from typing import Any, NamedTuple

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import NDArray
from sklearn.base import clone, is_regressor
from sklearn.ensemble import (
    ExtraTreesRegressor,
    GradientBoostingRegressor,
    HistGradientBoostingRegressor,
    RandomForestRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputRegressor
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.validation import has_fit_parameter
from threadpoolctl import threadpool_limits

from twinned._table import Floats
from twinned.exceptions import LeakingValidationWarning
from twinned.models.lightgbm import LazyPairMatrix, fit_in_blocks
from twinned.pairing.splits import Indices, pair_folds

# scikit-learn's own trees and XGBoost compare in float32: pairs in that type take half the memory
# and give the same trees to the last bit, since differences are rounded after they are subtracted.
_LEARNS_IN_FLOAT32 = (
    DecisionTreeRegressor,  # ExtraTreeRegressor is one too
    RandomForestRegressor,
    ExtraTreesRegressor,
    GradientBoostingRegressor,
)
# Grid, random and halving searches have one parent, which scikit-learn does not name in public.
_SEARCH = GridSearchCV.__mro__[1]
_EARLY_STOPPING_PAIRS = 10_000  # beyond, HistGradientBoosting's "auto" stops early

DEFAULT_PAIRS = 100_000
"""How many pairs the default estimator learns where `pairs="auto"`, each in one order only."""


ITERATIONS = 500


def default_estimator(n_points: int, n_outputs: int) -> Any:
    """What learns differences where the user names nothing.

    Chosen by `benchmarks/tree_default.py`. A leaf holds at least n/4 pairs: of the n pairs that a
    point takes part in, so many that no leaf is about one point alone.
    """
    boosting = HistGradientBoostingRegressor(
        max_iter=ITERATIONS,
        learning_rate=0.2,
        min_samples_leaf=max(1, n_points // 4),
        early_stopping=False,
    )
    return boosting if n_outputs == 1 else MultiOutputRegressor(boosting)


def check_base_estimator(estimator: Any) -> Any:
    """The user's own estimator, or an error that shows what it is instead."""
    needed = ("fit", "predict", "get_params", "__sklearn_tags__")
    if isinstance(estimator, type) or not all(hasattr(estimator, name) for name in needed):
        raise TypeError(
            "estimator must be a scikit-learn regressor such as RandomForestRegressor(), not "
            f"{estimator!r}."
        )
    if not is_regressor(estimator):
        raise TypeError(f"estimator must be a regressor, but {estimator!r} says it is none.")
    return estimator


def pair_dtype(base: Any, X: Any) -> np.dtype[Any]:
    """float32 where the learner works in it anyway, or where the data came in it."""
    came_in_float32 = isinstance(X, np.ndarray) and X.dtype == np.float32
    learns_in_float32 = isinstance(base, _LEARNS_IN_FLOAT32) or _made_by(base, "xgboost")
    return np.dtype(np.float32 if came_in_float32 or learns_in_float32 else np.float64)


def _made_by(base: Any, library: str) -> bool:
    return type(base).__module__.partition(".")[0] == library


def takes_weights(base: Any) -> bool:
    """Whether pairs can be weighed; else they are drawn in proportion to their weights."""
    inner = base.estimator if isinstance(base, MultiOutputRegressor) else base
    return has_fit_parameter(inner, "sample_weight")


def takes_validation_set(base: Any) -> bool:
    """Whether `fit` has X_val and y_val."""
    return {"X_val", "y_val"} <= set(inspect.signature(base.fit).parameters)


def early_stopping_fraction(base: Any, n_pairs: int) -> float | None:
    """The share of points to hold out for a base that stops early; None where it does not.

    Left alone, it would hold out pairs whose points it learns from in other pairs, and never stop.
    """
    parameters = base.get_params(deep=False)
    if isinstance(base, HistGradientBoostingRegressor) and takes_validation_set(base):
        wanted = parameters["early_stopping"]
        if wanted is True or (wanted == "auto" and n_pairs > _EARLY_STOPPING_PAIRS):
            share = parameters["validation_fraction"]
            # None is to watch the training loss, and a whole number counts rows
            return 0.1 if share is not None and share >= 1 else share
        return None
    if "early_stopping" in parameters:
        leaks = parameters["early_stopping"] is True
    else:
        leaks = parameters.get("n_iter_no_change") is not None
    if leaks:
        warnings.warn(
            f"{type(base).__name__} stops early by pairs whose points it has seen in other pairs, "
            "and takes no validation set of its own; it will stop too late. Fix its number of "
            "rounds, or use HistGradientBoostingRegressor(early_stopping=True).",
            LeakingValidationWarning,
            stacklevel=4,
        )
    return None


class PairTrainingSet(NamedTuple):
    """What a base estimator is taught."""

    base: Any  # not fitted
    pairs: NDArray[Any] | LazyPairMatrix
    target: Floats
    options: dict[str, Any]  # of `fit`: weights, a validation set
    made_of: tuple[Indices, Indices, Floats] | None  # first and second points, all values

    def with_more(self, learned: Any, pairs: NDArray[Any], target: Floats) -> PairTrainingSet:
        """The same and more pairs, for the settings with which `learned` was fitted.

        Settings that were searched for are carried over, as the paper does. New pairs weigh as the
        mean pair.
        """
        options = dict(self.options)
        if "sample_weight" in options:
            weight = options["sample_weight"]
            options["sample_weight"] = np.append(weight, np.full(len(target), weight.mean()))
        return PairTrainingSet(
            learned.best_estimator_ if isinstance(learned, _SEARCH) else learned,
            np.concatenate([np.asarray(self.pairs), pairs]),
            np.concatenate([self.target, target]),
            options,
            None,
        )


def fit_on_pairs(lesson: PairTrainingSet, *, rng: Any, n_jobs: int | None) -> Any:
    """A fitted clone of the base; `rng` seeds what has no seed of its own, and None does not."""
    base = clone(lesson.base)
    parameters = base.get_params()
    if rng is not None:
        seeds = [name for name in sorted(parameters) if name.endswith("random_state")]
        base.set_params(
            **{name: rng.randint(2**31 - 1) for name in seeds if parameters[name] is None}
        )
    if isinstance(base, _SEARCH) and lesson.made_of is not None:
        base.set_params(cv=pair_folds(base.cv, *lesson.made_of))
    lend_threads = n_jobs is not None and parameters.get("n_jobs", 1) is None
    if lend_threads:
        base.set_params(n_jobs=n_jobs)
    # HistGradientBoosting has no `n_jobs`: it takes all cores unless it is told otherwise
    at_most = None if n_jobs is None else effective_n_jobs(n_jobs)
    with threadpool_limits(at_most, user_api="openmp"):
        if isinstance(lesson.pairs, LazyPairMatrix):
            base = fit_in_blocks(base, lesson.pairs, lesson.target, **lesson.options)
        else:
            base.fit(lesson.pairs, lesson.target, **lesson.options)
    if lend_threads:
        # back to one: threads work on blocks of queries when predicting, and a forest that
        # sums its trees on several threads rounds differently from call to call
        base.set_params(n_jobs=None)
    return base


def moderate(weight: Floats) -> Floats:
    """Weights of an ordinary size as they are; others by their mean, as products square them."""
    mean = weight.mean()
    return weight if 1e-3 <= mean <= 1e3 else weight / mean


def unit_of(values: Floats) -> float:
    """A power of two by which extreme targets are divided for the learner, and 1 for others.

    Boosting sums squares in float32, and trees call a node pure whose spread is below 1e-8: both
    would answer a constant, without a word.
    """
    spread = float(np.max(values.max(axis=0) - values.min(axis=0)))
    if spread == 0 or 1e-6 <= spread <= 1e12:
        return 1.0
    return float(2.0 ** np.floor(np.log2(spread)))
