"""BaseTwin: the fitted state of twins."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.methods import TwinMethods
from twinned.fitted.calibration import Calibration, stored_calibration
from twinned.fitted.twin import Anchors, FittedTwin, Queries, RowScale
from twinned.models.protocol import DifferenceModel
from twinned.models.resources import parse_memory_limit
from twinned.pairing.anchors import (
    ReplicateWeights,
    WeightStrategy,
    as_anchor_strategy,
    as_weight_strategy,
)
from twinned.rows.neighbors import Indices, LearnedMetric
from twinned.rows.schema import Floats, TableSchema, row_labels, storable_labels
from twinned.rows.validation import validate_table, validate_target


class BaseTwin(TwinMethods, BaseEstimator, ABC):
    """Base class of regressors that predict from differences to anchors.

    A subclass has the parameters `anchors`, `weights`, `symmetric`, `memory_limit`, `n_jobs` and
    `random_state`. Its `fit` sets `_pair_dtype`, the trained state that `_make_model` needs and,
    by `_set_anchors`, the anchors.
    """

    # The parts of the metric that `fit` learned; None where no strategy needed it. Plain parts,
    # so that they can be saved.
    _learned_metric: tuple[Any, ...] | None = None
    _censored_X: Floats | None = None  # (row, feature): rows of fit whose value is not known
    anchor_labels_: list[Any] | None = None
    target_name_: str  # only of a model that the command line fitted
    is_blend = False  # whether its model is bound to its own anchors

    @abstractmethod
    def _make_model(self) -> DifferenceModel:
        """The fitted difference model, for the present parameters."""

    def _reuse_model(self, is_current: Callable[[Any], bool], make: Callable[[], Any]) -> Any:
        """The model that was last bound to the anchors, if it is current, or a new one."""
        models = self._anchors.models
        if not models or not is_current(models[0]):
            models[:] = [make()]
        return models[0]

    @property
    def has_single_target(self) -> bool:
        """Whether y was one-dimensional in the fit."""
        return self.anchors_y_.ndim == 1

    def _row_scale(self) -> RowScale | None:
        """The scale of the features that the model is fitted to, or None."""
        return None

    def _weight_strategy(self) -> WeightStrategy | ReplicateWeights:
        return as_weight_strategy(self.weights)

    @property
    def fitted_(self) -> FittedTwin:
        """The difference model with its anchors, for the present parameters."""
        check_is_fitted(self)
        return FittedTwin(
            model=self._make_model(),
            anchors=self._anchors,
            anchor_strategy=as_anchor_strategy(self.anchors),
            weight_strategy=self._weight_strategy(),
            memory_limit=parse_memory_limit(self.memory_limit),
            n_jobs=self.n_jobs,
        )

    @property
    def calibration_(self) -> Calibration | None:
        """The stored calibration of prediction intervals, or None."""
        return stored_calibration(self) if "intervals_" in vars(self) else None

    @property
    def measured_applicability_(self) -> dict[str, Any] | None:
        """Errors and coverage by class of applicability, where they have been measured."""
        return vars(self).get("applicability_")

    def encode(self, X, schema=None):
        """Validated rows to predict; with a schema, new categories are added to it."""
        check_is_fitted(self)
        matrix, schema = validate_table(
            self,
            X,
            self._schema if schema is None else schema,
            allow_nan=bool(self.__sklearn_tags__().input_tags.allow_nan),
            pair_dtype=self._pair_dtype,
            learn_categories=schema is not None,
        )
        return Queries(schema, self._row_scale(), matrix)

    def with_symmetric(self, symmetric: bool) -> Self:
        """The same fitted twin, evaluated in both orders of a pair or in one."""
        if symmetric == self.symmetric:
            return self
        other = copy.copy(self)
        other.symmetric = symmetric
        return other

    def add_anchors(self, X, y):
        """A new fitted twin with the same trained model and further anchors.

        The original is unchanged. The new anchors have weight 1 where the fit had sample weights.
        """
        check_is_fitted(self)
        queries = self.encode(X, self._schema)
        new_y = validate_target(self, y, len(queries), multi_output=self.anchors_y_.ndim == 2)
        if new_y.shape[1:] != self.anchors_y_.shape[1:]:
            raise ValueError(
                f"y has shape {new_y.shape}, but the twin was fitted on {self.anchors_y_.shape}."
            )
        labels = self.anchor_labels_
        if labels is not None:
            labels = storable_labels(labels + (row_labels(X) or [""] * len(new_y)))
        weights = self.anchor_weights_
        return self.with_anchors(
            np.concatenate([self.anchors_X_, queries.matrix]),
            np.concatenate([self.anchors_y_, new_y]),
            None if weights is None else np.concatenate([weights, np.ones(len(new_y))]),
            np.concatenate([self.anchor_rows_, np.full(len(new_y), -1)]),
            labels,
            queries.schema,
        )

    def with_anchors(
        self,
        X: Floats,
        y: Floats,
        weights: Floats | None,
        rows: Indices,
        labels: list[Any] | None = None,
        schema: TableSchema | None = None,
        metric: LearnedMetric | None = None,
    ) -> Self:
        """A new fitted twin with the same trained model and other anchors.

        `X` (anchor, feature) has categories as codes, and `rows` are those of the training table.
        """
        anchors = Anchors(
            self._schema if schema is None else schema,
            X,
            y,
            weights,
            labels,
            self._row_scale(),
            self._censored_X,
            metric or self._anchors.fitted_metric,
            self.n_jobs,
        )
        other = copy.copy(self)
        other._set_anchors(anchors, rows)
        return other

    # --- stored state -------------------------------------------------------------------------

    def _set_anchors(self, anchors: Anchors, rows: Indices) -> None:
        """Store the anchors, which are these rows of the training table."""
        for measured in {"intervals_", "applicability_"} & vars(self).keys():
            delattr(self, measured)  # which belong to other anchors
        self.anchors_X_, self.anchors_y_ = anchors.X, anchors.y
        self.anchor_weights_, self.anchor_labels_ = anchors.weights, anchors.labels
        self.anchor_rows_, self._schema = rows, anchors.schema
        self._censored_X, metric = anchors.censored_X, anchors.fitted_metric
        self._learned_metric = None if metric is None else tuple(metric)
        self._anchors = anchors

    def restore_anchors(self) -> None:
        """Make the anchors from the stored state, of a model that was unpickled or loaded."""
        metric = self._learned_metric
        self._anchors = Anchors(
            self._schema,
            self.anchors_X_,
            self.anchors_y_,
            self.anchor_weights_,
            self.anchor_labels_,
            self._row_scale(),
            self._censored_X,
            None if metric is None else LearnedMetric(*metric),
            self.n_jobs,
        )
        if (derived := self.__dict__.pop("_anchor_metric", None)) is not None:
            self._anchors.set_metric(LearnedMetric(*derived))
        if nearest := as_anchor_strategy(self.anchors).nearest(len(self.anchors_X_)):
            self._anchors.index(nearest[1])

    def state_to_save(self) -> dict[str, Any]:
        """The attributes, with the learned metric where it is known or intervals need it."""
        if "intervals_" in vars(self):
            _ = self._anchors.metric
        return self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        anchors = state.pop("_anchors", None)
        if anchors is not None and (metric := anchors.derived_metric) is not None:
            state["_anchor_metric"] = tuple(metric)  # so that a copy need not learn it again
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "anchors_X_" in state:
            self.restore_anchors()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "anchors_X_")
