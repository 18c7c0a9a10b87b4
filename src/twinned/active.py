"""Active learning: selection of the points to label next.

A score rates the use of a label at each point of a pool. A batch is selected greedily: the next
point has the largest score × gap ** diversity, where the gap is the distance to the nearest point
that is labelled or already selected. This avoids batches of nearly identical points.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from twinned._compat import safe_indexing
from twinned._neighbors import Indices
from twinned._table import Floats
from twinned._validation import check_choice, check_integer, check_real, count_rows
from twinned.estimators.base import BaseTwin
from twinned.estimators.semi_supervised import SemiSupervisedTwinRegressor

_N_REFERENCES = 64  # points of the pool at which the effect of a label is computed
_N_LABELS = 32  # possible values of that label
_BLOCK_ROWS = 256  # candidates at once against all references
_BLOCK_DISTANCES = 1_000_000  # distances at once


def query(
    model: Any,
    X_pool: Any,
    n: int = 1,
    *,
    strategy: str = "uncertainty",
    diversity: float = 1.0,
    random_state: Any = None,
) -> Indices:
    """Return the rows of a pool to label next, the most useful first.

    Parameters
    ----------
    model : a fitted twin
        `TwinRegressor`, `TwinNeuralRegressor` or `SemiSupervisedTwinRegressor`.
    X_pool : table or array of shape (n_pool, n_features)
        Rows without a label.
    n : int, default=1
        Number of rows to select.
    strategy : {"uncertainty", "inconsistency", "change", "difference"}, default="uncertainty"
        Score of a point: the standard deviation of its anchors' estimates (also called
        `"spread"`); the inconsistency of loops through it; the expected change of other
        predictions if it were labelled; or the distance of its predicted value from every known
        one.
    diversity : float, default=1.0
        Power of the distance to labelled and selected points; 0 selects the n largest scores.
    random_state : int, RandomState or None, default=None
        For the strategies that draw loops or reference points.

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
    twin = _fitted_twin(model)
    check_choice("strategy", strategy, [*SCORES, *_ALIASES])
    n = check_integer("n", n)
    power = check_real("diversity", diversity)
    if power < 0:
        raise ValueError(f"diversity must not be negative, but is {diversity!r}.")
    # encoded rows, in the space in which the twin measures distances
    pool, known = twin._validate_queries(X_pool).take(slice(None)).features, twin._anchors.features
    if n > len(pool):
        raise ValueError(f"n={n} exceeds the {len(pool)} rows of the pool.")
    compute_score = SCORES[_ALIASES.get(strategy, strategy)]
    score = compute_score(twin, X_pool, check_random_state(random_state))
    return select_batch(score, pool, known, n, power)


def select_batch(score: Floats, pool: Floats, known: Floats, n: int, diversity: float) -> Indices:
    """Return n rows of `pool`, greedily by score × gap ** diversity.

    Features are standardized; a missing value counts as the mean.

    >>> pool, known = np.array([[0.0], [0.1], [9.0]]), np.array([[4.0]])
    >>> select_batch(np.array([1.0, 1.1, 0.9]), pool, known, 2, diversity=0.0)
    array([1, 0])
    >>> select_batch(np.array([1.0, 1.1, 0.9]), pool, known, 2, diversity=1.0)
    array([2, 1])
    """
    all_rows = np.concatenate([pool, known])
    present = ~np.isnan(all_rows)
    n_present = np.maximum(present.sum(axis=0), 1)
    mean = np.where(present, all_rows, 0.0).sum(axis=0) / n_present
    deviations = np.where(present, all_rows - mean, 0.0)
    std = np.sqrt(np.sum(deviations**2, axis=0) / n_present)
    scale = np.where(std > 0, std, 1.0)
    pool, known = (np.nan_to_num((side - mean) / scale) for side in (pool, known))
    gap = _nearest_distances(pool, known) if diversity else np.ones(len(pool))
    available = np.ones(len(pool), dtype=bool)
    selected = np.empty(n, dtype=np.intp)
    for i in range(n):
        row = int(np.argmax(np.where(available, score * gap**diversity, -np.inf)))
        selected[i] = row
        available[row] = False
        if diversity:
            gap = np.minimum(gap, cdist(pool, pool[[row]])[:, 0])
    return selected


def _nearest_distances(pool: Floats, known: Floats) -> Floats:
    """(n_pool,) distances to the nearest known point."""
    step = max(1, _BLOCK_DISTANCES // len(known))
    return np.concatenate(
        [cdist(pool[i : i + step], known).min(axis=1) for i in range(0, len(pool), step)]
    )


def _uncertainty(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    return _mean_over_outputs(twin, twin.predict(X, return_std=True)[1])


def _inconsistency(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    return _mean_over_outputs(twin, twin.loop_inconsistency(X, random_state=rng))


def _change(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    """E|F(q, x) + y_x − ŷ(q)| over references q of the pool, with y_x from the anchors of x.

    The twin is not refitted: with one anchor more, its mean changes by this over n + 1.
    """
    n_pool = count_rows(X)
    references = np.sort(rng.choice(n_pool, min(_N_REFERENCES, n_pool), replace=False))
    predicted = twin.predict(safe_indexing(X, references))
    out = np.empty((n_pool, *predicted.shape[1:]))
    for low in range(0, n_pool, _BLOCK_ROWS):
        rows = np.arange(low, min(low + _BLOCK_ROWS, n_pool))
        labels = twin.predict_anchors(safe_indexing(X, rows))[1]
        labels = labels[:, rng.choice(labels.shape[1], min(_N_LABELS, labels.shape[1]))]
        differences = twin.predict_difference(
            safe_indexing(X, np.tile(references, len(rows))),
            safe_indexing(X, np.repeat(rows, len(references))),
        ).reshape(len(rows), len(references), *predicted.shape[1:])
        changes = (differences - predicted)[:, :, None] + labels[:, None]
        out[rows] = np.abs(changes).mean(axis=(1, 2))
    return _mean_over_outputs(twin, out)


def _difference(twin: BaseTwin, X: Any, rng: np.random.RandomState) -> Floats:
    """Smallest |F(x, a)| over all anchors a: the distance of x from every known value."""
    n_pool, known = count_rows(X), twin.anchors_y_
    out = np.empty((n_pool, *known.shape[1:]))
    step = max(1, _BLOCK_ROWS * 256 // len(known))
    for low in range(0, n_pool, step):
        rows = np.arange(low, min(low + step, n_pool))
        indices, estimates = twin.predict_anchors(safe_indexing(X, rows))
        out[rows] = np.abs(estimates - known[indices]).min(axis=1)
    return _mean_over_outputs(twin, out)


SCORES: dict[str, Callable[[BaseTwin, Any, np.random.RandomState], Floats]] = {
    "uncertainty": _uncertainty,
    "inconsistency": _inconsistency,
    "change": _change,
    "difference": _difference,
}
_ALIASES = {"spread": "uncertainty"}


def _mean_over_outputs(twin: BaseTwin, score: Floats) -> Floats:
    """(n_pool,) means over the outputs, each divided by the standard deviation of its y."""
    if score.ndim == 1:
        return score
    std = twin.anchors_y_.std(axis=0)
    mean: Floats = (score / np.where(std > 0, std, 1.0)).mean(axis=1)
    return mean


def _fitted_twin(model: Any) -> BaseTwin:
    """Return the fitted twin that predicts for a model."""
    if not _is_twin(model):
        raise TypeError(f"model must be a twin, not {model!r}.")
    check_is_fitted(model)
    twin: BaseTwin = model.twin_ if isinstance(model, SemiSupervisedTwinRegressor) else model
    return twin


def _is_twin(model: Any) -> bool:
    return isinstance(model, BaseTwin | SemiSupervisedTwinRegressor)


def _unwrap(regressor: Any, attribute: str) -> Any:
    """Return the twin itself, or the one that a wrapper holds as `attribute`."""
    twin = regressor if _is_twin(regressor) else getattr(regressor, attribute, None)
    if not _is_twin(twin):
        raise TypeError(f"reg must be a twin, or hold one as {attribute}, but is {regressor!r}.")
    return twin


class TwinQuery(BaseEstimator):
    """Query strategy with the interface of scikit-activeml, for its active-learning loops.

    Parameters
    ----------
    strategy, diversity, random_state
        As in `query`.

    Examples
    --------
    >>> from sklearn.linear_model import Ridge
    >>> from twinned import TwinQuery, TwinRegressor
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0.0, 1.0, float("nan"), float("nan")]
    >>> TwinQuery(random_state=0).query(X, y, TwinRegressor(Ridge()))
    array([3])
    """

    def __init__(
        self, strategy: str = "uncertainty", *, diversity: float = 1.0, random_state: Any = None
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
        """Return the rows of X to label next.

        Parameters
        ----------
        X : table or array of shape (n, n_features)
            Labelled and unlabelled points.
        y : array of shape (n,)
            Target, NaN in unlabelled rows.
        reg : estimator
            A twin, or scikit-activeml's `SklearnRegressor` around one.
        fit_reg : bool, default=True
            Fit a clone of `reg` to the labelled rows first.
        sample_weight : array of shape (n,), default=None
            Sample weights of that fit.
        candidates : array of int, default=None
            Rows of X that may be selected; None is all unlabelled rows.
        batch_size : int, default=1
            Number of rows to select.

        Returns
        -------
        rows : ndarray of shape (batch_size,)
        """
        values = np.asarray(y, dtype=float)
        unlabelled = np.isnan(values.reshape(len(values), -1)).any(axis=1)
        rows = np.flatnonzero(unlabelled) if candidates is None else np.asarray(candidates)
        if not len(rows):
            raise ValueError("There is no candidate: every row has a label.")
        if rows.ndim != 1 or not np.issubdtype(rows.dtype, np.integer):
            raise ValueError("candidates must be rows of X, as a list of integers.")
        if len(np.unique(rows)) < len(rows) or rows.min() < 0 or rows.max() >= len(values):
            raise ValueError(f"candidates must be different rows of X, 0 to {len(values) - 1}.")
        model = _unwrap(reg, "estimator" if fit_reg else "estimator_")
        if fit_reg:
            # a semi-supervised twin is also fitted to the unlabelled rows
            semi_supervised = getattr(model, "loop_weight", 0) > 0
            train = np.arange(len(values)) if semi_supervised else np.flatnonzero(~unlabelled)
            weight = None if sample_weight is None else np.asarray(sample_weight)[train]
            model = clone(model).fit(safe_indexing(X, train), values[train], weight)
        selected = query(
            model,
            safe_indexing(X, rows),
            batch_size,
            strategy=self.strategy,
            diversity=self.diversity,
            random_state=self.random_state,
        )
        return np.asarray(rows[selected], dtype=np.intp)
