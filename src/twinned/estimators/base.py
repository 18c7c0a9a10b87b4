"""Base class of twins: their fitted state, and anchors that are added to it."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.batches import BatchMethods
from twinned.estimators.methods import TwinMethods
from twinned.fitted.calibration import Calibration, stored_calibration
from twinned.fitted.twin import Anchors, FittedTwin, LocalErrors, Queries, RowScale
from twinned.models.protocol import DifferenceModel
from twinned.models.resources import MemoryBudget, parse_memory_limit
from twinned.pairing.anchors import GPWeights, as_anchor_strategy, as_weight_strategy
from twinned.rows.folds import Folds, complete_predictions
from twinned.rows.neighbors import LearnedMetric
from twinned.rows.schema import Floats, Indices, TableSchema, row_labels, storable_labels
from twinned.rows.training import TrainingRows
from twinned.rows.validation import validate_table, validate_target


class BaseTwin(BatchMethods, TwinMethods, BaseEstimator, ABC):
    """Base class of regressors that predict from differences to anchors.

    A subclass has the parameters `anchors`, `weights`, `symmetric`, `memory_limit`, `n_jobs` and
    `random_state`. Its `fit` sets `_pair_dtype`, the trained state that `_make_model` needs and,
    by `_store_anchors`, the anchors.
    """

    # The parts of the learned metric; None where it was not needed yet. Plain parts, so that they
    # can be saved.
    _learned_metric: tuple[Any, ...] | None = None
    _censored_X: Floats | None = None  # (row, feature): rows of fit whose value is not known
    anchor_labels_: list[Any] | None = None
    anchor_groups_: Indices | None = None  # (anchor,): codes of groups that are held out together
    # (anchor,) or (anchor, output): out-of-fold errors of the anchors, and the power of `GPWeights`
    # by which they are weighted, 0 for equal weights
    anchor_errors_: Floats | None = None
    local_power_: float = 0.0
    n_nearest_anchors_: int | None = None  # that `anchors="auto"` chose; None for all
    replicate_correlation_: float = 0.0  # by which blends weight anchors that equal the query
    target_name_: str  # only of a model that the command line fitted, as the next
    batch_name_: str | None  # column of batches

    @abstractmethod
    def _make_model(self) -> DifferenceModel:
        """The fitted difference model, for the present parameters."""

    @property
    def has_single_target(self) -> bool:
        """Whether y was one-dimensional in the fit."""
        return not self.targets_ and self.anchors_y_.ndim == 1

    def require_single_target(self) -> None:
        """Raise where the model is not fitted or has several targets."""
        check_is_fitted(self)
        if self.targets_:
            n = len(self.targets_)
            raise ValueError(f"The model has {n} targets; use one of them: model.targets_[0].")

    @property
    def schema_(self) -> TableSchema:
        """Kinds and categories of the features."""
        return self.targets_[0].schema_ if self.targets_ else self._schema

    def _row_scale(self) -> RowScale | None:
        """The scale of the features that the model is fitted to, or None."""
        return None

    @property
    def fitted_(self) -> FittedTwin:
        """The difference model with its anchors, for the present parameters."""
        self.require_single_target()
        fitted = FittedTwin(
            model=self._make_model(),
            anchors=self._anchors,
            anchor_strategy=as_anchor_strategy(self.anchors, self.n_nearest_anchors_),
            weight_strategy=as_weight_strategy(self.weights),
            budget=MemoryBudget(parse_memory_limit(self.memory_limit), self.n_jobs),
            n_jobs=self.n_jobs,
            replicate_correlation=self.replicate_correlation_,
            batches=self.batches_,
        )
        if self.anchor_errors_ is None or not fitted.uses_all_anchors_equally:
            return fitted
        errors = self.anchor_errors_.reshape(len(self.anchor_errors_), -1)
        local = GPWeights(self.local_power_) if self.local_power_ else None
        return replace(fitted, errors=errors, local_weights=local)

    @property
    def calibration_(self) -> Calibration | None:
        """The stored calibration of prediction intervals, or None."""
        return stored_calibration(self) if "intervals_" in vars(self) else None

    def encode(self, X, schema=None, batch=None):
        """Validated rows to predict; with a schema, new categories are added to it."""
        self.require_single_target()
        learn, schema = schema is not None, schema or self._schema
        matrix, schema = validate_table(self, X, schema, self._pair_dtype, learn_categories=learn)
        offset, offset_std = self.offsets_of(batch, len(matrix))
        queries = Queries(schema, self._anchors.scale, matrix, offset, offset_std)
        if offset is None:
            return queries
        return replace(queries, offset=offset + self.expected_errors(queries))

    def with_symmetric(self, symmetric: bool) -> Self:
        """The same fitted twin, evaluated in both orders of a pair or in one."""
        if symmetric == self.symmetric:
            return self
        other = copy.copy(self)
        other.symmetric = symmetric
        return other

    def add_anchors(self, X, y, batch=None):
        """A new fitted twin with the same trained model and further anchors.

        The original is unchanged, and the learned metric is the same. The new anchors have weight 1
        where the fit had sample weights, and are groups of one row. A model with batches needs
        their `batch`, a label for all or for each: the offset of a new batch is estimated from
        them, and that of a known batch again, and predictions near them are corrected by what
        remains of their errors.
        """
        check_is_fitted(self)
        queries, anchors = self.encode(X, self._schema), self._anchors
        new_y = validate_target(self, y, len(queries), multi_output=anchors.y.ndim == 2)
        if new_y.shape[1:] != anchors.y.shape[1:]:
            raise ValueError(f"y has shape {new_y.shape}, but that of the fit {anchors.y.shape}.")
        expected = None if self.batches_ is None else self.expected_errors(queries)
        queries = replace(queries, offset=expected, offset_std=None)
        batches, anchors, new_y, coefficients = self._add_to_batches(queries, new_y, batch)
        labels, weights, groups = anchors.labels, anchors.weights, anchors.groups
        if labels is not None:
            labels = storable_labels(labels + (row_labels(X) or [""] * len(new_y)))
        if weights is not None:
            weights = np.concatenate([weights, np.ones(len(new_y))])
        if groups is not None:
            groups = np.append(groups, groups.max() + 1 + np.arange(len(new_y)))
        extended = replace(
            anchors,
            schema=queries.schema,
            X=np.concatenate([anchors.X, queries.matrix]),
            y=np.concatenate([anchors.y, new_y]),
            weights=weights,
            labels=labels,
            fitted_metric=anchors.metric,
            groups=groups,
        )
        rows = np.concatenate([self.anchor_rows_, np.full(len(new_y), -1)])
        other = self.with_anchors(extended, rows)
        other.n_nearest_anchors_ = self.n_nearest_anchors_
        other._batches, other.error_coefficients_ = batches and tuple(batches), coefficients
        if self.anchor_errors_ is not None:  # the model was not fitted to the new rows
            fitted = self.fitted_
            if batches is not None:
                queries = replace(queries, offset=other.expected_errors(queries))
            errors = new_y - fitted.squeeze(fitted.predict(queries)[0])
            before = self.anchor_errors_ + anchors.y - self.anchors_y_
            other.anchor_errors_ = np.concatenate([before, errors])
            other.local_power_ = self.local_power_
        return other

    def with_anchors(self, anchors: Anchors, rows: Indices) -> Self:
        """A new fitted twin with the same trained model and other anchors.

        `rows` are those of the training table.
        """
        other = copy.copy(self)
        other._store_anchors(anchors, rows)
        return other

    # --- stored state -------------------------------------------------------------------------

    def _store_rows(
        self, rows: TrainingRows, anchors: TrainingRows, metric: LearnedMetric | None = None
    ) -> None:
        """Store anchors, which are known ones of the rows of the fit, and the learned metric."""
        known = rows.schema, anchors.matrix, anchors.y, anchors.weight, anchors.labels
        labels = anchors.groups, anchors.batch
        censored = None if rows.bounds is None else rows.matrix[rows.censored]
        stored = Anchors(*known, self._row_scale(), censored, metric, self.n_jobs, *labels)
        self._store_anchors(stored, anchors.table_rows)

    def set_groups(self, groups: Indices) -> None:
        """Set codes of groups of anchors (anchor,); stored intervals are discarded."""
        for name in ("intervals_", "applicability_"):
            self.__dict__.pop(name, None)
        anchors = self._anchors
        self._anchors = replace(anchors, groups=groups, fitted_metric=anchors.known_metric)
        self.anchor_groups_ = groups

    def store_intervals(self, intervals: dict[str, Any]) -> None:
        """Store a calibration, and learn the metric now, as intervals need it."""
        self.intervals_, self._learned_metric = intervals, tuple(self._anchors.metric)

    def set_out_of_fold(self, predicted: Floats, folds: Folds | None = None) -> None:
        """Set the errors of (anchor, …) out-of-fold predictions, and select local weights.

        Predictions are NaN for anchors that no fold holds out; their error is then the mean, 0.
        Without `folds` of the anchors, the weights are equal and predictions are not changed, as
        where models of folds err differently from the final one.
        """
        anchors = self._anchors
        errors = anchors.y - complete_predictions(predicted, anchors.y, anchors.weights)
        self.anchor_errors_ = errors - np.average(errors, axis=0, weights=anchors.weights)
        if folds is not None:
            self.local_power_ = LocalErrors(anchors, self.anchor_errors_, folds).best_power()

    def _store_anchors(self, anchors: Anchors, rows: Indices) -> None:
        """Store the anchors, which are these rows of the training table."""
        # what belongs to other anchors
        chosen = "anchor_errors_", "local_power_", "n_nearest_anchors_", "error_coefficients_"
        for name in ("intervals_", "applicability_", "_batches", *chosen):
            self.__dict__.pop(name, None)
        self.anchors_X_, self.anchors_y_ = anchors.X, anchors.y
        self.anchor_weights_, self.anchor_labels_ = anchors.weights, anchors.labels
        self.anchor_rows_, self.anchor_groups_, self._schema = rows, anchors.groups, anchors.schema
        self.anchor_batches_ = anchors.batch
        self._censored_X, metric = anchors.censored_X, anchors.fitted_metric
        self._learned_metric = None if metric is None else tuple(metric)
        self._anchors = anchors

    @cached_property
    def _anchors(self) -> Anchors:
        """The anchors, from the stored state of a model that was copied, unpickled or loaded."""
        metric = None if self._learned_metric is None else LearnedMetric(*self._learned_metric)
        rows = self.anchors_X_, self.anchors_y_, self.anchor_weights_, self.anchor_labels_
        details = self._row_scale(), self._censored_X, metric, self.n_jobs
        return Anchors(self._schema, *rows, *details, self.anchor_groups_, self.anchor_batches_)

    def restore_anchors(self) -> None:
        """Make the neighbor index of the anchors now, where predictions need one."""
        strategy = as_anchor_strategy(self.anchors, self.n_nearest_anchors_)
        if nearest := strategy.nearest(len(self.anchors_X_)):
            self._anchors.index(nearest[1])

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        anchors = state.pop("_anchors", None)
        if anchors is not None and (metric := anchors.known_metric) is not None:
            state["_learned_metric"] = tuple(metric)  # so that a copy need not learn it again
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.targets_) or hasattr(self, "anchors_X_")
