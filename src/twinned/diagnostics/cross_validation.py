"""Cross-validation of a twin: its fits in the folds, and their out-of-fold predictions.

The twin is fitted once in each fold, when that is first needed. All checks of the twin use its
predictions of the held-out rows, or let the twins of the folds predict once more.
`plain_estimator` is the model without pairs with which a twin is compared.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, clone

from twinned._compat import safe_indexing
from twinned.estimators.base import BaseTwin
from twinned.estimators.twin import TwinRegressor
from twinned.exceptions import ignore_table_warnings
from twinned.pairing.anchors import NearestAnchors
from twinned.rows.folds import Folds, row_folds
from twinned.rows.neighbors import Indices
from twinned.rows.schema import Floats
from twinned.rows.validation import count_rows, validate_target

N_FOLDS = 5
MIN_ROWS = 20
MAX_ESTIMATES = 1_000_000  # of the anchors of one fold, for the curves
# Rows in a leaf where the default estimator is fitted to plain rows; in a twin a leaf counts pairs.
# Of 2, 5, 10, 20 and 40 rows, 10 have the lowest mean error on the paper's nine data sets; of 2 to
# 14, 4 have the lowest with only 32 training rows.
_MIN_SAMPLES_LEAF, _MAX_LEAF_SHARE = 10, 1 / 8


class HeldOutEstimates(NamedTuple):
    """Estimates of held-out rows of one fold by each anchor of its twin, nearest anchor first."""

    rows: Indices  # (query,)
    anchors: Indices  # (query, anchor) indices into the anchors of the twin
    estimates: Floats  # (query, anchor)


@dataclass
class CrossValidation:
    """Folds of n rows, and a regressor that is fitted in each; most checks need a twin."""

    X: ArrayLike
    y: Floats  # (n,)
    twin: BaseEstimator  # not fitted
    folds: Folds
    groups: Indices | None = None  # (n,) rows of one group are held out together
    name: str = ""  # of the model, in the results of checks

    def rows(self, indices: Indices) -> ArrayLike:
        """Return these rows of X."""
        return safe_indexing(self.X, indices)

    def groups_of(self, indices: Indices) -> Indices | None:
        """Return the groups of these rows, or None without groups."""
        return None if self.groups is None else self.groups[indices]

    @cached_property
    def twins(self) -> list[BaseTwin]:
        """The twins fitted to the training rows of each fold."""
        with ignore_table_warnings():
            return [
                clone(self.twin).fit(self.rows(train), self.y[train]) for train, _ in self.folds
            ]

    @cached_property
    def held_out(self) -> tuple[Floats, Floats]:
        """(n,) out-of-fold predictions and standard deviations of the twin."""
        mean, std = np.empty_like(self.y), np.empty_like(self.y)
        for twin, (_, rows) in zip(self.twins, self.folds, strict=True):
            with ignore_table_warnings():
                mean[rows], std[rows] = twin.predict(self.rows(rows), return_std=True)
        return mean, std

    def query_rows(self) -> list[Indices]:
        """Return held-out rows of each fold for the curves: all of few rows, else a sample."""
        rng, queries = np.random.RandomState(0), []
        for twin, (_, held_out) in zip(self.twins, self.folds, strict=True):
            most = max(MIN_ROWS, MAX_ESTIMATES // len(twin.anchors_y_))
            queries.append(held_out if len(held_out) <= most else rng.permutation(held_out)[:most])
        return queries

    @cached_property
    def anchor_estimates(self) -> list[HeldOutEstimates]:
        """Estimates of the query rows of each fold by all anchors that its twin stores."""
        missing = any(np.isnan(twin.anchors_X_).any() for twin in self.twins)
        metric, estimates = "nan_euclidean" if missing else "euclidean", []
        for twin, rows in zip(self.twins, self.query_rows(), strict=True):
            nearest_first = NearestAnchors(len(twin.anchors_y_), metric=metric)
            ordered = copy.copy(twin).set_params(anchors=nearest_first)
            with ignore_table_warnings():
                estimates.append(HeldOutEstimates(rows, *ordered.predict_anchors(self.rows(rows))))
        return estimates


def cross_validate_twin(
    X: ArrayLike,
    y: ArrayLike,
    twin: BaseTwin | None = None,
    *,
    groups: Indices | None = None,
    random_state: int = 0,
) -> CrossValidation:
    """Draw five folds for the cross-validation of a twin; None is `TwinRegressor()`.

    Rows of one group are held out together.
    """
    n = count_rows(X)
    values = check_diagnosable(y, n)
    twin = TwinRegressor(random_state=random_state) if twin is None else twin
    return CrossValidation(X, values, twin, row_folds(n, N_FOLDS, random_state, groups), groups)


def check_diagnosable(y: ArrayLike, n: int) -> Floats:
    """Return y as (n,) numbers; too few rows and a constant y are refused."""
    values = validate_target(None, y, n, multi_output=False)
    if n < MIN_ROWS:
        raise ValueError(f"A diagnosis needs at least {MIN_ROWS} rows; there are {n}.")
    if np.ptp(values) == 0:
        raise ValueError(f"All values of y are {values[0]:g}; a diagnosis needs different values.")
    return values


def plain_estimator(
    twin: BaseTwin, fitted: BaseTwin, n_rows: int, random_state: int
) -> BaseEstimator:
    """Return the base estimator of a twin, unfitted and with the same settings, for plain rows.

    `fitted` is a fitted clone of the twin; its `estimator_` has the settings of the default
    estimator. `random_state` seeds an estimator that has no seed.
    """
    if not isinstance(twin, TwinRegressor):
        from twinned.neural import NeuralRegressor

        names = NeuralRegressor().get_params()
        return NeuralRegressor(**{k: v for k, v in twin.get_params().items() if k in names})
    if twin.estimator is None:
        leaf = max(2, min(_MIN_SAMPLES_LEAF, int(_MAX_LEAF_SHARE * n_rows)))
        estimator = clone(fitted.estimator_).set_params(min_samples_leaf=leaf, random_state=None)
    else:
        estimator = clone(twin.estimator)
    parameters = estimator.get_params()
    unset = [k for k, v in parameters.items() if k.endswith("random_state") and v is None]
    return estimator.set_params(**dict.fromkeys(unset, random_state))
