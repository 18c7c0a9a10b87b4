"""Members that are far behind the others in their first folds, which a blend does without.

Blends give such members next to no weight: on the training rows of the paper's data sets, the
weights of trees with at least twice the error of the best member are 0.001 in the mean and 0.04 at
most (`benchmarks/results/accuracy_auto.csv`). Those of plain networks where the neural twin has at
least one and a half times the error of the best are 0.003 and 0.06, with the tables of
`accuracy_auto_others.csv`.
"""

from __future__ import annotations

import numpy as np

from twinned.models.greedy_selection import simplex_least_squares
from twinned.rows.schema import Floats
from twinned.rows.training import TrainingRows

FAR_BEHIND = "far behind"  # first words of the reason for which a member is not fitted
_LEAST_ROWS = 40  # that the first folds hold out
# Error of a member relative to the best one from which it is far behind; from the smaller ratio on,
# it is where it has next to no weight, too.
_FAR_RATIO, _LEAST_RATIO, _LEAST_WEIGHT = 2.0, 1.5, 0.05


def first_folds(rows: TrainingRows) -> list[int]:
    """The first folds that together hold out enough known rows to compare members."""
    fold = np.asarray(rows.fold)[rows.known]
    n_held_out = np.bincount(fold[fold >= 0], minlength=rows.n_folds).cumsum()
    return list(range(min(rows.n_folds, 1 + int(np.searchsorted(n_held_out, _LEAST_ROWS)))))


def describe_if_behind(
    label: str, predictions: dict[str, Floats], rows: TrainingRows
) -> str | None:
    """The reason why a member is not fitted further; None where it is not far behind.

    `predictions` (row,) by label have those of the member for some rows, and NaN; others are
    compared where they predict all these rows.
    """
    is_predicted = ~np.isnan(predictions[label]) & ~rows.censored
    y = rows.y[is_predicted]
    weight = np.ones(len(y)) if rows.weight is None else rows.weight[is_predicted]
    errors = {
        name: (values[is_predicted] - y) * np.sqrt(weight / weight.sum())
        for name, values in predictions.items()
        if not np.isnan(values[is_predicted]).any()
    }
    own = errors.pop(label)
    if not errors:
        return None
    rmse = {name: float(np.linalg.norm(values)) for name, values in errors.items()}
    best = min(rmse, key=lambda name: rmse[name])
    own_rmse = float(np.linalg.norm(own))
    if own_rmse < _LEAST_RATIO * rmse[best] or rmse[best] == 0.0:
        return None
    if own_rmse < _FAR_RATIO * rmse[best]:
        weights = simplex_least_squares(np.column_stack([own, *errors.values()]))
        if weights[0] >= _LEAST_WEIGHT:
            return None
    return (
        f"{FAR_BEHIND}: RMSE of {label} {own_rmse:.4g}, of {best} {rmse[best]:.4g} on the same rows"
    )
