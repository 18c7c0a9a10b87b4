"""What the out-of-fold predictions of the members of a blend show: errors, contribution, spread."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from twinned.estimators.blending.plan import MemberResult
from twinned.estimators.blending.rows import BlendRows
from twinned.estimators.blending.weights import Blend, fit_blend, ratio_of_rmse
from twinned.rows.schema import Floats
from twinned.rows.training import TrainingRows

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
    rows: BlendRows
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


def known_predictions(results: list[MemberResult], rows: BlendRows) -> Floats:
    """(known row, member): out-of-fold predictions."""
    n_known = len(rows.known)
    return np.column_stack([result.prediction[:n_known] for result in results])


def blend_members(results: list[MemberResult], shared: BlendRows, seed: int) -> Blend:
    """Blend weights by the out-of-fold predictions of known and of censored rows.

    The error of a censored row is the distance to its bounds. The nested predictions and errors of
    the result are those of the known rows.
    """
    rows, known = shared.rows, shared.known
    predictions = np.column_stack([result.prediction for result in results])
    if rows.bounds is None:
        return fit_blend(predictions, rows.y, rows.weight, rows.groups, seed)
    # with the limit for predictions within bounds, errors are the distances to the bounds
    limits = rows.bounds.limits()
    comparable = np.column_stack([limits + rows.bounds.errors(part) for part in predictions.T])
    blend = fit_blend(comparable, limits, rows.weight, rows.groups, seed)
    nested = blend.nested_prediction[: len(known)]
    rmse, _ = rmse_and_error(nested, known.y, known.weight)
    return blend._replace(nested_prediction=nested, nested_rmse={blend.method: rmse})


def out_of_fold_table(record: FitRecord, prediction: Floats) -> pd.DataFrame:
    """Out-of-fold predictions of the anchors (row,) by the blend and by each member."""
    rows, merged_into = record.rows, record.rows.merged_into
    members = {own.spec.label: own.prediction[merged_into] for own in record.results}
    blend = {
        "y": rows.anchors.y,
        "prediction": prediction,
        "score": np.nan if record.scores is None else record.scores,
        "fold": rows.anchor_folds,
    }
    return pd.DataFrame(blend | members)


def leaderboard(results: list[MemberResult], rows: BlendRows, weights: Floats) -> dict[str, Any]:
    """Columns of a table with one row for each member, the one with the smallest error first."""
    known = rows.known
    predictions = known_predictions(results, rows)
    errors = [rmse_and_error(part, known.y, known.weight) for part in predictions.T]
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
    results: list[MemberResult], rows: BlendRows, blend: Blend, seed: int
) -> dict[str, Any] | None:
    """Ratio of the errors of the blend with and without twins; None where one has no member."""
    others = np.array([not result.member.is_twin for result in results])
    if others.all() or not others.any():
        return None
    known = rows.known
    predictions = known_predictions(results, rows)[:, others]
    without = fit_blend(predictions, known.y, known.weight, known.groups, seed)
    ratio = ratio_of_rmse(
        blend.nested_prediction - known.y,
        without.nested_prediction - known.y,
        known.weight,
        known.groups,
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
