"""Attributes of every fitted twin, which are read from its fitted state."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import wraps
from typing import Any, Self, TypeVar, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from twinned.batches.estimation import tabulate_effects, tabulate_offsets
from twinned.fitted.calibration import Calibration
from twinned.fitted.prediction import target_columns
from twinned.fitted.twin import FittedTwin
from twinned.models.resources import MemoryBudget
from twinned.rows.schema import Floats, Indices, Queries, TableSchema, is_table
from twinned.rows.validation import validate_table

_Method = TypeVar("_Method", bound=Callable[..., Any])


def per_target(method: _Method) -> _Method:
    """Decorator of a method that a model of several targets calls for each of them.

    An argument y is one number, or an array (row, target). Arrays are stacked, with an axis of
    targets after that of rows, and tables are concatenated, with a first column `target`.
    """
    signature = inspect.signature(method)

    @wraps(method)
    def call(self: Any, *arguments: Any, **options: Any) -> Any:
        if not self.targets_:
            return method(self, *arguments, **options)
        given = dict(signature.bind(self, *arguments, **options).arguments)
        del given["self"]
        is_table(given.get("X"))  # which refuses a Dask collection
        n_targets = len(self.targets_)
        columns = target_columns(given["y"], n_targets) if "y" in given else [None] * n_targets
        results = [
            call(target, **(given if y is None else {**given, "y": y}))
            for target, y in zip(self.targets_, columns, strict=True)
        ]
        return _combine(results, self.target_names_)

    return cast(_Method, call)


def _combine(results, names):
    """The results of all targets as one."""
    first = results[0]
    if isinstance(first, tuple):
        return tuple(_combine(parts, names) for parts in zip(*results, strict=True))
    if not isinstance(first, pd.DataFrame):
        return np.stack(results, axis=1)
    tables = [pd.DataFrame(table) for table in results]
    for table, name in zip(tables, names, strict=True):
        table.insert(0, "target", name)
    return type(first)(pd.concat(tables))


class FittedAttributes:
    """Attributes of a fitted twin, each of which is one of its `FittedTwin`."""

    n_jobs: int | None
    memory_limit: int | str | None
    anchors: object
    random_state: int | np.random.RandomState | None
    _fitted: FittedTwin | None = None  # of an estimator that is no wrapper of another
    _pair_dtype: np.dtype[np.floating]
    # whether it is a blend: its model is bound to its own anchors
    is_blend = False
    targets_: list[Any] = []  # noqa: RUF012 (fitted models of several targets, only of blends)

    @property
    def fitted_(self) -> FittedTwin:
        """The fitted state: a difference model, its anchors, weights and calibration.

        It has the present `n_jobs` and `memory_limit`.
        """
        if self._fitted is None:
            self.require_single_target()
        fitted, budget = self._fitted, MemoryBudget(self.memory_limit, self.n_jobs)
        assert fitted is not None, "the twin is fitted"
        return fitted if fitted.budget == budget else replace(fitted, budget=budget)

    def with_fitted(self, fitted: FittedTwin) -> Self:
        """A copy of the estimator with another fitted state."""
        other = type(self).__new__(type(self))
        other.__dict__.update(vars(self), _fitted=fitted)
        return other

    def validate_queries(
        self, X: ArrayLike, *, learn_categories: bool = False, schema: TableSchema | None = None
    ) -> Queries:
        """Validated rows without batches; with `learn_categories`, new ones are in their schema.

        The schema is that of the anchors, or a given one.
        """
        anchors = (self._fitted or self.fitted_).anchors
        matrix, schema = validate_table(
            self, X, schema or anchors.schema, self._pair_dtype, learn_categories=learn_categories
        )
        return Queries(schema, anchors.scale, matrix)

    def encode(
        self, X: ArrayLike, *, batch: ArrayLike | None = None, fitted: FittedTwin | None = None
    ) -> Queries:
        """Validated rows to predict by the fitted state."""
        fitted, queries = fitted or self.fitted_, self.validate_queries(X)
        if batch is None and fitted.batches is None:
            return queries
        if batch is None:
            fitted.warn_without_batch()
        return fitted.in_batches(queries, batch)

    @property
    def calibration_(self) -> Calibration | None:
        """The stored calibration of prediction intervals, or None."""
        return self.fitted_.calibration

    @property
    def applicability_(self) -> pd.DataFrame | None:
        """`rows`, `error` and `coverage` of each class, as by `measure_applicability`, or None."""
        measured = self.fitted_.applicability
        return None if measured is None else measured.table()

    @property
    def anchors_X_(self) -> Floats:
        """(n_anchors, n_features): anchors, with categories as codes."""
        return self.fitted_.anchors.matrix

    @property
    def anchors_y_(self) -> Floats:
        """(n_anchors,) or (n_anchors, n_outputs): known values of the anchors."""
        return self.fitted_.anchors.y

    @property
    def anchor_weights_(self) -> Floats | None:
        """(n_anchors,): sample weights of the anchors, or None."""
        return self.fitted_.anchors.weight

    @property
    def anchor_rows_(self) -> Indices:
        """(n_anchors,): rows of the training table; −1 of anchors that were added."""
        return self.fitted_.anchors.table_rows

    @property
    def anchor_residuals_(self) -> Floats | None:
        """Out-of-fold residuals like `anchors_y_`, minus their mean; None without folds."""
        residuals = self.fitted_.residuals
        return None if residuals is None else self.fitted_.squeeze(residuals)

    @property
    def local_power_(self) -> float:
        """The power of `GPWeights` that weights the estimates by residuals; 0 for equal weights."""
        weights = self.fitted_.local_weights
        return 0.0 if weights is None else float(weights.power)

    @property
    @per_target
    def batch_offsets_(self) -> pd.DataFrame:
        """`offset`, `std_error` and `n_rows` of each batch, relative to the mean of all batches."""
        batches, codes = self.fitted_.batches, self.fitted_.anchors.batch
        if batches is None or codes is None:
            raise AttributeError("The model has no batches; fit(X, y, batch=…) estimates offsets.")
        return tabulate_offsets(batches, np.bincount(codes, minlength=len(batches.names)))

    @property
    @per_target
    def batch_effects_(self) -> pd.DataFrame:
        """What each batch deviates by, with slopes of numeric features and errors of its rows."""
        table = self.batch_offsets_
        batches, schema = self.fitted_.batches, self.fitted_.schema
        assert batches is not None, "the model has batches"
        names = self.feature_labels()
        columns = {names[j]: column for column, j in enumerate(schema.numeric)}
        return tabulate_effects(batches, table["n_rows"].to_numpy(), columns)

    @property
    def schema_(self) -> TableSchema:
        """Kinds and categories of the features."""
        return self.targets_[0].schema_ if self.targets_ else self.fitted_.schema

    def require_single_target(self) -> None:
        """Raise where the model is not fitted or has several targets."""
        check_is_fitted(self)
        if self.targets_:
            n = len(self.targets_)
            raise ValueError(f"The model has {n} targets; use one of them: model.targets_[0].")

    def feature_labels(self) -> list[str]:
        """Names of the features, or x0, x1, … where the training table had none."""
        names = vars(self).get("feature_names_in_")
        if names is not None:
            return [str(name) for name in names]
        return [f"x{j}" for j in range(self.schema_.n_features)]

    @property
    def n_outputs_(self) -> int | None:
        """The number of outputs, or None where y is one-dimensional."""
        if self.targets_:
            return len(self.targets_)
        y = self.fitted_.anchors.y
        return None if y.ndim == 1 else y.shape[1]

    def _generator(self, random_state: int | np.random.RandomState | None) -> np.random.RandomState:
        return check_random_state(self.random_state if random_state is None else random_state)
