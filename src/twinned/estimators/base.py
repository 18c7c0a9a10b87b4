"""Base class of twins: their fitted state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from pandas import DataFrame

from twinned._compat import BaseEstimator
from twinned.estimators.methods import TwinMethods
from twinned.fitted.anchors import Queries
from twinned.fitted.twin import FittedTwin
from twinned.models.resources import MemoryBudget
from twinned.rows.schema import TableSchema
from twinned.rows.training import TrainingRows
from twinned.rows.validation import validate_table


class BaseTwin(TwinMethods, BaseEstimator):
    """Base class of regressors that predict from differences to anchors.

    A subclass has the parameters `anchors`, `weights`, `symmetric`, `memory_limit`, `n_jobs` and
    `random_state`. Its `fit` sets `_pair_dtype` and, at its end, the fitted state.
    """

    memory_limit: int | str | None
    refit: Callable[..., Self]  # of a fit that can be repeated with some of the rows
    training_rows: Callable[[], TrainingRows]  # of blends, as the next
    out_of_fold: Callable[[], DataFrame]
    _pair_dtype: np.dtype[np.floating]
    _fitted: FittedTwin | None = None
    target_name_: str  # only of a model that the command line fitted
    batch_name_: str | None  # column of batches, of a fit with a Series or by the command line

    @property
    def fitted_(self) -> FittedTwin:
        """The fitted state, for the present `n_jobs` and `memory_limit`."""
        if self._fitted is None:
            self.require_single_target()
        assert self._fitted is not None, "the twin is fitted"
        return self._fitted.with_budget(self._budget())

    def with_strategies(self, *, anchors: object = None, weights: object = None) -> Self:
        """As in `TwinMethods`; the strategies are also parameters of the result."""
        other = super().with_strategies(anchors=anchors, weights=weights)
        chosen = {"anchors": anchors, "weights": weights}
        vars(other).update({name: value for name, value in chosen.items() if value is not None})
        return other

    def with_fitted(self, fitted: FittedTwin) -> Self:
        """A copy of the estimator with another fitted state."""
        other = type(self).__new__(type(self))
        other.__dict__.update(vars(self), _fitted=fitted)
        return other

    def _budget(self) -> MemoryBudget:
        return MemoryBudget.of(self.memory_limit, self.n_jobs)

    def validate_queries(
        self, X: ArrayLike, *, learn_categories: bool = False, schema: TableSchema | None = None
    ) -> Queries:
        """Validated rows without batches; with `learn_categories`, new ones are in their schema."""
        fitted = self._fitted or self.fitted_
        matrix, schema = validate_table(
            self, X, schema or fitted.schema, self._pair_dtype, learn_categories=learn_categories
        )
        return Queries(schema, fitted.anchors.scale, matrix)

    def __sklearn_is_fitted__(self) -> bool:
        return bool(self.targets_) or self._fitted is not None
