"""Several targets: a model that has one fitted model for each of them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import numpy as np
import pandas as pd
from sklearn.utils import check_consistent_length

from twinned._compat import safe_indexing
from twinned.fitted.prediction import target_columns
from twinned.fitted.quantiles import check_confidence
from twinned.rows.schema import Floats, is_table

_Method = TypeVar("_Method", bound=Callable[..., Any])
_LEAST_LEVEL = 1e-9  # of joint intervals, and of its complement


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


def add_anchors_of_targets(model: Any, X: Any, y: Any, batch: Any) -> Any:
    """A copy of a model of several targets; each has the rows with a value of it as anchors."""
    check_consistent_length(X, y)
    extended = copy.copy(model)
    extended.targets_ = []
    for target, target_y in zip(
        model.targets_, target_columns(y, len(model.targets_)), strict=True
    ):
        if len(rows := np.flatnonzero(~np.isnan(target_y))):
            labels = batch if np.ndim(batch) == 0 else safe_indexing(batch, rows)
            target = target.add_anchors(safe_indexing(X, rows), target_y[rows], batch=labels)
        extended.targets_.append(target)
    return extended


def joint_scores(targets: Sequence[Any], n_rows: int) -> Floats:
    """(score,): least confidences at which the intervals of all targets contain a held-out row.

    They are sorted, and those of the training rows that have all targets.
    """
    scores = np.full((n_rows, len(targets)), np.nan)
    for j, target in enumerate(targets):
        own = target.out_of_fold()["score"]
        level = target.calibration_.distribution.cdf(own.to_numpy())
        scores[target.anchor_rows_[own.index], j] = np.abs(2.0 * level - 1.0)
    largest = scores.max(axis=1)
    return np.sort(largest[~np.isnan(largest)])


def joint_level(scores: Floats, confidence: object) -> float:
    """The confidence of intervals that contain all targets at once with this probability."""
    n = len(scores)
    wanted = check_confidence(confidence, n, "calibration rows with all targets")
    level = np.interp(wanted, np.arange(1, n + 1) / (n + 1), scores)
    return float(np.clip(level, _LEAST_LEVEL, 1 - _LEAST_LEVEL))
