"""Which points to label next: where the twin knows least, spread out over a batch.

A *score* says what a label at each point of the pool is worth. A batch is chosen greedily: the
next point has the largest score × gap ** diversity, where the gap is the distance to the nearest
point that has a label or was chosen before it. So a batch does not spend its labels on one place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_is_fitted

from twinned._neighbors import Indices
from twinned._table import Floats
from twinned._validation import check_choice, check_integer, check_real
from twinned.estimators.base import BaseTwin
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor

_REFERENCES = 64  # points of the pool whose prediction an added label is imagined to change
_LABELS = 32  # values that such a label is imagined to have
_GRID_ROWS = 256  # candidates at once against all references
_DISTANCES = 1_000_000  # at once


def query(
    model: Any,
    X_pool: Any,
    n: int = 1,
    *,
    strategy: str = "spread",
    diversity: float = 1.0,
    random_state: Any = None,
) -> Indices:
    """The rows of a pool to label next, the most useful first.

    Parameters
    ----------
    model : a fitted twin
        `TwinRegressor`, `TwinNeuralRegressor` or `SemiSupervisedTwinRegressor`.
    X_pool : table or array of shape (n_pool, n_features)
        Rows without a label.
    n : int, default=1
        How many to choose.
    strategy : {"spread", "inconsistency", "change", "difference"}, default="spread"
        What makes a point worth a label: the spread of its anchors' estimates; how far loops
        through it are from closing; how much a label there would be expected to change the
        predictions of others; or how far its value is predicted to be from every known one.
    diversity : float, default=1.0
        How much the distance to labelled and chosen points counts; 0 takes the n largest scores.
    random_state : int, RandomState or None, default=None
        For the loops and reference points of the strategies that draw some.

    Returns
    -------
    rows : ndarray of shape (n,)

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import TwinRegressor, query
    >>> twin = TwinRegressor(Ridge()).fit([[0.0], [1.0], [2.0]], [0.0, 1.0, 4.0])
    >>> query(twin, [[0.9], [5.0], [5.1], [-4.0]], 2, strategy="difference")
    array([3, 2])
    """
    twin = _twin_of(model)
    check_choice("strategy", strategy, list(SCORES))
    count = check_integer("n", n)
    weight = check_real("diversity", diversity)
    if not 0 <= weight < np.inf:
        raise ValueError(f"diversity must not be negative, but is {diversity!r}.")
    pool = twin._open(X_pool)
    if count > len(pool):
        raise ValueError(f"n={count} points cannot be chosen from a pool of {len(pool)}.")
    score = SCORES[strategy](twin, X_pool, check_random_state(random_state))
    places = pool.take(slice(None)).features
    return spread_out(score, places, twin._points.features, count, weight)


def spread_out(score: Floats, pool: Floats, known: Floats, n: int, diversity: float) -> Indices:
    """(n,) rows of `pool`, greedily by score × gap ** diversity.

    >>> near, far = np.array([[0.0], [0.1], [9.0]]), np.array([[4.0]])
    >>> spread_out(np.array([1.0, 1.1, 0.9]), near, far, 2, diversity=0.0)
    array([1, 0])
    >>> spread_out(np.array([1.0, 1.1, 0.9]), near, far, 2, diversity=1.0)
    array([2, 1])
    """
    everyone = np.concatenate([pool, known])
    # a missing value lies in the middle, and a constant column nowhere
    there = ~np.isnan(everyone)
    count = np.maximum(there.sum(axis=0), 1)
    middle = np.where(there, everyone, 0.0).sum(axis=0) / count
    width = np.sqrt(np.sum(np.where(there, everyone - middle, 0.0) ** 2, axis=0) / count)
    scale = np.where(width > 0, width, 1.0)
    pool, known = (np.nan_to_num((side - middle) / scale) for side in (pool, known))
    gap = _gaps(pool, known) if diversity else np.ones(len(pool))
    left = np.ones(len(pool), dtype=bool)
    chosen = np.empty(n, dtype=np.intp)
    for place in range(n):
        worth = np.where(left, score * gap**diversity, -np.inf)
        chosen[place] = row = int(np.argmax(worth))
        left[row] = False
        if diversity:
            gap = np.minimum(gap, cdist(pool, pool[[row]])[:, 0])
    return chosen


def _gaps(pool: Floats, known: Floats) -> Floats:
    """(n_pool,) the distance of each to the nearest known point."""
    step = max(1, _DISTANCES // len(known))
    return np.concatenate(
        [cdist(pool[i : i + step], known).min(axis=1) for i in range(0, len(pool), step)]
    )


def _spread(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    return _relative(twin, twin.predict(X, return_std=True)[1])


def _inconsistency(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    return _relative(twin, twin.loop_inconsistency(X, random_state=rng))


def _change(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    """E|F(q, x) + y_x − ŷ(q)| over some q of the pool, y_x as the anchors of x say.

    The twin is not trained again: with one anchor more its mean moves by this, over n + 1.
    """
    n_pool = len(twin._open(X))
    references = np.sort(rng.choice(n_pool, min(_REFERENCES, n_pool), replace=False))
    of_references = _safe_indexing(X, references)
    predicted = twin.predict(of_references)
    out = np.empty((n_pool, *predicted.shape[1:]))
    for low in range(0, n_pool, _GRID_ROWS):
        rows = np.arange(low, min(low + _GRID_ROWS, n_pool))
        candidates = _safe_indexing(X, rows)
        labels = twin.predict_anchors(candidates)[1]
        labels = labels[:, rng.choice(labels.shape[1], min(_LABELS, labels.shape[1]))]
        steps = twin.predict_difference(
            _safe_indexing(X, np.tile(references, len(rows))),
            _safe_indexing(X, np.repeat(rows, len(references))),
        ).reshape(len(rows), len(references), *predicted.shape[1:])
        moved = (steps - predicted)[:, :, None] + labels[:, None]
        out[rows] = np.abs(moved).mean(axis=(1, 2))
    return _relative(twin, out)


def _difference(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    """The smallest |F(x, a)| over all anchors: how far x is from every value that is known."""
    n_pool, known = len(twin._open(X)), twin._anchors_y()
    out = np.empty((n_pool, known.shape[1]))
    step = max(1, _GRID_ROWS * 256 // len(known))
    for low in range(0, n_pool, step):
        rows = np.arange(low, min(low + step, n_pool))
        indices, estimates = twin.predict_anchors(_safe_indexing(X, rows))
        estimates = estimates.reshape(*indices.shape, -1)
        out[rows] = np.abs(estimates - known[indices]).min(axis=1)
    return _relative(twin, twin._shaped(out))


SCORES: dict[str, Callable[[BaseTwin, Any, np.random.RandomState], Floats]] = {
    "spread": _spread,
    "inconsistency": _inconsistency,
    "change": _change,
    "difference": _difference,
}


def _relative(twin: BaseTwin, score: Floats) -> Floats:
    """(n_pool,): the mean over outputs, each in units of its own spread."""
    if score.ndim == 1:
        return score
    width = twin._anchors_y().std(axis=0)
    mean: Floats = (score / np.where(width > 0, width, 1.0)).mean(axis=1)
    return mean


def _twin_of(model: Any) -> BaseTwin:
    """The fitted twin that answers for a model."""
    if not _is_twin(model):
        raise TypeError(f"model must be a twin, not {model!r}.")
    check_is_fitted(model)
    twin: BaseTwin = model.twin_ if isinstance(model, SemiSupervisedTwinRegressor) else model
    return twin


def _is_twin(model: Any) -> bool:
    return isinstance(model, BaseTwin | SemiSupervisedTwinRegressor)


def _unwrapped(regressor: Any, name: str) -> Any:
    """A twin, or the one that a wrapper holds by that name."""
    inner = regressor if _is_twin(regressor) else getattr(regressor, name, None)
    if not _is_twin(inner):
        raise TypeError(f"reg must be a twin, or hold one as {name}, but is {regressor!r}.")
    return inner


class TwinQuery(BaseEstimator):
    """`query` with the method that loops of scikit-activeml call.

    Parameters
    ----------
    strategy, diversity, random_state
        As of `query`.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import TwinQuery, TwinRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, float("nan"), float("nan")]
    >>> TwinQuery(random_state=0).query(X, y, TwinRegressor(Ridge()))
    array([3])
    """

    def __init__(
        self, strategy: str = "spread", *, diversity: float = 1.0, random_state: Any = None
    ) -> None:
        self.strategy = strategy
        self.diversity = diversity
        self.random_state = random_state

    def query(
        self,
        X: Any,
        y: Any,
        reg: Any,
        fit_reg: bool = True,
        sample_weight: Any = None,
        candidates: Any = None,
        batch_size: int = 1,
    ) -> Indices:
        """Rows of X to label next.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            Labelled and unlabelled points.
        y : array of shape (n,)
            Their values, NaN where they are not known.
        reg : estimator
            A twin, or scikit-activeml's `SklearnRegressor` around one.
        fit_reg : bool, default=True
            Fit a clone of it to the labelled rows first.
        sample_weight : array of shape (n,), default=None
            For that fit.
        candidates : array of rows of X, default=None
            Those that may be chosen; None is all without a label.
        batch_size : int, default=1
            How many.
        """
        values = np.asarray(y, dtype=float)
        unknown = np.isnan(values.reshape(len(values), -1)).any(axis=1)
        rows = np.flatnonzero(unknown) if candidates is None else np.asarray(candidates)
        if not len(rows):
            raise ValueError("No candidate is left: every row has a label.")
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise ValueError("candidates must be rows of X, as a list of integers.")
        if len(np.unique(rows)) < len(rows) or rows.min() < 0 or rows.max() >= len(values):
            raise ValueError(f"candidates must be different rows of X, 0 to {len(values) - 1}.")
        model = _unwrapped(reg, "estimator" if fit_reg else "estimator_")
        if fit_reg:
            # who learns from loops gets the rows without a label, too
            looped = getattr(model, "loop_weight", 0) > 0
            learned = np.arange(len(values)) if looped else np.flatnonzero(~unknown)
            weight = None if sample_weight is None else np.asarray(sample_weight)[learned]
            model = clone(model).fit(_safe_indexing(X, learned), values[learned], weight)
        chosen = query(
            model,
            _safe_indexing(X, rows),
            batch_size,
            strategy=self.strategy,
            diversity=self.diversity,
            random_state=self.random_state,
        )
        return np.asarray(rows[chosen], dtype=np.intp)
