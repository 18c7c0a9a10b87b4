"""Out-of-fold residuals of the anchors, and the choice of local weights by them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from twinned.fitted.anchors import Anchors
from twinned.fitted.twin import FittedTwin
from twinned.pairing.anchors import GPWeights, clearly_lowest
from twinned.rows.folds import Folds, complete_predictions
from twinned.rows.neighbors import distance_matrix
from twinned.rows.schema import Floats, Indices

# Powers of local weights that are compared, and the number of rows by which they are.
_POWERS, _MAX_COMPARED = (0.0, 1.0, 2.0, 4.0), 1000


@dataclass(frozen=True, eq=False)
class LocalResiduals:
    """Out-of-fold errors of the anchors, and how well those of other anchors predict them.

    Only the training rows of the fold of an anchor are used: errors of the same fold are those of
    the same model, and alike also where the model that is fitted to all rows does not err so.
    """

    anchors: Anchors
    errors: Floats  # (anchor,) or (anchor, output)
    folds: Folds  # of the anchors

    @cached_property
    def scaled(self) -> Floats:
        """(anchor, encoded feature): in length scales of the process of the learned metric."""
        return self.anchors.metric.in_length_scales(self.anchors.features)

    def shares(self, power: float, rows: Indices) -> Floats:
        """(row, anchor) weights of `GPWeights` at these anchors, which sum to one.

        They are 0 for an anchor that no fold holds out.
        """
        noise, weight = self.anchors.metric.noise, self.anchors.weight
        weights = GPWeights(power).weigh(distance_matrix(self.scaled[rows], self.scaled), noise)
        is_used = np.zeros(weights.shape, dtype=bool)
        for training, held_out in self.folds:
            is_used[np.ix_(np.isin(rows, held_out), training)] = True
        weights = weights * is_used * (1.0 if weight is None else weight)
        return weights / np.maximum(weights.sum(axis=1, keepdims=True), np.finfo(float).tiny)

    def predict(self, power: float, rows: Indices | None = None) -> Floats:
        """(row,) or (row, output): weighted means of the errors, at all or these anchors."""
        rows = np.arange(len(self.errors)) if rows is None else rows
        blocks = np.array_split(rows, -(-len(rows) // _MAX_COMPARED))
        return np.concatenate([self.shares(power, block) @ self.errors for block in blocks])

    def best_power(self) -> float:
        """The power of the weights that predict the errors clearly best; 0 for equal ones."""
        weight = self.anchors.weight
        held_out = np.sort(np.concatenate([held_out for _, held_out in self.folds]))
        rows = np.random.RandomState(0).permutation(held_out)[:_MAX_COMPARED]
        remaining = [self.errors[rows] - self.predict(power, rows) for power in _POWERS]
        weight = None if weight is None else weight[rows]
        return _POWERS[clearly_lowest(remaining, self.scaled[rows], weight)]


def with_residuals(fitted: FittedTwin, predicted: Floats, folds: Folds | None = None) -> FittedTwin:
    """The state with the residuals of (anchor, …) out-of-fold predictions, and local weights.

    Predictions are NaN for anchors that no fold holds out; their residual is then the mean, 0.
    Without `folds` of the anchors, the weights are equal and predictions are not changed, as where
    models of folds err differently from the final one. A twin that does not use all anchors equally
    has no residuals.
    """
    if not fitted.uses_all_anchors_equally:
        return fitted
    anchors = fitted.anchors
    errors = anchors.y - complete_predictions(predicted, anchors.y, anchors.weight)
    errors = errors - np.average(errors, axis=0, weights=anchors.weight)
    local_weights = None
    if folds is not None and (power := LocalResiduals(anchors, errors, folds).best_power()):
        local_weights = GPWeights(power)
    residuals = errors.reshape(len(errors), -1)
    return replace(fitted, residuals=residuals, local_weights=local_weights)
