"""What the out-of-fold predictions of the members of a blend show: weights, errors and spread.

Three methods give weights that are not negative and sum to one: bagged greedy selection, its mean
with weights by the errors of single members, and least squares on the simplex. Which one is used is
decided by its *nested* error: the weights are fitted to the out-of-fold predictions of four fifths
of the rows and evaluated on the remaining fifth, several times.
"""

import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator

from twinned.estimators.blending.members import CrossFittedMember
from twinned.estimators.blending.rows import BlendRows
from twinned.models.greedy_selection import greedy_selection, simplex_least_squares
from twinned.rows.folds import row_folds
from twinned.rows.schema import Floats, Indices
from twinned.rows.training import TrainingRows

_GREEDY_ROUNDS = 41
_GREEDY_GAIN = 1e-4  # relative fall of the squared error below which greedy selection ends
_BAGS = 20
_NESTED_FOLDS, _NESTED_REPEATS = 5, 4
_BOOTSTRAP_DRAWS = 1000
FAR_BEHIND = "far behind"  # first words of the reason for which a member is not fitted
_LEAST_ROWS = 40  # that the first folds hold out
# Error of a member relative to the best one from which it is far behind; from the smaller ratio on,
# it is where it has next to no weight, too.
_FAR_RATIO, _LEAST_RATIO, _LEAST_WEIGHT = 2.0, 1.5, 0.05

WeightMethod = Callable[[Floats], Floats]  # (row, model) weighted errors → (model,) weights


class BlendWeights(NamedTuple):
    """Blend weights and the nested predictions by which their method was chosen."""

    method: str
    weights: Floats  # (model,)
    nested_prediction: Floats  # (row,): by weights that were fitted to other rows
    nested_rmse: dict[str, float]  # of each method


def bagged_greedy_selection(errors: Floats) -> Floats:
    """Mean weights of greedy selections on bootstrap samples of the rows.

    With squared errors, one row with a large error can decide a selection; it is in about two
    thirds of the samples only. Over the training rows of the paper's data sets, nested errors are
    0.1 to 0.2 % lower than with one selection on all rows, and up to 1.3 % on YH.

    >>> bagged_greedy_selection(np.tile([[1.0, -1.0, 9.0], [1.0, -1.0, -9.0]], (50, 1)))
    array([0.5, 0.5, 0. ])
    """
    draws = np.random.RandomState(0).randint(len(errors), size=(_BAGS, len(errors)))
    selected = [
        greedy_selection(errors[rows], _GREEDY_ROUNDS, _GREEDY_GAIN, stop_early=True)
        for rows in draws
    ]
    weights: Floats = np.mean(selected, axis=0)
    return weights / weights.sum()


def smoothed_selection(errors: Floats) -> Floats:
    """Mean of the weights of greedy selection and of weights by the errors of each member alone.

    The latter are in inverse proportion to the sixth power of the errors, and 0 where they would be
    less than 1 % of the largest. On small tables, where the selection depends on few rows, the
    error of the blend is lower.

    >>> smoothed_selection(np.tile([[1.0, -1.0, 2.0], [1.0, -1.0, -2.0]], (50, 1))).round(3)
    array([0.498, 0.498, 0.004])
    """
    squares = np.maximum(np.mean(errors**2, axis=0), np.finfo(float).tiny)
    alone = (squares.min() / squares) ** 3
    alone[alone < 0.01] = 0.0
    return 0.5 * bagged_greedy_selection(errors) + 0.5 * alone / alone.sum()


METHODS: dict[str, WeightMethod] = {
    "greedy": bagged_greedy_selection,
    "smoothed": smoothed_selection,
    "simplex": simplex_least_squares,
}


def fit_weights(
    predictions: Floats,
    y: Floats,
    weight: Floats | None = None,
    groups: Indices | None = None,
    seed: int = 0,
) -> BlendWeights:
    """Fit blend weights by the method with the smallest nested error.

    Parameters
    ----------
    predictions : ndarray of shape (n_rows, n_models)
        Out-of-fold predictions.
    y : ndarray of shape (n_rows,)
        Target values.
    weight : ndarray of shape (n_rows,), default=None
        Sample weights.
    groups : ndarray of shape (n_rows,), default=None
        Groups that the nested folds do not split.
    seed : int, default=0
        Seed of the nested folds.

    Returns
    -------
    BlendWeights

    Examples
    --------
    >>> y = np.arange(20.0)
    >>> noise = np.resize([1.0, -1.0, -1.0, 1.0, 1.0], 20)
    >>> blend = fit_weights(np.column_stack([y + noise, y - noise, y + 9]), y)
    >>> blend.weights.round(2)
    array([0.5, 0.5, 0. ])
    """
    share = np.full(len(y), 1.0 / len(y)) if weight is None else weight / weight.sum()
    errors = predictions - y[:, None]
    weighted = errors * np.sqrt(share)[:, None]
    # (row, repeat): errors of the blend with weights fitted to the other folds
    nested = {name: np.empty((len(y), _NESTED_REPEATS)) for name in METHODS}
    for repeat in range(_NESTED_REPEATS):
        # a few rows are enough for a few weights
        folds = row_folds(len(y), min(_NESTED_FOLDS, len(y)), seed + repeat, groups, min_rows=1)
        for training, held_out in folds:
            for name, method in METHODS.items():
                nested[name][held_out, repeat] = errors[held_out] @ method(weighted[training])
    # of all repeats: the mean of their squared errors, not the error of their mean
    rmse = {name: float(np.sqrt((share @ values**2).mean())) for name, values in nested.items()}
    chosen = min(METHODS, key=lambda name: rmse[name])
    return BlendWeights(
        method=chosen,
        weights=METHODS[chosen](weighted),
        nested_prediction=y + nested[chosen].mean(axis=1),
        nested_rmse=rmse,
    )


def ratio_of_rmse(
    errors: Floats,
    baseline_errors: Floats,
    weight: Floats | None = None,
    groups: Indices | None = None,
    confidence: float = 0.9,
    seed: int = 0,
) -> dict[str, float]:
    """Ratio of two root mean squared errors and its bootstrap interval over rows or groups.

    Both errors are (n_rows,), of the same rows.

    Returns
    -------
    dict with the keys `ratio`, `lower`, `upper`, `rmse` and `baseline_rmse`

    Examples
    --------
    >>> result = ratio_of_rmse(np.array([1.0, -1.0]), np.array([2.0, 2.0]))
    >>> result["ratio"], result["lower"], result["upper"]
    (0.5, 0.5, 0.5)
    """
    weight = np.ones(len(errors)) if weight is None else weight
    unit = np.arange(len(errors)) if groups is None else groups
    squares: Floats = np.column_stack(
        [np.bincount(unit, weight * values**2) for values in (errors, baseline_errors)]
    ).astype(np.float64)
    n_units, rng, total = len(squares), np.random.RandomState(seed), squares.sum(axis=0)
    draws: list[Floats] = [
        np.bincount(rng.randint(n_units, size=n_units), minlength=n_units) @ squares
        for _ in range(_BOOTSTRAP_DRAWS)
    ]
    error, baseline_error = np.sqrt([total, *draws]).T
    ratio = np.where(error == baseline_error, 1.0, np.inf)  # where the second is 0
    np.divide(error, baseline_error, out=ratio, where=baseline_error > 0)
    tail = (1 - confidence) / 2
    lower, upper = np.quantile(ratio[1:], [tail, 1 - tail])
    rmse, baseline_rmse = np.sqrt(total / weight.sum())
    return {
        "ratio": float(ratio[0]),
        "lower": float(lower),
        "upper": float(upper),
        "rmse": float(rmse),
        "baseline_rmse": float(baseline_rmse),
    }


# --- results of a fit ---


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


def blend(predictions: Floats, rows: BlendRows, seed: int) -> BlendWeights:
    """Weights by out-of-fold predictions (held-out row, member).

    The error of a censored row is the distance to its bounds. The nested predictions and errors of
    the result are those of the known rows.
    """
    held_out, known = rows.held_out, rows.known
    if held_out.bounds is None:
        return fit_weights(predictions, held_out.y, held_out.weight, held_out.groups, seed)
    # with the limit for predictions within bounds, errors are the distances to the bounds
    limits = held_out.bounds.limits()
    comparable = limits[:, None] + np.column_stack(
        [held_out.bounds.errors(predicted) for predicted in predictions.T]
    )
    weights = fit_weights(comparable, limits, held_out.weight, held_out.groups, seed)
    nested = weights.nested_prediction[: len(known)]
    rmse, _ = rmse_and_error(nested, known.y, known.weight)
    return BlendWeights(weights.method, weights.weights, nested, {weights.method: rmse})


def leaderboard(
    members: list[CrossFittedMember], predictions: Floats, known: TrainingRows, weights: Floats
) -> dict[str, Any]:
    """Columns of a table with one row for each member, the one with the smallest error first.

    `predictions` (known row, member) are out of fold.
    """
    errors = [rmse_and_error(predicted, known.y, known.weight) for predicted in predictions.T]
    rmse, error = np.array(errors).T
    order = np.argsort(rmse, kind="stable")
    columns = {
        "rmse": rmse,
        "rmse_se": error,
        "weight": weights,
        "fit_seconds": np.array([member.fit_seconds for member in members]),
        "predict_seconds": np.array([member.predict_seconds for member in members]),
        "bytes": np.array([_pickled_size(member.estimator) for member in members]),
    }
    labels = [members[i].label for i in order]
    return {"member": labels, **{name: values[order] for name, values in columns.items()}}


def _pickled_size(estimator: BaseEstimator) -> int:
    """Bytes of the pickled estimator; 0 where it cannot be pickled, as with a local function."""
    try:
        return len(pickle.dumps(estimator))
    except (pickle.PicklingError, AttributeError, TypeError):
        return 0


def twin_contribution(
    members: list[CrossFittedMember],
    predictions: Floats,
    known: TrainingRows,
    weights: BlendWeights,
    seed: int,
) -> dict[str, Any] | None:
    """Ratio of the errors of the blend with and without twins; None where one has no member."""
    others = np.array([not member.is_twin for member in members])
    if others.all() or not others.any():
        return None
    without = fit_weights(predictions[:, others], known.y, known.weight, known.groups, seed)
    baseline_weights = np.zeros(len(members))
    baseline_weights[others] = without.weights
    ratio = ratio_of_rmse(
        weights.nested_prediction - known.y,
        without.nested_prediction - known.y,
        known.weight,
        known.groups,
        seed=seed,
    )
    return {**ratio, "baseline_weights": baseline_weights}


def spread_weights(predictions: Floats, rows: TrainingRows, weights: Floats) -> Floats:
    """(member,) weights of the spread of (row, member) predictions around the blend.

    Half of them are the weights of the blend, half are in inverse proportion to the mean squared
    errors: so a member that is far worse does not dominate the spread, and the spread does not
    vanish where a single member has all the weight.
    """
    squares = [
        rmse_and_error(predicted, rows.y, rows.weight)[0] ** 2 for predicted in predictions.T
    ]
    smallest = max(min(squares), np.finfo(float).tiny)
    inverse = smallest / np.maximum(squares, smallest)
    shares: Floats = 0.5 * weights + 0.5 * inverse / inverse.sum()
    return shares


# --- members that are far behind others in their first folds --------------------------------------

# Blends give such members next to no weight: on the training rows of the paper's data sets, the
# weights of trees with at least twice the error of the best member are 0.001 in the mean and 0.04
# at most (`benchmarks/results/accuracy_auto.csv`). Those of plain networks where the neural twin
# has at least one and a half times the error of the best are 0.003 and 0.06, with the tables of
# `accuracy_auto_others.csv`.


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
