"""Weights of several models, from their errors on the same rows."""

import numpy as np
from scipy.optimize import nnls

from twinned.rows.schema import Floats


def greedy_selection(
    errors: Floats, max_rounds: int = 20, least_gain: float = 1e-9, *, stop_early: bool = False
) -> Floats:
    """Weights of models by greedy selection with replacement.

    The first round selects the best model. Each further one counts the model once more that lowers
    the squared error of the mean most.

    Parameters
    ----------
    errors : ndarray of shape (n_rows, n_models)
        Out-of-fold errors, each multiplied by the square root of the weight of its row.
    max_rounds : int, default=20
        Maximum number of rounds.
    least_gain : float, default=1e-9
        Relative decrease of the squared error below which a round does not count as better.
    stop_early : bool, default=False
        Whether the first round that is not better ends the selection. Otherwise a later one may
        still be the best of all.

    Returns
    -------
    weights : ndarray of shape (n_models,)
        Shares of the models in the counts after the best round; they sum to 1.

    Examples
    --------
    >>> errors = np.array([[1.0, -1.0, 9.0], [1.0, -1.0, -9.0]])
    >>> greedy_selection(errors, 10, 1e-4, stop_early=True)
    array([0.5, 0.5, 0. ])
    """
    gram = errors.T @ errors
    unit = np.eye(len(gram))
    counts = selected = unit[np.argmin(np.diag(gram))]
    best = float(np.diag(gram).min())
    for _ in range(max_rounds - 1):
        trials = counts + unit
        trials /= trials.sum(axis=1, keepdims=True)
        squares = np.einsum("ts,sr,tr->t", trials, gram, trials)
        added = int(np.argmin(squares))
        counts = counts + unit[added]
        if squares[added] < best * (1.0 - least_gain):
            best, selected = float(squares[added]), counts
        elif stop_early:
            break
    return selected / selected.sum()


def simplex_least_squares(errors: Floats) -> Floats:
    """(model,) weights, not negative and of sum one, with the smallest squared error.

    `errors` are (row, model): those of anchors, members or other models whose weighted mean
    predicts. A penalty p·‖w − 1/n‖² that draws the weights to equal ones is the same as the
    further rows √p · I, as ‖w − 1/n‖² and ‖w‖² differ by a constant where the weights sum to one.

    For a direction w on the simplex with squared error q, the smallest value over t of
    ‖t E w‖² + (1 − t)² is q / (1 + q), which grows with q. So the nonnegative least squares
    solution of [E; 1] u = [0; 1] has the direction of the optimum.

    >>> simplex_least_squares(np.array([[1.0, -3.0], [1.0, -3.0]]))
    array([0.75, 0.25])
    """
    squares = (errors**2).sum(axis=0)
    unit = np.sqrt(squares.min())
    if not unit > 0:
        return np.eye(len(squares))[np.argmin(squares)]
    factor = np.linalg.qr(errors / unit, mode="r")
    system = np.vstack([factor, np.ones(errors.shape[1])])
    solution, _ = nnls(system, np.append(np.zeros(len(factor)), 1.0))
    return solution / solution.sum()
