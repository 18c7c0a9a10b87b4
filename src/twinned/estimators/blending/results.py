"""What the out-of-fold predictions of the members of a blend show: errors, contribution, spread."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from twinned.estimators.blending.members import TrainingRows
from twinned.estimators.blending.plan import MemberResult
from twinned.estimators.blending.rows import SharedRows
from twinned.estimators.blending.weights import Blend, fit_blend, ratio_of_rmse
from twinned.rows.schema import Floats

# of the numbers of a leaderboard in notebooks
LEADERBOARD_FORMATS = {
    "weight": ".2f",
    "fit_seconds": ".1f",
    "predict_seconds": ".2g",
    "bytes": ",",
    "rmse_se": ".2g",
}


class FitRecord(NamedTuple):
    """Results of the fit of a blend that a saved blend does not have."""

    results: list[MemberResult]
    shared: SharedRows
    seed: int
    scores: Floats | None = None  # (row of positive weight,): of the intervals


def rmse_and_error(predicted: Floats, y: Floats, weight: Floats | None) -> tuple[float, float]:
    """Root mean squared error of (row,) predictions, and its standard error.

    >>> rmse_and_error(np.array([1.0, -1.0]), np.zeros(2), None)
    (1.0, 0.0)
    """
    share = np.full(len(y), 1.0 / len(y)) if weight is None else weight / weight.sum()
    squares = (predicted - y) ** 2
    mean = float(share @ squares)
    if mean == 0:
        return 0.0, 0.0
    # the standard error of the mean square, through the derivative of the root
    error = np.sqrt((share**2) @ (squares - mean) ** 2)
    return float(np.sqrt(mean)), float(error / (2 * np.sqrt(mean)))


def blend_members(results: list[MemberResult], shared: SharedRows, seed: int) -> Blend:
    """Blend weights by the out-of-fold predictions of known and of censored rows.

    The error of a censored row is the distance to its bounds. The nested predictions and errors of
    the result are those of the known rows.
    """
    rows, censored = shared.training, shared.training.censored
    predictions = np.column_stack([result.prediction for result in results])
    if censored is None:
        return fit_blend(predictions, rows.y, rows.weight, shared.groups, seed)
    every = rows.with_censored()
    beyond = np.column_stack([own for own in (r.censored for r in results) if own is not None])
    groups = shared.groups
    if groups is not None:  # censored rows are groups of their own
        groups = np.append(groups, groups.max() + 1 + np.arange(len(beyond)))
    joined = np.concatenate([predictions, beyond])
    blend = fit_blend(joined, every.bounds.limits(), every.weight, groups, seed)
    nested = blend.nested_prediction[: len(rows.y)]
    rmse, _ = rmse_and_error(nested, rows.y, rows.weight)
    return blend._replace(nested_prediction=nested, nested_rmse={blend.method: rmse})


def out_of_fold_table(record: FitRecord, y: Floats, prediction: Floats) -> pd.DataFrame:
    """Out-of-fold predictions of the rows (row,) by the blend and by each member."""
    merged_into = record.shared.merged_into
    fold = record.shared.training.fold[merged_into]
    members = {own.spec.label: own.prediction[merged_into] for own in record.results}
    scores = np.nan if record.scores is None else record.scores
    blend = {"y": y, "prediction": prediction, "score": scores, "fold": fold}
    return pd.DataFrame(blend | members)


def leaderboard(results: list[MemberResult], rows: TrainingRows, weights: Floats) -> dict[str, Any]:
    """Columns of a table with one row for each member, the one with the smallest error first."""
    errors = [rmse_and_error(result.prediction, rows.y, rows.weight) for result in results]
    rmse, error = np.array(errors).T
    order = np.argsort(rmse, kind="stable")
    columns = {
        "rmse": rmse,
        "rmse_se": error,
        "weight": weights,
        "fit_seconds": np.array([result.fit_seconds for result in results]),
        "predict_seconds": np.array([result.predict_seconds for result in results]),
        "bytes": np.array([_pickled_size(result.member.estimator) for result in results]),
    }
    names = [results[i].spec.label for i in order]
    return {"member": names, **{name: values[order] for name, values in columns.items()}}


def _pickled_size(estimator: Any) -> int:
    """Bytes of the pickled estimator; 0 where it cannot be pickled, as with a local function."""
    try:
        return len(pickle.dumps(estimator))
    except (pickle.PicklingError, AttributeError, TypeError):
        return 0


def twin_contribution(
    results: list[MemberResult], shared: SharedRows, blend: Blend, seed: int
) -> dict[str, Any] | None:
    """Ratio of the errors of the blend with and without twins; None where one has no member."""
    rows = shared.training
    others = np.array([not result.member.is_twin for result in results])
    if others.all() or not others.any():
        return None
    predictions = np.column_stack([result.prediction for result in results])
    without = fit_blend(predictions[:, others], rows.y, rows.weight, shared.groups, seed)
    ratio = ratio_of_rmse(
        blend.nested_prediction - rows.y,
        without.nested_prediction - rows.y,
        rows.weight,
        shared.groups,
        seed=seed,
    )
    baseline_weights = np.zeros(len(results))
    baseline_weights[others] = without.weights
    return {**ratio, "baseline_weights": baseline_weights}


def spread_weights(predictions: Floats, rows: TrainingRows, weights: Floats) -> Floats:
    """(member,) weights of the spread of (row, member) predictions around the blend.

    Half of them are the weights of the blend, half are in inverse proportion to the mean squared
    errors: so a member that is far worse does not dominate the spread, and the spread does not
    vanish where a single member has all the weight.
    """
    squares = [rmse_and_error(own, rows.y, rows.weight)[0] ** 2 for own in predictions.T]
    smallest = max(min(squares), np.finfo(float).tiny)
    inverse = smallest / np.maximum(squares, smallest)
    shares: Floats = 0.5 * weights + 0.5 * inverse / inverse.sum()
    return shares
