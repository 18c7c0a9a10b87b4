"""ExportedTwin: what exported files predict from, and which fitted twins cannot be exported."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from twinned.estimators.base import BaseTwin
from twinned.estimators.neural import BaseNeural
from twinned.fitted.calibration import Calibration
from twinned.fitted.twin import Anchors
from twinned.models.protocol import DifferenceModel
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.pairing.anchors import (
    AnchorStrategy,
    DistanceWeights,
    GPWeights,
    UniformWeights,
    WeightStrategy,
)
from twinned.rows.schema import Floats, Indices, TableSchema


class NotExportableError(TypeError):
    """A model or a part of it cannot be exported."""


def refuse(reason: str, way_out: str) -> NoReturn:
    """Raise an error with the reason and a way out."""
    raise NotExportableError(f"The model cannot be exported: {reason}; {way_out}.")


def read_schema(model: BaseEstimator) -> TableSchema:
    """The kinds and categories of the features; a regressor of scikit-learn has numbers only."""
    if isinstance(model, BaseTwin | BaseNeural):
        return model.schema_
    return TableSchema.all_numeric(int(model.n_features_in_))


def read_feature_names(model: BaseEstimator, prefix: str = "") -> list[str]:
    """Names of the features of a model, or a prefix and their numbers."""
    numbered = [f"{prefix}{j}" for j in range(read_schema(model).n_features)]
    return [str(name) for name in getattr(model, "feature_names_in_", numbered)]


def refuse_batches(model: BaseEstimator) -> None:
    """Raise for a model with batches: an export or a part of it would predict without offsets."""
    models = (model, *model.targets_) if isinstance(model, BaseTwin) else ()
    if any(target.batches_ is not None for target in models):
        raise NotExportableError("batch: offsets of batches cannot be exported; use twinned.save.")


@dataclass(frozen=True, eq=False)
class ExportedTwin:
    """A fitted twin of one schema, as exported files predict it.

    The differences of a query to its anchors and the known values of these are estimates, whose
    weighted mean is the prediction. With residuals, the estimate from an anchor is instead this
    mean plus its residual, or its known value where the query equals it.

    Parameters
    ----------
    model : DifferenceModel
        The differences.
    anchors : Anchors
        The stored rows.
    table_rows : ndarray of shape (n_anchors,)
        Their rows in the training table; −1 for those that were added later.
    anchor_strategy : AnchorStrategy
        The anchors of a query.
    weights : WeightStrategy or GPWeights
        Weights of the estimates by differences.
    residuals : ndarray of shape (n_anchors, n_outputs), or None
        Known values minus out-of-fold predictions.
    local_power : float
        The power of `GPWeights` of the estimates with residuals; 0 for equal weights.
    replicate_correlation : float
        The correlation by which anchors that equal the query have more weight.
    calibration : Calibration or None
        The calibration of prediction intervals.
    """

    model: DifferenceModel
    anchors: Anchors
    table_rows: Indices
    anchor_strategy: AnchorStrategy
    weights: WeightStrategy | GPWeights
    residuals: Floats | None
    local_power: float
    replicate_correlation: float
    calibration: Calibration | None

    @classmethod
    def read(cls, twin: BaseTwin) -> Self:
        """Read a fitted twin; raise where no file can predict it."""
        refuse_batches(twin)
        fitted = twin.fitted_
        model = fitted.model
        if isinstance(model, SklearnDifferenceModel) and callable(model.features.kind):
            refuse("pair_features is a Python function", "use one of those with a name")
        if type(fitted.weight_strategy) not in (UniformWeights, DistanceWeights, GPWeights):
            way_out = "use weights='uniform', 'distance' or GPWeights()"
            refuse(f"weights={fitted.weight_strategy!r} is a Python function", way_out)
        return cls(
            model=model,
            anchors=fitted.anchors,
            table_rows=np.asarray(twin.anchor_rows_),
            anchor_strategy=fitted.anchor_strategy,
            weights=fitted.weight_strategy,
            residuals=fitted.errors,
            local_power=0.0 if fitted.local_weights is None else fitted.local_weights.power,
            replicate_correlation=fitted.replicate_correlation,
            calibration=twin.calibration_,
        )

    def require_equal_use_of_anchors(self) -> None:
        """Raise where the anchors by differences or their weights depend on the query."""
        if self.nearest is not None or type(self.weights) is not UniformWeights:
            reason = f"anchors={self.anchor_strategy!r} with weights={self.weights!r} depend on x"
            refuse(reason, "use n_anchors=32 to replace them by 32 chosen anchors")

    @property
    def nearest(self) -> tuple[int, str] | None:
        """The number of nearest anchors of a query and their metric; None for all of them."""
        return self.anchor_strategy.nearest(len(self.anchors))

    @property
    def shares(self) -> Floats:
        """(anchor,): weights of the rows of the fit, which sum to one."""
        weights = self.anchors.weights
        weights = np.ones(len(self.anchors)) if weights is None else weights / weights.max()
        return weights / weights.sum()

    @property
    def mean_residual(self) -> Floats:
        """(output,): the weighted mean of the residuals; zero without."""
        no_residuals = np.zeros_like(self.anchors.targets)
        return self.shares @ (no_residuals if self.residuals is None else self.residuals)

    @property
    def is_local(self) -> bool:
        """Whether the weights of the estimates with residuals depend on the query."""
        has_weights = self.local_power > 0 or self.replicate_correlation > 0
        return self.residuals is not None and has_weights

    @property
    def pair_columns(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(pair column,): its role (`PairColumn`), and the column of `Rows` it is made of."""
        assert isinstance(self.model, SklearnDifferenceModel)
        return self.model.features.layout(self.anchors.rows)
