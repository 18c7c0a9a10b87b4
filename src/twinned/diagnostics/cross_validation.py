"""What models say of points that they did not learn from: the ground of all other diagnostics.

Rows are left out in folds. The twin that is diagnosed and its rivals are fitted once for each
fold; everything else (anchors, neighbors, spread, loops, intervals) is asked of those twins.
"""

from __future__ import annotations

import copy
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, GroupKFold
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import _safe_indexing

from twinned._table import Floats
from twinned._validation import count_rows, validate_target, validate_training_table
from twinned.estimators.twin import TwinRegressor
from twinned.pairing.splits import row_folds

FEWEST_ROWS = 20
MOST_ESTIMATES = 1_000_000  # a fold: what a curve over anchors needs, and a computer bears
PROBED = 100  # rows by which it is told how long many take
FEWEST_JUDGED = 1_000  # whatever the time
WORTH_FEWER = 0.8  # of the rows: for no more than that it is worth to begin anew
Report = Callable[[str], None]


class Clock:
    """How much of a time budget is left; None is no bound."""

    def __init__(self, budget: float | None) -> None:
        self._start, self._budget = time.perf_counter(), budget

    def has(self, seconds: float) -> bool:
        """Whether so much is left."""
        return self._budget is None or self.spent + seconds <= self._budget

    @property
    def spent(self) -> float:
        return time.perf_counter() - self._start


@dataclass
class Evidence:
    """Out-of-fold predictions of a twin and its rivals.

    `told` has (n,) predictions by name; "twin" is the one that is diagnosed. `twins` are its fitted
    models, one a fold, `spread` (n,) their standard deviations. `fit_seconds` is how long one of
    them took, fitted and asked, `pair_seconds` one pair of query and anchor, and `last_seconds` the
    fit of most rows of the table. `groups` (n,) are rows that belong together, None where each
    stands for itself. `places` (n,) are the rows of a larger table that these are, None where they
    are all of it.
    """

    X: Any
    y: Floats
    twin: Any  # not fitted
    folds: list[tuple[Any, Any]]
    groups: Any = None
    twins: list[Any] = field(default_factory=list)
    told: dict[str, Floats] = field(default_factory=dict)
    spread: Floats | None = None
    fit_seconds: float = 0.0
    pair_seconds: float = 0.0
    last_seconds: float = 0.0
    places: Any = None

    def rows(self, some: Any) -> Any:
        """These rows of the table."""
        return _safe_indexing(self.X, some)

    @cached_property
    def encoder(self) -> Encoder:
        """The whole table as numbers, with the names that the twin takes for such."""
        return Encoder(self.X, getattr(self.twin, "categorical_features", "from_dtype"))

    def add(self, name: str, make: Callable[[Any], Any], tell: Report) -> list[Any]:
        """Fit one more model in every fold, and keep its out-of-fold predictions.

        `make` gets the rows to learn from and returns a model that is not fitted.
        """
        told = np.empty_like(self.y)
        models = []
        for number, (learned, left_out) in enumerate(self.folds, 1):
            tell(f"{name}, fold {number} of {len(self.folds)}")
            model = make(learned).fit(self.rows(learned), self.y[learned])
            told[left_out] = np.ravel(model.predict(self.rows(left_out)))
            models.append(model)
        self.told[name] = told
        return models

    def add_twin(self, tell: Report, seconds: float | None = None) -> int:
        """Fit the twin in every fold; ask for its mean and standard deviation at once.

        Returns of how many rows that is. Where there is time for much fewer, nothing is added, and
        it is for how many.
        """
        told, spread = np.empty_like(self.y), np.empty_like(self.y)
        fitting = asking = 0.0
        for number, (learned, left_out) in enumerate(self.folds, 1):
            tell(f"twin, fold {number} of {len(self.folds)}")
            start = time.perf_counter()
            model = clone(self.twin).fit(self.rows(learned), self.y[learned])
            model = ask_on_all_cores(model)
            fitted = time.perf_counter()
            fitting += fitted - start
            if number == 1:
                self.last_seconds = fitting
                most = self._askable(model, left_out, seconds)
                if most < len(self.y):
                    return most
                fitted = time.perf_counter()
            said = model.predict(self.rows(left_out), return_std=True)
            told[left_out], spread[left_out] = (np.ravel(part) for part in said)
            self.twins.append(model)
            asking += time.perf_counter() - fitted
        self.told["twin"], self.spread = told, spread
        self.fit_seconds = (fitting + asking) / len(self.folds)
        self.pair_seconds = asking / sum(
            own._n_used() * len(left_out)
            for own, (_, left_out) in zip(self.twins, self.folds, strict=True)
        )
        return len(self.y)

    def _askable(self, model: Any, left_out: Any, seconds: float | None) -> int:
        """Of how many rows the folds can be asked in so many seconds, after such a fit of each.

        All of them, unless it is much fewer.
        """
        n = len(self.y)
        if seconds is None or n * WORTH_FEWER <= FEWEST_JUDGED:
            return n
        some = self.rows(left_out[:PROBED])
        for _ in range(2):  # the first time something is compiled
            start = time.perf_counter()
            model.predict(some, return_std=True)
            row = max(time.perf_counter() - start, 1e-9) / count_rows(some)
        left = max(seconds / len(self.folds) - self.last_seconds, 0.0)
        most = left / row * n / len(left_out)  # as many anchors asked for each as now
        if model._n_used() == len(model.anchors_y_):
            most = np.sqrt(most * n)  # with fewer rows there are fewer anchors
        if most >= WORTH_FEWER * n:
            return n
        # coarse, so that mostly the same rows are judged again
        doublings = int(np.log2(max(most / FEWEST_JUDGED, 1.0)))
        return FEWEST_JUDGED * 2**doublings

    def left_out(self) -> list[tuple[Floats, Floats]]:
        """What each fold's twin said of the points that it left out: mean, standard deviation."""
        assert self.spread is not None
        told = self.told["twin"]
        return [(told[left_out], self.spread[left_out]) for _, left_out in self.folds]

    @cached_property
    def estimates(self) -> list[tuple[Any, Floats]]:
        """For each fold some left-out rows, and what each anchor says of them (row, anchor).

        All the anchors that a twin keeps, whatever was wanted of them.
        """
        found = []
        for model, some in zip(with_all_anchors(self.twins), self.asked(), strict=True):
            found.append((some, model.predict_anchors(self.rows(some))[1]))
        return found

    def asked(self) -> list[Any]:
        """For each fold as many of its left-out rows as a curve needs; of few rows, all."""
        rng, found = np.random.RandomState(0), []
        for model, (_, left_out) in zip(self.twins, self.folds, strict=True):
            most = max(FEWEST_ROWS, MOST_ESTIMATES // len(model.anchors_y_))
            some = left_out if len(left_out) <= most else rng.permutation(left_out)[:most]
            found.append(some)
        return found

    @property
    def estimate_seconds(self) -> float:
        """About how long the estimates take, or none once they are there."""
        if "estimates" in self.__dict__:
            return 0.0
        rows = zip(self.twins, self.asked(), strict=True)
        return self.pair_seconds * sum(len(one.anchors_y_) * len(some) for one, some in rows)


def ask_on_all_cores(twin: Any) -> Any:
    """Let a fitted twin of trees predict on all cores, unless it was told otherwise.

    Other bases may not bear it. Fitting is left to the base's own ways: more threads than cores are
    free would hinder it.
    """
    trees = getattr(twin, "_at_anchors", lambda: None)()
    if trees is not None and twin.n_jobs is None:
        twin.set_params(n_jobs=-1)
    return twin


def with_all_anchors(twins: list[Any]) -> list[Any]:
    """Fitted twins, asked with all the anchors they keep."""
    return [copy.copy(model).set_params(anchors="all") for model in twins]


def gather(
    X: Any,
    y: Any,
    twin: Any = None,
    *,
    cv: int = 5,
    groups: Any = None,
    random_state: int = 0,
    tell: Report = lambda what: None,
    seconds: float | None = None,
) -> Evidence:
    """Fit the twin, its base, k-NN and a linear model in every fold; `groups` stay together.

    Where cross-validating the twin would take longer than some `seconds`, it is of random rows.
    """
    n = count_rows(X)
    values = check_values(y, n)
    twin = TwinRegressor(random_state=random_state) if twin is None else twin
    folds = row_folds(n, cv, random_state, groups)
    evidence = Evidence(X, values, twin, folds, groups)
    with warnings.catch_warnings():
        # a rare category is unknown to some fold, which says nothing about the model of all rows
        warnings.simplefilter("ignore")
        most = evidence.add_twin(tell, seconds)
        if most < n:
            some = np.sort(np.random.RandomState(random_state).permutation(n)[:most])
            own = None if groups is None else groups[some]
            if np.ptp(values[some]) > 0 and _many(own) >= min(cv, _many(groups)):
                X, y = evidence.rows(some), values[some]
                options: Any = {"cv": cv, "groups": own, "random_state": random_state, "tell": tell}
                fewer = gather(X, y, twin, **options)
                fewer.places, fewer.last_seconds = some, evidence.last_seconds
                return fewer
            evidence.add_twin(tell)
        encode = evidence.encoder
        evidence.add("base", lambda learned: Encoded(encode, base_of(twin, random_state)), tell)

        def neighbors(learned: Any) -> Any:
            own = None if groups is None else groups[learned]
            return Encoded(encode, nearest_neighbors(len(learned), own))

        evidence.add("k-NN", neighbors, tell)
        evidence.add("linear", lambda learned: Encoded(encode, linear()), tell)
    return evidence


def _many(groups: Any) -> int:
    return 0 if groups is None else len(np.unique(groups))


def check_values(y: Any, n: int) -> Floats:
    """(n,) numbers that something can be learned from."""
    values = validate_target(None, y, n, multi_output=False)
    if n < FEWEST_ROWS:
        raise ValueError(f"A diagnosis needs {FEWEST_ROWS} rows at least; there are {n}.")
    if np.ptp(values) == 0:
        raise ValueError(f"All values of y are {values[0]:g}; there is nothing to learn.")
    return values


def base_of(twin: Any, random_state: int) -> Any:
    """The plain regressor that a twin is made of."""
    if type(twin).__name__ == "TwinNeuralRegressor":
        from twinned.neural import NeuralRegressor

        return NeuralRegressor(effort=twin.effort, random_state=random_state)
    if twin.estimator is None:
        return HistGradientBoostingRegressor(random_state=random_state)
    return clone(twin.estimator)


def linear() -> Any:
    """Ridge regression on standardised columns."""
    return make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 4, 15)))


def nearest_neighbors(n_rows: int, groups: Any) -> Any:
    """k-NN on standardised columns, with the best of some k."""
    pipeline = make_pipeline(StandardScaler(), KNeighborsRegressor(weights="distance"))
    sizes = [k for k in (1, 2, 4, 8, 16, 32) if k <= n_rows // 2]
    search = {"kneighborsregressor__n_neighbors": sizes}
    n_groups = 0 if groups is None else len(np.unique(groups))
    cv = None
    if n_groups > 1:
        cv = list(GroupKFold(min(5, n_groups)).split(np.arange(n_rows), groups=groups))
    return GridSearchCV(pipeline, search, scoring="neg_root_mean_squared_error", cv=cv)


class Encoder:
    """Any table as numbers: names become indicators, as twins see them."""

    def __init__(self, X: Any, categorical_features: Any = "from_dtype") -> None:
        self._door = TwinRegressor()
        matrix, self._columns = validate_training_table(
            self._door, X, categorical_features, allow_nan=True, pair_dtype=np.dtype(np.float64)
        )
        self.features = self._columns.to_rows(matrix).features

    def __call__(self, X: Any) -> Floats:
        from twinned._validation import validate_table

        matrix, columns = validate_table(
            self._door, X, self._columns, allow_nan=True, pair_dtype=np.dtype(np.float64)
        )
        return columns.to_rows(matrix).features

    @property
    def standardised(self) -> Floats:
        """All rows, each column with mean 0 and spread 1; what is missing is 0."""
        wide = np.nan_to_num(self.features, nan=0.0)
        spread = wide.std(axis=0)
        return (wide - wide.mean(axis=0)) / np.where(spread > 0, spread, 1.0)


class Encoded:
    """A regressor of arrays, for tables."""

    def __init__(self, encode: Encoder, model: Any) -> None:
        self._encode, self._model = encode, model

    def fit(self, X: Any, y: Floats) -> Encoded:
        self._model.fit(self._numbers(X), y)
        return self

    def predict(self, X: Any) -> Floats:
        return np.ravel(self._model.predict(self._numbers(X)))

    def _numbers(self, X: Any) -> Floats:
        wide = self._encode(X)
        takes_missing = isinstance(self._model, HistGradientBoostingRegressor)
        return wide if takes_missing else np.nan_to_num(wide, nan=0.0)


def rmse(told: Any, y: Any) -> float:
    return float(np.sqrt(np.mean((told - y) ** 2)))
