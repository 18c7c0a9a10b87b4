"""What both neural estimators keep of a training run, and how they see a point."""

from __future__ import annotations

from typing import Any

import numpy as np

from twinned._table import Floats
from twinned.models.neural.fitting import Fitted
from twinned.models.neural.problem import Prepared


def settle_members(estimator: Any, problem: Prepared, fitted: Fitted, twin: bool) -> None:
    """What both neural estimators keep of a training run."""
    estimator._parameters = fitted.parameters
    estimator._embedded = fitted.embedded
    estimator._scale = tuple(problem.scale)
    estimator._schema = problem.columns
    first = "linear_0"
    n_hidden = sum(name.startswith("weight_") for name in fitted.parameters)
    widths = [fitted.parameters[first].shape[-1]]
    widths += [fitted.parameters[f"weight_{i}"].shape[-1] for i in range(1, n_hidden)]
    frequencies = fitted.parameters.get("frequency")
    estimator._shape = {
        "n_features": int(fitted.parameters[first].shape[-2]),
        "n_outputs": int(problem.y.shape[1]),
        "hidden_sizes": tuple(int(width) for width in widths),
        "n_frequencies": 0 if frequencies is None else int(frequencies.shape[-1]),
        "activation": estimator.activation,
        "twin": twin,
    }
    estimator.member_weights_ = fitted.weights
    estimator.n_members_ = fitted.n_members
    estimator.learning_curve_ = fitted.curve
    unseen = fitted.out_of_fold
    if unseen is not None and problem.target.ndim == 1:
        unseen = unseen[:, 0]
    estimator.out_of_fold_prediction_ = unseen


def padded(wide: Floats, n_features: int) -> Floats:
    """(..., n_features) float32: zeros after the columns of `wide`, as the networks were padded."""
    out = np.zeros((*wide.shape[:-1], n_features), dtype=np.float32)
    out[..., : wide.shape[-1]] = wide
    return out
