"""What C code and ONNX models read from fitted models, and what neither can export."""

from typing import NoReturn

import numpy as np
from sklearn.base import BaseEstimator

from twinned.estimators.base import TwinMethods
from twinned.fitted.twin import FittedTwin
from twinned.models.sklearn import SklearnDifferenceModel
from twinned.pairing.anchors import AllAnchors, NearestAnchors
from twinned.rows.schema import Floats


class NotExportableError(TypeError):
    """A model or a part of it cannot be exported."""


def refuse(reason: str, way_out: str) -> NoReturn:
    """Raise an error with the reason and a way out."""
    raise NotExportableError(f"The model cannot be exported: {reason}; {way_out}.")


def refuse_batches(model: TwinMethods) -> None:
    """Raise for a twin with batches: an export or a part of it would predict without offsets."""
    if any(twin.fitted_.batches is not None for twin in model.targets_ or [model]):
        raise NotExportableError("batch: offsets of batches cannot be exported; use twinned.save.")


def read_fitted(twin: TwinMethods) -> FittedTwin:
    """The fitted state of a twin, from which files predict; raise where none can."""
    refuse_batches(twin)
    fitted = twin.fitted_
    model = fitted.model
    if isinstance(model, SklearnDifferenceModel) and callable(model.features.kind):
        refuse("pair_features is a Python function", "use one of those with a name")
    if not fitted.uses_all_anchors_equally:
        anchors = AllAnchors() if fitted.nearest is None else NearestAnchors(*fitted.nearest)
        strategies = f"{anchors=}, weights={fitted.weight_strategy!r}"
        refuse(f"exports use all anchors equally, not {strategies}", "use twinned.thin(twin, 32)")
    return fitted


def read_feature_names(model: BaseEstimator, n_features: int) -> list[str]:
    """Names of the features of a model, or x0, x1, … where it was fitted to an array."""
    numbered = [f"x{j}" for j in range(n_features)]
    return [str(name) for name in getattr(model, "feature_names_in_", numbered)]


def anchor_shares(fitted: FittedTwin) -> Floats:
    """(anchor,): the sample weights of the anchors, which sum to one."""
    weights = fitted.anchors.weight
    weights = np.ones(len(fitted.anchors)) if weights is None else weights / weights.max()
    return weights / weights.sum()


def mean_residual(fitted: FittedTwin) -> Floats:
    """(output,): the weighted mean of the residuals of the anchors; zero without residuals."""
    if fitted.residuals is None:
        return np.zeros(fitted.anchors.outputs.shape[1])
    return anchor_shares(fitted) @ fitted.residuals
