"""Blend weights of several models, from their out-of-fold predictions.

Three methods give weights that are not negative and sum to one: the single best model, greedy
selection with replacement, and least squares on the simplex. Which one is used is decided by its
*nested* error: the weights are fitted to the out-of-fold predictions of four fifths of the rows and
evaluated on the remaining fifth, several times.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.optimize import nnls

from twinned._neighbors import Indices
from twinned._table import Floats
from twinned.models.greedy_selection import greedy_selection
from twinned.pairing.splits import Folds, row_folds

_GREEDY_ROUNDS = 41
_GREEDY_GAIN = 1e-4  # relative fall of the squared error below which greedy selection ends
# By which the error of the single best model must be lower than that of a blend. Introduced after
# blends had the lower test error on splits 0 and 1 of EE and split 0 of YH.
_SINGLE_GAIN = 0.02
_NESTED_FOLDS, _NESTED_REPEATS = 5, 4
_BOOTSTRAP_DRAWS = 1000

WeightMethod = Callable[[Floats], Floats]  # (row, model) weighted errors → (model,) weights


class Blend(NamedTuple):
    """Blend weights and the nested predictions by which their method was chosen."""

    method: str
    weights: Floats  # (model,)
    nested_prediction: Floats  # (row,): by weights that were fitted to other rows
    nested_rmse: dict[str, float]  # of each method


def single_best(errors: Floats) -> Floats:
    """All weight on the model with the smallest squared error.

    >>> single_best(np.array([[1.0, -2.0], [1.0, 2.0]]))
    array([1., 0.])
    """
    weights = np.zeros(errors.shape[1])
    weights[np.argmin((errors**2).sum(axis=0))] = 1.0
    return weights


def simplex_least_squares(errors: Floats) -> Floats:
    """The weights on the simplex with the smallest squared error.

    For a direction w on the simplex with squared error q, the smallest value over t of
    ‖t E w‖² + (1 − t)² is q / (1 + q), which grows with q. So the nonnegative least squares
    solution of [E; 1] u = [0; 1] has the direction of the optimum.

    >>> simplex_least_squares(np.array([[1.0, -3.0], [1.0, -3.0]]))
    array([0.75, 0.25])
    """
    unit = np.sqrt((errors**2).sum(axis=0).min())
    if not unit > 0:
        return single_best(errors)
    factor = np.linalg.qr(errors / unit, mode="r")
    system = np.vstack([factor, np.ones(errors.shape[1])])
    solution, _ = nnls(system, np.append(np.zeros(len(factor)), 1.0))
    weights: Floats = solution / solution.sum()
    return weights


METHODS: dict[str, WeightMethod] = {
    "single": single_best,
    # its first round is the single best model
    "greedy": partial(
        greedy_selection, max_rounds=_GREEDY_ROUNDS, least_gain=_GREEDY_GAIN, stop_early=True
    ),
    "simplex": simplex_least_squares,
}


def fit_blend(
    predictions: Floats,
    y: Floats,
    weight: Floats | None = None,
    groups: Indices | None = None,
    seed: int = 0,
) -> Blend:
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
    Blend

    Examples
    --------
    >>> y = np.arange(20.0)
    >>> noise = np.resize([1.0, -1.0, -1.0, 1.0, 1.0], 20)
    >>> blend = fit_blend(np.column_stack([y + noise, y - noise, y + 9]), y)
    >>> blend.weights.round(2)
    array([0.5, 0.5, 0. ])
    """
    share = np.full(len(y), 1.0 / len(y)) if weight is None else weight / weight.sum()
    errors = predictions - y[:, None]
    weighted = errors * np.sqrt(share)[:, None]
    folds = nested_folds(len(y), groups, seed)
    nested = {
        name: _nested_errors(errors, weighted, method, folds) for name, method in METHODS.items()
    }
    # of all repeats: the mean of their squared errors, not the error of their mean
    rmse = {name: float(np.sqrt((share @ own**2).mean())) for name, own in nested.items()}
    # a blend of several models, unless the single best one is clearly better: what is best out of
    # fold is often not what is best on new rows
    chosen = min(("greedy", "simplex"), key=lambda name: rmse[name])
    if errors.shape[1] == 1 or rmse["single"] < (1.0 - _SINGLE_GAIN) * rmse[chosen]:
        chosen = "single"
    return Blend(
        method=chosen,
        weights=METHODS[chosen](weighted),
        nested_prediction=y + nested[chosen].mean(axis=1),
        nested_rmse=rmse,
    )


def nested_folds(n_rows: int, groups: Indices | None, seed: int) -> list[Folds]:
    """Several divisions of the rows into folds for the nested error."""
    n_folds = min(_NESTED_FOLDS, n_rows)
    repeats = range(_NESTED_REPEATS)
    # a few rows are enough for a few weights
    return [row_folds(n_rows, n_folds, seed + number, groups, min_rows=1) for number in repeats]


def _nested_errors(
    errors: Floats, weighted: Floats, method: WeightMethod, repeats: list[Folds]
) -> Floats:
    """(row, repeat): errors of the blend with weights fitted to the other folds."""
    nested = np.empty((len(errors), len(repeats)))
    for repeat, folds in enumerate(repeats):
        for training, held_out in folds:
            nested[held_out, repeat] = errors[held_out] @ method(weighted[training])
    return nested


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
        [np.bincount(unit, weight * own**2) for own in (errors, baseline_errors)]
    ).astype(np.float64)
    n_units, rng = len(squares), np.random.RandomState(seed)
    draws: list[Floats] = [
        np.bincount(rng.randint(n_units, size=n_units), minlength=n_units) @ squares
        for _ in range(_BOOTSTRAP_DRAWS)
    ]
    tail = (1 - confidence) / 2
    lower, upper = np.quantile([_root_ratio(own) for own in draws], [tail, 1 - tail])
    rmse, baseline_rmse = np.sqrt(squares.sum(axis=0) / weight.sum())
    return {
        "ratio": _root_ratio(squares.sum(axis=0)),
        "lower": float(lower),
        "upper": float(upper),
        "rmse": float(rmse),
        "baseline_rmse": float(baseline_rmse),
    }


def _root_ratio(squares: Floats) -> float:
    """Root of the first over the second; 1 where both are zero."""
    first, second = np.sqrt(squares)
    return float(first / second) if second > 0 else (1.0 if first == 0 else np.inf)
