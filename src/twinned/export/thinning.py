"""Thinning: the few anchors that predict as all of them do."""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from twinned.estimators.base import BaseTwin
from twinned.export.model_parts import refuse_batches
from twinned.fitted.twin import FittedTwin
from twinned.models.greedy_selection import simplex_least_squares
from twinned.rows.schema import Floats, Indices
from twinned.rows.validation import check_integer, count_rows, validate_target

_MAX_CANDIDATES = 1000  # anchors to choose from; of more, as many are drawn
_MAX_ROWS = 400  # rows of each kind on which predictions are compared
_MAX_EXCHANGES = 20  # rounds of the local search
_SHRINKAGE = 0.01


def thin(
    twin: BaseTwin, n_anchors: int, X: ArrayLike | None = None, y: ArrayLike | None = None
) -> BaseTwin:
    """Choose the anchors worth storing, with their weights.

    Without `y`, the chosen anchors are those whose weighted mean is closest to the prediction from
    all anchors. No labels are needed for that, so it is compared on the anchors themselves, on as
    many rows whose features are those of two anchors at random, and on the rows of `X`: the twin
    has seen the first in its fit, but not the others. With `y`, the squared error of the rows of
    `X` is added; these must not have been used in `fit`.

    Anchors are chosen greedily with equal weights, then exchanged one by one as long as that
    helps. Then nonnegative weights are fitted, with a penalty on their distance from equal weights.
    Their mean is one, the weight of an anchor that `add_anchors` adds.

    Parameters
    ----------
    twin : TwinRegressor or TwinNeuralRegressor
        A fitted twin of a single output. It is not changed.
    n_anchors : int
        Number of anchors to choose; with as many as the twin has, or more, all are used. Of more
        than 1,000 anchors, 1,000 are drawn to choose from.
    X : table or array of shape (n, n_features), default=None
        Further rows on which predictions are compared.
    y : array of shape (n,), default=None
        Their values.

    Returns
    -------
    twin
        A fitted twin with the same trained model and the chosen anchors. Their weights are
        `anchor_weights_`, and its parameters are `anchors="all"` and `weights="uniform"`. It stores
        no calibration of intervals: use `twinned.conformal`.

    Examples
    --------
    >>> from sklearn.ensemble import RandomForestRegressor
    >>> from twinned import TwinRegressor
    >>> from twinned.datasets import make_tf
    >>> from twinned.export import thin
    >>> X, y = make_tf(80, random_state=0)
    >>> forest = RandomForestRegressor(10, min_samples_leaf=2, random_state=0)
    >>> twin = TwinRegressor(forest).fit(X[:60], y[:60])
    >>> small = thin(twin, 8)
    >>> len(small.anchors_X_), float(small.anchor_weights_.mean().round(6))
    (8, 1.0)
    >>> bool(np.abs(small.predict(X[60:]) - twin.predict(X[60:])).mean() < 0.05 * y.std())
    True
    """
    n_anchors = check_integer("n_anchors", n_anchors)
    if not isinstance(twin, BaseTwin) or twin.is_blend:
        raise TypeError(
            f"twin must be a TwinRegressor or TwinNeuralRegressor, not {type(twin).__name__}; fit "
            "one (twinned fit --model twin)."
        )
    check_is_fitted(twin)
    refuse_batches(twin)
    if twin.anchors_y_.ndim != 1:
        raise ValueError(f"Thinning needs a single output, but y has {twin.anchors_y_.shape[1]}.")
    if y is not None and X is None:
        raise ValueError("y is given, but X is None; they belong together.")
    candidates, gram = deviation_gram(twin, X, y)
    chosen = np.sort(choose_anchors(gram, min(n_anchors, len(candidates))))
    weights = fit_anchor_weights(gram[np.ix_(chosen, chosen)], _SHRINKAGE)
    # their mean is one, as that of equal weights: `add_anchors` adds anchors of this weight
    return take_anchors(twin, candidates[chosen], len(weights) * weights)


def take_anchors(twin: BaseTwin, indices: Indices, weights: Floats | None) -> BaseTwin:
    """A copy of the twin with some of its anchors, all of which are used for each query."""
    fitted = twin.fitted_
    # the metric is learned from more rows than those that remain
    metric = fitted.anchors.metric
    anchors = replace(fitted.anchors.take(indices), weight=weights, learned_metric=metric)
    # the differences alone: neither residuals nor a calibration
    thinned = twin.with_fitted(FittedTwin(model=fitted.model, anchors=anchors))
    return thinned.set_params(anchors="all", weights="uniform")


def deviation_gram(
    twin: BaseTwin, X: ArrayLike | None = None, y: ArrayLike | None = None
) -> tuple[Indices, Floats]:
    """The anchors to choose from, and the Gram matrix of the deviations of their estimates."""
    rng = np.random.RandomState(0)
    fitted = replace(twin.fitted_, residuals=None, local_weights=None)
    candidates = np.sort(rng.permutation(len(fitted.anchors))[:_MAX_CANDIDATES])
    with_candidates = take_anchors(twin, candidates, None).fitted_
    rows = rng.permutation(len(fitted.anchors))[:_MAX_ROWS]
    matrices = [fitted.anchors.matrix[rows], crossed_rows(fitted.anchors.matrix, rows, rng)]
    if X is not None:
        matrices.append(twin.encode(X).matrix)
    # (row, candidate): estimates minus what they should be, for each kind of rows
    deviations: list[Floats] = []
    for matrix in matrices:
        estimates = with_candidates.predict_anchors(with_candidates.queries(matrix))[1][..., 0]
        deviations.append(estimates - fitted.moments(fitted.queries(matrix))[0])
    # the estimate of a row from itself is no measure of other rows
    deviations[0][rows[:, None] == candidates] = 0.0
    if y is not None:
        known_y = validate_target(twin, y, count_rows(X), multi_output=False)
        deviations.append(estimates - known_y[:, None])
    grams = [deviation.T @ deviation / len(deviation) for deviation in deviations]
    return candidates, np.sum(grams, axis=0)


def crossed_rows(matrix: Floats, rows: Indices, rng: np.random.RandomState) -> Floats:
    """(row, feature): rows of a matrix, each feature at random from a row or from another one."""
    first, second = matrix[rows], matrix[rng.permutation(rows)]
    return np.where(rng.uniform(size=first.shape) < 0.5, first, second)


def choose_anchors(gram: Floats, n_anchors: int) -> Indices:
    """(n_anchors,) anchors whose mean deviates least, by the Gram matrix of their deviations.

    Greedily, then by exchanges of one anchor at a time.

    >>> deviations = np.array([[1.0, -1.0, 3.0], [1.0, -1.0, 3.0]])
    >>> choose_anchors(deviations.T @ deviations, 2)
    array([0, 1])
    """
    diagonal = np.diag(gram)
    chosen = np.array([], dtype=np.intp)
    sums = np.zeros(len(gram))  # of the rows of the chosen ones
    total = 0.0  # squared deviation of the sum of the chosen ones
    for _ in range(n_anchors):
        totals = total + 2.0 * sums + diagonal
        totals[chosen] = np.inf
        added = int(np.argmin(totals))
        chosen, total = np.append(chosen, added), float(totals[added])
        sums = sums + gram[added]
    for _ in range(_MAX_EXCHANGES):
        before = total
        for position, dropped in enumerate(chosen):
            rest = sums - gram[dropped]
            totals = total - 2.0 * rest[dropped] - diagonal[dropped] + 2.0 * rest + diagonal
            totals[np.delete(chosen, position)] = np.inf
            added = int(np.argmin(totals))
            if totals[added] < total:
                chosen[position], total = added, float(totals[added])
                sums = rest + gram[added]
        if not total < before * (1.0 - 1e-6):
            break
    return chosen


def fit_anchor_weights(gram: Floats, shrinkage: float) -> Floats:
    """(anchor,) nonnegative weights w that sum to one and minimize wᵀGw + penalty.

    The penalty is `shrinkage` times the mean diagonal times the squared distance from equal
    weights.

    >>> fit_anchor_weights(np.diag([1.0, 3.0]), 0.0).round(3)
    array([0.75, 0.25])
    """
    n_anchors = len(gram)
    size = float(np.mean(np.diag(gram)))
    if not size > 0:
        return np.full(n_anchors, 1.0 / n_anchors)
    values, vectors = np.linalg.eigh(gram / size + shrinkage * np.eye(n_anchors))
    root = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T  # rootᵀ root is the matrix
    return simplex_least_squares(root)
