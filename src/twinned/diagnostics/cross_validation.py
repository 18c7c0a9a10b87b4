"""Cross-validation of a twin and of baselines: out-of-fold predictions and the fitted twins.

The twin is fitted once in each fold. All checks use its predictions of the held-out rows, or let
the twins of the folds predict once more.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator, clone

from twinned._compat import safe_indexing
from twinned._neighbors import Indices
from twinned._table import Floats
from twinned._validation import count_rows, validate_target
from twinned.diagnostics.baselines import (
    describe,
    encode_features,
    features_for,
    nearest_neighbors,
    plain_estimator,
    ridge,
)
from twinned.estimators.base import BaseTwin
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import UnknownCategoryWarning
from twinned.models.trees import enough_work
from twinned.models.trees.reader import read_trees
from twinned.pairing.anchors import NearestAnchors, as_anchor_strategy
from twinned.pairing.splits import row_folds

N_FOLDS = 5
MIN_ROWS = 20
MIN_SUBSET = 1_000  # rows that are cross-validated whatever the time budget
MAX_ESTIMATES = 1_000_000  # of the anchors of one fold, for the curves
_SUBSET_SHARE = 0.8  # a larger subset would save too little to fit the first fold again
_TIMED_ROWS = 100

Progress = Callable[[str], None]
Fold = tuple[Indices, Indices]  # training rows, held-out rows


class FittedFold(NamedTuple):
    """A twin fitted to the training rows of a fold, and the seconds that took."""

    twin: BaseTwin
    seconds: float


class AnchorEstimates(NamedTuple):
    """Estimates of held-out rows of one fold by each anchor of its twin, nearest anchor first."""

    rows: Indices  # (query,)
    anchors: Indices  # (query, anchor) indices into the anchors of the twin
    estimates: Floats  # (query, anchor)


@dataclass
class CrossValidation:
    """Out-of-fold predictions of a twin and of baselines for n rows."""

    X: Any
    y: Floats  # (n,)
    twin: BaseTwin  # not fitted
    folds: list[Fold]
    groups: Indices | None = None  # (n,) rows of one group are held out together
    subset: Indices | None = None  # (n,) which rows of a larger table these are
    twins: list[BaseTwin] = field(default_factory=list)  # fitted, one per fold
    predictions: dict[str, Floats] = field(default_factory=dict)  # (n,) by the name of the model
    descriptions: dict[str, str] = field(default_factory=dict)  # estimators with their settings
    std: Floats = field(default_factory=lambda: np.empty(0))  # (n,) of the twin
    fold_seconds: float = 0.0  # to fit the twin in one fold and to predict
    pair_seconds: float = 0.0  # to predict one pair of query and anchor
    full_fit_seconds: float = 0.0  # to fit the twin in one fold of the larger table

    def rows(self, indices: Indices) -> Any:
        """Return these rows of X."""
        return safe_indexing(self.X, indices)

    def groups_of(self, indices: Indices) -> Indices | None:
        """Return the groups of these rows, or None without groups."""
        return None if self.groups is None else self.groups[indices]

    @cached_property
    def features(self) -> Floats:
        """(n, n_features) numbers, with indicators of the twin's categorical features."""
        return encode_features(self.X, getattr(self.twin, "categorical_features", "from_dtype"))

    @cached_property
    def standardized_features(self) -> Floats:
        """The features with mean 0 and standard deviation 1, missing values as 0."""
        known = np.nan_to_num(self.features, nan=0.0)
        std = known.std(axis=0)
        return (known - known.mean(axis=0)) / np.where(std > 0, std, 1.0)

    def fit_twin(self, fold: int) -> FittedFold:
        """Fit the twin to the training rows of a fold."""
        start = time.perf_counter()
        train = self.folds[fold][0]
        twin = clone(self.twin).fit(self.rows(train), self.y[train])
        return FittedFold(twin, time.perf_counter() - start)

    def add_twin(self, first: FittedFold, progress: Progress) -> None:
        """Fit the twin in all folds but the first, and predict the held-out rows of all."""
        mean, std = np.empty_like(self.y), np.empty_like(self.y)
        fit_seconds = predict_seconds = n_pairs = 0.0
        for fold, (_, held_out) in enumerate(self.folds):
            if fold > 0:
                progress(_fold_message("twin", fold, self.folds))
            twin, seconds = first if fold == 0 else self.fit_twin(fold)
            start = time.perf_counter()
            with use_all_cores(twin, len(held_out)):
                mean[held_out], std[held_out] = twin.predict(self.rows(held_out), return_std=True)
            predict_seconds += time.perf_counter() - start
            fit_seconds += seconds
            n_pairs += n_anchors_used(twin) * len(held_out)
            self.twins.append(twin)
        self.predictions["twin"], self.std = mean, std
        self.descriptions["twin"] = _describe_twin(self.twin, self.twins[0])
        self.fold_seconds = (fit_seconds + predict_seconds) / len(self.folds)
        self.pair_seconds = predict_seconds / n_pairs

    def add_model(
        self,
        name: str,
        make: Callable[[int], BaseEstimator],
        progress: Progress,
        *,
        encoded: bool = True,
        description: str | None = None,
    ) -> list[BaseEstimator]:
        """Fit one more model in every fold, store its predictions, and return the fitted models.

        `make` returns an unfitted model for a fold. It is fitted to the features as numbers where
        `encoded`, and to the rows of X otherwise.
        """
        predictions, models = np.empty_like(self.y), []
        for fold, (train, held_out) in enumerate(self.folds):
            progress(_fold_message(name, fold, self.folds))
            model = make(fold)
            self.descriptions.setdefault(name, description or describe(model))
            X = features_for(model, self.features, train) if encoded else self.X
            model.fit(safe_indexing(X, train), self.y[train])
            predictions[held_out] = np.ravel(model.predict(safe_indexing(X, held_out)))
            models.append(model)
        self.predictions[name] = predictions
        return models

    def add_baselines(self, random_state: int, progress: Progress) -> None:
        """Fit the twin's base estimator to plain rows, k-NN and ridge regression in every fold."""

        def neighbors(fold: int) -> BaseEstimator:
            train = self.folds[fold][0]
            return nearest_neighbors(len(train), self.groups_of(train))

        def base(fold: int) -> BaseEstimator:
            n_rows = len(self.folds[fold][0])
            return plain_estimator(self.twin, self.twins[fold], n_rows, random_state)

        self.add_model("base estimator", base, progress)
        text = "KNeighborsRegressor(weights='distance'), standardized features, cross-validated k"
        self.add_model("k-NN", neighbors, progress, description=text)
        text = "RidgeCV(), standardized features"
        self.add_model("ridge", lambda fold: ridge(), progress, description=text)

    def query_rows(self) -> list[Indices]:
        """Return held-out rows of each fold for the curves: all of few rows, else a sample."""
        rng, found = np.random.RandomState(0), []
        for twin, (_, held_out) in zip(self.twins, self.folds, strict=True):
            most = max(MIN_ROWS, MAX_ESTIMATES // len(twin.anchors_y_))
            found.append(held_out if len(held_out) <= most else rng.permutation(held_out)[:most])
        return found

    @property
    def metric(self) -> str:
        """The Euclidean metric of `NearestAnchors` that suits these rows."""
        return "nan_euclidean" if np.isnan(self.features).any() else "euclidean"

    @cached_property
    def anchor_estimates(self) -> list[AnchorEstimates]:
        """Estimates of the query rows of each fold by all anchors that its twin stores."""
        found = []
        for twin, rows in zip(self.twins, self.query_rows(), strict=True):
            nearest_first = NearestAnchors(len(twin.anchors_y_), metric=self.metric)
            ordered = copy.copy(twin).set_params(anchors=nearest_first)
            with use_all_cores(ordered, len(rows)):
                found.append(AnchorEstimates(rows, *ordered.predict_anchors(self.rows(rows))))
        return found

    @property
    def estimate_seconds(self) -> float:
        """About how long the estimates of all anchors take; 0 once they are computed."""
        if "anchor_estimates" in self.__dict__:
            return 0.0
        sizes = zip(self.twins, self.query_rows(), strict=True)
        return self.pair_seconds * sum(len(twin.anchors_y_) * len(rows) for twin, rows in sizes)


def cross_validate_models(
    X: Any,
    y: Any,
    twin: BaseTwin | None = None,
    *,
    groups: Indices | None = None,
    random_state: int = 0,
    progress: Progress = lambda message: None,
    seconds: float | None = None,
) -> CrossValidation:
    """Cross-validate a twin, its base estimator, k-NN and ridge regression on the same folds.

    Rows of one group are held out together. Where cross-validating the twin would take longer than
    `seconds`, a random subset of the rows is used.
    """
    n = count_rows(X)
    values = check_diagnosable(y, n)
    twin = TwinRegressor(random_state=random_state) if twin is None else twin
    result = CrossValidation(X, values, twin, row_folds(n, N_FOLDS, random_state, groups), groups)
    with ignore_unknown_categories():
        progress(_fold_message("twin", 0, result.folds))
        first = result.fit_twin(0)
        result.full_fit_seconds = first.seconds
        subset = _affordable_subset(result, first, seconds, random_state)
        if subset is not None:
            groups = result.groups_of(subset)
            folds = row_folds(len(subset), N_FOLDS, random_state, groups)
            result = CrossValidation(
                result.rows(subset), values[subset], twin, folds, groups, subset
            )
            result.full_fit_seconds = first.seconds
            progress(_fold_message("twin", 0, folds))
            first = result.fit_twin(0)
        result.add_twin(first, progress)
        result.add_baselines(random_state, progress)
    return result


def check_diagnosable(y: Any, n: int) -> Floats:
    """Return y as (n,) numbers; too few rows and a constant y are refused."""
    values = validate_target(None, y, n, multi_output=False)
    if n < MIN_ROWS:
        raise ValueError(f"A diagnosis needs at least {MIN_ROWS} rows; there are {n}.")
    if np.ptp(values) == 0:
        raise ValueError(f"All values of y are {values[0]:g}; a diagnosis needs different values.")
    return values


def affordable_rows(
    twin: BaseTwin,
    held_out: Any,
    n_rows: int,
    n_folds: int,
    fit_seconds: float,
    seconds: float | None,
) -> int:
    """Return how many of `n_rows` rows can be cross-validated within `seconds`.

    All of them, unless it is much fewer; at least `MIN_SUBSET`. `twin` is fitted to the training
    rows of the first fold, and its predictions of `held_out` rows are timed.
    """
    if seconds is None or n_rows * _SUBSET_SHARE <= MIN_SUBSET:
        return n_rows
    timed = safe_indexing(held_out, slice(_TIMED_ROWS))
    for _ in range(2):  # the first call may compile
        start = time.perf_counter()
        with use_all_cores(twin, count_rows(timed)):
            twin.predict(timed, return_std=True)
        row_seconds = max(time.perf_counter() - start, 1e-9) / count_rows(timed)
    left = max(seconds / n_folds - fit_seconds, 0.0)
    most = left / row_seconds * n_rows / count_rows(held_out)
    if n_anchors_used(twin) == len(twin.anchors_y_):
        most = np.sqrt(most * n_rows)  # fewer rows are fewer anchors, too
    if most >= _SUBSET_SHARE * n_rows:
        return n_rows
    # powers of two, so that a repeated diagnosis mostly uses the same rows
    return MIN_SUBSET * 2 ** int(np.log2(max(most / MIN_SUBSET, 1.0)))


def _affordable_subset(
    whole: CrossValidation, first: FittedFold, seconds: float | None, random_state: int
) -> Indices | None:
    """Return a random subset of rows that fits into the time; None: use all rows."""
    n = len(whole.y)
    held_out = whole.rows(whole.folds[0][1])
    size = affordable_rows(first.twin, held_out, n, len(whole.folds), first.seconds, seconds)
    if size >= n:
        return None
    subset = np.sort(np.random.RandomState(random_state).permutation(n)[:size])
    if np.ptp(whole.y[subset]) == 0:
        return None
    if whole.groups is not None:
        n_groups = len(np.unique(whole.groups[subset]))
        if n_groups < min(N_FOLDS, len(np.unique(whole.groups))):
            return None
    return subset


@contextmanager
def use_all_cores(twin: BaseTwin, n_queries: int) -> Iterator[None]:
    """Let a fitted twin predict on all cores where the tree kernel does the work.

    The kernel has no threads but those of `n_jobs`. Any other prediction calls the base estimator,
    which may start a thread on every core: with several such calls at once there would be more
    threads than cores.
    """
    by_kernel = (
        isinstance(twin, TwinRegressor)
        and twin.n_jobs is None
        and enough_work(twin.estimator_, n_queries * n_anchors_used(twin) * (1 + twin.symmetric))
        and read_trees(twin.estimator_) is not None
    )
    if not by_kernel:
        yield
        return
    twin.set_params(n_jobs=-1)
    try:
        yield
    finally:
        twin.set_params(n_jobs=None)


@contextmanager
def ignore_unknown_categories() -> Iterator[None]:
    """Ignore categories that are absent from a fold: the final model is fitted to all rows."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownCategoryWarning)
        yield


def n_anchors_used(twin: BaseTwin) -> int:
    """Return from how many anchors a fitted twin predicts a query."""
    nearest = as_anchor_strategy(twin.anchors).nearest(len(twin.anchors_y_))
    return len(twin.anchors_y_) if nearest is None else nearest[0]


def rmse(predictions: Floats, y: Floats) -> float:
    """Return the root mean squared error."""
    return float(np.sqrt(np.mean((predictions - y) ** 2)))


def _describe_twin(twin: BaseTwin, fitted: BaseTwin) -> str:
    """Describe a twin together with its default estimator, where it has that."""
    if isinstance(twin, TwinRegressor) and twin.estimator is None:
        base = clone(fitted.estimator_).set_params(random_state=None)  # that is drawn in fit
        twin = clone(twin).set_params(estimator=base)
    return describe(twin)


def _fold_message(name: str, fold: int, folds: list[Fold]) -> str:
    return f"{name}, fold {fold + 1} of {len(folds)}"
